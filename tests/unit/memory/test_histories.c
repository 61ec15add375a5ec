/*
 * test_histories.c - random histories of a program's calls, of moves and of refusals, on the fake driver:
 * after each of them the books are the sum of what there is, and agree with what the driver was told. A run
 * is repeated by its seed: GPUSHARE_SEED.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "../suite.h"
#include "common/clock.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "fake.h"
#include "memory/account.h"
#include "memory/memory.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define SLOTS 40
#define EVENTS 400
#define STEP_MOST_BYTES GIB /* so orders come in between, and others have room soon */

enum kind { NONE, PLAIN, OWN, PHYSICAL, ARRAY, KINDS };

static struct thing {
  enum kind kind;
  uint64_t key, bytes;
} things[SLOTS];

/* For whatever the card does not hold, on any machine. */
uint64_t __wrap_host_available_bytes(void);
uint64_t __wrap_host_available_bytes(void) { return UINT64_C(1) << 50; }

static unsigned next_random(unsigned bound) { return (unsigned)rand() % bound; }

static uint64_t sum(enum kind kind) {
  uint64_t bytes = 0;
  for (int i = 0; i < SLOTS; i++)
    bytes += things[i].kind == kind ? things[i].bytes : 0;
  return bytes;
}

static bool plain_stays; /* the device's backend is the pinned one */

static uint64_t pinned(void) { return sum(PHYSICAL) + sum(ARRAY) + (plain_stays ? sum(PLAIN) : 0); }
static uint64_t unified(void) { return sum(OWN) + (plain_stays ? 0 : sum(PLAIN)); }

/* The books are the sum of what there is; what is away there is what prefetches have moved. */
static void check_books(void) {
  struct memory_usage usage = memory_usage(0);
  ck_assert_uint_eq(usage.total_bytes, unified() + pinned());
  ck_assert_uint_eq(usage.pinned_bytes, pinned());
  ck_assert_uint_eq(usage.resident_bytes, pinned() + account_unified_bytes(0));
  ck_assert_uint_eq(account_away_bytes(0) + account_unified_bytes(0), unified());
  ck_assert_uint_eq(account_away_bytes(0), fake_away_bytes());
  unsigned live = 0;
  for (int i = 0; i < SLOTS; i++)
    live += things[i].kind == PLAIN || things[i].kind == OWN;
  ck_assert_uint_eq(fake_live(), live);
  ck_assert_uint_eq(fake.strict_calls, 0);
}

static CUresult make(struct thing *thing) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUDA_ARRAY_DESCRIPTOR shape = {
      .Width = thing->bytes / 4, .Height = 1, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUresult result;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUarray array = NULL;
  switch (thing->kind) {
  case PLAIN:
    result = hook_cuMemAlloc_v2(&address, thing->bytes);
    thing->key = address;
    return result;
  case OWN:
    result = hook_cuMemAllocManaged(&address, thing->bytes, CU_MEM_ATTACH_GLOBAL);
    thing->key = address;
    return result;
  case PHYSICAL:
    result = hook_cuMemCreate(&handle, thing->bytes, &prop, 0);
    thing->key = handle;
    return result;
  default:
    result = hook_cuArrayCreate_v2(&array, &shape);
    thing->key = (uintptr_t)array;
    return result;
  }
}

static CUresult unmake(const struct thing *thing) {
  switch (thing->kind) {
  case PLAIN:
  case OWN:
    return hook_cuMemFree_v2(thing->key);
  case PHYSICAL:
    return hook_cuMemRelease(thing->key);
  default:
    return hook_cuArrayDestroy((CUarray)(uintptr_t)thing->key);
  }
}

/* Small ones as likely as large ones; what was asked of the device may not exceed the card. */
static void get(struct thing *thing, bool refused) {
  uint64_t plain = sum(PLAIN) + sum(PHYSICAL) + sum(ARRAY);
  struct thing new = {.kind = PLAIN + next_random(KINDS - 1),
                      .bytes = 4 * (1 + ((uint64_t)rand() << 9) % (2 * GIB >> next_random(16)))};
  fake.refuse_alloc = refused ? CUDA_ERROR_ECC_UNCORRECTABLE : CUDA_SUCCESS;
  CUresult result = make(&new);
  fake.refuse_alloc = CUDA_SUCCESS;
  bool exceeds = new.kind != OWN &&plain + new.bytes > FAKE_CARD_BYTES;
  if (exceeds)
    ck_assert_int_eq(result, CUDA_ERROR_OUT_OF_MEMORY);
  else if (!refused)
    ck_assert_int_eq(result, CUDA_SUCCESS);
  else
    ck_assert_int_eq(result, CUDA_ERROR_ECC_UNCORRECTABLE);
  if (result == CUDA_SUCCESS)
    *thing = new;
}

static void drop(struct thing *thing, bool refused) {
  fake.refuse_free = refused ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  ck_assert_int_eq(unmake(thing), fake.refuse_free);
  fake.refuse_free = CUDA_SUCCESS;
  if (!refused)
    thing->kind = NONE;
}

/* All but physical memory goes with its context. */
static void end_context(void) {
  memory_context_destroyed(FAKE_CONTEXT);
  for (int i = 0; i < SLOTS; i++) {
    if (things[i].kind == PLAIN || things[i].kind == OWN)
      driver.cuMemFree_v2(things[i].key);
    if (things[i].kind != PHYSICAL)
      things[i].kind = NONE;
  }
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* One way only, by bounded steps; then no more is there than there is room for, and no more is away than must
 * be: less than a page of the room is left. */
static void move_to(uint64_t room_bytes, bool to_the_end) {
  enum memory_progress progress;
  bool out = false, in = false;
  do {
    struct memory_moved moved = {0};
    progress = memory_step(0, room_bytes, &moved);
    ck_assert_uint_le(moved.out_bytes + moved.in_bytes, STEP_MOST_BYTES);
    out |= moved.out_bytes > 0;
    in |= moved.in_bytes > 0;
    check_books();
  } while (to_the_end && progress == MEMORY_MOVED);
  ck_assert(!out || !in);
  ck_assert(!plain_stays || !(out || in)); /* then the program's own unified memory stays, too */
  if (!to_the_end || plain_stays)
    return;
  ck_assert_int_eq(progress, MEMORY_SETTLED);
  uint64_t there = account_unified_bytes(0), room = least(room_bytes, FAKE_CARD_BYTES);
  room = room > pinned() ? room - pinned() : 0;
  ck_assert_uint_le(there, room_bytes > pinned() ? room_bytes - pinned() : 0);
  ck_assert(!in || there <= room);
  ck_assert(!account_away_bytes(0) || there + FAKE_PAGE_BYTES > room);
}

static uint64_t random_room(void) {
  uint64_t all = memory_usage(0).total_bytes;
  switch (next_random(4)) {
  case 0:
    return 0;
  case 1:
    return UINT64_MAX;
  default:
    return ((uint64_t)rand() << 20) % (all + FAKE_PAGE_BYTES);
  }
}

START_TEST(whatever_happens_the_books_are_right) {
  const char *given = getenv("GPUSHARE_SEED");
  unsigned seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)clock_now_ns() + (unsigned)_i;
  printf("GPUSHARE_SEED=%u\n", seed);
  fflush(stdout);
  srand(seed);
  plain_stays = _i % 4 == 3;
  fake_set_memory(plain_stays ? GS_MEMORY_OFF : GS_MEMORY_MANAGED);
  for (int event = 0; event < EVENTS; event++) {
    struct thing *thing = &things[next_random(SLOTS)];
    bool refused = next_random(8) == 0;
    unsigned what = next_random(100);
    if (what == 0)
      end_context();
    else if (what < 25)
      move_to(random_room(), next_random(3));
    else if (thing->kind)
      drop(thing, refused);
    else
      get(thing, refused);
    check_books();
  }
  ck_assert_int_eq(fake_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  for (int i = 0; i < SLOTS; i++)
    if (things[i].kind)
      drop(&things[i], false);
  check_books();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("histories");
  TCase *cases = tcase_create("histories");
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  tcase_add_checked_fixture(cases, fake_install, NULL);
  tcase_add_loop_test(cases, whatever_happens_the_books_are_right, 0, 20);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
