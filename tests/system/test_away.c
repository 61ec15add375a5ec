/* test_away.c - a program that speaks to the driver about memory which is not on the card just now. */
#include "runner.h"
#include "scene.h"

#define BYTES "20971520"

static struct scene scene;
static struct process *planner, *holder;

/* The planner has used its memory; since then another job computes, and its memory has left for that. */
static void begin(const char *situation) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "3600", NULL);
  planner = scene_start(&scene, NULL, "planner", situation, BYTES, NULL);
  process_expect(planner, "ready", NULL, 0);
  holder = scene_start(&scene, NULL, "looker", "0", BYTES, "0", NULL);
  process_expect(holder, "computing", NULL, 0);
  struct gs_sim_process memory = scene_process(&scene, planner, 0);
  uint64_t there = memory.resident_bytes + memory.pinned_bytes;
  CHECK(there < 16 << 20, "%llu bytes of it are still there", (unsigned long long)there);
  process_say(planner, "go");
}

static void end(void) {
  process_finish(holder);
  process_expect(planner, "ok", NULL, 0);
  process_wait_exit(planner, 0);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

/* The driver would refuse its address: the program waits until it is its turn. */
static void plan(const char *situation) {
  begin(situation);
  scene_await(&scene, scene_job_waits, planner, "the planner waits for its turn");
  end();
}

TEST(nodes) { plan("nodes"); }
TEST(edits) { plan("edits"); }

TEST(questions) {
  begin("questions");
  process_expect(planner, "same", NULL, 0);
  end();
}
