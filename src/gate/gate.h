/*
 * gate.h - may this call submit now? One gate per GPU; a call that is let through is counted while it is in
 * flight, so that closing the gate can wait until none is.
 *
 * The hot path is plain accesses of the thread's own slot and a load of one word that all threads share for
 * reading: the closer pays for the ordering with membarrier(2), which makes every running thread's earlier
 * stores visible (the scheme of asymmetric fences, as in userspace RCU). Where the kernel has no membarrier,
 * a fence stands in.
 *
 * A call within a call (the driver calls a profiler back, which calls the driver) passes: the outer one is in
 * flight, and the closer waits for it. A signal handler may leave a call by a jump, and a thread may end
 * within one: what such a call has left behind is void from the thread's next call on, and what has waited
 * from the next opening of its gate on.
 *
 * Threading: gate_enter and gate_leave from any thread, in pairs; gate_close from the GPU's one worker; the
 * rest from any thread.
 */
#ifndef GS_GATE_H
#define GS_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/condition.h"
#include "common/lock.h"
#include "driver/cuda_abi.h"
#include "gpushare/protocol.h"

/* Of the GPUs in use. */
enum gate_all {
  GATE_ALL_SHUT = 0, /* not all are open */
  GATE_ALL_FREE = 1, /* all are, and nobody has to look any further */
  GATE_ALL_LOOK = 2, /* all are, and the next call for some of them is to be told of */
};

/* What a thread may wait for besides a gate: bits. */
enum gate_wait {
  GATE_WAIT_ROOM = 2, /* for memory on the card */
  GATE_WAIT_TURN = 4, /* for that, and needs the GPU for it */
};

#define GATE_NESTED (UINT64_C(1) << 56)

/* One per thread that has ever submitted; owned by it, on a cache line of its own. */
struct gate_slot {
  _Atomic uintptr_t in_flight; /* stack address of the call between gate_enter and gate_leave; 0: none */
  _Atomic int32_t thread;      /* its tid; 0: the slot is free */
  _Atomic uint64_t calls;      /* let through so far; and, GATE_NESTED each, calls within that call */
  struct gate_slot *next;      /* constant once the slot is listed */
  _Atomic uint32_t waits;      /* enum gate_wait; 0: it does not */
  _Atomic int32_t waits_for;   /* the device */
} __attribute__((aligned(64)));

extern __thread struct gate_slot *gate_slot __attribute__((tls_model("initial-exec"), visibility("hidden")));
extern _Atomic uint32_t gate_all_open __attribute__((visibility("hidden")));   /* enum gate_all */
extern _Atomic uint32_t gate_several __attribute__((visibility("hidden")));    /* GPUs in use: two or more */
extern _Atomic bool gate_has_membarrier __attribute__((visibility("hidden"))); /* false: calls fence */

/* A call in flight. A thread that has left it by a jump, or has ended, does not go on with it. */
struct gate_call {
  struct gate_slot *slot; /* NULL: none */
  uint64_t calls;
};
struct gate_call gate_call_mine(void);
bool gate_call_goes_on(const struct gate_call *call);

/* Wait until it does not; `ended` is woken when the thread says so. Both are under the lock, which is held.
 */
void gate_call_await(const struct gate_call *call, struct condition *ended, struct lock *lock);

void gate_enter_slow(CUstream stream, uint64_t reach, uintptr_t frame);
void gate_leave_slow(void);

static inline void gate_order(void) {
  if (__builtin_expect(!atomic_load_explicit(&gate_has_membarrier, memory_order_relaxed), 0))
    atomic_thread_fence(memory_order_seq_cst);
  else
    atomic_signal_fence(memory_order_seq_cst);
}

/* Where the calling function is on its stack: never 0. Without a frame pointer where that can be told. */
static inline uintptr_t gate_frame(void) {
#if defined(__x86_64__)
  uintptr_t frame;
  __asm__ volatile("mov %%rsp, %0" : "=r"(frame));
  return frame;
#else
  return (uintptr_t)__builtin_frame_address(0);
#endif
}

/* Wait until this process may submit to the GPU of the stream (or of the current context). Keeps errno. */
static inline void gate_enter(CUstream stream) {
  struct gate_slot *slot = gate_slot;
  uintptr_t frame = gate_frame();
  if (__builtin_expect(slot && !atomic_load_explicit(&slot->in_flight, memory_order_relaxed), 1)) {
    atomic_store_explicit(&slot->in_flight, frame, memory_order_relaxed);
    gate_order();
    if (__builtin_expect(atomic_load_explicit(&gate_all_open, memory_order_acquire) == GATE_ALL_FREE, 1))
      return;
  }
  gate_enter_slow(stream, 0, frame);
}

/* The same for a call that also needs the memory of the GPUs in the mask: until the process may submit to
 * them, too. A thread holds none of them up while it waits for another. */
static inline void gate_enter_reaching(CUstream stream, uint64_t reach) {
  if (__builtin_expect(reach != 0, 0))
    gate_enter_slow(stream, reach, gate_frame());
  else
    gate_enter(stream);
}

/* A call follows in which the driver waits until the device's work is done: wait for it here, where a stop
 * meets nobody. Why: it may be a collective, whose other part has been stopped. */
void gate_await_work(CUdevice device);

/* A call follows in which the driver waits for work of the device: until gate_allow_stop no work of the
 * process is stopped. If the device's work stands still now, wait for the turn in which it goes on. */
void gate_forbid_stop(CUdevice device);
void gate_allow_stop(void);
bool gate_stop_is_forbidden(void); /* to be asked once gate_port.is_stopped says so */

/* Calls that are in flight from now on may fail, with CUDA_ERROR_INVALID_VALUE, for memory that is taken away
 * from them. */
void gate_take(void);

/* The call in flight has failed so, and that may be why: enter again, when the memory is back, to make it
 * once more. It has submitted nothing, or part of a copy. `takes`: 0 for the first time. False: it has not
 * been taken from since. */
bool gate_enter_again(CUstream stream, uint64_t reach, uint64_t *takes);

/* As gate_enter where the gate is open; false at once, with nothing to leave, where it is shut. For work of
 * our own that is not worth waiting for. */
bool gate_try_enter(CUstream stream);

static inline void gate_leave(void) {
  struct gate_slot *slot = gate_slot;
  uint64_t calls = atomic_load_explicit(&slot->calls, memory_order_relaxed);
  if (__builtin_expect(calls >= GATE_NESTED, 0)) {
    atomic_store_explicit(&slot->calls, calls - GATE_NESTED, memory_order_relaxed);
    return;
  }
  atomic_store_explicit(&slot->calls, calls + 1, memory_order_relaxed);
  atomic_store_explicit(&slot->in_flight, 0, memory_order_release);
  gate_order();
  if (__builtin_expect(!atomic_load_explicit(&gate_all_open, memory_order_relaxed), 0))
    gate_leave_slow();
}

/* The device becomes one that this process submits to: from now on calls pass only if its gate is open. */
void gate_add(CUdevice device);
bool gate_is_used(CUdevice device);

/* From now on all calls that reach `device` need the memory of `other`, too; or not any more. */
void gate_link(CUdevice device, CUdevice other, bool linked);

/* Devices, as a mask, whose work has used memory of this one, or may have: a drain waits for it. And whether
 * work of this one has used memory of another one. */
uint64_t gate_reached_from(CUdevice device);
bool gate_reaches_others(CUdevice device);

/* Whether a thread waits for the gate of a device with a higher number, and then needs this one as well: it
 * is not given back as idle meanwhile. Jobs that need the same GPUs so get them in the same order. */
bool gate_is_kept(CUdevice device);

void gate_open(CUdevice device);

/* Shut the gate and wait until no call that had passed it is still in flight. Returns false, with the gate
 * still shut, if calls are in flight after timeout_ns. */
bool gate_close(CUdevice device, uint64_t timeout_ns);

bool gate_is_open(CUdevice device);

/* The calling thread's call is in flight: no other thread's is from here on, and those that come wait, until
 * gate_together. The caller has blocked signals, as a handler might leave this by a jump. False, with
 * everything as before, if another call is in flight after timeout_ns, or another thread is alone. */
bool gate_alone(uint64_t devices, uint64_t timeout_ns);
void gate_together(uint64_t devices);

/* The next call for the device is told to gate_port.submits, or it need not be any more. All calls that have
 * been let through before are known to gate_calls() and gate_in_flight() when this has returned. */
void gate_watch(CUdevice device, bool watch);

/* A pulse: every thread that waits now may pass with one call, though the gate is shut, until the pulse is
 * revoked: a drain that waits for work which waits for such a thread could never end otherwise. */
void gate_pulse(CUdevice device);

/* How many pulses there have been. */
uint64_t gate_pulses(CUdevice device);

/* From here on nobody passes by an earlier pulse. False if a call is in flight after timeout_ns. */
bool gate_revoke_pulse(CUdevice device, uint64_t timeout_ns);

/* Threads that wait at the gate. */
uint32_t gate_waiting(CUdevice device);

/* Before a wait that begins with a lock held: a thread's first one may take as long as memory is out. */
void gate_wait_prepare(void);

/* The calling thread waits, until gate_wait_end; as it may never come to that (above), until its next call
 * that waits, or its end, or, for room and turn, until the gate opens. And how many do, for one of `what`. */
void gate_wait_begin(CUdevice device, uint32_t what);
void gate_wait_end(void);
uint32_t gate_waits(CUdevice device, uint32_t what);

/* Calls let through so far by this process, on all devices; and whether one is in flight now. */
uint64_t gate_calls(void);
bool gate_in_flight(void);

/* The device that a call on this stream reaches; -1: the driver will refuse it anyway. */
CUdevice gate_device_of(CUstream stream);

/* In the child of a fork: as in a fresh process. */
void gate_fork_child(void);

#endif
