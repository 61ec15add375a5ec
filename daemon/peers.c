/* peers.c - connections: receive fairly, send without blocking, close who breaks a limit. */
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/wire.h"
#include "permission.h"
#include "process.h"
#include "readers.h"

#define READS_PER_TURN 64              /* of one peer, then others have their turn */
#define PATIENCE_NS (10 * NS_PER_S)    /* to register, or to read what was asked for */
#define FLOOD_RATE UINT64_C(20000)     /* messages per second, sustained */
#define FLOOD_BURST UINT64_C(50000)    /* messages at once */
#define CONNECTIONS_BESIDE_CLIENTS 128 /* of one user: gpusharectl, those about to register, users of MPS */

static struct peer *peer_of(struct list *node) { return list_entry(node, struct peer, link); }

/* ---- coming ---- */

void peers_set_due(struct peer *peer, uint64_t now_ns) {
  peer->due_ns = now_ns + PATIENCE_NS;
  list_remove(&peer->due_link);
  list_append(&peer->server->due, &peer->due_link); /* the same patience for all keeps the list in order */
}

/* Of a peer, epoll tells about its socket, and, as told by the lowest bit, about its process. */
static void *process_of(struct peer *peer) { return (char *)peer + 1; }

static bool is_process(const void *watched) { return (uintptr_t)watched & 1; }

/* It is not needed any more: what has been sent is read. */
static void forget_look(struct peer *peer) {
  if (!peer->look.attach)
    return;
  presence_forget(peer);
  peers_set_events(peer, EPOLLIN);
}

/* Whoever else has the socket can't send any more. What has been sent is still read: its end is found behind
 * that, as if the process had closed it. */
static void end_with_process(struct peer *peer) {
  if (peer->pidfd >= 0)
    epoll_ctl(peer->server->epoll_fd, EPOLL_CTL_DEL, peer->pidfd, NULL);
  shutdown(peer->fd, SHUT_RD);
  if (peer->out || peer->reading.record)
    peers_hang_up(peer);
  forget_look(peer);
}

/* Where there is no descriptor of the process, only the socket's end tells. */
static void watch_process(struct peer *peer) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = process_of(peer)};
  peer->pidfd = process_open(peer->fd, peer->pid);
  if (peer->pidfd == -ESRCH)
    end_with_process(peer);
  else if (peer->pidfd < 0)
    log_debug("no descriptor of pid %d: %s", peer->pid, strerror(-peer->pidfd));
  else if (epoll_ctl(peer->server->epoll_fd, EPOLL_CTL_ADD, peer->pidfd, &event) < 0)
    log_warn("the end of pid %d can't be watched: %s", peer->pid, strerror(errno));
}

/* 0, or why it must leave at once. */
static const char *admit(struct server *server, struct peer *peer) {
  struct ucred credentials;
  socklen_t size = sizeof credentials;
  if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
    return "no credentials";
  peer->uid = credentials.uid;
  peer->pid = credentials.pid;
  peer->near = permission_is_near(peer->pid);
  peer->user = users_enter(&server->users, peer->uid);
  if (!peer->user)
    return "out of memory";
  if (peer->user->connections > server->daemon->max_clients_per_user + CONNECTIONS_BESIDE_CLIENTS)
    return "too many connections of this user";
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
  if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, peer->fd, &event) < 0)
    return "epoll has no room";
  watch_process(peer);
  return NULL;
}

void peers_add(struct server *server, int fd, uint64_t now_ns) {
  struct peer *peer = calloc(1, sizeof *peer);
  if (!peer) {
    log_warn("out of memory for a connection");
    close(fd);
    return;
  }
  peer->server = server;
  peer->fd = fd;
  peer->pidfd = -1;
  peer->tokens = FLOOD_BURST;
  peer->tokens_ns = now_ns;
  list_append(&server->open, &peer->link);
  list_init(&peer->due_link);
  list_init(&peer->reading.link);
  peers_set_due(peer, now_ns);
  const char *wrong = admit(server, peer);
  if (wrong)
    peer_close(peer, wrong);
}

void peers_set_patient(struct peer *peer) { list_remove(&peer->due_link); }

void peer_settle(struct peer *peer, enum peer_role role) {
  peer->role = role;
  peers_set_patient(peer);
}

/* A file of /proc/PID, as far as there is room; "": it can't be read. */
static void read_of(const struct peer *peer, const char *name, char *text, size_t room) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/%s", peer->pid, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? -1 : read(fd, text, room - 1);
  if (fd >= 0)
    close(fd);
  text[size > 0 ? size : 0] = '\0';
}

/* Nobody says how long it is. What is beyond this is not looked at. */
struct origin peer_find_origin(const struct peer *peer) {
  char text[8192];
  read_of(peer, "cgroup", text, sizeof text);
  return origin_parse(text);
}

/* "PID (NAME) STATE ...", where the name may have anything in it. */
bool peer_is_stopped(const struct peer *peer) {
  char text[128];
  read_of(peer, "stat", text, sizeof text);
  const char *name_end = strrchr(text, ')');
  return name_end && (strncmp(name_end, ") T", 3) == 0 || strncmp(name_end, ") t", 3) == 0);
}

/* ---- going ---- */

static void set_closed(struct peer *peer) {
  peer->closed = true;
  presence_forget(peer);
  readers_leave(peer);
  list_remove(&peer->due_link);
  list_remove(&peer->link);
  list_append(&peer->server->closed, &peer->link);
}

void peer_close(struct peer *peer, const char *why) {
  if (peer->closed)
    return;
  log_info("closing the connection of pid %d, uid %u%s%s: %s", peer->pid, peer->uid, *peer->name ? ", " : "",
           peer->name, why);
  peer->expelled = true;
  set_closed(peer);
}

void peers_hang_up(struct peer *peer) {
  log_debug("pid %d is gone (job %u)", peer->pid, peer->job_id);
  set_closed(peer);
}

/* What it has sent and nobody reads would make the kernel drop what it has not read yet. So no more can come,
 * and what is there goes. */
static void discard_input(struct peer *peer) {
  char byte;
  shutdown(peer->fd, SHUT_RD);
  while (recv(peer->fd, &byte, sizeof byte, MSG_DONTWAIT) > 0)
    ;
}

/* A child that has just been forked may still have it: closing alone would leave it in the epoll set. */
static void close_watched(const struct server *server, int fd) {
  epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
  close(fd);
}

static void bury(struct server *server, struct peer *peer, uint64_t now_ns) {
  list_remove(&peer->link);
  daemon_on_gone(server->daemon, peer, now_ns); /* may close others */
  discard_input(peer);
  close_watched(server, peer->fd);
  if (peer->pidfd >= 0)
    close_watched(server, peer->pidfd);
  if (peer->user)
    users_leave(peer->user);
  free(peer->out);
  free(peer);
  if (server->accept_ns)
    server->accept_ns = now_ns; /* there is a descriptor again */
}

void peers_bury(struct server *server, uint64_t now_ns) {
  while (!list_empty(&server->closed))
    bury(server, peer_of(list_first(&server->closed)), now_ns);
}

void peers_close_all(struct server *server) {
  while (!list_empty(&server->open))
    set_closed(peer_of(list_first(&server->open)));
  peers_bury(server, clock_now_ns());
}

/* ---- sending ---- */

/* Or it has closed with messages of ours unread, which is told only once. */
static bool has_said_more(const struct peer *peer) {
  char byte;
  ssize_t n = recv(peer->fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  return n > 0 || (n < 0 && errno == ECONNRESET);
}

/* What one that is gone has sent before is still to be read: its end is found behind that. */
static void note_sent(struct peer *peer, int err) {
  bool gone = err == -EPIPE || err == -ECONNRESET;
  if (err == -EAGAIN)
    peer_close(peer, "it does not read its messages");
  else if (err < 0 && !(gone && has_said_more(peer)))
    peers_hang_up(peer);
}

void peer_send(struct peer *peer, const struct gs_msg *msg) {
  if (!peer->closed)
    note_sent(peer, wire_send(peer->fd, msg));
}

/* Of descriptors under way there is a limit. */
void peer_send_passing(struct peer *peer, const struct gs_msg *msg, int passed) {
  if (peer->closed)
    return;
  int err = wire_send_passing(peer->fd, msg, passed);
  note_sent(peer, err == -ETOOMANYREFS ? wire_send(peer->fd, msg) : err);
}

void peers_set_events(struct peer *peer, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = peer};
  epoll_ctl(peer->server->epoll_fd, EPOLL_CTL_MOD, peer->fd, &event);
}

static void send_more(struct peer *peer) {
  int err = 0;
  while (peer->out_sent < peer->out_count && (err = wire_send(peer->fd, &peer->out[peer->out_sent])) == 0)
    peer->out_sent++;
  if (err == -EAGAIN)
    return;
  free(peer->out);
  peer->out = NULL;
  list_remove(&peer->due_link);
  if (err < 0)
    peers_hang_up(peer);
  else
    peers_set_events(peer, EPOLLIN);
}

void peer_send_many(struct peer *peer, struct gs_msg *msgs, size_t count) {
  if (peer->closed) {
    free(msgs);
    return;
  }
  peer->out = msgs;
  peer->out_count = count;
  peer->out_sent = 0;
  peers_set_due(peer, clock_now_ns());
  peers_set_events(peer, EPOLLOUT);
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

/* One message. False: no more for now. */
static bool receive(struct peer *peer) {
  struct gs_msg msg;
  int err = wire_recv(peer->fd, &msg);
  uint64_t now_ns = clock_now_ns();
  if (err == -EAGAIN)
    return false;
  if (err == -ECONNRESET)
    peers_hang_up(peer);
  else if (!within_rate(peer, now_ns))
    peer_close(peer, "it floods the daemon with messages");
  else if (err < 0)
    daemon_on_bad_message(peer->server->daemon, peer, err);
  else
    daemon_on_message(peer->server->daemon, peer, &msg, now_ns);
  return !peer->closed && !peer->out && !peer->reading.record && !peer->look.attach;
}

/* Of one that is sent many messages. */
static void on_send_event(struct peer *peer, uint32_t events) {
  if (events & (EPOLLHUP | EPOLLERR))
    peers_hang_up(peer);
  else if (peer->out)
    send_more(peer);
  else if (events & EPOLLOUT)
    readers_on_writable(peer);
  else
    peer_close(peer, "a message from one that follows events");
}

void peers_on_event(void *watched, uint32_t events) {
  struct peer *peer = (struct peer *)(void *)((char *)watched - is_process(watched));
  if (peer->closed)
    return;
  if (is_process(watched)) {
    end_with_process(peer);
    return;
  }
  if (peer->out || peer->reading.record) {
    on_send_event(peer, events);
    return;
  }
  if (peer->look.attach && events & (EPOLLHUP | EPOLLERR))
    forget_look(peer);
  for (int i = 0; i < READS_PER_TURN && !peer->look.attach; i++)
    if (!receive(peer))
      return;
}

/* ---- time ---- */

uint64_t peers_deadline_ns(const struct server *server) {
  struct list *first = list_first(&server->due);
  return first ? list_entry(first, struct peer, due_link)->due_ns : UINT64_MAX;
}

void peers_on_time(struct server *server, uint64_t now_ns) {
  while (now_ns >= peers_deadline_ns(server)) {
    struct peer *peer = list_entry(list_first(&server->due), struct peer, due_link);
    peer_close(peer, peer->role == PEER_FRESH ? "it has not said what it is" : "it does not read its answer");
  }
}

bool peer_may_change(const struct peer *peer) {
  return peer->near && permission_granted(peer->fd, peer->server->group);
}
