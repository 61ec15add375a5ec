/* listen.h - where others find the daemon: socket files, and ports. */
#ifndef GS_LISTEN_H
#define GS_LISTEN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "server/config.h"

/* A listening, non-blocking socket of this type on path, open to every user; or -errno after a line in the
 * log. A socket left behind by a dead daemon is replaced; -EADDRINUSE: a living one answers. identity: of the
 * file made. */
int listen_open(const char *path, int type, struct stat *identity);

/* Likewise on a TCP port. The address becomes the one that it has: its port may be 0 before. */
int listen_open_inet(struct sockaddr *address, socklen_t *size);

/* Remove the file, unless it is another daemon's by now. */
void listen_remove(const char *path, const struct stat *identity);

/* ---- at an address of the configuration, for connections that are streams ---- */

struct listener {
  int fd;                        /* -1: it is somebody else's by now */
  char text[ADDRESS_TEXT_SIZE];  /* the address as it was given, */
  char shown[ADDRESS_TEXT_SIZE]; /* and with the port that it has */
  struct address address;
  struct stat identity; /* of the socket file */
};

/* 0 or -errno, after a line in the log. */
int listener_open(struct listener *listener, const char *address);

/* Close the descriptor, and remove the file. */
void listener_close(struct listener *listener);

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

/* ---- what a service manager is told: that the daemon is ready, reloads, ends, and is alive ---- */

struct notify {
  int fd;               /* -1: nobody wants to know */
  uint64_t interval_ns; /* between signs of life; 0: nobody waits for them */
  uint64_t next_ns;     /* the next one; UINT64_MAX: never */
  char trouble[544];    /* shown beside what goes on; empty: none */
};

/* By NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, which our children are not to see. */
void notify_open(struct notify *notify, uint64_t now_ns);
void notify_close(struct notify *notify);

void notify_ready(const struct notify *notify, uint32_t programs);
void notify_reloading(const struct notify *notify, uint64_t now_ns);
void notify_stopping(const struct notify *notify);

/* It won't get ready, because of the trouble. */
void notify_failing(const struct notify *notify);

/* The loop turns, at next_ns or later. Never blocks. */
void notify_alive(struct notify *notify, uint64_t now_ns, uint32_t programs);

#endif
