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
  gauge->ticks = gauge->last = gauge->marked = 0;
  gauge->done[0] = gauge->spent[0] = 0;
}

void gauge_mark(struct rate_gauge *gauge) { gauge->marked = 0; }

void gauge_drop(struct rate_gauge *gauge, unsigned ticks) {
  ticks = min_unsigned(ticks, gauge->ticks);
  gauge->last = place_before(gauge, ticks);
  gauge->ticks -= ticks;
  gauge->marked -= min_unsigned(ticks, gauge->marked);
}

void gauge_push(struct rate_gauge *gauge, double done, double spent) {
  unsigned next = (gauge->last + 1) % (GAUGE_TICKS + 1);
  gauge->done[next] = gauge->done[gauge->last] + done;
  gauge->spent[next] = gauge->spent[gauge->last] + spent;
  gauge->last = next;
  gauge->ticks = min_unsigned(gauge->ticks + 1, GAUGE_TICKS);
  gauge->marked = min_unsigned(gauge->marked + 1, GAUGE_TICKS);
}

void gauge_charge(struct rate_gauge *gauge, double spent_per_done) {
  for (unsigned i = 0; i <= GAUGE_TICKS; i++)
    gauge->spent[i] += spent_per_done * gauge->done[i];
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

double gauge_done(const struct rate_gauge *gauge, unsigned ticks) {
  return growth(gauge, gauge->done, min_unsigned(ticks, gauge->ticks), 0, 1);
}

double gauge_spent(const struct rate_gauge *gauge, unsigned ticks) {
  ticks = min_unsigned(ticks, gauge->ticks);
  return growth(gauge, gauge->spent, ticks, 0, 1);
}

/* Of all windows of that length. */
static double scatter_of(const struct rate_gauge *gauge, unsigned ticks, unsigned length) {
  double squares = 0;
  unsigned windows = 0;
  for (unsigned to = 0; to + length <= ticks; to++) {
    if (growth(gauge, gauge->spent, to + length, to, 1) <= 0)
      continue;
    windows++;
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
  gauge->decay =
      fall > 1 && !gauge->irregular ? fmin(fmax(log2(fall) / scale, DECAY_LEAST), DECAY_MOST) : DECAY_LEAST;
}

static double unevenness_of(const struct rate_gauge *gauge, unsigned ticks) {
  double squares = 0;
  for (unsigned to = 0; to < ticks; to++) {
    double difference =
        growth(gauge, gauge->done, to + 1, to, 1) / gauge->base - growth(gauge, gauge->spent, to + 1, to, 1);
    squares += difference * difference;
  }
  return squares / gauge_spent(gauge, ticks);
}

/* Of two windows beside each other: what changes slowly is nearly the same in both (the Allan deviation). */
static double deviation_beside(const struct rate_gauge *gauge, unsigned length) {
  double squares = 0;
  unsigned pairs = 0;
  for (unsigned to = 0; to + 2 * length <= gauge->base_ticks; to++, pairs++) {
    double before = speed_between(gauge, to + 2 * length, to + length);
    double difference = (before - speed_between(gauge, to + length, to)) / gauge->base;
    squares += difference * difference / 2;
  }
  return pairs > 0 ? sqrt(squares / pairs) : 1;
}

/* Short windows show where iterations happen to end, long ones what changes slowly: the least is neither. */
static double steady_error_of(const struct rate_gauge *gauge) {
  double least = 1;
  for (unsigned length = 1; 8 * length <= gauge->base_ticks; length *= 2)
    least = fmin(least, deviation_beside(gauge, length) * sqrt((double)length / gauge->base_ticks));
  return least;
}

static double uneven_error(const struct rate_gauge *gauge, double spent) {
  return spent > 0 ? fmax(sqrt(gauge->unevenness / spent), ERROR_LEAST) : 1;
}

/* Between two lengths that were learnt, and beyond the longest: by the power law. */
double gauge_error(const struct rate_gauge *gauge, unsigned ticks) {
  if (gauge->independent)
    return uneven_error(gauge, gauge_spent(gauge, ticks));
  unsigned scale = longest_scale(gauge, ticks);
  double error = gauge->scatter[scale], beyond = log2((double)(ticks > 0 ? ticks : 1) / (1U << scale));
  if (scale + 1 < GAUGE_SCALES && 4U << (scale + 1) <= gauge->base_ticks && gauge->scatter[scale + 1] < error)
    error *= pow(gauge->scatter[scale + 1] / error, beyond);
  else
    error *= exp2(-beyond * gauge->decay);
  return error > ERROR_LEAST ? error : ERROR_LEAST;
}

/* What any of the lengths tells, were their windows independent: by chance those of one agree better than
 * they would again. */
static double irregular_error(const struct rate_gauge *gauge) {
  unsigned longest = longest_scale(gauge, gauge->base_ticks);
  double sum = 0;
  for (unsigned scale = 0; scale <= longest; scale++)
    sum += gauge->scatter[scale] * sqrt((double)(1U << scale) / gauge->base_ticks);
  return fmax(sum / (longest + 1), ERROR_LEAST);
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
  gauge->unevenness = unevenness_of(gauge, gauge->base_ticks);
  gauge->base_error = gauge->irregular ? irregular_error(gauge) : gauge_error(gauge, gauge->base_ticks);
  gauge->beside_error = M_SQRT2 * deviation_beside(gauge, GAUGE_BESIDE);
  gauge->steady_error = steady_error_of(gauge);
  return true;
}

double gauge_base_error(const struct rate_gauge *gauge) { return gauge->base_error; }

double gauge_wander(const struct rate_gauge *gauge) {
  return gauge->scatter[longest_scale(gauge, gauge->base_ticks)];
}

void gauge_expect(struct rate_gauge *gauge, double base, double error) {
  double learnt = 1 / (gauge_base_error(gauge) * gauge_base_error(gauge)), expected = 1 / (error * error);
  gauge->base = (learnt * gauge->base + expected * base) / (learnt + expected);
  gauge->base_error = sqrt(1 / (learnt + expected));
}
