/* played_daemon.h - a daemon without sockets: its users, its peers and the time are played. */
#ifndef GS_TEST_PLAYED_DAEMON_H
#define GS_TEST_PLAYED_DAEMON_H

#include "played_peers.h"
#include "server/daemon.h"

extern struct daemon it;
extern struct users users;
extern uint64_t now_ns;

/* It begins a second after the clock did, and knows nobody. These peers have not come. */
void played_begin(struct peer *peers, size_t count);

/* All peers go; nothing is charged to anybody any more. */
void played_end(void);

/* A connection of this user. played_go: it is gone, unless it never came. */
void played_come(struct peer *peer, uid_t uid, pid_t pid);
void played_go(struct peer *peer);

/* The peer says something, a microsecond after what was said before. */
void played_say(struct peer *peer, const struct gs_msg *msg);

#endif
