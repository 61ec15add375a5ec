/*
 * admission.c - who begins.
 *
 * A job that has said how much memory it will have, and has none yet, waits for its first memory until card
 * and host have all of that left, beside what the others have and will have. Who waits has nothing that
 * others could wait for; so only jobs without a gang do, whose process has no memory on other GPUs. Who has
 * begun, and who has said nothing, never waits here: it is given what there is, or refused.
 *
 * Those who wait begin in the order in which they came, opportunistic jobs after all others: so none of them
 * is passed for ever by smaller ones. Who could not begin if it were alone, since it asks for too much or its
 * limit has been lowered, is refused.
 */
#include "core/internal.h"

static struct list *entrants_of(const struct sched_job *job) {
  return &job->gpu->entrants[job->terms.class == GS_CLASS_OPPORTUNISTIC];
}

static struct sched_job *first_entrant(const struct sched_gpu *gpu) {
  struct list *first = list_first(&gpu->entrants[false]);
  if (!first)
    first = list_first(&gpu->entrants[true]);
  return first ? list_entry(first, struct sched_job, entry.link) : NULL;
}

void admission_forget(struct sched_job *job) {
  if (!sched_job_enters(job))
    return;
  list_remove(&job->entry.link);
  job->gpu->scheduler->entrant_count--;
  holders_count_need(job);
}

bool sched_job_enters(const struct sched_job *job) { return !list_empty(&job->entry.link); }

static bool has_others_before(const struct sched_job *job) {
  const struct sched_gpu *gpu = job->gpu;
  return !list_empty(&gpu->entrants[false]) || !list_empty(entrants_of(job));
}

bool admission_await(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes) {
  admission_forget(job);
  if (job->used_bytes || job->gang || !total_bytes || !job->terms.expected_bytes ||
      !books_could_admit(job, total_bytes, pinned_bytes))
    return false;
  if (!has_others_before(job) && books_has_room(job, total_bytes, pinned_bytes))
    return false;
  job->entry.total_bytes = total_bytes;
  job->entry.pinned_bytes = pinned_bytes;
  list_append(entrants_of(job), &job->entry.link);
  job->gpu->scheduler->entrant_count++;
  holders_count_need(job);
  return true;
}

void admission_count_needs(const struct sched_gpu *gpu) {
  for (int late = 0; late < 2; late++)
    list_each(node, &gpu->entrants[late]) {
      holders_count_need(list_entry(node, struct sched_job, entry.link));
    }
}

static void answer(struct sched_job *job, uint64_t granted_bytes, struct sched_change *change) {
  admission_forget(job);
  job->entry.granted_bytes = granted_bytes;
  change_add(change, job, SCHED_TELL_MEMORY);
}

/* False: it goes on waiting. */
static bool judge(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  uint64_t total_bytes = job->entry.total_bytes, pinned_bytes = job->entry.pinned_bytes, granted_bytes = 0;
  if (!books_could_admit(job, total_bytes, pinned_bytes)) {
    answer(job, 0, change);
    return true;
  }
  if (!books_has_room(job, total_bytes, pinned_bytes) ||
      books_admit(job, total_bytes, pinned_bytes, &granted_bytes) < 0)
    return false;
  answer(job, granted_bytes, change);
  books_set_used(job, total_bytes, pinned_bytes, granted_bytes, now_ns);
  residency_update_job(job, now_ns, change);
  job->gpu->dirty = job->gpu->scheduler->dirty = true;
  return true;
}

void admission_look(struct scheduler *scheduler, uint64_t now_ns, struct sched_change *change) {
  if (scheduler->entrant_count == 0)
    return;
  list_each(node, &scheduler->gpus) {
    struct sched_gpu *gpu = list_entry(node, struct sched_gpu, link);
    struct sched_job *job = first_entrant(gpu);
    while (job && judge(job, now_ns, change))
      job = first_entrant(gpu);
  }
}
