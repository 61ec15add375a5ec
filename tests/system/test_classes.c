/*
 * test_classes.c - production, standard and opportunistic programs beside each other, with the real daemon:
 * who keeps its speed, who gets what is left over, and when.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

#define PRODUCTION "GPUSHARE_CLASS=production"
#define OPPORTUNISTIC "GPUSHARE_CLASS=opportunistic"
#define STANDARD "GPUSHARE_CLASS=standard"
#define LITTLE "4M"
#define SPIN "2ms"
#define LONG_SPIN "30ms" /* three of them: so long the GPU has work while the program is kept waiting */
#define PERCENT (GS_LIMITED_WHOLE / 100)

static struct scene scene;

static void begin(const char *card) {
  scene_begin(&scene, card);
  scene_start_daemon(&scene, "--tq", "500ms", NULL);
}

static struct process *start(const char *class, const char *bytes) {
  const char *const environment[] = {class, NULL};
  return scene_start(&scene, environment, "toiler", bytes, SPIN, NULL);
}

static struct process *start_toiling(const char *class, const char *bytes) {
  struct process *job = start(class, bytes);
  process_expect(job, "toiling", NULL, 0);
  return job;
}

static void pause_job(struct process *job) {
  process_say(job, "pause");
  process_expect(job, "paused", NULL, 0);
}

/* ---- what is seen ---- */

static void pass_ms(uint64_t ms) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

static uint64_t kernels(const struct process *job) {
  return scene_process(&scene, job, 0).counters[GS_SIM_kernels];
}

static uint64_t kernels_in_ms(const struct process *job, uint64_t ms) {
  uint64_t before = kernels(job);
  pass_ms(ms);
  return kernels(job) - before;
}

static void await_kernels(const struct process *job, uint64_t more) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S), before = kernels(job);
  for (; kernels(job) < before + more; pass_ms(1))
    CHECK(deadline_left_ms(deadline) > 0, "%llu kernels of %s", (unsigned long long)(kernels(job) - before),
          job->name);
}

struct wanted {
  const struct process *job;
  unsigned from, to; /* enum gs_limited */
};

static bool is_limited(const struct scene_status *status, const void *argument) {
  const struct wanted *wanted = argument;
  const struct gs_msg *wait = scene_wait_of(status, wanted->job->pid);
  return wait && wait->wait_status.limited >= wanted->from && wait->wait_status.limited <= wanted->to;
}

static void await_limited(const struct process *job, unsigned from, unsigned to, const char *what) {
  scene_await(&scene, is_limited, &(struct wanted){job, from, to}, what);
}

static void await_unlimited(const struct process *job) {
  await_limited(job, GS_LIMITED_NOT, GS_LIMITED_NOT, "nothing limits it");
}
static void await_all_of_the_gpu(const struct process *job) {
  await_limited(job, GS_LIMITED_IDLE, GS_LIMITED_IDLE, "production is idle");
}
static void await_paused(const struct process *job) {
  await_limited(job, GS_LIMITED_LOOK, GS_LIMITED_LOOK, "it is paused");
}
static void await_leftover(const struct process *job) {
  await_limited(job, GS_LIMITED_GROWS, GS_LIMITED_FOUND, "it has what is left over");
}

/* ---- where all fits ---- */

/* The machine may be busier than it was; but one of two that share evenly never has so much. */
static void check_beside(struct process *production, struct process *opportunistic, uint64_t alone) {
  await_leftover(opportunistic);
  uint64_t before = kernels(opportunistic), most = 0;
  for (int i = 0; i < 10 && most * 9 <= alone * 5; i++) {
    uint64_t beside = kernels_in_ms(production, 1500);
    most = beside > most ? beside : most;
  }
  CHECK(most * 9 > alone * 5, "%llu kernels, %llu alone", (unsigned long long)most,
        (unsigned long long)alone);
  await_kernels(opportunistic, kernels(opportunistic) > before ? 0 : 1);
}

TEST(production_keeps_its_speed) {
  begin("small,capacity=64MiB");
  struct process *production = start_toiling(PRODUCTION, LITTLE);
  uint64_t alone = kernels_in_ms(production, 1500);
  struct process *opportunistic = start(OPPORTUNISTIC, LITTLE);
  await_paused(opportunistic);
  check_beside(production, opportunistic, alone);

  pause_job(production);
  await_all_of_the_gpu(opportunistic);
  await_kernels(opportunistic, 100);
  process_say(production, "go");
  await_paused(opportunistic);
  check_beside(production, opportunistic, alone);

  process_finish(production);
  await_unlimited(opportunistic);
  await_kernels(opportunistic, 100);
  process_finish(opportunistic);
  scene_end(&scene);
}

static void order(const char *command, const struct process *job, const char *value) {
  struct scene_status status;
  char number[16];
  CHECK(scene_ask_status(&scene, &status) == 0);
  snprintf(number, sizeof number, "%u", scene_job_of(&status, job->pid)->job_status.job);
  CHECK(scene_ctl(&scene, NULL, 0, command, number, value, NULL) == 0, "%s %s", command, value);
}

static void set_class(const struct process *job, const char *class) { order("set-class", job, class); }

TEST(classes_change_while_they_run) {
  begin("small,capacity=64MiB");
  struct process *one = start_toiling(STANDARD, LITTLE), *two = start_toiling(OPPORTUNISTIC, LITTLE);
  await_unlimited(two);
  for (int i = 0; i < 2; i++) {
    struct process *production = i ? two : one, *opportunistic = i ? one : two;
    set_class(production, "production");
    set_class(opportunistic, "opportunistic");
    await_leftover(opportunistic);
    await_unlimited(production);
  }
  set_class(two, "standard");
  await_unlimited(one);
  await_kernels(one, 50);
  process_finish(one);
  process_finish(two);
  scene_end(&scene);
}

TEST(who_dies_limits_nobody) {
  begin("small,capacity=64MiB");
  struct process *production = start_toiling(PRODUCTION, LITTLE), *opportunistic[2];
  for (int i = 0; i < 2; i++)
    opportunistic[i] = start(OPPORTUNISTIC, LITTLE);
  for (int i = 0; i < 2; i++)
    await_leftover(opportunistic[i]);
  process_kill(opportunistic[0]);
  await_kernels(production, 100);
  pause_job(production);
  await_all_of_the_gpu(opportunistic[1]);
  await_kernels(opportunistic[1], 100);
  process_say(production, "go");
  await_paused(opportunistic[1]);
  process_kill(production);
  await_unlimited(opportunistic[1]);
  await_kernels(opportunistic[1], 100);
  process_finish(opportunistic[1]);
  scene_end(&scene);
}

TEST(a_killed_daemon_lifts_limits) {
  begin("small,capacity=64MiB");
  struct process *production = start_toiling(PRODUCTION, LITTLE);
  struct process *opportunistic = start(OPPORTUNISTIC, LITTLE);
  for (int i = 0; i < 2; i++) {
    await_paused(opportunistic);
    scene_kill_daemon(&scene);
    await_kernels(opportunistic, 200); /* more than the limit could have let through by now */
    scene_start_daemon(&scene, NULL);
  }
  await_leftover(opportunistic);
  process_finish(production);
  process_finish(opportunistic);
  scene_end(&scene);
}

/* Three kernels of four take 2 ms at least; the bucket holds as much, and as much may have been passed. */
static void check_rate(const struct process *job, unsigned percent) {
  uint64_t start_ns = clock_now_ns(), passed = kernels_in_ms(job, 1000);
  uint64_t elapsed_ms = (clock_now_ns() - start_ns) / 1000000, most_ms = elapsed_ms * percent / 100;
  CHECK(passed * 3 / 4 * 2 <= most_ms * 5 / 4 + 12, "%llu kernels in %llu ms", (unsigned long long)passed,
        (unsigned long long)elapsed_ms);
  await_kernels(job, 50);
}

TEST(a_rate_that_is_set_holds_until_auto) {
  begin("small,capacity=64MiB");
  struct process *production = start_toiling(PRODUCTION, LITTLE);
  struct process *opportunistic = start(OPPORTUNISTIC, LITTLE);
  await_paused(opportunistic);
  order("set-rate", opportunistic, "25%");
  await_kernels(opportunistic, 20); /* what they take is known by then */
  check_rate(opportunistic, 25);
  pause_job(production);
  check_rate(opportunistic, 25);
  process_say(production, "go");
  order("set-rate", opportunistic, "auto");
  await_leftover(opportunistic);
  process_finish(production);
  process_finish(opportunistic);
  scene_end(&scene);
}

/* ---- where it does not fit ---- */

static uint64_t faults(const struct process *job) {
  return scene_process(&scene, job, 0).counters[GS_SIM_faults];
}

static uint64_t overlaps(void) { return scene_card(&scene, 0).counters[GS_SIM_overlaps]; }

static void check_only_production_runs(struct process *production, struct process *opportunistic) {
  scene_await(&scene, scene_job_waits, opportunistic, "it waits for its turn");
  await_kernels(production, 20); /* a newcomer's first memory may have pushed some of its own out */
  uint64_t before = kernels(opportunistic), faults_before = faults(production);
  CHECK(kernels_in_ms(production, 1200) > 10, "production does not go on");
  CHECK(kernels(opportunistic) == before, "beside production that works");
  CHECK(faults(production) == faults_before, "production has to bring memory back by faults");
}

/* Two quanta and more pass while production works. */
static void check_turns_with(const char *memory) {
  const char *const environments[2][3] = {{PRODUCTION, memory, NULL}, {OPPORTUNISTIC, memory, NULL}};
  begin("small,capacity=20MiB");
  struct process *production = scene_start(&scene, environments[0], "toiler", "12M", LONG_SPIN, NULL);
  process_expect(production, "toiling", NULL, 0);
  struct process *opportunistic = scene_start(&scene, environments[1], "toiler", "12M", LONG_SPIN, NULL);
  check_only_production_runs(production, opportunistic);
  uint64_t overlaps_before =
      overlaps(); /* turns begin with the newcomer's memory: both may have run till then */
  for (int i = 0; i < 2; i++) {
    pause_job(production);
    await_kernels(opportunistic, 20);
    process_say(production, "go");
    await_kernels(production, 20);
    check_only_production_runs(production, opportunistic);
  }
  process_finish(production);
  await_kernels(opportunistic, 20);
  process_finish(opportunistic);
  CHECK(overlaps() == overlaps_before, "they run at once");
  scene_end(&scene);
}

TEST(turns_are_taken_in_idle_times) { check_turns_with("GPUSHARE_MEMORY=managed"); }

TEST(turns_are_taken_in_idle_times_swap) { check_turns_with("GPUSHARE_MEMORY=swap"); }
