/* plant.c - see plant.h. */
#include "plants/plant.h"

#include <string.h>

#include "plants/chance.h"

#define SUBMISSIONS 300  /* of an iteration or a request */
#define SUBMITS_PART 0.2 /* of an iteration with an end that is waited for */
#define TELLS_S 0.020
#define LETTERS 64

struct worker {
  const struct plant_worker *kind;
  struct rate_job job;
  bool active;
  unsigned queued;                /* requests, the present one included */
  double next_request_s, turns_s; /* it begins to work, or to rest */
  double length_s, done_s;        /* of the iteration */
  double strayed, strayed_at_s;
  double active_s, told_s, own_s, worked_s;
  uint64_t submissions; /* of iterations that are over */
  struct rate_progress progress;
};

struct share {
  double duty, slice_us, long_us;
};

struct run {
  const struct plant *plant;
  double level; /* NAN: the controller's */
  double now_s;
  uint64_t random;
  struct rate_gpu gpu;
  struct worker workers[PLANT_WORKERS];
  unsigned worker_count;
  struct share share; /* in force */
  struct {
    double at_s;
    struct share share;
  } letters[LETTERS];
  unsigned first, last;
  uint64_t changes;
};

static uint64_t ns_of(double s) { return (uint64_t)(s * 1e9); }

/* ---- what others are told ---- */

static struct share share_of(const struct rate_gpu *gpu) {
  return (struct share){rate_duty(gpu), rate_slice_us(gpu), rate_long_slice_us(gpu)};
}

static double between(double least, double most, double slice_us) {
  return least +
         (most - least) * (slice_us - RATE_SLICE_LEAST_US) / (RATE_SLICE_MOST_US - RATE_SLICE_LEAST_US);
}

/* What the slices take from work that never ends, and what they give. */
static double taken(const struct share *share, double change_us) {
  return (share->slice_us + change_us) / (share->slice_us + PLANT_CHANGE_US + share->long_us);
}

static void post(struct run *run) {
  if (run->changes == run->gpu.changes)
    return;
  run->changes = run->gpu.changes;
  run->letters[run->last].at_s = run->now_s + PLANT_LATENCY_S;
  run->letters[run->last].share = share_of(&run->gpu);
  run->last = (run->last + 1) % LETTERS;
}

static bool some_active(const struct run *run) {
  for (unsigned i = 0; i < run->worker_count; i++)
    if (run->workers[i].active)
      return true;
  return false;
}

static void deliver(struct run *run) {
  if (!isnan(run->level)) {
    struct rate_gpu gpu = {.level = run->level, .state = some_active(run) ? RATE_TRIAL : RATE_FREE};
    run->share = share_of(&gpu);
  }
  for (; isnan(run->level) && run->first != run->last && run->letters[run->first].at_s <= run->now_s;
       run->first = (run->first + 1) % LETTERS)
    run->share = run->letters[run->first].share;
}

/* ---- production ---- */

static void say(struct run *run, struct worker *worker) {
  double part = worker->length_s > 0 ? worker->done_s / worker->length_s : 0;
  part = worker->kind->sync ? fmin(part / SUBMITS_PART, 1) : part;
  worker->progress.submissions = worker->submissions + (uint64_t)(SUBMISSIONS * part);
  worker->progress.active_ns = ns_of(worker->active_s);
  worker->progress.active = worker->active;
  worker->told_s = run->now_s;
  rate_progress(&run->gpu, &worker->job, &worker->progress, ns_of(run->now_s));
}

static void mark(struct worker *worker) {
  worker->progress.mark_submissions = worker->submissions;
  worker->progress.mark_active_ns = ns_of(worker->active_s);
}

static void begin_iteration(struct run *run, struct worker *worker) {
  const struct plant_worker *kind = worker->kind;
  double kept = exp((worker->strayed_at_s - run->now_s) / PLANT_WANDER_S);
  worker->strayed =
      worker->strayed * kept + kind->wander * sqrt(1 - kept * kept) * chance_normal(&run->random);
  worker->strayed_at_s = run->now_s;
  worker->done_s = fmax(worker->done_s - worker->length_s, 0); /* time goes on between steps */
  worker->length_s = kind->iteration_s * chance_around_one(&run->random, kind->jitter) * exp(worker->strayed);
  if (kind->change_s > 0 && run->now_s >= kind->change_s)
    worker->length_s *= kind->change;
}

static void set_active(struct run *run, struct worker *worker, bool active) {
  worker->active = active;
  if (active) {
    mark(worker);
    begin_iteration(run, worker);
  } else {
    worker->length_s = worker->done_s = 0;
  }
  say(run, worker);
}

/* Of a server: requests that come. Of one that works and rests by turns: whether it works. */
static void wake(struct run *run, struct worker *worker) {
  const struct plant_worker *kind = worker->kind;
  if (kind->requests_per_s > 0 && run->now_s >= worker->next_request_s) {
    worker->next_request_s += chance_exponential(&run->random, 1 / kind->requests_per_s);
    if (worker->queued++ == 0)
      set_active(run, worker, true);
  } else if (kind->requests_per_s <= 0 && !worker->active && run->now_s >= worker->turns_s) {
    worker->turns_s = run->now_s + kind->work_s;
    set_active(run, worker, true);
  }
}

static void end_iteration(struct run *run, struct worker *worker) {
  const struct plant_worker *kind = worker->kind;
  worker->submissions += SUBMISSIONS;
  bool rests = kind->rest_s > 0 && run->now_s >= worker->turns_s;
  if (rests || (kind->requests_per_s > 0 && --worker->queued == 0)) {
    worker->turns_s = run->now_s + kind->rest_s;
    set_active(run, worker, false);
    return;
  }
  if (kind->sync)
    mark(worker);
  begin_iteration(run, worker);
}

/* What stopping others and letting them on costs, of the time. */
static double turns_loss(double duty) {
  double run_s = fmax(duty * PLANT_PERIOD_S, PLANT_RUN_S);
  return duty > 0 && duty < 1 ? PLANT_TURN_S * duty / run_s : 0;
}

static double loss(const struct plant_worker *kind, const struct share *share) {
  return between(kind->loss_least, kind->loss_most, share->slice_us) +
         (kind->full ? taken(share, PLANT_CHANGE_US) : 0);
}

static void advance(struct run *run, struct worker *worker) {
  wake(run, worker);
  if (!worker->active)
    return;
  const struct plant_worker *kind = worker->kind;
  double speed = 1 - run->share.duty * loss(kind, &run->share) - turns_loss(run->share.duty);
  worker->done_s += PLANT_STEP_S * speed;
  worker->own_s += PLANT_STEP_S * speed;
  worker->worked_s += PLANT_STEP_S;
  worker->active_s += PLANT_STEP_S;
  if (worker->done_s >= worker->length_s)
    end_iteration(run, worker);
  else if (run->now_s - worker->told_s >= TELLS_S)
    say(run, worker);
}

/* ---- a run ---- */

static void begin(struct run *run) {
  rate_gpu_init(&run->gpu);
  run->gpu.random = run->random;
  rate_set_guests(&run->gpu, true, 0);
  run->share = share_of(&run->gpu);
  for (unsigned i = 0; i < PLANT_WORKERS && run->plant->workers[i].iteration_s > 0; i++) {
    struct worker *worker = &run->workers[run->worker_count++];
    worker->kind = &run->plant->workers[i];
    rate_job_add(&run->gpu, &worker->job, true, 0);
    if (worker->kind->requests_per_s > 0)
      worker->next_request_s = chance_exponential(&run->random, 1 / worker->kind->requests_per_s);
  }
}

static double gain(const struct run *run) {
  bool active = false, full = false;
  for (unsigned i = 0; i < run->worker_count; i++) {
    active |= run->workers[i].active;
    full |= run->workers[i].active && run->workers[i].kind->full;
  }
  return !active ? 1
                 : between(run->plant->gain_least, run->plant->gain_most, run->share.slice_us) +
                       (full ? taken(&run->share, 0) : 0);
}

static void step(struct run *run, struct plant_sight *sight) {
  run->now_s += PLANT_STEP_S;
  deliver(run);
  sight->gained_s += PLANT_STEP_S * run->share.duty * gain(run);
  for (unsigned i = 0; i < run->worker_count; i++) {
    advance(run, &run->workers[i]);
    post(run);
  }
  rate_on_time(&run->gpu, ns_of(run->now_s));
  post(run);
}

static void look(struct run *run, struct plant_sight *sight) {
  sight->to_s = run->now_s;
  sight->level = isnan(run->level) ? run->gpu.level : run->level;
  for (unsigned i = 0; i < run->worker_count; i++) {
    sight->own_s[i] = run->workers[i].own_s;
    sight->worked_s[i] = run->workers[i].worked_s;
    run->workers[i].own_s = run->workers[i].worked_s = 0;
  }
}

void plant_run(const struct plant *plant, double level, double run_s, uint64_t seed, plant_watch_fn watch,
               void *context) {
  struct run run = {.plant = plant, .level = level, .random = seed};
  struct plant_sight sight = {0};
  begin(&run);
  while (run.now_s < run_s) {
    step(&run, &sight);
    if (run.now_s - sight.from_s < PLANT_SIGHT_S - PLANT_STEP_S / 2)
      continue;
    look(&run, &sight);
    watch(context, &sight);
    sight = (struct plant_sight){.from_s = run.now_s};
  }
}
