/*
 * lock.h - mutexes in threads that belong to the program. It may cancel a thread at any time, and its signal
 * handlers may fork: so no thread is cancelled while it holds one of our locks, and a fork can tell that its
 * own thread holds one.
 *
 * A thread that waits for something that may take long holds none (condition.h), as a signal handler may
 * leave the wait by a jump.
 */
#ifndef GS_LOCK_H
#define GS_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Invariant: a thread that holds a lock waits only for locks of a higher rank, so no threads wait for each
 * other in a circle. docs/ARCHITECTURE.md says what each protects. */
enum lock_rank {
  LOCK_RESERVE,
  LOCK_PHYSICAL,
  LOCK_PRIMARY,
  LOCK_OWN_CONTEXT,
  LOCK_MPS,
  LOCK_CLIENT,
  LOCK_CONTEXTS,
  LOCK_STREAMS,
  LOCK_GATE,
  LOCK_CAPTURE,
  LOCK_PREEMPT,
  LOCK_CHANNELS,
  LOCK_GRAPHS,
  LOCK_DEFERRED,
  LOCK_POOLS,
  LOCK_PLAIN_POOLS,
  LOCK_PEERS,
  LOCK_POPULATE,
  LOCK_IPC,
  LOCK_ACCOUNT,
  LOCK_PLACEMENT,
  LOCK_PLACEMENTS,
  LOCK_SPACE_TURN,
  LOCK_SPACE,
  LOCK_BLOCKS,
  LOCK_SLABS_MAKING,
  LOCK_SLABS,
  LOCK_DESCRIPTORS,
  LOCK_HEIRS,
  LOCK_DEFERRED_ADDRESSES,
  LOCK_PHYSICAL_TABLE,
  LOCK_BUDGET,
  LOCK_RANKS,
};

struct lock {
  pthread_mutex_t mutex;
  enum lock_rank rank;
};

/* An initializer: a free lock. */
#define LOCK(its_rank)                                                                                       \
  { .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (its_rank) }

/* Of this thread. */
struct lock_held {
  unsigned count;   /* locks that it holds, or is about to take or has just released */
  int cancellation; /* state before the first of them */
  uint32_t ranks;   /* a bit for each rank that it holds */
};
_Static_assert(LOCK_RANKS <= 32, "a bit for each rank");
extern __thread struct lock_held lock_held __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The thread breaks the invariant. With GS_STRICT in the environment (tests) that ends the process. */
void lock_complain(uint32_t held, enum lock_rank rank);

/* No cancellation until lock_leave; they nest. */
static inline void lock_enter(void) {
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  if (lock_held.count++ == 0)
    lock_held.cancellation = before;
}

static inline void lock_leave(void) {
  int before = lock_held.cancellation;
  if (--lock_held.count == 0)
    pthread_setcancelstate(before, NULL);
}

static inline void lock_note(const struct lock *lock, bool held) {
  uint32_t bit = UINT32_C(1) << lock->rank;
  lock_held.ranks = held ? lock_held.ranks | bit : lock_held.ranks & ~bit;
}

static inline void lock_take(struct lock *lock) {
  if (lock_held.ranks >> lock->rank)
    lock_complain(lock_held.ranks, lock->rank);
  lock_enter();
  pthread_mutex_lock(&lock->mutex);
  lock_note(lock, true);
}

/* After a try. */
static inline bool lock_settle(struct lock *lock, bool taken) {
  if (taken)
    lock_note(lock, true);
  else
    lock_leave();
  return taken;
}

/* False: another thread has it. */
static inline bool lock_try(struct lock *lock) {
  lock_enter();
  return lock_settle(lock, pthread_mutex_trylock(&lock->mutex) == 0);
}

/* False: another thread has had it all the time until then, by the realtime clock. */
static inline bool lock_try_until(struct lock *lock, const struct timespec *until) {
  lock_enter();
  return lock_settle(lock, pthread_mutex_timedlock(&lock->mutex, until) == 0);
}

static inline void lock_release(struct lock *lock) {
  lock_note(lock, false);
  pthread_mutex_unlock(&lock->mutex);
  lock_leave();
}

/* In the child of a fork, where all locks are made anew. */
static inline void lock_fork_child(void) { lock_held.ranks = 0; }

/* Whether this is a signal handler that has interrupted its thread where that holds a lock. */
static inline bool lock_is_inside(void) { return lock_held.count > 0; }

#endif
