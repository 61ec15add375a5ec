/*
 * test_pulse.c - a holder that is told to stop, and whose work takes longer than a drain normally does: after
 * two seconds its waiting calls pass, one each, for they may be what the work waits for. What must not
 * happen: that a capture is broken so, or that a call passes when the GPU belongs to another.
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

TEST(no_capture_is_broken) {
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
  CHECK(took_ns < 60 * NS_PER_S * test_scale(), "%llu ms", (unsigned long long)(took_ns / NS_PER_MS));
  end_both();
}

/* It may be what the work waits for. */
TEST(a_capture_begins_where_there_is_no_other_way) {
  begin_drain("recorded", "50ms");
  process_say(holder, "go");
  end_both();
}

TEST(a_context_that_stays_is_let_go_of_during_a_drain) {
  begin_drain("let_go", "50ms");
  process_say(holder, "go");
  end_both();
}

/* Nobody else runs before the outer call has left, also if one within it has. */
TEST(a_call_within_a_call) {
  begin_drain("called", "50ms");
  process_say(holder, "go");
  process_expect(holder, "inner", NULL, 0);
  CHECK(scene_process(&scene, other, 0).counters[GS_SIM_submitted] == 0, "the other job has run");
  process_say(holder, "go");
  end_both();
}
