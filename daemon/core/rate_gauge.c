/* rate_gauge.c - windows over cumulative sums. */
#include "core/rate_gauge.h"

#include <math.h>

#define DECAY_LEAST 0.5
#define DECAY_MOST 0.75
#define ERROR_LEAST 0.0005 /* a few windows that happen to agree prove no more than that */

static unsigned min_unsigned(unsigned a, unsigned b) { return a < b ? a : b; }

static unsigned place_before(const struct rate_gauge *gauge, unsigned ticks) {
  return (gauge->last + GAUGE_TICKS + 1 - ticks) % (GAUGE_TICKS + 1);
}

void gauge_restart(struct rate_gauge *gauge) {
  gauge->ticks = gauge->last = 0;
  gauge->done[0] = gauge->spent[0] = 0;
}

void gauge_push(struct rate_gauge *gauge, double done, double spent) {
  unsigned next = (gauge->last + 1) % (GAUGE_TICKS + 1);
  gauge->done[next] = gauge->done[gauge->last] + done;
  gauge->spent[next] = gauge->spent[gauge->last] + spent;
  gauge->last = next;
  gauge->ticks = min_unsigned(gauge->ticks + 1, GAUGE_TICKS);
}

/* The growth of a sum from `from` ticks ago to `to` ticks ago, each end the mean of `width` points. An end
 * falls anywhere into an iteration: the mean of several is less moved by where. */
static double growth(const struct rate_gauge *gauge, const double *sums, unsigned from, unsigned to,
                     unsigned width) {
  double sum = 0;
  for (unsigned i = 0; i < width; i++)
    sum += sums[place_before(gauge, to + i)] - sums[place_before(gauge, from - i)];
  return sum / width;
}

static double speed_between(const struct rate_gauge *gauge, unsigned from, unsigned to) {
  unsigned width = 1 + (from - to) / 4;
  double spent = growth(gauge, gauge->spent, from, to, width);
  return spent > 0 ? growth(gauge, gauge->done, from, to, width) / spent : 0;
}

double gauge_speed(const struct rate_gauge *gauge, unsigned ticks) {
  ticks = min_unsigned(ticks, gauge->ticks);
  return ticks > 0 ? speed_between(gauge, ticks, 0) : 0;
}

double gauge_spent(const struct rate_gauge *gauge, unsigned ticks) {
  ticks = min_unsigned(ticks, gauge->ticks);
  return growth(gauge, gauge->spent, ticks, 0, 1);
}

/* Of all windows of that length. */
static double scatter_of(const struct rate_gauge *gauge, unsigned ticks, unsigned length) {
  double squares = 0;
  unsigned windows = 0;
  for (unsigned to = 0; to + length <= ticks; to++, windows++) {
    double difference = speed_between(gauge, to + length, to) / gauge->base - 1;
    squares += difference * difference;
  }
  return windows > 1 ? sqrt(squares / (windows - 1)) : 1;
}

/* Of which there are several beside each other in what was learnt. */
static unsigned longest_scale(const struct rate_gauge *gauge, unsigned ticks) {
  unsigned scale = 0;
  while (scale + 1 < GAUGE_SCALES && 2U << scale <= ticks && 4U << scale <= gauge->base_ticks)
    scale++;
  return scale;
}

/* Independent ticks: 1/2. Iterations as regular as clockwork, of which a window has one more or less: 1; but
 * nothing is as regular for long. */
static void learn_decay(struct rate_gauge *gauge) {
  unsigned scale = longest_scale(gauge, gauge->base_ticks);
  double fall = scale > 0 ? gauge->scatter[0] / gauge->scatter[scale] : 0;
  gauge->decay = fall > 1 ? fmin(fmax(log2(fall) / scale, DECAY_LEAST), DECAY_MOST) : DECAY_LEAST;
}

bool gauge_learn(struct rate_gauge *gauge, unsigned ticks) {
  gauge->base_ticks = min_unsigned(ticks, gauge->ticks);
  gauge->base = gauge_speed(gauge, ticks);
  if (gauge->base <= 0 || gauge->base_ticks < 2)
    gauge->base = 0;
  if (gauge->base <= 0)
    return false;
  for (unsigned i = 0; i < GAUGE_SCALES; i++)
    gauge->scatter[i] = scatter_of(gauge, gauge->base_ticks, 1U << i);
  learn_decay(gauge);
  return true;
}

double gauge_error(const struct rate_gauge *gauge, unsigned ticks) {
  unsigned scale = longest_scale(gauge, ticks);
  double error = gauge->scatter[scale] * pow((double)(1U << scale) / (ticks > 0 ? ticks : 1), gauge->decay);
  return error > ERROR_LEAST ? error : ERROR_LEAST;
}

double gauge_base_error(const struct rate_gauge *gauge) { return gauge_error(gauge, gauge->base_ticks); }
