/*
 * overhead.c - the card has less than it says: what the driver has refused though it should be there.
 *
 * Some of it is taken for good, by contexts, or programs that we do not see. Some is not: a dying process
 * frees its memory late, another program ends. Nobody tells which, so what was refused is tried again after a
 * while, and if that is refused, too, after twice as long the next time. Who leaves takes its context along:
 * everything begins anew.
 *
 * That it was refused is the job's word alone, and must not make the card smaller for other users. So where
 * jobs of several users are, only what two users have told of counts for all: of each user the job that has
 * told of most, and of these the second. What a job has told of beyond that it is believed for itself: it
 * counts as needing so much more (extra_bytes). So others make way for that in its turns, as for memory that
 * it has, and have the whole card in theirs. Users without others count in full.
 */
#include "core/internal.h"

#define OVERHEAD_DOUBLINGS 5 /* 10 s at first: some 5 minutes in the end */

static struct sched_job *job_of(struct list *node) { return list_entry(node, struct sched_job, link); }

static bool is_any(const struct sched_gpu *gpu) { return gpu->noted_bytes || gpu->short_bytes; }

static struct sched_share *share_of(const struct sched_job *job) {
  return job->share ? job->share : &job->gpu->common;
}

/* What users have told of, as far as it counts for all. */
static uint64_t agreed_bytes(struct sched_gpu *gpu) {
  uint64_t most_bytes = 0, second_bytes = 0;
  const struct sched_share *only = NULL;
  bool several = false;
  gpu->common.short_bytes = 0;
  list_each(node, &gpu->shares) { list_entry(node, struct sched_share, link)->short_bytes = 0; }
  list_each(node, &gpu->jobs) {
    struct sched_share *share = share_of(job_of(node));
    share->short_bytes = max_u64(share->short_bytes, job_of(node)->short_bytes);
    several |= only && only != share;
    only = share;
  }
  if (!several)
    return gpu->short_bytes;
  most_bytes = gpu->common.short_bytes;
  list_each(node, &gpu->shares) {
    uint64_t bytes = list_entry(node, struct sched_share, link)->short_bytes;
    second_bytes = max_u64(second_bytes, min_u64(bytes, most_bytes));
    most_bytes = max_u64(most_bytes, bytes);
  }
  return second_bytes;
}

static void count(struct sched_gpu *gpu) {
  uint64_t bytes = agreed_bytes(gpu);
  gpu->overhead_bytes = min_u64(add_u64(gpu->noted_bytes, bytes), sched_gpu_capacity_bytes(gpu));
  gpu->extra_bytes = 0;
  list_each(node, &gpu->jobs) {
    struct sched_job *job = job_of(node);
    uint64_t extra_bytes = less_u64(job->short_bytes, bytes);
    gpu->extra_bytes += extra_bytes;
    if (extra_bytes == job->extra_bytes)
      continue;
    job->extra_bytes = extra_bytes;
    holders_count_need(job);
  }
}

static void begin(struct sched_gpu *gpu, uint64_t now_ns) {
  if (!is_any(gpu))
    gpu->overhead_end_ns = add_u64(now_ns, gpu->scheduler->overhead_ns << gpu->overhead_tries);
}

void overhead_add(struct sched_gpu *gpu, uint64_t bytes, uint64_t now_ns) {
  if (bytes == 0)
    return;
  begin(gpu, now_ns);
  gpu->noted_bytes = min_u64(gpu->noted_bytes + bytes, sched_gpu_capacity_bytes(gpu));
  count(gpu);
}

void overhead_add_short(struct sched_job *job, uint64_t bytes, uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  uint64_t short_bytes = min_u64(job->short_bytes + bytes, sched_gpu_capacity_bytes(gpu));
  if (short_bytes == job->short_bytes)
    return;
  begin(gpu, now_ns);
  gpu->short_bytes += short_bytes - job->short_bytes;
  job->short_bytes = short_bytes;
  count(gpu);
}

/* Of all that was refused so much is explained. */
static void take_back(struct sched_gpu *gpu, uint64_t bytes, struct sched_change *change) {
  gpu->noted_bytes = less_u64(gpu->noted_bytes, bytes);
  gpu->short_bytes = 0;
  list_each(node, &gpu->jobs) {
    job_of(node)->short_bytes = less_u64(job_of(node)->short_bytes, bytes);
    gpu->short_bytes += job_of(node)->short_bytes;
  }
  count(gpu);
  turns_tell_all(gpu, SCHED_TELL_CAPACITY, change);
}

/* A daemon that is started anew gets to know the jobs one by one, while the memory of all is on the card. */
void overhead_explain(struct sched_gpu *gpu, uint64_t resident_bytes, struct sched_change *change) {
  if (is_any(gpu) && resident_bytes > 0)
    take_back(gpu, resident_bytes, change);
}

void overhead_on_arrival(struct sched_gpu *gpu, struct sched_change *change) {
  uint64_t before_bytes = gpu->overhead_bytes;
  if (!is_any(gpu))
    return;
  count(gpu);
  if (gpu->overhead_bytes != before_bytes)
    turns_tell_all(gpu, SCHED_TELL_CAPACITY, change);
}

static void forget(struct sched_gpu *gpu, struct sched_change *change) {
  if (is_any(gpu))
    take_back(gpu, UINT64_MAX, change);
}

void overhead_begin_anew(struct sched_gpu *gpu, struct sched_change *change) {
  gpu->overhead_tries = 0;
  forget(gpu, change);
}

uint64_t overhead_deadline_ns(const struct sched_gpu *gpu) {
  return is_any(gpu) ? gpu->overhead_end_ns : SCHED_NEVER;
}

void overhead_expire(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  if (now_ns < overhead_deadline_ns(gpu))
    return;
  gpu->overhead_tries += gpu->overhead_tries < OVERHEAD_DOUBLINGS;
  forget(gpu, change);
}
