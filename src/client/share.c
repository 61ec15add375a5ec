/*
 * share.c - a job runs in a part of the time only, beside others that run at the same time (SHARE): its work
 * on the GPU stops, and goes on, by turns. The job holds the GPU all the while, and its memory stays.
 *
 * Of each PERIOD_NS it runs for its share, or for ON_NS if that is longer, and for as long as it takes until
 * it really stands still; then it rests for as long as makes that its share. Why not shorter: a stop and a go
 * take 60 us from whoever else runs there (H100). Where its work can't be stopped (MPS), the gate is shut
 * instead, and what has been submitted by then finishes: that time counts as well, so the share is right
 * however much was queued.
 *
 * Everything here needs client.lock, and is done by the GPU's worker (worker.c).
 */
#include "client/client.h"
#include "client/client_state.h"
#include "common/clock.h"
#include "common/futex.h"
#include "common/lock.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "preempt/preempt.h"

#define PERIOD_NS (20 * NS_PER_MS)
#define ON_NS (2 * NS_PER_MS)    /* a stop and a go take about as long */
#define LOOK_NS (NS_PER_MS / 2)  /* whether what was submitted has finished */
#define AGAIN_NS NS_PER_MS       /* where a call forbids a stop just now */
#define CALLS_NS (NS_PER_MS / 5) /* for those in flight, when the gate shuts */

#define RAN_MOST_NS NS_PER_S          /* it never rests for a longer run than that */
#define FINISH_MOST_NS (2 * NS_PER_S) /* what takes longer may wait for a thread behind the gate */

enum { RUNS, STOPPED, SHUT, FINISHES }; /* FINISHES: shut, and something goes on */

static bool is_shared(const struct gpu *gpu) {
  return gpu->rest_ppm > 0 && machine_runs(&gpu->machine) && client_connected(gpu);
}

/* How long it rests after a run of ran_ns. */
static uint64_t rest_ns(const struct gpu *gpu) {
  uint64_t run_ppm = GS_SHARE_ALL - gpu->rest_ppm;
  return run_ppm ? gpu->ran_ns * gpu->rest_ppm / run_ppm : UINT64_MAX;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* How long it runs, if it shall run at all. */
static uint64_t on_ns(const struct gpu *gpu) {
  uint64_t run_ppm = GS_SHARE_ALL - gpu->rest_ppm;
  return run_ppm ? later(ON_NS, PERIOD_NS / GS_SHARE_ALL * run_ppm) : 0;
}

uint64_t share_next_ns(const struct gpu *gpu) {
  if (gpu->rest == FINISHES)
    return gpu->share_at_ns;
  if (!is_shared(gpu))
    return gpu->rest == RUNS ? UINT64_MAX : 0;
  if (gpu->rest == RUNS)
    return later(gpu->share_at_ns, gpu->turned_ns + on_ns(gpu));
  if (gpu->rest == STOPPED && gate_stop_is_forbidden())
    return 0; /* a call waits for this */
  uint64_t pause_ns = rest_ns(gpu);
  return pause_ns == UINT64_MAX ? UINT64_MAX : gpu->turned_ns + pause_ns;
}

/* How long it has run as it liked is no debt. */
void share_take(struct gpu *gpu, uint32_t share_ppm) {
  if (gpu->rest == RUNS && !gpu->rest_ppm)
    gpu->turned_ns = clock_now_ns();
  gpu->rest_ppm = share_ppm < GS_SHARE_ALL ? GS_SHARE_ALL - share_ppm : 0;
  gpu->share_at_ns = 0;
  condition_wake_all(&gpu->changed);
}

static void turn(struct gpu *gpu, int rest) {
  uint64_t now_ns = clock_now_ns();
  if (gpu->rest == RUNS || gpu->rest == FINISHES)
    gpu->ran_ns = now_ns - gpu->turned_ns < RAN_MOST_NS ? now_ns - gpu->turned_ns : RAN_MOST_NS;
  gpu->turned_ns = now_ns;
  gpu->rest = rest;
}

/* For those that ask client_await_go. A futex each. */
static _Atomic uint32_t rests[GS_GPUS_PER_CLIENT];

bool share_stands_still(const struct gpu *gpu) { return gpu->rest || atomic_load(&rests[gpu->device]); }

void client_await_go(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu || !atomic_load(&rests[device]))
    return;
  lock_take(&client.lock); /* the worker sees that a stop is forbidden */
  condition_wake_all(&gpu->changed);
  lock_release(&client.lock);
  while (atomic_load(&rests[device]))
    futex_wait(&rests[device], true, UINT64_MAX);
}

static void set_rests(CUdevice device, bool value) {
  atomic_store(&rests[device], value);
  if (!value)
    futex_wake(&rests[device], INT32_MAX);
}

void share_fork_child(void) {
  for (CUdevice device = 0; device < GS_GPUS_PER_CLIENT; device++)
    atomic_store(&rests[device], false);
}

/* Lock not held. */
static bool stop_work(CUdevice device) {
  set_rests(device, true);
  bool stopped = !gate_stop_is_forbidden() && preempt_stop(device) == 0;
  set_rests(device, stopped);
  return stopped;
}

/* A gate does not shut while anything captures: what is recorded may need calls that are not. */
static void stop(struct gpu *gpu) {
  bool can = preempt_verdict(gpu->device) == PREEMPT_YES, stopped = false, shut = false;
  lock_release(&client.lock);
  if (can)
    stopped = stop_work(gpu->device);
  else if ((shut = capture_count() == 0))
    gate_close(gpu->device, CALLS_NS);
  lock_take(&client.lock);
  if (stopped)
    turn(gpu, STOPPED);
  else if (shut)
    gpu->rest = FINISHES;
  gpu->shut_ns = clock_now_ns();
  gpu->share_at_ns = gpu->shut_ns + AGAIN_NS;
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
  set_rests(gpu->device, false);
  lock_take(&client.lock);
  turn(gpu, RUNS);
}

static void look(struct gpu *gpu) {
  uint64_t shut_ns = clock_now_ns() - gpu->shut_ns;
  lock_release(&client.lock);
  bool finished = streams_have_finished(gpu->device, shut_ns);
  lock_take(&client.lock);
  gpu->share_at_ns = clock_now_ns() + LOOK_NS;
  if (finished) {
    turn(gpu, SHUT);
  } else if (shut_ns >= FINISH_MOST_NS) {
    share_go_on(gpu);
    gpu->share_at_ns = clock_now_ns() + ON_NS;
  }
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
