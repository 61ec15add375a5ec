/*
 * test_stops.c - how a member of a gang stops together with the others: the daemon is played by the test, and
 * with it the rest of the gang.
 */
#include <stdio.h>

#include "common/clock.h"
#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define LONG_NS (100 * NS_PER_S)

static struct scene scene;
static struct fake_daemon fake;
static struct process *job;

static void begin(const char *card) {
  scene_begin(&scene, card);
  fake_listen(&fake, scene.socket);
}

static void grant(uint64_t room_bytes) {
  fake_await_request(&fake);
  fake_grant(&fake, room_bytes);
}

static void expect_released(void) { CHECK(fake_expect(&fake, GS_LOCK_RELEASED).epoch == fake.epoch); }

static uint64_t kernels(void) { return scene_process(&scene, job, 0).counters[GS_SIM_kernels]; }

/* It has done all that it was told. What it says before that is passed over. Returns how many calls it has
 * submitted. */
static uint64_t await_drained(uint32_t round) {
  struct gs_msg msg;
  do
    msg = fake_expect(&fake, GS_STOPPED);
  while (!msg.stopped.drained || msg.stopped.round < round);
  CHECK(msg.stopped.round == round && msg.epoch == fake.epoch, "round %u", msg.stopped.round);
  return msg.stopped.calls;
}

static void finish(void) {
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  fake_end(&fake);
  scene_end(&scene);
}

/* A machine that stalls makes the GPU idle: it is given back, and granted anew. */
static bool comes_back_idle(void) {
  if (!fake_hears(&fake, GS_LOCK_RELEASED, 500))
    return false;
  grant(fake.used_bytes);
  fake_await_active(&fake);
  return true;
}

/* More than the program has made by then, some 170. But so many only: with two steps queued at all times its
 * GPU is not idle before it stands at the gate, unless a look falls between them. */
#define CALLS_IN_ALL 500

/* The stop waits for an iteration's end, for some milliseconds. */
TEST(calls_to_let_pass_are_told_before_the_stop_begins) {
  begin("small,capacity=64MiB");
  job = scene_start(&scene, NULL, "rusher", "copies", "5", "4ms", NULL);
  fake_accept(&fake, 64 * MIB, GS_MEMORY_MANAGED);
  fake.slack_bytes = MIB;
  fake.quantum_ns = LONG_NS;
  grant(fake.used_bytes);
  fake_await_active(&fake);
  process_expect(job, "rushing", NULL, 0);
  do
    fake_want(&fake); /* it learns what its iterations are like */
  while (comes_back_idle());
  fake_drop_together(&fake, fake.used_bytes);
  fake_let_pass(&fake, CALLS_IN_ALL, 1);
  await_drained(1);
  fake_drop(&fake, fake.epoch, fake.used_bytes);
  expect_released();
  grant(fake.used_bytes);
  process_say(job, "stop");
  finish();
}

/* ---- its memory is not there ---- */

static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};

static void expect_rounds(void) {
  process_drain(job);
  process_expect(job, "round ", NULL, 0);
  process_expect(job, "round ", NULL, 0);
}

/* It has had a turn, and all its memory has left. */
static void begin_and_leave(const char *bytes, unsigned card_mib) {
  char card[64];
  snprintf(card, sizeof card, "small,capacity=%uMiB", card_mib);
  begin(card);
  job = scene_start(&scene, swap, "job", "--bytes", bytes, "--rounds", "0", "--progress", NULL);
  fake_accept(&fake, card_mib * MIB, GS_MEMORY_MANAGED);
  fake_await_request(&fake);
  fake.target_bytes = fake.used_bytes;
  grant(fake.used_bytes);
  fake_await_active(&fake);
  expect_rounds();
  fake_drop(&fake, fake.epoch, 0);
  expect_released();
  fake_await_room(&fake, 0);
}

/* And it runs on. */
static void end_stop(void) {
  fake_drop(&fake, fake.epoch, fake.room_bytes);
  expect_released();
  fake.target_bytes = fake.used_bytes;
  grant(fake.used_bytes);
  expect_rounds();
  process_close_input(job);
  finish();
}

TEST(nothing_passes_before_the_memory_is_there) {
  begin_and_leave("128M", 192);
  fake.target_bytes = 64 * MIB; /* the daemon does not know yet of the rest */
  grant(64 * MIB);
  fake_await_room(&fake, 0);
  fake_drop_together(&fake, 64 * MIB);
  uint64_t calls = await_drained(0);
  fake_expect_only(&fake, GS_RESIDENT, 200); /* nothing moves any more */
  uint64_t before = kernels();
  fake_let_pass(&fake, calls + 10, 1);
  await_drained(1);
  CHECK(kernels() == before);
  end_stop();
}

/* Another program has so much of the card that half of the memory can't come back. */
TEST(who_stops_tries_again_to_bring_its_memory_back) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  begin_and_leave("64M", 96);
  struct process *other = scene_start(&scene, plain, "job", "--bytes", "48M", "--rounds", "0", NULL);
  process_expect(other, "filled", NULL, 0);
  grant(64 * MIB);
  fake_expect(&fake, GS_RESIDENT);
  fake_expect(&fake, GS_MEM_SHORT);
  fake_drop_together(&fake, 64 * MIB);
  uint64_t calls = await_drained(0);
  fake_expect(&fake, GS_MEM_SHORT); /* also of the room that the order tells */
  process_finish(other);
  fake_await_room(&fake, 0);
  uint64_t before = kernels();
  fake_let_pass(&fake, calls + 3, 1);
  uint64_t passed = await_drained(1) - calls;
  CHECK(passed >= 1 && passed <= 3, "%llu calls", (unsigned long long)passed);
  CHECK(kernels() > before);
  end_stop();
}
