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
#define IN_FLIGHT_NS 9e6
#define WIDE_NS 15e6
#define CREDIT_PER_BUSY 0.01
#define CREDIT_MOST_NS 100e6
#define WORTH_NS (1000 * NS_PER_MS) /* shorter idle times are not worth it: they count */
#define WORTHLESS 4                 /* times */

bool signal_works(const struct rate_signal *signal) { return signal->quiet_ns < QUIET_NS; }

bool signal_is_idle(const struct rate_signal *signal) {
  return signal->quiet_ns >= (signal->credit_ns >= 0 ? IDLE_NS : SURELY_IDLE_NS);
}

void signal_surprise(struct rate_signal *signal, double period_ns, uint64_t free_ns, bool wide) {
  double lost_ns = SURPRISE_PART * period_ns + (wide ? WIDE_NS : IN_FLIGHT_NS);
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
  gauge_mark(&signal->waits);
  gauge_mark(&signal->kernels);
}

static void drop_arrivals(struct rate_signal *signal, unsigned ticks) {
  gauge_drop(&signal->arrivals, ticks);
  gauge_drop(&signal->waits, ticks);
}

void signal_drop(struct rate_signal *signal, unsigned ticks) {
  drop_arrivals(signal, ticks);
  gauge_drop(&signal->kernels, ticks);
}

static void reconsider(struct rate_signal *signal);

static void restart_gauges(struct rate_signal *signal) {
  gauge_restart(&signal->arrivals);
  gauge_restart(&signal->waits);
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

static void push_arrivals(struct rate_signal *signal, const struct rate_growth *growth) {
  signal->service_ns += growth->service_ns;
  signal->told_ns += growth->told_ns;
  gauge_push(&signal->arrivals, growth->submissions, signal->serves ? growth->service_ns : growth->told_ns);
  gauge_push(&signal->waits, growth->served, growth->waited_ns + signal->host_ns * growth->served);
}

#define LASTING_PART 0.9

/* A server, that has nothing to do now and then: not a training, whose next iteration follows the last. */
static bool is_intermittent(const struct rate_signal *signal) {
  return signal->serves && signal->service_ns <= LASTING_PART * signal->told_ns;
}

#define FILLING_TICKS 4

/* What a training submits at first, until as much is queued as ever, is no measure: it would look faster than
 * it is, and unsteady. Of a server, which has nothing to do now and then, it is. */
static void drop_filling(struct rate_signal *signal) {
  if (!signal->measuring || signal->filled || signal->arrivals.ticks < FILLING_TICKS)
    return;
  signal->filled = true;
  if (!is_intermittent(signal))
    drop_arrivals(signal, FILLING_TICKS);
}

/* The ticks in which it stops and begins again are not whole ones: they say nothing of arrivals, nor do those
 * between. What was before a rest and what is after it are one window. */
static void take_arrivals(struct rate_signal *signal, const struct rate_growth *growth) {
  bool quiet = signal->quiet_ns > 0, rested = signal->rests;
  signal->rests = !signal_works(signal) || (rested && quiet);
  signal->serves |= growth->service_ns > 0;
  if (!rested)
    push_arrivals(signal, growth);
  signal->pause = quiet && !rested ? signal->pause + 1 : 0;
  if (signal->rests && !rested)
    drop_arrivals(signal, signal->pause + 1);
  drop_filling(signal);
}

void signal_take(struct rate_signal *signal, const struct rate_growth *growth, enum rate_guests guests) {
  take_quiet(signal, growth);
  if (guests == RATE_GUESTS_FREE || !growth->sane)
    signal->before = 0;
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
  signal->age_s += signal_works(signal) ? growth->elapsed_ns / 1e9 : 0;
  take_unseen(signal, growth);
  if (signal->measured && signal->rough)
    reconsider(signal);
  signal_take_loss(signal, growth, guests);
}

/* ---- undisturbed ---- */

#define FINE_ERROR 0.001        /* a twentieth of what production may lose: no need to measure on */
#define VERY_STEADY_ERROR 0.005 /* arrivals rule, whatever the kernels say */
#define JUDGE_TICKS 16
#define POOR_MOST 0.15       /* of such a window: it tells nothing */
#define CLEARLY 1.5          /* the one that rules stays while the other is no better than that */
#define EXPECTED_ERROR 0.003 /* of what a job says that its kernels take undisturbed */
#define WANDER_MORE 2        /* than is seen while it is measured */
#define STEADY_ERROR 0.008   /* they rule if the kernels are no better */
#define WAITS_PART 0.5       /* waits stand for arrivals if their error is so much smaller */
#define ROUGH_ERROR 0.012    /* they rule if the kernels are clearly worse; beyond it they tell no loss */

void signal_measure(struct rate_signal *signal) {
  signal->measured = false;
  signal->measuring = true;
  signal->filled = false;
  signal->ruler = RATE_RULED_BY_NOTHING;
  signal->worked = signal->unseen = 0;
  signal->host_ns = signal->service_ns = signal->told_ns = 0;
  signal->wander = signal->before = signal->felt = signal->kernels_lost = 0;
  signal->looks = 0;
  signal->arrivals.base = signal->kernels.base = 0;
  restart_gauges(signal);
}

static bool is_fine(const struct rate_signal *signal) {
  struct rate_gauge gauge = signal->arrivals;
  gauge.irregular = is_intermittent(signal);
  return gauge.ticks >= MEASURE_LEAST && gauge_learn(&gauge, gauge.ticks) &&
         gauge_base_error(&gauge) <= FINE_ERROR;
}

bool signal_suffices(const struct rate_signal *signal, unsigned ticks_most) {
  unsigned most = ticks_most < MEASURE_MOST ? ticks_most : MEASURE_MOST;
  return signal->worked >= most || is_fine(signal);
}

static double window_error(const struct rate_signal *signal, const struct rate_gauge *gauge) {
  return gauge->base > 0 ? signal_error(signal, gauge, JUDGE_TICKS, false) : INFINITY;
}

/* It would be told by whether slices delay so little of a job's work. */
static bool tells(const struct rate_signal *signal, const struct rate_gauge *gauge) {
  return gauge->base > 0 && signal_error(signal, gauge, JUDGE_TICKS, true) <= POOR_MOST;
}

static bool is_better(const struct rate_gauge *arrivals, const struct rate_gauge *kernels) {
  double error = gauge_base_error(arrivals);
  return error <= VERY_STEADY_ERROR || (error <= STEADY_ERROR && error <= gauge_base_error(kernels));
}

/* Where arrivals are neither steady nor even: what tells more now. How delays come is learnt while there are
 * some. */
static void reconsider(struct rate_signal *signal) {
  double arrivals = window_error(signal, &signal->arrivals), kernels = window_error(signal, &signal->kernels);
  bool rough = signal->arrivals.base > 0 && gauge_base_error(&signal->arrivals) <= ROUGH_ERROR;
  if (!tells(signal, &signal->kernels))
    kernels = INFINITY;
  if (rough && arrivals * CLEARLY < kernels && arrivals <= POOR_MOST)
    signal->ruler = RATE_RULED_BY_ARRIVALS;
  else if (isfinite(kernels) && (!rough || kernels * CLEARLY < arrivals || !signal->ruler))
    signal->ruler = RATE_RULED_BY_KERNELS;
}

/* What the host does between its calls takes now more, now less time, whatever goes on on the GPU; the time
 * for which it waits for the GPU has none of that. So the host's time is taken to be always the same (a
 * control variate, whose coefficient is one). False: it is no better so. */
static bool learn_waits(struct rate_signal *signal, unsigned ticks) {
  struct rate_gauge waits = signal->waits;
  double done = gauge_done(&waits, ticks);
  if (!signal->serves || done <= 0 || waits.ticks < MEASURE_LEAST)
    return false;
  double service_ns = gauge_spent(&signal->arrivals, ticks);
  double host_ns = fmax((service_ns - gauge_spent(&waits, ticks)) / done, 1);
  gauge_charge(&waits, host_ns);
  waits.irregular = is_intermittent(signal);
  double most = fmin(STEADY_ERROR, WAITS_PART * gauge_base_error(&signal->arrivals));
  if (!gauge_learn(&waits, ticks) || gauge_base_error(&waits) > most)
    return false;
  signal->host_ns = host_ns;
  signal->waits = waits;
  return true;
}

/* By the last ticks. Iterations follow each other evenly, but faster and slower by the second: that is a
 * training, too. */
static void learn_last(struct rate_signal *signal, unsigned ticks) {
  struct rate_gauge *arrivals = &signal->arrivals, *kernels = &signal->kernels;
  if (arrivals->ticks >= MEASURE_LEAST)
    gauge_learn(arrivals, ticks);
  bool steady = arrivals->base > 0 && (tells(signal, kernels) ? is_better(arrivals, kernels)
                                                              : gauge_base_error(arrivals) <= STEADY_ERROR);
  bool waits =
      arrivals->base > 0 && gauge_base_error(arrivals) > VERY_STEADY_ERROR && learn_waits(signal, ticks);
  bool even = arrivals->base > 0 && arrivals->steady_error <= STEADY_ERROR;
  signal->rough = !steady && !even && !waits;
  if (!signal->rough)
    signal->ruler = waits ? RATE_RULED_BY_WAITS : RATE_RULED_BY_ARRIVALS;
  if (waits || (even && !steady))
    signal->wander = WANDER_MORE * gauge_wander(arrivals);
}

/* Its start may be among what was measured, and a request that came alone in it. */
static void choose_ruler(struct rate_signal *signal) {
  unsigned ticks = signal->arrivals.ticks;
  learn_last(signal, ticks);
  if (signal->rough && ticks > MEASURE_MOST)
    learn_last(signal, MEASURE_MOST);
  if (signal->rough && ticks > MEASURE_MOST)
    learn_last(signal, ticks);
  if (signal->rough)
    reconsider(signal);
}

bool signal_learn(struct rate_signal *signal) {
  struct rate_gauge *kernels = &signal->kernels;
  signal->arrivals.irregular = is_intermittent(signal);
  if (gauge_learn(kernels, kernels->ticks))
    gauge_expect(kernels, 1, EXPECTED_ERROR);
  choose_ruler(signal);
  signal->age_s = 0;
  signal->measured = signal->ruler != RATE_RULED_BY_NOTHING;
  signal->measuring = !signal->measured;
  signal->worked = 0;
  return signal->measured;
}
