/*
 * test_failures.c - calls of the driver fail that the library makes, for itself or for the program: the
 * first, the second, or all of one function. The program may fail, but it must not crash, hang, or compute
 * wrongly, and another job must get its turns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "runner.h"
#include "scene.h"

static struct scene scene;

/* What the library calls for itself. */
static const char *const functions[] = {
#define CALL(name, params) #name,
#include "driver/hooks.def"
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuCtxSynchronize",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuEventQuery",
    "cuStreamQuery",
    "cuStreamCreateWithPriority",
    "cuMemAllocManaged",
    "cuMemPrefetchAsync",
    "cuMemPrefetchBatchAsync",
    "cuMemFree_v2",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemPoolCreate",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemGetInfo_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetMemPool",
    "cuPointerGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuGraphLaunch",
    "cuMemcpyDtoH_v2",
    "cuDeviceGetDefaultMemPool"};

enum { COUNT = sizeof functions / sizeof *functions };

/* The program, with one variable more. */
static void run(const char *variable) {
  const char *const environment[] = {variable, NULL};
  struct process *program = scene_start(&scene, environment, "unlucky", NULL);
  int status = process_wait(program);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: wait status %x", variable, (unsigned)status);
}

/* How often each function is called where none fails, about: turns come when they come. */
static void count_calls(unsigned long calls[COUNT]) {
  char variable[128], name[64];
  unsigned long times;
  snprintf(variable, sizeof variable, "GPUSHARE_SIM_CALLS=%s/calls", scene.folder);
  run(variable);
  FILE *file = fopen(strchr(variable, '=') + 1, "r");
  CHECK(file, "no calls are counted");
  while (fscanf(file, "%63s %lu", name, &times) == 2)
    for (int i = 0; i < COUNT; i++)
      if (strcmp(functions[i], name) == 0)
        calls[i] = times;
  fclose(file);
}

static void expect_round(struct process *other) {
  process_drain(other);
  process_expect(other, "round ", NULL, 0);
}

/* Functions that are hardly called so often fail together: each of their processes would run like the others.
 */
static void play(const char *which, int result) {
  char one[128], rare[COUNT * 64] = "GPUSHARE_SIM_FAIL=";
  unsigned long calls[COUNT] = {0};
  int played = 0;
  scene_begin(&scene, "small,capacity=32MiB,scale=0");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "5ms", NULL);
  struct process *other =
      scene_start(&scene, NULL, "job", "--bytes", "8M", "--rounds", "0", "--progress", NULL);
  process_expect(other, "round 1", NULL, 0);
  count_calls(calls);
  for (int i = 0; i < COUNT; i++) {
    if (calls[i] < strtoul(which, NULL, 10)) {
      snprintf(rare + strlen(rare), sizeof rare - strlen(rare), "%s:%s:%d,", functions[i], which, result);
      continue;
    }
    snprintf(one, sizeof one, "GPUSHARE_SIM_FAIL=%s:%s:%d", functions[i], which, result);
    run(one);
    expect_round(other);
    played++;
  }
  run(rare);
  expect_round(other);
  printf("%d of %d functions by themselves\n", played, COUNT);
  process_finish(other);
  scene_end(&scene);
}

enum { OUT_OF_MEMORY = 2, UNKNOWN = 999 };

TEST(the_first_call_is_out_of_memory) { play("1", OUT_OF_MEMORY); }
TEST(the_second_call_fails) { play("2", UNKNOWN); }
TEST(the_sixth_call_fails) { play("6", UNKNOWN); }
TEST(no_call_succeeds) { play("1+", UNKNOWN); }
TEST(no_later_call_succeeds) { play("4+", UNKNOWN); }
