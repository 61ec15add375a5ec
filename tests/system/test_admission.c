/* test_admission.c - programs that say how much memory they need wait for it, where others fail. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)

static struct scene scene;

/* 80 MiB in all, of which a job of 60 leaves too little for one of 48. */
static void begin(void) {
  scene_begin(&scene, "small,capacity=64MiB");
  scene_start_daemon(&scene, "--tq", "100ms", "--host-memory", "16M", NULL);
}

/* It has all that, and runs until it is told to stop. */
static struct process *occupy(void) {
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "60M", "--rounds", "0", NULL);
  process_expect(job, "filled", NULL, 0);
  return job;
}

static struct process *start_needing(const char *bytes) {
  char needs[64];
  snprintf(needs, sizeof needs, "GPUSHARE_EXPECTED_MEMORY=%s", bytes);
  const char *const environment[] = {needs, NULL};
  return scene_start(&scene, environment, "job", "--bytes", "48M", "--rounds", "2", NULL);
}

static bool waits_for_memory(const struct scene_status *status, const void *argument) {
  const struct process *job = argument;
  const struct gs_msg *wait = scene_wait_of(status, job->pid);
  return wait && wait->wait_status.reason == GS_REASON_MEMORY &&
         wait->wait_status.expected_bytes == 48 * MIB &&
         scene_job_of(status, job->pid)->job_status.used_bytes == 0;
}

static struct process *start_waiting(void) {
  struct process *job = start_needing("48M");
  scene_await(&scene, waits_for_memory, job, "it waits for memory");
  return job;
}

TEST(it_begins_when_another_one_has_ended) {
  char text[4096], number[16];
  struct scene_status status;
  begin();
  struct process *first = occupy(), *job = start_waiting();
  process_await_log(job,
                    "waits until other programs have left as much memory as this one says that it needs");
  CHECK(scene_ask_status(&scene, &status) == 0);
  snprintf(number, sizeof number, "%u", scene_job_of(&status, job->pid)->job_status.job);
  CHECK(scene_ctl(&scene, text, sizeof text, "status", NULL) == 0);
  CHECK(strstr(text, ", waits for memory "), "%s", text);
  CHECK(scene_ctl(&scene, text, sizeof text, "why", number, NULL) == 0);
  CHECK(strstr(text, "waits for memory: it will have 48.0 MiB"), "%s", text);
  process_finish(first);
  process_finish(job);
  scene_end(&scene);
}

/* Other questions to the daemon are answered within 2 s, or it is given up. */
TEST(it_waits_for_as_long_as_it_takes) {
  struct scene_status status;
  begin();
  struct process *first = occupy(), *job = start_waiting();
  poll(NULL, 0, 2500);
  CHECK(scene_ask_status(&scene, &status) == 0 && waits_for_memory(&status, job));
  CHECK(process_log_lines(job) == 1);
  process_finish(first);
  process_finish(job);
  scene_end(&scene);
}

/* It fails, as it would have without a word. */
TEST(who_does_not_say_so_fails) {
  begin();
  struct process *first = occupy();
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "48M", "--rounds", "2", NULL);
  process_expect(job, "error cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)", NULL, 0);
  process_wait_exit(job, 1);
  process_finish(first);
  scene_end(&scene);
}

TEST(who_can_no_longer_have_it_fails) {
  char number[16];
  struct scene_status status;
  begin();
  struct process *first = occupy(), *job = start_waiting();
  CHECK(scene_ask_status(&scene, &status) == 0);
  snprintf(number, sizeof number, "%u", scene_job_of(&status, job->pid)->job_status.job);
  CHECK(scene_ctl(&scene, NULL, 0, "set-limit", number, "8M", NULL) == 0);
  process_expect(job, "error cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)", NULL, 0);
  process_wait_exit(job, 1);
  process_finish(first);
  scene_end(&scene);
}

TEST(one_that_is_killed_holds_up_nobody) {
  begin();
  struct process *first = occupy(), *killed = start_waiting(), *job = start_waiting();
  process_kill(killed);
  process_finish(first);
  process_finish(job);
  scene_end(&scene);
}

/* It is alone then, as all are. */
TEST(without_a_daemon_it_goes_on) {
  if (scene_uses_swap())
    test_skip("what the other one has does not leave the card");
  begin();
  struct process *first = occupy(), *job = start_waiting();
  scene_kill_daemon(&scene);
  process_finish(job);
  process_finish(first);
  scene_start_daemon(&scene, NULL);
  scene_end(&scene);
}

/* Only one of them fits at a time. All allocate in two pieces, so that two would meet half-way. */
TEST(a_sweep_needs_no_limit_of_its_own) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  char folder[128];
  begin();
  snprintf(folder, sizeof folder, "--output=%s/out", scene.folder);
  struct process *ctl = scene_start(&scene, plain, GS_CTL, "run", folder, "-n", "5", "--expected-memory",
                                    "48M", "--", GS_PROGRAMS "/job", "--bytes", "48M", "--rounds", "2", NULL);
  process_wait_exit(ctl, 0);
  scene_end(&scene);
}
