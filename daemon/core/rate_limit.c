/*
 * rate_limit.c - the limit of all opportunistic jobs together, while they run: slow start, then additive
 * increase and multiplicative decrease.
 *
 * Slow start doubles the limit until production loses. From there on each step is as large as production's
 * loss is far from what it may lose: a share of the GPU costs production about as large a share of its speed
 * where it costs anything. So an increase is a constant where production loses nothing, a decrease halves the
 * limit where it loses much, and near the right limit both are small: no sawtooth. (DCTCP decreases in
 * proportion to congestion for the same reason.) Steps that turn back and forth become smaller.
 */
#include "core/rate_internal.h"

#include <math.h>

#define LIMIT_FIRST (0.01 * RATE_WHOLE_GPU)
#define LIMIT_LEAST (0.001 * RATE_WHOLE_GPU)

static double limit_most(const struct rate_gpu *gpu) { return gpu->opportunistic_count * RATE_WHOLE_GPU; }

static void set_limit(struct rate_gpu *gpu, double limit, enum rate_state state, enum rate_reason reason) {
  gpu->limit = fmin(fmax(limit, LIMIT_LEAST), limit_most(gpu));
  rate_enter(gpu, state, reason);
}

static bool some_lack_work(const struct rate_gpu *gpu, unsigned ticks) {
  rate_each_job(job, &gpu->production) {
    if (signal_works(&job->signal) && signal_lacks_work(&job->signal, ticks))
      return true;
  }
  return false;
}

/* One whose arrivals count has stopped just now, or only paused: the last ticks are no loss yet. */
static bool some_pause(const struct rate_gpu *gpu) {
  rate_each_job(job, &gpu->production) {
    const struct rate_signal *signal = &job->signal;
    if (signal_works(signal) && signal->quiet_ns > 0 && signal->ruler == RATE_RULED_BY_ARRIVALS)
      return true;
  }
  return false;
}

/* Of the job that loses most: each one's speed is kept. */
static struct rate_loss worst_loss(const struct rate_gpu *gpu, unsigned ticks) {
  struct rate_loss worst = {.loss = -INFINITY, .error = 1, .ticks = 0};
  rate_each_job(job, &gpu->production) {
    struct rate_loss loss = signal_loss_due(&job->signal, ticks);
    if (signal_works(&job->signal) && loss.ticks > 0 && loss.loss > worst.loss)
      worst = loss;
  }
  return worst;
}

/* ---- steps ---- */

#define STEADY_TICKS 6 /* the least and the most that a step is judged by */
#define STEADY_TICKS_MOST 50

#define MUCH 0.05 /* lost: no fine work */
#define GAIN_LEAST 0.1
#define GAIN_MOST 1.25
#define GAIN_TURNED 0.5
#define GAIN_ON 1.3
#define DECREASE_MOST 0.5
#define INCREASE_MOST 0.5 /* of the limit, beyond the additive one */
#define BOOST 4.0
#define BOOST_MOST 16.0
#define TRIES 4 /* decreases by half in a row: then it is not the limit */

#define DOUBT_FREE (RATE_AIM / 2)
#define DOUBT_PART 0.75

/* How far production is from what it may lose; where a long window still can't tell well, it gets the benefit
 * of the doubt. The larger the error, the less of the difference is believed. */
static double believed(const struct rate_loss *loss) {
  double doubted = loss->ticks >= STEADY_TICKS_MOST ? fmax(loss->error - DOUBT_FREE, 0) * DOUBT_PART : 0;
  double difference = RATE_AIM - loss->loss - doubted, error = loss->error;
  double doubt = error / (2 * fabs(difference) + error);
  return difference * (1 - doubt * doubt);
}

static void adapt_gain(struct rate_gpu *gpu, double difference) {
  if (-difference > MUCH)
    gpu->gain = 1;
  else if (difference * gpu->step < 0)
    gpu->gain = fmax(gpu->gain * GAIN_TURNED, GAIN_LEAST);
  else
    gpu->gain = fmin(gpu->gain * GAIN_ON, GAIN_MOST);
  gpu->step = difference;
}

/* While production loses nothing at all, increases become larger and larger. */
static void adapt_boost(struct rate_gpu *gpu, const struct rate_loss *loss) {
  bool calm = loss->loss + 2 * loss->error < RATE_AIM;
  gpu->boost = calm && gpu->limit >= LIMIT_FIRST ? fmin(gpu->boost * BOOST, BOOST_MOST) : 1;
}

static void increase(struct rate_gpu *gpu, const struct rate_loss *loss, double difference) {
  double step = gpu->gain * fmin(difference, RATE_AIM) * RATE_WHOLE_GPU;
  double boosted = fmin(gpu->boost * step, INCREASE_MOST * gpu->limit);
  adapt_boost(gpu, loss);
  gpu->tries = 0;
  set_limit(gpu, gpu->limit + fmax(step, boosted), RATE_STEADY, RATE_KEEPS);
}

static void decrease(struct rate_gpu *gpu, double difference) {
  double step = gpu->gain * -difference * RATE_WHOLE_GPU, most = DECREASE_MOST * gpu->limit;
  gpu->boost = 1;
  gpu->tries = step >= most ? gpu->tries + 1 : 0;
  if (gpu->tries >= TRIES)
    rate_enter(gpu, RATE_CHECKING, RATE_LOSES_ALWAYS);
  else
    set_limit(gpu, gpu->limit - fmin(step, most), RATE_STEADY, RATE_LOSES);
}

static void change_limit(struct rate_gpu *gpu, const struct rate_loss *loss) {
  double difference = believed(loss);
  if (difference > 0 && !share_is_wanted(gpu)) {
    rate_enter(gpu, RATE_STEADY, RATE_NO_DEMAND);
    return;
  }
  adapt_gain(gpu, difference);
  if (difference > 0)
    increase(gpu, loss, difference);
  else
    decrease(gpu, difference);
}

/* ---- slow start ---- */

#define SURE_TICKS 2 /* where a window ends in an iteration differs from tick to tick */

static bool is_sure(struct rate_gpu *gpu, bool is_so) {
  gpu->sure = is_so ? gpu->sure + 1 : 0;
  return gpu->sure >= SURE_TICKS;
}

#define START_TICKS 2
#define START_TICKS_MOST 10
#define START_TICKS_SMALL 4 /* the most while the limit is small */
#define START_TICKS_SLOW 20 /* the most where the signal is poor */
#define SMALL (0.08 * RATE_WHOLE_GPU)
#define START_ERROR 0.03
#define STRIDE 2.0
#define BAD_ERRORS 1.5

static bool is_bad(const struct rate_loss *loss) {
  double errors = loss->ticks < START_TICKS_MOST ? BAD_ERRORS : 1;
  return loss->ticks >= START_TICKS && loss->loss > RATE_TOLERANCE + errors * loss->error;
}

/* Coarse: production can lose little more than the limit, and the next one is twice as high. So the error may
 * be as large as a part of the limit; and where a loss can't be told from chance, at twice the limit it can
 * rather. */
static bool is_good(const struct rate_gpu *gpu, const struct rate_loss *loss) {
  double limit = gpu->limit / RATE_WHOLE_GPU;
  unsigned most = gpu->limit < SMALL ? START_TICKS_SMALL : START_TICKS_MOST;
  if (loss->ticks >= START_TICKS && loss->loss <= RATE_TOLERANCE &&
      loss->error < fmax(START_ERROR, limit / 4))
    return true;
  bool harmless = gpu->limit < SMALL || loss->error < limit;
  return loss->ticks >= START_TICKS_SLOW || (loss->ticks >= most && harmless);
}

static void step_start(struct rate_gpu *gpu) {
  struct rate_loss loss = worst_loss(gpu, gpu->ticks);
  bool bad = is_sure(gpu, is_bad(&loss)), good = is_good(gpu, &loss);
  if (bad && some_lack_work(gpu, gpu->ticks))
    rate_enter(gpu, RATE_CHECKING, RATE_LACKS_WORK);
  else if (bad)
    change_limit(gpu, &loss);
  else if (good && gpu->limit >= limit_most(gpu))
    set_limit(gpu, gpu->limit, RATE_STEADY, RATE_KEEPS);
  else if (good && share_is_wanted(gpu))
    set_limit(gpu, gpu->limit * STRIDE, RATE_SLOW_START, RATE_KEEPS);
  else
    gpu->reason = good ? RATE_NO_DEMAND : RATE_UNDECIDED;
}

/* ---- steady ---- */

#define SURE_ERRORS 3.0   /* to decrease */
#define LIKELY_ERRORS 2.5 /* to increase: by no more than what production may lose */
#define FASTER_ERRORS 4.0
#define FASTER_LEAST 0.05

/* All of them are much faster than undisturbed. */
static bool is_faster(const struct rate_gpu *gpu) {
  struct rate_loss loss = worst_loss(gpu, STEADY_TICKS);
  return loss.ticks >= STEADY_TICKS && -loss.loss > fmax(FASTER_ERRORS * loss.error, FASTER_LEAST);
}

static bool is_telling(const struct rate_loss *loss) {
  return loss->ticks >= STEADY_TICKS && (loss->loss - RATE_AIM > SURE_ERRORS * loss->error ||
                                         RATE_AIM - loss->loss > LIKELY_ERRORS * loss->error);
}

/* The shortest window that says that the limit is too high or too low; else the longest. */
static struct rate_loss telling_loss(const struct rate_gpu *gpu) {
  unsigned most = gpu->ticks < STEADY_TICKS_MOST ? gpu->ticks : STEADY_TICKS_MOST;
  for (unsigned ticks = STEADY_TICKS; ticks < most; ticks *= 2) {
    struct rate_loss loss = worst_loss(gpu, ticks);
    if (is_telling(&loss))
      return loss;
  }
  return worst_loss(gpu, most);
}

static void step_steady(struct rate_gpu *gpu) {
  struct rate_loss loss = telling_loss(gpu);
  bool sure = is_sure(gpu, is_telling(&loss));
  if (loss.ticks < STEADY_TICKS)
    return;
  if (is_faster(gpu))
    rate_enter(gpu, RATE_CHECKING, RATE_FASTER);
  else if (sure && some_lack_work(gpu, loss.ticks))
    rate_enter(gpu, RATE_CHECKING, RATE_LACKS_WORK);
  else if (sure || gpu->ticks >= STEADY_TICKS_MOST)
    change_limit(gpu, &loss);
}

/* ---- what others see ---- */

void limit_start(struct rate_gpu *gpu, double part) {
  gpu->gain = gpu->boost = 1;
  gpu->step = 0;
  gpu->tries = 0;
  set_limit(gpu, fmax(gpu->limit * part, LIMIT_FIRST), RATE_SLOW_START, RATE_UNDECIDED);
}

void limit_resume(struct rate_gpu *gpu, double part) {
  gpu->boost = 1;
  gpu->tries = 0;
  set_limit(gpu, gpu->limit * part, RATE_STEADY, gpu->reason);
}

void limit_step(struct rate_gpu *gpu) {
  if (some_pause(gpu))
    gpu->reason = RATE_QUIET;
  else if (gpu->state == RATE_SLOW_START)
    step_start(gpu);
  else
    step_steady(gpu);
}
