/* pictures.c - who is sent the daemon's state. */
#include "server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/clock.h"
#include "common/wire.h"

/* The loop's time that pictures may take: one part of so many. */
#define COST_DIVISOR 5
#define SENDS_PER_VISIT 64 /* to one reader, then others have their turn */

/* Shared by those that read it, who count. */
struct picture {
  struct gs_msg *msgs;
  size_t count;
  uint32_t readers; /* or who will: each gives it back */
};

static struct peer *peer_of(struct list *node) { return list_entry(node, struct peer, asking_link); }

static uint64_t bytes_of(const struct picture *picture) { return picture->count * sizeof *picture->msgs; }

/* ---- asking ---- */

/* Nothing else is received until it has had its answer. */
void peer_send_status(struct peer *peer) {
  if (peer->closed)
    return;
  peer_set_due(peer, clock_now_ns());
  list_append(&peer->server->asking, &peer->asking_link);
  peer->asks = true;
}

static void refuse(struct peer *peer, int status, const char *text) {
  struct gs_msg msg = wire_msg(GS_REPLY, GS_GPU_ALL);
  msg.status = status;
  strncpy(msg.reply.text, text, sizeof msg.reply.text - 1);
  peer_set_patient(peer);
  peer_send(peer, &msg);
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
    struct peer *peer = peer_of(list_first(&server->answering));
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
  struct user *user = first ? peer_of(first)->user : NULL; /* who has asked first pays */
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

static void drop(struct picture *picture) {
  if (--picture->readers > 0)
    return;
  free(picture->msgs);
  free(picture);
}

static bool begin(struct peer *peer) {
  struct picture *picture = peer->out;
  if (peer_narrow(peer) == 0 && user_hold_picture(peer->user, picture, bytes_of(picture)) == 0) {
    peer->out_begun = true;
    peer_set_due(peer, clock_now_ns());
    peer_set_events(peer, EPOLLOUT);
    return !peer->closed;
  }
  peer->out = NULL;
  drop(picture);
  refuse(peer, -EBUSY, "this user does not read what it has asked for: end some of those who ask");
  peer_set_ready(peer);
  return false;
}

static void end(struct peer *peer) {
  struct picture *picture = peer->out;
  if (peer->out_begun)
    user_drop_picture(peer->user, picture, bytes_of(picture));
  peer->out = NULL;
  peer->out_sent = 0;
  peer->out_begun = false;
  drop(picture);
}

void pictures_send(struct peer *peer) {
  const struct picture *picture = peer->out;
  int err = 0;
  if (!peer->out_begun && !begin(peer))
    return;
  for (int i = 0; i < SENDS_PER_VISIT && err == 0 && peer->out_sent < picture->count; i++)
    if ((err = wire_send(peer->fd, &picture->msgs[peer->out_sent])) == 0)
      peer->out_sent++;
  bool complete = peer->out_sent == picture->count;
  if (err == -EAGAIN)
    return;
  if (err == 0 && !complete) {
    peer_set_ready(peer);
    return;
  }
  end(peer);
  peer_set_patient(peer);
  if (err < 0)
    peer_hang_up(peer);
  else
    peer_set_events(peer, EPOLLIN); /* what it has sent meanwhile is told again */
}

void pictures_leave(struct peer *peer) {
  list_remove(&peer->asking_link);
  peer->asks = false;
  if (peer->out)
    end(peer);
}
