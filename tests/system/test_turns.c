/*
 * test_turns.c - how a turn ends that somebody waits for; the daemon is played by the test. Little is queued
 * when it does, whatever the program would queue; and where the program's iterations are regular, it ends
 * with one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define AHEAD 100 /* kernels that the program queues if it may */
#define FEW 15    /* those of some milliseconds, with the two that run */

static struct scene scene;
static struct fake_daemon fake;
static struct process *job;

static void pass_ms(uint64_t ms) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

static void grant(uint64_t quantum_ms, bool wanted) {
  fake_await_request(&fake);
  fake.quantum_ns = quantum_ms * NS_PER_MS;
  fake_grant(&fake, fake.used_bytes);
  if (wanted)
    fake_want(&fake);
  fake_await_active(&fake);
}

/* It has its first turn, and submits. */
static void begin(environment_list environment, const char *how, const char *ahead, const char *spin,
                  uint64_t quantum_ms) {
  scene_begin(&scene, "small,capacity=64MiB");
  fake_listen(&fake, scene.socket);
  job = scene_start(&scene, environment, "rusher", how, ahead, spin, NULL);
  fake_accept(&fake, 64 * MIB, GS_MEMORY_MANAGED);
  fake.slack_bytes = MIB;
  grant(quantum_ms, false);
  process_expect(job, "rushing", NULL, 0);
}

static void drop(void) {
  fake_drop(&fake, fake.epoch, fake.used_bytes);
  CHECK(fake_expect(&fake, GS_LOCK_RELEASED).epoch == fake.epoch);
}

static uint64_t queued(void) { return scene_process(&scene, job, 0).in_flight; }
static uint64_t counted(enum gs_sim_counter counter) {
  return scene_process(&scene, job, 0).counters[counter];
}

static void await_queued(uint64_t count) {
  for (uint64_t deadline = deadline_in(PROCESS_LIMIT_S); queued() < count;) {
    CHECK(deadline_left_ms(deadline) > 0, "%llu are queued", (unsigned long long)queued());
    pass_ms(1);
  }
}

/* Returns how many events the library has recorded beside those of the program. */
static uint64_t finish(void) {
  char line[64];
  process_say(job, "stop");
  process_expect(job, "recorded ", line, sizeof line);
  uint64_t marks = counted(GS_SIM_events) - strtoull(line + strlen("recorded "), NULL, 10);
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  fake_end(&fake);
  scene_end(&scene);
  return marks;
}

static void check_marks(uint64_t least, uint64_t most) {
  uint64_t marks = finish();
  CHECK(marks >= least && marks <= most, "%llu marks", (unsigned long long)marks);
}

TEST(little_is_queued_when_a_turn_ends) {
  begin(NULL, "kernels", "100", "2ms", 800 * test_scale());
  await_queued(AHEAD);
  fake_want(&fake);
  pass_ms(800 * test_scale()); /* what was queued has been worked off */
  CHECK(queued() <= FEW, "%llu", (unsigned long long)queued());
  drop();
  for (int turn = 0; turn < 3; turn++) {
    grant(400, true);
    pass_ms(400);
    CHECK(queued() <= FEW, "%llu", (unsigned long long)queued());
    drop();
  }
  grant(100000, false);
  check_marks(20, UINT64_MAX);
}

/* Far from its end, a turn is as any other. */
TEST(much_is_queued_before_that) {
  begin(NULL, "kernels", "100", "2ms", 100000);
  fake_want(&fake);
  pass_ms(200);
  await_queued(AHEAD);
  check_marks(0, 0);
}

TEST(nobody_waits_and_nobody_is_paced) {
  begin(NULL, "kernels", "100", "2ms", 100);
  pass_ms(300);
  await_queued(AHEAD);
  check_marks(0, 0);
}

/* Others wait, but for it to be idle: its turn goes on when the quantum is over. That is longer than what
 * programs are taken to queue, or they would be paced lest the end comes. */
TEST(who_runs_on_is_not_paced) {
  begin(NULL, "kernels", "100", "2ms", 2000);
  fake.quantum_ns = 0;
  fake_want(&fake);
  pass_ms(2300);
  await_queued(AHEAD);
  check_marks(0, 0);
}

TEST(who_does_not_want_it_is_not_paced) {
  begin((const char *const[]){"GPUSHARE_PACE=0", NULL}, "kernels", "100", "2ms", 100);
  fake_want(&fake);
  pass_ms(300);
  await_queued(AHEAD);
  check_marks(0, 0);
}

TEST(a_daemon_that_dies_paces_nobody) {
  begin(NULL, "kernels", "100", "2ms", 400);
  fake_want(&fake);
  pass_ms(100);
  fake_hang_up(&fake);
  await_queued(AHEAD);
  finish();
}

/* Events recorded, or asked about, while anything captures could break it. */
TEST(no_marks_while_anything_captures) {
  begin(NULL, "capturing", "100", "2ms", 400);
  await_queued(5); /* the capture is open */
  fake_want(&fake);
  pass_ms(300);
  check_marks(0, 0);
}

/* ---- iterations of five kernels ---- */

#define FIVE 5

static void begin_iterations(const char *how, uint64_t quantum_ms) {
  begin(NULL, how, "5", "4ms", quantum_ms);
  fake_want(&fake);
}

/* The first kernel of all belongs to none. */
static bool ended_within_iteration(void) { return (counted(GS_SIM_kernels) - 1) % FIVE != 0; }

/* The library learns; and then the turn ends by itself, before its time is up. */
static bool end_early(void) {
  fake_expect(&fake, GS_LOCK_RELEASED);
  return ended_within_iteration();
}

/* On a busy machine it may look idle within an iteration; a turn that ends anywhere ends so four times of
 * five. */
static void check_turns_end_with_iterations(const char *how) {
  begin_iterations(how, 1000);
  unsigned broken = end_early();
  for (int turn = 1; turn < 5; turn++) {
    grant(400, true);
    broken += end_early();
  }
  CHECK(broken <= 2, "%u of 5 turns", broken);
  grant(100000, false);
  finish();
}

TEST(a_turn_ends_where_an_iteration_does) { check_turns_end_with_iterations("waits"); }

TEST(a_turn_ends_before_a_graph_is_launched_again) { check_turns_end_with_iterations("graphs"); }

TEST(a_turn_ends_after_a_small_copy) { check_turns_end_with_iterations("copies"); }

TEST(a_turn_that_does_not_end_does_not_end_with_an_iteration) {
  begin(NULL, "graphs", "5", "4ms", 300);
  fake.quantum_ns = 0;
  fake_want(&fake);
  fake_expect_silence(&fake, 600);
  finish();
}
