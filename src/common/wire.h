/* wire.h - make, check, send and receive protocol messages. Thread-safe: no state. */
#ifndef GS_WIRE_H
#define GS_WIRE_H

#include <stddef.h>

#include "common/descriptor.h"
#include "gpushare/protocol.h"

/* A zeroed message of this type with its header filled in. */
struct gs_msg wire_msg(enum gs_msg_type type, uint32_t gpu);

/* Check a received packet. 0, or -EBADMSG (size, magic), -EPROTONOSUPPORT (version),
 * -ENOSYS (unknown type). The text fields of a message that passed are NUL-terminated
 * after this call. */
int wire_check(struct gs_msg *msg, size_t size);

/* "LOCK_OK", or "?" for an unknown type. */
const char *wire_type_name(unsigned type);

/* Send one message, never blocking, never raising SIGPIPE. 0 or -errno (-EAGAIN: the peer does not read). */
int wire_send(int fd, const struct gs_msg *msg);

/* Receive one message. 0; -ECONNRESET at the end of the connection; -EAGAIN on an empty
 * non-blocking socket; or what wire_check says. */
int wire_recv(int fd, struct gs_msg *msg);

/* Any packet, with a descriptor that goes along: of the one, which stays the caller's; to the other, which it
 * then owns, -1 if there is none. A packet brings one descriptor at most: of more, all are closed. 0 or
 * -errno; the packet's size or -errno, -EBADMSG if it is larger than `size`. */
int wire_send_passing(int fd, const void *bytes, size_t size, int passed);
ssize_t wire_recv_passed(int fd, void *bytes, size_t size, int *passed);

/* Connect to the daemon's socket: a close-on-exec descriptor, or -errno. Never blocks. -EAGAIN: the daemon is
 * there, but as many connections as may wait do so already. */
int wire_connect(const char *path);

/* When to connect again, after an attempt that has ended in `err`; 0: not at all, as the error is another
 * one, or has been this one for patience_ns. since_ns: since when, of the caller, 0 at first. */
uint64_t wire_connect_again_ns(int err, uint64_t *since_ns, uint64_t patience_ns);

/* Connect, again and again while no more may wait, for patience_ns. -EAGAIN: that was not enough. */
int wire_connect_patiently(const char *path, uint64_t patience_ns);

/* The same in someone else's process. 0 or -errno. And a socket for it, non-blocking, not connected yet; fd
 * is -1, with errno set, if there can be none. */
int wire_connect_as_guest(const char *path, struct descriptor *kept);
struct descriptor wire_socket_as_guest(void);

/* Likewise to a socket file of any type. */
int wire_connect_as(const char *path, int type);

#endif
