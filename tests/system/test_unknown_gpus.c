/* test_unknown_gpus.c - programs whose GPU the daemon does not know, or not yet: they go on, and ask again, not too
 * often. */
#include <stdlib.h>

#include "common/clock.h"
#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;
static struct fake_daemon fake;

static bool some_client(const struct scene_status *status, const void *nothing) {
  (void)nothing;
  return status->daemon.daemon.jobs == 1;
}

/* By a daemon that has asked a played NVML, in which there is another card. */
TEST(refused) {
  struct scene_status status;
  scene_begin(&scene, "small,capacity=32MiB");
  scene.nvml = GS_NVML;
  setenv("GS_NVML_GPUS", "1", 1);
  scene_start_daemon(&scene, "--mode", "on", NULL);
  struct process *job =
      scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "0", "--progress", NULL);
  process_expect(job, "round 20", NULL, 0);
  process_await_log(job, "this host has no such GPU");
  scene_await(&scene, some_client, NULL, "the daemon has the program");
  process_drain(job);
  process_expect(job, "round", NULL, 0);
  CHECK(scene_ask_status(&scene, &status) == 0 && status.gpu_count == 1 && status.job_count == 0);
  CHECK(process_log_lines(job) == 1, "it complains again");
  CHECK(process_log_count(scene.daemon, "no such GPU") == 1, "it asks again and again");
  process_finish(job);
  scene_end(&scene);
}

/* Whoever must not run without the daemon waits. */
TEST(required) {
  static const char *const required[] = {"GPUSHARE_REQUIRED=1", NULL};
  scene_begin(&scene, "small,capacity=32MiB");
  fake_listen(&fake, scene.socket);
  struct process *job = scene_start(&scene, required, "job", "--bytes", "8M", "--rounds", "1", NULL);
  fake_accept_refusing(&fake, NS_PER_S / 2);
  struct gs_msg attach = fake_attach(&fake, UINT64_C(32) << 20, GS_MEMORY_MANAGED);
  CHECK(!(attach.attach.flags & GS_ATTACH_RUNNING), "it has run");
  fake_await_request(&fake);
  fake_grant(&fake, UINT64_C(32) << 20);
  process_finish(job);
  fake_end(&fake);
  scene_end(&scene);
}

TEST(asked_again) {
  scene_begin(&scene, "small,capacity=32MiB");
  fake_listen(&fake, scene.socket);
  struct process *job =
      scene_start(&scene, NULL, "job", "--bytes", "8M", "--rounds", "0", "--progress", NULL);
  fake_accept_refusing(&fake, NS_PER_S);
  process_expect(job, "round 3", NULL, 0);
  struct gs_msg attach = fake_attach(&fake, UINT64_C(32) << 20, GS_MEMORY_MANAGED);
  CHECK(attach.attach.flags & GS_ATTACH_RUNNING, "it does not run");
  CHECK(process_log_lines(job) == 0, "it complains, though it shares now");
  fake_drop(&fake, 0, UINT64_C(32) << 20);
  fake_await_released(&fake);
  fake_await_request(&fake);
  process_drain(job);
  fake_grant(&fake, UINT64_C(32) << 20);
  process_expect(job, "round", NULL, 0);
  process_finish(job);
  fake_end(&fake);
  scene_end(&scene);
}
