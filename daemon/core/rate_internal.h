/* rate_internal.h - what the parts of the controller share. */
#ifndef GS_RATE_INTERNAL_H
#define GS_RATE_INTERNAL_H

#include "core/rate.h"

#define RATE_WHOLE_GPU 1e9 /* GPU ns per s */
#define RATE_HUNGRY_TICKS 4

#define rate_each_job(job, head)                                                                             \
  for (struct rate_job *job = list_entry((head)->next, struct rate_job, link); &job->link != (head);         \
       job = list_entry(job->link.next, struct rate_job, link))

static inline void rate_enter(struct rate_gpu *gpu, enum rate_state state, enum rate_reason reason) {
  gpu->state = state;
  gpu->reason = reason;
  gpu->ticks = gpu->sure = 0;
}

/* ---- rate_growth.c ---- */

/* What the job's counters have grown by in the tick. */
void growth_take(struct rate_job *job, uint64_t elapsed_ns);

/* ---- rate_limit.c ---- */

/* What production does undisturbed is known: slow start, from a part of the last limit. */
void limit_start(struct rate_gpu *gpu, double part);

/* It has not changed: on with a part of the last limit. */
void limit_resume(struct rate_gpu *gpu, double part);

/* After a tick in which production worked and the limit was in force. */
void limit_step(struct rate_gpu *gpu);

/* ---- rate_share.c ---- */

/* What an opportunistic job uses and wants, by its growth. */
void share_take(struct rate_job *job);

/* A job wants more than it has. */
bool share_is_wanted(const struct rate_gpu *gpu);

/* The GPU's limit becomes limits of jobs; or all have none, or 0. */
void share_split(struct rate_gpu *gpu);
void share_equal(struct rate_gpu *gpu, uint64_t limit);

#endif
