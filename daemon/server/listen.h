/* listen.h - where others find the daemon: socket files, and ports. */
#ifndef GS_LISTEN_H
#define GS_LISTEN_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* A listening, non-blocking socket of this type on path, open to every user; or -errno after a line in the
 * log. A socket left behind by a dead daemon is replaced; -EADDRINUSE: a living one answers. identity: of the
 * file made. */
int listen_open(const char *path, int type, struct stat *identity);

/* Likewise on a TCP port. The address becomes the one that it has: its port may be 0 before. */
int listen_open_inet(struct sockaddr *address, socklen_t *size);

/* Remove the file, unless it is another daemon's by now. */
void listen_remove(const char *path, const struct stat *identity);

/*
 * ---- passed by a service manager ----
 *
 * The listening socket that a service manager has opened for us.
 */

/* What the manager has to call it, if it gives names (FileDescriptorName=). */
#define ACTIVATION_NAME "gpushare"

/* Take it over: a non-blocking descriptor, its address in path; -ENOENT: nothing has been passed; or -errno
 * after a line in the log: what has been passed is not what we listen on. Once per process. */
int activation_take(char *path, size_t size);

#endif
