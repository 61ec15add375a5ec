/* slots.c - one slot per submitting thread, so that the hot path shares no written cache line. */
#include "gate/slots.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/futex.h"
#include "common/log.h"

__thread struct gate_slot *gate_slot;
_Atomic bool gate_needs_fence = true; /* until membarrier is known to work */

/* All slots ever made; they are reused, never freed, so walking the list needs no lock. */
static struct gate_slot *_Atomic slots;
static _Atomic uint32_t departures; /* futex: changes when a call leaves while a gate is shut */

static pthread_key_t exit_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

/* The thread ends: its slot is free for the next one. Its counts stay in the slot. */
static void release_slot(void *value) {
  struct gate_slot *slot = value;
  gate_slot = NULL;
  uint64_t calls = atomic_load_explicit(&slot->calls, memory_order_relaxed);
  atomic_store_explicit(&slot->calls, calls % GATE_NESTED, memory_order_relaxed);
  atomic_store_explicit(&slot->waits, 0, memory_order_relaxed);
  atomic_store_explicit(&slot->in_flight, 0, memory_order_relaxed);
  atomic_store_explicit(&slot->thread, 0, memory_order_release);
}

__attribute__((constructor)) static void choose_ordering(void) {
  atomic_store(&gate_needs_fence, membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0);
}

static void make_key(void) { pthread_key_create(&exit_key, release_slot); }

static struct gate_slot *reuse_slot(int32_t tid) {
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next) {
    int32_t free = 0;
    if (atomic_compare_exchange_strong(&slot->thread, &free, tid))
      return slot;
  }
  return NULL;
}

static struct gate_slot *make_slot(int32_t tid) {
  static struct gate_slot
      fallback; /* shared by all threads when memory is out: counts are then approximate */
  struct gate_slot *slot =
      mmap(NULL, sizeof *slot, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slot == MAP_FAILED) {
    log_error("out of memory for a thread's gate");
    return &fallback;
  }
  atomic_store_explicit(&slot->thread, tid, memory_order_relaxed);
  struct gate_slot *head = atomic_load_explicit(&slots, memory_order_relaxed);
  do
    slot->next = head;
  while (!atomic_compare_exchange_weak(&slots, &head, slot));
  return slot;
}

struct gate_slot *slots_mine(void) {
  if (gate_slot)
    return gate_slot;
  pthread_once(&once, make_key);
  int32_t tid = (int32_t)syscall(SYS_gettid);
  struct gate_slot *slot = reuse_slot(tid);
  if (!slot)
    slot = make_slot(tid);
  pthread_setspecific(exit_key, slot);
  gate_slot = slot;
  return slot;
}

void slots_notify(void) {
  atomic_fetch_add(&departures, 1);
  futex_wake(&departures, INT32_MAX);
}

void slots_barrier(void) {
  atomic_thread_fence(memory_order_seq_cst);
  if (atomic_load(&gate_needs_fence) || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
    return;
  atomic_store(&gate_needs_fence,
               true); /* forbidden since it was registered for: threads that pass fence from now on */
  membarrier(MEMBARRIER_CMD_GLOBAL);
}

/* A thread that was killed or cancelled inside the driver never leaves: it is not waited for. */
static bool is_gone(int32_t tid) {
  return tid == 0 || (syscall(SYS_tgkill, getpid(), tid, 0) != 0 && errno == ESRCH);
}

static uint64_t calls_of(struct gate_slot *slot) {
  return atomic_load_explicit(&slot->calls, memory_order_relaxed) % GATE_NESTED;
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

bool slots_wait_empty(uint64_t timeout_ns) {
  uint64_t now_ns = clock_now_ns();
  uint64_t deadline_ns = timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    if (!wait_for_slot(slot, deadline_ns))
      return false;
  return true;
}

uint64_t gate_calls(void) {
  uint64_t sum = 0;
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    sum += calls_of(slot);
  return sum;
}

void gate_counts(CUdevice device, uint64_t counts[GATE_COUNTS]) {
  memset(counts, 0, GATE_COUNTS * sizeof *counts);
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    for (enum gate_count i = 0; i < GATE_COUNTS; i++)
      counts[i] += atomic_load_explicit(&slot->counts[device][i], memory_order_relaxed);
}

bool gate_in_flight(void) {
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    if (atomic_load_explicit(&slot->in_flight, memory_order_acquire))
      return true;
  return false;
}

void gate_wait_begin(CUdevice device, uint32_t what) {
  struct gate_slot *slot = slots_mine();
  atomic_store(&slot->waits_for, device);
  atomic_store(&slot->waits, what);
}

void gate_wait_end(void) { atomic_store(&slots_mine()->waits, 0); }

uint32_t gate_waits(CUdevice device, uint32_t what) {
  uint32_t count = 0;
  for (struct gate_slot *slot = atomic_load_explicit(&slots, memory_order_acquire); slot; slot = slot->next)
    count += (atomic_load(&slot->waits) & what) && atomic_load(&slot->waits_for) == device;
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
