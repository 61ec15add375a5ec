/* peers.c - all connections: they come, are served fairly, and go. */
#include "server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/daemon_log.h"
#include "server/process.h"
#include "shared/printable.h"

#define READS_PER_VISIT 64          /* of one peer, then others of its user have their turn */
#define FLOOD_RATE UINT64_C(20000)  /* messages per second, sustained */
#define FLOOD_BURST UINT64_C(50000) /* messages at once */
#define BEHIND_NS (10 * NS_PER_MS)
#define CLOSES_PER_TURN 32 /* of those who have run out of time */

/* With what the kernel has: the socket, its file and its place in epoll. */
static const struct user_cost connection_cost = {
    .of = {[USER_CONNECTIONS] = 1,
           [USER_DESCRIPTORS] = 2, /* with that of the process */
           [USER_BYTES] = sizeof(struct peer) + PEER_UNREAD_BYTES + 3072}};

static struct peer *peer_of(struct list *node) { return list_entry(node, struct peer, link); }

/* ---- coming ---- */

/* Of a peer, epoll tells about its socket, and, as told by the lowest bit, about its process. */
static bool is_process(const void *watched) { return (uintptr_t)watched & 1; }

/* It is not needed any more: what has been sent is read. */
static void forget_look(struct peer *peer) {
  if (!peer->look.attach)
    return;
  presence_forget(peer);
  peer_set_events(peer, EPOLLIN);
}

/* Whoever else has the socket can't send any more. What has been sent is still read: its end is found behind
 * that, as if the process had closed it. */
static void end_with_process(struct peer *peer) {
  if (peer->pidfd >= 0)
    epoll_ctl(peer->server->epoll_fd, EPOLL_CTL_DEL, peer->pidfd, NULL);
  shutdown(peer->fd, SHUT_RD);
  if (peer->asks || peer->out || peer->reading.record)
    peer_hang_up(peer);
  forget_look(peer);
  peer_set_leaving(peer);
}

/* Where there is no descriptor of the process, only the socket's end tells. */
static void watch_process(struct peer *peer) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = (char *)peer + 1};
  peer->pidfd = process_open(peer->fd, peer->pid);
  if (peer->pidfd == -ESRCH)
    end_with_process(peer);
  else if (peer->pidfd < 0)
    log_for(peer->uid, LOG_LEVEL_DEBUG, "no descriptor of pid %d: %s", peer->pid, strerror(-peer->pidfd));
  else if (epoll_ctl(peer->server->epoll_fd, EPOLL_CTL_ADD, peer->pidfd, &event) < 0)
    log_for(peer->uid, LOG_LEVEL_WARN, "the end of pid %d can't be watched: %s", peer->pid, strerror(errno));
}

/* It has closed without a word. */
static bool is_gone(int fd) {
  char byte;
  return recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void peers_add(struct server *server, int fd, uint64_t now_ns) {
  struct ucred credentials;
  socklen_t size = sizeof credentials;
  struct user *user = NULL, *charged = NULL;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0)
    user = users_find(&server->users, credentials.uid);
  if (user && is_gone(fd)) { /* who connects and closes in a loop costs the others little in the queue */
    close(fd);
    rota_spend(&user->rota, clock_now_ns() - now_ns);
    return;
  }
  struct user *reserve = &server->users.reserve;
  if (user && user_charge_all(user, &connection_cost) == 0)
    charged = user;
  else if (user && (credentials.uid == 0 || credentials.uid == geteuid()) &&
           permission_is_near(credentials.pid) && user_charge_all(reserve, &connection_cost) == 0)
    charged = reserve;
  if (user && !charged) { /* refused, without a word in its user's turn: many may come at once */
    struct gs_msg msg = wire_msg(GS_REJECTED, GS_GPU_ALL);
    msg.status = -EUSERS;
    msg.registered.reason = GS_REJECT_LIMIT;
    msg.registered.value = user_share(user, USER_CONNECTIONS);
    wire_send(fd, &msg);
    close(fd);
    log_for(user->uid, LOG_LEVEL_WARN, "uid %u has as many connections as it may, or as much memory: refused",
            user->uid);
    rota_spend(&user->rota, clock_now_ns() - now_ns);
    return;
  }
  struct peer *peer = charged ? calloc(1, sizeof *peer) : NULL;
  if (!peer) {
    log_for(user ? user->uid : LOG_NOBODY, LOG_LEVEL_WARN,
            "out of memory for a connection, or it has no credentials");
    if (charged)
      user_release_all(charged, &connection_cost);
    close(fd);
    return;
  }
  peer->server = server;
  peer->fd = fd;
  peer->uid = credentials.uid;
  peer->pid = credentials.pid;
  peer->user = charged;
  peer->pidfd = -1;
  peer->tokens = FLOOD_BURST;
  peer->tokens_ns = now_ns;
  list_append(&server->open, &peer->link);
  list_init(&peer->due_link);
  list_init(&peer->ready_link);
  list_init(&peer->asking_link);
  list_init(&peer->reload_link);
  list_init(&peer->reading.link);
  peer_set_due(peer, now_ns);
  peer_set_ready(peer);
  rota_spend(&user->rota, clock_now_ns() - now_ns);
}

/* In its user's turn. 0, or why it must leave at once. */
static const char *admit(struct peer *peer) {
  peer->admitted = true;
  struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = peer};
  if (epoll_ctl(peer->server->epoll_fd, EPOLL_CTL_ADD, peer->fd, &event) < 0)
    return "epoll has no room";
  watch_process(peer);
  /* As long as its process has not ended, its number is nobody else's: what has been looked at is this
   * process. A kernel without descriptors of processes tells no more than the number. */
  peer->near = (peer->pidfd >= 0 || peer->pidfd == -ENOSYS) && permission_is_near(peer->pid) &&
               !process_has_ended(peer->pidfd);
  return NULL;
}

/* ---- going ---- */

/* A child that has just been forked may still have it: closing alone would leave it in the epoll set. */
static void close_watched(const struct server *server, int fd) {
  epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
  close(fd);
}

static void bury(struct peer *peer, uint64_t now_ns) {
  struct server *server = peer->server;
  list_remove(&peer->ready_link);
  presence_forget(peer);
  readers_leave(peer);
  pictures_leave(peer);
  list_remove(&peer->reload_link);
  if (!daemon_on_gone(server->daemon, peer, now_ns)) { /* may close others */
    peer_set_ready_first(peer);
    return;
  }
  list_remove(&peer->link);
  /* What it has sent and nobody reads would make the kernel drop what it has not read yet. So no more can
   * come, and what is there goes. */
  char byte;
  shutdown(peer->fd, SHUT_RD);
  while (recv(peer->fd, &byte, sizeof byte, MSG_DONTWAIT) > 0)
    ;
  close_watched(server, peer->fd);
  if (peer->pidfd >= 0)
    close_watched(server, peer->pidfd);
  user_release(peer->user, USER_BYTES, peer->unread_bytes);
  user_release_all(peer->user, &connection_cost);
  free(peer);
  if (server->accept_ns)
    server->accept_ns = now_ns; /* there is a descriptor again */
}

void peers_close_all(struct server *server) {
  while (!list_empty(&server->open))
    peer_end(peer_of(list_first(&server->open)));
  while (!list_empty(&server->closed))
    bury(peer_of(list_first(&server->closed)), clock_now_ns());
}

/* ---- receiving ---- */

static bool within_rate(struct peer *peer, uint64_t now_ns) {
  uint64_t earned = (now_ns - peer->tokens_ns) / (NS_PER_S / FLOOD_RATE);
  if (earned > 0) {
    peer->tokens = earned > FLOOD_BURST - peer->tokens ? FLOOD_BURST : peer->tokens + earned;
    peer->tokens_ns = now_ns;
  }
  if (peer->tokens == 0)
    return false;
  peer->tokens--;
  return true;
}

/* It is sent many messages, or waits for them: nothing is received. */
static bool is_busy(const struct peer *peer) {
  return peer->closed || peer->asks || peer->out || peer->reading.record || peer->look.attach || peer->held ||
         !list_empty(&peer->reload_link);
}

/* One message. False: no more for now. */
static bool receive(struct peer *peer) {
  struct gs_msg msg;
  int err = wire_recv(peer->fd, &msg);
  uint64_t now_ns = clock_now_ns();
  if (err == -EAGAIN)
    return false;
  if (err == -ECONNRESET)
    peer_hang_up(peer);
  else if (!within_rate(peer, now_ns))
    peer_close(peer, "it floods the daemon with messages");
  else if (err < 0)
    daemon_on_bad_message(peer->server->daemon, peer, err);
  else
    daemon_on_message(peer->server->daemon, peer, &msg, now_ns);
  return !is_busy(peer);
}

void peers_on_event(void *watched, uint32_t events) {
  struct peer *peer = (struct peer *)(void *)((char *)watched - is_process(watched));
  if (peer->closed)
    return;
  if (is_process(watched)) {
    end_with_process(peer);
    return;
  }
  peer->ready_events |= events;
  bool ends = events & (EPOLLHUP | EPOLLERR);
  if (ends && peer_set_leaving(peer))
    return;
  struct list *first = list_first(&peer->user->rota.ready);
  bool behind =
      first && peer->server->turn_ns - list_entry(first, struct peer, ready_link)->ready_ns > BEHIND_NS;
  /* The user has more to do than its share of the time allows: its connections are no more served as they
   * come. What this one has had is free once it is served. */
  if (ends && behind)
    peer_set_ready_first(peer);
  else
    peer_set_ready(peer);
}

/* It is asked again only once there is no more: epoll tells of what has come, not of what is there. */
static void receive_many(struct peer *peer, uint64_t until_ns) {
  while (receive(peer)) {
    if (++peer->received >= READS_PER_VISIT) {
      peer->received = 0;
      peer_set_ready(peer);
      return;
    }
    if (clock_now_ns() >= until_ns) {
      peer_set_ready_first(peer);
      return;
    }
  }
  peer->received = 0;
}

static void serve(struct peer *peer, uint64_t until_ns) {
  if (!peer->admitted && !peer->closed && is_gone(peer->fd))
    peer_end(peer);
  const char *wrong = peer->admitted || peer->closed ? NULL : admit(peer);
  uint32_t events = peer->ready_events;
  list_remove(&peer->ready_link);
  peer->ready_events = 0;
  if (events & (EPOLLHUP | EPOLLERR))
    forget_look(peer);
  if (peer->closed)
    bury(peer, clock_now_ns());
  else if (wrong)
    peer_close(peer, wrong);
  else if (peer->held) /* it is served again once it has its answer */
    return;
  else if (!is_busy(peer))
    receive_many(peer, until_ns);
  else if (events & (EPOLLHUP | EPOLLERR)) /* it is sent many messages */
    peer_hang_up(peer);
  else if (peer->out)
    pictures_send(peer);
  else if (peer->reading.record && events & EPOLLIN)
    peer_close(peer, "a message from one that follows events");
  else if (peer->reading.record)
    readers_on_writable(peer);
}

/* What is first of the user's. Returns what the clock shows then. */
static uint64_t serve_first(struct rota_user *user, uint64_t now_ns, uint64_t until_ns) {
  uint64_t end_ns = now_ns + (uint64_t)user->credit_ns;
  serve(list_entry(list_first(&user->ready), struct peer, ready_link), end_ns < until_ns ? end_ns : until_ns);
  uint64_t after_ns = clock_now_ns();
  rota_spend(user, after_ns - now_ns);
  return after_ns;
}

/* One plan for all that has been served of the user's, at its cost. Returns what the clock shows then. */
static uint64_t plan(struct server *server, struct rota_user *rota, uid_t uid, uint64_t now_ns) {
  if (!server->daemon->scheduler.dirty)
    return now_ns;
  daemon_plan(server->daemon, uid);
  uint64_t after_ns = clock_now_ns();
  rota_spend(rota, after_ns - now_ns);
  return after_ns;
}

/* What it costs is owed in the user's turns, too. */
void peers_serve_leaving(struct server *server, uint64_t until_ns) {
  struct rota_user *leaving;
  uint64_t now_ns = clock_now_ns();
  while (now_ns < until_ns && (leaving = rota_next(&server->leaving))) {
    struct user *user = list_entry(leaving, struct user, leaving);
    uint64_t begin_ns = now_ns;
    now_ns = serve_first(leaving, begin_ns, until_ns);
    now_ns = plan(server, leaving, user->uid, now_ns);
    rota_spend(&user->rota, now_ns - begin_ns);
  }
}

void peers_serve(struct server *server, uint64_t until_ns) {
  struct rota_user *rota;
  uint64_t now_ns = clock_now_ns();
  while (now_ns < until_ns && (rota = rota_next(&server->rota))) {
    uid_t uid = list_entry(rota, struct user, rota)->uid;
    do
      now_ns = serve_first(rota, now_ns, until_ns);
    while (now_ns < until_ns && rota_next(&server->rota) == rota);
    now_ns = plan(server, rota, uid, now_ns);
  }
}

/* Not in their users' turns, which owe it. */
void peers_admit_settled(struct server *server) {
  struct gs_msg attach;
  enum presence_verdict verdict;
  for (struct peer *peer; (peer = presence_next_settled(server, &attach, &verdict));) {
    uint64_t begin_ns = clock_now_ns();
    if (!peer->closed)
      daemon_on_presence(server->daemon, peer, &attach, verdict, begin_ns);
    rota_spend(&peer->user->rota, clock_now_ns() - begin_ns);
  }
}

/* ---- time ---- */

uint64_t peers_deadline_ns(const struct server *server) {
  struct list *first = list_first(&server->due);
  return first ? list_entry(first, struct peer, due_link)->due_ns : UINT64_MAX;
}

void peers_on_time(struct server *server, uint64_t now_ns) {
  for (int i = 0; i < CLOSES_PER_TURN && now_ns >= peers_deadline_ns(server); i++) {
    struct peer *peer = list_entry(list_first(&server->due), struct peer, due_link);
    peer_close(peer, peer->role == PEER_FRESH ? "it has not said what it is" : "it does not read its answer");
  }
}
