/*
 * test_rate_simulation.c - the controller of opportunistic jobs on random GPUs in virtual time
 * (bench/plants): production may lose but a little whatever it is like, and others get all where they cost
 * nothing. And jobs that come and go and tell nonsense.
 *
 * usage: test_rate_simulation [SEED [RUNS]]; GPUSHARE_SEED and GPUSHARE_RUNS do the same. A failure prints
 * the seed of the run that failed: with it and RUNS 1 the same happens again.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plants/chance.h"
#include "plants/plant.h"

#define RUN_S 60.0
#define START_S 20.0
#define LOSS_MOST 0.03        /* of a run, after the start: 1 in 80 loses more than 0.02, by its own noise */
#define LOSS_USUALLY RATE_AIM /* on average */

static struct run {
  uint64_t seed;
  double own_s, worked_s;             /* after the start */
  double start_own_s, start_worked_s; /* before */
  double level;                       /* in the end */
  double loss;                        /* of all runs, sum */
} run;

static void fail(const char *what, double value) {
  fprintf(stderr, "seed %llu: %s: %g\nto replay: test_rate_simulation %llu 1\n", (unsigned long long)run.seed,
          what, value, (unsigned long long)run.seed);
  exit(EXIT_FAILURE);
}

/* ---- random plants ---- */

static void note(void *context, const struct plant_sight *sight) {
  (void)context;
  double *own_s = sight->from_s < START_S ? &run.start_own_s : &run.own_s;
  double *worked_s = sight->from_s < START_S ? &run.start_worked_s : &run.worked_s;
  *own_s += sight->own_s[0];
  *worked_s += sight->worked_s[0];
  run.level = sight->level;
  if (!(sight->level >= RATE_LEVEL_LEAST && sight->level <= 1))
    fail("a level out of bounds", sight->level);
}

static double uniform(uint64_t *random, double least, double most) {
  return least + (most - least) * chance_uniform(random);
}

/* A training, of any length of iteration; perhaps it rests now and then, or its host is unsteady. */
static struct plant random_plant(uint64_t *random) {
  struct plant plant = {.name = "random", .gain_least = 0.1, .gain_most = 0.5};
  struct plant_worker *worker = &plant.workers[0];
  worker->iteration_s = exp(uniform(random, log(0.003), log(0.3)));
  worker->jitter = uniform(random, 0, 0.03);
  worker->sync = chance_uniform(random) < 0.5;
  worker->loss_least = uniform(random, 0, 1) < 0.3 ? 0 : uniform(random, 0, 0.15);
  worker->loss_most = chance_uniform(random) < 0.3 ? worker->loss_least : uniform(random, 0.15, 0.5);
  if (chance_uniform(random) < 0.3) {
    worker->work_s = uniform(random, 0.5, 3);
    worker->rest_s = uniform(random, 0.1, 3);
  }
  return plant;
}

static void check_random(uint64_t seed) {
  uint64_t random = seed, total = run.seed;
  double sum = run.loss;
  struct plant plant = random_plant(&random);
  run = (struct run){.seed = total, .loss = sum};
  plant_run(&plant, NAN, RUN_S, seed, note, NULL);
  double loss = 1 - run.own_s / run.worked_s;
  run.loss += loss;
  if (loss > LOSS_MOST)
    fail("production loses", loss);
  if (1 - run.start_own_s / run.start_worked_s > 2 * LOSS_MOST)
    fail("production loses at first", 1 - run.start_own_s / run.start_worked_s);
  if (plant.workers[0].loss_most <= 0 && plant.workers[0].rest_s <= 0 && run.level < RATE_LEVEL_UNSURE)
    fail("others cost nothing, and have the level", run.level);
}

/* ---- nonsense ---- */

/* As likely small as large. */
static uint64_t wild_number(uint64_t *random) {
  uint64_t bits = splitmix_next(random);
  return bits >> (splitmix_next(random) % 64);
}

static struct rate_progress wild_progress(uint64_t *random) {
  return (struct rate_progress){.submissions = wild_number(random),
                                .active_ns = wild_number(random),
                                .mark_submissions = wild_number(random),
                                .mark_active_ns = wild_number(random),
                                .active = splitmix_next(random) % 4 > 0};
}

static void check_output(const struct rate_gpu *gpu, uint64_t now_ns) {
  bool works = false;
  list_each(node, &gpu->production) {
    const struct rate_job *job = list_entry(node, struct rate_job, link);
    works |= job->active;
    if (!isfinite(job->mean) || !isfinite(job->noise))
      fail("a mean", job->mean);
  }
  if (!(gpu->level >= RATE_LEVEL_LEAST && gpu->level <= 1))
    fail("a level out of bounds", gpu->level);
  if ((gpu->state == RATE_FREE) != !(works && gpu->guests))
    fail("the state", gpu->state);
  if (gpu->until_ns <= now_ns)
    fail("nothing comes of what is due, ns", (double)(now_ns - gpu->until_ns));
}

static void check_wild(uint64_t seed) {
  static struct rate_job jobs[6];
  bool there[6] = {false};
  struct rate_gpu gpu;
  uint64_t random = seed, now_ns = 1;
  rate_gpu_init(&gpu);
  for (int step = 0; step < 3000; step++) {
    unsigned i = (unsigned)(splitmix_next(&random) % 6), what = (unsigned)(splitmix_next(&random) % 40);
    struct rate_progress progress = wild_progress(&random);
    if (what == 0 && there[i])
      rate_job_remove(&gpu, &jobs[i], now_ns);
    else if (what == 0)
      rate_job_add(&gpu, &jobs[i], splitmix_next(&random) % 2, now_ns);
    else if (what == 1)
      rate_set_guests(&gpu, splitmix_next(&random) % 4, now_ns);
    else if (there[i] && what < 4)
      rate_job_holds(&gpu, &jobs[i], splitmix_next(&random) % 2, now_ns);
    else if (there[i])
      rate_progress(&gpu, &jobs[i], &progress, now_ns);
    there[i] ^= what == 0;
    now_ns += wild_number(&random) % 100000000;
    rate_on_time(&gpu, now_ns);
    check_output(&gpu, now_ns);
  }
}

int main(int argc, char **argv) {
  const char *seed_text = argc > 1 ? argv[1] : getenv("GPUSHARE_SEED");
  const char *runs_text = argc > 2 ? argv[2] : getenv("GPUSHARE_RUNS");
  uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 1;
  uint64_t runs = runs_text ? strtoull(runs_text, NULL, 10) : 200;
  printf("seeds %llu to %llu\n", (unsigned long long)seed, (unsigned long long)(seed + runs - 1));
  for (run.seed = seed; run.seed < seed + runs; run.seed++) {
    check_random(run.seed);
    check_wild(run.seed);
  }
  printf("production loses %.4f on average\n", run.loss / (double)runs);
  if (runs >= 50 && run.loss / (double)runs > LOSS_USUALLY)
    fail("production loses on average", run.loss / (double)runs);
  return EXIT_SUCCESS;
}
