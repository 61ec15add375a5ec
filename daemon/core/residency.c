/*
 * residency.c - how many bytes there are, may be, and must leave the card.
 *
 * All jobs of a GPU may use its capacity; what goes beyond lives in host memory, of which all GPUs together
 * may use host_memory_bytes. Sums are kept up to date, never recomputed.
 */
#include "core/internal.h"

#include <errno.h>

uint64_t sched_gpu_capacity_bytes(const struct sched_gpu *gpu) {
  uint64_t set_bytes = gpu->settings.capacity_bytes;
  if (set_bytes == 0)
    return gpu->total_bytes;
  return gpu->total_bytes ? min_u64(set_bytes, gpu->total_bytes) : set_bytes;
}

static uint64_t overflow_bytes(const struct sched_gpu *gpu) {
  return less_u64(gpu->used_bytes, sched_gpu_capacity_bytes(gpu));
}

bool residency_fits(const struct sched_gpu *gpu) { return overflow_bytes(gpu) == 0; }

uint64_t residency_lacking_bytes(const struct sched_gpu *gpu, const struct sched_job *next) {
  uint64_t stays_bytes = gpu->resident_bytes - next->resident_bytes;
  return less_u64(stays_bytes + next->used_bytes, sched_gpu_capacity_bytes(gpu));
}

uint64_t residency_plan(const struct sched_gpu *gpu, const struct sched_job *holder,
                        const struct sched_job *next) {
  uint64_t movable_bytes = less_u64(holder->resident_bytes, holder->pinned_bytes);
  return min_u64(residency_lacking_bytes(gpu, next), movable_bytes);
}

void residency_set_resident(struct sched_job *job, uint64_t resident_bytes) {
  job->gpu->resident_bytes = job->gpu->resident_bytes - job->resident_bytes + resident_bytes;
  job->resident_bytes = resident_bytes;
}

void residency_set_used(struct scheduler *scheduler, struct sched_job *job, uint64_t used_bytes,
                        uint64_t pinned_bytes) {
  struct sched_gpu *gpu = job->gpu;
  used_bytes = min_u64(used_bytes, SCHED_BYTES_MAX);
  pinned_bytes = min_u64(pinned_bytes, used_bytes);
  scheduler->overflow_bytes -= overflow_bytes(gpu);
  gpu->used_bytes = gpu->used_bytes - job->used_bytes + used_bytes;
  gpu->pinned_bytes = gpu->pinned_bytes - job->pinned_bytes + pinned_bytes;
  scheduler->overflow_bytes += overflow_bytes(gpu);
  job->used_bytes = used_bytes;
  job->pinned_bytes = pinned_bytes;
  residency_set_resident(job, min_u64(job->resident_bytes, used_bytes));
}

void residency_set_capacity(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t capacity_bytes) {
  scheduler->overflow_bytes -= overflow_bytes(gpu);
  gpu->settings.capacity_bytes = capacity_bytes;
  scheduler->overflow_bytes += overflow_bytes(gpu);
}

/* How much the jobs of this GPU may use together: its card, and the host memory that other GPUs leave. */
static uint64_t bound_bytes(const struct scheduler *scheduler, const struct sched_gpu *gpu) {
  uint64_t others_bytes = scheduler->overflow_bytes - overflow_bytes(gpu);
  return add_u64(sched_gpu_capacity_bytes(gpu), less_u64(scheduler->host_memory_bytes, others_bytes));
}

int residency_admit(const struct scheduler *scheduler, const struct sched_job *job, uint64_t total_bytes,
                    uint64_t pinned_bytes, uint64_t *granted_bytes) {
  const struct sched_gpu *gpu = job->gpu;
  uint64_t others_bytes = gpu->used_bytes - job->used_bytes;
  uint64_t reach_bytes = min_u64(less_u64(bound_bytes(scheduler, gpu), others_bytes), SCHED_BYTES_MAX);
  uint64_t pinned_reach_bytes =
      less_u64(sched_gpu_capacity_bytes(gpu), gpu->pinned_bytes - job->pinned_bytes);
  if (total_bytes > job->used_bytes && total_bytes > reach_bytes)
    return -ENOMEM;
  if (pinned_bytes > job->pinned_bytes && pinned_bytes > pinned_reach_bytes)
    return -ENOMEM;
  uint64_t rounded_bytes = (total_bytes + SCHED_SLACK_BYTES - 1) / SCHED_SLACK_BYTES * SCHED_SLACK_BYTES;
  *granted_bytes = rounded_bytes <= reach_bytes ? rounded_bytes
                   : total_bytes > reach_bytes  ? total_bytes
                                                : reach_bytes;
  return 0;
}
