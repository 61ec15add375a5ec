/*
 * test_caches.c - GPUSHARE_EMPTY_CACHE: what PyTorch's allocator keeps, and nobody uses, does not move at the
 * end of a turn; `torch` is played by cacher.py.
 */
#include <stdio.h>

#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define JOB_BYTES (80 * MIB) /* of these, 64 MiB are used within an iteration only */
#define CARD "small,capacity=112MiB"

static const char *const empties[] = {"GPUSHARE_MEMORY=swap", "GPUSHARE_EMPTY_CACHE=1", NULL};
static const char *const keeps[] = {"GPUSHARE_MEMORY=swap", NULL};

static struct scene scene;

static struct process *start(environment_list environment, const char *mode) {
  struct process *job = scene_start(&scene, environment, GS_PYTHON, GS_SOURCES "/cacher.py", mode, NULL);
  process_expect(job, "begun", NULL, 0);
  return job;
}

/* Two of them, by turns, to their end: what has left the card at a hand-over, in bytes. */
static uint64_t run_two(environment_list environment, const char *mode, const char *quantum, bool endless) {
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, "--mode", "on", "--tq", quantum, NULL);
  struct process *jobs[2] = {start(environment, mode), start(environment, mode)};
  for (int i = 0; i < 2 && endless; i++)
    process_expect(jobs[i], "enough", NULL, 0);
  for (int i = 0; i < 2; i++) {
    process_close_input(jobs[i]);
    process_expect(jobs[i], "ok", NULL, 0);
    process_wait_exit(jobs[i], 0);
    CHECK(process_log_lines(jobs[i]) == 0, "it has said something");
  }
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0, "no status");
  uint64_t handovers = status.gpus[0].gpu_status.handovers, moved = status.gpus[0].gpu_status.moved_bytes;
  CHECK(handovers > 1, "%llu hand-overs", (unsigned long long)handovers);
  scene_end(&scene);
  return moved / 2 / handovers; /* out, and in again */
}

/* A quantum of seconds has a window of many iterations, also on a busy machine. */
TEST(it_is_emptied_between_two_iterations) {
  uint64_t bytes = run_two(empties, "empties", "2", true);
  CHECK(bytes < JOB_BYTES / 2, "%llu bytes at a hand-over", (unsigned long long)bytes);
}

/* A server's memory does not rise and fall. */
TEST(it_is_emptied_where_nothing_rises) { run_two(empties, "flat", "1", true); }

/* What Python raises there is no matter of the program's. */
TEST(an_error_is_passed_over) { run_two(empties, "fails", "2", true); }

TEST(it_is_kept_unless_asked_for) { run_two(keeps, "keeps", "200ms", false); }

TEST(it_is_kept_while_a_graph_is_captured) { run_two(empties, "captures", "500ms", false); }
