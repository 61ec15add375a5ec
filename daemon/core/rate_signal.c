/* rate_signal.c - whether a production job works, what it does undisturbed, and which signal rules. */
#include "core/rate_signal.h"

#include <math.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)

/* ---- work and idleness ---- */

#define QUIET_NS (100 * NS_PER_MS) /* shorter pauses belong to the work: input, a step of the optimizer */
#define IDLE_NS (250 * NS_PER_MS)  /* what follows such a pause mostly lasts */
#define SURELY_IDLE_NS (2000 * NS_PER_MS)

/* Whoever comes back finds the GPU shared evenly with jobs without a limit until the next tick, half a period
 * on average, and then what those have in flight. It may lose a hundredth of its GPU time in this way. */
#define SURPRISE_PART 0.5
#define IN_FLIGHT_NS 6e6
#define CREDIT_PER_BUSY 0.01
#define CREDIT_MOST_NS 100e6
#define WORTH_NS (1000 * NS_PER_MS) /* shorter idle times are not worth it: they count */
#define WORTHLESS 4                 /* times */

bool signal_works(const struct rate_signal *signal) { return signal->quiet_ns < QUIET_NS; }

bool signal_is_idle(const struct rate_signal *signal) {
  return signal->quiet_ns >= (signal->credit_ns >= 0 ? IDLE_NS : SURELY_IDLE_NS);
}

void signal_surprise(struct rate_signal *signal, double period_ns, uint64_t free_ns) {
  double lost_ns = SURPRISE_PART * period_ns + IN_FLIGHT_NS;
  signal->credit_ns -= free_ns < WORTH_NS ? WORTHLESS * lost_ns : lost_ns;
  signal_owe(signal, lost_ns);
}

static void take_quiet(struct rate_signal *signal, const struct rate_growth *growth) {
  bool quiet = growth->sane && growth->idle && growth->submissions <= 0;
  double busy_ns = fmin(growth->busy_ns, growth->elapsed_ns);
  signal->quiet_ns = quiet ? signal->quiet_ns + (uint64_t)growth->elapsed_ns : 0;
  signal->credit_ns = fmin(signal->credit_ns + CREDIT_PER_BUSY * busy_ns, CREDIT_MOST_NS);
}

/* ---- what is taken in ---- */

#define MEASURE_LEAST 16 /* ticks */
#define MEASURE_MOST 40

void signal_mark(struct rate_signal *signal) {
  gauge_mark(&signal->arrivals);
  gauge_mark(&signal->kernels);
}

void signal_drop(struct rate_signal *signal, unsigned ticks) {
  gauge_drop(&signal->arrivals, ticks);
  gauge_drop(&signal->kernels, ticks);
}

static void restart_gauges(struct rate_signal *signal) {
  gauge_restart(&signal->arrivals);
  gauge_restart(&signal->kernels);
}

void signal_init(struct rate_signal *signal) {
  memset(signal, 0, sizeof *signal);
  signal->rests = true;
  signal->kernels.independent = true;
  restart_gauges(signal);
}

#define UNSEEN_TICKS 50

static void take_unseen(struct rate_signal *signal, const struct rate_growth *growth) {
  if (growth->sampled_ns > 0)
    signal->unseen = 0;
  else
    signal->unseen += growth->submissions > 0;
}

bool signal_is_unseen(const struct rate_signal *signal) {
  return signal->ruler == RATE_RULED_BY_KERNELS && signal->unseen >= UNSEEN_TICKS;
}

/* The ticks in which it stops and begins again are not whole ones: they say nothing of arrivals, nor do those
 * between. What was before a rest and what is after it are one window. */
static void take_arrivals(struct rate_signal *signal, const struct rate_growth *growth) {
  bool quiet = signal->quiet_ns > 0, rested = signal->rests;
  signal->rests = !signal_works(signal) || (rested && quiet);
  if (!rested)
    gauge_push(&signal->arrivals, growth->submissions, growth->told_ns);
  signal->pause = quiet && !rested ? signal->pause + 1 : 0;
  if (signal->rests && !rested)
    gauge_drop(&signal->arrivals, signal->pause + 1);
}

void signal_take(struct rate_signal *signal, const struct rate_growth *growth, enum rate_guests guests) {
  take_quiet(signal, growth);
  if (guests == RATE_GUESTS_FREE) {
    signal->rests = signal->quiet_ns > 0 || !growth->sane;
    return;
  }
  if (!growth->sane) {
    restart_gauges(signal);
    return;
  }
  gauge_push(&signal->kernels, growth->expected_ns, growth->sampled_ns);
  take_arrivals(signal, growth);
  signal->worked += signal_works(signal);
  take_unseen(signal, growth);
  signal_take_loss(signal, growth, guests);
}

/* ---- undisturbed ---- */

#define FINE_ERROR 0.001        /* a twentieth of what production may lose: no need to measure on */
#define VERY_STEADY_ERROR 0.005 /* arrivals rule, whatever the kernels say */
#define EXPECTED_ERROR 0.003    /* of what a job says that its kernels take undisturbed */
#define STEADY_ERROR 0.008      /* they rule if the kernels are no better; beyond it they tell no loss */

void signal_measure(struct rate_signal *signal) {
  signal->measured = false;
  signal->measuring = true;
  signal->ruler = RATE_RULED_BY_NOTHING;
  signal->worked = signal->unseen = 0;
  signal->arrivals.base = signal->kernels.base = 0;
  restart_gauges(signal);
}

static bool is_fine(struct rate_gauge gauge) {
  return gauge.ticks >= MEASURE_LEAST && gauge_learn(&gauge, gauge.ticks) &&
         gauge_base_error(&gauge) <= FINE_ERROR;
}

bool signal_suffices(const struct rate_signal *signal, unsigned ticks_most) {
  unsigned most = ticks_most < MEASURE_MOST ? ticks_most : MEASURE_MOST;
  return signal->worked >= most || is_fine(signal->arrivals);
}

static bool learn_arrivals(struct rate_gauge *arrivals) {
  return arrivals->ticks >= MEASURE_LEAST && gauge_learn(arrivals, arrivals->ticks) &&
         gauge_base_error(arrivals) <= STEADY_ERROR;
}

static bool is_better(const struct rate_gauge *arrivals, const struct rate_gauge *kernels) {
  double error = gauge_base_error(arrivals);
  return error <= VERY_STEADY_ERROR || error <= gauge_base_error(kernels);
}

bool signal_learn(struct rate_signal *signal) {
  bool arrivals = learn_arrivals(&signal->arrivals);
  bool kernels = gauge_learn(&signal->kernels, signal->kernels.ticks);
  if (kernels)
    gauge_expect(&signal->kernels, 1, EXPECTED_ERROR);
  if (arrivals && (!kernels || is_better(&signal->arrivals, &signal->kernels)))
    signal->ruler = RATE_RULED_BY_ARRIVALS;
  else if (kernels)
    signal->ruler = RATE_RULED_BY_KERNELS;
  signal->measured = arrivals || kernels;
  signal->measuring = false;
  return signal->measured;
}
