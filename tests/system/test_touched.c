/* test_touched.c - programs that allocate more than the card has, and use little of it: they run together
 * until the card fills. What is on the card a played NVML tells, by the simulated driver's state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define BYTES "50331648" /* 48 MiB */

static struct scene scene;
static char script[96], uuid[GS_UUID_TEXT_SIZE];

/* As every program sees it. */
static void find_uuid(void) {
  struct scene_status status;
  scene_start_daemon(&scene, NULL);
  process_finish(scene_start(&scene, NULL, "job", "--bytes", "1M", "--rounds", "1", NULL));
  CHECK(scene_ask_status(&scene, &status) == 0 && status.gpu_count == 1);
  gpu_number_format_uuid(status.gpus[0].gpu, status.gpus[0].gpu_status.uuid, uuid);
  scene_stop_daemon(&scene);
}

static void play(const char *what) {
  FILE *file = fopen(script, "w");
  CHECK(file);
  fprintf(file, "gpus=1 uuid=%s bytes=%lu state=%s do=%s\n", uuid, 64 * MIB, scene.state, what);
  fclose(file);
}

static void begin(const char *count) {
  scene_begin(&scene, "small,capacity=64MiB");
  find_uuid();
  snprintf(script, sizeof script, "%s/nvml", scene.folder);
  play("nothing");
  setenv("GS_NVML_SCRIPT", script, 1);
  scene.nvml = GS_NVML;
  scene_start_daemon(&scene, "--tq", "100ms", "--count", count, NULL);
}

static struct process *start(void) {
  static const char *const managed[] = {"GPUSHARE_MEMORY=managed", NULL};
  struct process *program = scene_start(&scene, managed, "toucher", BYTES, NULL);
  process_expect(program, "allocated", NULL, 0);
  return program;
}

static void touch(struct process *program, uint64_t bytes) {
  char line[32];
  snprintf(line, sizeof line, "%lu", bytes);
  process_say(program, line);
  process_expect(program, "touched", NULL, 0);
}

static bool has_card(const struct scene_status *status, const void *nothing) {
  (void)nothing;
  return status->gpu_count == 1;
}

static bool is_seen(const struct scene_status *status, const void *nothing) {
  (void)nothing;
  return status->handovers[0].handover_status.occupied_bytes > 0;
}

static bool run_together(const struct scene_status *status, const void *nothing) {
  (void)nothing;
  return status->gpus[0].gpu_status.flags & GS_GPU_TOGETHER;
}

static bool take_turns(const struct scene_status *status, const void *nothing) {
  (void)nothing;
  return status->gpus[0].gpu_status.flags & GS_GPU_SERIALIZED;
}

static void check_says(const char *command, const char *job, const char *text) {
  char output[8192];
  CHECK(scene_ctl(&scene, output, sizeof output, command, job, NULL) == 0);
  CHECK(strstr(output, text), "%s says: %s", command, output);
}

static uint64_t handovers(void) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  return status.gpus[0].gpu_status.handovers;
}

static void end(struct process *a, struct process *b) {
  process_finish(a);
  process_finish(b);
  scene_end(&scene);
}

/* False: on a busy machine no figure has come for so long that turns began, and what has taken turns goes on
 * with them. */
static bool is_little_touched(void) {
  char job[16];
  struct scene_status status;
  begin("touched");
  struct process *a = start();
  touch(a, MIB);
  scene_await(&scene, is_seen, NULL, "it is known what is on the card");
  struct process *b = start();
  touch(b, MIB);
  scene_await(&scene, run_together, NULL, "they run together");
  struct test_time since = test_time();
  for (int i = 0; i < 60; i++) { /* and for longer than figures live (SCHED_SEEN_NS) */
    touch(i % 2 ? a : b, MIB);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  }
  touch(a, 48 * MIB); /* with that of the other one it fits */
  uint64_t pressed_ns = test_time().now_ns - since.now_ns - test_calm_ns(since);
  CHECK(scene_ask_status(&scene, &status) == 0);
  if (status.gpus[0].gpu_status.handovers || take_turns(&status, NULL)) {
    CHECK(pressed_ns > NS_PER_S / 2, "they have taken turns");
    end(a, b);
    return false;
  }
  scene_await(&scene, run_together, NULL, "they run together again");
  snprintf(job, sizeof job, "%u", scene_job_of(&status, a->pid)->job_status.job);
  check_says("why", job, "exceeds the capacity, but only");
  check_says("plan", NULL, "exceeds the capacity, but only");
  check_says("status", NULL, "exceeds the capacity, but only");
  touch(b, 48 * MIB);
  scene_await(&scene, take_turns, NULL, "turns begin");
  for (int i = 0; i < 4; i++)
    touch(i % 2 ? a : b, 48 * MIB);
  CHECK(handovers() > 0, "no turns are taken");
  end(a, b);
  return true;
}

TEST(little_is_touched) {
  unsigned tries = 0;
  while (!is_little_touched())
    CHECK(++tries < 10, "they have taken turns each time");
}

/* The next ones run together: NVML tells again. */
TEST(allocations_count_if_nvml_crashes) {
  begin("touched");
  scene_await(&scene, has_card, NULL, "NVML has told of the card");
  play("crash");
  struct process *a = start(), *b = start();
  scene_await(&scene, take_turns, NULL, "turns begin");
  process_finish(a);
  process_finish(b);
  play("nothing");
  a = start();
  touch(a, MIB);
  scene_await(&scene, is_seen, NULL, "it is known what is on the card");
  b = start();
  scene_await(&scene, run_together, NULL, "they run together");
  end(a, b);
}

TEST(allocations_count_if_that_is_set) {
  begin("allocated");
  struct process *a = start(), *b = start();
  scene_await(&scene, take_turns, NULL, "turns begin");
  for (int i = 0; i < 4; i++)
    touch(i % 2 ? a : b, MIB);
  CHECK(handovers() > 0, "no turns are taken");
  end(a, b);
}
