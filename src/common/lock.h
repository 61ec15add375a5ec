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

/* Of this thread. */
struct lock_held {
  unsigned count;   /* locks that it holds, or is about to take or has just released */
  int cancellation; /* state before the first of them */
};
extern __thread struct lock_held lock_held __attribute__((tls_model("initial-exec"), visibility("hidden")));

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

static inline void lock_take(pthread_mutex_t *lock) {
  lock_enter();
  pthread_mutex_lock(lock);
}

static inline bool lock_try(pthread_mutex_t *lock) {
  lock_enter();
  if (pthread_mutex_trylock(lock) == 0)
    return true;
  lock_leave();
  return false;
}

static inline void lock_release(pthread_mutex_t *lock) {
  pthread_mutex_unlock(lock);
  lock_leave();
}

/* Whether this is a signal handler that has interrupted its thread where that holds a lock. */
static inline bool lock_is_inside(void) { return lock_held.count > 0; }

#endif
