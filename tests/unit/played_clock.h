/* played_clock.h - time passes for a scheduler, and what is due happens at its time; clients that take none.
 */
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

/* When there is something to do, as known, is when there would be if it were looked for. */
static inline bool clock_is_right(const struct scheduler *scheduler) {
  uint64_t known_ns = scheduler_deadline_ns(scheduler);
  list_each(node, &scheduler->gpus) { list_entry(node, struct sched_gpu, link)->deadline_known = false; }
  return scheduler_deadline_ns(scheduler) == known_ns;
}

/* Clients that do everything at once: who is told to stop does so, and asks again; who is granted runs. */
static inline void clock_obey(struct sched_change *change, uint64_t now_ns) {
  struct sched_action action;
  while (change_next(change, &action)) {
    struct sched_job *job = action.job;
    if (action.type == SCHED_TELL_LOCK_OK) {
      scheduler_active(job, &(struct sched_active){.epoch = job->epoch}, now_ns, change);
    } else if (action.type == SCHED_TELL_DROP_LOCK) {
      scheduler_release(job, &(struct sched_release){.epoch = job->epoch}, now_ns, change);
      scheduler_request(job, now_ns, change);
    }
  }
}

#endif
