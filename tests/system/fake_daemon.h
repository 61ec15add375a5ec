/*
 * fake_daemon.h - a daemon that the test plays itself, for one client on one GPU: it says what the test wants
 * said, and checks what comes back. What the client asks about memory is granted; a wait without an answer
 * fails the test.
 */
#ifndef TEST_FAKE_DAEMON_H
#define TEST_FAKE_DAEMON_H

#include <stdbool.h>

#include "gpushare/protocol.h"

struct fake_daemon {
  int listener, fd;
  uint64_t epoch; /* of the last grant */
  uint64_t room_bytes, room_seq;
  uint64_t target_bytes;                /* told with every room */
  uint64_t slack_bytes;                 /* granted beyond what the client asks for */
  uint64_t used_bytes;                  /* as the client says */
  uint64_t pinned_bytes;                /* of these */
  uint64_t kind_bytes[GS_PINNED_COUNT]; /* and of these, by enum gs_pinned */
  uint64_t resident_bytes;
  uint64_t evicted_bytes, restored_bytes; /* sums over all that the client has said */
  unsigned reports;                       /* RESIDENT messages so far */
  bool requested;                         /* REQ_LOCK has come since the last grant */
  bool active;                            /* as PROGRESS says */
  unsigned returns;                       /* how often it has become so */
  unsigned progresses;                    /* PROGRESS messages so far */
};

void fake_listen(struct fake_daemon *fake, const char *socket);

/* Take the next client in, up to SCHED_ON. Returns its ATTACH. */
struct gs_msg fake_accept(struct fake_daemon *fake, uint64_t capacity_bytes, enum gs_memory memory);

/* Take the next client in, but not its GPU, for which it may ask again after so long; then it does. */
void fake_accept_refusing(struct fake_daemon *fake, uint64_t again_ns);
struct gs_msg fake_attach(struct fake_daemon *fake, uint64_t capacity_bytes, enum gs_memory memory);

/* End the connection; and all of it. */
void fake_hang_up(struct fake_daemon *fake);
void fake_end(struct fake_daemon *fake);

/* No turns are taken: nobody expects that memory moves. */
void fake_expect_no_moves(struct fake_daemon *fake);

void fake_tell_room(struct fake_daemon *fake, uint64_t room_bytes);
void fake_grant(struct fake_daemon *fake, uint64_t room_bytes);
/* Somebody waits. */
void fake_want(struct fake_daemon *fake);
void fake_drop(struct fake_daemon *fake, uint64_t epoch, uint64_t room_bytes);
/* It may run in this part of the time; and whether it shall tell its progress. */
void fake_share(struct fake_daemon *fake, uint32_t share_ppm, bool watched);

/* It is idle, and has become active so often in all. */
void fake_await_idle(struct fake_daemon *fake, unsigned returns);

/* The next message must be of this type. REQ_LOCK, CLIENT_STATE, PROGRESS and what is said about the use of
 * memory come at any time, and are passed over. */
struct gs_msg fake_expect(struct fake_daemon *fake, enum gs_msg_type type);

/* Nothing else than those, and messages of this type, comes within this time. */
void fake_expect_only(struct fake_daemon *fake, enum gs_msg_type type, int ms);
void fake_expect_silence(struct fake_daemon *fake, int ms);

/* Whether a message of this type comes before all is silent for so long; another one is an error. */
bool fake_hears(struct fake_daemon *fake, enum gs_msg_type type, int ms);

void fake_await_request(struct fake_daemon *fake);

/* RESIDENT comes, and nothing else, until the room is reached, but for less than `slack_bytes`. */
void fake_await_room(struct fake_daemon *fake, uint64_t slack_bytes);

/* LOCK_RELEASED comes, and before it nothing but that a lower room was seen, or what came in. */
void fake_await_released(struct fake_daemon *fake);

/* LOCK_ACTIVE comes, and before it nothing but RESIDENT. */
struct gs_msg fake_await_active(struct fake_daemon *fake);

/* The program allocates; until it uses so much, or has so much that can't leave the card. */
void fake_await_used(struct fake_daemon *fake, uint64_t used_bytes);
void fake_await_pinned(struct fake_daemon *fake, uint64_t pinned_bytes);
/* Until so much of that kind is told, and all kinds together are what can't leave. */
void fake_await_kind(struct fake_daemon *fake, enum gs_pinned kind, uint64_t bytes);

#endif
