/*
 * plant.h - a GPU in virtual time: production jobs, others beside them, and the controller (core/rate.h)
 * between them, or a level that stays.
 *
 * Time goes in steps of PLANT_STEP_S. What a production job loses for the time in which others run:
 *   where they come into its gaps, by their slice: loss_least at RATE_SLICE_LEAST_US, loss_most at
 *   RATE_SLICE_MOST_US, and in a line between them;
 *   where it is full, that is without gaps, what the slices of both say, and PLANT_CHANGE_US each time.
 * Likewise what others have of the GPU meanwhile (gain); while production rests they have all of it.
 */
#ifndef GS_PLANTS_PLANT_H
#define GS_PLANTS_PLANT_H

#include "core/rate.h"

#define PLANT_STEP_S 2e-4
#define PLANT_LATENCY_S 1.2e-3 /* from a SHARE to the stop, or to the first progress */
/* What runs in a part of the time does so in these runs (client/share.c); a stop and a go cost everybody on
 * the GPU so much, as measured on an H100: 250 a second cost a ResNet-50 training 1.6 %. */
#define PLANT_PERIOD_S 20e-3
#define PLANT_RUN_S 2e-3
#define PLANT_TURN_S 60e-6
#define PLANT_CHANGE_US 350 /* from one's slice to another's, and back (H100) */
#define PLANT_WORKERS 2

struct plant_worker {
  double iteration_s;      /* 0: there is none. Of a server: a request */
  double jitter;           /* of each, standard deviation, relative */
  double wander;           /* of the job's own speed, by itself; forgotten in PLANT_WANDER_S */
  bool sync;               /* it submits first, then waits for the end: iterations can be told apart */
  double requests_per_s;   /* 0: a training */
  double work_s, rest_s;   /* it works and rests by turns; 0: always */
  double change_s, change; /* from then on an iteration takes so many times as long; 0: never */
  double loss_least, loss_most;
  bool full;
};
#define PLANT_WANDER_S 1.5

struct plant {
  const char *name;
  struct plant_worker workers[PLANT_WORKERS];
  double gain_least, gain_most;
};

extern const struct plant plants[];
extern const unsigned plant_count;

/* NULL: there is none of this name. */
const struct plant *plant_find(const char *name);

/* Of a time between two calls of the watch. */
struct plant_sight {
  double from_s, to_s;
  double level;
  double own_s[PLANT_WORKERS],
      worked_s[PLANT_WORKERS]; /* what it did, in undisturbed time; the time it took */
  double gained_s;
};
typedef void (*plant_watch_fn)(void *context, const struct plant_sight *sight);

#define PLANT_SIGHT_S 0.1

/* level: NAN: the controller's. */
void plant_run(const struct plant *plant, double level, double run_s, uint64_t seed, plant_watch_fn watch,
               void *context);

#endif
