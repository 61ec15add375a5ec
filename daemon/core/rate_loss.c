/*
 * rate_loss.c - what a production job loses, with its error, and what it is owed.
 *
 * The error has three parts: how windows scatter undisturbed, how well the undisturbed speed is known, and
 * how few delays a window holds.
 */
#include <math.h>

#include "core/rate_signal.h"

static double squared(double value) { return value * value; }

/* ---- delays ---- */

/* Where the GPU is shared by time slices, production is delayed by whole ones: few in a short window. Where
 * it is shared at the same time, by a little all the time. Which it is shows in the kernels: of few long
 * delays the sum of squares is large. */
#define SLICE_NS 2e6
#define SLICE_WEIGHT_NS 0.1e6 /* of so much delay: what is believed before there is any */
#define FORGOTTEN_PER_TICK 0.001
#define LATELY_KEPT 0.8 /* from tick to tick */

static double grain_ns(const struct rate_signal *signal) {
  double squares = SLICE_NS * SLICE_WEIGHT_NS + signal->delayed_squared;
  return fmin(squares / (SLICE_WEIGHT_NS + signal->delayed_ns), SLICE_NS);
}

static double kernel_delay_ns(const struct rate_signal *signal, const struct rate_growth *growth) {
  return signal->kernels.base > 0 ? growth->sampled_ns - growth->expected_ns / signal->kernels.base : 0;
}

/* What delays all kernels alike is no grain: only what differs from the last ticks counts. */
static void take_delay(struct rate_signal *signal, const struct rate_growth *growth) {
  double delay_ns = kernel_delay_ns(signal, growth), kept = 1 - FORGOTTEN_PER_TICK;
  double even_ns = signal->lately_sampled_ns > 0
                       ? signal->lately_delayed_ns / signal->lately_sampled_ns * growth->sampled_ns
                       : 0;
  signal->delayed_ns = fmax(signal->delayed_ns * kept + delay_ns, 0);
  signal->delayed_squared = signal->delayed_squared * kept + squared(delay_ns - even_ns);
  signal->lately_delayed_ns = signal->lately_delayed_ns * LATELY_KEPT + delay_ns;
  signal->lately_sampled_ns = signal->lately_sampled_ns * LATELY_KEPT + growth->sampled_ns;
  signal->sampled_ns = signal->sampled_ns * kept + growth->sampled_ns;
  signal->busy_ns = signal->busy_ns * kept + fmin(growth->busy_ns, growth->elapsed_ns);
  signal->time_ns = signal->time_ns * kept + growth->elapsed_ns;
}

/* The part of its time in which the GPU works for it. */
static double busy_part(const struct rate_signal *signal) {
  return signal->busy_ns > 0 ? signal->busy_ns / signal->time_ns : 1;
}

/* ---- losses ---- */

#define BUSY_PART_LEAST 0.5 /* that the gain is taken from: less would make rash steps */

/* Windows of any limits. */
static struct rate_loss loss_in(const struct rate_signal *signal, const struct rate_gauge *gauge,
                                unsigned ticks) {
  struct rate_loss loss = {.ticks = ticks < gauge->ticks ? ticks : gauge->ticks};
  double spent = gauge_spent(gauge, loss.ticks);
  if (spent <= 0 || gauge->base <= 0)
    return (struct rate_loss){.loss = 0, .error = 1, .noise = 1, .spread = 1, .gain = 1};
  loss.loss = 1 - gauge_speed(gauge, loss.ticks) / gauge->base;
  double scatter = squared(gauge_error(gauge, loss.ticks)), grain = grain_ns(signal) / spent;
  loss.grain = grain;
  loss.noise = sqrt(scatter + RATE_TOLERANCE * grain);
  loss.gain = 1;
  loss.spread = sqrt(scatter + fmax(loss.loss, RATE_TOLERANCE) * grain);
  loss.error = hypot(loss.noise, gauge_base_error(gauge));
  return loss;
}

static unsigned marked(const struct rate_gauge *gauge, unsigned ticks) {
  return ticks < gauge->marked ? ticks : gauge->marked;
}

/* What stands for them: by the host's usual time, where that changes by itself. */
static struct rate_loss waits_loss_in(const struct rate_signal *signal, unsigned ticks) {
  struct rate_loss loss = loss_in(signal, &signal->waits, ticks);
  loss.by_chance = signal->waits.irregular;
  loss.gain = 1 / fmax(busy_part(signal), BUSY_PART_LEAST);
  return loss;
}

double signal_error(const struct rate_signal *signal, const struct rate_gauge *gauge, unsigned ticks,
                    bool slices) {
  double spent = gauge_spent(gauge, gauge->base_ticks) * ticks / gauge->base_ticks;
  double scatter = squared(gauge_error(gauge, ticks));
  double seen = fmin(signal->delayed_squared / (SLICE_WEIGHT_NS + signal->delayed_ns), SLICE_NS);
  double grain = slices ? SLICE_NS : seen;
  return sqrt(scatter + RATE_TOLERANCE * grain / spent + squared(gauge_base_error(gauge)));
}

/* What the GPU does for it takes longer, the rest of an iteration does not. */
static struct rate_loss arrivals_loss_in(const struct rate_signal *signal, unsigned ticks) {
  struct rate_loss loss = loss_in(signal, &signal->arrivals, ticks);
  loss.gain = 1 / fmax(busy_part(signal), BUSY_PART_LEAST);
  loss.noise = hypot(loss.noise, signal->wander);
  loss.spread = hypot(loss.spread, signal->wander);
  loss.error = hypot(loss.error, signal->wander);
  return loss;
}

/* By its kernels, but of all its time: an iteration's loss, not a request's. */
static struct rate_loss kernels_loss_in(const struct rate_signal *signal, unsigned ticks) {
  struct rate_loss loss = loss_in(signal, &signal->kernels, ticks);
  double part = busy_part(signal);
  loss.loss *= part;
  loss.error *= part;
  loss.noise *= part;
  loss.spread *= part;
  loss.grain *= part;
  loss.gain = 1 / fmax(part, BUSY_PART_LEAST);
  return loss;
}

struct rate_loss signal_arrivals_loss(const struct rate_signal *signal, unsigned ticks) {
  return arrivals_loss_in(signal, marked(&signal->arrivals, ticks));
}

struct rate_loss signal_kernels_loss(const struct rate_signal *signal, unsigned ticks) {
  return kernels_loss_in(signal, marked(&signal->kernels, ticks));
}

static bool kernels_tell(const struct rate_signal *signal) {
  return signal->wander > 0 && signal->ruler != RATE_RULED_BY_WAITS && signal->kernels.base > 0 &&
         signal_feels(signal);
}

struct rate_loss signal_loss(const struct rate_signal *signal, unsigned ticks) {
  if (signal->ruler == RATE_RULED_BY_WAITS)
    return waits_loss_in(signal, marked(&signal->waits, ticks));
  if (kernels_tell(signal))
    return signal_kernels_loss(signal, ticks);
  if (signal->ruler == RATE_RULED_BY_ARRIVALS)
    return signal_arrivals_loss(signal, ticks);
  if (signal->ruler == RATE_RULED_BY_KERNELS)
    return loss_in(signal, &signal->kernels, marked(&signal->kernels, ticks));
  return (struct rate_loss){.loss = 0, .error = 1, .noise = 1, .spread = 1, .gain = 1};
}

#define FASTER_ERRORS 4.0
#define FASTER_LEAST 0.05

static bool is_faster(const struct rate_loss *loss, unsigned ticks) {
  double least = fmax(FASTER_ERRORS * fmax(loss->error, loss->spread), FASTER_LEAST);
  return loss->ticks >= ticks && -loss->loss > least;
}

bool signal_is_faster(const struct rate_signal *signal, unsigned ticks) {
  if (signal->ruler == RATE_RULED_BY_WAITS) {
    struct rate_loss waits = waits_loss_in(signal, ticks), all = arrivals_loss_in(signal, ticks);
    return is_faster(&waits, ticks) || is_faster(&all, ticks);
  }
  bool arrivals = signal->ruler == RATE_RULED_BY_ARRIVALS;
  struct rate_loss loss =
      arrivals ? arrivals_loss_in(signal, ticks) : loss_in(signal, &signal->kernels, ticks);
  struct rate_loss kernels = {.ticks = ticks};
  if (arrivals && signal->kernels.base > 0 && signal_feels(signal))
    kernels = kernels_loss_in(signal, ticks);
  double error = hypot(fmax(loss.error, loss.spread), fmax(kernels.error, kernels.spread));
  double excess = fmax(kernels.loss, 0) - loss.loss;
  return loss.ticks >= ticks && excess > fmax(FASTER_ERRORS * error, FASTER_LEAST);
}

bool signal_lacks_work(const struct rate_signal *signal, unsigned ticks) {
  if (signal->ruler != RATE_RULED_BY_ARRIVALS || signal->kernels.base <= 0)
    return false;
  struct rate_loss arrivals = signal_arrivals_loss(signal, ticks);
  struct rate_loss kernels = {.ticks = ticks};
  if (signal_feels(signal))
    kernels = loss_in(signal, &signal->kernels, marked(&signal->kernels, ticks));
  double excess = arrivals.loss - 2 * fmax(kernels.loss, 0) - 2 * RATE_TOLERANCE;
  return kernels.ticks > 0 && excess > 3 * fmax(arrivals.error, kernels.error);
}

/* ---- what it is owed ---- */

#define DEBT_MOST_S 0.2    /* more is forgiven: opportunistic jobs don't starve for what is long past */
#define CREDIT_MOST_S 0.04 /* what is not lost while opportunistic jobs pause: slow start may use it up */
#define DEBT_PAID_IN_S 24.0

void signal_owe(struct rate_signal *signal, double lost_ns) {
  signal->debt_s = fmin(fmax(signal->debt_s + lost_ns / 1e9, -CREDIT_MOST_S), DEBT_MOST_S);
}

/* The part of the tick in which it had something to do. */
static double worked_ns(const struct rate_signal *signal, const struct rate_growth *growth) {
  return signal->serves ? fmin(growth->service_ns, growth->elapsed_ns) : growth->elapsed_ns;
}

/* Beyond what is steered for, in this tick. Of a few sampled kernels one that was delayed for long says
 * nothing of the others' speed: so the delays count, as many times as there are kernels for one that is
 * sampled. */
static double lost_ns(const struct rate_signal *signal, const struct rate_growth *growth) {
  double inflation = signal->sampled_ns > 0 ? signal->busy_ns / signal->sampled_ns : 0;
  if (kernels_tell(signal))
    return kernel_delay_ns(signal, growth) * inflation - RATE_AIM * growth->elapsed_ns;
  if (signal->wander > 0 && signal->ruler != RATE_RULED_BY_WAITS)
    return 0;
  if (signal->ruler == RATE_RULED_BY_KERNELS)
    return (kernel_delay_ns(signal, growth) * inflation - RATE_AIM * growth->busy_ns) / busy_part(signal);
  struct rate_loss loss = signal_loss(signal, 1);
  return loss.ticks > 0 ? (loss.loss - RATE_AIM) * worked_ns(signal, growth) : 0;
}

void signal_take_loss(struct rate_signal *signal, const struct rate_growth *growth, enum rate_guests guests) {
  if (!signal_works(signal))
    return;
  take_delay(signal, growth);
  if (guests == RATE_GUESTS_PAUSED) /* whatever it does now, nobody else has done it */
    signal_owe(signal, -RATE_AIM * worked_ns(signal, growth));
  else if (signal->measured)
    signal_owe(signal, lost_ns(signal, growth));
}

struct rate_loss signal_loss_due(const struct rate_signal *signal, unsigned ticks, double due_most) {
  struct rate_loss loss = signal_loss(signal, ticks);
  loss.due = fmin(fmax(signal->debt_s, 0) / DEBT_PAID_IN_S, due_most);
  loss.loss += loss.due;
  return loss;
}
