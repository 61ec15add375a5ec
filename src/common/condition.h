/* condition.h - a condition variable whose deadlines are on the one clock (clock.h). */
#ifndef GS_CONDITION_H
#define GS_CONDITION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/clock.h"

struct condition {
  pthread_cond_t cond;
};

static inline void condition_init(struct condition *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&condition->cond, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* Wait, the lock held, until woken or past deadline_ns (UINT64_MAX: none). False once the deadline has
 * passed. */
static inline bool condition_wait(struct condition *condition, pthread_mutex_t *lock, uint64_t deadline_ns) {
  if (deadline_ns == UINT64_MAX)
    return pthread_cond_wait(&condition->cond, lock) == 0;
  struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                              .tv_nsec = (long)(deadline_ns % NS_PER_S)};
  return pthread_cond_timedwait(&condition->cond, lock, &deadline) == 0;
}

static inline void condition_wake_all(struct condition *condition) {
  pthread_cond_broadcast(&condition->cond);
}

#endif
