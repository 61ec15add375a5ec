/*
 * rate.c - the states of a GPU's controller, and its steps: what the signals say becomes one limit for all
 * opportunistic jobs together.
 */
#include "core/rate_internal.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- all production jobs together ---- */

static bool some(const struct rate_gpu *gpu, bool (*is)(const struct rate_signal *signal)) {
  rate_each_job(job, &gpu->production) {
    if (is(&job->signal))
      return true;
  }
  return false;
}

static bool is_crowd(const struct rate_gpu *gpu) { return gpu->production_count > RATE_WATCHED_MOST; }

static bool is_awake(const struct rate_signal *signal) { return !signal_is_idle(signal); }

static bool is_new(const struct rate_signal *signal) { return is_awake(signal) && !signal->measured; }

/* ---- paused ---- */

#define CHECK_TICKS 4
#define BACK_TICKS 12  /* who has come back submits more at first, until as much is queued as ever */
#define WAIT_LEAST 100 /* ticks between two checks that have found nothing; each doubles it */
#define WAIT_MOST 1600
#define REMEASURE_TICKS 30
#define RESTART_PART 0.25 /* of the old limit: slow start begins there when a phase has changed */
#define RESUME_PART 0.5   /* of the limit that production lost by */

/* What is known of those that have left their band is forgotten. */
static bool forget_changed(struct rate_gpu *gpu) {
  bool changed = false;
  rate_each_job(job, &gpu->production) {
    struct rate_signal *signal = &job->signal;
    if (!signal_works(signal) || !signal_look(signal, CHECK_TICKS - 1))
      continue;
    signal_measure(signal);
    changed = true;
  }
  return changed;
}

/* A measurement goes on after a rest, but for the tick in which others still had something queued. */
static void measure(struct rate_gpu *gpu, enum rate_reason reason) {
  rate_each_job(job, &gpu->production) {
    if (is_new(&job->signal) && !job->signal.measuring)
      signal_measure(&job->signal);
    else if (job->signal.measuring)
      signal_drop(&job->signal, gpu->ticks);
  }
  gpu->wait = 0;
  rate_enter(gpu, RATE_MEASURING, reason);
}

/* Production is as it was: so the limit was too high if production lost by it. */
static void resume(struct rate_gpu *gpu) {
  rate_each_job(job, &gpu->production) { signal_drop(&job->signal, gpu->ticks); }
  gpu->wait = gpu->wait < WAIT_MOST / 2 ? 2 * gpu->wait : WAIT_MOST;
  gpu->wait = gpu->wait > WAIT_LEAST ? gpu->wait : WAIT_LEAST;
  gpu->unchecked = 0;
  limit_resume(gpu, gpu->reason == RATE_LOSES_ALWAYS ? RESUME_PART : 1);
}

/* Its kernels lose, and it is slower for it, as has been found out now. */
static bool is_held_back(const struct rate_signal *signal) {
  return signal->wander > 0 && !signal_is_undecided(signal) && signal_feels(signal);
}

static bool some_fill_their_queue(const struct rate_gpu *gpu) {
  if (gpu->reason != RATE_PRODUCTION_BACK || gpu->ticks >= BACK_TICKS)
    return false;
  rate_each_job(job, &gpu->production) {
    if (signal_works(&job->signal) && signal_is_outside(&job->signal, CHECK_TICKS - 1))
      return true;
  }
  return false;
}

static void step_checking(struct rate_gpu *gpu) {
  if (some(gpu, is_new)) {
    measure(gpu, RATE_PRODUCTION_NEW);
    return;
  }
  if (!some(gpu, signal_works) || gpu->ticks < CHECK_TICKS || some_fill_their_queue(gpu))
    return;
  if (forget_changed(gpu))
    measure(gpu, RATE_LEFT_BAND);
  else if (gpu->limit <= 0)
    limit_start(gpu, 0);
  else if (gpu->reason == RATE_WANDERS && some(gpu, is_held_back))
    limit_start(gpu, RESTART_PART);
  else
    resume(gpu);
}

/* A phase that follows another is measured more coarsely: nobody waits for so long again and again. */
static bool is_measured(const struct rate_gpu *gpu) {
  unsigned ticks_most = gpu->reason == RATE_LEFT_BAND ? REMEASURE_TICKS : UINT_MAX;
  rate_each_job(job, &gpu->production) {
    if (is_new(&job->signal) && !signal_suffices(&job->signal, ticks_most))
      return false;
  }
  return true;
}

/* False: of one nothing can be said yet. It is measured for longer. */
static bool learn(struct rate_gpu *gpu) {
  bool learnt = true;
  rate_each_job(job, &gpu->production) {
    if (is_new(&job->signal) && !signal_learn(&job->signal))
      learnt = false;
  }
  return learnt;
}

static void step_measuring(struct rate_gpu *gpu) {
  if (!is_measured(gpu))
    return;
  if (!learn(gpu))
    gpu->reason = RATE_NO_SIGNAL;
  else if (some(gpu, signal_works))
    limit_start(gpu, RESTART_PART);
}

/* ---- a tick ---- */

static void set_free(struct rate_gpu *gpu, enum rate_reason reason) {
  if (gpu->state != RATE_FREE)
    gpu->free_since_ns = gpu->last_ns;
  if (gpu->state != RATE_FREE || gpu->reason != reason)
    rate_enter(gpu, RATE_FREE, reason);
}

/* Those that were idle while others had no limit have paid for it. */
static void come_back(struct rate_gpu *gpu) {
  uint64_t free_ns = gpu->last_ns - gpu->free_since_ns;
  rate_each_job(job, &gpu->production) {
    if (gpu->reason != RATE_PRODUCTION_IDLE || !signal_works(&job->signal))
      continue;
    if (job->signal.measuring && !job->signal.started) /* what was before its first rest was its start */
      signal_measure(&job->signal);
    job->signal.started = true;
    signal_surprise(&job->signal, job->growth.elapsed_ns, free_ns, gpu->wide);
  }
  rate_enter(gpu, RATE_CHECKING, RATE_PRODUCTION_BACK);
}

/* Other kernels than were measured: another phase. */
static void measure_unseen(struct rate_gpu *gpu) {
  rate_each_job(job, &gpu->production) {
    if (signal_is_unseen(&job->signal))
      signal_measure(&job->signal);
  }
  measure(gpu, RATE_LEFT_BAND);
}

static void step_limited(struct rate_gpu *gpu) {
  if (some(gpu, is_new))
    measure(gpu, RATE_PRODUCTION_NEW);
  else if (some(gpu, signal_is_unseen))
    measure_unseen(gpu);
  else if (!some(gpu, signal_works))
    gpu->reason = RATE_QUIET;
  else
    limit_step(gpu);
}

static void decide(struct rate_gpu *gpu) {
  gpu->ticks++;
  gpu->unchecked++;
  if (list_empty(&gpu->production))
    set_free(gpu, RATE_NO_PRODUCTION);
  else if (list_empty(&gpu->opportunistic))
    set_free(gpu, RATE_NO_OPPORTUNISTIC);
  else if (!some(gpu, is_awake))
    set_free(gpu, RATE_PRODUCTION_IDLE);
  else if (is_crowd(gpu))
    rate_enter(gpu, RATE_CHECKING, RATE_CROWD); /* a check follows once it has gone */
  else if (gpu->state == RATE_FREE)
    come_back(gpu);
  else if (gpu->state == RATE_CHECKING)
    step_checking(gpu);
  else if (gpu->state == RATE_MEASURING)
    step_measuring(gpu);
  else
    step_limited(gpu);
}

static bool is_paused(const struct rate_gpu *gpu) {
  return gpu->state == RATE_CHECKING || gpu->state == RATE_MEASURING;
}

/* After so long a rest some milliseconds more or less do not matter. With no more than 4 ms queued a training
 * of small kernels has 0.8 of its speed. */
#define WIDE_AFTER_NS (10 * UINT64_C(1000000000))

static void put_out(struct rate_gpu *gpu) {
  gpu->wide = gpu->state == RATE_FREE && gpu->last_ns - gpu->free_since_ns >= WIDE_AFTER_NS;
  gpu->undisturbed = (is_paused(gpu) && gpu->ticks > 0) || gpu->opportunistic_count == 0;
  if (gpu->state == RATE_FREE)
    share_equal(gpu, RATE_NO_LIMIT);
  else if (is_paused(gpu))
    share_equal(gpu, 0);
  else
    share_split(gpu);
}

static enum rate_guests guests_of(const struct rate_gpu *gpu) {
  if (gpu->state == RATE_FREE || is_crowd(gpu))
    return RATE_GUESTS_FREE;
  return gpu->undisturbed ? RATE_GUESTS_PAUSED : RATE_GUESTS_LIMITED;
}

static void take_counters(struct rate_gpu *gpu, uint64_t elapsed_ns) {
  enum rate_guests guests = guests_of(gpu);
  rate_each_job(job, &gpu->production) {
    growth_take(job, elapsed_ns);
    signal_take(&job->signal, &job->growth, guests);
  }
  rate_each_job(job, &gpu->opportunistic) {
    growth_take(job, elapsed_ns);
    share_take(job);
  }
}

/* Steps of the golden ratio: any number of them is spread evenly over the range. */
static uint64_t next_period_ns(struct rate_gpu *gpu) {
  gpu->dither += UINT32_C(0x9e3779b9);
  if (gpu->reason == RATE_PRODUCTION_IDLE)
    return RATE_PERIOD_IDLE_NS;
  return RATE_PERIOD_LEAST_NS + (((RATE_PERIOD_MOST_NS - RATE_PERIOD_LEAST_NS) * gpu->dither) >> 32);
}

void rate_tick(struct rate_gpu *gpu, uint64_t now_ns) {
  uint64_t elapsed_ns = now_ns - gpu->last_ns;
  if (now_ns <= gpu->last_ns)
    return;
  gpu->last_ns = now_ns;
  take_counters(gpu, elapsed_ns);
  decide(gpu);
  gpu->next_ns = now_ns + next_period_ns(gpu);
  put_out(gpu);
}

/* ---- who is there ---- */

static bool has_limit(const struct rate_gpu *gpu) {
  return gpu->state == RATE_SLOW_START || gpu->state == RATE_STEADY;
}

void rate_disturb(struct rate_gpu *gpu) {
  rate_each_job(job, &gpu->production) { job->told = false; }
  if (has_limit(gpu) || gpu->state == RATE_CHECKING)
    rate_enter(gpu, RATE_CHECKING, RATE_DISTURBED);
}

void rate_gpu_init(struct rate_gpu *gpu) {
  memset(gpu, 0, sizeof *gpu);
  list_init(&gpu->production);
  list_init(&gpu->opportunistic);
}

void rate_job_add(struct rate_gpu *gpu, struct rate_job *job, enum rate_class class) {
  memset(job, 0, sizeof *job);
  job->class = class;
  signal_init(&job->signal);
  list_append(class == RATE_PRODUCTION ? &gpu->production : &gpu->opportunistic, &job->link);
  ++*(class == RATE_PRODUCTION ? &gpu->production_count : &gpu->opportunistic_count);
}

void rate_job_remove(struct rate_gpu *gpu, struct rate_job *job) {
  list_remove(&job->link);
  --*(job->class == RATE_PRODUCTION ? &gpu->production_count : &gpu->opportunistic_count);
  if (list_empty(&gpu->production)) /* what it left over says nothing of the next one */
    gpu->started = false;
}

void rate_job_tell(struct rate_job *job, const struct rate_counters *counters) { job->now = *counters; }
