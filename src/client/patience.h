/*
 * patience.h - how long a pause must last before it is believed to go on: learnt from how the last ones that
 * were believed went on. Who believes none before it has lasted as long as a mistake costs loses twice the
 * least possible at most; a history makes that wait short where pauses are long.
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
};

/* Between these bounds; the latter where nothing is known. */
static inline uint64_t patience_ns(const struct patience *patience, uint64_t least_ns, uint64_t most_ns) {
  uint64_t ns = patience->ns && patience->ns < most_ns ? patience->ns : most_ns;
  return ns < least_ns ? least_ns : ns;
}

/* A pause that was believed has gone on for long, or has not. */
static inline void patience_learn(struct patience *patience, bool went_on, uint64_t least_ns,
                                  uint64_t most_ns) {
  uint64_t ns = patience_ns(patience, least_ns, most_ns);
  patience->ns = went_on ? ns / PATIENCE_STEP : ns * PATIENCE_STEP;
  patience->ns = patience_ns(patience, least_ns, most_ns);
}

#endif
