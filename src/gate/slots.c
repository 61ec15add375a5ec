/* slots.c - one slot per submitting thread, so that the hot path shares no written cache line. */
#include "gate/slots.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/condition.h"
#include "common/futex.h"
#include "common/log.h"

#define SLOTS_KEPT 16 /* for threads that come while memory is out */
#define AGAIN_NS (10 * NS_PER_MS)
#define LEFT_NS (100 * NS_PER_MS) /* between looks whether a call has been left by a jump */

__thread struct gate_slot *gate_slot;
/* Why zero at first: initialized data begins at the beginning of a page, as slots do, and to many processors
 * a load from there depends on a store to the slot. */
_Atomic bool gate_has_membarrier;

/* All slots ever made; they are reused, never freed, so walking the list needs no lock. */
static struct gate_slot *_Atomic slots;
static _Atomic uint32_t departures; /* futex: changes when a call leaves while a gate is shut */

static _Atomic uint32_t slot_count;
static _Atomic uint32_t sweep_count = 16; /* with so many slots, those of ended threads are looked for */

static long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

static uint64_t calls_of(struct gate_slot *slot) {
  return atomic_load_explicit(&slot->calls, memory_order_relaxed) % GATE_NESTED;
}

__attribute__((constructor)) static void choose_ordering(void) {
  atomic_store(&gate_has_membarrier, membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0);
}

/* A thread that has ended, was killed or cancelled, maybe inside the driver, never leaves: it is not waited
 * for. */
static bool is_gone(int32_t tid) {
  int kept = errno;
  bool gone = tid == 0 || (syscall(SYS_tgkill, getpid(), tid, 0) != 0 && errno == ESRCH);
  errno = kept;
  return gone;
}

/* The slots of ended threads become free. Their counts stay in them. Why not by the thread's end: that would
 * take one of the thread keys, of which the program may want all. */
static void sweep(void) {
  uint32_t used = 0;
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next) {
    int32_t tid = atomic_load(&slot->thread);
    if (!is_gone(tid))
      used++;
    else if (tid != 0)
      atomic_compare_exchange_strong(&slot->thread, &tid, 0);
  }
  atomic_store(&sweep_count, 2 * used + 16);
}

/* The slot that has this number for a thread becomes one of the thread `tid`. Its last thread may never have
 * left. */
static struct gate_slot *take_slot(int32_t number, int32_t tid) {
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next) {
    int32_t was = number;
    if (!atomic_compare_exchange_strong(&slot->thread, &was, tid))
      continue;
    atomic_store_explicit(&slot->in_flight, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->waits, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->calls, calls_of(slot), memory_order_relaxed);
    return slot;
  }
  return NULL;
}

/* A thread that has none yet may have the number of one that has ended: that one's slot first. */
static struct gate_slot *reuse_slot(int32_t tid) {
  struct gate_slot *slot = take_slot(tid, tid);
  return slot ? slot : take_slot(0, tid);
}

/* NULL: memory is out, and so is what is kept for that. */
static struct gate_slot *new_slot(void) {
  static struct gate_slot kept[SLOTS_KEPT];
  static _Atomic unsigned kept_used;
  struct gate_slot *slot =
      mmap(NULL, sizeof *slot, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slot != MAP_FAILED)
    return slot;
  unsigned next = atomic_load(&kept_used);
  while (next < SLOTS_KEPT && !atomic_compare_exchange_weak(&kept_used, &next, next + 1))
    ;
  return next < SLOTS_KEPT ? &kept[next] : NULL;
}

static struct gate_slot *make_slot(int32_t tid) {
  struct gate_slot *slot = new_slot();
  if (!slot)
    return NULL;
  atomic_store_explicit(&slot->thread, tid, memory_order_relaxed);
  struct gate_slot *head = atomic_load_explicit(&slots, memory_order_relaxed);
  do
    slot->next = head;
  while (!atomic_compare_exchange_weak(&slots, &head, slot));
  atomic_fetch_add(&slot_count, 1);
  return slot;
}

struct gate_slot *slots_mine(void) {
  if (gate_slot)
    return gate_slot;
  int32_t tid = (int32_t)syscall(SYS_gettid);
  struct gate_slot *slot = reuse_slot(tid);
  if (!slot && atomic_load(&slot_count) >= atomic_load(&sweep_count)) {
    sweep();
    slot = reuse_slot(tid);
  }
  /* Two threads can't share a slot: what one submits would not be waited for once the other one leaves. */
  for (bool said = false; !slot && !(slot = make_slot(tid)); said = true) {
    if (!said)
      log_error("out of memory: a thread waits before it may use the GPU");
    clock_sleep(AGAIN_NS);
    sweep();
    slot = reuse_slot(tid);
  }
  gate_slot = slot;
  return slot;
}

void slots_notify(void) {
  atomic_fetch_add(&departures, 1);
  futex_wake(&departures, INT32_MAX);
}

/* A sandbox may forbid membarrier after it was registered for: threads that pass fence from then on. Where
 * that knows no other kind either, what they have stored before is in their caches after a moment. */
void slots_barrier(void) {
  atomic_thread_fence(memory_order_seq_cst);
  if (!atomic_load(&gate_has_membarrier) || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
    return;
  atomic_store(&gate_has_membarrier, false);
  if (membarrier(MEMBARRIER_CMD_GLOBAL) != 0)
    clock_sleep(NS_PER_MS);
}

static bool wait_for_slot(struct gate_slot *slot, uint64_t deadline_ns) {
  uint64_t calls = calls_of(slot);
  for (;;) {
    uint32_t seen = atomic_load(&departures);
    if (!atomic_load_explicit(&slot->in_flight, memory_order_acquire))
      return true;
    if (calls_of(slot) != calls)
      return true; /* it has left, and is in again: with leave, as the gate is shut */
    if (is_gone(atomic_load_explicit(&slot->thread, memory_order_relaxed)))
      return true;
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= deadline_ns)
      return false;
    uint64_t left_ns = deadline_ns - now_ns;
    futex_wait(&departures, seen, left_ns < 100 * NS_PER_MS ? left_ns : 100 * NS_PER_MS);
  }
}

bool slots_wait_empty(const struct gate_slot *but, uint64_t timeout_ns) {
  uint64_t now_ns = clock_now_ns();
  uint64_t deadline_ns = timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    if (slot != but && !wait_for_slot(slot, deadline_ns))
      return false;
  return true;
}

struct gate_call gate_call_mine(void) {
  struct gate_slot *slot = slots_mine();
  return (struct gate_call){slot, calls_of(slot)};
}

bool gate_call_goes_on(const struct gate_call *call) {
  return call->slot && atomic_load(&call->slot->in_flight) && calls_of(call->slot) == call->calls &&
         !is_gone(atomic_load(&call->slot->thread));
}

void gate_call_await(const struct gate_call *call, struct condition *ended, struct lock *lock) {
  while (gate_call_goes_on(call))
    condition_wait(ended, lock, clock_now_ns() + LEFT_NS);
}

uint64_t gate_calls(void) {
  uint64_t sum = 0;
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    sum += calls_of(slot);
  return sum;
}

bool gate_in_flight(void) {
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    if (atomic_load_explicit(&slot->in_flight, memory_order_acquire) &&
        !is_gone(atomic_load_explicit(&slot->thread, memory_order_relaxed)))
      return true;
  return false;
}

void gate_wait_prepare(void) { slots_mine(); }

void gate_wait_begin(CUdevice device, uint32_t what) {
  struct gate_slot *slot = slots_mine();
  atomic_store(&slot->waits_for, device);
  atomic_store(&slot->waits, what);
}

void gate_wait_end(void) {
  if (gate_slot)
    atomic_store(&gate_slot->waits, 0);
}

uint32_t gate_waits(CUdevice device, uint32_t what) {
  uint32_t count = 0;
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    count += (atomic_load(&slot->waits) & what) && atomic_load(&slot->waits_for) == device &&
             !is_gone(atomic_load(&slot->thread));
  return count;
}

void slots_forget_waits(CUdevice device) {
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    if (atomic_load(&slot->waits_for) == device)
      atomic_fetch_and(&slot->waits, ~(uint32_t)(GATE_WAIT_ROOM | GATE_WAIT_TURN));
}

/* Only the forking thread lives on; the other threads' slots are free. */
void slots_fork_child(void) {
  for (struct gate_slot *slot = atomic_load(&slots); slot; slot = slot->next) {
    atomic_store(&slot->in_flight, 0);
    atomic_store(&slot->waits, 0);
    atomic_store(&slot->calls, atomic_load(&slot->calls) % GATE_NESTED);
    atomic_store(&slot->thread, slot == gate_slot ? (int32_t)syscall(SYS_gettid) : 0);
  }
}
