/*
 * overhead.c - the card has less than it says: what the driver has refused though it should be there.
 *
 * Some of it is taken for good, by contexts, or programs that we do not see. Some is not: a dying process
 * frees its memory late, another program ends. Nobody tells which, so what was refused is tried again after a
 * while, and if that is refused, too, after twice as long the next time. Who leaves takes its context along:
 * everything begins anew.
 */
#include "core/internal.h"

#define OVERHEAD_DOUBLINGS 5 /* 10 s at first: some 5 minutes in the end */

void overhead_add(struct sched_gpu *gpu, uint64_t bytes, uint64_t now_ns) {
  if (bytes == 0)
    return;
  if (gpu->overhead_bytes == 0)
    gpu->overhead_end_ns = add_u64(now_ns, gpu->scheduler->overhead_ns << gpu->overhead_tries);
  gpu->overhead_bytes = min_u64(gpu->overhead_bytes + bytes, sched_gpu_capacity_bytes(gpu));
}

/* A daemon that is started anew gets to know the jobs one by one, while the memory of all is on the card. */
void overhead_explain(struct sched_gpu *gpu, uint64_t resident_bytes, struct sched_change *change) {
  if (gpu->overhead_bytes == 0 || resident_bytes == 0)
    return;
  gpu->overhead_bytes = less_u64(gpu->overhead_bytes, resident_bytes);
  turns_tell_all(gpu, SCHED_TELL_CAPACITY, change);
}

static void forget(struct sched_gpu *gpu, struct sched_change *change) {
  if (gpu->overhead_bytes == 0)
    return;
  gpu->overhead_bytes = 0;
  turns_tell_all(gpu, SCHED_TELL_CAPACITY, change);
}

void overhead_begin_anew(struct sched_gpu *gpu, struct sched_change *change) {
  gpu->overhead_tries = 0;
  forget(gpu, change);
}

uint64_t overhead_deadline_ns(const struct sched_gpu *gpu) {
  return gpu->overhead_bytes ? gpu->overhead_end_ns : SCHED_NEVER;
}

void overhead_expire(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  if (now_ns < overhead_deadline_ns(gpu))
    return;
  gpu->overhead_tries += gpu->overhead_tries < OVERHEAD_DOUBLINGS;
  forget(gpu, change);
}
