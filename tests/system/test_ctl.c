/* test_ctl.c - gpusharectl against a daemon with jobs: changes while running, status, exit codes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;
static struct process *jobs[2];

static void begin_with_jobs(const char *mode) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", mode, "--tq", "5ms", NULL);
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "0", "--progress", NULL);
  for (int i = 0; i < 2; i++)
    process_expect(jobs[i], "round", NULL, 0);
}

static void check_progress(void) {
  for (int i = 0; i < 2; i++) {
    process_drain(jobs[i]);
    process_expect(jobs[i], "round", NULL, 0);
    process_expect(jobs[i], "round", NULL, 0);
  }
}

static void end(void) {
  for (int i = 0; i < 2; i++) {
    process_close_input(jobs[i]);
    process_expect(jobs[i], "ok", NULL, 0);
    process_wait_exit(jobs[i], 0);
  }
  scene_end(&scene);
}

static struct gs_msg gpu_status(void) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0 && status.gpu_count == 1);
  return status.gpus[0];
}

TEST(set_tq_while_running) {
  static const struct {
    const char *text;
    uint64_t ns;
  } quanta[] = {
      {"0.002", 2 * NS_PER_MS}, {"20ms", 20 * NS_PER_MS}, {"20", 20 * NS_PER_S}, {"1ms", NS_PER_MS}};
  begin_with_jobs("on");
  for (size_t i = 0; i < sizeof quanta / sizeof quanta[0]; i++) {
    CHECK(scene_ctl(&scene, NULL, 0, "set-tq", quanta[i].text, NULL) == 0);
    CHECK(gpu_status().gpu_status.tq_ns == quanta[i].ns, "%llu",
          (unsigned long long)gpu_status().gpu_status.tq_ns);
    if (quanta[i].ns < NS_PER_S)
      check_progress();
  }
  end();
}

/* From 20 s to 1 ms in the middle of a turn: the waiting one must not wait for the rest of the 20 s. */
TEST(shorter_tq_counts_at_once) {
  begin_with_jobs("on");
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "3600", NULL) == 0);
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "0.002", NULL) == 0);
  check_progress();
  end();
}

TEST(modes_while_running) {
  static const char *const modes[] = {"off", "on", "auto", "off", "auto", "on"};
  static const unsigned values[] = {GS_MODE_OFF, GS_MODE_ON,   GS_MODE_AUTO,
                                    GS_MODE_OFF, GS_MODE_AUTO, GS_MODE_ON};
  begin_with_jobs("on");
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
    CHECK(scene_ctl(&scene, NULL, 0, modes[i], NULL) == 0);
    struct gs_msg gpu = gpu_status();
    bool serialized = gpu.gpu_status.flags & GS_GPU_SERIALIZED;
    CHECK(gpu.gpu_status.mode == values[i], "mode %u", gpu.gpu_status.mode);
    CHECK(serialized == (values[i] != GS_MODE_OFF), "48 MiB of 32: serialized %d", serialized);
    check_progress();
  }
  end();
}

TEST(signals_switch_the_lock) {
  begin_with_jobs("auto");
  process_signal(scene.daemon, SIGUSR2);
  for (uint64_t deadline = deadline_in(5); gpu_status().gpu_status.mode != GS_MODE_OFF;)
    CHECK(deadline_left_ms(deadline) > 0, "SIGUSR2 does nothing");
  check_progress();
  process_signal(scene.daemon, SIGUSR1);
  for (uint64_t deadline = deadline_in(5); gpu_status().gpu_status.mode != GS_MODE_ON;)
    CHECK(deadline_left_ms(deadline) > 0, "SIGUSR1 does nothing");
  check_progress();
  end();
}

static bool json_names_pid(const json_t *gpu, pid_t pid) {
  size_t i;
  json_t *job;
  json_array_foreach(json_object_get(gpu, "jobs"), i, job) {
    if (json_integer_value(json_object_get(job, "pid")) == pid)
      return json_integer_value(json_object_get(job, "used_bytes")) >= 24 << 20;
  }
  return false;
}

TEST(status_json) {
  static char text[65536];
  json_error_t error;
  begin_with_jobs("on");
  CHECK(scene_ctl(&scene, text, sizeof text, "status", "--json", NULL) == 0);
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  CHECK(root, "%s:\n%s", error.text, text);
  CHECK(json_integer_value(json_object_get(json_object_get(root, "daemon"), "pid")) == scene.daemon->pid);
  json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
  CHECK(gpu, "no GPU in:\n%s", text);
  CHECK(strcmp(json_string_value(json_object_get(gpu, "mode")), "on") == 0);
  for (int i = 0; i < 2; i++)
    CHECK(json_names_pid(gpu, jobs[i]->pid), "no job %d with its bytes in:\n%s", jobs[i]->pid, text);
  json_decref(root);
  end();
}

TEST(exit_codes) {
  char text[4096];
  scene_begin(&scene, "small");
  CHECK(scene_ctl(&scene, text, sizeof text, "status", NULL) == 3, "no daemon");
  CHECK(!*text, "an error is not for stdout: %s", text);
  CHECK(scene_ctl(&scene, NULL, 0, "no-such-command", NULL) == 2, "usage");
  CHECK(scene_ctl(&scene, NULL, 0, "--version", NULL) == 0);
  scene_start_daemon(&scene, NULL);
  CHECK(scene_ctl(&scene, NULL, 0, "status", NULL) == 0);
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "never", NULL) == 2, "not a duration");
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "1us", NULL) != 0, "shorter than 1 ms");
  CHECK(scene_ctl(&scene, NULL, 0, "on", "--gpu", "GPU-00000000-0000-0000-0000-0000000000ff", NULL) == 1,
        "a GPU that is not there");
  scene_end(&scene);
}
