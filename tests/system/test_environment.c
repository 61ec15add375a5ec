/* test_environment.c - our settings outlive what programs do to their environment. */
#include <stdio.h>

#include "runner.h"
#include "scene.h"

static struct scene scene;

TEST(overwritten) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", NULL);
  struct process *program = scene_start(&scene, NULL, "retitled", NULL);
  process_expect(program, "running", NULL, 0);
  CHECK(process_log_lines(program) == 0, "it complains");
  scene_await(&scene, scene_job_known, program, "the daemon knows it");
  process_say(program, "go");
  process_expect(program, "ok", NULL, 0);
  process_wait_exit(program, 0);
  scene_end(&scene);
}
