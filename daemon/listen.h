/* listen.h - the socket file that programs find the daemon by. */
#ifndef GS_LISTEN_H
#define GS_LISTEN_H

#include <sys/stat.h>

/* A listening, non-blocking socket on path, open to every user; or -errno after a line in the log. A socket
 * left behind by a dead daemon is replaced; -EADDRINUSE: a living one answers. identity: of the file made. */
int listen_open(const char *path, struct stat *identity);

/* Remove the file, unless it is another daemon's by now. */
void listen_remove(const char *path, const struct stat *identity);

#endif
