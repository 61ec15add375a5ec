/*
 * plant.h - a GPU in virtual time that production jobs and opportunistic jobs share, to try the controller of
 * daemon/core/rate.h on: what a limit costs production is known here by construction, or can be tried out.
 */
#ifndef GS_PLANTS_PLANT_H
#define GS_PLANTS_PLANT_H

#include "plants/worker.h"

#define PLANT_WORKERS 3
#define PLANT_GUESTS 8
#define PLANT_PHASES 4

/* How the GPU is shared. */
enum plant_sharing {
  PLANT_SLICES,   /* one process at a time, in slices of 2 ms while several have work */
  PLANT_TOGETHER, /* at the same time: production loses what guests use beyond what it leaves over */
};

struct plant_phase {
  double from_s;
  struct worker_kind workers[PLANT_WORKERS];
  double leftover, slope; /* PLANT_TOGETHER: speed = 1 - slope * (use - leftover), if that is less than 1 */
};

struct plant {
  const char *name;
  enum plant_sharing sharing;
  unsigned workers, guests;
  double demand[PLANT_GUESTS]; /* of the GPU that each guest wants; 0: all of it */
  double kernel_s;             /* of guests: what passes the limit as a whole; 0: half a millisecond */
  struct plant_phase phases[PLANT_PHASES];
  unsigned phase_count;
};

extern const struct plant plants[];
extern const unsigned plant_count;

/* NULL: there is none of that name. */
const struct plant *plant_find(const char *name);

/* What limits the guests. */
struct plant_regime {
  bool controlled;            /* by the controller; or */
  double limit[PLANT_PHASES]; /* all together, of the whole GPU, in each phase */
  bool free_in_rests;         /* no limit while no worker works */
};

/* After each tick of the controller, or as often without it. */
struct plant_tick {
  double now_s, limit; /* of all guests, of the whole GPU; at most what they can use */
  double guest_limit[PLANT_GUESTS];
  bool limited; /* not free, and not merely waiting for what has come back */
  enum rate_state state;
  enum rate_reason reason;
};

typedef void (*plant_watch_fn)(void *context, const struct plant_tick *tick);

struct plant_outcome {
  double own_s[PLANT_WORKERS], worked_s[PLANT_WORKERS];
  double harvested_s[PLANT_GUESTS]; /* GPU time */
};

/* watch may be NULL. */
void plant_run(const struct plant *plant, const struct plant_regime *regime, double from_s, double to_s,
               uint64_t seed, plant_watch_fn watch, void *context, struct plant_outcome *outcome);

/* The part of its speed that the worker that loses most has lost. */
double plant_loss(const struct plant *plant, const struct plant_outcome *outcome);
double plant_harvest_s(const struct plant *plant, const struct plant_outcome *outcome);

#endif
