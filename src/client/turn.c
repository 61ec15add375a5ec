/*
 * turn.c - how a turn ends that others wait for: as soon after its last submission as can be (gate/pace.h),
 * and where an iteration of the program ends (gate/ends.h), if one does about then.
 *
 * The daemon's quantum begins with LOCK_ACTIVE, and so does ours. Everything here needs client.lock.
 */
#include "client/client.h"
#include "client/state.h"
#include "common/clock.h"
#include "common/lock.h"
#include "gate/ends.h"
#include "gate/gate.h"
#include "gate/pace.h"
#include "preempt/preempt.h"
#include "settings.h"

#define PART 20                     /* of the quantum is its end */
#define PACE_MAX_NS NS_PER_S        /* nor is more paced than that, but for what is queued */
#define FIRST_BACKLOG_NS NS_PER_S   /* of a program that nothing is known of */
#define DRAIN_NS (20 * NS_PER_MS)   /* that of a program that was paced in time takes no longer */
#define FREELY_NS (100 * NS_PER_MS) /* in that time a queue is full */
#define EXPECT_NS (100 * NS_PER_MS) /* who has lost a turn to others asks for the next one by then */
#define HOLD_NS (50 * NS_PER_MS)    /* a turn may go on for an iteration's end */
#define NEVER_NS (UINT64_C(1) << 62)
#define UNDISTURBED_NS                                                                                       \
  (200 * NS_PER_MS) /* after the end: nobody takes its place, and another quantum goes by */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Where work is stopped, its turn may end at any moment. */
static bool is_paced(const struct gpu *gpu) {
  return settings()->pace && (preempt_verdict(gpu->device) != PREEMPT_YES || gpu->unstoppable);
}

void turn_take(struct gpu *gpu, uint64_t quantum_ns) {
  gpu->quantum_ns = is_paced(gpu) ? quantum_ns : 0;
  gpu->turn_end_ns = 0;
  gpu->ends = false;
}

static uint64_t believed_backlog_ns(const struct gpu *gpu) {
  return gpu->backlog_ns ? gpu->backlog_ns : FIRST_BACKLOG_NS;
}

/* What is queued when pacing begins has to be worked off, too. */
static uint64_t pace_from_ns(const struct gpu *gpu) {
  uint64_t backlog_ns = believed_backlog_ns(gpu);
  uint64_t pace_ns = most(least(gpu->quantum_ns / PART, PACE_MAX_NS), backlog_ns + backlog_ns / 4);
  return gpu->turn_end_ns - least(pace_ns, gpu->quantum_ns);
}

/* Others wait, and once the turn is known to end, in a quantum, it would be too late to begin. Not where it
 * is not known how long that is. */
static bool is_paced_throughout(const struct gpu *gpu) {
  uint64_t backlog_ns = believed_backlog_ns(gpu);
  bool others_wait = gpu->wanted && gpu->holding && !gpu->releasing && !gpu->drop_pending;
  return others_wait && gpu->quantum_ns && backlog_ns + backlog_ns / 4 >= gpu->quantum_ns;
}

static void start_pacing(struct gpu *gpu, uint64_t now_ns) {
  gpu->paced_since_ns = now_ns;
  pace_begin(gpu->device, now_ns);
  gate_set_pace(gpu->device, GATE_PACED);
}

/* How long it took to work off what had been queued when pacing began. A stream that nothing is submitted to
 * any more may seem to be behind. */
static uint64_t seen_backlog_ns(const struct gpu *gpu, uint64_t drain_ns) {
  bool behind = drain_ns > DRAIN_NS && pace_is_behind(gpu->device);
  return behind ? clock_now_ns() - gpu->paced_since_ns : pace_caught_up_ns(gpu->device);
}

/* Paced soon after its beginning, a program that would queue much has not had the time to do so. */
static bool ran_freely(const struct gpu *gpu) {
  return gpu->paced_since_ns - gpu->turn_begun_ns >= FREELY_NS || !pace_held_back(gpu->device);
}

static void learn_backlog(struct gpu *gpu, uint64_t drain_ns) {
  uint64_t seen_ns = most(seen_backlog_ns(gpu, drain_ns), 1);
  gpu->backlog_ns = ran_freely(gpu) ? seen_ns : most(seen_ns, believed_backlog_ns(gpu));
}

static void stop_pacing(struct gpu *gpu, uint64_t drain_ns) {
  if (gpu->paced_since_ns)
    learn_backlog(gpu, drain_ns);
  gpu->paced_since_ns = 0;
  gate_set_pace(gpu->device, GATE_FREE);
}

void turn_begin(struct gpu *gpu, uint64_t now_ns) {
  gpu->turn_begun_ns = now_ns;
  gpu->turn_end_ns = gpu->quantum_ns ? now_ns + gpu->quantum_ns : 0;
  gpu->paced_since_ns = gpu->drop_by_ns = gpu->expect_by_ns = 0;
  if (gpu->turn_end_ns && gpu->ended && now_ns >= pace_from_ns(gpu)) {
    gpu->expect_by_ns = now_ns + EXPECT_NS;
    start_pacing(gpu, now_ns);
  }
  if (gpu->ends || gpu->expect_by_ns)
    client_wake();
}

void turn_expect_end(struct gpu *gpu, uint64_t left_ns, uint64_t now_ns) {
  gpu->wanted = left_ns != GS_LEFT_NOBODY;
  gpu->ends = is_paced(gpu) && gpu->wanted && left_ns != GS_LEFT_UNKNOWN;
  if (gpu->ends) {
    left_ns = least(left_ns, NEVER_NS);
    gpu->turn_end_ns = now_ns + left_ns;
    gpu->quantum_ns = gpu->quantum_ns ? gpu->quantum_ns : left_ns; /* it was granted before turns began */
  }
  client_wake();
}

/* Somebody waits, and it is known when the turn ends. */
static bool is_ending(const struct gpu *gpu) {
  return gpu->ends && gpu->holding && gpu->turn_end_ns && !gpu->releasing && !gpu->drop_pending;
}

uint64_t turn_check(struct gpu *gpu, uint64_t now_ns) {
  if (!gpu->ends)
    gpu->drop_by_ns = 0; /* the daemon that has ordered it is gone */
  if (!gpu->ends && now_ns < gpu->expect_by_ns)
    return gpu->expect_by_ns;
  if (!gpu->ends && is_paced_throughout(gpu)) {
    if (!gpu->paced_since_ns)
      start_pacing(gpu, now_ns);
    return UINT64_MAX;
  }
  if (!gpu->ends && gate_pace(gpu->device) != GATE_FREE) /* nobody comes, or there is no daemon any more */
    stop_pacing(gpu, 0);
  if (!is_ending(gpu))
    return UINT64_MAX;
  if (gpu->drop_by_ns) {
    if (now_ns >= gpu->drop_by_ns)
      handover_order_drop(gpu);
    return gpu->drop_by_ns;
  }
  ends_watch(gpu->device, true);
  if (now_ns >= gpu->turn_end_ns + UNDISTURBED_NS) {
    stop_pacing(gpu, 0);
    gpu->turn_end_ns = now_ns + gpu->quantum_ns;
  }
  if (!gpu->paced_since_ns && now_ns < pace_from_ns(gpu))
    return pace_from_ns(gpu);
  if (!gpu->paced_since_ns)
    start_pacing(gpu, now_ns);
  return gpu->turn_end_ns + UNDISTURBED_NS;
}

bool turn_holds_back(struct gpu *gpu, uint64_t now_ns) {
  if (!is_ending(gpu) || ends_next_ns(gpu->device, now_ns) > now_ns + HOLD_NS)
    return false;
  gpu->drop_by_ns = now_ns + HOLD_NS;
  return true;
}

/* This iteration is the last one to end before the turn does. */
static bool is_last(const struct gpu *gpu, uint64_t now_ns) {
  return now_ns + gpu->quantum_ns / PART >= gpu->turn_end_ns &&
         ends_next_ns(gpu->device, now_ns) > gpu->turn_end_ns;
}

void client_iteration_ended(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return;
  lock_take(&client.lock);
  if (is_ending(gpu) && !gate_waits(device, GATE_WAIT_ROOM) &&
      (gpu->drop_by_ns || is_last(gpu, clock_now_ns()))) {
    gate_set_pace(device, GATE_HALTED);
    handover_order_drop(gpu);
  }
  lock_release(&client.lock);
}

void turn_end(struct gpu *gpu, uint64_t drain_ns) {
  stop_pacing(gpu, drain_ns);
  gpu->ended = gpu->ends;
  gpu->ends = false;
  gpu->turn_end_ns = gpu->drop_by_ns = 0;
  ends_watch(gpu->device, false);
}
