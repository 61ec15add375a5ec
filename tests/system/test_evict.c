/* test_evict.c - programs that lose their place, with the real daemon: others go on, and they go on after
 * these. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;

static struct process *start(const char *memory) {
  const char *const environment[] = {memory, NULL};
  struct process *job = scene_start(&scene, environment, "toiler", "24M", "1ms", NULL);
  process_expect(job, "toiling", NULL, 0);
  return job;
}

static uint64_t kernels(const struct process *job) {
  return scene_process(&scene, job, 0).counters[GS_SIM_kernels];
}

static void await_kernels(const struct process *job, uint64_t more) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S), before = kernels(job);
  while (kernels(job) < before + more) {
    CHECK(deadline_left_ms(deadline) > 0, "%llu kernels of %s", (unsigned long long)(kernels(job) - before),
          job->name);
    poll(NULL, 0, 1); /* nothing tells when another process has run one */
  }
}

static void finish(struct process *job) {
  process_close_input(job);
  process_expect(job, "ok", NULL, 0); /* its memory is as it should be */
  process_wait_exit(job, 0);
}

static void evict(const struct process *job) {
  struct scene_status status;
  char number[16];
  CHECK(scene_ask_status(&scene, &status) == 0 && scene_job_of(&status, job->pid));
  snprintf(number, sizeof number, "%u", scene_job_of(&status, job->pid)->job_status.job);
  CHECK(scene_ctl(&scene, NULL, 0, "evict", number, NULL) == 0);
}

/* Stopped in the middle of its turn: for ever, as far as others can tell. */
static void stop_while_it_holds(struct process *job) {
  scene_await(&scene, scene_job_holds, job, "it holds the GPU");
  process_signal(job, SIGSTOP);
}

static void evict_silent(const char *memory) {
  scene_begin(&scene, "small,capacity=64MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "50ms", "--grace", "200ms", "--evict-after", "2", NULL);
  struct process *one = start(memory), *other = start(memory);
  for (int round = 0; round < 2; round++) {
    stop_while_it_holds(one);
    scene_await(&scene, scene_job_gone, one, "it is evicted");
    await_kernels(other, 100);
    process_signal(one, SIGCONT);
    scene_await(&scene, scene_job_known, one, "it has come again");
    await_kernels(one, 20);
    CHECK(process_log_count(one, "evicted from the GPU, as it has not stopped") == round + 1);
  }
  CHECK(process_log_lines(one) == 2, "%d lines in its log", process_log_lines(one));
  finish(one);
  finish(other);
  scene_end(&scene);
}

TEST(a_silent_holder_of_swap_memory) { evict_silent("GPUSHARE_MEMORY=swap"); }
TEST(a_silent_holder_of_plain_memory) { evict_silent("GPUSHARE_MEMORY=off"); }

/* What it has submitted may still run when another one begins; it submits nothing more until it comes again.
 */
static void evict_by_hand(const char *memory) {
  char text[65536];
  scene_begin(&scene, "small,capacity=64MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "50ms", "--grace", "3s", NULL);
  struct process *one = start(memory), *other = start(memory);
  for (int round = 0; round < 2; round++) {
    await_kernels(one, 20);
    evict(one);
    process_await_log(one, "evicted from the GPU: it waits for 3000 ms");
    await_kernels(other, 100);
    uint64_t before = kernels(one);
    await_kernels(other, 20);
    CHECK(kernels(one) == before, "it runs beside the other one");
    scene_await(&scene, scene_job_known, one, "it has come again");
    await_kernels(one, 20);
  }
  CHECK(process_log_lines(one) == 2, "%d lines in its log", process_log_lines(one));
  CHECK(scene_ctl(&scene, text, sizeof text, "events", NULL) == 0);
  CHECK(strstr(text, ") loses its place, by "));
  finish(one);
  finish(other);
  scene_end(&scene);
}

TEST(by_hand) { evict_by_hand("GPUSHARE_MEMORY=managed"); }
TEST(by_hand_with_swap_memory) { evict_by_hand("GPUSHARE_MEMORY=swap"); }

/* The daemon is gone by the time that it would come again: it runs without one. */
TEST(nobody_to_come_back_to) {
  scene_begin(&scene, "small,capacity=64MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "50ms", "--grace", "500ms", NULL);
  struct process *one = start("GPUSHARE_MEMORY=swap");
  evict(one);
  process_await_log(one, "evicted");
  scene_stop_daemon(&scene);
  process_await_log(one, "no daemon");
  await_kernels(one, 20);
  finish(one);
  scene_end(&scene);
}
