/* chance.h - random numbers of the usual kinds. */
#ifndef GS_PLANTS_CHANCE_H
#define GS_PLANTS_CHANCE_H

#include <math.h>

#include "common/splitmix.h"

/* Above 0, up to 1. */
static inline double chance_uniform(uint64_t *state) {
  return ((double)(splitmix_next(state) >> 11) + 1) / 0x1p53;
}

static inline double chance_exponential(uint64_t *state, double mean) {
  return -mean * log(chance_uniform(state));
}

/* Mean 0, deviation 1. */
static inline double chance_normal(uint64_t *state) {
  return sqrt(-2 * log(chance_uniform(state))) * cos(2 * M_PI * chance_uniform(state));
}

/* Mean 1; of normal shape, cut at a tenth. */
static inline double chance_around_one(uint64_t *state, double deviation) {
  return fmax(1 + deviation * chance_normal(state), 0.1);
}

#endif
