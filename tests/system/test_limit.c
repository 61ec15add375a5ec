/*
 * test_limit.c - what a process submits while the daemon, played by the test, limits it in its meter page;
 * that nothing waits for ever for it; and what it measures.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define FIFTH (NS_PER_S / 5)

static struct scene scene;
static struct fake_daemon fake;
static struct process *job;

static void pass_ms(uint64_t ms) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

static void set_limit(uint64_t limit) {
  atomic_store(&fake.meter->limit, limit);
  fake_touch_meter(&fake);
  fake_await_seen(&fake);
}

static void grant(void) {
  fake_grant(&fake, fake.used_bytes);
  fake_await_active(&fake);
}

/* The job has the GPU; it is not limited yet. */
static void take_in(void) {
  fake.metering = true;
  fake_accept(&fake, 64 * MIB, GS_MEMORY_MANAGED);
  fake.slack_bytes = MIB;
}

static void begin_rushing(const char *how) {
  scene_begin(&scene, "small,capacity=64MiB");
  fake_listen(&fake, scene.socket);
  job = scene_start(&scene, NULL, "rusher", how, "100", "2ms", NULL);
  take_in();
  grant();
  process_expect(job, "rushing", NULL, 0);
}

static void begin(const char *program, const char *argument, const char *first) {
  scene_begin(&scene, "small,capacity=64MiB");
  fake_listen(&fake, scene.socket);
  job = scene_start(&scene, NULL, program, argument, NULL);
  take_in();
  grant();
  fake_await_used(&fake, 1);
  process_expect(job, first, NULL, 0);
}

static void end(void) {
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  fake_end(&fake);
  scene_end(&scene);
}

static void finish(void) {
  process_close_input(job);
  end();
}

static void run(const char *command) {
  process_say(job, command);
  process_expect(job, "done", NULL, 0);
}

/* It says nothing: it waits. */
static void check_held(int ms) {
  struct pollfd said = {.fd = job->out, .events = POLLIN};
  CHECK(poll(&said, 1, ms) == 0, "it goes on");
}

static uint64_t kernels(void) { return scene_process(&scene, job, 0).counters[GS_SIM_kernels]; }
static uint64_t queued(void) { return scene_process(&scene, job, 0).in_flight; }

static uint64_t kernels_in_ms(uint64_t ms) {
  uint64_t before = kernels();
  pass_ms(ms);
  return kernels() - before;
}

static void await_kernels(uint64_t count) {
  for (uint64_t deadline = deadline_in(PROCESS_LIMIT_S); kernels() < count; pass_ms(1))
    CHECK(deadline_left_ms(deadline) > 0, "%llu of %llu", (unsigned long long)kernels(),
          (unsigned long long)count);
}

static void await_drained(void) {
  for (uint64_t deadline = deadline_in(PROCESS_LIMIT_S); queued() > 0; pass_ms(1))
    CHECK(deadline_left_ms(deadline) > 0, "%llu are queued", (unsigned long long)queued());
}

/* Its memory may come to the card meanwhile. */
static void await_request(void) {
  for (uint64_t deadline = deadline_in(PROCESS_LIMIT_S); !fake.requested;) {
    CHECK(deadline_left_ms(deadline) > 0, "it does not ask for the GPU");
    fake_expect_only(&fake, GS_RESIDENT, 1);
  }
}

/* ---- how much passes ---- */

TEST(nothing_passes_a_limit_of_0) {
  static const char *const ways[] = {"launch 1", "copies", "replay", "write", "call", "prefetch"};
  begin("metered", NULL, "ready");
  run("graph");
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
    set_limit(0);
    process_say(job, ways[i]);
    check_held(30);
    set_limit(GS_LIMIT_NONE);
    process_expect(job, "done", NULL, 0);
  }
  CHECK(fake.meter->throttled_ns > 100 * NS_PER_MS);
  finish();
}

/* Else who waits a second for a kernel that costs much would seem to want nothing for a second. */
TEST(who_waits_says_so_while_it_waits) {
  begin("metered", NULL, "ready");
  set_limit(0);
  uint64_t before_ns = fake.meter->throttled_ns;
  process_say(job, "launch 1");
  for (uint64_t deadline = deadline_in(PROCESS_LIMIT_S); fake.meter->throttled_ns < before_ns + 5 * NS_PER_MS;
       pass_ms(1))
    CHECK(deadline_left_ms(deadline) > 0, "it tells of no wait");
  check_held(0);
  set_limit(GS_LIMIT_NONE);
  process_expect(job, "done", NULL, 0);
  finish();
}

/* And what is queued by then is little. */
TEST(what_is_submitted_is_what_may_be) {
  begin_rushing("kernels");
  set_limit(FIFTH);
  await_drained();
  uint64_t count = kernels_in_ms(2000 * test_scale());
  CHECK(count >= 100 * test_scale() && count <= 320 * test_scale(), "%llu kernels of 2 ms",
        (unsigned long long)count);
  for (uint64_t limit = NS_PER_S * 9 / 10; limit < 20 * NS_PER_S; limit *= 10) {
    set_limit(limit); /* the second one is more than there is */
    pass_ms(100);
    for (int i = 0; i < 20; i++, pass_ms(2))
      CHECK(queued() <= 5, "%llu are queued", (unsigned long long)queued());
  }
  set_limit(0);
  await_drained();
  CHECK(kernels_in_ms(50) == 0);
  set_limit(GS_LIMIT_NONE);
  await_kernels(kernels() + 100);
  process_say(job, "stop");
  end();
}

/* Events recorded, or asked about, while anything captures could break it. */
TEST(nothing_is_recorded_while_anything_captures) {
  char line[64];
  begin_rushing("capturing");
  await_kernels(5); /* the capture is open; one may have been measured before that */
  set_limit(FIFTH);
  pass_ms(200);
  set_limit(GS_LIMIT_NONE);
  process_say(job, "stop");
  process_expect(job, "recorded ", line, sizeof line);
  uint64_t own = strtoull(line + strlen("recorded "), NULL, 10);
  uint64_t marks = scene_process(&scene, job, 0).counters[GS_SIM_events] - own;
  CHECK(marks <= 2, "%llu", (unsigned long long)marks);
  end();
}

/* ---- nobody waits for ever ---- */

TEST(a_lost_daemon_lifts_the_limit) {
  begin_rushing("kernels");
  set_limit(0);
  await_drained();
  uint64_t before = kernels();
  fake_hang_up(&fake);
  await_kernels(before + 50);
  take_in();
  set_limit(0);
  await_drained();
  set_limit(GS_LIMIT_NONE);
  process_say(job, "stop");
  end();
}

static void drop(void) {
  fake_drop(&fake, fake.epoch, fake.used_bytes);
  CHECK(fake_expect(&fake, GS_LOCK_RELEASED).epoch == fake.epoch);
}

TEST(the_gpu_is_given_back_while_threads_wait) {
  begin("metered", NULL, "ready");
  set_limit(0);
  for (int i = 0; i < 3; i++) {
    process_say(job, "launch 1");
    check_held(20);
    drop();
    set_limit(GS_LIMIT_NONE);
    check_held(20); /* at the gate */
    set_limit(0);
    await_request();
    grant();
    check_held(20);
    set_limit(GS_LIMIT_NONE);
    process_expect(job, "done", NULL, 0);
    set_limit(0);
  }
  set_limit(GS_LIMIT_NONE);
  finish();
}

/* The thread that captures waits for the limit with something else: a hand-over, which waits for the capture
 * to end, lets it go on. */
TEST(a_capture_ends_that_a_hand_over_waits_for) {
  setenv("GPUSHARE_PREEMPT", "off", 1); /* what is stopped waits for no capture */
  begin("metered", NULL, "ready");
  run("open");
  set_limit(0);
  run("launch 1"); /* which is recorded */
  process_say(job, "outside");
  check_held(50);
  fake_drop(&fake, fake.epoch, fake.used_bytes);
  process_expect(job, "done", NULL, 0);
  run("close");
  CHECK(fake_expect(&fake, GS_LOCK_RELEASED).epoch == fake.epoch);
  set_limit(GS_LIMIT_NONE);
  process_say(job, "launch 1");
  await_request();
  grant();
  process_expect(job, "done", NULL, 0);
  finish();
}

/* The stream waits, in a host function, for a thread that waits for the limit: what ends a drain elsewhere
 * ends it here. */
TEST(a_drain_ends_that_waits_for_a_thread_that_waits) {
  begin("waiter", "locked", "busy");
  set_limit(0);
  process_say(job, "go");
  check_held(100);
  drop();
  set_limit(GS_LIMIT_NONE);
  await_request();
  grant();
  end();
}

/* ---- what is measured ---- */

static void set_undisturbed(bool undisturbed) {
  atomic_store(&fake.meter->undisturbed, undisturbed);
  fake_touch_meter(&fake);
  fake_await_seen(&fake);
}

static void spin_until_sampled(const char *command, uint64_t more) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  for (uint64_t before = fake.meter->samples; fake.meter->samples < before + more;) {
    CHECK(deadline_left_ms(deadline) > 0, "%llu samples", (unsigned long long)fake.meter->samples);
    run(command);
  }
}

TEST(kernels_are_measured_beside_what_they_take_undisturbed) {
  begin("metered", NULL, "ready");
  run("spin 2");
  fake_touch_meter(&fake);
  fake_await_seen(&fake);
  CHECK(fake.meter->samples == 0); /* nobody knows what they take undisturbed */
  set_undisturbed(true);
  spin_until_sampled("spin 2", 3);
  uint64_t sampled_ns = fake.meter->sampled_ns, expected_ns = fake.meter->expected_ns;
  CHECK(sampled_ns >= 6 * NS_PER_MS);
  CHECK(sampled_ns * 10 < expected_ns * 20 && expected_ns * 10 < sampled_ns * 20);
  set_undisturbed(false);
  spin_until_sampled("spin 8", 3); /* as if another one took its time */
  sampled_ns = fake.meter->sampled_ns - sampled_ns;
  expected_ns = fake.meter->expected_ns - expected_ns;
  CHECK(sampled_ns > 2 * expected_ns, "%llu, %llu", (unsigned long long)sampled_ns,
        (unsigned long long)expected_ns);
  CHECK(fake.meter->busy_ns > 20 * NS_PER_MS);
  finish();
}

TEST(what_is_queued_is_seen) {
  begin_rushing("kernels");
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  while (fake.meter->in_flight_ns < 30 * NS_PER_MS || fake.meter->idle) {
    CHECK(deadline_left_ms(deadline) > 0, "%llu", (unsigned long long)fake.meter->in_flight_ns);
    pass_ms(1);
  }
  process_say(job, "stop");
  end();
}
