/*
 * peer.h - one connection: what the socket side (server.c) and the meaning side (messages.c, control.c) know
 * of it.
 *
 * A peer that is closed stays valid, and silent, until it is served: nobody needs to look out for a peer that
 * vanishes under its hands.
 */
#ifndef GS_PEER_H
#define GS_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/list.h"
#include "common/wire.h"
#include "gpushare/protocol.h"
#include "server/process.h"
#include "server/terms.h"
#include "server/users.h"

enum peer_role {
  PEER_FRESH,   /* has not said what it is */
  PEER_CLIENT,  /* has registered */
  PEER_CTL,     /* has asked for status or a change */
  PEER_SPATIAL, /* uses MPS, as long as it is there */
};

struct attachment;
struct held;
struct picture;
struct server;
struct record;

/* May a process attach to a GPU (presence.h)? ASKED: it is being looked at. */
enum presence_verdict { PRESENCE_ADMITTED, PRESENCE_REFUSED, PRESENCE_ASKED };

/* An ATTACH that waits for that. */
struct look {
  struct gs_msg *attach; /* NULL: there is none */
  struct list link;      /* those of its user that wait, or all that are asked, or settled */
  struct list due_link;  /* all, by until_ns */
  uint64_t id;           /* of the question; 0: not asked yet */
  uint64_t until_ns;
  uint64_t start_ticks;
  uint32_t minor;
  enum presence_verdict verdict; /* of one that is settled */
};

/* Of a reader of accounts, among jobs on GPUs: up to there it has been told of those whose spans go on
 * (usage.h). */
struct usage_place {
  uint32_t bucket; /* of the daemon's clients */
  uint64_t key;    /* within it: the job, and the GPU's number; 0: before the first one */
};

/* What a peer reads of a record. */
struct reading {
  const struct record *record; /* NULL: it reads none */
  struct list link;            /* of the server's readers */
  uint64_t next_seq;           /* that it has not had */
  uint64_t since_seq;          /* it is told of events that were displaced by this one or later ones */
  uint64_t end_seq;            /* before which it ends */
  bool follows;                /* it does not end */
  bool sums_up;                /* accounts: it has all up to now, also of spans that go on; */
  struct usage_place place;    /* of these: so far */
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
  int pidfd; /* of its process; negative: none */
  bool near; /* in no container when it connected */
  bool closed;
  uint64_t tokens, tokens_ns; /* messages it may still send, as of then */
  struct user *user;
  struct list ready_link; /* of what its user has to do */
  uint64_t ready_ns;      /* since when */
  uint32_t ready_events;  /* that epoll has told of since it was served last */
  uint32_t received;      /* messages, since others of its user had their turn */
  bool admitted;
  bool leaves;             /* it ends, and others may wait for what it has: served beside its user's turns */
  struct list asking_link; /* readers.c: it waits for a picture of the daemon's state, */
  bool asks;
  struct picture *out; /* or has one that it has not read yet; NULL: none */
  size_t out_sent;
  bool out_begun;
  uint32_t details;        /* enum gs_details */
  bool sees_all_commands;  /* of all users */
  uint32_t sent_count;     /* messages, since it was looked how many bytes are unread */
  uint64_t unread_bytes;   /* charged for these */
  bool narrow;             /* its socket holds few */
  struct reading reading;  /* readers.c */
  bool expelled;           /* closed, and not by the other end */
  struct list reload_link; /* it waits for the configuration to be read again */
  uint64_t reload_ns;      /* since then, */
  bool only_looks;         /* and to be left as it was */
  struct held *held; /* keep.c: an answer to it that waits for the disk; until then nothing is received */
  struct look look;  /* presence.c: until it is settled, nothing is received */
  /* messages.c */
  enum peer_role role;
  uint32_t job_id;
  struct list client_link;    /* of a client: of the daemon's clients */
  uint64_t start_ticks;       /* when its process began; 0: it can't be told */
  struct list process_link;   /* of a client: of the daemon's processes */
  struct list spoke_link;     /* daemon->spoken */
  struct list unapplied_link; /* of a client: of those whose jobs have yet to be given its terms */
  bool uses_mps;              /* as it says */
  bool stopped;               /* its process, as status.c has seen it for the picture with this number: */
  uint64_t looked;
  char name[GS_NAME_SIZE];
  uint64_t command_hash;
  char command[GS_COMMAND_SIZE];
  int32_t own_pid; /* in its own pid namespace, it says; 0: unknown */
  struct origin origin;
  uint64_t started_ns; /* when it registered */
  bool resumed;        /* with an earlier daemon: what it had of GPUs then is not known */
  bool exits;          /* it has said so: */
  int32_t exit_status;
  bool evicted;
  bool attached; /* it has been on a GPU */
  struct terms terms;
  bool bounded;                      /* it may not change settings itself: */
  struct terms_bounds bounds;        /* what its user may ask for */
  bool cut_noted;                    /* that it asks for more than it may, in the log */
  bool refusal_noted;                /* that it names a GPU that the host has not, likewise */
  char gang[GS_GANG_SIZE];           /* that its attachments join; empty: none */
  uint64_t kept_gang;                /* its key, as is kept of it; keep.c */
  struct list returning_link;        /* of the daemon's clients that have yet to join that gang again */
  uint64_t gpu_ns, waited_ns, turns; /* had on a GPU that it has left; of several the most */
  struct attachment *attachments[GS_GPUS_PER_CLIENT];
};

/* Send. A peer that does not read is closed. */
void peer_send(struct peer *peer, const struct gs_msg *msg);

/* Likewise, with a descriptor that goes along, and stays ours; -1: none. */
void peer_send_passing(struct peer *peer, const struct gs_msg *msg, int passed);

/* Likewise a REPLY. */
static inline void peer_reply(struct peer *peer, int status, const char *text) {
  struct gs_msg msg = wire_msg(GS_REPLY, GS_GPU_ALL);
  msg.status = status;
  strncpy(msg.reply.text, text, sizeof msg.reply.text - 1);
  peer_send(peer, &msg);
}

/* It has left much unread: what can wait had better. */
bool peer_is_behind(const struct peer *peer);

/* Send the daemon's state, as it is from now on, as fast as the peer reads; or a REPLY that says why not.
 * With `details` (enum gs_details) what older programs do not know, too; STATUS_COMMAND of what it may see.
 * Nothing else is received meanwhile. */
void peer_send_status(struct peer *peer, uint32_t details);

/* Send EVENTS of the record from there to the present end, then EVENTS_END; or, if it follows, also what is
 * added later. Of those that are not kept any more it is told how many they are, if they were displaced by
 * event since_seq or later ones. Nothing else is received meanwhile. 0; -EUSERS: the user reads too much
 * already. */
int peer_read(struct peer *peer, const struct record *record, uint64_t from_seq, uint64_t since_seq,
              bool follow);

/* The configuration is read again, and what came of it is sent; only_looks: and left as it was. Nothing else
 * is received meanwhile. */
void peer_reload(struct peer *peer, bool only_looks);

/* End the connection, with a line in the log. */
void peer_close(struct peer *peer, const char *why);

/* Where its process comes from, as long as that is there. */
struct origin peer_find_origin(const struct peer *peer);

/* What a process is called, for people; empty where the daemon can't see it. */
void peer_read_name(pid_t pid, char name[GS_NAME_SIZE]);

/* Its process is stopped: by SIGSTOP, Ctrl-Z or a debugger. False where the daemon can't see it. */
bool peer_is_stopped(const struct peer *peer);

/* May it change settings? (process.h) */
bool peer_may_change(const struct peer *peer);

/* May it attach so? If it is looked at, daemon_on_presence will tell, and nothing is received until then. */
enum presence_verdict peer_check_presence(struct peer *peer, const struct gs_msg *attach);

/* It has said what it is. */
void peer_settle(struct peer *peer, enum peer_role role);

/* ---- for the server ---- */

/* What it may leave unread without more being charged. In the kernel a message of ours takes 768 bytes. */
#define PEER_UNREAD_BYTES (8 * 768u)

/* There is something to do for it; before what else its user has to do. */
void peer_set_ready(struct peer *peer);
void peer_set_ready_first(struct peer *peer);

/* It ends. What others may wait for does not wait for its user's turn: that may owe much. Of the user's,
 * those come first that keep others from running. False: it has nothing of the kind. */
bool peer_set_leaving(struct peer *peer);

/* It is closed, without a word: served once more, which takes away what it has. */
void peer_end(struct peer *peer);

/* Likewise. The other end has hung up: what every program does in the end. */
void peer_hang_up(struct peer *peer);

/* It is sent many messages from now on: its socket holds few, and its user is charged for these. 0, or
 * -EDQUOT. */
int peer_narrow(struct peer *peer);

/* What it is sent it must take within a bound; or not any more. */
void peer_set_due(struct peer *peer, uint64_t now_ns);
void peer_set_patient(struct peer *peer);

/* Hear of these from epoll. */
void peer_set_events(struct peer *peer, uint32_t events);

#endif
