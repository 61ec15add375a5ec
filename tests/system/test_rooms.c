/*
 * test_rooms.c - what a program's memory does when a daemon, played by the test, says how much of it may be
 * on the card: it leaves and comes back, also while others run, and new orders turn it round at any time.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define PIECE (32 * MIB) /* what leaves or comes at a time */

static const char *const managed[] = {"GPUSHARE_MEMORY=managed", NULL};
static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};

static struct scene scene;
static struct fake_daemon fake;
static struct process *job;
static uint64_t all_bytes; /* its memory */

static void begin(const char *card) {
  scene_begin(&scene, card);
  fake_listen(&fake, scene.socket);
}

static void finish(void) {
  process_finish(job);
  fake_end(&fake);
  scene_end(&scene);
}

static void expect_rounds(void) {
  process_drain(job);
  process_expect(job, "round ", NULL, 0);
  process_expect(job, "round ", NULL, 0);
}

static void start(environment_list environment, const char *bytes) {
  job = scene_start(&scene, environment, "job", "--bytes", bytes, "--rounds", "0", "--progress", NULL);
  fake_accept(&fake, 1024 * MIB, GS_MEMORY_MANAGED);
}

/* It has got the lock for the first time, with room for everything, and runs. */
static void start_and_run(environment_list environment, const char *bytes) {
  start(environment, bytes);
  fake_await_request(&fake);
  fake.target_bytes = fake.used_bytes;
  fake_grant(&fake, fake.used_bytes);
  fake_await_active(&fake);
  expect_rounds();
  all_bytes = fake.used_bytes;
}

/* The lock comes back before anything leaves. */
static void drop(uint64_t room_bytes) {
  fake_drop(&fake, fake.epoch, room_bytes);
  fake_await_released(&fake);
}

static void drop_and_evict(void) {
  drop(0);
  fake_await_room(&fake, 0);
}

static void check_active(uint64_t restored_bytes) {
  struct gs_msg msg = fake_await_active(&fake);
  CHECK(msg.active.restore_bytes == restored_bytes, "%llu bytes have come back",
        (unsigned long long)msg.active.restore_bytes);
}

static uint64_t card_bytes(void) {
  struct gs_sim_card card = scene_card(&scene, 0);
  return card.resident_bytes + card.pinned_bytes;
}

#define CARD "small,capacity=1GiB"
#define SMALL "128M"
#define LARGE "576M" /* several steps of either kind of memory */

TEST(behind_turns) {
  begin(CARD);
  start_and_run(NULL, LARGE);
  CHECK(all_bytes == 576 * MIB && card_bytes() == all_bytes);
  uint64_t before_bytes = fake.evicted_bytes;
  unsigned reports = fake.reports;
  drop_and_evict();
  CHECK(fake.evicted_bytes - before_bytes == all_bytes && card_bytes() == 0);
  CHECK(fake.reports - reports >= 2, "others wait for each piece");
  fake_await_request(&fake);
  fake_tell_room(&fake, 160 * MIB); /* in */
  fake_await_room(&fake, PIECE);
  CHECK(card_bytes() == fake.resident_bytes);
  fake_tell_room(&fake, 48 * MIB); /* and out again */
  fake_await_room(&fake, PIECE);
  CHECK(card_bytes() == fake.resident_bytes);
  fake_grant(&fake, all_bytes);
  fake_await_active(&fake);
  expect_rounds();
  finish();
}

/* The room grows as others leave; the gate opens when everything is there, and not before. */
TEST(grant_with_growing_room) {
  begin(CARD);
  start_and_run(NULL, SMALL);
  drop_and_evict();
  uint64_t restored_bytes = fake.restored_bytes;
  fake_await_request(&fake);
  fake_grant(&fake, 64 * MIB);
  fake_await_room(&fake, 0);
  fake_tell_room(&fake, 96 * MIB);
  fake_await_room(&fake, 0);
  fake_expect_only(&fake, GS_RESIDENT, 150);
  fake_tell_room(&fake, all_bytes);
  struct gs_msg active = fake_await_active(&fake);
  CHECK(active.active.restore_bytes == all_bytes && fake.restored_bytes - restored_bytes == all_bytes);
  CHECK(active.active.restore_ns > 100 * NS_PER_MS, "it has waited for its room for longer");
  expect_rounds();
  finish();
}

TEST(drop_while_it_comes_back) {
  begin(CARD);
  start_and_run(NULL, SMALL);
  drop_and_evict();
  fake_await_request(&fake);
  fake_grant(&fake, 96 * MIB);
  fake_await_room(&fake, 0);
  drop_and_evict(); /* no LOCK_ACTIVE */
  fake_await_request(&fake);
  fake_drop(&fake, 1, 64 * MIB); /* of a grant of the past: but its room counts */
  fake_await_room(&fake, 0);
  fake_grant(&fake, all_bytes);
  check_active(all_bytes - 64 * MIB);
  expect_rounds();
  finish();
}

#define SLOW CARD ",prefetch_in_gbps=2,prefetch_out_gbps=2,copy_in_pinned_gbps=2,copy_out_pinned_gbps=2"

/* Orders that come in the middle of moves, again and again; contents survive. */
TEST(turned_round) {
  uint64_t seed = test_seed();
  begin(SLOW);
  start_and_run(NULL, LARGE);
  drop(0);
  for (int i = 0; i < 6; i++) {
    do
      fake_expect(&fake, GS_RESIDENT);
    while (!(random_next(&seed) % 2) && fake.resident_bytes != fake.room_bytes);
    fake_tell_room(&fake, i % 2 ? 0 : all_bytes);
  }
  fake_await_request(&fake);
  fake_tell_room(&fake, all_bytes);
  fake_grant(&fake, all_bytes);
  fake_await_active(&fake);
  expect_rounds();
  finish();
}

/* Others may have what it gives up only when it says that it knows. */
TEST(lowered_rooms_are_acknowledged) {
  begin(CARD);
  start_and_run(NULL, "8M");
  fake_tell_room(&fake, 64 * MIB);
  fake_tell_room(&fake, 32 * MIB); /* while it runs */
  struct gs_msg msg = fake_expect(&fake, GS_RESIDENT);
  CHECK(msg.resident.room_seq == fake.room_seq && msg.resident.resident_bytes == 8 * MIB);
  fake_tell_room(&fake, 48 * MIB); /* nobody waits to hear that */
  fake_expect_silence(&fake, 50);
  drop(16 * MIB); /* with nothing to move */
  msg = fake_expect(&fake, GS_RESIDENT);
  CHECK(msg.resident.room_seq == fake.room_seq && msg.resident.resident_bytes == 8 * MIB);
  fake_tell_room(&fake, 12 * MIB); /* while others run */
  CHECK(fake_expect(&fake, GS_RESIDENT).resident.room_seq == fake.room_seq);
  fake_await_request(&fake);
  fake_grant(&fake, 10 * MIB); /* with the lock: before LOCK_ACTIVE */
  CHECK(fake_expect(&fake, GS_RESIDENT).resident.room_seq == fake.room_seq);
  fake_expect(&fake, GS_LOCK_ACTIVE);
  finish();
}

/* ---- no daemon any more ---- */

/* It has gone on alone, with all its memory, and says so to the next one. */
static void check_goes_on_alone(void) {
  expect_rounds();
  struct gs_msg attach = fake_accept(&fake, 1024 * MIB, GS_MEMORY_MANAGED);
  CHECK(attach.attach.flags & GS_ATTACH_RUNNING);
  CHECK(attach.attach.used_bytes == all_bytes && attach.attach.resident_bytes == all_bytes, "%llu, %llu",
        (unsigned long long)attach.attach.used_bytes, (unsigned long long)attach.attach.resident_bytes);
  drop_and_evict(); /* epoch 0 */
  fake_await_request(&fake);
  fake_grant(&fake, all_bytes);
  fake_await_active(&fake);
  expect_rounds();
}

TEST(daemon_lost_while_it_leaves) {
  begin(SLOW);
  start_and_run(NULL, LARGE);
  drop(0);
  fake_expect(&fake, GS_RESIDENT);
  CHECK(fake.resident_bytes > 0);
  fake_hang_up(&fake);
  check_goes_on_alone();
  finish();
}

TEST(daemon_lost_while_it_comes_back) {
  begin(SLOW);
  start_and_run(NULL, SMALL);
  drop_and_evict();
  fake_await_request(&fake);
  fake_grant(&fake, all_bytes);
  fake_hang_up(&fake);
  check_goes_on_alone();
  finish();
}

TEST(daemon_lost_while_it_waits_for_room) {
  begin(CARD);
  start_and_run(NULL, SMALL);
  drop_and_evict();
  fake_await_request(&fake);
  fake_grant(&fake, 96 * MIB);
  fake_await_room(&fake, 0);
  fake_hang_up(&fake);
  check_goes_on_alone();
  finish();
}

/* Where a daemon is required, nothing runs and nothing moves without one. */
TEST(daemon_lost_and_required) {
  static const char *const required[] = {"GPUSHARE_REQUIRED=1", NULL};
  struct pollfd says;
  begin(CARD);
  start_and_run(required, SMALL);
  drop_and_evict();
  fake_hang_up(&fake);
  process_drain(job);
  says = (struct pollfd){.fd = job->out, .events = POLLIN};
  CHECK(poll(&says, 1, 300) == 0, "it goes on");
  struct gs_msg attach = fake_accept(&fake, 1024 * MIB, GS_MEMORY_MANAGED);
  CHECK(!(attach.attach.flags & GS_ATTACH_RUNNING) && attach.attach.resident_bytes == 0);
  fake_await_request(&fake);
  fake_grant(&fake, all_bytes);
  fake_await_active(&fake);
  expect_rounds();
  finish();
}

/* ---- how memory is kept ---- */

static void check_flags(const char *memory, uint32_t flags) {
  const char *const environment[] = {memory, NULL};
  begin(CARD);
  job = scene_start(&scene, environment, "job", "--bytes", "8M", "--rounds", "1", NULL);
  struct gs_msg attach = fake_accept(&fake, 1024 * MIB, GS_MEMORY_SWAP);
  CHECK(attach.attach.flags == flags, "%s: flags %x", memory, attach.attach.flags);
  fake_await_request(&fake);
  fake.target_bytes = fake.used_bytes;
  fake_grant(&fake, 64 * MIB);
  fake_await_active(&fake);
  finish();
}

TEST(chosen_managed) { check_flags("GPUSHARE_MEMORY=managed", GS_ATTACH_MANAGED); }
TEST(chosen_swap) { check_flags("GPUSHARE_MEMORY=swap", 0); }
TEST(chosen_off) { check_flags("GPUSHARE_MEMORY=off", 0); }
TEST(not_chosen) { check_flags("GPUSHARE_MEMORY=", GS_ATTACH_DEFAULT); }

/* It does as the daemon says: unified memory is discarded once it is copied. */
TEST(as_the_daemon_says) {
  static const char *const unset[] = {"GPUSHARE_MEMORY=", NULL};
  for (enum gs_memory memory = GS_MEMORY_MANAGED; memory <= GS_MEMORY_SWAP; memory++) {
    begin(CARD);
    job = scene_start(&scene, unset, "job", "--bytes", "64M", "--rounds", "0", "--progress", NULL);
    fake_accept(&fake, 1024 * MIB, memory);
    fake_await_request(&fake);
    fake.target_bytes = fake.used_bytes;
    fake_grant(&fake, fake.used_bytes);
    fake_await_active(&fake);
    drop_and_evict();
    uint64_t discarded_bytes = scene_card(&scene, 0).counters[GS_SIM_discarded_bytes];
    CHECK(memory == GS_MEMORY_SWAP ? discarded_bytes == 0 : discarded_bytes >= 64 * MIB,
          "%llu bytes discarded", (unsigned long long)discarded_bytes);
    fake_await_request(&fake);
    fake_grant(&fake, fake.used_bytes);
    fake_await_active(&fake);
    finish();
  }
}

/* Page faults fetch the rest. */
TEST(managed_runs_at_its_target) {
  begin(CARD);
  start_and_run(managed, SMALL);
  drop_and_evict();
  fake_await_request(&fake);
  fake.target_bytes = 96 * MIB;
  fake_grant(&fake, 96 * MIB);
  check_active(96 * MIB);
  expect_rounds();
  finish();
}

static void start_grower(environment_list environment, const char *card) {
  begin(card);
  job = scene_start(&scene, environment, "grower", "33554432", NULL);
  fake_accept(&fake, 1024 * MIB, GS_MEMORY_MANAGED);
  process_say(job, "first");
  fake_await_request(&fake);
  fake.target_bytes = fake.used_bytes;
  fake_grant(&fake, 32 * MIB);
  fake_await_active(&fake);
  process_expect(job, "grown", NULL, 0);
}

/* What has been freed in stream order leaves, too, where the driver frees none of our memory so. */
static void leave_after_a_free(environment_list environment) {
  start_grower(environment, CARD ",driver_version=12020");
  fake_tell_room(&fake, 96 * MIB);
  process_say(job, "pass");
  fake_await_used(&fake, 64 * MIB);
  process_expect(job, "passed", NULL, 0);
  drop_and_evict();
  CHECK(card_bytes() == 0, "%llu bytes stay", (unsigned long long)card_bytes());
  process_say(job, "more");
  fake_await_request(&fake);
  fake.target_bytes = fake.used_bytes;
  fake_grant(&fake, 96 * MIB);
  fake_await_active(&fake);
  process_expect(job, "grown", NULL, 0);
  finish();
}

TEST(freed_in_stream_order_managed) { leave_after_a_free(managed); }
TEST(freed_in_stream_order_swap) { leave_after_a_free(swap); }

/* What is made while others run comes with the next grant, before the gate opens. */
TEST(made_meanwhile) {
  start_grower(managed, CARD);
  drop(96 * MIB);
  process_say(job, "second");
  fake_await_request(&fake);
  fake.target_bytes = fake.used_bytes;
  fake_grant(&fake, 96 * MIB);
  check_active(32 * MIB);
  process_expect(job, "grown", NULL, 0);
  finish();
}

/* ---- swap memory: there must be room for each allocation ---- */

/* Once the memory is granted: it waits for its room. */
static void check_waits(void) {
  struct pollfd says = {.fd = job->out, .events = POLLIN};
  fake_await_used(&fake, 64 * MIB);
  fake_expect_silence(&fake, 200);
  CHECK(poll(&says, 1, 0) == 0, "it has not waited for its room");
}

TEST(allocation_waits_for_room) {
  start_grower(swap, CARD);
  process_say(job, "second");
  check_waits();
  fake_tell_room(&fake, 63 * MIB);
  check_waits();
  fake_tell_room(&fake, 64 * MIB);
  process_expect(job, "grown", NULL, 0);
  finish();
}

/* While it waits, it holds nobody up; it gets its memory with the next grant. */
TEST(drop_while_allocation_waits) {
  start_grower(swap, CARD);
  process_say(job, "second");
  check_waits();
  drop_and_evict();
  fake_await_request(&fake);
  fake.target_bytes = fake.used_bytes;
  fake_grant(&fake, 64 * MIB);
  fake_await_active(&fake);
  process_expect(job, "grown", NULL, 0);
  finish();
}

/* The drain waits for the very thread that waits for room. */
TEST(drop_that_waits_for_an_allocation) {
  begin(CARD);
  job = scene_start(&scene, swap, "waiter", "allocated", NULL);
  fake_accept(&fake, 1024 * MIB, GS_MEMORY_MANAGED);
  fake_await_request(&fake);
  fake.target_bytes = fake.used_bytes;
  fake_grant(&fake, fake.used_bytes);
  fake_await_active(&fake);
  process_expect(job, "busy", NULL, 0);
  uint64_t used_bytes = fake.used_bytes;
  process_say(job, "go");
  fake_await_used(&fake, used_bytes + 1);
  drop_and_evict();
  fake_await_request(&fake);
  fake_grant(&fake, fake.used_bytes);
  finish();
}

TEST(waiting_for_room_is_not_idle) {
  start_grower(swap, CARD);
  process_say(job, "second");
  check_waits();
  fake_want(&fake);
  fake_expect_silence(&fake, 300);
  fake_tell_room(&fake, 64 * MIB);
  CHECK(fake_expect(&fake, GS_LOCK_RELEASED).epoch == fake.epoch);
  process_close_input(job); /* the rest needs the GPU, if only to check */
  fake_await_request(&fake);
  fake_grant(&fake, 64 * MIB);
  finish();
}

TEST(daemon_lost_while_allocation_waits) {
  start_grower(swap, CARD);
  process_say(job, "second");
  check_waits();
  fake_hang_up(&fake);
  process_expect(job, "grown", NULL, 0);
  finish();
}

/* ---- the card has less than it says ---- */

static struct process *other;

/* The job's memory, 64 MiB, has left; another program has taken so much of the card that it can't come back.
 * One MEM_SHORT tells so. */
static void begin_short(void) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  begin("small,capacity=96MiB");
  start_and_run(swap, "64M");
  drop_and_evict();
  other = scene_start(&scene, plain, "job", "--bytes", "48M", "--rounds", "0", NULL);
  process_expect(other, "filled", NULL, 0);
  fake_await_request(&fake);
  fake_grant(&fake, 64 * MIB);
  CHECK(fake_expect(&fake, GS_RESIDENT).resident.resident_bytes == PIECE);
  CHECK(fake_expect(&fake, GS_MEM_SHORT).mem_short.short_bytes == PIECE);
  fake_expect_silence(&fake, 300); /* it tries again, and does not say the same again */
}

TEST(short_card) {
  begin_short();
  fake_tell_room(&fake, 32 * MIB);
  fake_await_room(&fake, 0);
  process_finish(other);
  fake_tell_room(&fake, 64 * MIB);
  fake_await_active(&fake);
  expect_rounds();
  finish();
}

TEST(short_card_without_daemon) {
  begin_short();
  fake_end(&fake);
  process_drain(job);
  process_finish(other);
  expect_rounds();
  finish();
}
