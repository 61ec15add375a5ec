/*
 * handover.c - what hand-overs cost: how long the GPU stood idle for them, what moved meanwhile, and what
 * moved for nothing, behind somebody's turn.
 */
#include "core/internal.h"

/* Restores of less say nothing about how fast memory moves. */
#define MEASURED_BYTES (UINT64_C(64) << 20)
#define MEASUREMENTS 8
#define BYTES_PER_S_MIN UINT64_C(1000000)

const uint64_t sched_cost_bounds_ns[SCHED_COST_BOUNDS] = {
    1000000,   2500000,   5000000,    10000000,   25000000,   50000000,    100000000,
    250000000, 500000000, 1000000000, 2500000000, 5000000000, 10000000000, 30000000000};

static void count_cost(struct sched_handover *handover, uint64_t cost_ns) {
  size_t i = 0;
  while (i < SCHED_COST_BOUNDS && cost_ns > sched_cost_bounds_ns[i])
    i++;
  handover->costs[i]++;
}

void handover_begin(struct sched_gpu *gpu, uint64_t now_ns) {
  struct sched_handover *handover = &gpu->handover;
  if (!handover->open)
    handover->now = (struct sched_cost){0};
  handover->open = true;
  handover->since_ns = now_ns;
}

void handover_drained(struct sched_gpu *gpu, uint64_t drain_ns, uint64_t now_ns) {
  handover_begin(gpu, now_ns);
  gpu->handover.now.drain_ns = add_u64(gpu->handover.now.drain_ns, drain_ns);
}

void handover_moved(struct sched_gpu *gpu, uint64_t evicted_bytes, uint64_t restored_bytes) {
  struct sched_handover *handover = &gpu->handover;
  gpu->moved_bytes = add_u64(gpu->moved_bytes, evicted_bytes + restored_bytes);
  gpu->evicted_bytes = add_u64(gpu->evicted_bytes, evicted_bytes);
  gpu->restored_bytes = add_u64(gpu->restored_bytes, restored_bytes);
  if (handover->open) {
    handover->now.evicted_bytes = add_u64(handover->now.evicted_bytes, evicted_bytes);
    handover->now.restored_bytes = add_u64(handover->now.restored_bytes, restored_bytes);
  } else {
    handover->hidden_bytes = add_u64(handover->hidden_bytes, evicted_bytes + restored_bytes);
  }
}

static uint64_t weigh_less(uint64_t amount) { return amount - amount / MEASUREMENTS; }

/* Bytes and time are averaged, not their ratios: of two reports that come late, and so at once, one seems to
 * have taken no time, and the one before it all the more. */
void handover_measure(struct sched_gpu *gpu, uint64_t restore_ns, uint64_t restore_bytes) {
  struct sched_handover *handover = &gpu->handover;
  if (restore_bytes < MEASURED_BYTES)
    return;
  if (handover->measured_bytes == 0) {
    handover->measured_bytes = MEASUREMENTS * restore_bytes;
    handover->measured_ns = handover_cost_ns(gpu, handover->measured_bytes);
  }
  handover->measured_bytes = weigh_less(handover->measured_bytes) + restore_bytes;
  handover->measured_ns = add_u64(weigh_less(handover->measured_ns), restore_ns);
  uint64_t bytes_per_s = handover->measured_bytes * 100000 / max_u64(handover->measured_ns / 10000, 1);
  handover->bytes_per_s = max_u64(bytes_per_s, BYTES_PER_S_MIN);
}

void handover_end(struct sched_gpu *gpu, const struct sched_active *active, uint64_t now_ns) {
  struct sched_handover *handover = &gpu->handover;
  handover_measure(gpu, active->restore_ns, min_u64(active->restore_bytes, SCHED_BYTES_MAX));
  if (!handover->open)
    return;
  struct sched_cost *last = &handover->last, *sum = &handover->sum;
  *last = handover->now;
  last->move_ns = now_ns - handover->since_ns;
  sum->drain_ns = add_u64(sum->drain_ns, last->drain_ns);
  sum->move_ns = add_u64(sum->move_ns, last->move_ns);
  sum->evicted_bytes = add_u64(sum->evicted_bytes, last->evicted_bytes);
  sum->restored_bytes = add_u64(sum->restored_bytes, last->restored_bytes);
  uint64_t cost_ns = max_u64(add_u64(last->drain_ns, last->move_ns), 1);
  count_cost(handover, cost_ns);
  handover->cost_ns = handover->cost_ns ? handover->cost_ns - handover->cost_ns / 4 + cost_ns / 4 : cost_ns;
  handover->open = false;
}

uint64_t handover_cost_ns(const struct sched_gpu *gpu, uint64_t bytes) {
  return min_u64(bytes, SCHED_BYTES_MAX) * 1000 / (gpu->handover.bytes_per_s / 1000) * 1000;
}
