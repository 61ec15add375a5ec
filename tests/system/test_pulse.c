/*
 * test_pulse.c - a holder that is told to stop, and whose work takes longer than a drain normally does: after
 * two seconds its waiting calls pass, one each, for they may be what the work waits for. What must not
 * happen: that a capture begins so, or that a call passes when the GPU belongs to another.
 */
#include <stdio.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;
static struct process *holder, *other;

/* The holder has work that doesn't end yet, and has been told to stop. */
static void begin_drain(const char *situation, const char *quantum) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", quantum, NULL);
  holder = scene_start(&scene, NULL, "waiter", situation, NULL);
  process_expect(holder, "busy", NULL, 0);
  other = scene_start(&scene, NULL, "job", "--bytes", "4M", "--rounds", "20", "--spin", "20ms", NULL);
  scene_await(&scene, scene_job_drops, holder, "the holder is told to stop");
}

static void end_both(void) {
  process_expect(other, "ok", NULL, 0);
  process_wait_exit(other, 0);
  process_expect(holder, "ok", NULL, 0);
  process_wait_exit(holder, 0);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

TEST(no_capture_begins) {
  begin_drain("capture", "50ms");
  process_say(holder, "go");
  end_both();
}

TEST(host_function_waits_for_a_waiting_thread) {
  begin_drain("locked", "300ms");
  uint64_t start_ns = clock_now_ns();
  process_say(holder, "go");
  scene_await(&scene, scene_job_holds, other, "the other job has got the GPU");
  uint64_t took_ns = clock_now_ns() - start_ns;
  CHECK(took_ns < 5 * NS_PER_S * test_scale(), "%llu ms", (unsigned long long)(took_ns / NS_PER_MS));
  end_both();
}
