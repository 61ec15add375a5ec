/*
 * test_failures.c - calls of the driver fail that the library makes, for itself or for the program: the
 * first, the second, or all of one function. The program may fail, but it must not crash, hang, or compute
 * wrongly, and another job must get its turns.
 */
#include <stdio.h>
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

static void play_one(const char *function, const char *which, int result) {
  char fail[128];
  snprintf(fail, sizeof fail, "GPUSHARE_SIM_FAIL=%s:%s:%d", function, which, result);
  const char *const environment[] = {fail, NULL};
  struct process *program = scene_start(&scene, environment, "unlucky", NULL);
  int status = process_wait(program);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: wait status %x", fail, (unsigned)status);
}

static void play(const char *which, int result) {
  scene_begin(&scene, "small,capacity=32MiB,scale=0");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "5ms", NULL);
  struct process *other =
      scene_start(&scene, NULL, "job", "--bytes", "16M", "--rounds", "0", "--progress", NULL);
  process_expect(other, "round 1", NULL, 0);
  play_one("none", which, result);
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    play_one(functions[i], which, result);
    process_drain(other);
    process_expect(other, "round ", NULL, 0);
  }
  process_finish(other);
  scene_end(&scene);
}

enum { OUT_OF_MEMORY = 2, UNKNOWN = 999 };

TEST(the_first_call_is_out_of_memory) { play("1", OUT_OF_MEMORY); }
TEST(the_second_call_fails) { play("2", UNKNOWN); }
TEST(the_sixth_call_fails) { play("6", UNKNOWN); }
TEST(no_call_succeeds) { play("1+", UNKNOWN); }
TEST(no_later_call_succeeds) { play("4+", UNKNOWN); }
