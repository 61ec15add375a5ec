/* test_sweeps.c - gpusharectl run of many jobs, on several GPUs. */
#include <signal.h>
#include <stdio.h>

#include "common/parse.h"
#include "runner.h"
#include "scene.h"

#define JOBS 4
#define ON_CARD (UINT64_C(48) << 20) /* of two of them; a third one would not fit */

static struct scene scene;

static void begin(void) {
  scene_begin(&scene, "small,gpus=2,capacity=64MiB,scale=0.2");
  scene_start_daemon(&scene, "--tq", "30s", NULL);
}

/* A program that stays, with this much on a GPU. */
static struct process *occupy(const char *gpu, const char *bytes) {
  char visible[64];
  snprintf(visible, sizeof visible, "CUDA_VISIBLE_DEVICES=%s", gpu);
  const char *const environment[] = {visible, NULL};
  struct process *process = scene_start(&scene, environment, "job", "--bytes", bytes, "--rounds", "0", NULL);
  process_expect(process, "filled", NULL, 0);
  return process;
}

static void leave(struct process *process) {
  process_say(process, "stop");
  process_wait_exit(process, 0);
}

/* gpusharectl run, with this CUDA_VISIBLE_DEVICES; NULL: without. */
static struct process *run(const char *visible, const char *n, const char *option, const char *value) {
  char variable[128], folder[128];
  snprintf(variable, sizeof variable, "CUDA_VISIBLE_DEVICES=%s", visible);
  snprintf(folder, sizeof folder, "--output=%s/o%d", scene.folder, scene.started);
  const char *const plain[] = {"LD_PRELOAD=", visible ? variable : NULL, NULL};
  return scene_start(&scene, plain, GS_CTL, "run", folder, "-n", n, option, value, "--", "sh", "-c",
                     "echo $CUDA_VISIBLE_DEVICES", NULL);
}

/* As the daemon knows it from a program on it. The simulated driver ends it with the GPU's number. */
static const char *name_of(unsigned gpu) {
  static char name[GS_UUID_TEXT_SIZE];
  struct scene_status status;
  int i = 0;
  CHECK(scene_ask_status(&scene, &status) == 0);
  while (i < status.gpu_count && status.gpus[i].gpu_status.uuid[GS_UUID_SIZE - 1] != gpu)
    i++;
  CHECK(i < status.gpu_count, "nobody is on GPU %u", gpu);
  format_uuid(status.gpus[i].gpu_status.uuid, name);
  return name;
}

static void expect_started(const struct process *ctl, unsigned job, unsigned gpu) {
  char wanted[128];
  snprintf(wanted, sizeof wanted, "job %u started on %s: sh ", job, name_of(gpu));
  CHECK(process_log_count(ctl, wanted) == 1, "%s", wanted);
}

/* ---- spreading ---- */

/* All hold, and have their memory where they should. */
static bool all_run(const struct scene_status *status, const void *unused) {
  (void)unused;
  int holding = 0;
  for (int i = 0; i < status->job_count; i++)
    holding += status->jobs[i].job_status.state == GS_JOB_HOLDING;
  return holding == JOBS && scene_card(&scene, 0).resident_bytes >= ON_CARD &&
         scene_card(&scene, 1).resident_bytes >= ON_CARD;
}

/* On one card two of them would wait for the others. */
TEST(as_many_run_as_fit_on_all_cards) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  struct scene_status status;
  char folder[128];
  begin();
  snprintf(folder, sizeof folder, "--output=%s/o", scene.folder);
  struct process *ctl = scene_start(&scene, plain, GS_CTL, "run", folder, "-n", "4", "--", GS_PROGRAMS "/job",
                                    "--bytes", "24M", "--rounds", "1000000", "--spin", "5ms", NULL);
  scene_await(&scene, all_run, NULL, "all jobs run at the same time");
  CHECK(scene_ask_status(&scene, &status) == 0);
  for (int gpu = 0; gpu < 2; gpu++) {
    CHECK(status.gpus[gpu].gpu_status.holders == 2, "%u on GPU %d", status.gpus[gpu].gpu_status.holders, gpu);
    CHECK(status.gpus[gpu].gpu_status.handovers == 0, "turns were taken on GPU %d", gpu);
    /* What is allocated while the gate is shut, as for the trial of preemption, comes in once. */
    CHECK(status.gpus[gpu].gpu_status.moved_bytes <= ON_CARD, "memory of GPU %d has left it", gpu);
  }
  process_signal(ctl, SIGTERM);
  process_wait_exit(ctl, 1);
  scene_end(&scene);
}

TEST(where_others_have_left_more_room) {
  begin();
  struct process *one = occupy("0", "40M"), *other = occupy("1", "8M");
  struct process *ctl = run(NULL, "1", "--retry", "0");
  process_wait_exit(ctl, 0);
  expect_started(ctl, 0, 1);
  leave(one);
  leave(other);
  scene_end(&scene);
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

TEST(in_the_order_in_which_they_are_visible) {
  begin();
  struct process *one = occupy("0", "8M"), *other = occupy("1", "8M");
  struct process *ctl = run("1,0", "2", "--retry", "0");
  process_wait_exit(ctl, 0);
  expect_started(ctl, 0, 1);
  expect_started(ctl, 1, 0);
  leave(one);
  leave(other);
  scene_end(&scene);
}

TEST(one_gpu_and_nothing_changes) {
  static const char *const lists[] = {"1", "", "1,-1,0"};
  begin();
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    struct process *ctl = run(lists[i], "2", "--retry", "0");
    process_wait_exit(ctl, 0);
    CHECK(process_log_count(ctl, "started: sh ") == 2 && !process_log_count(ctl, "visible, each job"), "'%s'",
          lists[i]);
  }
  struct process *ctl = run(NULL, "2", "--gpus-per-job", "all");
  process_wait_exit(ctl, 0);
  CHECK(process_log_count(ctl, "started: sh ") == 2);
  scene_end(&scene);
}

TEST(gpus_that_are_not_there_are_told) {
  static const struct {
    const char *visible, *option, *value, *wanted;
  } wrong[] = {
      {"0,7,1", "--retry", "0",
       "CUDA_VISIBLE_DEVICES=0,7,1 names 3 GPUs, of which the driver finds 1: correct"},
      {"7", "--retry", "0", "CUDA_VISIBLE_DEVICES=7 names 1 GPU, of which the driver finds 0: correct it"},
      {"1,0", "--gpus-per-job", "3", "the number of visible GPUs is 2; CUDA_VISIBLE_DEVICES is 1,0"}};
  begin();
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct process *ctl = run(wrong[i].visible, "2", wrong[i].option, wrong[i].value);
    process_wait_exit(ctl, 2);
    CHECK(process_log_count(ctl, wrong[i].wanted) == 1, "%s", wrong[i].wanted);
    CHECK(!process_log_count(ctl, "started"));
  }
  scene_end(&scene);
}
