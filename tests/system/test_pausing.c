/* test_pausing.c - programs that are paused, with the real daemon: they stop, others go on, and nothing is
 * lost. */
#include <stdio.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;

static uint64_t kernels(const struct process *job) {
  return scene_process(&scene, job, 0).counters[GS_SIM_kernels];
}

/* Looks until it has run so many more. */
static void await_kernels(const struct process *job, uint64_t more) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S), before = kernels(job);
  struct scene_status status;
  while (kernels(job) < before + more) {
    CHECK(deadline_left_ms(deadline) > 0, "%llu kernels of %s", (unsigned long long)(kernels(job) - before),
          job->name);
    CHECK(scene_ask_status(&scene, &status) == 0);
  }
}

static void order(const char *command, const struct process *job) {
  struct scene_status status;
  char number[16];
  CHECK(scene_ask_status(&scene, &status) == 0 && scene_job_of(&status, job->pid));
  snprintf(number, sizeof number, "%u", scene_job_of(&status, job->pid)->job_status.job);
  CHECK(scene_ctl(&scene, NULL, 0, command, number, NULL) == 0, "%s %s", command, number);
}

static bool rests(const struct scene_status *status, const void *job) {
  const struct gs_msg *wait = scene_wait_of(status, ((const struct process *)job)->pid);
  return wait && wait->wait_status.reason == GS_REASON_PAUSED;
}

static struct process *start(void) {
  struct process *job = scene_start(&scene, NULL, "toiler", "12M", "1ms", NULL);
  return job;
}

static void finish(struct process *job) {
  process_close_input(job);
  process_expect(job, "ok", NULL, 0); /* its memory is as it should be */
  process_wait_exit(job, 0);
}

/* Whether they take turns or not. */
static void pause_one(const char *card) {
  scene_begin(&scene, card);
  scene_start_daemon(&scene, "--tq", "50ms", NULL);
  struct process *one = start(), *other = start();
  process_expect(one, "toiling", NULL, 0);
  process_expect(other, "toiling", NULL, 0);
  for (int round = 0; round < 3; round++) {
    order("pause", one);
    scene_await(&scene, rests, one, "it is paused");
    uint64_t before = kernels(one);
    await_kernels(other, 100);
    CHECK(kernels(one) == before, "%llu kernels while it was paused",
          (unsigned long long)(kernels(one) - before));
    order("resume", one);
    await_kernels(one, 20);
  }
  finish(one);
  finish(other);
  scene_end(&scene);
}

TEST(where_all_fits) { pause_one("small,capacity=40MiB"); }
TEST(where_turns_are_taken) { pause_one("small,capacity=20MiB,scale=0.2"); }

TEST(a_paused_program_can_be_killed) {
  scene_begin(&scene, "small,capacity=20MiB,scale=0.2");
  scene_start_daemon(&scene, "--tq", "50ms", NULL);
  struct process *one = start(), *other = start();
  process_expect(one, "toiling", NULL, 0);
  process_expect(other, "toiling", NULL, 0);
  order("pause", one);
  scene_await(&scene, rests, one, "it is paused");
  process_kill(one);
  scene_await(&scene, scene_job_gone, one, "the daemon has forgotten it");
  await_kernels(other, 20);
  finish(other);
  scene_end(&scene);
}

static uint32_t number_of(const struct process *job) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0 && scene_job_of(&status, job->pid));
  return scene_job_of(&status, job->pid)->job_status.job;
}

/* A program that is paused, and one that is not: they are what they were, by the same numbers. */
static void restart_beside(void (*stop_daemon)(struct scene *)) {
  char kept[128];
  scene_begin(&scene, "small,capacity=40MiB");
  snprintf(kept, sizeof kept, "%s/kept", scene.folder);
  scene_start_daemon(&scene, "--state", kept, NULL);
  struct process *one = start(), *other = start();
  process_expect(one, "toiling", NULL, 0);
  process_expect(other, "toiling", NULL, 0);
  order("pause", one);
  scene_await(&scene, rests, one, "it is paused");
  uint32_t number = number_of(one), other_number = number_of(other);
  for (int round = 0; round < 2; round++) {
    stop_daemon(&scene);
    scene_start_daemon(&scene, "--state", kept, NULL);
    scene_await(&scene, rests, one, "it is paused again");
    scene_await(&scene, scene_job_holds, other, "the other one runs");
    uint64_t before = kernels(one);
    await_kernels(other, 100);
    CHECK(kernels(one) == before, "%llu kernels while it was paused",
          (unsigned long long)(kernels(one) - before));
    CHECK(number_of(one) == number && number_of(other) == other_number, "other numbers");
  }
  order("resume", one);
  await_kernels(one, 20);
  stop_daemon(&scene);
  scene_start_daemon(&scene, "--state", kept, NULL);
  await_kernels(one, 20);
  finish(one);
  finish(other);
  scene_end(&scene);
}

TEST(it_outlives_the_daemon) { restart_beside(scene_stop_daemon); }
TEST(also_one_that_is_killed) { restart_beside(scene_kill_daemon); }
