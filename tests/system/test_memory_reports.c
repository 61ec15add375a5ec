/* test_memory_reports.c - a program that allocates and frees all the time must not drown the daemon in
 * messages. */
#include <stdio.h>

#include "runner.h"
#include "scene.h"

#define BYTES "17825792" /* more than is granted beyond what is asked for */

static struct scene scene;

TEST(allocations_without_pause) {
  struct scene_status status;
  scene_begin(&scene, "small,capacity=64MiB,scale=0");
  scene_start_daemon(&scene, "--mode", "on", NULL);
  int lines = process_log_lines(scene.daemon);
  struct process *program = scene_start(&scene, NULL, "allocator", BYTES, "20000", NULL);
  process_expect(program, "done", NULL, 0);
  CHECK(scene_ask_status(&scene, &status) == 0);
  CHECK(scene_job_of(&status, program->pid), "the daemon no longer knows it");
  CHECK(process_log_lines(program) == 0, "it has been without a daemon");
  CHECK(process_log_lines(scene.daemon) - lines <= 4, "the daemon has much to say");
  process_say(program, "go");
  process_expect(program, "ok", NULL, 0);
  process_wait_exit(program, 0);
  scene_end(&scene);
}
