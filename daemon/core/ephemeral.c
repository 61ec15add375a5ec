/*
 * ephemeral.c - memory that a program frees and allocates again, with each of its iterations say: Salus calls
 * it ephemeral, and what is there all the time persistent.
 *
 * A job whose memory falls and rises again counts with the most that it has had, not with what it has at the
 * moment: or it would seem to fit beside others whenever it is low, and somebody would have to make way each
 * time that it rises. It does so once it has come back to where it fell from, and until it has not been there
 * for SCHED_EPHEMERAL_NS, or twice that. What is freed for good is free at once. A job that says how much it
 * will have counts with that from its first memory on. Neither counts beyond its limit: it can't get that.
 */
#include "core/internal.h"

#define NEAR(bytes) ((bytes) - (bytes) / 8) /* it was about there */

static struct sched_job *job_of_link(struct list *node) {
  return list_entry(node, struct sched_job, ephemeral.link);
}

uint64_t ephemeral_bytes(const struct sched_job *job) {
  uint64_t learnt_bytes = job->ephemeral.recurs ? job->ephemeral.high_bytes : 0;
  uint64_t told_bytes = job->used_bytes ? min_u64(job->terms.expected_bytes, SCHED_BYTES_MAX) : 0;
  uint64_t limit_bytes = job->terms.limit_bytes ? job->terms.limit_bytes : SCHED_BYTES_MAX;
  return less_u64(min_u64(max_u64(learnt_bytes, told_bytes), limit_bytes), job->used_bytes);
}

uint64_t sched_job_expected_bytes(const struct sched_job *job) {
  return sched_job_enters(job) ? books_wish_bytes(job, job->entry.total_bytes)
                               : job->used_bytes + ephemeral_bytes(job);
}

void ephemeral_count(struct sched_job *job) {
  job->gpu->ephemeral_bytes -= job->ephemeral.counted_bytes;
  job->ephemeral.counted_bytes = ephemeral_bytes(job);
  job->gpu->ephemeral_bytes += job->ephemeral.counted_bytes;
  holders_count_need(job);
}

static void watch(struct sched_job *job, uint64_t high_bytes, uint64_t now_ns) {
  struct sched_ephemeral *it = &job->ephemeral;
  it->high_bytes = high_bytes;
  it->low_bytes = it->since_bytes = job->used_bytes;
  it->until_ns = add_u64(now_ns, SCHED_EPHEMERAL_NS);
  list_remove(&it->link);
  list_append(&job->gpu->ephemeral, &it->link);
}

void ephemeral_forget(struct sched_job *job) {
  list_remove(&job->ephemeral.link);
  job->ephemeral.high_bytes = 0;
  job->ephemeral.recurs = false;
  ephemeral_count(job);
}

static void note_fall(struct sched_job *job, uint64_t before_bytes, uint64_t now_ns) {
  struct sched_ephemeral *it = &job->ephemeral;
  if (before_bytes > it->high_bytes)
    watch(job, before_bytes, now_ns);
  it->low_bytes = min_u64(it->low_bytes, job->used_bytes);
}

static void note_rise(struct sched_job *job) {
  struct sched_ephemeral *it = &job->ephemeral;
  it->since_bytes = max_u64(it->since_bytes, job->used_bytes);
  it->recurs |= it->low_bytes < NEAR(it->high_bytes) && job->used_bytes >= NEAR(it->high_bytes);
}

void ephemeral_note(struct sched_job *job, uint64_t before_bytes, uint64_t now_ns) {
  if (job->used_bytes < before_bytes)
    note_fall(job, before_bytes, now_ns);
  else if (job->ephemeral.high_bytes)
    note_rise(job);
  ephemeral_count(job);
}

/* The most that it has had since is what counts from now on. */
static void lapse(struct sched_job *job, uint64_t now_ns) {
  if (job->ephemeral.since_bytes > job->used_bytes)
    watch(job, job->ephemeral.since_bytes, now_ns);
  else
    ephemeral_forget(job);
  ephemeral_count(job);
}

uint64_t ephemeral_deadline_ns(const struct sched_gpu *gpu) {
  struct list *first = list_first(&gpu->ephemeral);
  return first ? job_of_link(first)->ephemeral.until_ns : SCHED_NEVER;
}

void ephemeral_expire(struct sched_gpu *gpu, uint64_t now_ns) {
  while (now_ns >= ephemeral_deadline_ns(gpu))
    lapse(job_of_link(list_first(&gpu->ephemeral)), now_ns);
}
