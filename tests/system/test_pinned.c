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

TEST(its_kinds_are_told) {
  static const struct {
    const char *line;
    enum gs_pinned kind;
  } made[] = {{"array 2097152", GS_PINNED_ARRAYS},
              {"create 2097152", GS_PINNED_OTHER},
              {"share 2097152", GS_PINNED_SHARED},
              {"pool 2097152", GS_PINNED_POOLS}};
  begin(64 * MIB);
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
    process_say(pinner, made[i].line);
    expect_done();
    fake_await_pinned(&fake, (i + 1) * 2 * MIB);
    fake_await_kind(&fake, made[i].kind, 2 * MIB);
  }
  process_say(pinner, "graph 134217728"); /* it waits for its room */
  fake_await_pinned(&fake, 136 * MIB);
  fake_await_kind(&fake, GS_PINNED_GRAPHS, 128 * MIB);
  fake_tell_room(&fake, OWN_BYTES + 136 * MIB);
  expect_done();
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

/* Two jobs that take turns, and a program that asks for a quarter of the card again and again: it waits, as
 * each of them can run beside that, and is never refused. */
static void check_beside(const char *kind, const char *own_memory, const char *others_memory,
                         uint64_t others_bytes) {
  char memory[64], tries[16], refused[32];
  const char *const others[] = {others_memory, NULL}, *const own[] = {own_memory, NULL};
  const char *wanted = getenv("GS_TEST_TRIES");
  snprintf(tries, sizeof tries, "%d", wanted ? atoi(wanted) : TRIES);
  snprintf(memory, sizeof memory, "%llu", (unsigned long long)others_bytes);
  scene_begin(&scene, "small,capacity=64MiB");
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

static void check_never_refused(const char *kind, const char *own_memory, const char *others_memory) {
  check_beside(kind, own_memory, others_memory, 48 * MIB);
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
  check_beside("tiles", "GPUSHARE_MEMORY=managed", "GPUSHARE_MEMORY=managed", 56 * MIB);
}

TEST(pools_that_keep_their_memory_are_never_refused) {
  check_never_refused("keep", "GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY=swap");
}

TEST(graphs_that_allocate_are_never_refused) {
  check_never_refused("graph", "GPUSHARE_MEMORY=swap", "GPUSHARE_MEMORY=swap");
}

/* ---- beside programs that could not run any more ---- */

static const char *const swap_memory[] = {"GPUSHARE_MEMORY=swap", NULL};

static struct process *start_toiling(environment_list environment, const char *bytes) {
  struct process *toiler = scene_start(&scene, environment, "toiler", bytes, "200us", NULL);
  process_expect(toiler, "toiling", NULL, 0);
  return toiler;
}

static struct process *start_pinning(environment_list environment) {
  struct process *asks = scene_start(&scene, environment, "pinner", "1048576", NULL);
  process_expect(asks, "ready", NULL, 0);
  return asks;
}

static bool has(struct process *asks, uint64_t bytes) {
  char line[64];
  snprintf(line, sizeof line, "try %llu", (unsigned long long)bytes);
  process_say(asks, line);
  process_expect(asks, "", line, sizeof line);
  return strcmp(line, "had") == 0;
}

static uint64_t free_bytes(struct process *asks) {
  char line[64];
  process_say(asks, "free 0");
  process_expect(asks, "free ", line, sizeof line);
  return strtoull(line + strlen("free "), NULL, 10);
}

/* 48 of 64 MiB stay theirs, whatever a third program asks for, and whenever. */
TEST(what_would_freeze_others_is_refused) {
  scene_begin(&scene, "small,capacity=64MiB");
  scene_start_daemon(&scene, "--tq", "10ms", NULL);
  struct process *first = start_toiling(swap_memory, "48M"), *second = start_toiling(swap_memory, "48M");
  struct process *asks = start_pinning(swap_memory);
  CHECK(!has(asks, 18 * MIB) && has(asks, 8 * MIB) && !has(asks, 10 * MIB));
  process_await_log(asks, "a job that has memory there could not run beside it");
  CHECK(has(asks, 6 * MIB));
  await_turns(first, second);
  process_finish(asks);
  process_finish(first);
  process_finish(second);
  scene_end(&scene);
}

/* Once most of what a program has is of this kind. */
TEST(what_is_free_can_be_had) {
  scene_begin(&scene, "small,capacity=256MiB");
  scene_start_daemon(&scene, "--tq", "10ms", NULL);
  struct process *toiler = start_toiling(swap_memory, "160M"), *asks = start_pinning(swap_memory);
  uint64_t ordinary_bytes = free_bytes(asks);
  CHECK(ordinary_bytes > 250 * MIB && ordinary_bytes < 256 * MIB, "%llu", (unsigned long long)ordinary_bytes);
  CHECK(has(asks, 32 * MIB));
  CHECK(free_bytes(asks) == 64 * MIB, "%llu", (unsigned long long)free_bytes(asks));
  CHECK(!has(asks, 66 * MIB) && has(asks, 64 * MIB));
  CHECK(free_bytes(asks) == 0);
  struct process *late = start_pinning(swap_memory);
  ordinary_bytes = free_bytes(late);
  CHECK(ordinary_bytes > 150 * MIB && ordinary_bytes < 160 * MIB, "%llu", (unsigned long long)ordinary_bytes);
  process_finish(late);
  process_finish(asks);
  process_finish(toiler);
  scene_end(&scene);
}

static bool is_too_big(const struct scene_status *status, const void *process) {
  const struct gs_msg *wait = scene_wait_of(status, ((const struct process *)process)->pid);
  return wait && wait->wait_status.reason == GS_REASON_TOO_BIG;
}

/* Each of the two is told. */
TEST(a_production_job_may_freeze_an_opportunistic_one) {
  static const char *const opportunistic[] = {"GPUSHARE_MEMORY=swap", "GPUSHARE_CLASS=opportunistic", NULL},
                           *const production[] = {"GPUSHARE_MEMORY=swap", "GPUSHARE_CLASS=production", NULL};
  char text[4096], expected[64], number[16];
  struct scene_status status;
  scene_begin(&scene, "small,capacity=256MiB");
  scene_start_daemon(&scene, "--tq", "10ms", NULL);
  struct process *toiler = start_toiling(opportunistic, "160M"), *other = start_pinning(opportunistic);
  CHECK(!has(other, 128 * MIB));
  struct process *asks = start_pinning(production);
  CHECK(has(asks, 128 * MIB));
  scene_await(&scene, is_too_big, toiler, "it can't run");
  process_await_log(asks, "another job can't run beside the 134217728 bytes of this program that can't leave "
                          "the card: 128.0 MiB of other memory (it stays until it is freed)");
  CHECK(scene_ask_status(&scene, &status) == 0);
  CHECK(scene_wait_of(&status, asks->pid)->wait_status.pinned_bytes == 128 * MIB);
  snprintf(number, sizeof number, "%u", scene_job_of(&status, toiler->pid)->job_status.job);
  snprintf(expected, sizeof expected, "pinned by job %u (pid %d, pinner): 128.0 MiB",
           scene_job_of(&status, asks->pid)->job_status.job, asks->pid);
  CHECK(scene_ctl(&scene, text, sizeof text, "why", number, NULL) == 0);
  CHECK(strstr(text, expected), "%s", text);
  CHECK(strstr(text, "Of that: 128.0 MiB of other memory (it stays until it is freed)."), "%s", text);
  process_finish(asks);
  process_finish(other);
  process_finish(toiler);
  scene_end(&scene);
}

static bool keeps_16_mib(const struct scene_status *status, const void *process) {
  const struct gs_msg *job = scene_job_of(status, ((const struct process *)process)->pid);
  return job && job->job_status.used_bytes >= 16 * MIB;
}

TEST(what_graphs_keep_is_counted) {
  scene_begin(&scene, "small,capacity=64MiB");
  scene_start_daemon(&scene, NULL);
  struct process *graph = scene_start(&scene, swap_memory, "pinned", "graph", "32M", "1", NULL);
  process_expect(graph, "refused 0", NULL, 0);
  scene_await(&scene, keeps_16_mib, graph, "what it keeps is counted");
  process_finish(graph);
  scene_end(&scene);
}

/* Natively that is nothing to the kernels. */
static void export_beside_kernels(environment_list environment, const char *how) {
  scene_begin(&scene, "small,capacity=256MiB");
  scene_start_daemon(&scene, NULL);
  struct process *exporter = scene_start(&scene, environment, "exporter", how, NULL);
  process_finish(exporter);
  scene_end(&scene);
}

static const char *const managed[] = {"GPUSHARE_MEMORY=managed", NULL};

TEST(memory_is_exported_while_kernels_use_it) { export_beside_kernels(swap_memory, NULL); }
TEST(memory_is_exported_beside_unified_memory) { export_beside_kernels(managed, NULL); }
TEST(memory_of_one_piece_is_exported_while_a_kernel_runs) { export_beside_kernels(swap_memory, "running"); }
