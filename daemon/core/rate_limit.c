/*
 * rate_limit.c - the limit of all opportunistic jobs together, while they run: slow start, then steps towards
 * where production loses what it may.
 *
 * Slow start doubles the limit until production loses. From there on the limit is an estimate with an error
 * of its own (`doubt`), and each window of ticks moves it by as much as it tells beside what is known: fully
 * after a change, by less and less while production does what was expected. So there is no sawtooth.
 */
#include "core/rate_internal.h"

#include <math.h>

#define LIMIT_FIRST (0.01 * RATE_WHOLE_GPU)
#define LIMIT_LEAST (0.001 * RATE_WHOLE_GPU)

static double squared(double value) { return value * value; }

static double limit_most(const struct rate_gpu *gpu) { return gpu->opportunistic_count * RATE_WHOLE_GPU; }

static void set_limit(struct rate_gpu *gpu, double limit, enum rate_state state, enum rate_reason reason) {
  gpu->limit = fmin(fmax(limit, LIMIT_LEAST), limit_most(gpu));
  rate_each_job(job, &gpu->production) { signal_mark(&job->signal); }
  gpu->started = state == RATE_STEADY;
  rate_enter(gpu, state, reason);
}

/* Others pause, to see what production does without them after what it has done in so many ticks. */
static void check(struct rate_gpu *gpu, enum rate_reason reason, unsigned ticks) {
  rate_each_job(job, &gpu->production) { signal_look_before(&job->signal, ticks); }
  rate_enter(gpu, RATE_CHECKING, reason);
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

/* ---- what is lost, and what a share of the GPU costs ---- */

static double gain_through_zero(const struct rate_gpu *gpu, const struct rate_loss *loss) {
  return gpu->limit / RATE_WHOLE_GPU / fmax(loss->loss, RATE_AIM);
}

/* By so much the limit changes for a part of production's speed. Small limits cost something from the first
 * share on, so there the line goes through zero; large ones only beyond what production leaves over, or so it
 * is believed until that was not enough again and again: then the line goes through zero there as well; and
 * where requests meet by chance what guests do. */
static double gain_at(const struct rate_gpu *gpu, const struct rate_loss *loss) {
  return fmin(gain_through_zero(gpu, loss), loss->by_chance ? INFINITY : ldexp(loss->gain, (int)gpu->falls));
}

/* What production is to get back may lower the limit by no more than a part: of itself, or of small ones. */
#define DUE_PART 0.02
#define DUE_SMALL_PART 0.18

#define SURPRISE_ERRORS 3.0

/* Who surely loses too much comes before whom nobody can tell of, by what it loses at least. */
static bool is_worse(const struct rate_loss *loss, const struct rate_loss *other) {
  double least = fmax(loss->loss - SURPRISE_ERRORS * loss->spread, RATE_AIM);
  double other_least = fmax(other->loss - SURPRISE_ERRORS * other->spread, RATE_AIM);
  return least > other_least || (least == other_least && loss->loss > other->loss);
}

/* Of the job that loses most: each one's speed is kept. One that rests for a moment still counts. */
static struct rate_loss worst_loss(const struct rate_gpu *gpu, unsigned ticks) {
  struct rate_loss worst = {.loss = -INFINITY, .error = 1, .noise = 1, .gain = 1};
  double due_most = fmax(DUE_PART * gpu->limit / RATE_WHOLE_GPU, DUE_SMALL_PART * RATE_AIM);
  rate_each_job(job, &gpu->production) {
    struct rate_loss loss = signal_loss_due(&job->signal, ticks, due_most);
    loss.whose = &job->signal;
    if (!signal_is_idle(&job->signal) && loss.ticks > 0 && is_worse(&loss, &worst))
      worst = loss;
  }
  return worst;
}

/* ---- steps ---- */

#define STEADY_TICKS 6 /* the least and the most that a step is judged by */
#define STEADY_TICKS_MOST 50
#define POOR_TICKS_MOST 250 /* where the signal is poor */

#define POOR 0.01       /* error of a window: half of what production may lose */
#define SLOPE_ERROR 0.3 /* of a step: what a share costs is known no better */
#define DRIFT 0.0005    /* of the loss, from window to window, without being seen */
#define DECREASE_MOST 0.5
#define START_DECREASE_MOST 0.75 /* at the end of slow start: as far as two steps back */
#define INCREASE_MOST 0.6        /* of the limit, or what is steered for */
#define CALM_MOST 3              /* in a row: each makes the next step eight times as large */
#define TRIES 4                  /* decreases by half in a row: then it is not the limit */
#define CAUTION 0.2              /* standard errors */

/* What production is steered to lose: the less is known of what it does, the less; but at least half, or a
 * poor signal would leave nothing for others. */
static double aim_of(const struct rate_loss *loss) {
  return RATE_AIM - fmin(CAUTION * loss->error, RATE_AIM / 2);
}

/* Production loses nothing that can be seen, so nobody knows how much more it would stand. */
static bool is_calm(const struct rate_loss *loss) {
  return loss->loss < 2 * loss->noise && loss->loss + 2 * loss->noise < RATE_AIM;
}

static void note_calm(struct rate_gpu *gpu, const struct rate_loss *loss) {
  if (is_calm(loss))
    gpu->calm += gpu->calm < CALM_MOST;
  else
    gpu->calm -= gpu->calm > 0;
}

#define FALLS_MOST 6
#define FALL_ERRORS 2.0

static void note_fall(struct rate_gpu *gpu, const struct rate_loss *loss) {
  if (gpu->falling && loss->loss - RATE_AIM > FALL_ERRORS * loss->noise)
    gpu->falls += gpu->falls < FALLS_MOST;
}

/* While production is calm, increases become larger and larger. */
static void increase(struct rate_gpu *gpu, double step) {
  double boosted = ldexp(step, gpu->calm > 0 ? 3 * (int)gpu->calm - 3 : 0);
  gpu->tries = 0;
  gpu->falls /= 2;
  gpu->falling = false;
  step = fmin(step, fmax(INCREASE_MOST * gpu->limit, RATE_AIM * RATE_WHOLE_GPU));
  set_limit(gpu, gpu->limit + fmax(step, fmin(boosted, INCREASE_MOST * gpu->limit)), RATE_STEADY, RATE_KEEPS);
}

static void decrease(struct rate_gpu *gpu, double step) {
  double most = (gpu->state == RATE_SLOW_START ? START_DECREASE_MOST : DECREASE_MOST) * gpu->limit;
  gpu->tries = step >= most ? gpu->tries + 1 : 0;
  gpu->calm = 0;
  gpu->falling = true;
  if (gpu->tries >= TRIES)
    check(gpu, RATE_LOSES_ALWAYS, gpu->ticks);
  else
    set_limit(gpu, gpu->limit - fmin(step, most), RATE_STEADY, RATE_LOSES);
}

/* How far production's loss is from what is steered for, as far as the window is believed beside what was
 * known: where both are as uncertain, half. What production is to get back is known without any window. */
static double take_difference(const struct rate_loss *loss) {
  double *doubt = &loss->whose->doubt;
  double trust = squared(*doubt) / (squared(*doubt) + squared(loss->noise));
  double moved = trust * (aim_of(loss) - loss->loss) + (1 - trust) * (loss->whose->due - loss->due);
  *doubt = sqrt((1 - trust) * squared(*doubt) + squared(SLOPE_ERROR * moved) + squared(DRIFT));
  if (is_calm(loss))
    *doubt = fmax(*doubt, RATE_AIM);
  loss->whose->due = loss->due;
  return moved;
}

static void scale_doubts(struct rate_gpu *gpu, double factor) {
  rate_each_job(job, &gpu->production) { job->signal.doubt *= factor; }
}

static void change_limit(struct rate_gpu *gpu, const struct rate_loss *loss) {
  if (loss->loss < aim_of(loss) && !share_is_wanted(gpu)) {
    rate_enter(gpu, RATE_STEADY, RATE_NO_DEMAND);
    return;
  }
  note_calm(gpu, loss);
  note_fall(gpu, loss);
  bool through_zero = gain_at(gpu, loss) >= gain_through_zero(gpu, loss);
  double before = gpu->limit, step = gain_at(gpu, loss) * take_difference(loss) * RATE_WHOLE_GPU;
  if (step > 0)
    increase(gpu, step);
  else
    decrease(gpu, -step);
  if (through_zero) /* on a line through zero errors shrink with the limit */
    scale_doubts(gpu, fmin(gpu->limit / before, 1));
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
#define PROBE_ERROR 0.2 /* of the loss that ends slow start */

static bool is_bad(const struct rate_loss *loss) {
  double errors = loss->ticks < START_TICKS_MOST ? BAD_ERRORS : 1;
  return loss->ticks >= START_TICKS && loss->loss > RATE_TOLERANCE + errors * loss->error;
}

/* undecided: also by what their kernels lose of whom it is not known whether they feel that. */
static bool some_bad(const struct rate_gpu *gpu, bool undecided) {
  rate_each_job(job, &gpu->production) {
    struct rate_loss loss = signal_loss_due(&job->signal, gpu->ticks, 0);
    bool counts = signal_works(&job->signal) && (undecided || !signal_is_undecided(&job->signal));
    if (counts && is_bad(&loss))
      return true;
  }
  return false;
}

/* What is known once slow start is over: no more than its last window tells. */
static void doubt_all(struct rate_gpu *gpu, double doubt) {
  rate_each_job(job, &gpu->production) { job->signal.doubt = doubt; }
}

/* Coarse: production can lose little more than the limit, and the next one is twice as high. So the error may
 * be as large as a part of the limit; and where a loss can't be told from chance, at twice the limit it can
 * rather. */
static bool is_good(const struct rate_gpu *gpu, const struct rate_loss *loss) {
  double limit = gpu->limit / RATE_WHOLE_GPU;
  unsigned most = gpu->limit < SMALL ? START_TICKS_SMALL : START_TICKS_MOST;
  double error = hypot(loss->error, sqrt(limit / 4 * loss->grain));
  if (loss->ticks >= START_TICKS && loss->loss <= RATE_TOLERANCE && error < fmax(START_ERROR, limit / 4))
    return true;
  bool harmless = gpu->limit < SMALL || loss->error < limit;
  return loss->ticks >= START_TICKS_SLOW || (loss->ticks >= most && harmless);
}

static bool some_owed(const struct rate_gpu *gpu) {
  rate_each_job(job, &gpu->production) {
    if (signal_works(&job->signal) && job->signal.debt_s > 0)
      return true;
  }
  return false;
}

/* What production has not lost while it was measured may be spent on finding out what the limit costs. */
static bool is_probed(const struct rate_gpu *gpu, const struct rate_loss *loss) {
  return loss->spread < PROBE_ERROR * loss->loss || some_owed(gpu);
}

static void end_start(struct rate_gpu *gpu, const struct rate_loss *loss) {
  doubt_all(gpu, loss->loss);
  change_limit(gpu, loss);
}

static void end_at_most(struct rate_gpu *gpu, const struct rate_loss *loss) {
  doubt_all(gpu, fmax(loss->error, RATE_AIM));
  set_limit(gpu, gpu->limit, RATE_STEADY, RATE_KEEPS);
}

/* Where production's speed wanders by itself, a loss shows when others pause, if it is large enough. */
#define EXPERIMENT_TICKS 4
#define EXPERIMENT_ERRORS 4.0 /* by so many kernels must lose more than one look is off */

static bool some_undecided(const struct rate_gpu *gpu) {
  rate_each_job(job, &gpu->production) {
    if (signal_works(&job->signal) && signal_is_undecided(&job->signal))
      return true;
  }
  return false;
}

static bool is_telling(const struct rate_gpu *gpu, const struct rate_signal *signal) {
  bool more = gpu->limit < limit_most(gpu) && signal->looks == 0;
  double least = more ? EXPERIMENT_ERRORS * signal->arrivals.beside_error : 0;
  return signal_kernels_loss(signal, gpu->ticks).loss > fmax(RATE_TOLERANCE, least);
}

static bool some_tell(const struct rate_gpu *gpu) {
  rate_each_job(job, &gpu->production) {
    const struct rate_signal *signal = &job->signal;
    if (signal_works(signal) && signal_is_undecided(signal) && is_telling(gpu, signal))
      return true;
  }
  return false;
}

/* False: there is nothing to be found out. */
static bool step_experiment(struct rate_gpu *gpu) {
  bool most = gpu->limit >= limit_most(gpu);
  if (gpu->ticks < EXPERIMENT_TICKS)
    gpu->reason = RATE_UNDECIDED;
  else if (some_tell(gpu))
    check(gpu, RATE_WANDERS, gpu->ticks);
  else if (!most && share_is_wanted(gpu))
    set_limit(gpu, gpu->limit * STRIDE, RATE_SLOW_START, RATE_KEEPS);
  else
    return gpu->ticks < START_TICKS_MOST;
  return true;
}

/* Nothing is tried out at the expense of others that surely lose. */
static void step_start(struct rate_gpu *gpu) {
  bool undecided = some_undecided(gpu), bad = is_sure(gpu, some_bad(gpu, !undecided));
  if (undecided && !bad && step_experiment(gpu))
    return;
  bad |= undecided && some_bad(gpu, true);
  struct rate_loss loss = worst_loss(gpu, gpu->ticks);
  bool good = is_good(gpu, &loss);
  if (bad && some_lack_work(gpu, gpu->ticks))
    check(gpu, RATE_LACKS_WORK, gpu->ticks);
  else if (bad && is_probed(gpu, &loss))
    end_start(gpu, &loss);
  else if (bad)
    gpu->reason = RATE_UNDECIDED;
  else if (good && gpu->limit >= limit_most(gpu))
    end_at_most(gpu, &loss);
  else if (good && share_is_wanted(gpu))
    set_limit(gpu, gpu->limit * STRIDE, RATE_SLOW_START, RATE_KEEPS);
  else
    gpu->reason = good ? RATE_NO_DEMAND : RATE_UNDECIDED;
}

/* ---- steady ---- */

#define CERTAIN 0.75       /* a window's error beside the doubt: then it tells enough to make a step */
#define CERTAIN_CALM 0.375 /* enough to tell as well whether production is still calm */

#define FASTER_TICKS_MOST 192

/* The shortest window in which it is much faster than undisturbed; 0: it is not. */
static unsigned faster_ticks(const struct rate_signal *signal) {
  for (unsigned ticks = STEADY_TICKS; ticks <= FASTER_TICKS_MOST; ticks *= 2)
    if (signal_is_faster(signal, ticks))
      return ticks;
  return 0;
}

/* Who is faster loses nothing that is known of. One whose speed changes by itself is taken at its word, for
 * another it may be another phase, in which it could be faster still. */
static unsigned some_faster(struct rate_gpu *gpu) {
  unsigned some = 0;
  rate_each_job(job, &gpu->production) {
    unsigned ticks = signal_works(&job->signal) ? faster_ticks(&job->signal) : 0;
    if (ticks > 0 && !signal_take_faster(&job->signal, ticks))
      some = ticks;
  }
  return some;
}

static bool is_surprising(const struct rate_loss *loss) {
  return loss->ticks >= STEADY_TICKS &&
         fabs(RATE_AIM - loss->loss) > SURPRISE_ERRORS * hypot(loss->whose->doubt, loss->spread);
}

/* The shortest window that is a surprise; else the longest. */
static struct rate_loss telling_loss(const struct rate_gpu *gpu) {
  for (unsigned ticks = STEADY_TICKS; ticks < POOR_TICKS_MOST; ticks *= 2) {
    struct rate_loss loss = worst_loss(gpu, ticks);
    if (is_surprising(&loss))
      return loss;
  }
  return worst_loss(gpu, POOR_TICKS_MOST);
}

/* The window tells more than is known; or a longer one would hardly tell more. */
static bool is_enough(const struct rate_gpu *gpu, const struct rate_loss *loss) {
  double certain = gpu->calm > 0 ? CERTAIN_CALM : CERTAIN;
  unsigned most = loss->noise > POOR ? POOR_TICKS_MOST : STEADY_TICKS_MOST;
  return loss->noise < certain * loss->whose->doubt || loss->ticks >= most;
}

static void step_steady(struct rate_gpu *gpu) {
  struct rate_loss loss = telling_loss(gpu);
  bool surprise = is_sure(gpu, is_surprising(&loss));
  if (loss.ticks < STEADY_TICKS)
    return;
  if (surprise)
    loss.whose->doubt = fabs(RATE_AIM - loss.loss);
  bool may_check = gpu->unchecked >= gpu->wait;
  unsigned faster = some_faster(gpu);
  if (faster > 0 && may_check)
    check(gpu, RATE_FASTER, faster);
  else if (may_check && surprise && some_lack_work(gpu, loss.ticks))
    check(gpu, RATE_LACKS_WORK, loss.ticks);
  else if (surprise || is_enough(gpu, &loss))
    change_limit(gpu, &loss);
}

/* ---- what others see ---- */

void limit_start(struct rate_gpu *gpu, double part) {
  gpu->tries = gpu->calm = gpu->falls = 0;
  gpu->falling = false;
  set_limit(gpu, fmax(gpu->limit * part, LIMIT_FIRST), RATE_SLOW_START, RATE_UNDECIDED);
}

void limit_resume(struct rate_gpu *gpu, double part) {
  gpu->tries = gpu->calm = 0;
  if (part < 1)
    set_limit(gpu, gpu->limit * part, RATE_STEADY, gpu->reason);
  else
    rate_enter(gpu, gpu->started ? RATE_STEADY : RATE_SLOW_START, gpu->reason);
}

void limit_step(struct rate_gpu *gpu) {
  if (some_pause(gpu))
    gpu->reason = RATE_QUIET;
  else if (gpu->state == RATE_SLOW_START)
    step_start(gpu);
  else
    step_steady(gpu);
}
