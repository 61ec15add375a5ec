/* gate.c - the gates of this process' GPUs: open, shut, and the waiting in between. */
#include "gate/gate.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "common/clock.h"
#include "common/futex.h"
#include "common/lock.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate_port.h"
#include "gate/slots.h"
#include "gate/streams.h"
#include "preempt/preempt.h"

struct gate {
  _Atomic uint32_t used;
  _Atomic uint32_t open;
  _Atomic bool watched;     /* see gate_watch */
  _Atomic uint32_t change;  /* futex: moves with every opening and pulse */
  _Atomic uint32_t waiting; /* threads in wait_open since the last opening */
  _Atomic uint64_t keeps;   /* lower gates that they need, too */
  uint32_t openings;
  _Atomic uint64_t links;          /* other gates that calls for this one have to pass */
  _Atomic uint64_t reached;        /* see gate_reached_from */
  _Atomic uint64_t pulses;         /* so far */
  _Atomic uint64_t permit;         /* the number of the pulse in force; 0: none */
  struct gate_slot *_Atomic alone; /* of the only thread that may pass; NULL: all may */
};

static struct gate gates[GS_GPUS_PER_CLIENT];

/* Shut until the first slow entry has found out which device it is about. */
_Atomic uint32_t gate_all_open;
_Atomic uint32_t gate_several;

/* Serializes changes of `used`, `open`, `watched` and `alone` with the sum of them, gate_all_open; and of
 * `waiting`, `keeps` and `openings`. */
static struct lock lock = LOCK(LOCK_GATE);

static struct gate *gate_of(CUdevice device) {
  return device >= 0 && device < GS_GPUS_PER_CLIENT ? &gates[device] : NULL;
}

static void sum_up(void) {
  uint32_t open = 0, watched = 0, count = 0;
  for (struct gate *g = gates; g < gates + GS_GPUS_PER_CLIENT; g++)
    if (atomic_load(&g->used)) {
      count++;
      open += atomic_load(&g->open) && !atomic_load(&g->alone);
      watched += atomic_load(&g->watched);
    }
  bool all_open = count > 0 && open == count;
  atomic_store(&gate_all_open, !all_open ? GATE_ALL_SHUT : watched ? GATE_ALL_LOOK : GATE_ALL_FREE);
  atomic_store(&gate_several, count > 1);
}

static void set_open(struct gate *gate, uint32_t open) {
  lock_take(&lock);
  atomic_store(&gate->open, open);
  sum_up();
  lock_release(&lock);
}

void gate_watch(CUdevice device, bool watch) {
  lock_take(&lock);
  atomic_store(&gate_of(device)->watched, watch);
  sum_up();
  lock_release(&lock);
  slots_barrier();
}

void gate_add(CUdevice device) {
  lock_take(&lock);
  atomic_store(&gate_of(device)->used, 1);
  sum_up();
  lock_release(&lock);
}

bool gate_is_used(CUdevice device) {
  struct gate *gate = gate_of(device);
  return gate && atomic_load(&gate->used);
}

static void wake(struct gate *gate) {
  atomic_fetch_add(&gate->change, 1);
  futex_wake(&gate->change, INT32_MAX);
}

/* Whoever has waited comes through now, or marks itself anew; or it is no longer there. */
static void forget_waiting(struct gate *gate) {
  lock_take(&lock);
  gate->openings++;
  atomic_store(&gate->waiting, 0);
  atomic_store(&gate->keeps, 0);
  lock_release(&lock);
}

void gate_open(CUdevice device) {
  struct gate *gate = &gates[device];
  set_open(gate, 1);
  forget_waiting(gate);
  slots_forget_waits(device);
  wake(gate);
}

bool gate_close(CUdevice device, uint64_t timeout_ns) {
  set_open(gate_of(device), 0);
  slots_barrier();
  return slots_wait_empty(NULL, timeout_ns);
}

/* Of them; false: another thread is alone at one. */
static bool set_alone(uint64_t devices, struct gate_slot *slot) {
  bool can = true;
  lock_take(&lock);
  for (struct gate *g = gates; g < gates + GS_GPUS_PER_CLIENT; g++)
    can &= !slot || !(devices >> (g - gates) & 1) || !atomic_load(&g->alone);
  for (struct gate *g = gates; g < gates + GS_GPUS_PER_CLIENT && can; g++)
    if (devices >> (g - gates) & 1)
      atomic_store(&g->alone, slot);
  sum_up();
  lock_release(&lock);
  return can;
}

bool gate_alone(uint64_t devices, uint64_t timeout_ns) {
  if (!set_alone(devices, slots_mine()))
    return false;
  slots_barrier();
  if (slots_wait_empty(slots_mine(), timeout_ns))
    return true;
  gate_together(devices);
  return false;
}

void gate_together(uint64_t devices) {
  set_alone(devices, NULL);
  for (struct gate *g = gates; g < gates + GS_GPUS_PER_CLIENT; g++)
    if (devices >> (g - gates) & 1)
      wake(g);
}

bool gate_is_open(CUdevice device) { return atomic_load(&gate_of(device)->open); }
uint32_t gate_waiting(CUdevice device) { return atomic_load(&gate_of(device)->waiting); }
uint64_t gate_pulses(CUdevice device) { return atomic_load(&gate_of(device)->pulses); }

void gate_pulse(CUdevice device) {
  struct gate *gate = gate_of(device);
  atomic_store(&gate->permit, atomic_fetch_add(&gate->pulses, 1) + 1);
  wake(gate);
}

bool gate_revoke_pulse(CUdevice device, uint64_t timeout_ns) {
  atomic_store(&gate_of(device)->permit, 0);
  slots_barrier();
  return slots_wait_empty(NULL, timeout_ns);
}

CUdevice gate_device_of(CUstream stream) {
  CUcontext context;
  CUdevice device = -1;
  bool is_handle = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  if (is_handle && driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS)
    device = contexts_device(context);
  if (device < 0 && driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
    device = -1;
  return device;
}

/* And not submitted. */
static bool is_recorded(CUstream stream) {
  CUstreamCaptureStatus status;
  if (stream == NULL || stream == CU_STREAM_LEGACY)
    return false; /* the legacy stream can't capture; asking may fail by way of others that do */
  return driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* ---- the gates that a call has to pass, as a mask, by ascending number ---- */

static uint64_t bit(CUdevice device) { return gate_of(device) ? UINT64_C(1) << device : 0; }

/* The first of the mask, which it leaves. */
static CUdevice take_first(uint64_t *mask) {
  CUdevice first = __builtin_ctzll(*mask);
  *mask &= *mask - 1;
  return first;
}

/* What a call passes that has come after so many pulses. */
struct passage {
  uint64_t gates;
  uint64_t pulses[GS_GPUS_PER_CLIENT];
};

/* The call reaches the device, and memory of the others. Who submits to one that is not in use makes it so.
 */
static void passage_begin(struct passage *passage, CUdevice device, uint64_t others) {
  uint64_t own = bit(device);
  passage->gates = own ? own | others | atomic_load(&gates[device].links) : 0;
  for (uint64_t rest = passage->gates; rest;) {
    CUdevice each = take_first(&rest);
    if (!atomic_load(&gates[each].used))
      gate_port.attach(each);
    if (each != device)
      atomic_fetch_or(&gates[each].reached, own);
    passage->pulses[each] = atomic_load(&gates[each].pulses);
  }
}

/* A gate that is no longer used: this is the child of a fork by a signal handler, within the wait. */
static bool may_pass(const struct passage *passage, CUdevice device) {
  struct gate *gate = &gates[device];
  struct gate_slot *alone = atomic_load(&gate->alone);
  if (alone && alone != gate_slot)
    return false;
  return atomic_load(&gate->open) || !atomic_load(&gate->used) ||
         atomic_load(&gate->permit) > passage->pulses[device];
}

static bool may_pass_all(const struct passage *passage) {
  for (uint64_t rest = passage->gates; rest;)
    if (!may_pass(passage, take_first(&rest)))
      return false;
  return true;
}

/* The calling thread is among those that wait; `since`: the opening as of which it is. */
static void wait_begin(struct gate *gate, uint64_t lower, uint32_t *since) {
  lock_take(&lock);
  if (*since != gate->openings + 1) {
    *since = gate->openings + 1;
    atomic_fetch_add(&gate->waiting, 1);
    atomic_fetch_or(&gate->keeps, lower);
  }
  lock_release(&lock);
}

static void wait_end(struct gate *gate, uint32_t since) {
  lock_take(&lock);
  if (since == gate->openings + 1 && atomic_fetch_sub(&gate->waiting, 1) == 1)
    atomic_store(&gate->keeps, 0);
  lock_release(&lock);
}

/* A signal handler may leave this by a jump, or the thread end: its mark goes with the next opening. */
static void wait_open(const struct passage *passage, CUdevice device, uint64_t lower) {
  struct gate *gate = &gates[device];
  uint32_t since = 0;
  for (;;) {
    uint32_t seen = atomic_load(&gate->change); /* before the mark, which an opening takes away */
    wait_begin(gate, lower, &since);
    if (may_pass(passage, device))
      break;
    gate_port.want(device);
    futex_wait(&gate->change, seen, UINT64_MAX);
  }
  wait_end(gate, since);
}

/* Wait for the first that is shut, with those before it kept from being given back as idle. */
static void wait_first(const struct passage *passage) {
  uint64_t lower = 0, rest = passage->gates;
  while (rest) {
    CUdevice device = take_first(&rest);
    if (!may_pass(passage, device)) {
      wait_open(passage, device, lower);
      return;
    }
    lower |= bit(device);
  }
}

/* Count the call as in flight, then look: true if it may (still) pass. Why no fence: the store and the loads
 * are sequentially consistent. */
static bool try_enter(struct gate_slot *slot, const struct passage *passage, uintptr_t frame) {
  atomic_store(&slot->in_flight, frame);
  if (may_pass_all(passage))
    return true;
  atomic_store(&slot->in_flight, 0);
  slots_notify();
  return false;
}

/* Whether the call at this frame is within another one that is in flight: then it passes. An earlier call
 * that was left by a jump is recognized where the stack has shrunk to it since. */
static bool enter_nested(struct gate_slot *slot, uintptr_t frame) {
  uint64_t calls = atomic_load_explicit(&slot->calls, memory_order_relaxed);
  bool nested = frame < atomic_load_explicit(&slot->in_flight, memory_order_relaxed);
  calls = nested ? calls + GATE_NESTED : calls % GATE_NESTED;
  atomic_store_explicit(&slot->calls, calls, memory_order_relaxed);
  return nested;
}

void gate_enter_slow(CUstream stream, uint64_t reach, uintptr_t frame) {
  int saved = errno;
  struct passage passage;
  struct gate_slot *slot = slots_mine();
  if (enter_nested(slot, frame))
    return;
  atomic_store(&slot->waits, 0);
  if (atomic_exchange(&slot->in_flight, 0))
    slots_notify();
  streams_note(stream);
  contexts_learn_current();
  CUdevice device = gate_device_of(stream);
  passage_begin(&passage, device, reach);
  while (!try_enter(slot, &passage, frame))
    if (is_recorded(stream))
      passage.gates = 0;
    else
      wait_first(&passage);
  if (bit(device) && atomic_load(&gates[device].watched))
    gate_port.submits(device);
  errno = saved;
}

bool gate_try_enter(CUstream stream) {
  struct gate_slot *slot = slots_mine();
  uintptr_t frame = gate_frame();
  CUdevice device = gate_device_of(stream);
  if (!gate_of(device))
    return false;
  if (enter_nested(slot, frame))
    return true;
  struct passage passage = {.gates = bit(device)};
  passage.pulses[device] = UINT64_MAX;
  return try_enter(slot, &passage, frame);
}

/* As a call that submits to the device; false at once within a call that is in flight. */
static bool await_turn(CUdevice device) {
  struct gate_slot *slot = slots_mine();
  struct passage passage;
  uintptr_t frame = gate_frame();
  if (enter_nested(slot, frame)) {
    gate_leave();
    return false;
  }
  passage_begin(&passage, device, 0);
  while (!try_enter(slot, &passage, frame))
    wait_first(&passage);
  gate_leave();
  return true;
}

static _Atomic unsigned stops_forbidden;

/* Natively the driver spins. So short work is looked at again and again, and long work is found finished at
 * most an eighth of its time later. */
#define SPIN_NS (NS_PER_MS / 10)
#define IDLE_LOOK_LAST_NS NS_PER_MS
#define OTHERS_NS (10 * NS_PER_MS) /* for work that other threads submit meanwhile */

/* What stands still is not asked about: some calls of the driver would wait for it. */
static bool is_busy(CUdevice device) {
  return gate_port.is_stopped(device) || streams_look(device) == STREAMS_BUSY;
}

/* A capture that is open already is the program's affair: the driver says what it natively says. One that
 * begins meanwhile ends first, as the driver would refuse the call now. */
void gate_await_work(CUdevice device) {
  int saved = errno;
  uint64_t calls = gate_calls(), since_ns = clock_now_ns();
  bool can_stop = gate_of(device) && preempt_verdict(device) == PREEMPT_YES && capture_count() == 0;
  while (can_stop && is_busy(device)) {
    uint64_t waited_ns = clock_now_ns() - since_ns, pause_ns = waited_ns / 8;
    bool others = gate_calls() != calls && waited_ns >= OTHERS_NS;
    if (others && capture_count() == 0)
      break; /* natively what they submit would not be waited for either */
    if (waited_ns >= SPIN_NS)
      clock_sleep(pause_ns < IDLE_LOOK_LAST_NS ? pause_ns : IDLE_LOOK_LAST_NS);
  }
  errno = saved;
}

void gate_forbid_stop(CUdevice device) {
  int saved = errno;
  bool may_wait = true;
  atomic_fetch_add(&stops_forbidden, 1);
  gate_port.await_go(device);
  while (may_wait && gate_port.is_stopped(device)) {
    atomic_fetch_sub(&stops_forbidden, 1);
    may_wait = await_turn(device);
    atomic_fetch_add(&stops_forbidden, 1);
  }
  errno = saved;
}

void gate_allow_stop(void) { atomic_fetch_sub(&stops_forbidden, 1); }

bool gate_stop_is_forbidden(void) { return atomic_load(&stops_forbidden) > 0; }

static _Atomic uint64_t takes_so_far;

void gate_take(void) { atomic_fetch_add(&takes_so_far, 1); }

bool gate_enter_again(CUstream stream, uint64_t reach, uint64_t *takes) {
  uint64_t now = atomic_load(&takes_so_far);
  if (now == *takes)
    return false;
  *takes = now;
  gate_leave();
  await_turn(gate_device_of(stream)); /* also for a call that is recorded: it asks for the memory, too */
  gate_enter_reaching(stream, reach);
  return true;
}

void gate_link(CUdevice device, CUdevice other, bool linked) {
  if (!bit(device) || !bit(other))
    return;
  if (!linked) {
    atomic_fetch_and(&gates[device].links, ~bit(other));
    return;
  }
  atomic_fetch_or(&gates[other].reached, bit(device));
  atomic_fetch_or(&gates[device].links, bit(other));
}

uint64_t gate_reached_from(CUdevice device) { return atomic_load(&gate_of(device)->reached); }

bool gate_reaches_others(CUdevice device) {
  for (struct gate *g = gates; g < gates + GS_GPUS_PER_CLIENT; g++)
    if (atomic_load(&g->reached) & bit(device))
      return true;
  return false;
}

bool gate_is_kept(CUdevice device) {
  for (struct gate *g = gates; g < gates + GS_GPUS_PER_CLIENT; g++)
    if (atomic_load(&g->keeps) & bit(device))
      return true;
  return false;
}

void gate_leave_slow(void) {
  int saved = errno;
  slots_notify();
  errno = saved;
}

void gate_fork_child(void) {
  lock = (struct lock)LOCK(LOCK_GATE);
  for (struct gate *g = gates; g < gates + GS_GPUS_PER_CLIENT; g++)
    *g = (struct gate){.change = atomic_load(&g->change) + 1};
  atomic_store(&gate_all_open, 0);
  atomic_store(&gate_several, 0);
  atomic_store(&stops_forbidden, 0);
  slots_fork_child();
}
