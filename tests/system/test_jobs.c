/* test_jobs.c - many jobs at once with a short quantum: all finish, every byte is right, no two on the GPU.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner.h"
#include "scene.h"

#define LINE_SIZE 256

static struct scene scene;

static void begin(const char *card, const char *mode, const char *quantum) {
  scene_begin(&scene, card);
  scene_start_daemon(&scene, "--mode", mode, "--tq", quantum, NULL);
}

static struct process *start_job(const char *bytes, const char *rounds, const char *option) {
  return scene_start(&scene, NULL, "job", "--wait", "--bytes", bytes, "--rounds", rounds, option, NULL);
}

static void release_all(struct process **jobs, int count) {
  for (int i = 0; i < count; i++)
    process_expect(jobs[i], "ready", NULL, 0);
  for (int i = 0; i < count; i++)
    process_say(jobs[i], "go");
}

static void finish_all(struct process **jobs, int count) {
  for (int i = 0; i < count; i++) {
    process_expect(jobs[i], "ok", NULL, 0);
    process_wait_exit(jobs[i], 0);
  }
}

static uint64_t handovers(void) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  CHECK(status.gpu_count >= 1, "the daemon knows no GPU");
  return status.gpus[0].gpu_status.handovers;
}

static void run_jobs(const char *card, int count, const char *bytes, const char *rounds) {
  struct process *jobs[PROCESS_MAX];
  begin(card, "on", "0.005");
  for (int i = 0; i < count; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--wait", "--bytes", bytes, "--rounds", rounds, "--spin",
                          "1ms", NULL);
  release_all(jobs, count);
  finish_all(jobs, count);
  scene_check_no_overlaps(&scene, 0);
  CHECK(handovers() >= (uint64_t)count - 1, "%llu hand-overs", (unsigned long long)handovers());
  scene_end(&scene);
}

/* What has been freed keeps no room on the card from the other one: no turn waits for the grace. */
TEST(in_stream_order_on_an_old_driver) {
  struct process *jobs[2];
  begin("small,capacity=16MiB,driver_version=12020", "on", "0.005");
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--wait", "--async", "--bytes", "8M", "--scratch", "4M",
                          "--rounds", "20", "--spin", "1ms", NULL);
  release_all(jobs, 2);
  finish_all(jobs, 2);
  scene_check_no_overlaps(&scene, 0);
  CHECK(handovers() >= 4, "%llu hand-overs", (unsigned long long)handovers());
  scene_end(&scene);
}

TEST(two) { run_jobs("small,capacity=8MiB", 2, "6M", "20"); }
TEST(ten) { run_jobs("small,capacity=16MiB", 10, "5M", "10"); }
TEST(fifty) { run_jobs("small,capacity=32MiB", 50, "2M", "3"); }

/* In auto: those that fit run side by side, without a hand-over. */
TEST(auto_fitting) {
  struct process *jobs[2];
  begin("small,capacity=64MiB", "auto", "0.005");
  for (int i = 0; i < 2; i++)
    jobs[i] = start_job("8M", "40", "--progress");
  release_all(jobs, 2);
  finish_all(jobs, 2);
  CHECK(handovers() == 0, "%llu hand-overs", (unsigned long long)handovers());
  scene_end(&scene);
}

/* In auto: two that fit run together; a third makes it too much, and turns are taken; it leaves, and turns
 * end. */
static bool turns_taken(const struct scene_status *status, const void *wanted) {
  bool serialized = status->gpu_count == 1 && status->gpus[0].gpu_status.flags & GS_GPU_SERIALIZED;
  return serialized == *(const bool *)wanted;
}

TEST(auto_both_ways) {
  static const bool yes = true, no = false;
  struct process *jobs[3];
  begin("small,capacity=32MiB", "auto", "0.005");
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--bytes", "12M", "--rounds", "0", "--progress", NULL);
  for (int i = 0; i < 2; i++)
    process_expect(jobs[i], "round 3", NULL, 0);
  scene_await(&scene, turns_taken, &no, "no turns while two jobs fit");
  jobs[2] = scene_start(&scene, NULL, "job", "--bytes", "20M", "--rounds", "0", "--progress", NULL);
  process_expect(jobs[2], "round 3", NULL, 0);
  scene_await(&scene, turns_taken, &yes, "turns while three jobs don't fit");
  process_close_input(jobs[2]);
  process_expect(jobs[2], "ok", NULL, 0);
  process_wait_exit(jobs[2], 0);
  scene_await(&scene, turns_taken, &no, "no turns when the third has gone");
  for (int i = 0; i < 2; i++)
    process_close_input(jobs[i]);
  finish_all(jobs, 2);
  scene_end(&scene);
}

/* Several threads and streams; several contexts; two GPUs in one process. */
static void run_shapes(const char *card, unsigned gpus, const char *workers, const char *contexts,
                       const char *option) {
  char gpu_count[8];
  struct process *jobs[2];
  begin(card, "on", "0.005");
  snprintf(gpu_count, sizeof gpu_count, "%u", gpus);
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--wait", "--bytes", "5M", "--rounds", "30", "--workers",
                          workers, "--contexts", contexts, "--gpus", gpu_count, option, NULL);
  release_all(jobs, 2);
  finish_all(jobs, 2);
  for (unsigned gpu = 0; gpu < gpus; gpu++) {
    scene_check_no_overlaps(&scene, gpu);
    CHECK(scene_card(&scene, gpu).counters[GS_SIM_kernels] > 60, "GPU %u has not been used", gpu);
  }
  scene_end(&scene);
}

TEST(threads) { run_shapes("small,capacity=32MiB", 1, "4", "1", NULL); }
TEST(contexts) { run_shapes("small,capacity=32MiB", 1, "4", "3", NULL); }
TEST(two_gpus) { run_shapes("small,capacity=32MiB,gpus=2", 2, "4", "1", NULL); }
TEST(stream_ordered_allocation) { run_shapes("small,capacity=32MiB", 1, "4", "1", "--async"); }
/* Prefetched so far, either way. */
static uint64_t prefetched(const struct process *job) {
  struct gs_sim_process process = scene_process(&scene, job, 0);
  return process.counters[GS_SIM_prefetched_in_bytes] + process.counters[GS_SIM_prefetched_out_bytes];
}

/* What a program wants in host memory takes no room on the card, nor any time at turns. Before its first
 * round the table may come once: until the program has said where it wants it. */
static void run_table(const char *how) {
  struct process *jobs[2];
  begin("small,capacity=64MiB", "on", "0.005");
  jobs[0] = scene_start(&scene, NULL, "tabler", how, "50331648", NULL);
  process_expect(jobs[0], "round ", NULL, 0);
  uint64_t before = prefetched(jobs[0]);
  jobs[1] = scene_start(&scene, NULL, "job", "--bytes", "16M", "--rounds", "0", "--progress", NULL);
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  do {
    CHECK(deadline_left_ms(deadline) > 0, "few hand-overs");
    for (int i = 0; i < 2; i++)
      process_expect(jobs[i], "round ", NULL, 0);
  } while (handovers() < 20);
  uint64_t moved = prefetched(jobs[0]) - before;
  CHECK(moved < 50331648, "%llu bytes", (unsigned long long)moved);
  for (int i = 0; i < 2; i++)
    process_close_input(jobs[i]);
  finish_all(jobs, 2);
  scene_end(&scene);
}

TEST(table_advised) { run_table("advised"); }
TEST(table_advised_at) { run_table("advised_at"); }
TEST(table_moved) { run_table("moved"); }
TEST(table_moved_thread) { run_table("moved_thread"); }
TEST(table_moved_at) { run_table("moved_at"); }
TEST(table_moved_at_thread) { run_table("moved_at_thread"); }
TEST(table_moved_in_a_batch) { run_table("batch"); }
TEST(own_unified_memory) { run_shapes("small,capacity=32MiB", 1, "2", "1", "--managed"); }

static bool have_handed_over(const struct scene_status *status, const void *times) {
  return status->gpu_count >= 1 && status->gpus[0].gpu_status.handovers >= *(const uint64_t *)times;
}

/* They work until there have been so many hand-overs. */
static void run_until_handed_over(struct process **jobs, uint64_t times) {
  release_all(jobs, 2);
  scene_await(&scene, have_handed_over, &times, "they hand over");
  for (int i = 0; i < 2; i++)
    process_close_input(jobs[i]);
  finish_all(jobs, 2);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

/* Threads that retain and release the context all the time: at no moment may a hand-over miss its work. */
TEST(retainers) {
  struct process *jobs[2];
  begin("small,capacity=32MiB", "on", "0.002");
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--wait", "--bytes", "4M", "--rounds", "0", "--spin", "1ms",
                          i == 0 ? "--retain" : NULL, NULL);
  run_until_handed_over(jobs, 100);
}

/* Captures all the time, hand-overs all the time: no capture may be invalidated. */
static void run_captures(const char *workers) {
  struct process *jobs[2];
  begin("small,capacity=32MiB", "on", "0.002");
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--wait", "--bytes", "5M", "--rounds", "0", "--workers",
                          workers, i == 0 ? "--capture" : NULL, NULL);
  run_until_handed_over(jobs, 100);
}

TEST(captures) { run_captures("1"); }

/* A holder that is stopped: bypassed after the grace, the other goes on; continued, it finishes as well. */
TEST(stopped_holder) {
  struct process *jobs[2];
  if (scene_uses_swap())
    test_skip("without page faults others must wait for its memory");
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "5ms", "--grace", "200ms", NULL);
  jobs[0] = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "0", "--spin", "1ms", "--progress",
                        NULL);
  process_expect(jobs[0], "round 2", NULL, 0);
  scene_await(&scene, scene_job_holds, jobs[0], "the first job holds the GPU");
  process_signal(jobs[0], SIGSTOP);
  jobs[1] = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "20", NULL);
  process_expect(jobs[1], "ok", NULL, 0);
  process_wait_exit(jobs[1], 0);
  process_signal(jobs[0], SIGCONT);
  process_close_input(jobs[0]);
  process_expect(jobs[0], "ok", NULL, 0);
  process_wait_exit(jobs[0], 0);
  scene_end(&scene);
}

/* A holder without work gives way at once, however long the quantum. */
TEST(idle_holder) {
  struct process *jobs[2];
  begin("small,capacity=32MiB", "on", "3600");
  jobs[0] = scene_start(&scene, NULL, "job", "--wait", "--bytes", "24M", "--rounds", "3", NULL);
  process_expect(jobs[0], "ready", NULL, 0);
  process_say(jobs[0], "go");
  process_expect(jobs[0], "ok", NULL, 0);
  process_wait_exit(jobs[0], 0);
  /* This one stays, idle, after its first kernels. */
  jobs[0] = scene_start(&scene, NULL, "idler", NULL);
  process_expect(jobs[0], "idle", NULL, 0);
  jobs[1] = start_job("24M", "10", NULL);
  release_all(jobs + 1, 1);
  finish_all(jobs + 1, 1);
  process_close_input(jobs[0]);
  process_expect(jobs[0], "ok", NULL, 0);
  process_wait_exit(jobs[0], 0);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}
