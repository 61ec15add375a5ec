/*
 * paired.h - the same measured with something and without it, again and again: each pair gives a ratio, and
 * their median counts, so that neither a slow change of the machine nor a disturbance of some of them is
 * taken for a difference. Its error is told by how far the middle half of the ratios lies apart.
 */
#ifndef GS_BENCH_PAIRED_H
#define GS_BENCH_PAIRED_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAIRED_MAX 10000
#define PAIRED_LEAST 8 /* the error of fewer can't be told */

struct paired {
  unsigned count;
  double with[PAIRED_MAX], without[PAIRED_MAX];
};

static inline int paired_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Of sorted values: what a part of them does not exceed, between two of them in proportion. */
static inline double paired_quantile(const double *sorted, unsigned count, double part) {
  double at = part * (count - 1);
  unsigned below = (unsigned)at, above = below + 1 < count ? below + 1 : below;
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

struct paired_spread {
  double low, median, high; /* quartiles */
};

static inline struct paired_spread paired_spread(const double *values, unsigned count) {
  static double sorted[PAIRED_MAX];
  memcpy(sorted, values, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, paired_compare);
  return (struct paired_spread){.low = paired_quantile(sorted, count, 0.25),
                                .median = paired_quantile(sorted, count, 0.5),
                                .high = paired_quantile(sorted, count, 0.75)};
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
