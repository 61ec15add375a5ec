/* played_clock.h - time passes for a scheduler, and what is due happens at its time. */
#ifndef GS_TEST_PLAYED_CLOCK_H
#define GS_TEST_PLAYED_CLOCK_H

#include <stdbool.h>

#include "core/scheduler.h"

/* True: the next thing that is due by end_ns has happened, and the change is to be executed. False: there is
 * none, and it is end_ns. */
static inline bool clock_goes_on(struct scheduler *scheduler, uint64_t *now_ns, uint64_t end_ns,
                                 struct sched_change *change) {
  uint64_t due_ns = scheduler_deadline_ns(scheduler);
  if (due_ns > end_ns) {
    *now_ns = end_ns;
    return false;
  }
  *now_ns = due_ns > *now_ns ? due_ns : *now_ns;
  scheduler_expire(scheduler, *now_ns, change);
  return true;
}

#endif
