/*
 * server.h - the daemon's sockets: one thread, one epoll set. Accepts, receives, sends, keeps the limits that
 * protect the daemon and everybody else from one peer, and tells daemon.h what happens.
 */
#ifndef GS_SERVER_H
#define GS_SERVER_H

#include <sys/signalfd.h>
#include <sys/stat.h>

#include "server/daemon.h"
#include "server/notify.h"
#include "server/presence.h"

/* Something else that the loop serves: a descriptor that becomes readable when there is something to do, and
 * a time at which there is in any case (UINT64_MAX: none). */
struct server_guest {
  int fd; /* stays the guest's */
  void *of;
  uint64_t (*deadline_ns)(const void *of);
  void (*run)(void *of, uint64_t now_ns);
};

struct server {
  struct daemon *daemon;
  void (*on_signal)(struct server *server, const struct signalfd_siginfo *signal);
  struct notify *notify;
  struct server_guest guest; /* of: NULL: there is none */
  bool stop;
  bool passed; /* the listening socket, by the service manager */
  gid_t group; /* whose members may change settings */
  const char *path;
  struct stat
      identity; /* of our socket file: another daemon's, or one that was passed, is not ours to remove */
  int epoll_fd, listen_fd, timer_fd, signal_fd;
  uint64_t timer_ns;        /* for when the timer is set */
  uint64_t accept_ns;       /* no descriptors left: accept again then; 0: accepting */
  struct list open, closed; /* peers */
  struct list due;          /* peers that must do something, the first one first */
  struct list readers;      /* of records */
  struct users users;
  struct rota rota;
  struct rota leaving;           /* users, for their peers whose end others may wait for */
  uint64_t turn_ns;              /* when this turn of the loop began */
  uint64_t news_seq;             /* of the records, as readers have been told */
  struct list asking, answering; /* peers that wait for a picture: for the next one, for that being made */
  uint64_t picture_next_ns;      /* when one may be begun */
  uint64_t picture_cost_ns;      /* of that being made, so far */
  struct presence presence;
};

/* Listen on path, or on the socket that has been passed and has this path (-1: none). 0, or -errno after a
 * line in the log; -EADDRINUSE: another daemon answers on this path. The signals to hear of are blocked
 * already. */
int server_open(struct server *server, struct daemon *daemon, const char *path, int passed_fd,
                const sigset_t *signals);

/* The guest is served from now on; there is one at most. 0 or -errno. */
int server_add_guest(struct server *server, const struct server_guest *guest);

/* It is served no more. Caller must: close its descriptor then. */
void server_remove_guest(struct server *server);

/* Until stop is set; on_signal and notify are. 0 or -errno. */
int server_run(struct server *server);

/* End all connections and remove the socket, unless it was passed. */
void server_close(struct server *server);

#endif
