/* quantile.h - what a part of some values does not exceed, between two of them in proportion. */
#ifndef GS_BENCH_QUANTILE_H
#define GS_BENCH_QUANTILE_H

#include <stdlib.h>

static inline int quantile_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the values; count > 0. */
static inline double quantile(double *values, size_t count, double part) {
  qsort(values, count, sizeof *values, quantile_compare);
  double at = part * (double)(count - 1);
  size_t below = (size_t)at, above = below + 1 < count ? below + 1 : below;
  return values[below] + (at - (double)below) * (values[above] - values[below]);
}

static inline double median(double *values, size_t count) { return quantile(values, count, 0.5); }

#endif
