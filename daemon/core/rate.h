/*
 * rate.h - how much of a GPU opportunistic jobs may use beside production jobs: one level per GPU, found by
 * additive increase and multiplicative decrease in an experiment that goes on as long as production works.
 * docs/RATE.md has the rules.
 *
 * Pure: no clock, no allocation, no I/O. The caller owns the structs, tells what happens, and calls
 * rate_on_time() at until_ns. What the opportunistic jobs may do together is rate_duty() and the slices:
 * they change only when `changes` does.
 *
 * What production jobs tell is not believed: figures that can't be cost the job's own window of the
 * experiment, and all that a lie can do is to make opportunistic jobs wait.
 */
#ifndef GS_RATE_H
#define GS_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"

#define RATE_NEVER UINT64_MAX
#define RATE_SETTLE_NS UINT64_C(50000000) /* shorter work of production is never disturbed */
#define RATE_SILENT_NS                                                                                       \
  UINT64_C(1000000000) /* a job that works and says nothing for so long does not count                       \
                        */
#define RATE_WINDOW_MOST_NS UINT64_C(3000000000) /* a window ends then, whatever it has seen */
#define RATE_WATCHED_MOST 64 /* beside more production jobs nothing is tried out: opportunistic jobs wait */

/* Levels: up to the knee the part of the time grows; beyond it the ratio of the opportunistic jobs' slices to
 * the others', from 1:500 up to 1:1: first the former grow, then the latter shrink. Why not longer ones: an
 * iteration of production that meets one is as much longer. Why not shorter ones of both: two changes of who
 * runs cost 0.35 ms (H100). */
#define RATE_LEVEL_LEAST 0.01
#define RATE_LEVEL_KNEE 0.5
#define RATE_LEVEL_FIRST 0.5  /* slices alone bound the harm, and no stop costs anything */
#define RATE_LEVEL_UNSURE 0.1 /* where they don't, or it can't be told what production loses */
#define RATE_SLICE_LEAST_US 200
#define RATE_SLICE_MOST_US 1000
#define RATE_LONG_SLICE_US 100000 /* of a job of the usual weight that is not opportunistic */

#define RATE_TOLERANCE 0.02 /* the part of its speed that production may lose */
#define RATE_AIM 0.0175     /* what is steered for */

enum rate_state {
  RATE_FREE,     /* no production job works, or one of the classes is not there */
  RATE_SETTLING, /* production has just begun to work: opportunistic jobs stand still */
  RATE_CONTROL,  /* what it does while they stand still is measured */
  RATE_TRIAL,    /* and what it does beside them, at this level */
  RATE_CROWDED,  /* more production jobs than RATE_WATCHED_MOST, and one works */
};

/* As GS_PROGRESS tells it. */
struct rate_progress {
  uint64_t submissions, active_ns;
  uint64_t mark_submissions, mark_active_ns;
  bool active;
};

/* From one point of a job's progress to another. */
struct rate_span {
  unsigned points; /* 0, 1, or 2: two and more */
  uint64_t first_submissions, first_ns, last_submissions, last_ns;
};

/* A production job. */
struct rate_job {
  struct list link;
  bool holds;  /* the GPU, as the caller says: who waits for its turn loses nothing by others */
  bool heard;  /* it has told of its progress */
  bool active; /* it holds the GPU, and works, as it has said lately */
  struct rate_progress last;
  uint64_t heard_ns;
  uint64_t marked_ns; /* active_ns of its last mark in the middle of an activity; 0: none */
  /* The present window. */
  bool spoilt;                     /* what it tells makes no sense */
  uint64_t from_ns;                /* active_ns from which this stretch counts */
  struct rate_span reports, marks; /* in this stretch */
  double work, time_s;             /* in earlier stretches */
  /* The experiment. */
  double control, trial; /* submissions per second of the last windows; below 0: not known */
  unsigned pairs;        /* losses seen at this level; their mean, and sum of squares around it */
  double mean, squares;
  bool shocked;                /* one of them was large */
  double noise, noise_freedom; /* sum of squares at earlier levels, and its degrees of freedom */
};

struct rate_gpu {
  struct list production;
  unsigned production_count, active_count;
  bool guests;      /* there are opportunistic jobs */
  bool guests_work; /* one of them has the GPU, and work */
  bool bounded;     /* slices of time hold for all: those of production are long */
  enum rate_state state;
  uint64_t until_ns; /* when something is due. Output */
  uint64_t changes;  /* counts what is of interest to opportunistic jobs. Output */
  double level;
  bool found;          /* slow start is over */
  bool tried;          /* the last window was a trial */
  bool trial;          /* the present window is one; kept while production rests */
  unsigned pairs;      /* of windows at this level */
  uint64_t stretch_ns; /* since when the window goes on without a break */
  uint64_t spent_ns;   /* of earlier stretches */
  uint64_t used_ns;    /* of the window, in which opportunistic jobs worked, */
  uint64_t used_to_ns; /* up to then */
  uint64_t least_ns;   /* how long it shall last */
  uint64_t random;
};

void rate_gpu_init(struct rate_gpu *gpu);

/* A new production job: it does not work until it says so. */
void rate_job_add(struct rate_gpu *gpu, struct rate_job *job, bool holds, uint64_t now_ns);
void rate_job_remove(struct rate_gpu *gpu, struct rate_job *job, uint64_t now_ns);
void rate_job_holds(struct rate_gpu *gpu, struct rate_job *job, bool holds, uint64_t now_ns);

/* Whether there are opportunistic jobs. While there are none, nothing that is told counts. */
void rate_set_guests(struct rate_gpu *gpu, bool guests, uint64_t now_ns);

/* Whether any of them has the GPU, and work (they do, unless told otherwise). A trial without it says
 * nothing. */
void rate_guests_work(struct rate_gpu *gpu, bool work, uint64_t now_ns);

/* Whether slices hold for all jobs (they do, unless told otherwise). */
void rate_set_bounded(struct rate_gpu *gpu, bool bounded);

void rate_progress(struct rate_gpu *gpu, struct rate_job *job, const struct rate_progress *progress,
                   uint64_t now_ns);
void rate_on_time(struct rate_gpu *gpu, uint64_t now_ns);

/* The part of the time in which opportunistic jobs may run now, all together; in a trial; their slice, and
 * that of the other jobs. */
double rate_duty(const struct rate_gpu *gpu);
double rate_level_duty(const struct rate_gpu *gpu);
uint32_t rate_slice_us(const struct rate_gpu *gpu);
uint32_t rate_long_slice_us(const struct rate_gpu *gpu);

#endif
