/*
 * server.h - the daemon's sockets: one thread, one epoll set. Accepts, receives, sends, keeps the limits that
 * protect the daemon and everybody else from one peer, and tells daemon.h what happens.
 */
#ifndef GS_SERVER_H
#define GS_SERVER_H

#include <sys/signalfd.h>
#include <sys/stat.h>

#include "server/daemon.h"
#include "server/listen.h"
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
  void (*on_reload)(struct server *server, const struct peer *peer); /* it has come to `reloads` */
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
  struct list reloads;           /* peers that wait for the configuration to be read again */
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

/*
 * ---- peers ----
 *
 * The connections of a server: their coming and going, their limits. See peer.h for one of them.
 */

/* A connection has been accepted. Takes over fd. */
void peers_add(struct server *server, int fd, uint64_t now_ns);

/* epoll says so, of what it was given to watch: the peer is served in its user's turn, or, if it ends and has
 * a GPU, before that. It may be closed already. */
void peers_on_event(void *watched, uint32_t events);

/* Serve peers that end and have a GPU, until then or until there are none: what they have sent is read, and
 * what they have is given back. Their users have turns for that, in which no user owes what it has cost
 * otherwise: others wait for the GPU. */
void peers_serve_leaving(struct server *server, uint64_t until_ns);

/* Serve users in turn, until then or until there is nothing to do. No event can name a peer that was closed
 * before, as those are taken apart here, and in peers_serve_leaving. */
void peers_serve(struct server *server, uint64_t until_ns);

/* Those of which it is known now whether they may attach do, or are refused. */
void peers_admit_settled(struct server *server);

/* When the first of those that must do something has run out of time; UINT64_MAX. */
uint64_t peers_deadline_ns(const struct server *server);
void peers_on_time(struct server *server, uint64_t now_ns);

void peers_close_all(struct server *server);

/*
 * ---- readers ----
 *
 * Peers that read a record: as fast as they do, and no faster. One that follows stays until it goes; the
 * record itself is its queue.
 */

/* The peer's socket takes more. */
void readers_on_writable(struct peer *peer);

/* Something may have happened: those that have had all get it, in their users' turns. */
void readers_on_news(struct server *server);

/* The peer reads no more: it is closed. */
void readers_leave(struct peer *peer);

/*
 * ---- pictures ----
 *
 * Who is sent the daemon's state (GET_STATUS). A picture is made once for all that have asked by then, in
 * slices, and no more often than its making allows others to be served. None is older than the question that
 * it answers. Readers share it: each is a place in it. A user is charged for every picture that its
 * connections still read, and for what their sockets hold.
 */

/* Go on with the one that is being made, until then; those who have asked for it are given it once it is
 * done. */
void pictures_run(struct server *server, uint64_t until_ns);

/* Before then there is nothing to run; 0: at once; UINT64_MAX: nobody asks. */
uint64_t pictures_deadline_ns(const struct server *server);

/* The peer has been given one, and its socket may take more. */
void pictures_send(struct peer *peer);

/* The peer reads no more: it is closed. */
void pictures_leave(struct peer *peer);

#endif
