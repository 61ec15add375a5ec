/* test_beside.c - a program runs in a part of the time only, beside others; and one that others run beside
 * tells when it works. */
#include <time.h>

#include "common/clock.h"
#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)

static struct scene scene;
static struct fake_daemon fake;
static struct process *job;

static uint64_t kernels(void) { return scene_process(&scene, job, 0).counters[GS_SIM_kernels]; }

static void pass_ms(uint64_t ms) { nanosleep(&(struct timespec){.tv_nsec = (long)(ms * NS_PER_MS)}, NULL); }

static void await_kernels(uint64_t more) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S), before = kernels();
  for (; kernels() < before + more; pass_ms(1))
    CHECK(deadline_left_ms(deadline) > 0, "%lu kernels", (unsigned long)(kernels() - before));
}

/* Nothing ends for a tenth of a second. */
static void await_still(void) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  for (uint64_t before = UINT64_MAX; kernels() != before; pass_ms(100)) {
    CHECK(deadline_left_ms(deadline) > 0, "it runs");
    before = kernels();
  }
}

static void toil(environment_list environment) {
  scene_begin(&scene, "small");
  fake_listen(&fake, scene.socket);
  job = scene_start(&scene, environment, "toiler", "4M", "2ms", NULL);
  fake_accept(&fake, 1024 * MIB, GS_MEMORY_MANAGED);
  fake_await_request(&fake);
  fake_grant(&fake, 512 * MIB);
  fake_await_active(&fake);
  process_expect(job, "toiling", NULL, 0);
}

static void end_well(void) {
  process_finish(job);
  fake_end(&fake);
  scene_end(&scene);
}

static const char *const drains[] = {"GPUSHARE_PREEMPT=off", NULL};

/* ---- shares ---- */

static void check_shares(environment_list environment) {
  toil(environment);
  await_kernels(5);
  fake_share(&fake, 0, false);
  await_still();
  fake_share(&fake, 100000, false);
  await_kernels(5);
  fake_share(&fake, 0, false);
  await_still();
  fake_share(&fake, GS_SHARE_ALL, false);
  await_kernels(5);
  end_well();
}

TEST(it_runs_in_its_part_of_the_time) { check_shares(NULL); }
TEST(so_it_does_where_work_cannot_be_stopped) { check_shares(drains); }

/* The GPU is given back, with all work of the turn that was not done; in the next one it rests as well. */
static void check_turns(environment_list environment) {
  toil(environment);
  fake_share(&fake, 0, false);
  await_still();
  fake_drop(&fake, fake.epoch, 0);
  fake_await_released(&fake);
  fake_await_room(&fake, 0);
  fake_await_request(&fake);
  fake_grant(&fake, 512 * MIB);
  fake_await_active(&fake);
  await_still();
  fake_share(&fake, GS_SHARE_ALL, false);
  await_kernels(5);
  end_well();
}

TEST(the_gpu_is_given_back_while_it_rests) { check_turns(NULL); }
TEST(also_where_work_cannot_be_stopped) { check_turns(drains); }

static void check_a_loss(environment_list environment) {
  toil(environment);
  fake_share(&fake, 0, false);
  await_still();
  fake_hang_up(&fake);
  await_kernels(5);
  end_well();
}

TEST(a_lost_daemon_lets_it_on) { check_a_loss(NULL); }
TEST(a_lost_daemon_opens_the_gate) { check_a_loss(drains); }

TEST(a_resting_program_can_be_killed) {
  toil(NULL);
  fake_share(&fake, 0, false);
  await_still();
  process_kill(job);
  fake_end(&fake);
  scene_end(&scene);
}

/* ---- progress ---- */

static void serve(void) {
  scene_begin(&scene, "small");
  fake_listen(&fake, scene.socket);
  job = scene_start(&scene, NULL, "submitter", NULL);
  fake_accept(&fake, 1024 * MIB, GS_MEMORY_MANAGED);
  fake_grant(&fake, 512 * MIB); /* it submits nothing before it is told to */
  fake_await_active(&fake);
}

static void check_requests(const char *how) {
  serve();
  fake_share(&fake, GS_SHARE_ALL, true);
  fake_await_idle(&fake, 1);
  process_say(job, how);
  process_expect(job, "done", NULL, 0);
  fake_await_idle(&fake, 1 + 5); /* of ten requests: on a busy machine some are seen as one */
  process_finish(job);
  fake_end(&fake);
  scene_end(&scene);
}

TEST(each_request_is_told) { check_requests("serve"); }
TEST(of_a_program_that_polls) { check_requests("poll"); }
TEST(of_a_program_that_is_called_back) { check_requests("await"); }
TEST(of_a_program_that_copies) { check_requests("fetch"); }

TEST(nobody_asks_and_nothing_is_told) {
  serve();
  process_say(job, "serve");
  process_expect(job, "done", NULL, 0);
  fake_share(&fake, GS_SHARE_ALL, true);
  fake_await_idle(&fake, 1);
  unsigned before = fake.progresses;
  fake_share(&fake, GS_SHARE_ALL, false);
  fake_tell_room(&fake, 256 * MIB); /* answered: so that has been read as well */
  fake_await_room(&fake, 0);
  process_say(job, "serve");
  process_expect(job, "done", NULL, 0);
  fake_expect_silence(&fake, 50);
  CHECK(fake.progresses == before, "%u more", fake.progresses - before);
  process_finish(job);
  fake_end(&fake);
  scene_end(&scene);
}
