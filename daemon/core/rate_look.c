/*
 * rate_look.c - what is seen of a production job when others pause for a moment: whether it is still what it
 * was undisturbed, and whether it was slower while they ran.
 *
 * Some jobs' speed changes by itself from second to second, by more than they may lose. Of those a look tells
 * one thing: what was slower with others and is faster without them, one moment apart, was slowed down by
 * them.
 */
#include <math.h>

#include "core/rate_signal.h"

#define BAND_ERRORS 3.0
#define BAND_LEAST 0.015
#define YOUNG_S 15.0    /* what was measured so lately and holds no longer, has changed by itself */
#define WANDER_MOST 0.4 /* if by no more than that */

/* ---- whether what its kernels lose is felt ---- */

#define SURE_ERRORS 2.0
#define LOOKS_MOST 5 /* then it is believed to be felt: production goes first */

static double squared(double value) { return value * value; }

/* In standard errors: above 0, its speed has followed its kernels'; below, it has not. */
static double evidence(const struct rate_signal *signal) {
  double lost = signal->kernels_lost;
  return lost > 0 ? (signal->felt - lost / 2) / (signal->arrivals.beside_error * sqrt(lost)) : 0;
}

bool signal_feels(const struct rate_signal *signal) { return evidence(signal) > -SURE_ERRORS; }

bool signal_is_undecided(const struct rate_signal *signal) {
  return signal->wander > 0 && signal->ruler != RATE_RULED_BY_WAITS && signal->kernels.base > 0 &&
         signal->looks < LOOKS_MOST && fabs(evidence(signal)) < SURE_ERRORS;
}

void signal_look_before(struct rate_signal *signal, unsigned ticks) {
  signal->before = gauge_speed(&signal->arrivals, ticks < GAUGE_BESIDE ? ticks : GAUGE_BESIDE);
  signal->before_kernels = signal->kernels.base > 0 ? signal_kernels_loss(signal, ticks).loss : 0;
  signal->looks++; /* also if it will tell nothing: it would be repeated for ever */
}

/* False: nothing is known of just before. */
static bool take_look(struct rate_signal *signal, double speed) {
  double lost = 1 - signal->before / speed, kernels = fmax(signal->before_kernels, 0);
  if (signal->before <= 0 || speed <= 0)
    return false;
  signal->felt += lost * kernels;
  signal->kernels_lost += squared(kernels);
  signal->before = 0;
  return true;
}

/* ---- whether it is what it was ---- */

static bool is_outside_band(const struct rate_loss *loss) {
  return loss->ticks > 0 &&
         fabs(loss->loss) > fmax(BAND_ERRORS * fmax(loss->error, loss->spread), BAND_LEAST);
}

bool signal_is_outside(const struct rate_signal *signal, unsigned ticks) {
  struct rate_loss loss = signal_loss(signal, ticks), all = signal_arrivals_loss(signal, ticks);
  return is_outside_band(&loss) || (signal->ruler != RATE_RULED_BY_KERNELS && is_outside_band(&all));
}

/* Its host is faster or slower than it was: a submission takes so much more or less besides. */
static void take_host(struct rate_signal *signal) {
  double more_ns = fmax(1 / signal->arrivals.base - 1 / signal->waits.base, -signal->host_ns / 2);
  signal->host_ns += more_ns;
  gauge_charge(&signal->waits, more_ns);
  signal->waits.base = 1 / (1 / signal->waits.base + more_ns);
}

/* What its arrivals are in the last ticks is what they are undisturbed: they have changed by themselves. */
static void take_over(struct rate_signal *signal, unsigned ticks) {
  double speed = gauge_speed(&signal->arrivals, ticks);
  signal->wander = fmax(signal->wander, fabs(speed / signal->arrivals.base - 1));
  signal->arrivals.base = speed;
  if (signal->ruler == RATE_RULED_BY_WAITS)
    take_host(signal);
}

/* Its host is faster, or else it does less for each submission, and then others may make it wait for as long
 * as it waited undisturbed: nobody would see that. */
static bool may_hide_a_loss(const struct rate_signal *signal) {
  return signal->ruler == RATE_RULED_BY_WAITS && 1 - signal->host_ns * signal->waits.base > RATE_TOLERANCE;
}

bool signal_take_faster(struct rate_signal *signal, unsigned ticks) {
  if (signal->wander <= 0 || may_hide_a_loss(signal))
    return false;
  take_over(signal, ticks);
  return true;
}

/* Where waits stand for arrivals. Who waits for as long as ever does the same work, at whatever pace; but of
 * one that does next to nothing meanwhile neither is known. */
static bool look_at_waits(struct rate_signal *signal, unsigned ticks) {
  struct rate_loss waits = signal_loss(signal, ticks), all = signal_arrivals_loss(signal, ticks);
  bool changed = is_outside_band(&all);
  if (is_outside_band(&waits) || (changed && all.loss > WANDER_MOST))
    return true;
  if (changed)
    take_over(signal, ticks);
  return false;
}

bool signal_look(struct rate_signal *signal, unsigned ticks) {
  if (signal->ruler == RATE_RULED_BY_WAITS)
    return look_at_waits(signal, ticks);
  bool arrivals = signal->ruler == RATE_RULED_BY_ARRIVALS;
  struct rate_loss loss = arrivals ? signal_arrivals_loss(signal, ticks) : signal_loss(signal, ticks);
  bool looked = arrivals && take_look(signal, gauge_speed(&signal->arrivals, ticks));
  if (!is_outside_band(&loss))
    return false;
  if (!looked || signal->age_s > YOUNG_S || fabs(loss.loss) > WANDER_MOST)
    return true;
  take_over(signal, ticks);
  return false;
}
