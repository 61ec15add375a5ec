/* walk.h - a walk over all GPUs and their jobs, which may come and go before it is over. */
#ifndef GS_WALK_H
#define GS_WALK_H

#include <stdbool.h>

#include "core/scheduler.h"

struct walk {
  const struct list *gpus;
  struct list *gpu_node; /* where it goes on: in the list of GPUs, */
  struct list *job_node; /* and in the list of its jobs; NULL: with the GPU itself */
};

static inline void walk_begin(struct walk *walk, const struct list *gpus) {
  *walk = (struct walk){.gpus = gpus, .gpu_node = gpus->next};
}

/* What is next: a GPU, then each of its jobs. False: that was all. */
static inline bool walk_next(struct walk *walk, struct sched_gpu **gpu, struct sched_job **job) {
  while (walk->gpu_node != walk->gpus) {
    *gpu = list_entry(walk->gpu_node, struct sched_gpu, link);
    *job = NULL;
    if (!walk->job_node) {
      walk->job_node = (*gpu)->jobs.next;
      return true;
    }
    if (walk->job_node != &(*gpu)->jobs) {
      *job = list_entry(walk->job_node, struct sched_job, link);
      walk->job_node = walk->job_node->next;
      return true;
    }
    walk->gpu_node = walk->gpu_node->next;
    walk->job_node = NULL;
  }
  return false;
}

/* On to the next GPU. Caller must: have been given this one just now. */
static inline void walk_skip_jobs(struct walk *walk, struct sched_gpu *gpu) { walk->job_node = &gpu->jobs; }

/* The job, or the GPU, is about to leave. */
static inline void walk_on_detach(struct walk *walk, const struct sched_job *job) {
  if (walk->job_node == &job->link)
    walk->job_node = job->link.next;
}

static inline void walk_on_forget(struct walk *walk, const struct sched_gpu *gpu) {
  if (walk->gpu_node != &gpu->link)
    return;
  walk->gpu_node = gpu->link.next;
  walk->job_node = NULL;
}

#endif
