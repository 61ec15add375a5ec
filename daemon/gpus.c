/* gpus.c - the GPUs that programs have used: they come with the first of these, and go only when there are
 * too many. What is to be done for each from time to time. */
#include <stdlib.h>
#include <string.h>

#include "events.h"
#include "printable.h"

static struct gpu *gpu_at(struct list *node) { return gpu_of(list_entry(node, struct sched_gpu, link)); }

static void forget(struct daemon *daemon, struct sched_gpu *gpu) {
  status_on_forget(daemon, gpu);
  scheduler_remove_gpu(&daemon->scheduler, gpu);
  free(gpu_of(gpu));
  daemon->gpu_count--;
}

/* A GPU that nobody uses makes room for one that somebody does. */
static void forget_unused_gpu(struct daemon *daemon) {
  list_each(node, &daemon->scheduler.gpus) {
    struct sched_gpu *gpu = list_entry(node, struct sched_gpu, link);
    if (gpu->job_count > 0)
      continue;
    forget(daemon, gpu);
    return;
  }
}

/* Nobody uses it yet, so nobody needs to be told. */
static void settle_gpu(const struct daemon *daemon, struct sched_gpu *gpu, uint64_t now_ns) {
  struct sched_change change;
  change_init(&change);
  overrides_apply(&daemon->overrides, gpu, now_ns, &change);
}

struct sched_gpu *gpus_provide(struct daemon *daemon, const struct gs_msg *msg, uint64_t now_ns) {
  struct sched_gpu *known = scheduler_find_gpu(&daemon->scheduler, msg->attach.uuid);
  if (known)
    return known;
  if (daemon->gpu_count >= DAEMON_GPUS_MAX)
    forget_unused_gpu(daemon);
  struct gpu *gpu = daemon->gpu_count < DAEMON_GPUS_MAX ? malloc(sizeof *gpu) : NULL;
  if (!gpu)
    return NULL;
  char name[GS_NAME_SIZE];
  printable_copy(name, msg->attach.name, sizeof name);
  scheduler_add_gpu(&daemon->scheduler, &gpu->sched, msg->attach.uuid, name, msg->attach.total_bytes);
  rates_init(&gpu->rates);
  gpu->turns_told = false;
  memset(gpu->event_counts, 0, sizeof gpu->event_counts);
  daemon->gpu_count++;
  settle_gpu(daemon, &gpu->sched, now_ns);
  return &gpu->sched;
}

uint64_t gpus_deadline_ns(const struct daemon *daemon) {
  uint64_t next_ns = RATES_NEVER;
  list_each(node, &daemon->scheduler.gpus) {
    uint64_t tick_ns = rates_deadline_ns(&gpu_at(node)->rates);
    next_ns = tick_ns < next_ns ? tick_ns : next_ns;
  }
  return next_ns;
}

static void look_at_rates(struct gpu *gpu, uint64_t now_ns) {
  rates_on_time(&gpu->rates, now_ns);
  list_each(node, &gpu->sched.jobs) {
    events_on_limit(attachment_of(list_entry(node, struct sched_job, link)), now_ns);
  }
}

void gpus_on_time(struct daemon *daemon, uint64_t now_ns) {
  list_each(node, &daemon->scheduler.gpus) {
    if (now_ns >= rates_deadline_ns(&gpu_at(node)->rates))
      look_at_rates(gpu_at(node), now_ns);
  }
}

void gpus_end(struct daemon *daemon) {
  while (!list_empty(&daemon->scheduler.gpus))
    forget(daemon, &gpu_at(list_first(&daemon->scheduler.gpus))->sched);
}
