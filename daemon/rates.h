/*
 * rates.h - what opportunistic jobs may use of a GPU beside production jobs: between the jobs' meter pages
 * and the controller (core/rate.h), which is asked only while both classes are there. Nobody reads or writes
 * the pages otherwise, but for the limits that have been set by hand: those are in force in any case, and the
 * controller knows nothing of their jobs.
 *
 * Times: as the scheduler's.
 */
#ifndef GS_RATES_H
#define GS_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/rate.h"
#include "core/scheduler.h"
#include "meters.h"

#define RATES_NEVER UINT64_MAX

/* Of a GPU. */
struct rates {
  struct rate_gpu gpu;
  uint64_t next_ns; /* the next tick, or the one whose outcome is being told; RATES_NEVER */
  uint32_t
      production_id;    /* whom others are limited for, as of the last tick or change of classes; 0: nobody */
  struct list *telling; /* the job that is told the outcome next, or one list's end; NULL: nobody is left */
  bool both;            /* classes were there at the last tick */
};

/* A client on it. */
struct rates_job {
  const struct sched_job *sched;
  struct meter meter;
  enum gs_class class;
  uint64_t set_limit;  /* ns per s; 0: none, or it is not opportunistic */
  struct rate_job job; /* of the controller's unless it is standard, or its limit is set */
};

void rates_init(struct rates *rates);

/* A standard job, with a page that is yet to be passed. */
void rates_enter(struct rates_job *job, const struct sched_job *sched);
void rates_leave(struct rates *rates, struct rates_job *job, uint64_t now_ns);

/* Its class, and its rate. */
void rates_set_terms(struct rates *rates, struct rates_job *job, const struct sched_terms *terms,
                     uint64_t now_ns);

uint64_t rates_deadline_ns(const struct rates *rates);

/* A step of what is due: a tick, or its outcome is told to so many jobs at most; each is passed to `told`.
 * Returns how many jobs it has looked at, and one; 0: nothing is due. Why in slices: to write a page, and to
 * wake those that wait there, costs more than all else that a tick does for a job. */
#define RATES_SLICE 256
typedef void rates_told_f(struct rates_job *job, uint64_t now_ns);
unsigned rates_on_time(struct rates *rates, uint64_t now_ns, rates_told_f *told);

/* What the job may use, and why. */
struct rates_limit {
  enum gs_limited why;
  uint64_t limit;      /* ns per s, up to GS_LIMITED_WHOLE */
  uint32_t production; /* id of the job that it is for; 0: none */
};
struct rates_limit rates_limit(const struct rates *rates, const struct rates_job *job);

/* Of the GPU's time, what production leaves over for all opportunistic jobs together, in percent, as found
 * last; 100: nobody works, or it is not known. */
uint32_t rates_leftover_percent(const struct rates *rates);

#endif
