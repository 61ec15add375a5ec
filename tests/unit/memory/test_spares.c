/* test_spares.c - blocks that are kept for allocations to come: what they save, what they are for, and when
 * they go. */
#include <check.h>
#include <stdatomic.h>
#include <string.h>

#include "../suite.h"
#include "common/clock.h"
#include "driver/driver.h"
#include "memory/backend.h"
#include "memory/swap/blocks.h"
#include "memory/swap/handles.h"
#include "memory/swap/swap.h"
#include "swap_world.h"

#define ALL_LEAVES UINT64_C(0)

static void setup(void) { world_start("small,capacity=16 GiB,scale=0"); }
static void setup_large(void) { world_start("small,capacity=96 GiB,scale=0"); }
static void setup_small(void) { world_start("small,capacity=1 GiB,scale=0"); }

/* ---- the driver's calls, counted ---- */

static struct driver real;
static unsigned created, reserved, all;

static CUresult count_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                             const CUmemAllocationProp *prop, unsigned long long flags) {
  all++;
  created++;
  return real.cuMemCreate(handle, bytes, prop, flags);
}

static CUresult count_map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  all++;
  return real.cuMemMap(at, bytes, offset, handle, flags);
}

static CUresult count_unmap(CUdeviceptr at, size_t bytes) {
  all++;
  return real.cuMemUnmap(at, bytes);
}

static CUresult count_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
  all++;
  return real.cuMemSetAccess(at, bytes, access, count);
}

static CUresult count_release(CUmemGenericAllocationHandle handle) {
  all++;
  return real.cuMemRelease(handle);
}

static CUresult count_retain(CUmemGenericAllocationHandle *handle, void *at) {
  all++;
  return real.cuMemRetainAllocationHandle(handle, at);
}

static CUresult count_reserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr hint,
                              unsigned long long flags) {
  all++;
  reserved++;
  return real.cuMemAddressReserve(at, bytes, alignment, hint, flags);
}

static CUresult count_address_free(CUdeviceptr at, size_t bytes) {
  all++;
  return real.cuMemAddressFree(at, bytes);
}

static void count_calls(void) {
  real = driver;
  driver.cuMemCreate = count_create;
  driver.cuMemMap = count_map;
  driver.cuMemUnmap = count_unmap;
  driver.cuMemSetAccess = count_access;
  driver.cuMemRelease = count_release;
  driver.cuMemRetainAllocationHandle = count_retain;
  driver.cuMemAddressReserve = count_reserve;
  driver.cuMemAddressFree = count_address_free;
}

/* What a program does by create, map, set access, unmap and release. */
static void play_round(CUdeviceptr at, uint64_t bytes, int value) {
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  struct alias alias = {.at = at};
  struct block *block;
  ck_assert_int_eq(handle_block_make(0, bytes, &block), CUDA_SUCCESS);
  ck_assert_int_eq(alias_add(block, &alias), CUDA_SUCCESS);
  ck_assert_int_eq(alias_set_access(block, &alias, &access, 1), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuMemsetD8_v2(at, (unsigned char)value, bytes), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuCtxSynchronize(), CUDA_SUCCESS);
  ck_assert_int_eq(*(volatile unsigned char *)(uintptr_t)(at + bytes - 1), value);
  ck_assert_int_eq(alias_remove(block, &alias), CUDA_SUCCESS);
  handle_block_end(block);
}

/* A program's own calls are 5. Beside them there are 2 for each piece: its handle is found and let go of. */
START_TEST(a_round_of_a_handle_costs_the_driver_little) {
  uint64_t bytes = _i ? 64 * MIB : 2 * MIB, pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
  CUdeviceptr at;
  count_calls();
  world_open();
  ck_assert_int_eq(real.cuMemAddressReserve(&at, bytes, 0, 0, 0), CUDA_SUCCESS);
  play_round(at, bytes, 1);
  created = reserved = all = 0;
  for (int round = 1; round <= 10; round++)
    play_round(at, bytes, round);
  ck_assert_uint_eq(created + reserved, 0);
  ck_assert_uint_eq(all, 10 * (3 * pieces + 2));
  world_check_books();
}
END_TEST

START_TEST(a_pair_of_alloc_and_free_costs_the_driver_nothing) {
  count_calls();
  world_open();
  world_free(world_get(64 * MIB));
  all = 0;
  for (int round = 0; round < 10; round++) {
    void *memory = world_get(64 * MIB - 5);
    ck_assert_ptr_nonnull(memory);
    world_fill(memory, 64 * MIB - 5, (uint64_t)round);
    world_free(memory);
  }
  ck_assert_uint_eq(all, 0);
  world_check_books();
}
END_TEST

/* ---- for whom they are ---- */

START_TEST(a_spare_serves_its_own_size_and_kind) {
  CUdeviceptr at;
  world_open();
  char *memory = world_get(32 * MIB);
  world_free(memory);
  char *smaller = world_get(30 * MIB);
  ck_assert_ptr_ne(memory, smaller);
  ck_assert_int_eq(driver.cuMemAddressReserve(&at, 32 * MIB, 0, 0, 0), CUDA_SUCCESS);
  play_round(at, 32 * MIB, 1); /* leaves a spare, too */
  ck_assert_uint_eq(swap_spare_bytes(0), 64 * MIB);
  ck_assert_ptr_eq(world_get(32 * MIB), memory);
  char *other = world_get(32 * MIB);
  world_fill(other, 32 * MIB, 3); /* the handle's spare can't be reached at its own address */
  ck_assert_uint_eq(swap_spare_bytes(0), 32 * MIB);
  world_check_books();
}
END_TEST

/* 64 MiB of 16 GiB, and never more than 256 MiB. */
START_TEST(spares_are_bounded) {
  uint64_t most_bytes = _i ? 256 * MIB : 64 * MIB;
  void *memory[20];
  world_open();
  for (int i = 0; i < 20; i++)
    memory[i] = world_get(32 * MIB);
  for (int i = 0; i < 20; i++)
    world_free(memory[i]);
  ck_assert_uint_eq(swap_spare_bytes(0), most_bytes);
  ck_assert_uint_eq(backend_swap.resident_bytes(0), most_bytes);
  world_check_books();
}
END_TEST

/* The newest leaves first. */
START_TEST(what_is_made_of_a_spare_is_new) {
  world_open();
  void *first = world_get(32 * MIB), *second = world_get(32 * MIB);
  world_fill(second, 32 * MIB, 5);
  world_free(first);
  ck_assert_ptr_eq(world_get(32 * MIB), first);
  world_fill(first, 32 * MIB, 6);
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(32 * MIB, NULL), MEMORY_SETTLED);
  world_check_books();
  ck_assert(world_intact(second, 32 * MIB, 5)); /* touching what is away crashes */
  world_open();
  ck_assert(world_intact(first, 32 * MIB, 6));
}
END_TEST

START_TEST(memory_of_another_process_is_none) {
  world_open();
  void *memory = world_get(32 * MIB);
  space_of(0)->newest->piece[0].foreign = true;
  world_free(memory);
  ck_assert_uint_eq(swap_spare_bytes(0) + backend_swap.needed_bytes(0), 0);
}
END_TEST

START_TEST(a_closed_space_makes_none) {
  world_open();
  void *memory = world_get(32 * MIB);
  backend_swap.close(0, true);
  world_free(memory);
  ck_assert_uint_eq(swap_spare_bytes(0) + backend_swap.needed_bytes(0), 0);
}
END_TEST

/* ---- when they go ---- */

START_TEST(spares_leave_before_contents) {
  struct memory_moved moved = {0};
  world_open();
  void *memory = world_get(32 * MIB);
  world_fill(memory, 32 * MIB, 4);
  world_free(world_get(32 * MIB));
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(32 * MIB, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(swap_spare_bytes(0), 0);
  ck_assert_uint_eq(moved.out_bytes, 0);
  ck_assert(world_intact(memory, 32 * MIB, 4));
  ck_assert_int_eq(world_settle(ALL_LEAVES, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(moved.out_bytes, 32 * MIB);
  world_check_books();
}
END_TEST

START_TEST(a_spare_makes_way_for_what_the_card_would_not_hold) {
  world_open();
  world_free(world_get(4 * MIB));
  ck_assert_uint_eq(swap_spare_bytes(0), 4 * MIB);
  ck_assert_ptr_nonnull(world_get(GIB - 2 * MIB));
  ck_assert_uint_eq(swap_spare_bytes(0), 0);
  world_check_books();
}
END_TEST

START_TEST(a_spare_makes_way_before_room_is_waited_for) {
  world_open();
  world_free(world_get(32 * MIB));
  world.room_bytes = 40 * MIB;
  ck_assert_ptr_nonnull(world_get(36 * MIB));
  ck_assert_uint_eq(world.room_waits, 0);
  ck_assert_uint_eq(swap_spare_bytes(0), 0);
  world_check_books();
}
END_TEST

START_TEST(idle_spares_go) {
  uint64_t now_ns = clock_now_ns();
  world_open();
  void *memory = world_get(32 * MIB);
  ck_assert_uint_eq(blocks_trim(now_ns), UINT64_MAX);
  for (int i = 0; i < 3; i++) {
    world_free(memory);
    ck_assert_ptr_eq(world_get(32 * MIB), memory);
  }
  world_free(memory);
  ck_assert_uint_eq(world.timer_wakes, 1);
  uint64_t due_ns = blocks_trim(now_ns);
  ck_assert_uint_gt(due_ns, now_ns + NS_PER_S / 2);
  ck_assert_uint_eq(swap_spare_bytes(0), 32 * MIB);
  clock_sleep(due_ns - clock_now_ns());
  ck_assert_uint_eq(blocks_trim(clock_now_ns()), UINT64_MAX);
  while (backend_swap.needed_bytes(0) || budget_used_bytes(0, BACKING_SWAP)) /* the case's time bounds it */
    clock_sleep(NS_PER_MS);
  ck_assert_uint_eq(swap_spare_bytes(0), 0);
  world_check_books();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("spares");
  TCase *cases = tcase_create("spares");
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  tcase_add_checked_fixture(cases, setup, world_end);
  tcase_add_loop_test(cases, a_round_of_a_handle_costs_the_driver_little, 0, 2);
  tcase_add_test(cases, a_pair_of_alloc_and_free_costs_the_driver_nothing);
  tcase_add_test(cases, what_is_made_of_a_spare_is_new);
  tcase_add_test(cases, memory_of_another_process_is_none);
  tcase_add_test(cases, a_closed_space_makes_none);
  tcase_add_test(cases, spares_leave_before_contents);
  tcase_add_test(cases, a_spare_makes_way_before_room_is_waited_for);
  tcase_add_test(cases, idle_spares_go);
  tcase_add_loop_test(cases, spares_are_bounded, 0, 1);
  suite_add_tcase(suite, cases);
  TCase *large = tcase_create("large");
  tcase_set_timeout(large, SUITE_LIMIT_S);
  tcase_add_checked_fixture(large, setup_large, world_end);
  tcase_add_loop_test(large, spares_are_bounded, 1, 2);
  tcase_add_test(large, a_spare_serves_its_own_size_and_kind);
  suite_add_tcase(suite, large);
  TCase *small = tcase_create("small");
  tcase_set_timeout(small, SUITE_LIMIT_S);
  tcase_add_checked_fixture(small, setup_small, world_end);
  tcase_add_test(small, a_spare_makes_way_for_what_the_card_would_not_hold);
  suite_add_tcase(suite, small);
  return suite_run(suite);
}
