/*
 * judge.h - how well the controller does on a plant, against the best constant limit: the largest with which
 * production keeps 0.98 of its speed, found by trying limits on the same plant.
 */
#ifndef GS_PLANTS_JUDGE_H
#define GS_PLANTS_JUDGE_H

#include "plants/plant.h"

#define JUDGE_RUN_S 60.0

struct judge_best {
  double limit[PLANT_PHASES]; /* of the whole GPU, in each phase */
};

struct judge_verdict {
  double converge_s;   /* from the start until the limit stays within 10 % of the best for 2 s; or the rest */
  double reconverge_s; /* the same from a change of phase; the longest; 0: no change */
  double sawtooth; /* the deepest fall of the limit within 5 s, relative to its peak, once converged, or after
                      10 s */
  double loss;     /* of production's speed, over the run */
  double harvest;  /* of opportunistic GPU time, over what the best limits would have given from the start */
};

void judge_find_best(const struct plant *plant, uint64_t seed, struct judge_best *best);

/* Under the controller, or another regime. */
void judge_run(const struct plant *plant, const struct plant_regime *regime, const struct judge_best *best,
               uint64_t seed, struct judge_verdict *verdict);

#endif
