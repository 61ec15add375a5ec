/*
 * silence.c - what it costs a user that a job of his has kept the GPU from others without an answer.
 *
 * A job that holds, and neither runs nor stops when it is told to, keeps the GPU for some graces, whatever
 * the policy; then others go on, or the caller evicts it. Its user may have any number of such jobs, and may
 * bring them again. So afterwards his jobs wait: while jobs of other users want the GPU, for SILENCE_PRICE
 * times as long as they have had to wait. That leaves others their part of the time, whoever is silent how
 * often; and it costs nobody anything but that user. Once the others have rested for the length of the grace,
 * his jobs may go on.
 */
#include "core/internal.h"

#define SILENCE_PRICE 2

static struct sched_share *share_of(struct list *node) {
  return list_entry(node, struct sched_share, shunned_link);
}

bool sched_share_is_shunned(const struct sched_share *share) { return !list_empty(&share->shunned_link); }

bool silence_bars(const struct sched_job *job) {
  return job->share && sched_share_is_shunned(job->share) && job->gpu->job_count > job->share->job_count;
}

/* The job has not answered yet, so it is in its state since it was told to stop. What it had until then it
 * had by right: it ran, or nobody had told it to stop. */
static uint64_t begun_ns(const struct sched_job *job) {
  return job->ran_ns ? job->since_ns : min_u64(job->granted_ns, job->since_ns);
}

void silence_end(struct sched_job *job, uint64_t now_ns) {
  struct sched_share *share = job->share;
  struct sched_gpu *gpu = job->gpu;
  if (!share)
    return;
  uint64_t kept_ns = min_u64(now_ns - begun_ns(job), SCHED_NEVER / 4 / SILENCE_PRICE);
  share->shunned_until_ns = add_u64(max_u64(share->shunned_until_ns, now_ns), SILENCE_PRICE * kept_ns);
  share->shunned_look_ns = min_u64(share->shunned_until_ns, add_u64(now_ns, gpu->scheduler->grace_ns));
  list_remove(&share->shunned_link);
  list_append(&gpu->shunned, &share->shunned_link);
}

uint64_t silence_deadline_ns(const struct sched_gpu *gpu) {
  uint64_t deadline_ns = SCHED_NEVER;
  list_each(node, &gpu->shunned) { deadline_ns = min_u64(deadline_ns, share_of(node)->shunned_look_ns); }
  return deadline_ns;
}

/* When others' jobs will have rested for the grace; later, if one does not rest. */
static uint64_t rested_ns(const struct sched_share *share, uint64_t now_ns) {
  const struct sched_gpu *gpu = share->gpu;
  uint64_t since_ns = 0;
  list_each(node, &gpu->jobs) {
    const struct sched_job *job = list_entry(node, struct sched_job, link);
    bool rests = job->state == GS_JOB_IDLE || job->state == GS_JOB_BYPASSED;
    if (job->share != share)
      since_ns = max_u64(since_ns, rests ? job->since_ns : now_ns);
  }
  return add_u64(since_ns, gpu->scheduler->grace_ns);
}

void silence_expire(struct sched_gpu *gpu, uint64_t now_ns) {
  for (struct list *node = gpu->shunned.next, *next; node != &gpu->shunned; node = next) {
    struct sched_share *share = share_of(node);
    next = node->next;
    if (now_ns < share->shunned_look_ns)
      continue;
    share->shunned_look_ns = min_u64(rested_ns(share, now_ns), share->shunned_until_ns);
    if (now_ns >= share->shunned_look_ns)
      list_remove(node);
  }
}
