/* test_several.c - programs on a host with several GPUs: those that use some of them together, whose memory
 * does not fit beside that of others, and which GPU each is on.
 */
#include <poll.h>
#include <stdio.h>

#include "common/parse.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;

static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};
static const char *const managed[] = {"GPUSHARE_MEMORY=managed", NULL};

static struct process *start_crosser_with(environment_list memory, const char *what) {
  return scene_start(&scene, memory, "crosser", what, "8388608", "60", NULL);
}

static struct process *start_crosser(const char *what) { return start_crosser_with(swap, what); }

static void expect_end(struct process *program) {
  process_expect(program, "ok", NULL, 0);
  process_wait_exit(program, 0);
}

/* Each needs both GPUs at once: none is stuck with one of them, and no byte is away when it is touched. */
static void check_two(environment_list memory, const char *what) {
  const char *quantum = test_scale() > 1 ? "300ms" : "40ms"; /* a hand-over must fit in well */
  scene_begin(&scene, "small,gpus=2,capacity=64MiB,scale=0.2");
  scene_start_daemon(&scene, "--mode", "on", "--tq", quantum, "--capacity", "12M", NULL);
  struct process *one = start_crosser_with(memory, what), *other = start_crosser_with(memory, what);
  process_expect(one, "round", NULL, 0);
  process_expect(other, "round", NULL, 0);
  expect_end(one);
  expect_end(other);
  CHECK(!process_log_count(one, "warn") && !process_log_count(other, "warn"));
  scene_end(&scene);
}

TEST(two_that_copy_between_the_same_gpus) { check_two(swap, "copies"); }
TEST(two_whose_kernels_reach_the_same_gpus) { check_two(swap, "kernels"); }
TEST(two_that_copy_unified_memory) { check_two(managed, "copies"); }

/* Its memory has left the first GPU for another program's when it begins to use the second one. */
TEST(unified_memory_is_reached_from_a_gpu_that_comes_later) {
  static const char *const on_first[] = {"GPUSHARE_MEMORY=managed", "CUDA_VISIBLE_DEVICES=0", NULL};
  scene_begin(&scene, "small,gpus=2,capacity=64MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "60s", "--capacity", "8M", NULL);
  struct process *crosser = start_crosser_with(managed, "later");
  process_expect(crosser, "filled", NULL, 0);
  struct process *job = scene_start(&scene, on_first, "job", "--bytes", "8M", "--rounds", "0", NULL);
  process_expect(job, "filled", NULL, 0);
  CHECK(scene_card(&scene, 0).counters[GS_SIM_discarded_bytes] >= 8 << 20, "it is not carried");
  process_say(crosser, "go");
  expect_end(crosser);
  process_say(job, "stop");
  process_wait_exit(job, 0);
  scene_end(&scene);
}

static bool has_said_nothing(const struct process *process, int ms) {
  struct pollfd says = {.fd = process->out, .events = POLLIN};
  return poll(&says, 1, ms) == 0;
}

/* For the second GPU, which the daemon has come to know first. */
static bool waits_for_second(const struct scene_status *status, const void *process) {
  for (int i = 0; i < status->job_count; i++)
    if (status->jobs[i].job_status.pid == ((const struct process *)process)->pid && status->jobs[i].gpu == 0)
      return status->jobs[i].job_status.state == GS_JOB_WAITING;
  return false;
}

/* It waits for the second GPU and has the first one, which others want: that one is not idle. */
TEST(what_is_needed_together_is_kept) {
  static const char *const on_second[] = {"GPUSHARE_MEMORY=swap", "CUDA_VISIBLE_DEVICES=1", NULL};
  static const char *const on_first[] = {"GPUSHARE_MEMORY=swap", "CUDA_VISIBLE_DEVICES=0", NULL};
  scene_begin(&scene, "small,gpus=2,capacity=64MiB,scale=0.2");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "30s", "--capacity", "12M", NULL);
  struct process *second = scene_start(&scene, on_second, "waiter", "released", NULL);
  process_expect(second, "busy", NULL, 0); /* until it is told to end */
  struct process *crosser = start_crosser("copies");
  scene_await(&scene, waits_for_second, crosser, "it waits for the second GPU");
  struct process *first = scene_start(&scene, on_first, "job", "--bytes", "8M", NULL);
  process_expect(first, "ready", NULL, 0);
  CHECK(has_said_nothing(first, 1000), "it has got the first GPU");
  CHECK(has_said_nothing(crosser, 0));
  process_say(second, "end");
  expect_end(second);
  expect_end(crosser);
  expect_end(first);
  scene_end(&scene);
}

/* On the first of those that it sees, until it is told to end. */
static struct process *start_seeing(const char *visible) {
  char variable[128];
  snprintf(variable, sizeof variable, "CUDA_VISIBLE_DEVICES=%s", visible);
  const char *const environment[] = {variable, NULL};
  struct process *job = scene_start(&scene, environment, "job", "--bytes", "1M", "--rounds", "0", NULL);
  process_expect(job, "filled", NULL, 0);
  return job;
}

static void leave(struct process *job) {
  process_say(job, "stop");
  process_wait_exit(job, 0);
}

/* Programs have other numbers for it than the driver and than each other. */
TEST(a_gpu_is_the_same_by_any_name) {
  char uuid[GS_UUID_TEXT_SIZE], list[2 * GS_UUID_TEXT_SIZE];
  struct scene_status status;
  scene_begin(&scene, "small,gpus=3,capacity=64MiB");
  scene_start_daemon(&scene, NULL);
  struct process *jobs[6] = {start_seeing("1")};
  CHECK(scene_ask_status(&scene, &status) == 0 && status.gpu_count == 1);
  format_uuid(status.gpus[0].gpu_status.uuid, uuid);
  snprintf(list, sizeof list, "%s,0", uuid);
  jobs[1] = start_seeing("1,0");
  jobs[2] = start_seeing(uuid);
  jobs[3] = start_seeing(list);
  uuid[12] = '\0'; /* what is enough to tell it */
  jobs[4] = start_seeing(uuid);
  jobs[5] = start_seeing("1,-1,0");
  CHECK(scene_ask_status(&scene, &status) == 0);
  CHECK(status.gpu_count == 1 && status.job_count == 6, "%d jobs on %d GPUs", status.job_count,
        status.gpu_count);
  struct process *elsewhere = start_seeing("2,1");
  CHECK(scene_ask_status(&scene, &status) == 0 && status.gpu_count == 2 && status.job_count == 7);
  leave(elsewhere);
  for (int i = 0; i < 6; i++)
    leave(jobs[i]);
  scene_end(&scene);
}
