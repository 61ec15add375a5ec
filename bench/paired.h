/*
 * paired.h - the same measured with something and without it, again and again: each pair gives a ratio, and
 * their median counts, so that neither a slow change of the machine nor a disturbance of some of them is
 * taken for a difference. Its error is told by how far the middle half of the ratios lies apart.
 */
#ifndef GS_BENCH_PAIRED_H
#define GS_BENCH_PAIRED_H

#include <math.h>
#include <string.h>

#include "quantile.h"

#define PAIRED_MAX 10000
#define PAIRED_LEAST 8 /* the error of fewer can't be told */

struct paired {
  unsigned count;
  double with[PAIRED_MAX], without[PAIRED_MAX];
};

struct paired_spread {
  double low, median, high; /* quartiles */
};

static inline struct paired_spread paired_spread(const double *values, unsigned count) {
  static double sorted[PAIRED_MAX];
  memcpy(sorted, values, count * sizeof *sorted);
  return (struct paired_spread){.low = quantile(sorted, count, 0.25),
                                .median = median(sorted, count),
                                .high = quantile(sorted, count, 0.75)};
}

/* With over without. Of at least one pair. */
static inline struct paired_spread paired_ratio(const struct paired *pairs) {
  static double ratios[PAIRED_MAX];
  for (unsigned i = 0; i < pairs->count; i++)
    ratios[i] = pairs->with[i] / pairs->without[i];
  return paired_spread(ratios, pairs->count);
}

/* The standard error of the median. A normal distribution's quartiles lie 1.349 standard deviations apart,
 * and its median scatters by sqrt(pi / 2) of what its mean does. */
static inline double paired_error(const struct paired_spread *ratio, unsigned count) {
  if (count < PAIRED_LEAST)
    return INFINITY;
  return sqrt(acos(-1) / 2 / count) * (ratio->high - ratio->low) / 1.349;
}

#endif
