/* test_standstill.c - a program's work is stopped in its middle when its turn ends, its memory leaves
 * meanwhile, and it goes on where it was: by itself, and with the real daemon. */
#include <stdio.h>
#include <unistd.h>

#include "common/clock.h"
#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)

static struct scene scene;
static struct fake_daemon fake;
static struct process *job;

static uint64_t kernels(const struct process *process) {
  return scene_process(&scene, process, 0).counters[GS_SIM_kernels];
}

static uint64_t busy_ns(void) { return scene_process(&scene, job, 0).counters[GS_SIM_gpu_busy_ns]; }

/* A kernel of the job, which takes seconds, has begun: none ends while the GPU works on. */
static void await_begun(void) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S), ended;
  process_expect(job, "filled", NULL, 0);
  do {
    ended = kernels(job);
    for (uint64_t before = busy_ns(); busy_ns() < before + 50 * NS_PER_MS * test_scale();)
      CHECK(deadline_left_ms(deadline) > 0, "nothing runs");
  } while (kernels(job) != ended);
}

static void start_job(environment_list environment, const char *card, const char *spin, const char *buffers) {
  scene_begin(&scene, card);
  fake_listen(&fake, scene.socket);
  job = scene_start(&scene, environment, "job", "--bytes", "64M", "--rounds", "1", "--spin", spin,
                    "--buffers", buffers, NULL);
  fake_accept(&fake, 1024 * MIB, GS_MEMORY_MANAGED);
  fake_await_request(&fake);
  fake_grant(&fake, fake.used_bytes);
  fake_await_active(&fake);
}

static void start_with(environment_list environment, const char *card, const char *spin) {
  start_job(environment, card, spin, "2");
  await_begun();
}

static void start_on(const char *card, const char *spin) { start_with(NULL, card, spin); }
static void start(const char *spin) { start_on("small,capacity=1GiB", spin); }

static void stop_and_evict(void) {
  fake_drop(&fake, fake.epoch, 0);
  fake_await_released(&fake);
  fake_await_room(&fake, 0);
}

static void finish(void) {
  process_expect(job, "verified", NULL, 0);
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  fake_end(&fake);
  scene_end(&scene);
}

static void end_in_the_middle(void) {
  process_kill(job);
  fake_end(&fake);
  scene_end(&scene);
}

TEST(memory_leaves_in_the_middle_of_a_kernel) {
  start("1000");
  uint64_t before = kernels(job);
  for (int turn = 0; turn < 3; turn++) {
    stop_and_evict();
    CHECK(kernels(job) == before, "a kernel has ended");
    CHECK(scene_card(&scene, 0).resident_bytes == 0, "something stays");
    fake_await_request(&fake); /* nobody waits at the gate, but the work is not done */
    fake_grant(&fake, fake.used_bytes);
    fake_await_active(&fake);
  }
  end_in_the_middle();
}

/* At the speed of the bus: what it takes for that has been made ready before the stop. */
TEST(unified_memory_is_carried_in_the_middle_of_a_kernel) {
  static const char *const managed[] = {"GPUSHARE_MEMORY=managed", NULL};
  start_with(managed, "small,capacity=1GiB", "1");
  stop_and_evict();
  CHECK(scene_card(&scene, 0).counters[GS_SIM_discarded_bytes] >= 64 * MIB, "it is prefetched");
  CHECK(scene_card(&scene, 0).resident_bytes == 0, "something stays");
  fake_await_request(&fake);
  fake_grant(&fake, fake.used_bytes);
  fake_await_active(&fake);
  finish();
}

static void await_counter(enum gs_sim_counter counter, uint64_t beyond) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  while (scene_process(&scene, job, 0).counters[counter] <= beyond)
    CHECK(deadline_left_ms(deadline) > 0, "%s stays at %llu", gs_sim_counter_name(counter),
          (unsigned long long)beyond);
}

/* The driver copies by the processor, in a call that was in flight when the work was stopped. */
TEST(a_call_that_goes_on_meanwhile_finds_the_contents) {
  static const char *const managed[] = {"GPUSHARE_MEMORY=managed", NULL};
  start_job(managed, "small,capacity=1GiB,processor_copies=1", "1ms", "1");
  await_counter(GS_SIM_copied_pageable_bytes, 0);
  stop_and_evict();
  await_counter(GS_SIM_processor_copies, 0); /* memory that comes back counts as copied, too */
  fake_await_request(&fake);
  fake_grant(&fake, fake.used_bytes);
  fake_await_active(&fake);
  finish();
}

/* Its context breaks while that is away: then nothing comes back, and the program hears of it. */
TEST(a_driver_that_breaks_meanwhile_keeps_no_gate_shut) {
  char fault[128], path[96];
  const char *const environment[] = {"GPUSHARE_MEMORY=managed", fault, NULL};
  snprintf(path, sizeof path, "/tmp/gpushare-fault-%d", (int)getpid());
  snprintf(fault, sizeof fault, "GPUSHARE_SIM_FAULT=%s", path);
  start_with(environment, "small,capacity=1GiB", "1");
  stop_and_evict();
  CHECK(scene_card(&scene, 0).counters[GS_SIM_discarded_bytes] >= 64 * MIB, "it is prefetched");
  FILE *file = fopen(path, "w");
  CHECK(file && fclose(file) == 0);
  fake_await_request(&fake);
  fake_grant(&fake, fake.used_bytes);
  fake_await_active(&fake);
  process_expect(job, "error cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED", NULL, 0);
  process_wait_exit(job, 1);
  unlink(path);
  fake_end(&fake);
  scene_end(&scene);
}

/* So it does not take 0.1 s, nor memory of the card. */
TEST(where_nothing_is_to_leave_it_stops_without_another_context) {
  start_on("small,capacity=1GiB,contexts_most=1", "1000");
  fake_expect_no_moves(&fake);
  uint64_t before = kernels(job);
  for (int turn = 0; turn < 3; turn++) {
    fake_drop(&fake, fake.epoch, fake.used_bytes);
    fake_await_released(&fake);
    CHECK(kernels(job) == before, "a kernel has ended");
    fake_await_request(&fake);
    fake_grant(&fake, fake.used_bytes);
    fake_await_active(&fake);
  }
  end_in_the_middle();
}

TEST(then_its_memory_leaves_nevertheless_when_it_is_to) {
  start("1000");
  fake_expect_no_moves(&fake);
  uint64_t before = kernels(job);
  fake_drop(&fake, fake.epoch, fake.used_bytes);
  fake_await_released(&fake);
  fake_tell_room(&fake, 0);
  fake_await_room(&fake, 0);
  CHECK(kernels(job) == before, "a kernel has ended");
  uint64_t stopped_ns = busy_ns();
  nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
  CHECK(busy_ns() == stopped_ns, "it goes on without its memory");
  end_in_the_middle();
}

/* Then its memory could not leave in the middle of its work. */
TEST(without_room_for_another_context_the_work_finishes) {
  start_on("small,capacity=1GiB,contexts_most=1", "3");
  fake_drop(&fake, fake.epoch, 0);
  fake_await_released(&fake);
  CHECK(scene_process(&scene, job, 0).in_flight == 0, "it was stopped");
  fake_await_room(&fake, 0);
  fake_await_request(&fake);
  fake_grant(&fake, fake.used_bytes);
  finish();
}

TEST(nor_where_nobody_expected_that) {
  start_on("small,capacity=1GiB,contexts_most=1", "3");
  fake_expect_no_moves(&fake);
  fake_drop(&fake, fake.epoch, fake.used_bytes);
  fake_await_released(&fake);
  CHECK(scene_process(&scene, job, 0).in_flight > 0, "it was waited for");
  fake_tell_room(&fake, 0);
  fake_await_room(&fake, 0);
  CHECK(scene_process(&scene, job, 0).in_flight == 0, "it was stopped");
  fake_await_request(&fake);
  fake_grant(&fake, fake.used_bytes);
  finish();
}

TEST(it_goes_on_without_a_daemon) {
  start("1");
  stop_and_evict();
  fake_hang_up(&fake);
  finish();
}

static bool has_handed_over(const struct scene_status *status, const void *unused) {
  (void)unused;
  return status->gpu_count && status->gpus[0].gpu_status.handovers >= 12;
}

/* A kernel is longer than a quantum, and the card too small for both. */
TEST(kernels_longer_than_a_quantum_take_turns) {
  struct process *jobs[2];
  scene_begin(&scene, "small,capacity=96MiB");
  scene_start_daemon(&scene, "--tq", "50ms", NULL);
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--bytes", "64M", "--rounds", "2", "--spin", "1", NULL);
  scene_await(&scene, has_handed_over, NULL, "they take turns");
  for (int i = 0; i < 2; i++) {
    process_expect(jobs[i], "ok", NULL, 0);
    process_wait_exit(jobs[i], 0);
  }
  scene_end(&scene);
}

static bool preempts(const struct scene_status *status, const void *process) {
  const struct gs_msg *msg = scene_job_of(status, ((const struct process *)process)->pid);
  return msg && msg->job_status.flags & GS_STATE_PREEMPTS;
}

static void run_some(environment_list environment) {
  scene_begin(&scene, "small");
  scene_start_daemon(&scene, NULL);
  job = scene_start(&scene, environment, "job", "--bytes", "16M", "--rounds", "0", NULL);
  process_expect(job, "filled", NULL, 0);
  scene_await(&scene, scene_job_holds, job, "it runs");
}

TEST(the_status_tells_that_it_can_be_stopped) {
  run_some(NULL);
  scene_await(&scene, preempts, job, "it can be stopped");
  scene_stop_daemon(&scene);
  scene_start_daemon(&scene, NULL);
  scene_await(&scene, preempts, job, "another daemon hears of it, too");
  process_finish(job);
  scene_end(&scene);
}

TEST(the_status_tells_that_it_cannot) {
  static const char *const off[] = {"GPUSHARE_PREEMPT=off", NULL};
  struct scene_status status;
  run_some(off);
  CHECK(scene_ask_status(&scene, &status) == 0 && !preempts(&status, job));
  process_finish(job);
  scene_end(&scene);
}

static bool rests(const struct scene_status *status, const void *process) {
  const struct gs_msg *wait = scene_wait_of(status, ((const struct process *)process)->pid);
  return wait && wait->wait_status.reason == GS_REASON_PAUSED;
}

TEST(a_kernel_is_paused_in_its_middle) {
  scene_begin(&scene, "small");
  scene_start_daemon(&scene, "--tq", "50ms", NULL);
  job = scene_start(&scene, NULL, "job", "--bytes", "16M", "--rounds", "1", "--spin", "100", NULL);
  await_begun();
  CHECK(scene_ctl(&scene, NULL, 0, "pause", "1", NULL) == 0);
  scene_await(&scene, rests, job, "it is paused");
  process_kill(job);
  scene_end(&scene);
}

/* Nothing was expected to move, so the library has no context to bring it with. */
static void allocate_while_paused(void) {
  scene_begin(&scene, "small");
  scene_start_daemon(&scene, NULL);
  job = scene_start(&scene, NULL, "waiter", "between", NULL);
  process_expect(job, "busy", NULL, 0);
  CHECK(scene_ctl(&scene, NULL, 0, "pause", "1", NULL) == 0);
  scene_await(&scene, rests, job, "it is paused");
  process_say(job, "go");
  process_expect(job, "allocated", NULL, 0);
}

static void go_on_with_that(void) {
  process_say(job, "go");
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  scene_end(&scene);
}

TEST(what_is_allocated_while_it_is_paused_comes) {
  allocate_while_paused();
  CHECK(scene_ctl(&scene, NULL, 0, "resume", "1", NULL) == 0);
  go_on_with_that();
}

TEST(also_where_the_daemon_is_killed_meanwhile) {
  allocate_while_paused();
  scene_kill_daemon(&scene);
  go_on_with_that();
}
