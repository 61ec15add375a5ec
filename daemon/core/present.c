/*
 * present.c - the jobs that have memory on the card, or may get some: the plan (memory_plan.c) looks at no
 * others, so that it costs no more when thousands wait elsewhere.
 *
 * Who must be looked at is entered at once. The plan takes those out again of whom nothing is there, or
 * promised.
 */
#include "core/internal.h"

void present_sort(struct sched_job *job) {
  struct sched_gpu *gpu = job->gpu;
  if (list_empty(&job->present_link))
    return;
  if ((job->state == GS_JOB_IDLE || job->state == GS_JOB_BYPASSED) && list_empty(&job->turn))
    list_append(&gpu->idle, &job->turn);
}

void present_enter(struct sched_job *job) {
  if (!list_empty(&job->present_link))
    return;
  list_append(&job->gpu->present, &job->present_link);
  present_sort(job);
}

void present_enter_all(const struct sched_gpu *gpu) {
  list_each(node, &gpu->jobs) { present_enter(list_entry(node, struct sched_job, link)); }
}

void present_leave(struct sched_job *job) {
  list_remove(&job->present_link);
  if (job->state == GS_JOB_IDLE || job->state == GS_JOB_BYPASSED)
    list_remove(&job->turn);
}
