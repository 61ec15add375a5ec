/* loop.h - the event loop: descriptors, and the next deadline. One thread. */
#ifndef GS_KUBELET_LOOP_H
#define GS_KUBELET_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"

/* A descriptor that is waited for; a member of what it belongs to. */
struct source {
  int fd;
  uint32_t events; /* waited for */
  void (*on_event)(struct source *source, uint32_t events);
};

struct loop {
  int epoll_fd;
  struct list timers;
  struct source signals;
  int exit_code; /* of the program; -1: it goes on */
};

/* Something that is due at a time; UINT64_MAX: never. It sets the next time itself. */
struct timer {
  struct list link;
  uint64_t due_ns;
  void (*on_due)(struct timer *timer, uint64_t now_ns);
};

#define LOOP_NEVER UINT64_MAX

/* 0 or -errno. */
int loop_open(struct loop *loop);
void loop_close(struct loop *loop);

/* SIGTERM and SIGINT end it from now on, with EXIT_SUCCESS. Before threads are started, which inherit that
 * the signals are blocked. 0 or -errno. */
int loop_add_signals(struct loop *loop);

/* source->fd and on_event are set. 0 or -errno. */
int loop_add(struct loop *loop, struct source *source, uint32_t events);
void loop_change(struct loop *loop, struct source *source, uint32_t events);
/* And close its descriptor. Nothing happens if that is -1. */
void loop_remove(struct loop *loop, struct source *source);

/* due_ns and on_due are set. */
void loop_add_timer(struct loop *loop, struct timer *timer);
void loop_remove_timer(struct timer *timer);

/* Until there is an exit code, which it returns. */
int loop_run(struct loop *loop);

#endif
