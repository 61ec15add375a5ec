/* test_presence.c - programs on a host whose GPU is played by another device, with the real daemon: those
 * that have it open share it, and those that have not are left alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/parse.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;
static char device[128], device_variable[160];

static void write_text(const char *path, const char *text) {
  char whole[160];
  snprintf(whole, sizeof whole, "%s/%s", scene.folder, path);
  FILE *file = fopen(whole, "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", whole);
}

static void make_folder(const char *path) {
  char whole[160];
  snprintf(whole, sizeof whole, "%s/%s", scene.folder, path);
  CHECK(mkdir(whole, 0755) == 0, "%s", whole);
}

/* A daemon tells the UUID of the simulated GPU. */
static void learn_uuid(char uuid[GS_UUID_TEXT_SIZE]) {
  struct scene_status status;
  scene_start_daemon(&scene, NULL);
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "1M", "--rounds", "0", NULL);
  scene_await(&scene, scene_job_known, job, "the job has joined");
  CHECK(scene_ask_status(&scene, &status) == 0);
  format_uuid(status.gpus[0].gpu_status.uuid, uuid);
  process_finish(job);
  scene_stop_daemon(&scene);
}

static void begin(void) {
  static const char *const folders[] = {"proc", "proc/driver", "proc/driver/nvidia",
                                        "proc/driver/nvidia/gpus", "proc/driver/nvidia/gpus/0"};
  char uuid[GS_UUID_TEXT_SIZE], text[160];
  scene_begin(&scene, "small,capacity=64MiB");
  snprintf(device, sizeof device, "%s/nvidia0", scene.folder);
  snprintf(device_variable, sizeof device_variable, "GPUSHARE_SIM_DEVICE=%s", device);
  if (mknod(device, S_IFCHR | 0666, makedev(1, 3)) < 0) {
    scene_end(&scene);
    test_skip("no device can be made here");
  }
  learn_uuid(uuid);
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    make_folder(folders[i]);
  write_text("proc/devices", "  1 nvidia\n");
  snprintf(text, sizeof text, "GPU UUID: %s\nDevice Minor: 3\n", uuid);
  write_text("proc/driver/nvidia/gpus/0/information", text);
  setenv("GPUSHARE_HOST_ROOT", scene.folder, 1);
}

TEST(who_has_it_open_shares_it) {
  begin();
  const char *const environment[] = {device_variable, NULL};
  scene_start_daemon(&scene, "--require-device", "yes", "--mode", "on", "--tq", "5ms", NULL);
  struct process *jobs[3];
  for (int i = 0; i < 3; i++)
    jobs[i] = scene_start(&scene, environment, "job", "--bytes", "8M", "--rounds", "0", "--progress", NULL);
  for (int i = 0; i < 3; i++) {
    process_expect(jobs[i], "round 3", NULL, 0);
    scene_await(&scene, scene_job_known, jobs[i], "it has joined");
  }
  for (int i = 0; i < 3; i++) {
    process_finish(jobs[i]);
    CHECK(process_log_lines(jobs[i]) == 0);
  }
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

/* It says one line, and runs as without a daemon; beside one that shares the GPU. */
TEST(who_has_not_is_left_alone) {
  begin();
  const char *const environment[] = {device_variable, NULL};
  scene_start_daemon(&scene, "--require-device", "auto", "--mode", "on", "--tq", "5ms", NULL);
  struct process *honest =
      scene_start(&scene, environment, "job", "--bytes", "8M", "--rounds", "0", "--progress", NULL);
  scene_await(&scene, scene_job_known, honest, "it has joined");
  struct process *other = scene_start(&scene, NULL, "job", "--bytes", "8M", "--rounds", "30", NULL);
  process_finish(other);
  CHECK(process_log_lines(other) == 1, "%d lines", process_log_lines(other));
  CHECK(process_log_count(
      other,
      "does not find its device among the open files of this process: not shared with other programs"));
  process_finish(honest);
  CHECK(process_log_lines(honest) == 0);
  scene_end(&scene);
}
