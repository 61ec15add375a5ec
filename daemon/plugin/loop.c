/* loop.c - epoll, one event at a time, so that an event may remove any source. */
#include "plugin/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"

int loop_open(struct loop *loop) {
  loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  loop->exit_code = -1;
  list_init(&loop->timers);
  return loop->epoll_fd < 0 ? -errno : 0;
}

void loop_close(struct loop *loop) { close(loop->epoll_fd); }

int loop_add(struct loop *loop, struct source *source, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = source};
  source->events = events;
  return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) < 0 ? -errno : 0;
}

void loop_change(struct loop *loop, struct source *source, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = source};
  if (source->events != events)
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event);
  source->events = events;
}

void loop_remove(struct loop *loop, struct source *source) {
  if (source->fd < 0)
    return;
  epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
  close(source->fd);
  source->fd = -1;
}

void loop_add_timer(struct loop *loop, struct timer *timer) { list_append(&loop->timers, &timer->link); }

void loop_remove_timer(struct timer *timer) { list_remove(&timer->link); }

static uint64_t next_due_ns(const struct loop *loop) {
  uint64_t next_ns = LOOP_NEVER;
  list_each(node, &loop->timers) {
    const struct timer *timer = list_entry(node, struct timer, link);
    if (timer->due_ns < next_ns)
      next_ns = timer->due_ns;
  }
  return next_ns;
}

/* One of those that are due; NULL: none. */
static struct timer *find_due(const struct loop *loop, uint64_t now_ns) {
  list_each(node, &loop->timers) {
    struct timer *timer = list_entry(node, struct timer, link);
    if (timer->due_ns <= now_ns)
      return timer;
  }
  return NULL;
}

/* Any of them may be gone after each. */
static void do_what_is_due(struct loop *loop, uint64_t now_ns) {
  struct timer *timer;
  while (loop->exit_code < 0 && (timer = find_due(loop, now_ns))) {
    timer->due_ns = LOOP_NEVER;
    timer->on_due(timer, now_ns);
  }
}

/* Rounded up, so that the timer is due then. */
static int timeout_ms(const struct loop *loop, uint64_t now_ns) {
  uint64_t next_ns = next_due_ns(loop);
  if (next_ns == LOOP_NEVER)
    return -1;
  uint64_t left_ms = next_ns <= now_ns ? 0 : (next_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
  return left_ms > 3600 * 1000 ? 3600 * 1000 : (int)left_ms;
}

int loop_run(struct loop *loop) {
  struct epoll_event event;
  while (loop->exit_code < 0) {
    int count = epoll_wait(loop->epoll_fd, &event, 1, timeout_ms(loop, clock_now_ns()));
    if (count < 0 && errno != EINTR) {
      log_error("epoll_wait: %s", strerror(errno));
      return EXIT_FAILURE;
    }
    if (count > 0) {
      struct source *source = event.data.ptr;
      source->on_event(source, event.events);
    }
    do_what_is_due(loop, clock_now_ns());
  }
  return loop->exit_code;
}
