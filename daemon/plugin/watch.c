/* watch.c - the thread that asks NVML, and looks whether device files are there. */
#include "plugin/watch.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"

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

/* False: it is time to end. */
static bool pause_thread(const struct watch *watch) {
  struct pollfd stop = {.fd = watch->stop_fd, .events = POLLIN};
  return poll(&stop, 1, (int)(watch->interval_ns / NS_PER_MS)) <= 0;
}

static void *watch_gpus(void *argument) {
  struct watch *watch = argument;
  while (pause_thread(watch))
    if (look(watch->gpus))
      eventfd_write(watch->source.fd, 1);
  return NULL;
}

static void on_event(struct source *source, uint32_t events) {
  struct watch *watch = list_entry(source, struct watch, source);
  eventfd_t count;
  (void)events;
  if (eventfd_read(source->fd, &count) == 0)
    watch->on_change(watch);
}

int watch_open(struct watch *watch, struct loop *loop) {
  watch->loop = loop;
  watch->source = (struct source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .on_event = on_event};
  watch->stop_fd = eventfd(0, EFD_CLOEXEC);
  if (watch->source.fd < 0 || watch->stop_fd < 0)
    return -errno;
  look(watch->gpus);
  int err = loop_add(loop, &watch->source, EPOLLIN);
  return err < 0 ? err : thread_start(&watch->thread, watch_gpus, watch);
}

void watch_close(struct watch *watch) {
  eventfd_write(watch->stop_fd, 1);
  pthread_join(watch->thread, NULL);
  loop_remove(watch->loop, &watch->source);
  close(watch->stop_fd);
}
