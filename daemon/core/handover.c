/*
 * handover.c - what hand-overs cost: how long the GPU stood idle for them, what moved meanwhile, and what
 * moved for nothing, behind somebody's turn.
 */
#include <math.h>

#include "core/internal.h"

/* Restores of less say nothing about how fast memory moves. */
#define MEASURED_BYTES (UINT64_C(64) << 20)
#define MEASUREMENTS 8 /* the last one weighs as much as one of so many */
#define SLOWER_MOST 4  /* than what is expected */
#define BYTES_PER_S_MIN UINT64_C(1000000)
#define BYTES_PER_S_MAX 1e15

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

/* The time that a byte takes is averaged, not how many come in a second: of two reports that are read late,
 * and so at once, one seems to have taken no time, and the other all the more. One that takes far too long
 * has waited for something else. */
void handover_measure(struct sched_gpu *gpu, uint64_t restore_ns, uint64_t restore_bytes) {
  struct sched_handover *handover = &gpu->handover;
  if (restore_bytes < MEASURED_BYTES)
    return;
  double expected_ns = (double)restore_bytes / (double)handover->bytes_per_s * 1e9;
  double took_ns = fmin((double)restore_ns, SLOWER_MOST * expected_ns);
  double bytes_per_ns = MEASUREMENTS * (double)restore_bytes / ((MEASUREMENTS - 1) * expected_ns + took_ns);
  if (bytes_per_ns * 1e9 < BYTES_PER_S_MAX)
    handover->bytes_per_s = max_u64((uint64_t)(bytes_per_ns * 1e9), BYTES_PER_S_MIN);
}

void handover_end(struct sched_gpu *gpu, const struct sched_active *active, uint64_t now_ns) {
  struct sched_handover *handover = &gpu->handover;
  handover_measure(gpu, active->restore_ns, active->restore_bytes);
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
