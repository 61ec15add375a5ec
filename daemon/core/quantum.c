/*
 * quantum.c - how long a turn is: as set, or, if that is `auto`, as short as it may be without losing more
 * than a given part of the time to hand-overs (drains and paid moves, as measured; before the first one as
 * guessed from what there is to move).
 *
 * What is lost of each turn and its hand-over is cost / (quantum + cost). A hand-over whose moves are hidden
 * behind turns costs next to nothing, until the turns become so short that the bus does not manage.
 */
#include "core/internal.h"

#define AUTO_MIN_NS UINT64_C(50000000)
#define AUTO_MAX_NS UINT64_C(300000000000)

static uint64_t cost_ns(const struct sched_gpu *gpu) {
  if (gpu->handover.cost_ns)
    return gpu->handover.cost_ns;
  return handover_cost_ns(gpu, min_u64(gpu->used_bytes, sched_gpu_capacity_bytes(gpu)));
}

uint64_t sched_gpu_tq_ns(const struct sched_gpu *gpu) {
  if (gpu->settings.tq_ns != SCHED_TQ_AUTO)
    return gpu->settings.tq_ns;
  uint64_t most_cost_ns = min_u64(cost_ns(gpu), AUTO_MAX_NS);
  uint64_t tq_ns = most_cost_ns * (1000 - gpu->settings.loss_permille) / gpu->settings.loss_permille;
  return max_u64(min_u64(tq_ns, AUTO_MAX_NS), AUTO_MIN_NS);
}
