/*
 * tally.c - what the jobs of each class have had of a GPU. Jobs come and go, and may change their class; what
 * they have had stays in the sums.
 */
#include "core/internal.h"

static struct sched_tally tally_of(const struct sched_job *job, uint64_t now_ns) {
  return (struct sched_tally){.run_ns = sched_job_gpu_ns(job, now_ns),
                              .held_ns = sched_job_held_ns(job, now_ns),
                              .waited_ns = sched_job_waited_ns(job, now_ns),
                              .turns = job->turns};
}

static void add_difference(struct sched_tally *sum, const struct sched_tally *now,
                           const struct sched_tally *past) {
  sum->run_ns = add_u64(sum->run_ns, now->run_ns - past->run_ns);
  sum->held_ns = add_u64(sum->held_ns, now->held_ns - past->held_ns);
  sum->waited_ns = add_u64(sum->waited_ns, now->waited_ns - past->waited_ns);
  sum->turns = add_u64(sum->turns, now->turns - past->turns);
}

/* A class that it has had for no time at all, as one that comes has the default's, was none. */
void tally_change_class(struct sched_job *job, uint64_t now_ns) {
  struct sched_tally now = tally_of(job, now_ns);
  if (now.held_ns > job->past.held_ns || now.waited_ns > job->past.waited_ns)
    tally_close(job, now_ns);
}

void tally_close(struct sched_job *job, uint64_t now_ns) {
  struct sched_tally now = tally_of(job, now_ns);
  add_difference(&job->gpu->past[job->terms.class], &now, &job->past);
  job->past = now;
}

struct sched_tally sched_gpu_tally(const struct sched_gpu *gpu, enum gs_class class, uint64_t now_ns) {
  struct sched_tally sum = gpu->past[class];
  list_each(node, &gpu->jobs) {
    const struct sched_job *job = list_entry(node, struct sched_job, link);
    if (job->terms.class != class)
      continue;
    struct sched_tally now = tally_of(job, now_ns);
    add_difference(&sum, &now, &job->past);
  }
  return sum;
}
