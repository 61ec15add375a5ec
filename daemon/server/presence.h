/*
 * presence.h - who may attach to a GPU: processes that have its device file open. Looks are asked for
 * (lookout.h), and a peer that waits for one is not read from. Users have their looks in turn, and the
 * lookout is asked hardly more than it is looking at, so that one user's looks don't keep others waiting.
 * What is not known before the program would lose patience goes as if it could not be told.
 */
#ifndef GS_PRESENCE_H
#define GS_PRESENCE_H

#include "gpushare/protocol.h"
#include "server/lookout.h"
#include "server/peer.h"

#define LOOKS_ASKED 2 /* questions at the lookout: it is never idle, and none waits there for long */

struct presence {
  enum gs_require require;
  uint32_t major;     /* of the devices; 0: the host has none */
  bool blind, slow;   /* it could not tell of some process, and has said so */
  uint64_t start_ns;  /* the lookout is started again then; 0: it is there, or not needed yet */
  bool able;          /* at the start */
  bool lost;          /* the lookout had what a new one would not be given */
  uint64_t questions; /* so far */
  uint64_t answered;  /* of them, or lost */
  uint64_t busy_ns;   /* since when the first of the others is looked at */
  struct lookout lookout;
  struct list users;      /* with looks that wait, the next first */
  struct list asked, due; /* looks: asked ones, and all that are not settled by until_ns */
  struct list settled;    /* and those */
  /* Whose processes the questions that are not answered are about: by id % LOOKS_ASKED. */
  uid_t asked_uids[LOOKS_ASKED];
};

struct server;

void presence_open(struct server *server);
void presence_set(struct server *server, enum gs_require require);
void presence_close(struct server *server);

/* The host's cards have changed: so may its driver have. */
void presence_on_cards(struct server *server);

/* epoll says that the lookout has answered; a child has ended. */
void presence_on_event(struct server *server);
void presence_on_child(struct server *server);

uint64_t presence_deadline_ns(const struct server *server);
void presence_on_time(struct server *server, uint64_t now_ns);

/* A peer whose look is settled: from now on it is received from again. Its ATTACH, and what has come of it.
 * NULL: there is none. */
struct peer *presence_next_settled(struct server *server, struct gs_msg *attach,
                                   enum presence_verdict *verdict);

/* The peer waits for a look no more. */
void presence_forget(struct peer *peer);

#endif
