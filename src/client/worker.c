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

#define IDLE_LOOKS 4 /* for calls, while a pause may be one: it has begun at the last look that saw some */
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
  if (!gpu->machine.attached)
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
  if (contexts_has_own(gpu->device))
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

static bool are_abilities_due(const struct gpu *gpu) {
  return client_connected(gpu) && gpu->told_abilities != abilities(gpu);
}

void worker_tell_abilities(struct gpu *gpu) {
  if (!are_abilities_due(gpu))
    return;
  struct gs_msg msg = wire_msg(GS_CLIENT_STATE, (uint32_t)gpu->device);
  msg.state.flags = gpu->told_abilities = abilities(gpu);
  msg.state.submissions = gate_calls();
  client_send(&msg);
}

/* Lets go of the lock meanwhile. */
static void try_it(struct gpu *gpu) {
  gpu->try_due = false;
  gpu->trials++;
  lock_release(&client.lock);
  contexts_any(gpu->device, find_verdict, &gpu->device);
  lock_take(&client.lock);
  worker_tell_abilities(gpu);
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

/* A gate that nobody has passed, nor work let on, since the last time needs nothing. Returns what it took. */
static uint64_t stop_submitting(struct gpu *gpu) {
  uint64_t start_ns = clock_now_ns();
  if (gate_is_open(gpu->device) || gpu->let_on || gpu->stepped_ns) {
    client_end_steps(gpu);
    gpu->let_on = false;
    if (!stop(gpu))
      drain(gpu);
  }
  return clock_now_ns() - start_ns;
}

/* What must leave the card leaves afterwards. Lock held, on entry and exit. */
static void give_back(struct gpu *gpu) {
  machine_begin_release(&gpu->machine);
  memory_expect_passed(gpu->device, false);
  lock_release(&client.lock);
  uint64_t drain_ns = stop_submitting(gpu);
  memory_close(gpu->device, !gpu->stopped);
  lock_take(&client.lock);
  struct sight sight = client_see(gpu);
  struct orders orders = {0};
  machine_end_release(&gpu->machine, drain_ns, &sight, &orders);
  client_obey(gpu, &orders);
}

/* Is everything there that is needed? If so, new memory comes to the card at once from now on. `how`:
 * memory_open, or memory_try_open. Lock held, on entry and exit. */
static bool open_memory(struct gpu *gpu, bool (*how)(CUdevice device, uint64_t enough_bytes)) {
  uint64_t enough_bytes = machine_enough_bytes(&gpu->machine);
  lock_release(&client.lock);
  bool open = gate_is_open(gpu->device) || how(gpu->device, enough_bytes);
  lock_take(&client.lock);
  return open;
}

void worker_try_open(struct gpu *gpu) {
  bool open = !gpu->stopped && !is_to_try(gpu) && open_memory(gpu, memory_try_open);
  struct sight sight = client_see(gpu);
  struct orders orders = {0};
  machine_tried(&gpu->machine, open, &sight, &orders);
  client_obey(gpu, &orders);
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
  struct machine *machine = &gpu->machine;
  machine_begin_take_up(machine);
  bool open = open_memory(gpu, memory_open);
  if (open && machine_is_granted(machine))
    let_on(gpu);
  if (open && !machine->grant_pending) { /* a daemon has come: it does not hold any more */
    lock_release(&client.lock);
    stop_submitting(gpu);
    memory_close(gpu->device, !gpu->stopped);
    lock_take(&client.lock);
    open = false;
  }
  struct sight sight = client_see(gpu);
  struct orders orders = {0};
  bool done = machine_end_take_up(machine, open, &sight, &orders);
  client_obey(gpu, &orders);
  return done;
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

/* Somebody waits: give the lock back as soon as nothing has been submitted for as long as the program's own
 * history says, and nothing runs. What rests by its share is asked about once it goes on. Lock held, on entry
 * and exit; returns to look at new orders. */
static void watch_idle(struct gpu *gpu) {
  uint64_t calls = gate_calls(), generation = gpu->machine.generation, epoch = gpu->machine.epoch;
  uint64_t now_ns = clock_now_ns(), share_ns = share_next_ns(gpu);
  bool called = gpu->idle_calls != calls && gate_is_used(gpu->device); /* else they are about other GPUs */
  if (called || !gpu->idle_since_ns)
    gpu->idle_since_ns = now_ns;
  gpu->idle_calls = calls;
  uint64_t patience_ns = machine_patience_ns(&gpu->machine), due_ns = gpu->idle_since_ns + patience_ns;
  if (gpu->rest || now_ns < due_ns) {
    uint64_t look_ns = now_ns + patience_ns / IDLE_LOOKS, next_ns = look_ns < due_ns ? look_ns : due_ns;
    uint64_t until_ns = gpu->rest || share_ns < next_ns ? share_ns : next_ns;
    condition_wait(&gpu->changed, &client.lock, until_ns);
    return;
  }
  gpu->idle_since_ns = 0;
  lock_release(&client.lock);
  bool idle = is_idle(gpu, calls);
  lock_take(&client.lock);
  struct orders orders = {0};
  if (idle && !gate_waits(gpu->device, GATE_WAIT_ROOM))
    machine_idle(&gpu->machine, epoch, generation, clock_now_ns(), &orders);
  client_obey(gpu, &orders);
}

/* Memory is to move, against all expectations, and the program's contexts, which stand still, can't move it.
 * Its work goes on for as long as it takes to make a context of ours, 0.15 s once in a process: while it
 * stands still, making one may wait for a thread of the program. The gate stays shut. False: something goes
 * on, as there can be no context, or no stop just now: it is tried again until all has finished. Lets go of
 * the lock meanwhile. */
static bool make_movable(struct gpu *gpu) {
  gpu->machine.busy = true;
  lock_release(&client.lock);
  go_on(gpu);
  bool still =
      contexts_make_own(gpu->device) ? stop(gpu) : gate_close(gpu->device, CALLS_NS) && ends_at_once(gpu);
  if (still)
    memory_close(gpu->device, !gpu->stopped);
  lock_take(&client.lock);
  gpu->let_on = !still;
  gpu->machine.busy = false;
  return still;
}

/* Memory moves while nothing of the process runs. */
static void move(struct gpu *gpu) {
  struct memory_usage usage = memory_usage(gpu->device);
  bool moves = gpu->machine.grant_pending || machine_is_exceeded(&gpu->machine, &usage);
  bool helpless = gpu->stopped && !contexts_has_own(gpu->device) && moves;
  if ((!helpless && !gpu->let_on) || make_movable(gpu))
    room_step(gpu);
  else
    machine_put_off_move(&gpu->machine, clock_now_ns());
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
  const struct machine *machine = &gpu->machine;
  if (machine_end_steps(&gpu->machine)) {
    client_end_steps(gpu);
    gate_open(gpu->device);
    return;
  }
  lock_release(&client.lock);
  bool may = gate_waiting(gpu->device) > 0 && may_step(gpu);
  lock_take(&client.lock);
  if (!machine_runs(machine) || machine->drop_pending || machine->steps_over)
    return;
  if (may) {
    gpu->stepped_ns = clock_now_ns();
    gate_pulse(gpu->device);
  }
  condition_wait(&gpu->changed, &client.lock, clock_now_ns() + STEP_NS);
}

/* Until there is an order, or a move is to be tried again. Lock held, on entry and exit. */
static void rest(struct gpu *gpu) {
  uint64_t share_ns = share_next_ns(gpu), again_ns = gpu->machine.move_again_ns;
  if (!condition_wait(&gpu->changed, &client.lock, share_ns < again_ns ? share_ns : again_ns) &&
      share_ns >= again_ns)
    machine_try_again(&gpu->machine);
}

static void report(struct gpu *gpu) { client_tell(gpu, machine_report); }

/* Of orders and moves, what comes first; lacking: taking the lock up has just been tried in vain. */
static enum machine_work next_work(const struct gpu *gpu, bool lacking) {
  struct sight sight = client_see(gpu);
  struct chores chores = {.try = gpu->try_due && is_to_try(gpu),
                          .slice = is_to_slice(gpu),
                          .tell = are_abilities_due(gpu),
                          .share = share_step_due(gpu, sight.now_ns),
                          .lacking = lacking};
  return machine_work(&gpu->machine, &sight, &chores);
}

/* Lock held, on entry and exit. */
static void work_once(struct gpu *gpu) {
  static void (*const works[])(struct gpu * gpu) = {
      [WORK_REST] = rest,       [WORK_RELEASE] = give_back,          [WORK_TRY] = try_it,
      [WORK_SLICE] = slice,     [WORK_TELL] = worker_tell_abilities, [WORK_MOVE] = move,
      [WORK_REPORT] = report,   [WORK_SHARE] = share_step,           [WORK_STEP] = step,
      [WORK_WATCH] = watch_idle};
  if (machine_needs_gpu(&gpu->machine))
    share_go_on(gpu);
  enum machine_work work = next_work(gpu, false);
  if (work == WORK_TAKE_UP && !take_up(gpu))
    work = next_work(gpu, true);
  if (work != WORK_TAKE_UP)
    works[work](gpu);
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
