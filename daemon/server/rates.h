/*
 * rates.h - how the jobs of a GPU run beside each other when they run at the same time: what SHARE tells each
 * of them. Weights become time slices; opportunistic jobs have what the controller (core/rate.h) leaves them
 * beside production jobs, or what has been set by hand, of which the controller knows nothing.
 *
 * Times: as the scheduler's.
 */
#ifndef GS_RATES_H
#define GS_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/rate.h"
#include "core/scheduler.h"

/* As in GS_SHARE. */
struct rates_share {
  uint32_t share_ppm, slice_us;
  enum gs_watch watch;
};
#define RATES_SHARE_NONE ((struct rates_share){.share_ppm = GS_SHARE_ALL}) /* until it is told one */

/* A client on the GPU. */
struct rates_job {
  struct list link;              /* of all; */
  struct list guest_link;        /* and of those that the controller limits */
  const struct sched_job *sched; /* NULL: it has not come yet */
  enum gs_class class;
  bool rests;           /* an opportunistic one: it has no work, as it says */
  bool works;           /* and has the GPU, and work */
  bool sliced;          /* slices hold for it, as it says */
  uint32_t set_percent; /* 0: none, or it is not opportunistic */
  uint32_t part_ppm;    /* of an opportunistic one: its part of the present trial */
  struct rate_job job;  /* of a production job */
  struct rates_share told;
};

/* The job's share or limit is another one than it was told last. False: it leaves what it was told unread,
 * and is told again later. */
typedef bool rates_tell_f(struct rates_job *job, uint64_t now_ns);

/* Of a GPU. */
struct rates {
  struct rate_gpu gpu;
  struct list jobs, guests;
  unsigned job_count;
  unsigned unsliced_count;      /* production and opportunistic jobs for which slices don't hold */
  unsigned working_count;       /* opportunistic jobs that work */
  unsigned opportunistic_count; /* all of them, those with a limit by hand included */
  uint64_t changes;             /* of the controller, that jobs are told of */
  struct list *next;            /* the job that is told of that next; the list's end: all have been */
  unsigned untold;              /* how many have yet to be looked at, from there on around the list */
  uint64_t again_ns;            /* when those are tried again that left theirs unread; RATE_NEVER */
  uint32_t production_id;       /* whom others are limited for, as of then; 0: nobody */
  rates_tell_f *tell;
};

void rates_init(struct rates *rates, rates_tell_f *tell);

/* A standard job, of whom all that it was to hear first has been sent. */
void rates_enter(struct rates *rates, struct rates_job *job, const struct sched_job *sched);
void rates_leave(struct rates *rates, struct rates_job *job, uint64_t now_ns);

/* Its class, weight and rate are these. */
void rates_set_terms(struct rates *rates, struct rates_job *job, const struct sched_terms *terms,
                     uint64_t now_ns);

/* It may have got the GPU, or lost it; or turns begin, or end. */
void rates_on_state(struct rates *rates, struct rates_job *job, uint64_t now_ns);

/* Slices hold for it, or do not. */
void rates_on_sliced(struct rates *rates, struct rates_job *job, bool sliced, uint64_t now_ns);

/* It has told how it gets on. */
void rates_on_progress(struct rates *rates, struct rates_job *job, const struct rate_progress *progress,
                       uint64_t now_ns);

/* A change is told to so many jobs at once, and to others in slices of the same size, which are due at once:
 * so no event takes long however many jobs there are, and who is told changes is told what is true by then.
 */
#define RATES_SLICE 32

uint64_t rates_deadline_ns(const struct rates *rates);
void rates_on_time(struct rates *rates, uint64_t now_ns);

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
