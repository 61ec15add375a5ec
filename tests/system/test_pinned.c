/*
 * test_pinned.c - memory that can't leave the card: the daemon, played by the test, knows it to the byte, and
 * nobody asks the driver for it before there is room.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define KIB (UINT64_C(1) << 10)
#define OWN_BYTES (32 * MIB) /* what the program has that can leave */

#define TRIES 12 /* of each kind; GS_TEST_TRIES says otherwise */

static struct scene scene;
static struct fake_daemon fake;
static struct process *pinner;

static void run_again(uint64_t room_bytes) {
  fake_await_request(&fake);
  fake.target_bytes = OWN_BYTES;
  fake_grant(&fake, room_bytes);
  fake_await_active(&fake);
}

static void begin(uint64_t slack_bytes) {
  static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};
  scene_begin(&scene, "small,capacity=1GiB");
  fake_listen(&fake, scene.socket);
  fake.slack_bytes = slack_bytes;
  pinner = scene_start(&scene, swap, "pinner", "33554432", NULL);
  fake_accept(&fake, 512 * MIB, GS_MEMORY_SWAP);
  run_again(OWN_BYTES + slack_bytes);
  process_expect(pinner, "ready", NULL, 0);
}

static void finish(void) {
  process_finish(pinner);
  fake_end(&fake);
  scene_end(&scene);
}

static void expect_done(void) { process_expect(pinner, "done", NULL, 0); }

static void check_waits(void) {
  struct pollfd says = {.fd = pinner->out, .events = POLLIN};
  CHECK(poll(&says, 1, 200) == 0, "it has not waited for its room");
}

static void drop_and_evict(uint64_t pinned_bytes) {
  fake_drop(&fake, fake.epoch, 0);
  fake_expect(&fake, GS_LOCK_RELEASED);
  do
    fake_expect(&fake, GS_RESIDENT);
  while (fake.resident_bytes > pinned_bytes);
}

/* Also what is less than the program may take without asking. */
TEST(little_is_told_at_once) {
  begin(64 * MIB);
  process_say(pinner, "array 65536");
  expect_done();
  fake_await_pinned(&fake, 64 * KIB);
  process_say(pinner, "create 2097152");
  expect_done();
  fake_await_pinned(&fake, 2 * MIB + 64 * KIB);
  finish();
}

TEST(it_is_told_to_the_next_daemon) {
  begin(64 * MIB);
  process_say(pinner, "create 2097152");
  expect_done();
  fake_await_pinned(&fake, 2 * MIB);
  fake_hang_up(&fake);
  struct gs_msg attach = fake_accept(&fake, 512 * MIB, GS_MEMORY_SWAP);
  CHECK(attach.attach.used_bytes == OWN_BYTES + 2 * MIB);
  fake_await_pinned(&fake, 2 * MIB);
  finish();
}

TEST(it_waits_for_room) {
  begin(0);
  process_say(pinner, "create 67108864");
  fake_await_pinned(&fake, 64 * MIB);
  check_waits();
  fake_tell_room(&fake, OWN_BYTES + 64 * MIB - 1);
  check_waits();
  fake_tell_room(&fake, OWN_BYTES + 64 * MIB);
  expect_done();
  finish();
}

/* A turn that does not get its room ends: the next one may. Nobody is held up meanwhile. */
TEST(it_waits_for_the_next_turn) {
  begin(0);
  process_say(pinner, "create 67108864");
  fake_await_pinned(&fake, 64 * MIB);
  check_waits();
  drop_and_evict(64 * MIB);
  for (int i = 0; i < 2; i++) {
    fake_await_request(&fake);
    fake_grant(&fake, OWN_BYTES);
    check_waits();
    drop_and_evict(64 * MIB);
    check_waits();
  }
  run_again(OWN_BYTES + 64 * MIB);
  expect_done();
  finish();
}

/* It is another's turn. */
TEST(it_waits_for_a_turn) {
  begin(0);
  drop_and_evict(0);
  process_say(pinner, "array 1048576");
  fake_await_pinned(&fake, MIB);
  check_waits();
  run_again(OWN_BYTES + MIB);
  expect_done();
  finish();
}

TEST(without_a_daemon_it_waits_no_longer) {
  begin(0);
  process_say(pinner, "create 67108864");
  fake_await_pinned(&fake, 64 * MIB);
  check_waits();
  fake_hang_up(&fake);
  expect_done();
  finish();
}

/* Somebody whom the daemon does not know has the card: the daemon is told what is lacking, and more leaves.
 */
TEST(what_the_driver_refuses_is_waited_for) {
  static const char *const native[] = {"LD_PRELOAD=", NULL}, *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};
  scene_begin(&scene, "small,capacity=128MiB");
  struct process *stranger = scene_start(&scene, native, "pinner", "67108864", NULL);
  process_expect(stranger, "ready", NULL, 0);
  fake_listen(&fake, scene.socket);
  pinner = scene_start(&scene, swap, "pinner", "33554432", NULL);
  fake_accept(&fake, 128 * MIB, GS_MEMORY_SWAP);
  run_again(OWN_BYTES + 64 * MIB);
  process_expect(pinner, "ready", NULL, 0);
  process_say(pinner, "create 67108864");
  struct gs_msg lacks = fake_expect(&fake, GS_MEM_SHORT);
  CHECK(lacks.mem_short.short_bytes == 32 * MIB);
  fake_tell_room(&fake, OWN_BYTES + 32 * MIB);
  check_waits();
  process_finish(stranger);
  fake_tell_room(&fake, OWN_BYTES + 64 * MIB);
  expect_done();
  finish();
}

/* ---- beside programs that have all of the card ---- */

struct turns {
  const struct process *first, *second;
  uint64_t first_turns, second_turns;
};

static uint64_t turns_of(const struct scene_status *status, const struct process *process) {
  const struct gs_msg *job = scene_job_of(status, process->pid);
  return job ? job->job_status.turns : 0;
}

static bool have_had_turns(const struct scene_status *status, const void *argument) {
  const struct turns *turns = argument;
  return turns_of(status, turns->first) > turns->first_turns + 2 &&
         turns_of(status, turns->second) > turns->second_turns + 2;
}

/* Nothing keeps them from going on. */
static void await_turns(const struct process *first, const struct process *second) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  struct turns turns = {first, second, turns_of(&status, first), turns_of(&status, second)};
  scene_await(&scene, have_had_turns, &turns, "the others go on");
}

/* Two jobs, each of nearly the whole card, and a program that asks for a quarter of it again and again: it
 * waits, and is never refused. */
static void check_never_refused(const char *kind, const char *own_memory, const char *others_memory) {
  char memory[64], tries[16], refused[32];
  const char *const others[] = {others_memory, NULL}, *const own[] = {own_memory, NULL};
  const char *wanted = getenv("GS_TEST_TRIES");
  snprintf(tries, sizeof tries, "%d", wanted ? atoi(wanted) : TRIES);
  snprintf(memory, sizeof memory, "%llu", (unsigned long long)(28 * MIB));
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--tq", "10ms", NULL);
  struct process *first = scene_start(&scene, others, "toiler", memory, "200us", NULL);
  struct process *second = scene_start(&scene, others, "toiler", memory, "200us", NULL);
  process_expect(first, "toiling", NULL, 0);
  process_expect(second, "toiling", NULL, 0);
  struct process *asks = scene_start(&scene, own, "pinned", kind, "16M", tries, NULL);
  for (int i = 0; i < atoi(tries); i++)
    process_expect(asks, "try", NULL, 0);
  process_expect(asks, "refused", refused, sizeof refused);
  CHECK(strcmp(refused, "refused 0") == 0, "%s of %s", refused, tries);
  await_turns(first, second);
  process_finish(asks);
  process_finish(first);
  process_finish(second);
  scene_end(&scene);
}

TEST(physical_memory_is_never_refused) {
  check_never_refused("create", "GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY=swap");
}

TEST(physical_memory_that_stays_is_never_refused) {
  check_never_refused("tiles", "GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY=swap");
}

TEST(arrays_are_never_refused) {
  check_never_refused("array", "GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY=swap");
}

TEST(plain_memory_is_never_refused) {
  check_never_refused("alloc", "GPUSHARE_MEMORY=off", "GPUSHARE_MEMORY=swap");
}

TEST(pitched_memory_is_never_refused) {
  check_never_refused("pitch", "GPUSHARE_MEMORY=off", "GPUSHARE_MEMORY=swap");
}

TEST(pools_are_never_refused) { check_never_refused("pool", "GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY=swap"); }

TEST(stream_order_is_never_refused) {
  check_never_refused("stream", "GPUSHARE_MEMORY=off", "GPUSHARE_MEMORY=swap");
}

TEST(beside_unified_memory_it_is_never_refused) {
  check_never_refused("tiles", "GPUSHARE_MEMORY=managed", "GPUSHARE_MEMORY=managed");
}

TEST(pools_that_keep_their_memory_are_never_refused) {
  check_never_refused("keep", "GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY=swap");
}

TEST(graphs_that_allocate_are_never_refused) {
  check_never_refused("graph", "GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY=swap");
}
