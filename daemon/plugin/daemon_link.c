/* daemon_link.c - asks the daemon for its status again and again over one connection, whose end tells at once
 * that it is gone. */
#include "plugin/daemon_link.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/wire.h"

#define PATIENCE_NS (10 * NS_PER_S)
#define RETRY_NS NS_PER_S
#define MESSAGES_PER_TURN 64

static void set_answers(struct daemon_link *link, bool answers) {
  if (answers == link->answers)
    return;
  link->answers = answers;
  if (answers)
    log_info("the daemon answers at %s", link->socket);
  else
    log_warn("no daemon answers at %s: all shares are unhealthy", link->socket);
  link->on_change(link);
}

static uint64_t retry_ns(const struct daemon_link *link) {
  return link->interval_ns < RETRY_NS ? link->interval_ns : RETRY_NS;
}

/* Try again later. */
static void disconnect(struct daemon_link *link) {
  loop_remove(link->loop, &link->source);
  link->asked = false;
  link->timer.due_ns = clock_now_ns() + retry_ns(link);
  set_answers(link, false);
}

static void refuse(struct daemon_link *link) {
  if (!link->refused)
    log_error("the daemon at %s is of another version: install the same one", link->socket);
  link->refused = true;
  disconnect(link);
}

/* ---- answers ---- */

static void take_answer(struct daemon_link *link, const struct gs_msg *msg) {
  if (msg->type == GS_REJECTED && msg->registered.reason == GS_REJECT_LIMIT) {
    disconnect(link); /* it has no room for now */
  } else if (msg->type == GS_REJECTED) {
    refuse(link);
  } else if (msg->type == GS_STATUS_END) {
    link->asked = link->refused = false;
    link->timer.due_ns = clock_now_ns() + link->interval_ns;
    set_answers(link, true);
  }
}

static void on_event(struct source *source, uint32_t events) {
  struct daemon_link *link = list_entry(source, struct daemon_link, source);
  struct gs_msg msg;
  (void)events;
  for (int i = 0; i < MESSAGES_PER_TURN && source->fd >= 0; i++) {
    int err = wire_recv(source->fd, &msg);
    if (err == -EAGAIN)
      return;
    if (err == -EPROTONOSUPPORT)
      refuse(link);
    else if (err < 0)
      disconnect(link);
    else
      take_answer(link, &msg);
  }
}

/* ---- questions ---- */

static int connect_link(struct daemon_link *link) {
  int fd = wire_connect(link->socket);
  if (fd < 0)
    return fd;
  link->source.fd = fd;
  return loop_add(link->loop, &link->source, EPOLLIN);
}

static void ask(struct daemon_link *link) {
  struct gs_msg question = wire_msg(GS_GET_STATUS, GS_GPU_ALL);
  int err = link->source.fd < 0 ? connect_link(link) : 0;
  uint64_t again_ns = wire_connect_again_ns(err, &link->full_since_ns, PATIENCE_NS);
  if (again_ns) {
    link->timer.due_ns = again_ns;
    return;
  }
  if (err == 0)
    err = wire_send(link->source.fd, &question);
  if (err < 0) {
    disconnect(link);
    return;
  }
  link->asked = true;
  link->timer.due_ns = clock_now_ns() + PATIENCE_NS;
}

static void on_due(struct timer *timer, uint64_t now_ns) {
  struct daemon_link *link = list_entry(timer, struct daemon_link, timer);
  (void)now_ns;
  if (link->asked)
    disconnect(link);
  else
    ask(link);
}

void daemon_link_open(struct daemon_link *link, struct loop *loop) {
  link->loop = loop;
  link->source = (struct source){.fd = -1, .on_event = on_event};
  link->timer = (struct timer){.due_ns = 0, .on_due = on_due};
  loop_add_timer(loop, &link->timer);
}

void daemon_link_close(struct daemon_link *link) {
  loop_remove_timer(&link->timer);
  loop_remove(link->loop, &link->source);
}
