/* handover.c - a GPU's worker: gives the lock back (close, drain, evict) and takes it up (restore, open). */
#include <sys/prctl.h>

#include "client/state.h"

#include "client/client.h"
#include "common/clock.h"
#include "common/log.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "interpose/driver.h"
#include "memory/memory.h"

/* A drain that takes longer may be waiting for work that waits for a thread at the gate (a host function, a
 * stream wait): such threads then pass, one call each time. */
#define PULSE_NS (2 * NS_PER_S)

/* A call that is in flight when a drain has ended is waited for so long; then the drain is done again. */
#define SETTLE_NS (50 * NS_PER_MS)

/* An idle holder keeps the lock for what a hand-over costs, within these bounds. */
#define IDLE_MIN_NS (2 * NS_PER_MS)
#define IDLE_MAX_NS (500 * NS_PER_MS)

struct release {
  uint64_t drain_ns;
  uint64_t evict_ns;
  uint64_t evict_bytes;
};

/* Why DROP_LOCK is not answered yet. Lock held. */
static void tell_state(struct gpu *gpu) {
  struct gs_msg msg = wire_msg(GS_CLIENT_STATE, (uint32_t)gpu->device);
  msg.state.flags = capture_count() ? GS_STATE_CAPTURING : GS_STATE_DRAINING;
  msg.state.submissions = gate_calls();
  if (gpu->attached)
    client_send(&msg);
}

/* Open captures end first: waiting for the context would invalidate them. The daemon's grace is the bound. */
static void end_captures(struct gpu *gpu) {
  capture_forbid();
  if (capture_wait_none(NS_PER_S / 4))
    return;
  pthread_mutex_lock(&client.lock);
  tell_state(gpu);
  pthread_mutex_unlock(&client.lock);
  capture_wait_none(UINT64_MAX);
}

static void set_draining(struct gpu *gpu, uint64_t since_ns) {
  pthread_mutex_lock(&client.lock);
  gpu->release_since_ns = since_ns;
  gpu->pulse_at_ns = since_ns + PULSE_NS;
  pthread_mutex_unlock(&client.lock);
  if (since_ns)
    client_wake();
}

/* What is moved with a context current, and how much it was. */
struct move {
  CUdevice device;
  uint64_t bytes;
  uint64_t moved_bytes;
};

static void evict(void *argument) {
  struct move *move = argument;
  move->moved_bytes = memory_evict(move->device, move->bytes);
}

static void restore(void *argument) {
  struct move *move = argument;
  move->moved_bytes = memory_restore(move->device);
}

/* With the gate shut and all work done: true if nobody has passed by a pulse meanwhile, and nobody can any
 * more. */
static bool settle(struct gpu *gpu, uint64_t pulses) {
  set_draining(gpu, 0); /* no more pulses */
  return gate_revoke_pulse(gpu->device, SETTLE_NS) && gate_pulses(gpu->device) == pulses;
}

/* Returns with the gate shut, no call in flight and no work unfinished. */
static void drain(struct gpu *gpu) {
  uint64_t pulses;
  end_captures(gpu);
  do {
    pulses = gate_pulses(gpu->device);
    set_draining(gpu, clock_now_ns());
    gate_close(gpu->device, UINT64_MAX);
    contexts_synchronize(gpu->device);
  } while (!settle(gpu, pulses));
  capture_allow(); /* they begin behind the gate */
}

static struct release stop_submitting(struct gpu *gpu, uint64_t evict_bytes) {
  struct move out = {.device = gpu->device, .bytes = evict_bytes};
  uint64_t start_ns = clock_now_ns();
  drain(gpu);
  uint64_t drained_ns = clock_now_ns();
  if (evict_bytes > 0)
    contexts_any(gpu->device, evict, &out);
  return (struct release){.drain_ns = drained_ns - start_ns,
                          .evict_ns = clock_now_ns() - drained_ns,
                          .evict_bytes = out.moved_bytes};
}

static void tell_released(struct gpu *gpu, const struct release *done) {
  struct gs_msg msg = wire_msg(GS_LOCK_RELEASED, (uint32_t)gpu->device);
  msg.epoch = gpu->epoch;
  msg.released.drain_ns = done->drain_ns;
  msg.released.evict_ns = done->evict_ns;
  msg.released.evict_bytes = done->evict_bytes;
  client_send(&msg);
}

/* Lock held, on entry and exit. */
static void give_back(struct gpu *gpu) {
  uint64_t generation = client.generation, evict_bytes = gpu->evict_bytes;
  gpu->drop_pending = false;
  gpu->busy = true;
  pthread_mutex_unlock(&client.lock);
  struct release done = stop_submitting(gpu, evict_bytes);
  pthread_mutex_lock(&client.lock);
  gpu->busy = false;
  if (client.generation != generation) { /* the daemon went away meanwhile */
    if (gpu->holding)
      gpu->grant_pending = true;
    return;
  }
  gpu->holding = gpu->drop_pending = gpu->wanted = false;
  gpu->handover_ns = done.drain_ns + done.evict_ns;
  tell_released(gpu, &done);
  client_request_lock(gpu);
}

static void tell_active(struct gpu *gpu, uint64_t epoch, uint64_t restore_ns, uint64_t restore_bytes) {
  struct gs_msg msg = wire_msg(GS_LOCK_ACTIVE, (uint32_t)gpu->device);
  msg.epoch = epoch;
  msg.active.restore_ns = restore_ns;
  msg.active.restore_bytes = restore_bytes;
  client_send(&msg);
}

/* Lock held, on entry and exit. */
static void take_up(struct gpu *gpu) {
  struct move in = {.device = gpu->device};
  uint64_t generation = client.generation, epoch = gpu->epoch, start_ns = clock_now_ns();
  gpu->grant_pending = false;
  gpu->busy = true;
  pthread_mutex_unlock(&client.lock);
  contexts_any(gpu->device, restore, &in);
  gate_open(gpu->device);
  uint64_t spent_ns = clock_now_ns() - start_ns;
  pthread_mutex_lock(&client.lock);
  gpu->busy = false;
  gpu->handover_ns += spent_ns;
  if (in.moved_bytes > 0 && client.generation == generation && gpu->attached)
    tell_active(gpu, epoch, spent_ns, in.moved_bytes);
}

/* True if nothing was submitted since `calls` were counted, and the GPU has finished all that was. */
static bool is_idle(struct gpu *gpu, uint64_t calls) {
  if (!gate_is_used(gpu->device))
    return true; /* a program that has only looked at it */
  if (gate_calls() != calls || gate_in_flight())
    return false;
  capture_forbid();
  bool idle = capture_count() == 0 && streams_idle(gpu->device);
  capture_allow();
  return idle && gate_calls() == calls && !gate_in_flight();
}

/* Somebody waits: give the lock back as soon as nothing has been submitted, and nothing run, for as long as a
 * hand-over costs. Lock held, on entry and exit; returns to look at new orders. */
static void watch_idle(struct gpu *gpu) {
  uint64_t pause_ns = gpu->handover_ns < IDLE_MIN_NS   ? IDLE_MIN_NS
                      : gpu->handover_ns > IDLE_MAX_NS ? IDLE_MAX_NS
                                                       : gpu->handover_ns;
  uint64_t calls = gate_calls(), generation = client.generation, epoch = gpu->epoch;
  if (condition_wait(&gpu->changed, &client.lock, clock_now_ns() + pause_ns))
    return;
  pthread_mutex_unlock(&client.lock);
  bool idle = is_idle(gpu, calls);
  pthread_mutex_lock(&client.lock);
  if (idle && gpu->wanted && gpu->epoch == epoch && client.generation == generation)
    gpu->drop_pending = true;
}

void *handover_run(void *argument) {
  struct gpu *gpu = argument;
  prctl(PR_SET_NAME, "gpushare-gpu");
  /* What this thread asks the driver must not disturb the captures of others. */
  driver.cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){CU_STREAM_CAPTURE_MODE_RELAXED});
  pthread_mutex_lock(&client.lock);
  for (;;) {
    if (gpu->grant_pending)
      take_up(gpu);
    else if (gpu->drop_pending)
      give_back(gpu);
    else if (gpu->wanted && gpu->holding)
      watch_idle(gpu);
    else
      condition_wait(&gpu->changed, &client.lock, UINT64_MAX);
  }
  return NULL;
}

uint64_t handover_check(struct gpu *gpu, uint64_t now_ns) {
  if (!gpu->release_since_ns)
    return UINT64_MAX;
  if (now_ns < gpu->pulse_at_ns)
    return gpu->pulse_at_ns;
  tell_state(gpu);
  if (gate_waiting(gpu->device) > 0)
    gate_pulse(gpu->device);
  gpu->pulse_at_ns = now_ns + PULSE_NS;
  return gpu->pulse_at_ns;
}
