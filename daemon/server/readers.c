/* readers.c - peers that are sent much, as fast as they read: of a record, or the daemon's state. */
#include "server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/record.h"
#include "server/usage.h"

#define SENDS_PER_TURN 64 /* to one reader, then others have their turn */
#define COST_DIVISOR 5    /* of the loop's time, pictures may take one part of so many */

/* All has been sent, or the peer does not hear. What it has sent meanwhile is told again. */
static void end(struct peer *peer, int err) {
  peer_set_patient(peer);
  if (err < 0)
    peer_hang_up(peer);
  else
    peer_set_events(peer, EPOLLIN);
}

/* ---- records ---- */

/* Command lines and accounts tell more than status does: they are for their owner, and for who may change
 * settings. */
static bool may_have(const struct peer *peer, const struct gs_msg *event) {
  bool is_private = event->event.kind == GS_EVENT_COMMAND || event->event.kind == GS_EVENT_USAGE;
  return !is_private || peer->reading.sees_all || event->event.uid == peer->uid;
}

/* As send_next, once it has had all of the record. */
static int send_open_span(struct peer *peer) {
  struct usage_place place = peer->reading.place;
  struct gs_msg span;
  int err = usage_tell_next(peer->server->daemon, &place, clock_now_ns(), &span);
  if (err > 0)
    err = may_have(peer, &span) ? wire_send(peer->fd, &span) : 0;
  if (err == 0)
    peer->reading.place = place;
  return err;
}

/* 0, or -errno: -ENODATA, it has had all; -EAGAIN, its socket is full. */
static int send_next(struct peer *peer) {
  struct reading *reading = &peer->reading;
  const struct record_entry *entry = record_next(reading->record, reading->next_seq);
  if (!entry && reading->sums_up)
    return send_open_span(peer);
  if (!entry || reading->next_seq >= reading->end_seq)
    return -ENODATA;
  uint64_t seq = entry->msg.event.seq < reading->end_seq ? entry->msg.event.seq : reading->end_seq;
  int err = 0;
  if (reading->next_seq < seq && entry->displaced_by >= reading->since_seq) {
    struct gs_msg msg = wire_msg(GS_EVENTS_MISSED, GS_GPU_ALL);
    msg.missed.count = seq - reading->next_seq;
    if ((err = wire_send(peer->fd, &msg)) == 0)
      reading->next_seq = seq;
    return err;
  }
  bool had = reading->sums_up && usage_is_told(&reading->place, &entry->msg);
  if (seq < reading->end_seq && may_have(peer, &entry->msg) && !had)
    err = wire_send(peer->fd, &entry->msg);
  if (err == 0)
    reading->next_seq = seq + 1;
  return err;
}

static void end_reading(struct peer *peer) {
  struct gs_msg msg = wire_msg(GS_EVENTS_END, GS_GPU_ALL);
  int err = wire_send(peer->fd, &msg);
  if (err == -EAGAIN)
    return;
  readers_leave(peer);
  end(peer, err);
}

static void set_waiting(struct peer *peer, bool waiting) {
  if (peer->reading.waits != waiting)
    peer_set_events(peer, waiting ? EPOLLOUT : EPOLLIN);
  peer->reading.waits = waiting;
}

void readers_on_writable(struct peer *peer) {
  int err = 0;
  for (int i = 0; i < SENDS_PER_TURN && err == 0; i++)
    err = send_next(peer);
  if (err < 0 && err != -ENODATA && err != -EAGAIN)
    peer_hang_up(peer);
  else if (err == -ENODATA && !peer->reading.follows)
    end_reading(peer);
  else if (err == 0)
    peer_set_ready(peer); /* no edge may come: perhaps nothing was sent, as it may see none of these */
  else
    set_waiting(peer, err == -EAGAIN);
}

int peer_read(struct peer *peer, const struct record *record, uint64_t from_seq, uint64_t since_seq,
              bool follow) {
  if (peer_narrow(peer) < 0 || user_charge(peer->user, USER_READERS, 1) < 0)
    return -EUSERS;
  bool sums_up = !follow && record == &peer->server->daemon->usage;
  peer->reading = (struct reading){.record = record,
                                   .next_seq = from_seq,
                                   .since_seq = since_seq,
                                   .end_seq = follow || sums_up ? UINT64_MAX : record->next_seq,
                                   .follows = follow,
                                   .sums_up = sums_up,
                                   .sees_all = peer_may_change(peer)};
  list_append(&peer->server->readers, &peer->reading.link);
  if (!follow)
    peer_set_due(peer, clock_now_ns());
  set_waiting(peer, true);
  return 0;
}

void readers_leave(struct peer *peer) {
  if (!peer->reading.record)
    return;
  list_remove(&peer->reading.link);
  peer->reading.record = NULL;
  user_release(peer->user, USER_READERS, 1);
}

void readers_on_news(struct server *server) {
  const struct daemon *daemon = server->daemon;
  uint64_t news_seq = daemon->events.next_seq + daemon->runs.next_seq + daemon->usage.next_seq;
  if (server->news_seq == news_seq)
    return;
  server->news_seq = news_seq;
  list_each(node, &server->readers) {
    struct peer *peer = list_entry(node, struct peer, reading.link);
    if (!peer->reading.waits && peer->reading.next_seq < peer->reading.record->next_seq)
      peer_set_ready(peer);
  }
}

/* ---- pictures of the daemon's state ---- */

/* Shared by those that read it, who count. */
struct picture {
  struct gs_msg *msgs;
  size_t count;
  uint32_t readers; /* or who will: each gives it back */
};

static struct peer *asking_peer(struct list *node) { return list_entry(node, struct peer, asking_link); }

static uint64_t bytes_of(const struct picture *picture) { return picture->count * sizeof *picture->msgs; }

/* ---- asking ---- */

/* Nothing else is received until it has had its answer. */
void peer_send_status(struct peer *peer, uint32_t details) {
  if (peer->closed)
    return;
  peer->details = details;
  peer->sees_all_commands = details >= GS_DETAILS_JOBS && peer_may_change(peer);
  peer_set_due(peer, clock_now_ns());
  list_append(&peer->server->asking, &peer->asking_link);
  peer->asks = true;
}

static void refuse(struct peer *peer, int status, const char *text) {
  peer_set_patient(peer);
  peer_reply(peer, status, text);
}

/* ---- making ---- */

uint64_t pictures_deadline_ns(const struct server *server) {
  if (!list_empty(&server->answering))
    return 0;
  return list_empty(&server->asking) ? UINT64_MAX : server->picture_next_ns;
}

/* Each begins to read in its user's turn. */
static void hand_out(struct server *server, struct picture *picture) {
  while (!list_empty(&server->answering)) {
    struct peer *peer = asking_peer(list_first(&server->answering));
    list_remove(&peer->asking_link);
    peer->asks = false;
    if (picture) {
      peer->out = picture;
      picture->readers++;
    } else {
      refuse(peer, -ENOMEM, "the daemon is out of memory");
    }
    peer_set_ready(peer);
  }
}

void pictures_run(struct server *server, uint64_t until_ns) {
  uint64_t begin_ns = clock_now_ns();
  if (list_empty(&server->answering)) { /* or those who have asked for it are gone */
    if (list_empty(&server->asking) || begin_ns < server->picture_next_ns)
      return;
    for (struct list *node; (node = list_first(&server->asking));) {
      list_remove(node);
      list_append(&server->answering, node);
    }
    status_begin(server->daemon, begin_ns);
    server->picture_cost_ns = 0;
  }
  struct list *first = list_first(&server->answering);
  struct user *user = first ? asking_peer(first)->user : NULL; /* who has asked first pays */
  bool done = status_go_on(server->daemon, begin_ns, until_ns);
  uint64_t now_ns = clock_now_ns();
  server->picture_cost_ns += now_ns - begin_ns;
  if (user)
    rota_spend(&user->rota, now_ns - begin_ns);
  if (!done)
    return;
  size_t count;
  struct gs_msg *msgs = status_take(server->daemon, &count);
  struct picture *picture = list_empty(&server->answering) ? NULL : malloc(sizeof *picture);
  if (picture && msgs) {
    *picture = (struct picture){.msgs = msgs, .count = count};
    hand_out(server, picture);
  } else {
    free(picture);
    free(msgs);
    hand_out(server, NULL);
  }
  server->picture_next_ns = now_ns + (COST_DIVISOR - 1) * server->picture_cost_ns;
}

/* ---- reading ---- */

static void drop_picture(struct picture *picture) {
  if (--picture->readers > 0)
    return;
  free(picture->msgs);
  free(picture);
}

static bool begin_picture(struct peer *peer) {
  struct picture *picture = peer->out;
  if (peer_narrow(peer) == 0 && user_hold_picture(peer->user, picture, bytes_of(picture)) == 0) {
    peer->out_begun = true;
    peer_set_due(peer, clock_now_ns());
    peer_set_events(peer, EPOLLOUT);
    return !peer->closed;
  }
  peer->out = NULL;
  drop_picture(picture);
  refuse(peer, -EBUSY, "this user does not read what it has asked for: end some of those who ask");
  peer_set_ready(peer);
  return false;
}

static void end_picture(struct peer *peer) {
  struct picture *picture = peer->out;
  if (peer->out_begun)
    user_drop_picture(peer->user, picture, bytes_of(picture));
  peer->out = NULL;
  peer->out_sent = 0;
  peer->out_begun = false;
  drop_picture(picture);
}

static bool may_see(const struct peer *peer, const struct gs_msg *msg) {
  if (msg->type == GS_STATUS_CARD)
    return peer->details >= GS_DETAILS_CARDS;
  if (msg->type == GS_STATUS_MEMORY)
    return peer->details >= GS_DETAILS_JOBS;
  return msg->type != GS_STATUS_COMMAND || peer->sees_all_commands ||
         (peer->details >= GS_DETAILS_JOBS && msg->command_status.uid == peer->uid);
}

void pictures_send(struct peer *peer) {
  const struct picture *picture = peer->out;
  int err = 0;
  if (!peer->out_begun && !begin_picture(peer))
    return;
  for (int i = 0; i < SENDS_PER_TURN && err == 0 && peer->out_sent < picture->count; i++) {
    const struct gs_msg *msg = &picture->msgs[peer->out_sent];
    if (may_see(peer, msg))
      err = wire_send(peer->fd, msg);
    if (err == 0)
      peer->out_sent++;
  }
  bool complete = peer->out_sent == picture->count;
  if (err == -EAGAIN)
    return;
  if (err == 0 && !complete) {
    peer_set_ready(peer);
    return;
  }
  end_picture(peer);
  end(peer, err);
}

void pictures_leave(struct peer *peer) {
  list_remove(&peer->asking_link);
  peer->asks = false;
  if (peer->out)
    end_picture(peer);
}
