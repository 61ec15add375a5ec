/* peer.c - one connection: when it is served, what it is sent, how it is closed. */
#include "server/server.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/daemon_log.h"
#include "server/process.h"
#include "shared/printable.h"

#define PATIENCE_NS (10 * NS_PER_S) /* to register, or to read what was asked for */

/* In the kernel a message of ours takes 768 bytes, until it is read. It is looked from time to time how many
 * there are. Peers that ask for many messages have small buffers instead. */
#define SENT_BETWEEN_LOOKS 8
#define BEHIND_BYTES (32 * 768) /* of what may be told later as well */
#define NARROW_BUFFER 8192      /* which the kernel doubles */
#define NARROW_BYTES (2 * NARROW_BUFFER)

/* ---- who has something to do ---- */

static struct rota *rota_of(const struct peer *peer) {
  return peer->leaves ? &peer->server->leaving : &peer->server->rota;
}

static struct rota_user *rota_user_of(const struct peer *peer) {
  return peer->leaves ? &peer->user->leaving : &peer->user->rota;
}

void peer_set_ready(struct peer *peer) {
  if (list_empty(&peer->ready_link))
    peer->ready_ns = peer->server->turn_ns;
  rota_add(rota_of(peer), rota_user_of(peer), &peer->ready_link);
}

void peer_set_ready_first(struct peer *peer) {
  rota_add_first(rota_of(peer), rota_user_of(peer), &peer->ready_link);
}

/* What the end of a peer gives to others. */
enum hold {
  HOLDS_NOTHING,
  HOLDS_PLACE, /* on a GPU: memory, or a place in the queue; or in MPS */
  HOLDS_TURN,  /* on a GPU, and others wait until it stops */
};

static enum hold hold_of(const struct peer *peer) {
  enum hold hold = peer->role == PEER_SPATIAL ? HOLDS_PLACE : HOLDS_NOTHING;
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++) {
    if (!peer->attachments[i])
      continue;
    enum gs_job_state state = peer->attachments[i]->job.state;
    if (state != GS_JOB_IDLE && state != GS_JOB_WAITING)
      return HOLDS_TURN;
    hold = HOLDS_PLACE;
  }
  return hold;
}

bool peer_set_leaving(struct peer *peer) {
  enum hold hold = hold_of(peer);
  if (!peer->leaves && hold == HOLDS_NOTHING)
    return false;
  if (!peer->leaves)
    list_remove(&peer->ready_link);
  peer->leaves = true;
  if (hold == HOLDS_TURN)
    peer_set_ready_first(peer);
  else
    peer_set_ready(peer);
  return true;
}

void peer_set_due(struct peer *peer, uint64_t now_ns) {
  peer->due_ns = now_ns + PATIENCE_NS;
  list_remove(&peer->due_link);
  list_append(&peer->server->due, &peer->due_link); /* the same patience for all keeps the list in order */
}

void peer_set_patient(struct peer *peer) { list_remove(&peer->due_link); }

void peer_settle(struct peer *peer, enum peer_role role) {
  peer->role = role;
  peer_set_patient(peer);
}

/* ---- closing ---- */

void peer_end(struct peer *peer) {
  peer->closed = true;
  list_remove(&peer->due_link);
  list_remove(&peer->link);
  list_append(&peer->server->closed, &peer->link);
  if (!peer_set_leaving(peer))
    peer_set_ready_first(peer);
}

void peer_reload(struct peer *peer, bool only_looks) {
  peer->reload_ns = clock_now_ns();
  peer->only_looks = only_looks;
  list_append(&peer->server->reloads, &peer->reload_link);
  peer->server->on_reload(peer->server, peer);
}

void peer_close(struct peer *peer, const char *why) {
  if (peer->closed)
    return;
  log_for(peer->uid, LOG_LEVEL_INFO, "closing the connection of %s: %s", label_peer(peer).text, why);
  peer->expelled = true;
  peer_end(peer);
}

void peer_hang_up(struct peer *peer) {
  log_for(peer->uid, LOG_LEVEL_DEBUG, "pid %d is gone (job %u)", peer->pid, peer->job_id);
  peer_end(peer);
}

/* ---- sending ---- */

bool peer_is_behind(const struct peer *peer) {
  int queued = 0;
  return ioctl(peer->fd, SIOCOUTQ, &queued) == 0 && queued > BEHIND_BYTES;
}

/* What a peer leaves unread is the daemon's memory, so its user is charged for it. */
static void note_unread(struct peer *peer) {
  int queued = 0;
  if (++peer->sent_count < SENT_BETWEEN_LOOKS || peer->narrow)
    return;
  peer->sent_count = 0;
  ioctl(peer->fd, SIOCOUTQ, &queued);
  uint64_t bytes = queued > (int)PEER_UNREAD_BYTES ? (uint64_t)queued - PEER_UNREAD_BYTES : 0;
  if (bytes > peer->unread_bytes && user_charge(peer->user, USER_BYTES, bytes - peer->unread_bytes) < 0) {
    peer_close(peer, "it does not read its messages, and its user has left too many unread");
    return;
  }
  if (bytes < peer->unread_bytes)
    user_release(peer->user, USER_BYTES, peer->unread_bytes - bytes);
  peer->unread_bytes = bytes;
}

int peer_narrow(struct peer *peer) {
  int size = NARROW_BUFFER;
  if (peer->narrow)
    return 0;
  if (user_charge(peer->user, USER_BYTES, NARROW_BYTES) < 0)
    return -EDQUOT;
  setsockopt(peer->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  peer->narrow = true;
  peer->unread_bytes += NARROW_BYTES;
  return 0;
}

/* What one that is gone has sent before is still to be read: its end is found behind that. Or it has closed
 * with messages of ours unread, which is told only once. */
static bool has_said_more(const struct peer *peer) {
  char byte;
  ssize_t n = recv(peer->fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  return n > 0 || (n < 0 && errno == ECONNRESET);
}

void peer_send_passing(struct peer *peer, const struct gs_msg *msg, int passed) {
  if (peer->closed)
    return;
  int err = passed < 0 ? wire_send(peer->fd, msg) : wire_send_passing(peer->fd, msg, sizeof *msg, passed);
  if (err == -EAGAIN)
    peer_close(peer, "it does not read its messages");
  else if (err < 0 && !((err == -EPIPE || err == -ECONNRESET) && has_said_more(peer)))
    peer_hang_up(peer);
  if (!peer->closed)
    note_unread(peer);
}

void peer_send(struct peer *peer, const struct gs_msg *msg) { peer_send_passing(peer, msg, -1); }

void peer_set_events(struct peer *peer, uint32_t events) {
  struct epoll_event event = {.events = events | EPOLLET, .data.ptr = peer};
  if (epoll_ctl(peer->server->epoll_fd, EPOLL_CTL_MOD, peer->fd, &event) < 0)
    peer_close(peer, "epoll does not watch it as it should"); /* else it would wait for ever */
}

/* ---- its process ---- */

/* Nobody says how long it is. What is beyond this is not looked at. */
struct origin peer_find_origin(const struct peer *peer) {
  char text[8192];
  process_read(peer->pid, "cgroup", text, sizeof text);
  return origin_parse(text);
}

bool peer_is_stopped(const struct peer *peer) { return process_is_stopped(peer->pid); }

void peer_read_name(pid_t pid, char name[GS_NAME_SIZE]) {
  char text[GS_NAME_SIZE];
  process_read(pid, "comm", text, sizeof text);
  text[strcspn(text, "\n")] = '\0';
  printable_copy(name, text, GS_NAME_SIZE);
}

bool peer_may_change(const struct peer *peer) {
  return peer->near && permission_granted(peer->fd, peer->server->group);
}
