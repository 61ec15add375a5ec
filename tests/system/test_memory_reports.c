/* test_memory_reports.c - a program that allocates and frees all the time must not drown the daemon in
 * messages. */
#include <stdio.h>
#include <stdlib.h>

#include "runner.h"
#include "scene.h"

#define BYTES "17825792" /* more than is granted beyond what is asked for */

static struct scene scene;

TEST(allocations_without_pause) {
  static const char *const verbose[] = {"GPUSHARE_LOG=debug", NULL};
  struct scene_status status;
  scene_begin(&scene, "small,capacity=64MiB,scale=0");
  scene_start_daemon(&scene, "--mode", "on", NULL);
  process_await_log(scene.daemon, "listening on");
  int lines = process_log_lines(scene.daemon);
  struct process *program = scene_start(&scene, verbose, "allocator", BYTES, "20000", NULL);
  process_expect(program, "done", NULL, 0);
  CHECK(scene_ask_status(&scene, &status) == 0);
  CHECK(scene_job_of(&status, program->pid), "the daemon no longer knows it");
  CHECK(process_log_count(program, " warn: ") == 0, "it has been without a daemon");
  int messages = process_log_count(program, "sent MEM_");
  CHECK(messages >= 2 && messages < 4000, "%d messages", messages); /* at most 50 a second are due */
  CHECK(process_log_lines(scene.daemon) - lines <= 4, "the daemon has much to say");
  process_say(program, "go");
  process_expect(program, "ok", NULL, 0);
  process_wait_exit(program, 0);
  scene_end(&scene);
}

/* What was allocated while there was no daemon is told to the one that comes. */
static bool job_uses(const struct scene_status *status, const void *process) {
  const struct gs_msg *job = scene_job_of(status, ((const struct process *)process)->pid);
  return job && job->job_status.used_bytes >= strtoull(BYTES, NULL, 10);
}

TEST(allocated_without_daemon) {
  scene_begin(&scene, "small,capacity=64MiB");
  struct process *job =
      scene_start(&scene, NULL, "job", "--bytes", BYTES, "--rounds", "0", "--progress", NULL);
  process_expect(job, "round 2", NULL, 0);
  scene_start_daemon(&scene, "--mode", "on", NULL);
  scene_await(&scene, job_uses, job, "the daemon knows what it uses");
  process_expect(job, "round ", NULL, 0);
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "0.01", NULL) == 0);
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0 && job_uses(&status, job), "it has forgotten it again");
  process_finish(job);
  scene_end(&scene);
}
