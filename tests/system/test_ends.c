/*
 * test_ends.c - contexts end while a program's memory is away or moves: what must survive does, and moves go
 * on as before.
 */
#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)
#define BYTES "134217728"
#define CARD "small,capacity=1GiB,copy_in_pinned_gbps=8,copy_out_pinned_gbps=8"

static struct scene scene;
static struct fake_daemon fake;
static struct process *parter;

static void begin(const char *kind) {
  static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};
  scene_begin(&scene, CARD);
  fake_listen(&fake, scene.socket);
  parter = scene_start(&scene, swap, "parter", kind, BYTES, NULL);
  fake_accept(&fake, 1024 * MIB, GS_MEMORY_SWAP);
  fake_await_request(&fake);
  fake_grant(&fake, 512 * MIB);
  fake_await_active(&fake);
  fake_await_used(&fake, 160 * MIB);
  process_expect(parter, "ready", NULL, 0);
  fake.target_bytes = fake.used_bytes;
}

static void drop(void) {
  fake_drop(&fake, fake.epoch, 0);
  fake_expect(&fake, GS_LOCK_RELEASED);
}

static void part(void) {
  process_say(parter, "part");
  process_expect(parter, "parted", NULL, 0);
}

static void come_back_and_end(void) {
  fake_grant(&fake, 512 * MIB);
  fake_await_active(&fake);
  process_say(parter, "check");
  process_expect(parter, "ok", NULL, 0);
  process_wait_exit(parter, 0);
  CHECK(!process_log_count(parter, "moving memory failed"));
  fake_end(&fake);
  scene_end(&scene);
}

/* The streams that memory moves on were the first context's. */
static void part_while_it_leaves(const char *kind) {
  begin(kind);
  drop();
  fake_expect(&fake, GS_RESIDENT);
  part();
  fake_tell_room(&fake, 32 * MIB);
  come_back_and_end();
}

TEST(a_context_ends_while_memory_leaves) { part_while_it_leaves("created"); }
TEST(a_green_context_ends_while_memory_leaves) { part_while_it_leaves("green"); }

/* So was the registration of the host memory that holds it. */
static void part_while_away(const char *kind) {
  begin(kind);
  drop();
  fake_await_room(&fake, 0);
  part();
  fake_tell_room(&fake, 32 * MIB);
  come_back_and_end();
}

TEST(a_context_ends_while_memory_is_away) { part_while_away("created"); }
TEST(a_green_context_ends_while_memory_is_away) { part_while_away("green"); }

static uint64_t pageable_bytes(void) {
  return scene_process(&scene, parter, 0).counters[GS_SIM_copied_pageable_bytes];
}

/* Some may still be copied before it is registered anew; not all of it again and again. */
TEST(host_memory_is_registered_anew) {
  begin("created");
  drop();
  fake_await_room(&fake, 0);
  CHECK(pageable_bytes() == 0);
  part();
  uint64_t before_bytes = 0, now_bytes = 0;
  for (int i = 0; i < 20; i++) {
    fake_tell_room(&fake, i % 2 ? 0 : 128 * MIB);
    fake_await_room(&fake, 0);
    before_bytes = now_bytes;
    now_bytes = pageable_bytes();
    if (i > 2 && now_bytes == before_bytes)
      break;
  }
  CHECK(now_bytes == before_bytes, "%llu of pageable memory", (unsigned long long)now_bytes);
  come_back_and_end();
}
