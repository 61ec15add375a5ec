/* readers.c - peers that read a record. */
#include "server/server.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/record.h"

#define SENDS_PER_TURN 64 /* to one reader, then others have their turn */

static struct peer *peer_of(struct list *node) { return list_entry(node, struct peer, reading.link); }

/* ---- sending: 0, or -errno: -ENODATA, it has had all; -EAGAIN, its socket is full ---- */

static int send_next(struct peer *peer) {
  struct reading *reading = &peer->reading;
  const struct record_entry *entry = record_next(reading->record, reading->next_seq);
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
  /* A command line may tell more than status does: it is for its owner, and for who may change settings. */
  const struct gs_msg *event = &entry->msg;
  bool may_see = event->event.kind != GS_EVENT_COMMAND || reading->sees_all || event->event.uid == peer->uid;
  if (seq < reading->end_seq && may_see)
    err = wire_send(peer->fd, event);
  if (err == 0)
    reading->next_seq = seq + 1;
  return err;
}

static void end(struct peer *peer) {
  struct gs_msg msg = wire_msg(GS_EVENTS_END, GS_GPU_ALL);
  int err = wire_send(peer->fd, &msg);
  if (err == -EAGAIN)
    return;
  readers_leave(peer);
  peer_set_patient(peer);
  if (err < 0)
    peer_hang_up(peer);
  else
    peer_set_events(peer, EPOLLIN);
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
    end(peer);
  else if (err == 0)
    peer_set_ready(peer); /* no edge may come: perhaps nothing was sent, as it may see none of these */
  else
    set_waiting(peer, err == -EAGAIN);
}

/* ---- who reads ---- */

int peer_read(struct peer *peer, const struct record *record, uint64_t from_seq, uint64_t since_seq,
              bool follow) {
  if (peer_narrow(peer) < 0 || user_charge(peer->user, USER_READERS, 1) < 0)
    return -EUSERS;
  peer->reading = (struct reading){.record = record,
                                   .next_seq = from_seq,
                                   .since_seq = since_seq,
                                   .end_seq = follow ? UINT64_MAX : record->next_seq,
                                   .follows = follow,
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
  struct list *readers = &server->readers;
  uint64_t news_seq = daemon->events.next_seq + daemon->runs.next_seq;
  if (server->news_seq == news_seq)
    return;
  server->news_seq = news_seq;
  list_each(node, readers) {
    const struct reading *reading = &peer_of(node)->reading;
    if (!reading->waits && reading->next_seq < reading->record->next_seq)
      peer_set_ready(peer_of(node));
  }
}
