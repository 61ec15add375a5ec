/*
 * test_copies.c - jobs of swap memory take turns: what has not changed does not leave the card by a copy, nor
 * does what is all zero. Each job verifies all of its memory at its end.
 */
#include <stdio.h>
#include <string.h>

#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define FIRST 6 /* hand-overs in which everything is copied for the first time */
#define HANDOVERS 8

static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};

static struct scene scene;
static struct process *jobs[2];

static bool has_handed_over(const struct scene_status *status, const void *times) {
  return status->gpu_count > 0 && status->gpus[0].gpu_status.handovers >= *(const uint64_t *)times;
}

static void await_handovers(uint64_t times) { scene_await(&scene, has_handed_over, &times, "hand-overs"); }

static uint64_t copied(enum gs_sim_counter direction) {
  uint64_t bytes = 0;
  for (int i = 0; i < 2; i++)
    bytes += scene_process(&scene, jobs[i], 0).counters[direction];
  return bytes;
}

/* Two jobs, of which the card has room for one and a third. */
static void begin(const char *host_copies, const char *kept, const char *changed, const char *unused) {
  scene_begin(&scene, "small,capacity=96MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "30ms", "--host-copies", host_copies, NULL);
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, swap, "keeper", kept, changed, unused, NULL);
  for (int i = 0; i < 2; i++)
    process_expect(jobs[i], "serving", NULL, 0);
}

static void end(void) {
  for (int i = 0; i < 2; i++)
    process_finish(jobs[i]);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

/* So much was copied out for each byte that was copied in, once each job has left. */
static double part_copied(void) {
  await_handovers(FIRST);
  uint64_t out = copied(GS_SIM_copied_out_bytes), in = copied(GS_SIM_copied_in_bytes);
  await_handovers(FIRST + HANDOVERS);
  out = copied(GS_SIM_copied_out_bytes) - out;
  in = copied(GS_SIM_copied_in_bytes) - in;
  CHECK(in >= HANDOVERS * 16 * MIB, "only %llu bytes came back", (unsigned long long)in);
  return (double)out / (double)in;
}

TEST(only_what_changes_is_copied) {
  begin("on", "64M", "4M", "2M");
  double part = part_copied();
  CHECK(part < 0.15, "%.2f of what leaves was copied", part);
  end();
}

/* Of the job that has most. */
static unsigned long long shown(const char *key) {
  static char text[1 << 16];
  unsigned long long most = 0, bytes;
  CHECK(scene_ctl(&scene, text, sizeof text, "status", "--json", NULL) == 0);
  for (const char *at = text; (at = strstr(at, key)); at++)
    if (sscanf(at + strlen(key), "\": %llu", &bytes) == 1 && bytes > most)
      most = bytes;
  return most;
}

TEST(what_is_clean_is_shown) {
  begin("on", "64M", "4M", "2M");
  await_handovers(FIRST);
  while (shown("host_copies_bytes") < 32 * MIB)
    ;
  while (shown("left_spared_bytes") < 32 * MIB)
    ;
  while (shown("clean_bytes") < 32 * MIB)
    ;
  CHECK(shown("host_copies_bytes") <= 70 * MIB);
  end();
}

TEST(without_host_copies_all_of_it_is_copied) {
  begin("off", "64M", "4M", "2M");
  double part = part_copied();
  CHECK(part > 0.8, "%.2f of what leaves was copied", part);
  end();
}

TEST(zeros_are_not_copied) {
  begin("auto", "2M", "2M", "66M");
  await_handovers(FIRST);
  uint64_t copied_bytes = copied(GS_SIM_copied_out_bytes) + copied(GS_SIM_copied_in_bytes);
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  uint64_t moved_bytes = status.gpus[0].gpu_status.moved_bytes, most_bytes = 8 * MIB * FIRST;
  CHECK(copied_bytes < most_bytes, "%llu bytes were copied", (unsigned long long)copied_bytes);
  CHECK(moved_bytes < most_bytes, "%llu bytes have moved, as the status says",
        (unsigned long long)moved_bytes);
  end();
}
