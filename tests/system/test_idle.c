/* test_idle.c - who does nothing on a GPU holds nobody up there, and finding out whether he does disturbs
 * nobody. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;

/* With the quantum endless, and another job that waits. */
static void capture_while_asked(const char *situation) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "3600", NULL);
  struct process *holder = scene_start(&scene, NULL, "waiter", situation, NULL);
  process_expect(holder, "busy", NULL, 0);
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "4M", "--rounds", "5", NULL);
  scene_await(&scene, scene_job_waits, job, "the other job waits");
  process_say(holder, "go");
  process_expect(holder, "ok", NULL, 0);
  process_wait_exit(holder, 0);
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

/* Its stream waits for a thread that records graphs first: not idle, and whoever waited for the stream, with
 * captures forbidden, would wait for ever. */
TEST(captures_while_asked) { capture_while_asked("released"); }

/* Likewise where the stream is one that can't be asked. */
TEST(captures_beside_a_per_thread_stream) { capture_while_asked("recorded_beside"); }

/* Its captures begin while a free waits for the stream. */
TEST(captures_beside_a_free) { capture_while_asked("freed"); }

/* Where there are per-thread streams, quiet is all that can be seen. */
TEST(quiet_beside_a_per_thread_stream) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "3600", NULL);
  struct process *holder = scene_start(&scene, NULL, "waiter", "quiet", NULL);
  process_expect(holder, "busy", NULL, 0);
  process_finish(scene_start(&scene, NULL, "job", "--bytes", "4M", "--rounds", "5", NULL));
  process_say(holder, "go"); /* ends its rest */
  process_say(holder, "go");
  process_expect(holder, "ok", NULL, 0);
  process_wait_exit(holder, 0);
  scene_end(&scene);
}

/* How often this thread has waited for something, so far; 0 if it is none of the library's. */
static uint64_t count_waits_of(const struct process *process, const char *thread) {
  char path[64], line[128];
  uint64_t waits = 0;
  bool ours = false;
  snprintf(path, sizeof path, "/proc/%d/task/%.12s/status", process->pid, thread);
  FILE *status = *thread == '.' ? NULL : fopen(path, "re");
  while (status && fgets(line, sizeof line, status)) {
    ours |= strncmp(line, "Name:\tgpushare", 14) == 0;
    if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
      waits = strtoull(line + 24, NULL, 10);
  }
  if (status)
    fclose(status);
  return ours ? waits : 0;
}

static uint64_t count_waits(const struct process *process) {
  char path[64];
  uint64_t waits = 0;
  snprintf(path, sizeof path, "/proc/%d/task", process->pid);
  DIR *threads = opendir(path);
  CHECK(threads, "%s", path);
  for (const struct dirent *thread; (thread = readdir(threads));)
    waits += count_waits_of(process, thread->d_name);
  closedir(threads);
  CHECK(waits > 0, "none of its threads is ours");
  return waits;
}

/* For one second: what has just happened may take its time. */
static void await_stillness(const struct process *process) {
  uint64_t before, deadline = deadline_in(PROCESS_LIMIT_S);
  do {
    CHECK(deadline_left_ms(deadline) > 0, "its threads go on waking up");
    before = count_waits(process);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  } while (count_waits(process) != before);
}

/* Whether it holds the GPU, or its memory has left for another job that goes on, or it is paused. */
TEST(idle_jobs_wake_up_for_nothing) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "auto", "--tq", "3600", NULL);
  struct process *idler = scene_start(&scene, NULL, "idler", NULL);
  process_expect(idler, "idle", NULL, 0);
  await_stillness(idler);
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "28M", "--rounds", "0", NULL);
  process_expect(job, "filled", NULL, 0);
  await_stillness(idler);
  CHECK(scene_ctl(&scene, NULL, 0, "pause", "1", NULL) == 0);
  await_stillness(idler);
  CHECK(scene_ctl(&scene, NULL, 0, "resume", "1", NULL) == 0);
  process_say(job, "stop");
  process_wait_exit(job, 0);
  process_finish(idler);
  scene_end(&scene);
}

static const struct gs_msg *job_on(const struct scene_status *status, const struct process *process,
                                   unsigned gpu) {
  for (int i = 0; i < status->job_count; i++)
    if (status->jobs[i].job_status.pid == process->pid && status->jobs[i].gpu == gpu)
      return &status->jobs[i];
  return NULL;
}

#define BYTES "65536" /* rounds shorter than a holder must look idle for */

/* One that has only looked at the second GPU, and is busy on the first. */
static struct process *start_looker(void) {
  struct process *looker = scene_start(&scene, NULL, "looker", "0", BYTES, "0", NULL);
  process_expect(looker, "computing", NULL, 0);
  return looker;
}

static void start_daemon(const char *mode) {
  scene_start_daemon(&scene, "--mode", mode, "--tq", "3600", NULL);
}

/* Another job has the second GPU at once, and to itself. */
static void compute_on_second(const struct process *looker) {
  struct scene_status status;
  uint64_t start_ns = clock_now_ns();
  process_finish(scene_start(&scene, NULL, "looker", "1", BYTES, "30", NULL));
  uint64_t took_ns = clock_now_ns() - start_ns;
  CHECK(took_ns < 60 * NS_PER_S * test_scale(), "%llu ms", (unsigned long long)(took_ns / NS_PER_MS));
  CHECK(scene_ask_status(&scene, &status) == 0);
  const struct gs_msg *job = job_on(&status, looker, 1);
  uint64_t held_ns = job ? job->job_status.held_ns : 0;
  CHECK(held_ns <= NS_PER_S * test_scale(), "it has held the second GPU for %llu ms",
        (unsigned long long)(held_ns / NS_PER_MS));
}

static void check_has_not_held(const struct process *looker) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  const struct gs_msg *job = job_on(&status, looker, 1);
  CHECK(!job || job->job_status.turns == 0, "it has held the second GPU");
}

/* It doesn't stand at a gate for the second GPU either: its calls need not ask the driver where they go. */
static void check_passes_freely(const struct process *looker) {
  struct gs_sim_process counters;
  uint64_t rounds, deadline = deadline_in(PROCESS_LIMIT_S);
  do {
    CHECK(deadline_left_ms(deadline) > 0, "it does not go on");
    nanosleep(&(struct timespec){.tv_nsec = 2000 * 1000}, NULL);
    counters = scene_process(&scene, looker, 0);
    rounds = counters.counters[GS_SIM_kernels] / 2;
  } while (rounds < 200);
  CHECK(counters.counters[GS_SIM_context_queries] < rounds, "%llu questions in %llu rounds",
        (unsigned long long)counters.counters[GS_SIM_context_queries], (unsigned long long)rounds);
}

TEST(looking_is_not_using) {
  scene_begin(&scene, "small,capacity=32MiB,gpus=2");
  start_daemon("on");
  struct process *looker = start_looker();
  compute_on_second(looker);
  check_has_not_held(looker);
  check_passes_freely(looker);
  process_finish(looker);
  scene_end(&scene);
}

/* Without a daemon all hold all; when it comes, that must not count for a GPU that was only looked at. */
TEST(looking_without_daemon_is_not_using) {
  scene_begin(&scene, "small,capacity=32MiB,gpus=2");
  struct process *looker = start_looker();
  start_daemon("on");
  scene_await(&scene, scene_job_known, looker, "the daemon knows it");
  compute_on_second(looker);
  process_finish(looker);
  scene_end(&scene);
}

/* Where all may run, turns begin on the second GPU when two jobs there don't fit together. */
TEST(looking_is_not_using_in_auto) {
  struct process *jobs[2];
  scene_begin(&scene, "small,capacity=32MiB,gpus=2");
  start_daemon("auto");
  struct process *looker = start_looker();
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "looker", "1", "20971520", "50", NULL);
  for (int i = 0; i < 2; i++)
    process_finish(jobs[i]);
  scene_check_no_overlaps(&scene, 0);
  process_finish(looker);
  scene_end(&scene);
}
