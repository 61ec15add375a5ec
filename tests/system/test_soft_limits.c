/* test_soft_limits.c - programs with soft limits: what they have beyond these leaves the card first, and
 * comes back right. */
#include <stdio.h>

#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define STEP "33554432" /* 32 MiB */

static struct scene scene;

static void grow(struct process *program, int steps) {
  for (int i = 0; i < steps; i++) {
    process_say(program, "go");
    process_expect(program, "grown", NULL, 0);
  }
}

static struct process *start(const char *memory, const char *soft_limit, int steps) {
  const char *const environment[] = {memory, soft_limit, NULL};
  struct process *program = scene_start(&scene, environment, "grower", STEP, NULL);
  grow(program, steps);
  return program;
}

static struct gs_msg job_of(const struct process *program) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  return *scene_job_of(&status, program->pid);
}

static void set_soft_limit(const struct process *program, const char *bytes) {
  char job[16];
  snprintf(job, sizeof job, "%u", job_of(program).job_status.job);
  CHECK(scene_ctl(&scene, NULL, 0, "set-soft-limit", job, bytes, NULL) == 0);
}

struct wanted {
  const struct process *victim, *other;
  uint64_t other_bytes; /* that it keeps on the card */
};

static bool has_left_alone(const struct scene_status *status, const void *argument) {
  const struct wanted *wanted = argument;
  const struct gs_msg *victim = scene_job_of(status, wanted->victim->pid);
  const struct gs_msg *other = scene_job_of(status, wanted->other->pid);
  CHECK(other->job_status.resident_bytes == wanted->other_bytes, "the other one leaves");
  CHECK(victim->job_status.resident_bytes >= 32 * MIB, "more than is needed leaves");
  return victim->job_status.resident_bytes < victim->job_status.used_bytes;
}

static void await_left(const struct process *victim, const struct process *other, uint64_t other_bytes) {
  scene_await(&scene, has_left_alone, &(struct wanted){victim, other, other_bytes}, "it has left");
}

/* The one that has been idle for longer would leave first, and does when there is no soft limit any more. */
static void check_with(const char *memory) {
  scene_begin(&scene, "small,capacity=208MiB");
  scene_start_daemon(&scene, "--mode", "on", NULL);
  struct process *longest_idle = start(memory, "GPUSHARE_MEMORY_SOFT_LIMIT=", 2);
  struct process *idle = start(memory, "GPUSHARE_MEMORY_SOFT_LIMIT=32M", 3);
  struct process *holder = start(memory, "GPUSHARE_MEMORY_SOFT_LIMIT=32M", 1); /* all fit */
  grow(holder, 1);
  await_left(idle, longest_idle, 64 * MIB);
  uint64_t idle_bytes = job_of(idle).job_status.resident_bytes;
  set_soft_limit(idle, "0");
  grow(holder, 1);
  await_left(longest_idle, idle, idle_bytes);
  process_finish(idle);
  process_finish(holder);
  process_finish(longest_idle);
  scene_end(&scene);
}

TEST(managed) { check_with("GPUSHARE_MEMORY=managed"); }

TEST(swap) { check_with("GPUSHARE_MEMORY=swap"); }
