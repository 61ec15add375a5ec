/*
 * test_rate_simulation.c - the controller on simulated GPUs: those of the benchmark, where it must find the
 * best limit in time, and random ones, where some things must hold at every tick.
 *
 * usage: test_rate_simulation [SEED [RUNS]]; GPUSHARE_SEED and GPUSHARE_RUNS do the same. A failure prints
 * the seed of the run that failed: with it and RUNS 1 the same happens again.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plants/chance.h"
#include "plants/judge.h"

#define RUN_S 30.0
#define CROWDED 0.3 /* of the GPU: beyond it guests may be held up by each other, not by their limits */

static struct run {
  uint64_t seed;
  struct plant plant;
  double last_s;
  bool idle_before;               /* at the last tick production was idle, and guests free */
  double loss;                    /* of all random plants, sum */
  double allowed_s[PLANT_GUESTS]; /* GPU time, while limits held guests up */
} run;

static void fail(const char *what, double value) {
  fprintf(stderr, "seed %llu, plant %s, at %.3f s: %s: %g\nto replay: test_rate_simulation %llu 1\n",
          (unsigned long long)run.seed, run.plant.name, run.last_s, what, value,
          (unsigned long long)run.seed);
  exit(EXIT_FAILURE);
}

/* ---- the plants of the benchmark ---- */

/* Where nothing but the controller decides: few guests, little noise. */
static const char *const easy[] = {"flat", "kinked", "leftovers"};

static double middle(double a, double b, double c) { return fmax(fmin(a, b), fmin(fmax(a, b), c)); }

static void check_at_most(const char *what, const struct judge_verdict *verdicts, size_t place, double most) {
  double values[3];
  for (int i = 0; i < 3; i++)
    values[i] = *(const double *)((const char *)&verdicts[i] + place);
  if (middle(values[0], values[1], values[2]) > most)
    fail(what, middle(values[0], values[1], values[2]));
}

/* As the benchmark judges: by the median, here of three runs. */
static void check_easy(const char *name, uint64_t seed) {
  const struct plant_regime regime = {.controlled = true};
  struct judge_verdict verdicts[3];
  struct judge_best best;
  run.plant = *plant_find(name);
  judge_find_best(&run.plant, seed + 1000, &best);
  for (unsigned i = 0; i < 3; i++)
    judge_run(&run.plant, &regime, &best, seed + 2000 * i, &verdicts[i]);
  check_at_most("converges too late, s", verdicts, offsetof(struct judge_verdict, converge_s), 5);
  check_at_most("reconverges too late, s", verdicts, offsetof(struct judge_verdict, reconverge_s), 4);
  check_at_most("sawtooth", verdicts, offsetof(struct judge_verdict, sawtooth), 0.2);
  check_at_most("production loses", verdicts, offsetof(struct judge_verdict, loss), 0.021);
}

/* ---- random plants ---- */

static double between(uint64_t *random, double low, double high) {
  return low + (high - low) * chance_uniform(random);
}

static struct worker_kind random_worker(uint64_t *random) {
  struct worker_kind kind = {.cpu_s = between(random, 0.001, 0.05),
                             .gpu_s = between(random, 0.005, 0.1),
                             .kernels = 20 + (unsigned)(splitmix_next(random) % 300),
                             .jitter = between(random, 0, 0.2),
                             .sample_noise = between(random, 0, 0.3)};
  if (splitmix_next(random) % 3 == 0)
    kind.requests_per_s = between(random, 0.1, 0.5) / kind.gpu_s;
  else if (splitmix_next(random) % 3 == 0)
    kind.burst_s = between(random, 1, 6), kind.pause_s = between(random, 0.2, 5);
  return kind;
}

static void random_plant(uint64_t seed) {
  uint64_t random = seed;
  struct plant_phase *phase = &run.plant.phases[0];
  run.plant = (struct plant){.name = "random", .phase_count = 1};
  run.plant.sharing = splitmix_next(&random) % 2 ? PLANT_SLICES : PLANT_TOGETHER;
  run.plant.workers = 1 + (unsigned)(splitmix_next(&random) % PLANT_WORKERS);
  run.plant.guests = 1 + (unsigned)(splitmix_next(&random) % PLANT_GUESTS);
  phase->leftover = between(&random, 0, 1);
  phase->slope = between(&random, 0, 1.5);
  for (unsigned i = 0; i < run.plant.workers; i++)
    phase->workers[i] = random_worker(&random);
  for (unsigned i = 0; i < run.plant.guests; i++)
    run.plant.demand[i] = splitmix_next(&random) % 3 == 0 ? between(&random, 0.01, 0.2) : 1;
}

static void check_limits(const struct plant_tick *tick) {
  for (unsigned i = 0; i < run.plant.guests; i++)
    if (!(tick->guest_limit[i] >= 0 && tick->guest_limit[i] <= 1))
      fail("a limit out of bounds", tick->guest_limit[i]);
  bool paused = tick->state == RATE_CHECKING || tick->state == RATE_MEASURING;
  if (paused != (tick->limit <= 0))
    fail("paused, or not, and the limit is", tick->limit);
}

static void check_tick(void *context, const struct plant_tick *tick) {
  (void)context;
  double period_s = tick->now_s - run.last_s;
  run.last_s = tick->now_s;
  for (unsigned i = 0; i < run.plant.guests && tick->limited && tick->limit < CROWDED; i++)
    run.allowed_s[i] += tick->guest_limit[i] * period_s;
  if (period_s > 0.1)
    fail("a period is too long", period_s);
  check_limits(tick);
  if (run.idle_before && tick->state != RATE_FREE && tick->limit > 0)
    fail("production is back, and guests have", tick->limit);
  run.idle_before = tick->state == RATE_FREE;
}

/* Production jobs disturb each other, too: beside what the one that loses most loses without guests. */
static double loss_by_guests(const struct plant_outcome *outcome, uint64_t seed) {
  const struct plant_regime alone = {.controlled = false};
  struct plant_outcome without;
  double worst = 0;
  plant_run(&run.plant, &alone, 0, RUN_S, seed, NULL, NULL, &without);
  for (unsigned i = 0; i < run.plant.workers; i++)
    worst =
        fmax(worst, 1 - outcome->own_s[i] / outcome->worked_s[i] / (without.own_s[i] / without.worked_s[i]));
  return worst;
}

/* Guests that want all they can get may have the same. */
static void check_fairness(void) {
  double least = INFINITY, most = 0;
  for (unsigned i = 0; i < run.plant.guests; i++) {
    if (run.plant.demand[i] < 1)
      continue;
    least = fmin(least, run.allowed_s[i]);
    most = fmax(most, run.allowed_s[i]);
  }
  if (most > 1.5 * least + 0.02)
    fail("unfair by a factor of", most / least);
}

static void check_random(uint64_t seed) {
  const struct plant_regime regime = {.controlled = true};
  struct plant_outcome outcome;
  random_plant(seed);
  run.last_s = 0;
  memset(run.allowed_s, 0, sizeof run.allowed_s);
  run.idle_before = false;
  plant_run(&run.plant, &regime, 0, RUN_S, seed, check_tick, NULL, &outcome);
  check_fairness();
  double loss = loss_by_guests(&outcome, seed);
  run.loss += loss;
  if (loss > 0.35)
    fail("production loses", loss);
}

/* ---- wild counters ---- */

static uint64_t wild_number(uint64_t *random) {
  uint64_t bits = splitmix_next(random);
  return bits >> (splitmix_next(random) % 64);
}

static struct rate_counters wild_counters(uint64_t *random) {
  return (struct rate_counters){.at_ns = wild_number(random),
                                .submissions = wild_number(random),
                                .sampled_ns = wild_number(random),
                                .expected_ns = wild_number(random),
                                .busy_ns = wild_number(random),
                                .throttled_ns = wild_number(random),
                                .idle = splitmix_next(random) % 2};
}

/* Jobs come and go, and tell nonsense, at any times. */
static void check_wild(uint64_t seed) {
  static struct rate_job jobs[6];
  bool there[6] = {false};
  struct rate_gpu gpu;
  uint64_t random = seed, now_ns = 1;
  run.plant.name = "wild";
  rate_gpu_init(&gpu);
  for (int step = 0; step < 2000; step++) {
    unsigned i = (unsigned)(splitmix_next(&random) % 6);
    if (splitmix_next(&random) % 20 == 0) {
      if (there[i])
        rate_job_remove(&gpu, &jobs[i]);
      else
        rate_job_add(&gpu, &jobs[i], i < 3 ? RATE_PRODUCTION : RATE_OPPORTUNISTIC);
      there[i] = !there[i];
    }
    struct rate_counters counters = wild_counters(&random);
    rate_job_tell(&jobs[i], &counters);
    rate_tick(&gpu, now_ns += wild_number(&random) % 10000000000);
    run.last_s = (double)now_ns / 1e9;
    for (int k = 3; k < 6; k++)
      if (there[k] && jobs[k].limit != RATE_NO_LIMIT && jobs[k].limit > 3000000000)
        fail("a limit out of bounds", (double)jobs[k].limit);
    if (!isfinite(gpu.limit) || gpu.limit < 0)
      fail("the limit", gpu.limit);
  }
}

int main(int argc, char **argv) {
  const char *seed_text = argc > 1 ? argv[1] : getenv("GPUSHARE_SEED");
  const char *runs_text = argc > 2 ? argv[2] : getenv("GPUSHARE_RUNS");
  uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 1;
  uint64_t runs = runs_text ? strtoull(runs_text, NULL, 10) : 100;
  printf("seeds %llu to %llu\n", (unsigned long long)seed, (unsigned long long)(seed + runs - 1));
  for (run.seed = seed; run.seed < seed + runs; run.seed++) {
    check_random(run.seed);
    check_wild(run.seed);
    if (run.seed % 25 == 1)
      for (size_t i = 0; i < sizeof easy / sizeof *easy; i++)
        check_easy(easy[i], run.seed);
  }
  if (runs >= 50 && run.loss / (double)runs > 0.04)
    fail("production loses on average", run.loss / (double)runs);
  return EXIT_SUCCESS;
}
