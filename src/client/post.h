/*
 * post.h - the socket to the daemon, where the program cannot reach it.
 *
 * Two threads hold it in a descriptor table of their own: one sends, one receives, and neither does anything
 * else. So the program may close, or open, whatever it wants, and a child that it makes, by whatever means,
 * has nothing of ours. All others leave messages here, and find them. Threads that call the driver must not
 * be started by these two, as the driver's descriptors are in the program's table.
 *
 * Where a sandbox, or a kernel before 5.9, has no close_range(2), the socket is in the program's table, at a
 * high number, and is forgotten once that means something else (common/descriptor.h).
 *
 * Threading: with the lock held that post_start is given.
 */
#ifndef GS_POST_H
#define GS_POST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/lock.h"
#include "gpushare/protocol.h"

struct letter {
  int err; /* as wire_recv; the connection has ended unless it is 0, -ENOSYS or -EPROTONOSUPPORT */
  struct gs_msg msg;
};

/* Start the threads. `arrived` is called, with the lock, when something has come. 0 or -errno. */
int post_start(struct lock *lock, void (*arrived)(void));

/* Make a new connection. Lets go of the lock meanwhile. 0 or -errno. */
int post_connect(const char *path);

/* What fails ends the connection: a letter tells. */
void post_send(const struct gs_msg *msg);

/* False: nothing has come. */
bool post_take(struct letter *letter);

/* The daemon shall see the end of the connection; a letter tells when it has come to that. */
void post_shut(void);

/* Forget the connection, and all that has come by it or was to go. */
void post_hang_up(void);

/* Wait until all has been sent. Lets go of the lock meanwhile. */
void post_flush(uint64_t deadline_ns);

/* In the child of a fork. */
void post_fork_child(void);

#endif
