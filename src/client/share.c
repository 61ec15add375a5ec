/*
 * share.c - a job runs in a part of the time only, beside others that run at the same time (SHARE): its work
 * on the GPU stops, and goes on, by turns. The job holds the GPU all the while, and its memory stays.
 *
 * It runs for ON_NS, and for as long as it takes until it really stands still; then it rests for as long as
 * makes that its share. Where its work can't be stopped (MPS), the gate is shut instead, and what has been
 * submitted by then finishes: that time counts as well, so the share is right however much was queued.
 *
 * Everything here needs client.lock, and is done by the GPU's worker (handover.c).
 */
#include "client/client.h"
#include "client/state.h"
#include "common/clock.h"
#include "common/lock.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "preempt/preempt.h"

#define ON_NS (2 * NS_PER_MS)    /* a stop and a go take about as long */
#define LOOK_NS (NS_PER_MS / 2)  /* whether what was submitted has finished */
#define AGAIN_NS NS_PER_MS       /* where a call forbids a stop just now */
#define CALLS_NS (NS_PER_MS / 5) /* for those in flight, when the gate shuts */

enum { RUNS, STOPPED, SHUT, FINISHES }; /* FINISHES: shut, and something goes on */

static bool is_shared(const struct gpu *gpu) {
  return gpu->rest_ppm > 0 && gpu->holding && !gpu->grant_pending && client_connected(gpu);
}

/* How long it rests after a run of ran_ns. */
static uint64_t rest_ns(const struct gpu *gpu) {
  uint64_t run_ppm = GS_SHARE_ALL - gpu->rest_ppm;
  return run_ppm ? gpu->ran_ns * gpu->rest_ppm / run_ppm : UINT64_MAX;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t share_next_ns(const struct gpu *gpu) {
  if (gpu->rest == FINISHES)
    return gpu->share_at_ns;
  if (!is_shared(gpu))
    return gpu->rest == RUNS ? UINT64_MAX : 0;
  if (gpu->rest == RUNS)
    return later(gpu->share_at_ns, gpu->rest_ppm == GS_SHARE_ALL ? 0 : gpu->turned_ns + ON_NS);
  uint64_t pause_ns = rest_ns(gpu);
  return pause_ns == UINT64_MAX ? UINT64_MAX : gpu->turned_ns + pause_ns;
}

void share_take(struct gpu *gpu, uint32_t share_ppm) {
  gpu->rest_ppm = share_ppm < GS_SHARE_ALL ? GS_SHARE_ALL - share_ppm : 0;
  gpu->share_at_ns = 0;
  condition_wake_all(&gpu->changed);
}

static bool has_finished(CUdevice device) {
  capture_forbid();
  bool finished = capture_count() == 0 && streams_ask(device) != STREAMS_BUSY;
  capture_allow();
  return finished;
}

static void turn(struct gpu *gpu, int rest) {
  uint64_t now_ns = clock_now_ns();
  gpu->ran_ns = gpu->rest == RUNS || gpu->rest == FINISHES ? now_ns - gpu->turned_ns : gpu->ran_ns;
  gpu->turned_ns = now_ns;
  gpu->rest = rest;
}

static void stop(struct gpu *gpu) {
  bool can = preempt_verdict(gpu->device) == PREEMPT_YES, stopped = false;
  lock_release(&client.lock);
  if (can && !gate_stop_is_forbidden())
    stopped = preempt_stop(gpu->device) == 0;
  else if (!can)
    gate_close(gpu->device, CALLS_NS);
  lock_take(&client.lock);
  if (stopped)
    turn(gpu, STOPPED);
  else if (!can)
    gpu->rest = FINISHES;
  gpu->share_at_ns = clock_now_ns() + AGAIN_NS;
}

void share_go_on(struct gpu *gpu) {
  int rest = gpu->rest;
  if (rest == RUNS)
    return;
  lock_release(&client.lock);
  if (rest == STOPPED)
    preempt_go(gpu->device); /* an error is logged there, and ends all stopping */
  else
    gate_open(gpu->device);
  lock_take(&client.lock);
  turn(gpu, RUNS);
}

static void look(struct gpu *gpu) {
  lock_release(&client.lock);
  bool finished = has_finished(gpu->device);
  lock_take(&client.lock);
  gpu->share_at_ns = clock_now_ns() + LOOK_NS;
  if (finished)
    turn(gpu, SHUT);
}

bool share_step_due(const struct gpu *gpu, uint64_t now_ns) { return now_ns >= share_next_ns(gpu); }

void share_step(struct gpu *gpu) {
  if (gpu->rest == RUNS)
    stop(gpu);
  else if (gpu->rest == FINISHES && is_shared(gpu))
    look(gpu);
  else
    share_go_on(gpu);
}
