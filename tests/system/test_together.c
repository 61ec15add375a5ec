/*
 * test_together.c - programs of several processes, each with a GPU of its own, that are granted together, and
 * told to stop at the same time. Each is stopped in the middle of its work: test_ranks.c has such as wait for
 * each other, also where only pulses and the grace help (GPUSHARE_PREEMPT=off).
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

#define BRIEFLY_NS (100 * NS_PER_MS)

static struct scene scene;

static struct process *start_member(const char *gang, const char *gpu, const char *rounds) {
  char name[64], visible[64];
  snprintf(name, sizeof name, "GPUSHARE_GANG=%s", gang);
  snprintf(visible, sizeof visible, "CUDA_VISIBLE_DEVICES=%s", gpu);
  const char *const environment[] = {name, visible, NULL};
  /* Kernels of other lengths, so that the GPUs' turns would not keep step by themselves. */
  return scene_start(&scene, environment, "job", "--bytes", "8M", "--rounds", rounds, "--spin",
                     *gpu == '0' ? "7ms" : "11ms", NULL);
}

static void begin(void) {
  scene_begin(&scene, "small,gpus=2,capacity=64MiB,scale=0.2");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "50ms", NULL);
}

static bool is_in(const struct scene_status *status, int i, const char *gang, unsigned state) {
  return status->jobs[i].job_status.state == state && strcmp(status->terms[i].terms_status.gang, gang) == 0;
}

/* One of the gang holds its GPU, another one waits for its own. */
static bool is_split(const struct scene_status *status, const char *gang) {
  bool holds = false, waits = false;
  for (int i = 0; i < status->job_count; i++) {
    holds |= is_in(status, i, gang, GS_JOB_HOLDING);
    waits |= is_in(status, i, gang, GS_JOB_WAITING);
  }
  return holds && waits;
}

struct watch {
  const char *gang;
  bool split;
  struct test_time since; /* if it is */
  unsigned looks, splits;
};

static void look(struct watch *watch, const struct scene_status *status) {
  bool was_split = watch->split;
  watch->split = is_split(status, watch->gang);
  watch->looks++;
  watch->splits += watch->split;
  if (watch->split && !was_split)
    watch->since = test_time();
  CHECK(!watch->split || test_calm_ns(watch->since) < BRIEFLY_NS * test_scale(), "gang %s is split for long",
        watch->gang);
}

static bool all_ended(struct process *const *processes, int count) {
  for (int i = 0; i < count; i++)
    if (!process_ended(processes[i]))
      return false;
  return true;
}

TEST(members_hold_together) {
  struct watch watches[] = {{.gang = "a"}, {.gang = "b"}};
  struct scene_status status;
  begin();
  struct process *const members[] = {start_member("a", "0", "400"), start_member("b", "0", "400"),
                                     start_member("b", "1", "280"), start_member("a", "1", "280")};
  while (!all_ended(members, 4)) {
    CHECK(scene_ask_status(&scene, &status) == 0);
    for (int i = 0; i < 2; i++)
      look(&watches[i], &status);
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
  for (int i = 0; i < 4; i++)
    process_wait_exit(members[i], 0);
  for (int i = 0; i < 2; i++)
    CHECK(watches[i].looks >= 100 && watches[i].splits * 5 < watches[i].looks, "%u of %u", watches[i].splits,
          watches[i].looks);
  scene_end(&scene);
}

/* The others are a gang of one then, and its rivals go on as well. */
TEST(one_that_is_killed_is_not_waited_for) {
  begin();
  struct process *a0 = start_member("a", "0", "160"), *a1 = start_member("a", "1", "0"),
                 *b0 = start_member("b", "0", "160"), *b1 = start_member("b", "1", "120");
  process_expect(a1, "filled", NULL, 0);
  process_kill(a1);
  process_wait_exit(a0, 0);
  process_wait_exit(b0, 0);
  process_wait_exit(b1, 0);
  scene_end(&scene);
}

TEST(a_second_member_on_a_gpu_is_on_its_own) {
  begin();
  struct process *one = start_member("a", "0", "0"), *other;
  process_expect(one, "filled", NULL, 0);
  other = start_member("a", "0", "10");
  process_wait_exit(other, 0);
  process_await_log(scene.daemon, "is on its own on");
  CHECK(process_log_count(scene.daemon, "is on its own on") == 1);
  process_say(one, "stop");
  process_wait_exit(one, 0);
  scene_end(&scene);
}
