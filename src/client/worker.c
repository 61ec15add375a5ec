/*
 * worker.c - a GPU's worker: gives the lock back (shut the gate, stop or drain), moves memory (room.c), and
 * takes the lock up (once everything is there: go, open the gate). New orders come between any two of these.
 *
 * Work that does not end at once is stopped in its middle (preempt.h). Calls that are in flight then may wait
 * in the driver until it goes on, or fail for memory that has left: such a call is made again
 * (gate_enter_again). Where work can't be stopped the worker drains: it waits until all that was submitted
 * has finished.
 */
#include <time.h>

#include "client/client_state.h"

#include "client/client.h"
#include "common/clock.h"
#include "common/condition.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/thread.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "memory/memory.h"
#include "preempt/preempt.h"
#include "settings.h"

/* A drain that takes longer may be waiting for work that waits for a thread at the gate (a host function, a
 * stream wait): such threads then pass, one call each time. */
#define PULSE_NS (2 * NS_PER_S)

/* Between two calls of a process that holds for what another member of its gang drains. */
#define STEP_NS (5 * NS_PER_MS)

/* A call that is in flight when a drain has ended is waited for so long; then the drain is done again. */
#define SETTLE_NS (50 * NS_PER_MS)

/* Between two looks whether the work has finished: short for short work, and little beside long work. */
#define LOOK_FIRST_NS (20 * NS_PER_MS / 1000)
#define LOOK_LAST_NS NS_PER_MS

/* Work that ends so soon is not stopped: a stop and a go take as long. Where it has not the last times, that
 * is waited for by half each time. And a call that is over so soon is not interrupted by a stop. */
#define AT_ONCE_NS (NS_PER_MS / 2)
#define CALLS_NS (NS_PER_MS / 5)
#define STOPS_MOST 5

/* Turns in which it is tried to find out whether work can be stopped. */
#define TRIALS 3

/* An idle holder keeps the lock for what a hand-over costs, within these bounds; for less, but for the least,
 * where its pauses are long. */
#define IDLE_LEAST_NS (NS_PER_MS / 2)
#define IDLE_MIN_NS (2 * NS_PER_MS)
#define IDLE_MAX_NS (500 * NS_PER_MS)

/* Where there are streams that can't be asked, so many looks without a call count as idle: waiting for these
 * streams would keep the worker from its orders. */
#define UNKNOWN_LOOKS 10

/* GS_STATE_*: what can be done with the process' work. It may end at any time: a stop or a slice is refused.
 */
static uint32_t abilities(const struct gpu *gpu) {
  return (preempt_verdict(gpu->device) == PREEMPT_YES ? GS_STATE_PREEMPTS : 0) |
         (preempt_slices(gpu->device) ? GS_STATE_SLICES : 0) |
         (contexts_has_own(gpu->device) ? GS_STATE_OWN_CONTEXT : 0);
}

/* Why DROP_LOCK is not answered yet. Lock held. */
static void tell_state(struct gpu *gpu) {
  struct gs_msg msg = wire_msg(GS_CLIENT_STATE, (uint32_t)gpu->device);
  uint32_t can = abilities(gpu);
  msg.state.flags = (capture_count() ? GS_STATE_CAPTURING : GS_STATE_DRAINING) | can;
  msg.state.submissions = gate_calls();
  if (!gpu->attached)
    return;
  gpu->told_abilities = can;
  client_send(&msg);
}

/* No capture begins until capture_allow, and open ones end: waiting for the context would invalidate them.
 * The daemon's grace is the bound. */
static void end_captures(struct gpu *gpu) {
  capture_forbid();
  if (capture_wait_none(NS_PER_S / 4))
    return;
  lock_take(&client.lock);
  tell_state(gpu);
  lock_release(&client.lock);
  capture_wait_none(UINT64_MAX);
}

static void set_draining(struct gpu *gpu, uint64_t since_ns) {
  lock_take(&client.lock);
  gpu->release_since_ns = since_ns;
  gpu->pulse_at_ns = since_ns + PULSE_NS;
  lock_release(&client.lock);
  if (since_ns)
    client_wake();
}

/* With the gate shut and all work done: true if nobody has passed by a pulse meanwhile, and nobody can any
 * more. */
static bool settle(struct gpu *gpu, uint64_t pulses) {
  set_draining(gpu, 0); /* no more pulses */
  return gate_revoke_pulse(gpu->device, SETTLE_NS) && gate_pulses(gpu->device) == pulses;
}

/* Looks, as waiting would not let a capture begin meanwhile, in a thread that has passed by a pulse: what is
 * to finish may be waiting for that thread. Only for per-thread streams, which can't be looked at, it waits
 * with captures allowed. No capture is open, and none begins, on entry and exit. */
static void finish_work_of(struct gpu *gpu, CUdevice device) {
  enum streams_state state;
  for (uint64_t pause_ns = LOOK_FIRST_NS; (state = streams_ask(device)) == STREAMS_BUSY;
       pause_ns = pause_ns < LOOK_LAST_NS ? pause_ns * 5 / 4 : LOOK_LAST_NS) {
    capture_allow();
    clock_sleep(pause_ns);
    end_captures(gpu);
  }
  if (state == STREAMS_UNKNOWN)
    capture_allow();
  contexts_synchronize(device);
  if (state == STREAMS_UNKNOWN)
    end_captures(gpu);
}

/* Also work of other devices on memory of this one. */
static void finish_work(struct gpu *gpu) {
  finish_work_of(gpu, gpu->device);
  uint64_t others = gate_reached_from(gpu->device);
  for (CUdevice other = 0; other < GS_GPUS_PER_CLIENT; other++)
    if (others >> other & 1)
      finish_work_of(gpu, other);
}

/* ---- stop and go ---- */

/* For those that ask gate_forbid_stop. */
static _Atomic bool stopped[GS_GPUS_PER_CLIENT];

bool client_is_stopped(CUdevice device) {
  return device >= 0 && device < GS_GPUS_PER_CLIENT && atomic_load(&stopped[device]) && !client_is_stray();
}

void worker_fork_child(void) {
  for (CUdevice device = 0; device < GS_GPUS_PER_CLIENT; device++)
    atomic_store(&stopped[device], false);
}

/* With the gate shut and no call in flight: whether nothing is left to do. */
static bool ends_at_once(struct gpu *gpu) {
  uint64_t until_ns = clock_now_ns() + (AT_ONCE_NS >> gpu->stops);
  enum streams_state state;
  do {
    capture_forbid();
    state = capture_count() ? STREAMS_UNKNOWN : streams_ask(gpu->device);
    capture_allow();
  } while (state == STREAMS_BUSY && clock_now_ns() < until_ns);
  if (state == STREAMS_FINISHED)
    gpu->stops = 0;
  else if (gpu->stops < STOPS_MOST)
    gpu->stops++;
  return state == STREAMS_FINISHED;
}

/* Not where work of one GPU uses memory of another: the one stands still, and the other waits for it. */
static bool can_stop(const struct gpu *gpu) {
  return preempt_verdict(gpu->device) == PREEMPT_YES && !gate_reached_from(gpu->device) &&
         !gate_reaches_others(gpu->device) && memory_may_stop(gpu->device);
}

static void prepare_memory(void *argument) { memory_prepare_stop(*(const CUdevice *)argument); }

/* Where memory is expected to leave, what moves it is there before anything stands still. False: some work
 * goes on. */
static bool stop_now(struct gpu *gpu) {
  if (memory_expects_moves(gpu->device) && !contexts_make_own(gpu->device))
    return false;
  if (settings()->carry && contexts_has_own(gpu->device))
    contexts_any(gpu->device, prepare_memory, &gpu->device);
  gate_take();
  atomic_store(&stopped[gpu->device], true);
  if (!gate_stop_is_forbidden() && memory_may_stop(gpu->device) && preempt_stop(gpu->device) == 0)
    return true;
  atomic_store(&stopped[gpu->device], false);
  return false;
}

/* Shut the gate; what was submitted finishes, or stands still. False: it goes on, and is to be drained, with
 * the gate as it was: open captures may need it. */
static bool stop(struct gpu *gpu) {
  bool open = gate_is_open(gpu->device);
  if (!can_stop(gpu))
    return false;
  if (gate_close(gpu->device, CALLS_NS) && ends_at_once(gpu))
    return true;
  gpu->stopped = stop_now(gpu);
  if (!gpu->stopped && open)
    gate_open(gpu->device);
  return gpu->stopped;
}

/* All that the process needs is there. */
static void go_on(struct gpu *gpu) {
  preempt_go(gpu->device); /* an error is logged there, and ends all stopping */
  gpu->stopped = false;
  atomic_store(&stopped[gpu->device], false);
}

static void find_verdict(void *argument) { preempt_try(*(const CUdevice *)argument); }

/* Why as soon as there is a context, and before a gate opens: the GPU has nothing of ours to do then, so that
 * it shows at once. */
static bool is_to_try(const struct gpu *gpu) {
  return gpu->has_context && gpu->trials < TRIALS && client_connected(gpu) &&
         preempt_verdict(gpu->device) == PREEMPT_UNKNOWN;
}

void client_context_added(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return;
  lock_take(&client.lock);
  gpu->has_context = gpu->try_due = true;
  condition_wake_all(&gpu->changed);
  lock_release(&client.lock);
}

static void tell_released(struct gpu *gpu, uint64_t drain_ns) {
  struct gs_msg msg = wire_msg(GS_LOCK_RELEASED, (uint32_t)gpu->device);
  msg.epoch = gpu->epoch;
  msg.released.drain_ns = drain_ns;
  if (client_connected(gpu)) /* else the daemon hears of it with ATTACH, or by worker_on_attached */
    client_send(&msg);
}

static bool are_abilities_due(const struct gpu *gpu) {
  return client_connected(gpu) && gpu->told_abilities != abilities(gpu);
}

/* If they are others than told. Lock held. */
static void tell_abilities(struct gpu *gpu) {
  if (!are_abilities_due(gpu))
    return;
  struct gs_msg msg = wire_msg(GS_CLIENT_STATE, (uint32_t)gpu->device);
  msg.state.flags = gpu->told_abilities = abilities(gpu);
  msg.state.submissions = gate_calls();
  client_send(&msg);
}

void worker_on_attached(struct gpu *gpu) {
  gpu->told_abilities = 0;
  tell_abilities(gpu);
  if (gpu->told_running && !gpu->holding)
    tell_released(gpu, 0);
}

/* Lets go of the lock meanwhile. */
static void try_it(struct gpu *gpu) {
  gpu->try_due = false;
  gpu->trials++;
  lock_release(&client.lock);
  contexts_any(gpu->device, find_verdict, &gpu->device);
  lock_take(&client.lock);
  tell_abilities(gpu);
}

static bool others_stand_still(const struct gpu *gpu) {
  for (CUdevice other = 0; other < GS_GPUS_PER_CLIENT; other++)
    if (other != gpu->device && client_is_stopped(other))
      return true;
  return false;
}

/* Shut the gate, until no call is in flight. One may be about another GPU, and wait there for the go, which
 * comes after others' turns: nobody waits for that. False: so work has been stopped here, too. */
static bool shut(struct gpu *gpu) {
  while (!gate_close(gpu->device, SETTLE_NS)) {
    if (others_stand_still(gpu) && can_stop(gpu))
      gpu->stopped = stop_now(gpu);
    if (gpu->stopped)
      return false;
  }
  return true;
}

/* Returns with the gate shut, no call in flight and no work unfinished; or stopped. */
static void drain(struct gpu *gpu) {
  uint64_t pulses;
  end_captures(gpu);
  do {
    pulses = gate_pulses(gpu->device);
    set_draining(gpu, clock_now_ns());
    if (!shut(gpu)) {
      set_draining(gpu, 0);
      break;
    }
    finish_work(gpu);
  } while (!settle(gpu, pulses));
  capture_allow(); /* they begin behind the gate */
}

/* ---- giving back ---- */

/* Nobody passes the shut gate any more. */
static void end_steps(struct gpu *gpu) {
  if (gpu->stepped_ns)
    gate_revoke_pulse(gpu->device, 0);
  gpu->stepped_ns = 0;
}

/* A gate that nobody has passed, nor work let on, since the last time needs nothing. Returns what it took. */
static uint64_t stop_submitting(struct gpu *gpu) {
  uint64_t start_ns = clock_now_ns();
  if (gate_is_open(gpu->device) || gpu->let_on || gpu->stepped_ns) {
    end_steps(gpu);
    gpu->let_on = false;
    if (!stop(gpu))
      drain(gpu);
  }
  return clock_now_ns() - start_ns;
}

void worker_order_drop(struct gpu *gpu) {
  gpu->drop_pending = true;
  condition_wake_all(&gpu->changed);
  condition_wake_all(&client.memory_changed);
}

/* What must leave the card leaves afterwards. Lock held, on entry and exit. */
static void give_back(struct gpu *gpu) {
  uint64_t generation = client.generation;
  gpu->drop_pending = gpu->grant_pending = false;
  memory_expect_passed(gpu->device, false);
  gpu->busy = gpu->releasing = true;
  lock_release(&client.lock);
  uint64_t drain_ns = stop_submitting(gpu);
  memory_close(gpu->device, !gpu->stopped);
  lock_take(&client.lock);
  gpu->busy = gpu->releasing = false;
  if (client.generation != generation) { /* the daemon went away meanwhile */
    if (gpu->holding)
      worker_begin(gpu);
    return;
  }
  gpu->holding = gpu->drop_pending = gpu->wanted = false;
  gpu->handover_ns = drain_ns;
  tell_released(gpu, drain_ns);
  condition_wake_all(&client.memory_changed);
  client_request_lock(gpu);
  room_order_step(gpu);
}

static void tell_active(struct gpu *gpu, uint64_t restore_ns) {
  struct gs_msg msg = wire_msg(GS_LOCK_ACTIVE, (uint32_t)gpu->device);
  msg.epoch = gpu->epoch;
  msg.active.restore_ns = restore_ns;
  msg.active.restore_bytes = gpu->returned_bytes;
  if (client_connected(gpu) && gpu->epoch)
    client_send(&msg);
}

static void note_grant(struct gpu *gpu) {
  gpu->granted_ns = clock_now_ns();
  gpu->returned_bytes = 0;
  gpu->step_over = false;
}

static void leave_to_worker(struct gpu *gpu) {
  gpu->grant_pending = true;
  memory_expect_passed(gpu->device, true);
  room_order_step(gpu);
}

void worker_begin(struct gpu *gpu) {
  gpu->steps = false;
  note_grant(gpu);
  leave_to_worker(gpu);
}

/* Is everything there that is needed? If so, new memory comes to the card at once from now on. `how`:
 * memory_open, or memory_try_open. Lock held, on entry and exit. */
static bool open_memory(struct gpu *gpu, bool (*how)(CUdevice device, uint64_t enough_bytes)) {
  uint64_t enough_bytes = room_enough_bytes(gpu);
  lock_release(&client.lock);
  bool open = gate_is_open(gpu->device) || how(gpu->device, enough_bytes);
  lock_take(&client.lock);
  return open;
}

static void open_gate(struct gpu *gpu) {
  gpu->grant_pending = gpu->let_on = false;
  uint64_t now_ns = clock_now_ns(), restore_ns = now_ns - gpu->granted_ns;
  gpu->turned_ns = now_ns;
  if (!gpu->steps) {
    end_steps(gpu);
    gate_open(gpu->device);
  }
  gpu->handover_ns += restore_ns;
  room_report(gpu);
  tell_active(gpu, restore_ns);
  condition_wake_all(&client.memory_changed); /* from now on unified memory makes way by itself */
  condition_wake_all(&gpu->changed);          /* it may have been told a share meanwhile */
}

void worker_begin_at_once(struct gpu *gpu) {
  note_grant(gpu);
  if (!gpu->busy && !gpu->stopped && !is_to_try(gpu) && open_memory(gpu, memory_try_open))
    open_gate(gpu);
  else
    leave_to_worker(gpu);
}

/* The process may run: let on what has been stopped, or find out whether it could be. Lets go of the lock
 * meanwhile. */
static void let_on(struct gpu *gpu) {
  if (is_to_try(gpu))
    try_it(gpu);
  if (!gpu->stopped)
    return;
  gpu->let_on = true;
  lock_release(&client.lock);
  go_on(gpu);
  lock_take(&client.lock);
}

/* False: not yet, and nobody has said anything new. Lock held, on entry and exit. */
static bool take_up(struct gpu *gpu) {
  gpu->busy = true;
  bool open = open_memory(gpu, memory_open);
  if (open && gpu->grant_pending && !gpu->drop_pending)
    let_on(gpu);
  if (open && !gpu->grant_pending) { /* a daemon has come: it does not hold any more */
    lock_release(&client.lock);
    stop_submitting(gpu);
    memory_close(gpu->device, !gpu->stopped);
    lock_take(&client.lock);
    client_request_lock(gpu);
    open = false;
  }
  gpu->busy = false;
  if (gpu->drop_pending)
    return true;
  if (open)
    open_gate(gpu);
  return open;
}

static bool is_quiet(struct gpu *gpu, uint64_t calls) {
  if (gpu->quiet_calls != calls)
    gpu->quiet_looks = 0;
  gpu->quiet_calls = calls;
  return ++gpu->quiet_looks >= UNKNOWN_LOOKS;
}

/* True if nothing was submitted since `calls` were counted, and the GPU has finished all that was. */
static bool is_idle(struct gpu *gpu, uint64_t calls) {
  if (!gate_is_used(gpu->device))
    return true; /* a program that has only looked at it */
  if (gate_calls() != calls || gate_in_flight() || gate_is_kept(gpu->device))
    return false;
  enum streams_state state = streams_look(gpu->device);
  bool idle = state == STREAMS_FINISHED || (state == STREAMS_UNKNOWN && is_quiet(gpu, calls));
  return idle && gate_calls() == calls && !gate_in_flight();
}

static uint64_t handover_cost_ns(const struct gpu *gpu) {
  return gpu->handover_ns < IDLE_MIN_NS   ? IDLE_MIN_NS
         : gpu->handover_ns > IDLE_MAX_NS ? IDLE_MAX_NS
                                          : gpu->handover_ns;
}

/* A pause was long if it has outlasted a hand-over. */
void worker_pause_ends(struct gpu *gpu) {
  uint64_t cost_ns = handover_cost_ns(gpu);
  if (gpu->gave_way_ns)
    patience_learn(&gpu->patience, clock_now_ns() - gpu->gave_way_ns >= cost_ns, IDLE_LEAST_NS, cost_ns);
  gpu->gave_way_ns = 0;
}

/* Somebody waits: give the lock back as soon as nothing has been submitted for as long as the program's own
 * history says, and nothing runs. What rests by its share is asked about once it goes on. Lock held, on entry
 * and exit; returns to look at new orders. */
static void watch_idle(struct gpu *gpu) {
  uint64_t calls = gate_calls(), generation = client.generation, epoch = gpu->epoch;
  uint64_t now_ns = clock_now_ns(), share_ns = share_next_ns(gpu);
  bool called = gpu->idle_calls != calls && gate_is_used(gpu->device); /* else they are about other GPUs */
  if (called || !gpu->idle_since_ns)
    gpu->idle_since_ns = now_ns;
  gpu->idle_calls = calls;
  uint64_t due_ns = gpu->idle_since_ns + patience_ns(&gpu->patience, IDLE_LEAST_NS, handover_cost_ns(gpu));
  if (gpu->rest || now_ns < due_ns) {
    uint64_t until_ns = gpu->rest || share_ns < due_ns ? share_ns : due_ns;
    condition_wait(&gpu->changed, &client.lock, until_ns);
    return;
  }
  gpu->idle_since_ns = 0;
  lock_release(&client.lock);
  bool idle = is_idle(gpu, calls);
  lock_take(&client.lock);
  if (idle && !gate_waits(gpu->device, GATE_WAIT_ROOM) && gpu->wanted && gpu->epoch == epoch &&
      client.generation == generation) {
    gpu->gave_way_ns = clock_now_ns();
    worker_order_drop(gpu);
  }
}

/* Memory is to move, against all expectations, and the program's contexts, which stand still, can't move it.
 * Its work goes on for as long as it takes to make a context of ours, 0.15 s once in a process: while it
 * stands still, making one may wait for a thread of the program. The gate stays shut. False: something goes
 * on, as there can be no context, or no stop just now: it is tried again until all has finished. Lets go of
 * the lock meanwhile. */
static bool make_movable(struct gpu *gpu) {
  gpu->busy = true;
  lock_release(&client.lock);
  go_on(gpu);
  bool still =
      contexts_make_own(gpu->device) ? stop(gpu) : gate_close(gpu->device, CALLS_NS) && ends_at_once(gpu);
  if (still)
    memory_close(gpu->device, !gpu->stopped);
  lock_take(&client.lock);
  gpu->let_on = !still;
  gpu->busy = false;
  return still;
}

/* Memory moves while nothing of the process runs. */
static void move(struct gpu *gpu) {
  bool moves = gpu->grant_pending || room_is_exceeded(gpu);
  bool helpless = gpu->stopped && !contexts_has_own(gpu->device) && moves;
  if ((!helpless && !gpu->let_on) || make_movable(gpu))
    room_step(gpu);
  else
    room_try_again(gpu);
}

/* Jobs that run beside each other share the GPU by their slices of time. */
static bool is_to_slice(const struct gpu *gpu) {
  return gpu->slice_us != gpu->sliced_us && !gpu->stopped && preempt_verdict(gpu->device) == PREEMPT_YES;
}

/* Lets go of the lock meanwhile. */
static void slice(struct gpu *gpu) {
  uint32_t us = gpu->slice_us;
  gpu->sliced_us = us;
  lock_release(&client.lock);
  preempt_slice(gpu->device, us);
  lock_take(&client.lock);
}

/* Whether all that was submitted has finished. What goes on for long may wait for a thread at the gate. */
static bool may_step(const struct gpu *gpu) {
  bool late = gpu->stepped_ns && clock_now_ns() - gpu->stepped_ns >= PULSE_NS;
  return late || (!gate_in_flight() && streams_look(gpu->device) != STREAMS_BUSY);
}

/* Each thread that waits passes with one call at a time: so this process submits what another member of its
 * gang drains for, and little beyond that, which it would have to drain for itself. Lock held, on entry and
 * exit. */
static void step(struct gpu *gpu) {
  if (gpu->steps_over) {
    gpu->steps = false;
    end_steps(gpu);
    gate_open(gpu->device);
    return;
  }
  lock_release(&client.lock);
  bool may = gate_waiting(gpu->device) > 0 && may_step(gpu);
  lock_take(&client.lock);
  if (gpu->drop_pending || gpu->steps_over)
    return;
  if (may) {
    gpu->stepped_ns = clock_now_ns();
    gate_pulse(gpu->device);
  }
  condition_wait(&gpu->changed, &client.lock, clock_now_ns() + STEP_NS);
}

/* Until there is an order, or a move is to be tried again. Lock held, on entry and exit. */
static void rest(struct gpu *gpu) {
  uint64_t share_ns = share_next_ns(gpu),
           until_ns = share_ns < gpu->step_again_ns ? share_ns : gpu->step_again_ns;
  if (condition_wait(&gpu->changed, &client.lock, until_ns) || until_ns < gpu->step_again_ns)
    return;
  gpu->step_again_ns = UINT64_MAX;
  gpu->step_due = true;
}

/* Of orders and moves, what comes first. What moves memory needs the GPU. Lock held, on entry and exit. */
static void work_once(struct gpu *gpu) {
  bool moves = gpu->drop_pending || gpu->grant_pending || room_step_due(gpu);
  if (moves)
    share_go_on(gpu);
  if (gpu->drop_pending)
    give_back(gpu);
  else if (gpu->grant_pending && take_up(gpu))
    return;
  else if (gpu->try_due && gpu->holding && is_to_try(gpu))
    try_it(gpu);
  else if (is_to_slice(gpu))
    slice(gpu);
  else if (are_abilities_due(gpu))
    tell_abilities(gpu);
  else if (room_step_due(gpu))
    move(gpu);
  else if (room_report_due(gpu))
    room_report(gpu);
  else if (share_step_due(gpu, clock_now_ns()))
    share_step(gpu);
  else if (gpu->steps && gpu->holding && !gpu->grant_pending)
    step(gpu);
  else if (gpu->wanted && gpu->holding && !gpu->grant_pending)
    watch_idle(gpu);
  else
    rest(gpu);
}

void *worker_run(void *argument) {
  struct gpu *gpu = argument;
  thread_begin("gpushare-gpu");
  /* What this thread asks the driver must not disturb the captures of others. */
  driver.cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){CU_STREAM_CAPTURE_MODE_RELAXED});
  lock_take(&client.lock);
  for (;;)
    work_once(gpu);
  return NULL;
}

uint64_t worker_check(struct gpu *gpu, uint64_t now_ns) {
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
