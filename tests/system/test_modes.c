/*
 * test_modes.c - every way in which a program can reach the driver: its allocations must be converted and its
 * work gated. Two programs of the mode, which do not fit on the card together, take turns.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "runner.h"
#include "scene.h"

#define CARD "small,capacity=8MiB"
#define BYTES "6291456"
#define ROUNDS "30"
#define SMALL_BYTES (2u << 20) /* small allocations stay on the card, together */

static struct scene scene;

static void begin(void) {
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, "--mode", "on", "--tq", "5ms", NULL);
}

static bool is_counted(const struct scene_status *status, const void *program) {
  const struct gs_msg *job = scene_job_of(status, ((const struct process *)program)->pid);
  return job && job->job_status.used_bytes >= strtoull(BYTES, NULL, 10);
}

static void check_converted(struct process *program) {
  struct gs_sim_process counters = scene_process(&scene, program, 0);
  /* To the driver swap memory is pinned while it is on the card; but then both could not be ready. */
  CHECK(counters.pinned_bytes <= SMALL_BYTES || scene_uses_swap(), "%llu bytes were not converted",
        (unsigned long long)counters.pinned_bytes);
  scene_await(&scene, is_counted, program, "the daemon knows of all of it");
}

static void run_both(struct process *programs[2]) {
  for (int i = 0; i < 2; i++)
    process_expect(programs[i], "ready", NULL, 0);
  for (int i = 0; i < 2; i++)
    check_converted(programs[i]);
  for (int i = 0; i < 2; i++)
    process_say(programs[i], "go");
  for (int i = 0; i < 2; i++)
    process_expect(programs[i], "ok", NULL, 0);
  for (int i = 0; i < 2; i++) {
    process_wait_exit(programs[i], 0);
    CHECK(scene_process(&scene, programs[i], 0).counters[GS_SIM_kernels] > 30, "it has run no kernels");
  }
  scene_check_no_overlaps(&scene, 0);
}

static void run_mode(environment_list environment, const char *program, const char *script) {
  struct process *programs[2];
  begin();
  for (int i = 0; i < 2; i++)
    programs[i] = script ? scene_start(&scene, environment, program, script, BYTES, ROUNDS, NULL)
                         : scene_start(&scene, environment, program, BYTES, ROUNDS, NULL);
  run_both(programs);
  scene_end(&scene);
}

TEST(driver_linked) { run_mode(NULL, "mode_linked", NULL); }
TEST(driver_dlopened) { run_mode(NULL, "mode_dlopen", NULL); }
TEST(runtime_static) { run_mode(NULL, "mode_runtime_static", NULL); }
TEST(runtime_shared) { run_mode(NULL, "mode_runtime_shared", NULL); }
TEST(runtime_dlopened) { run_mode(NULL, "mode_runtime_dlopen", NULL); }
TEST(both_dlopened) { run_mode(NULL, "mode_both_dlopen", NULL); }
TEST(python_ctypes) { run_mode(NULL, GS_PYTHON, GS_SOURCES "/mode_ctypes.py"); }
TEST(proc_address) { run_mode(NULL, "mode_proc_address", NULL); }
TEST(versioned_look_up) {
  static const char *const versioned[] = {"LD_LIBRARY_PATH=" GS_SIM_DIR "/other", NULL};
  run_mode(versioned, "mode_dlvsym", NULL);
}
/* Not one function of the driver's own is found, by any of them. */
TEST(every_look_up) {
  static const char *const versioned[] = {"LD_LIBRARY_PATH=" GS_SIM_DIR "/other", NULL};
  scene_begin(&scene, CARD);
  struct process *program = scene_start(&scene, versioned, "mode_looked_up", NULL);
  process_wait_exit(program, 0);
  scene_end(&scene);
}
TEST(per_thread_stream) { run_mode(NULL, "mode_per_thread", NULL); }
TEST(deepbind_plugin) {
  if (getenv("GS_TEST_PRELOAD_FIRST"))
    test_skip("sanitizers refuse RTLD_DEEPBIND");
  run_mode(NULL, "mode_deepbind", NULL);
}
TEST(deepbind_by_name) {
  if (getenv("GS_TEST_PRELOAD_FIRST"))
    test_skip("sanitizers refuse RTLD_DEEPBIND");
  run_mode(NULL, "mode_deepbind_name", NULL);
}

/* The driver is one that can be closed, as the real one can. */
static void run_reopened(const char *mode) {
  const char *const environment[] = {"LD_LIBRARY_PATH=" GS_SIM_DIR "/unloadable", mode,
                                     "OTHER_DRIVER=" GS_SIM_DIR "/other/libcuda.so.1", NULL};
  run_mode(environment, "mode_reopened", NULL);
}

TEST(driver_reloaded) { run_reopened("MODE=reloaded"); }
TEST(driver_replaced) { run_reopened("MODE=replaced"); }
TEST(driver_replaced_after_failure) { run_reopened("MODE=refused"); }
TEST(driver_closed_in_use) { run_reopened("MODE=closed"); }
TEST(driver_beside_another) { run_reopened("MODE=kept"); }
TEST(driver_of_plugin_reloaded) { run_reopened("MODE=plugin"); }
TEST(second_driver_left_alone) { run_reopened("MODE=second"); }

TEST(cuda_python) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  scene_begin(&scene, CARD);
  struct process *probe = scene_start(&scene, plain, GS_PYTHON, "-c", "import cuda.bindings.driver", NULL);
  int status = process_wait(probe);
  scene_end(&scene);
  if (WEXITSTATUS(status) != 0)
    test_skip("no cuda-bindings in %s", GS_PYTHON);
  run_mode(NULL, GS_PYTHON, GS_SOURCES "/mode_cuda_python.py");
}

/* Both orders of preloading; the other library must have seen calls as well. */
static void run_with_other(const char *program, const char *before, const char *after, const char *seen) {
  char preload[2048];
  struct process *programs[2];
  snprintf(preload, sizeof preload, "LD_PRELOAD=%s%s%s", before, scene_preload(), after);
  const char *const environment[] = {preload, NULL};
  begin();
  for (int i = 0; i < 2; i++)
    programs[i] = scene_start(&scene, environment, program, BYTES, ROUNDS, NULL);
  run_both(programs);
  for (int i = 0; i < 2; i++)
    CHECK(process_log_count(programs[i], seen) == 1, "expected: %s", seen);
  scene_end(&scene);
}

/* Two allocations per program: the memory and the counter of mismatches. */
TEST(other_hook_after_us) {
  run_with_other("mode_linked", "", ":" GS_PROGRAMS "/libhook_next.so", "hook_next saw ");
}
TEST(other_hook_before_us) {
  /* The sanitizer's runtime has to stay first. */
  const char *first = getenv("GS_TEST_PRELOAD_FIRST");
  char before[1024];
  snprintf(before, sizeof before, "%s%s" GS_PROGRAMS "/libhook_next.so:", first ? first : "",
           first ? ":" : "");
  run_with_other("mode_linked", before, "", "hook_next saw 2 calls");
}
TEST(other_dlsym_after_us) {
  run_with_other("mode_dlopen", "", ":" GS_PROGRAMS "/libhook_dlsym.so", "hook_dlsym saw ");
}
TEST(other_dlsym_before_us) {
  const char *first = getenv("GS_TEST_PRELOAD_FIRST");
  char before[1024];
  snprintf(before, sizeof before, "%s%s" GS_PROGRAMS "/libhook_dlsym.so:", first ? first : "",
           first ? ":" : "");
  run_with_other("mode_dlopen", before, "", "hook_dlsym saw 12 look-ups");
}
