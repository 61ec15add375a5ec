/*
 * abstract_socket.h - sockets between processes of ours, in someone else's process: packets, non-blocking,
 * with an abstract name ("gpushare-KIND-NUMBER": there is no file, and it ends with the socket).
 *
 * Trust: the name can be seen by anybody (/proc/net/unix). So each side looks who the other one is.
 *
 * Threading: any thread, no lock. Nothing waits.
 */
#ifndef GS_ABSTRACT_SOCKET_H
#define GS_ABSTRACT_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/descriptor.h"

struct abstract_name {
  const char *kind; /* at most 16 characters */
  uint64_t number;
};

/* A number that nobody guesses, drawn when first asked for and kept in *number. 0: there are none. */
uint64_t abstract_draw(_Atomic uint64_t *number);

/* fd is -1, with errno set, where there can be none. */
struct descriptor abstract_listen(struct abstract_name name, int backlog);
struct descriptor abstract_accept(const struct descriptor *listening, struct abstract_name name);

/* Connected to it. fd is -1, with errno set: EAGAIN where as many wait there as may, ECONNREFUSED where
 * nobody listens. */
struct descriptor abstract_connect(struct abstract_name name);

/* Whether the other side is of this user; and the process `pid`, unless that is 0. */
bool abstract_is_trusted(const struct descriptor *connected, pid_t pid);

/* The process on the other side. 0: it is unknown, or in another pid namespace. */
pid_t abstract_other(const struct descriptor *connected);

#endif
