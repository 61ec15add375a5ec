/* test_several.c - programs that use several GPUs together, whose memory does not fit beside that of others.
 */
#include "runner.h"
#include "scene.h"

static struct scene scene;

static struct process *start_crosser(const char *what) {
  static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};
  return scene_start(&scene, swap, "crosser", what, "8388608", "40", NULL);
}

static void expect_end(struct process *program) {
  process_expect(program, "ok", NULL, 0);
  process_wait_exit(program, 0);
}

/* Each needs both GPUs at once: none is stuck with one of them, and no byte is away when it is touched. */
static void check_two(const char *what) {
  scene_begin(&scene, "small,gpus=2,capacity=64MiB,scale=0.2");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "10ms", "--capacity", "12M", NULL);
  struct process *one = start_crosser(what), *other = start_crosser(what);
  process_expect(one, "round", NULL, 0);
  process_expect(other, "round", NULL, 0);
  expect_end(one);
  expect_end(other);
  CHECK(!process_log_count(one, "warn") && !process_log_count(other, "warn"));
  scene_end(&scene);
}

TEST(two_that_copy_between_the_same_gpus) { check_two("copies"); }
TEST(two_whose_kernels_reach_the_same_gpus) { check_two("kernels"); }
