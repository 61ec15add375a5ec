/* health.c - asks the daemon for its status again and again over one connection, whose end tells at once that
 * it is gone; and a thread asks NVML, and looks whether device files are there. */
#include "plugin/health.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/wire.h"

#define PATIENCE_NS (10 * NS_PER_S)
#define RETRY_NS NS_PER_S
#define MESSAGES_PER_TURN 64

/* ---- the daemon ---- */

static void set_answers(struct health *health, bool answers) {
  if (answers == health->daemon_answers)
    return;
  health->daemon_answers = answers;
  if (answers)
    log_info("the daemon answers at %s", health->socket);
  else
    log_warn("no daemon answers at %s: all shares are unhealthy", health->socket);
  health->on_change(health);
}

/* Try again later. */
static void disconnect(struct health *health) {
  loop_remove(health->loop, &health->daemon);
  health->asked = false;
  health->timer.due_ns = clock_now_ns() + (health->interval_ns < RETRY_NS ? health->interval_ns : RETRY_NS);
  set_answers(health, false);
}

static void refuse(struct health *health) {
  if (!health->refused)
    log_error("the daemon at %s is of another version: install the same one", health->socket);
  health->refused = true;
  disconnect(health);
}

static void on_answer(struct source *source, uint32_t events) {
  struct health *health = list_entry(source, struct health, daemon);
  struct gs_msg msg;
  (void)events;
  for (int i = 0; i < MESSAGES_PER_TURN && source->fd >= 0; i++) {
    int err = wire_recv(source->fd, &msg);
    bool rejected = err == 0 && msg.type == GS_REJECTED;
    if (err == -EAGAIN)
      return;
    if (err == -EPROTONOSUPPORT || (rejected && msg.registered.reason != GS_REJECT_LIMIT)) {
      refuse(health);
    } else if (err < 0 || rejected) { /* or it has no room for now */
      disconnect(health);
    } else if (msg.type == GS_STATUS_END) {
      health->asked = health->refused = false;
      health->timer.due_ns = clock_now_ns() + health->interval_ns;
      set_answers(health, true);
    }
  }
}

static int connect_daemon(struct health *health) {
  int fd = wire_connect(health->socket);
  if (fd < 0)
    return fd;
  health->daemon.fd = fd;
  return loop_add(health->loop, &health->daemon, EPOLLIN);
}

/* It has not answered, or is asked anew. */
static void on_due(struct timer *timer, uint64_t now_ns) {
  struct health *health = list_entry(timer, struct health, timer);
  struct gs_msg question = wire_msg(GS_GET_STATUS, GS_GPU_ALL);
  (void)now_ns;
  if (health->asked) {
    disconnect(health);
    return;
  }
  int err = health->daemon.fd < 0 ? connect_daemon(health) : 0;
  uint64_t again_ns = wire_connect_again_ns(err, &health->full_since_ns, PATIENCE_NS);
  if (again_ns) {
    timer->due_ns = again_ns;
    return;
  }
  if (err == 0)
    err = wire_send(health->daemon.fd, &question);
  if (err < 0) {
    disconnect(health);
    return;
  }
  health->asked = true;
  timer->due_ns = clock_now_ns() + PATIENCE_NS;
}

/* ---- the GPUs ---- */

/* Whether any has changed. */
static bool look(struct gpus *gpus) {
  bool changed = false;
  for (size_t i = 0; i < gpus->count; i++) {
    struct gpu *gpu = &gpus->at[i];
    bool healthy = gpus_answers(gpu);
    if (atomic_exchange(&gpu->healthy, healthy) == healthy)
      continue;
    changed = true;
    if (healthy)
      log_info("%s is back", gpu->uuid);
    else
      log_error("%s does not answer: its shares are unhealthy", gpu->uuid);
  }
  return changed;
}

static void *watch_gpus(void *argument) {
  struct health *health = argument;
  struct pollfd stop = {.fd = health->stop_fd, .events = POLLIN};
  while (poll(&stop, 1, (int)(health->interval_ns / NS_PER_MS)) <= 0)
    if (look(health->gpus))
      eventfd_write(health->changed.fd, 1);
  return NULL;
}

static void on_changed(struct source *source, uint32_t events) {
  struct health *health = list_entry(source, struct health, changed);
  eventfd_t count;
  (void)events;
  if (eventfd_read(source->fd, &count) == 0)
    health->on_change(health);
}

int health_open(struct health *health) {
  health->daemon = (struct source){.fd = -1, .on_event = on_answer};
  health->timer = (struct timer){.due_ns = 0, .on_due = on_due};
  loop_add_timer(health->loop, &health->timer);
  health->changed = (struct source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .on_event = on_changed};
  health->stop_fd = eventfd(0, EFD_CLOEXEC);
  if (health->changed.fd < 0 || health->stop_fd < 0)
    return -errno;
  look(health->gpus);
  int err = loop_add(health->loop, &health->changed, EPOLLIN);
  return err < 0 ? err : thread_start(&health->thread, watch_gpus, health);
}

void health_close(struct health *health) {
  eventfd_write(health->stop_fd, 1);
  pthread_join(health->thread, NULL);
  loop_remove(health->loop, &health->changed);
  close(health->stop_fd);
  loop_remove_timer(&health->timer);
  loop_remove(health->loop, &health->daemon);
}
