/*
 * condition.h - a condition variable for threads of the program: a wait is no cancellation point, and a
 * signal handler may leave it by a jump (siglongjmp), which pthread_cond_t does not survive. All zero is a
 * fresh one.
 */
#ifndef GS_CONDITION_H
#define GS_CONDITION_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/futex.h"
#include "common/lock.h"

struct condition {
  _Atomic uint32_t changes; /* futex */
  bool awaited;             /* under the lock; a thread may have begun to wait since the last change */
};

/* Wait, the lock held, until woken or past deadline_ns (UINT64_MAX: none), or for no reason. False once the
 * deadline has passed. Keeps errno. */
static inline bool condition_wait(struct condition *condition, struct lock *lock, uint64_t deadline_ns) {
  int saved = errno;
  uint32_t seen = atomic_load(&condition->changes);
  uint64_t now_ns = deadline_ns == UINT64_MAX ? 0 : clock_now_ns();
  condition->awaited = true;
  lock_release(lock);
  if (now_ns < deadline_ns)
    futex_wait(&condition->changes, seen, deadline_ns == UINT64_MAX ? UINT64_MAX : deadline_ns - now_ns);
  lock_take(lock);
  errno = saved;
  return deadline_ns == UINT64_MAX || atomic_load(&condition->changes) != seen ||
         clock_now_ns() < deadline_ns;
}

/* With the lock held. Costs nothing where nobody waits. */
static inline void condition_wake_all(struct condition *condition) {
  if (!condition->awaited)
    return;
  condition->awaited = false;
  atomic_fetch_add(&condition->changes, 1);
  futex_wake(&condition->changes, INT32_MAX);
}

#endif
