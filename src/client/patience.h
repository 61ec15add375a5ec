/*
 * patience.h - how long a pause must last before it is believed to go on: learnt from how the last ones that
 * were believed went on. Who believes none before it has lasted as long as a mistake costs loses twice the
 * least possible at most; a history makes that wait short where pauses are long. Where some are short all the
 * same, the wait stays longer than these, until waiting has cost as much as one more mistake would.
 *
 * Threading: none; the caller serializes.
 */
#ifndef GS_PATIENCE_H
#define GS_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#define PATIENCE_STEP 4

/* All zero: nothing has been learnt. */
struct patience {
  uint64_t ns;
  uint64_t floor_ns; /* twice the last pause that was believed in vain; 0: it was as long as a mistake */
  uint64_t lost_ns;  /* by waiting, since the floor has changed */
};

/* Between these bounds; the latter where nothing is known. */
static inline uint64_t patience_ns(const struct patience *patience, uint64_t least_ns, uint64_t most_ns) {
  uint64_t ns = patience->ns > patience->floor_ns ? patience->ns : patience->floor_ns;
  ns = ns && ns < most_ns ? ns : most_ns;
  return ns < least_ns ? least_ns : ns;
}

/* A pause that was believed has gone on for long, or has not. */
static inline void patience_learn(struct patience *patience, bool went_on, uint64_t least_ns,
                                  uint64_t most_ns) {
  uint64_t ns = patience_ns(patience, least_ns, most_ns);
  patience->ns = went_on ? ns / PATIENCE_STEP : ns * PATIENCE_STEP;
  patience->ns = patience_ns(patience, least_ns, most_ns);
}

/* A pause that was believed has ended after all, so long after that. A mistake costs most_ns, less what it
 * has lasted: one that has lasted half of that is none, as jobs that are asked by turns pause about as long
 * as that. */
static inline void patience_end(struct patience *patience, uint64_t rest_ns, uint64_t least_ns,
                                uint64_t most_ns) {
  uint64_t waited_ns = patience_ns(patience, least_ns, most_ns);
  if (rest_ns < most_ns / 2) {
    uint64_t floor_ns = 2 * (waited_ns + rest_ns);
    *patience = (struct patience){.floor_ns = floor_ns < most_ns ? floor_ns : 0};
    return;
  }
  patience->lost_ns += waited_ns;
  if (patience->lost_ns >= most_ns)
    patience->floor_ns /= 2, patience->lost_ns = 0;
  patience_learn(patience, true, least_ns, most_ns);
}

#endif
