/*
 * peer.h - one connection: what the socket side (server.c) and the meaning side (wiring.c, control.c) know of
 * it.
 *
 * A peer that is closed stays valid, and silent, until the end of the loop turn: nobody needs to look out for
 * a peer that vanishes under its hands.
 */
#ifndef GS_PEER_H
#define GS_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/list.h"
#include "gpushare/protocol.h"
#include "origin.h"
#include "terms.h"
#include "users.h"

enum peer_role {
  PEER_FRESH,   /* has not said what it is */
  PEER_CLIENT,  /* has registered */
  PEER_CTL,     /* has asked for status or a change */
  PEER_SPATIAL, /* uses MPS, as long as it is there */
};

struct attachment;
struct server;
struct record;

/* What a peer reads of a record. */
struct reading {
  const struct record *record; /* NULL: it reads none */
  struct list link;            /* of the server's readers */
  uint64_t next_seq;           /* that it has not had */
  uint64_t end_seq;            /* before which it ends */
  bool follows;                /* it does not end */
  bool sees_all;               /* also what concerns other users alone */
  bool waits;                  /* for its socket to take more */
};

struct peer {
  /* server.c */
  struct server *server;
  struct list link;     /* of the server's open or closed peers */
  struct list due_link; /* must register, or read what it asked for, until due_ns */
  uint64_t due_ns;
  int fd;
  uid_t uid;
  pid_t pid;
  bool near; /* in no container when it connected */
  bool closed;
  uint64_t tokens, tokens_ns; /* messages it may still send, as of then */
  struct gs_msg *out;         /* what it has not read yet; NULL: nothing */
  size_t out_count, out_sent;
  struct user *user;
  struct reading reading; /* readers.c */
  bool expelled;          /* closed, and not by the other end */
  /* wiring.c */
  enum peer_role role;
  uint32_t job_id;
  bool uses_mps; /* as it says */
  bool stopped;  /* its process, when status was asked for last (status.c) */
  char name[GS_NAME_SIZE];
  uint64_t command_hash;
  char command[GS_COMMAND_SIZE];
  int32_t own_pid; /* in its own pid namespace, it says; 0: unknown */
  struct origin origin;
  uint64_t started_ns; /* when it registered */
  bool exits;          /* it has said so: */
  int32_t exit_status;
  struct terms terms;
  bool cut_noted;                    /* that it asks for more than it may, in the log */
  bool refusal_noted;                /* that it names a GPU that the host has not, likewise */
  char gang[GS_GANG_SIZE];           /* that its attachments join; empty: none */
  uint64_t gpu_ns, waited_ns, turns; /* had on a GPU that it has left; of several the most */
  struct attachment *attachments[GS_GPUS_PER_CLIENT];
};

/* Send. A peer that does not read is closed. */
void peer_send(struct peer *peer, const struct gs_msg *msg);

/* Likewise, and a descriptor with it, which stays the caller's. If the kernel will not take that one, the
 * message goes alone. */
void peer_send_passing(struct peer *peer, const struct gs_msg *msg, int passed);

/* Send many, as fast as the peer reads. Takes over `msgs`, from malloc. Nothing else is received meanwhile.
 */
void peer_send_many(struct peer *peer, struct gs_msg *msgs, size_t count);

/* Send EVENTS of the record from there to the present end, then EVENTS_END; or, if it follows, also what is
 * added later. Nothing else is received meanwhile. 0; -EUSERS: the user reads too much already. */
int peer_read(struct peer *peer, const struct record *record, uint64_t from_seq, bool follow);

/* End the connection, with a line in the log. */
void peer_close(struct peer *peer, const char *why);

/* Where its process comes from, as long as that is there. */
struct origin peer_find_origin(const struct peer *peer);

/* Its process is stopped: by SIGSTOP, Ctrl-Z or a debugger. False where the daemon can't see it. */
bool peer_is_stopped(const struct peer *peer);

/* May it change settings? (permission.h) */
bool peer_may_change(const struct peer *peer);

/* It has said what it is. */
void peer_settle(struct peer *peer, enum peer_role role);

#endif
