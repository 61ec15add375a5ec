/* loop.c - epoll, one event at a time, so that an event may remove any source. */
#include "kubelet/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"

int loop_open(struct loop *loop) {
  loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  loop->exit_code = -1;
  loop->signals.fd = -1;
  list_init(&loop->timers);
  return loop->epoll_fd < 0 ? -errno : 0;
}

void loop_close(struct loop *loop) {
  loop_remove(loop, &loop->signals);
  close(loop->epoll_fd);
}

static void on_signal(struct source *source, uint32_t events) {
  (void)events;
  log_info("ending");
  list_entry(source, struct loop, signals)->exit_code = EXIT_SUCCESS;
}

int loop_add_signals(struct loop *loop) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  loop->signals = (struct source){.fd = signalfd(-1, &signals, SFD_CLOEXEC), .on_event = on_signal};
  return loop->signals.fd < 0 ? -errno : loop_add(loop, &loop->signals, EPOLLIN);
}

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

/* The one that is due first; NULL: none is. */
static struct timer *first_due(const struct loop *loop) {
  struct timer *first = NULL;
  list_each(node, &loop->timers) {
    struct timer *timer = list_entry(node, struct timer, link);
    if (timer->due_ns != LOOP_NEVER && (!first || timer->due_ns < first->due_ns))
      first = timer;
  }
  return first;
}

/* Rounded up, so that the timer is due then. */
static int timeout_ms(const struct loop *loop, uint64_t now_ns) {
  const struct timer *timer = first_due(loop);
  if (!timer)
    return -1;
  uint64_t left_ms = timer->due_ns <= now_ns ? 0 : (timer->due_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
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
    /* Any timer may be gone after each. */
    uint64_t now_ns = clock_now_ns();
    for (struct timer *timer; loop->exit_code < 0 && (timer = first_due(loop)) && timer->due_ns <= now_ns;) {
      timer->due_ns = LOOP_NEVER;
      timer->on_due(timer, now_ns);
    }
  }
  return loop->exit_code;
}
