/* test_swap.c - swap memory, one matter at a time. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "../suite.h"
#include "driver/driver.h"
#include "memory/backend.h"
#include "memory/deferred.h"
#include "memory/forked.h"
#include "memory/swap/slabs.h"
#include "memory/swap/space.h"
#include "memory/swap/swap.h"
#include "swap_world.h"

static void setup(void) { world_start("small,capacity=1 GiB,scale=0"); }
static void setup_two(void) { world_start("small,gpus=2,capacity=1 GiB,scale=0"); }

static struct driver real; /* before a test replaces functions */

/* ---- out and in ---- */

START_TEST(contents_leave_and_come_back) {
  struct memory_moved moved = {0};
  uint64_t sizes[] = {1, 700 * KIB, MIB, 3 * MIB + 1, 100 * MIB};
  void *memory[5];
  world_open();
  for (int i = 0; i < 5; i++) {
    memory[i] = world_get(sizes[i]);
    world_fill(memory[i], sizes[i], (uint64_t)i);
  }
  ck_assert_uint_eq(backend_swap.resident_bytes(0), (2 + 2 + 4 + 100) * MIB);
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
  world_check_books();
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 0);
  ck_assert_uint_eq(moved.out_bytes, 108 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 108 * MIB);
  ck_assert(!backend_swap.open(0, true, true));
  ck_assert_int_eq(world_settle(UINT64_MAX, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(moved.in_bytes, 108 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  ck_assert(backend_swap.open(0, true, true));
  for (int i = 0; i < 5; i++) {
    ck_assert(world_intact(memory[i], sizes[i], (uint64_t)i));
    world_free(memory[i]);
  }
}
END_TEST

START_TEST(a_step_is_bounded_and_tells_what_it_did) {
  struct memory_moved moved = {0};
  world_open();
  void *memory = world_get(20 * PIECE_BYTES);
  backend_swap.close(0, true);
  unsigned steps = 0;
  while (backend_swap.step(0, 0, &moved) == MEMORY_MOVED) {
    ck_assert_uint_eq(moved.out_bytes, ++steps * PIECE_BYTES); /* one piece each */
    ck_assert_uint_le(slabs_used_bytes(), moved.out_bytes + WINDOW_BYTES);
  }
  ck_assert_uint_eq(steps, 20);
  ck_assert(memory);
}
END_TEST

static uint64_t queued_bytes, most_queued_bytes;
static unsigned waits;

static CUresult note_copy(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  queued_bytes += bytes;
  most_queued_bytes = queued_bytes > most_queued_bytes ? queued_bytes : most_queued_bytes;
  return real.cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

static CUresult note_wait(CUevent event) {
  waits += queued_bytes != 0;
  queued_bytes = 0;
  return real.cuEventSynchronize(event);
}

/* On the way out the engine is given a gap every 16 MiB, whatever the pieces: others need it. */
START_TEST(copies_out_leave_gaps) {
  real = driver;
  driver.cuMemcpyDtoHAsync_v2 = note_copy;
  driver.cuEventSynchronize = note_wait;
  world_open();
  for (int i = 0; i < 96; i++)
    ck_assert_ptr_nonnull(world_get(_i ? 2 * MIB : 6 * MIB));
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(0, NULL), MEMORY_SETTLED);
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 0);
  ck_assert_uint_eq(most_queued_bytes, 16 * MIB);
  ck_assert_uint_eq(waits, 96 * (_i ? 2 : 6) / 16);
}
END_TEST

/* Newest first, from its end; oldest first, from its start. */
START_TEST(what_leaves_and_what_comes_first) {
  struct memory_moved moved = {0};
  world_open();
  char *old = world_get(3 * PIECE_BYTES), *new = world_get(3 * PIECE_BYTES);
  world_fill(old, 3 * PIECE_BYTES, 1);
  world_fill(new, 3 * PIECE_BYTES, 2);
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(5 * PIECE_BYTES, &moved), MEMORY_SETTLED);
  ck_assert(world_intact(old, 3 * PIECE_BYTES, 1)); /* still there: reading it does not crash */
  ck_assert(world_intact(new, 2 * PIECE_BYTES, 2));
  ck_assert_int_eq(world_settle(PIECE_BYTES, &moved), MEMORY_SETTLED);
  ck_assert(world_intact(old, PIECE_BYTES, 1));
  ck_assert_uint_eq(moved.out_bytes, 5 * PIECE_BYTES);
  ck_assert_int_eq(world_settle(4 * PIECE_BYTES + 5, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(moved.in_bytes, 3 * PIECE_BYTES);
  ck_assert(world_intact(old, 3 * PIECE_BYTES, 1));
  ck_assert(world_intact(new, PIECE_BYTES, 2));
  ck_assert(!backend_swap.open(0, true, true));
  world_check_books();
}
END_TEST

START_TEST(a_room_that_changes_in_the_middle) {
  struct memory_moved moved = {0};
  world_open();
  char *memory = world_get(12 * PIECE_BYTES);
  world_fill(memory, 12 * PIECE_BYTES, 7);
  backend_swap.close(0, true);
  for (int i = 0; i < 12; i++) {
    backend_swap.step(0, 0, &moved);
    backend_swap.step(0, (uint64_t)i * PIECE_BYTES, &moved);
    backend_swap.step(0, UINT64_MAX, &moved);
    world_check_books();
  }
  world_open();
  ck_assert(world_intact(memory, 12 * PIECE_BYTES, 7));
}
END_TEST

START_TEST(nothing_moves_while_the_space_is_open) {
  struct memory_moved moved = {0};
  world_open();
  char *memory = world_get(MIB);
  ck_assert_int_eq(backend_swap.step(0, 0, &moved), MEMORY_SETTLED);
  world_fill(memory, MIB, 1);
  ck_assert_uint_eq(moved.out_bytes, 0);
}
END_TEST

static void *hold_the_lock(void *stop) {
  space_lock(space_of(0));
  atomic_store((atomic_int *)stop, 1);
  while (atomic_load((atomic_int *)stop) != 2)
    suite_pause();
  space_unlock(space_of(0));
  return NULL;
}

/* Who must not wait for others' steps does not. */
START_TEST(a_try_to_open_does_not_wait) {
  atomic_int stop = 0;
  pthread_t thread;
  pthread_create(&thread, NULL, hold_the_lock, &stop);
  while (!atomic_load(&stop))
    suite_pause();
  ck_assert(!backend_swap.open(0, true, false));
  atomic_store(&stop, 2);
  pthread_join(thread, NULL);
  ck_assert(backend_swap.open(0, true, false));
  backend_swap.close(0, true);
  world_get(MIB);
  ck_assert(!backend_swap.open(0, true, false));
}
END_TEST

/* ---- allocations ---- */

START_TEST(memory_of_a_closed_space_comes_with_the_next_restore) {
  struct memory_moved moved = {0};
  char *small = world_get(10), *large = world_get(70 * MIB);
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 0);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 72 * MIB);
  ck_assert(!backend_swap.open(0, true, true));
  ck_assert_int_eq(world_settle(UINT64_MAX, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(moved.in_bytes, 0); /* there was nothing to copy */
  ck_assert(backend_swap.open(0, true, true));
  world_fill(small, 10, 1);
  world_fill(large, 70 * MIB, 2);
  world_check_books();
}
END_TEST

START_TEST(the_ledger_knows_sizes_and_inner_addresses) {
  struct allocation found;
  char *small = world_get(100), *large = world_get(3 * MIB + 100);
  ck_assert_uint_eq((uintptr_t)small % UNIT_BYTES, 0);
  ck_assert(ledger_find(&account_addresses, (uintptr_t)small + 99, &found));
  ck_assert_uint_eq(found.base, (uintptr_t)small);
  ck_assert_uint_eq(found.span, 100);
  ck_assert(ledger_find(&account_addresses, (uintptr_t)large + 3 * MIB, &found));
  ck_assert_uint_eq(found.span, 3 * MIB + 100);
  ck_assert_uint_eq(found.bytes, 0);
  ck_assert_int_eq(found.backing, BACKING_SWAP);
}
END_TEST

START_TEST(small_ones_share_blocks) {
  char *memory[4096];
  world_open();
  for (int i = 0; i < 4096; i++) { /* 2 MiB together */
    memory[i] = world_get(1 + (size_t)i % 512);
    world_fill(memory[i], 1 + (size_t)i % 512, (uint64_t)i);
  }
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 2 * MIB);
  void *more = world_get(1);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 4 * MIB);
  for (int i = 0; i < 4096; i++)
    ck_assert(world_intact(memory[i], 1 + (size_t)i % 512, (uint64_t)i));
  for (int i = 0; i < 4096; i += 2)
    world_free(memory[i]);
  for (int i = 0; i < 4096; i += 2) /* into the holes */
    memory[i] = world_get(512);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 4 * MIB);
  for (int i = 0; i < 4096; i++)
    world_free(memory[i]);
  world_free(more);
  world_check_books();
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 2 * MIB); /* one is kept */
}
END_TEST

START_TEST(holes_beside_each_other_become_one) {
  char *part[3]; /* of 2 MiB */
  for (int i = 0; i < 3; i++)
    part[i] = world_get(600 * KIB);
  world_free(part[_i]);
  world_free(part[1 - _i]);
  part[0] = world_get(1000 * KIB);
  world_free(part[2]);
  part[1] = world_get(1000 * KIB);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 2 * MIB);
  ck_assert(part[0] && part[1] && part[0] != part[1]);
}
END_TEST

START_TEST(shared_blocks_grow) {
  uint64_t before = 0, sizes[8] = {0};
  unsigned blocks = 0;
  for (int i = 0; i < 200 && blocks < 8; i++) {
    ck_assert_ptr_nonnull(world_get(900 * KIB));
    if (backend_swap.needed_bytes(0) != before)
      sizes[blocks++] = backend_swap.needed_bytes(0) - before;
    before = backend_swap.needed_bytes(0);
  }
  uint64_t expected[8] = {2, 2, 4, 8, 16, 32, 32, 32};
  for (int i = 0; i < 8; i++)
    ck_assert_uint_eq(sizes[i], expected[i] * MIB);
}
END_TEST

static unsigned creations;
static CUresult count_create(CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags) {
  creations++;
  return real.cuMemCreate(handle, size, prop, flags);
}

START_TEST(pairs_of_alloc_and_free_map_once) {
  real = driver;
  driver.cuMemCreate = count_create;
  world_open();
  for (int i = 0; i < 100; i++)
    world_free(world_get(1000));
  ck_assert_uint_eq(creations, 1);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 2 * MIB);
  backend_swap.close(0, true);
  world_settle(0, NULL); /* what is kept for nobody is not moved, but goes */
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  ck_assert_uint_eq(slabs_pinned_bytes(), 0);
  world_check_books();
}
END_TEST

static CUresult count_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
  creations++;
  return real.cuMemSetAccess(ptr, size, desc, count);
}

START_TEST(access_is_set_once_for_a_new_block) {
  real = driver;
  driver.cuMemSetAccess = count_access;
  world_open();
  world_free(world_get(10 * PIECE_BYTES));
  ck_assert_uint_eq(creations, 1);
}
END_TEST

/* ---- frees ---- */

START_TEST(frees_while_away_need_no_copy) {
  struct memory_moved moved = {0};
  world_open();
  void *one = world_get(40 * MIB), *two = world_get(5000), *three = world_get(5000);
  world_fill(three, 5000, 3);
  backend_swap.close(0, true);
  world_settle(0, &moved);
  world_free(one);
  world_free(two);
  ck_assert_uint_eq(slabs_used_bytes(), 2 * MIB);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 2 * MIB);
  ck_assert_int_eq(world_settle(UINT64_MAX, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(moved.in_bytes, 2 * MIB);
  ck_assert(world_intact(three, 5000, 3));
  backend_swap.close(0, true);
  world_settle(0, NULL);
  world_free(three);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  world_check_books();
}
END_TEST

START_TEST(a_free_in_the_middle_of_a_move) {
  struct memory_moved moved = {0};
  for (int round = 0; round < 2; round++) {
    world_open();
    char *doomed = world_get(2 * PIECE_BYTES), *other = world_get(8 * PIECE_BYTES);
    world_fill(other, 8 * PIECE_BYTES, 5);
    backend_swap.close(0, true);
    if (round == 1)
      world_settle(0, &moved);
    for (int i = 0; i < 7 && round == 0; i++) /* out: the doomed one is in flight */
      backend_swap.step(0, 0, &moved);
    if (round == 1) /* in: likewise */
      backend_swap.step(0, UINT64_MAX, &moved);
    world_free(doomed);
    world_check_books();
    world_open();
    ck_assert(world_intact(other, 8 * PIECE_BYTES, 5));
    world_free(other);
  }
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
}
END_TEST

static _Atomic int synchronized;
static CUresult count_synchronize(void) {
  ck_assert_uint_ge(world.captures_forbidden, 1);
  ck_assert(!world.capturing);
  synchronized++;
  return real.cuCtxSynchronize();
}

START_TEST(a_free_waits_for_work_but_not_within_a_capture) {
  real = driver;
  driver.cuCtxSynchronize = count_synchronize;
  world_open();
  void *one = world_get(6 * MIB), *two = world_get(6 * MIB);
  world_free(one);
  ck_assert_int_eq(synchronized, 1);
  world.capturing = true;
  world_free(two);
  ck_assert_int_eq(synchronized, 1);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 6 * MIB); /* put off */
  void *three = world_get(2 * MIB);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 8 * MIB);
  world.capturing = false;
  world_free(world_get(1));
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 4 * MIB); /* three, and the shared block that is kept */
  world.capturing = true;
  world_free(three);
  int before = synchronized;
  world.capturing = false;
  backend_swap.close(0, true); /* the drain has waited already */
  ck_assert_int_eq(synchronized, before);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 2 * MIB);
  ck_assert_uint_eq(world.captures_forbidden, 0);
  world_check_books();
}
END_TEST

/* What was closed with work unfinished may still be used by that. */
START_TEST(a_free_while_work_stands_still_waits_for_it) {
  real = driver;
  driver.cuCtxSynchronize = count_synchronize;
  world_open();
  void *one = world_get(2 * MIB), *two = world_get(2 * MIB), *three = world_get(2 * MIB);
  world.capturing = true;
  world_free(one);
  world.capturing = false;
  int before = synchronized;
  backend_swap.close(0, false);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 6 * MIB); /* what was put off stays so */
  world_free(two);
  ck_assert_int_gt(synchronized, before);
  before = synchronized;
  backend_swap.close(0, true);
  world_free(three);
  ck_assert_int_eq(synchronized, before);
  world_check_books();
}
END_TEST

/* ---- room ---- */

static bool grow_room(uint64_t bytes) {
  ck_assert_uint_gt(bytes, world.room_bytes);
  world.room_bytes = bytes;
  return true;
}

START_TEST(an_allocation_waits_for_room) {
  world.room_bytes = 10 * MIB;
  world.room_wait = grow_room;
  world_open();
  ck_assert_ptr_nonnull(world_get(10 * MIB));
  ck_assert_uint_eq(world.room_waits, 0);
  char *memory = world_get(30 * MIB);
  ck_assert_uint_eq(world.room_waits, 1);
  ck_assert_uint_eq(world.room_bytes, 40 * MIB);
  world_fill(memory, 30 * MIB, 1);
}
END_TEST

START_TEST(memory_that_cannot_be_swapped_takes_room_too) {
  world.room_bytes = 10 * MIB;
  world.room_wait = grow_room;
  world_open();
  ck_assert_int_eq(budget_reserve(0, BACKING_PINNED_PLAIN, 5 * MIB, false), 0);
  ck_assert_ptr_nonnull(world_get(8 * MIB));
  ck_assert_uint_eq(world.room_bytes, 13 * MIB);
}
END_TEST

static bool take_the_gpu_away(uint64_t bytes) {
  (void)bytes;
  backend_swap.close(0, true);
  return false;
}

START_TEST(an_allocation_that_loses_the_gpu_stays_off_the_card) {
  world.room_bytes = 10 * MIB;
  world.room_wait = take_the_gpu_away;
  world_open();
  ck_assert_ptr_nonnull(world_get(30 * MIB));
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 0);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 30 * MIB);
}
END_TEST

/* While the gate may still let calls through, nobody gets memory that is not mapped. */
START_TEST(no_unmapped_memory_in_an_open_space) {
  world.room_bytes = 10 * MIB;
  world_open();
  char *memory = world_get(30 * MIB);
  world_fill(memory, 30 * MIB, 1);
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 30 * MIB);
}
END_TEST

/* ---- a card with less than it says ---- */

static uint64_t refuse_above = UINT64_MAX;

static CUresult refuse_create(CUmemGenericAllocationHandle *handle, size_t size,
                              const CUmemAllocationProp *prop, unsigned long long flags) {
  if (world_card_bytes(0) + size > refuse_above)
    return CUDA_ERROR_OUT_OF_MEMORY;
  return real.cuMemCreate(handle, size, prop, flags);
}

static void install_refusal(uint64_t above) {
  real = driver;
  driver.cuMemCreate = refuse_create;
  refuse_above = above;
}

START_TEST(without_a_daemon_a_refusal_is_final) {
  install_refusal(100 * MIB);
  world_open();
  world_free(world_get(1)); /* a block is kept, until its memory is needed */
  ck_assert_ptr_nonnull(world_get(98 * MIB));
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 100 * MIB);
  ck_assert_ptr_nonnull(world_get(2 * MIB));
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 100 * MIB);
  ck_assert_ptr_null(world_get(40 * MIB));
  ck_assert_uint_eq(world.short_bytes, 0);
  world_check_books();
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 100 * MIB);
}
END_TEST

static void others_leave(void) { refuse_above = UINT64_MAX; }

START_TEST(with_a_daemon_others_leave) {
  install_refusal(70 * MIB);
  world.room_bytes = GIB;
  world.on_short = others_leave;
  world_open();
  char *memory = world_get(100 * MIB);
  world_fill(memory, 100 * MIB, 1);
  ck_assert_uint_eq(world.short_bytes, (100 - 64) * MIB);
}
END_TEST

START_TEST(with_a_daemon_patience_ends) {
  install_refusal(70 * MIB);
  world.room_bytes = GIB;
  world_open();
  ck_assert_ptr_null(world_get(100 * MIB));
  ck_assert_uint_eq(world.short_bytes, (100 - 64) * MIB); /* told once */
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 0);
  world_check_books();
}
END_TEST

START_TEST(a_restore_says_what_is_short) {
  struct memory_moved moved = {0};
  world_open();
  char *memory = world_get(4 * PIECE_BYTES);
  world_fill(memory, 4 * PIECE_BYTES, 9);
  backend_swap.close(0, true);
  world_settle(0, NULL);
  install_refusal(3 * PIECE_BYTES - 1);
  ck_assert_int_eq(world_settle(UINT64_MAX, &moved), MEMORY_SHORT);
  ck_assert_uint_eq(moved.in_bytes, 2 * PIECE_BYTES);
  ck_assert_uint_eq(moved.short_bytes, PIECE_BYTES);
  ck_assert(!backend_swap.open(0, true, true));
  world_check_books();
  others_leave();
  world_open();
  ck_assert(world_intact(memory, 4 * PIECE_BYTES, 9));
}
END_TEST

START_TEST(a_host_without_memory) {
  struct memory_moved moved = {0};
  world_open();
  char *memory = world_get(8 * PIECE_BYTES);
  world_fill(memory, 8 * PIECE_BYTES, 9);
  backend_swap.close(0, true);
  world.host_bytes = 2 * PIECE_BYTES; /* for the first slab, and it stays like that */
  ck_assert_int_eq(world_settle(7 * PIECE_BYTES, &moved), MEMORY_SETTLED);
  world.host_bytes = 0;
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
  ck_assert_uint_gt(moved.out_bytes, 0);
  ck_assert_uint_gt(backend_swap.resident_bytes(0), 0);
  ck_assert_uint_eq(moved.out_bytes + backend_swap.resident_bytes(0), 8 * PIECE_BYTES);
  world_check_books();
  world_open();
  ck_assert(world_intact(memory, 8 * PIECE_BYTES, 9));
}
END_TEST

/* ---- a driver that fails ---- */

static CUresult failing = CUDA_SUCCESS;
static unsigned calls_until_failure;

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (calls_until_failure && --calls_until_failure == 0)
    return CUDA_ERROR_OPERATING_SYSTEM;
  return real.cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  if (calls_until_failure && --calls_until_failure == 0)
    return CUDA_ERROR_OPERATING_SYSTEM;
  return real.cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}

START_TEST(a_copy_that_fails_is_undone) {
  struct memory_moved moved = {0};
  real = driver;
  driver.cuMemcpyDtoHAsync_v2 = copy_out;
  driver.cuMemcpyHtoDAsync_v2 = copy_in;
  world_open();
  char *memory = world_get(10 * PIECE_BYTES);
  world_fill(memory, 10 * PIECE_BYTES, 4);
  backend_swap.close(0, true);
  calls_until_failure = 6;
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_FAILED);
  world_check_books();
  ck_assert(!backend_swap.open(0, true, true)); /* the driver works but for this */
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
  calls_until_failure = 6;
  ck_assert_int_eq(world_settle(UINT64_MAX, &moved), MEMORY_FAILED);
  world_check_books();
  ck_assert(!backend_swap.open(0, true, true));
  world_open();
  ck_assert(world_intact(memory, 10 * PIECE_BYTES, 4));
  ck_assert_uint_eq(slabs_used_bytes(), 0);
}
END_TEST

static CUresult fail_event(CUevent event) { return failing ? failing : real.cuEventSynchronize(event); }
static CUresult fail_stream(CUstream stream) { return failing ? failing : real.cuStreamSynchronize(stream); }
static CUresult fail_unmap(CUdeviceptr ptr, size_t size) {
  return failing ? failing : real.cuMemUnmap(ptr, size);
}
static CUresult fail_current(CUcontext *context) { return failing ? failing : real.cuCtxGetCurrent(context); }
static CUresult fail_push(CUcontext context) { return failing ? failing : real.cuCtxPushCurrent_v2(context); }

/* A kernel of the program has failed: every call in the context says so from now on. */
START_TEST(a_broken_context_is_left_to_the_program) {
  struct memory_moved moved = {0};
  world_open();
  char *memory = world_get(10 * PIECE_BYTES);
  world_fill(memory, 10 * PIECE_BYTES, 4);
  backend_swap.close(0, true);
  backend_swap.step(0, 0, &moved);
  real = driver;
  driver.cuEventSynchronize = fail_event;
  driver.cuStreamSynchronize = fail_stream;
  failing = CUDA_ERROR_ILLEGAL_ADDRESS;
  ck_assert_int_eq(backend_swap.step(0, 0, &moved), MEMORY_FAILED);
  ck_assert(backend_swap.open(0, true, true));
  backend_swap.close(0, true);
  ck_assert(!backend_swap.open(0, true, true)); /* each time anew */
  failing = CUDA_SUCCESS;
  world_open();
  ck_assert(world_intact(memory, 10 * PIECE_BYTES, 4));
}
END_TEST

START_TEST(a_driver_at_its_end) {
  struct memory_moved moved = {0};
  world_open();
  void *one = world_get(10 * PIECE_BYTES), *two = world_get(10);
  backend_swap.close(0, true);
  backend_swap.step(0, 0, &moved);
  real = driver;
  driver.cuEventSynchronize = fail_event;
  driver.cuStreamSynchronize = fail_stream;
  driver.cuMemUnmap = fail_unmap;
  driver.cuCtxGetCurrent = fail_current;
  driver.cuCtxPushCurrent_v2 = fail_push;
  failing = CUDA_ERROR_DEINITIALIZED;
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(backend_swap.step(0, 0, &moved), MEMORY_FAILED);
  ck_assert(backend_swap.open(0, true, true));
  world_free(one);
  world_free(two);
  backend_swap.context_leaving(world.context[0]);
  backend_swap.context_left(world.context[0]);
  ck_assert_uint_eq(budget_used_bytes(0, BACKING_SWAP), 0);
}
END_TEST

/* ---- peers ---- */

static unsigned long long access_of(CUdevice device, void *memory) {
  CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  unsigned long long flags = 0;
  ck_assert_int_eq(cuMemGetAccess(&flags, &location, (uintptr_t)memory), CUDA_SUCCESS);
  return flags;
}

static void check_access(char *memory, unsigned long long peers) {
  for (unsigned i = 0; i < 3; i++) {
    ck_assert_uint_eq(access_of(0, memory + i * PIECE_BYTES), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ck_assert_uint_eq(access_of(1, memory + i * PIECE_BYTES), peers);
  }
}

START_TEST(peers_reach_what_is_mapped_and_what_will_be) {
  world_open();
  char *before = world_get(3 * PIECE_BYTES);
  check_access(before, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  backend_swap.set_peer(0, 1, true);
  char *after = world_get(3 * PIECE_BYTES);
  check_access(before, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  check_access(after, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  backend_swap.close(0, true);
  world_settle(4 * PIECE_BYTES, NULL);
  check_access(before, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  backend_swap.set_peer(0, 1, false);
  check_access(before, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  world_open();
  check_access(after, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}
END_TEST

/* ---- contexts ---- */

static CUcontext other_context(void) {
  CUcontext context;
  ck_assert_int_eq(driver.cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuCtxPopCurrent_v2(&(CUcontext){NULL}), CUDA_SUCCESS);
  return world.context[1] = context;
}

/* As memory.c, with the destruction itself. */
static void destroy_context(CUcontext context) {
  backend_swap.context_leaving(context);
  backend_swap.context_left(context);
  account_context_destroyed(context);
  world.context[1] = NULL;
  ck_assert_int_eq(driver.cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

START_TEST(memory_goes_with_its_context) {
  struct memory_moved moved = {0};
  CUcontext context = other_context();
  void *theirs, *theirs_small;
  world_open();
  char *ours = world_get(3 * PIECE_BYTES), *ours_small = world_get(100);
  ck_assert_int_eq(world_try(context, 3 * PIECE_BYTES, &theirs), CUDA_SUCCESS);
  ck_assert_int_eq(world_try(context, 100, &theirs_small), CUDA_SUCCESS);
  world_fill(ours, 3 * PIECE_BYTES, 1);
  world_fill(ours_small, 100, 2);
  backend_swap.close(0, true);
  ck_assert_int_eq(driver.cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
  backend_swap.step(0, _i ? UINT64_MAX : 0, &moved); /* the mover's streams are theirs */
  ck_assert_int_eq(driver.cuCtxPopCurrent_v2(&(CUcontext){NULL}), CUDA_SUCCESS);
  destroy_context(context);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 3 * PIECE_BYTES + 2 * MIB);
  ck_assert_uint_eq(ledger_count(&account_addresses), 2);
  world_check_books();
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
  world_open();
  ck_assert(world_intact(ours, 3 * PIECE_BYTES, 1));
  ck_assert(world_intact(ours_small, 100, 2));
}
END_TEST

START_TEST(a_free_that_was_put_off_ends_with_its_context) {
  CUcontext context = other_context();
  void *theirs;
  world_open();
  ck_assert_int_eq(world_try(context, 3 * MIB, &theirs), CUDA_SUCCESS);
  world.capturing = true;
  world_free(theirs);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 4 * MIB);
  destroy_context(context);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  world_check_books();
}
END_TEST

static atomic_bool may_go_on;

static void await_leave(void *unused) {
  (void)unused;
  while (!atomic_load(&may_go_on))
    suite_pause();
}

static void *give_leave(void *unused) {
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  atomic_store(&may_go_on, true);
  return unused;
}

/* Freed in the order of a stream whose work is not done when its context ends; the memory is the same
 * context's, or the primary one's. */
START_TEST(a_free_in_stream_order_ends_with_the_context_of_its_stream) {
  CUcontext context = other_context();
  struct allocation taken;
  CUstream stream;
  pthread_t thread;
  void *memory;
  world_open();
  ck_assert_int_eq(world_try(_i ? context : world.context[0], 5 * MIB, &memory), CUDA_SUCCESS);
  driver.cuCtxPushCurrent_v2(context);
  ck_assert_int_eq(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuLaunchHostFunc(stream, await_leave, NULL), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuMemsetD8Async((uintptr_t)memory, 7, 5 * MIB, stream), CUDA_SUCCESS);
  driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  ck_assert(account_take(&account_addresses, (uintptr_t)memory, &taken));
  ck_assert_int_eq(deferred_free(&taken, stream), CUDA_SUCCESS);
  deferred_reap();
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 6 * MIB);
  pthread_create(&thread, NULL, give_leave, NULL);
  deferred_context_destroyed(context, true);
  ck_assert(atomic_load(&may_go_on));
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  ck_assert(!deferred_reap_all());
  destroy_context(context);
  pthread_join(thread, NULL);
  world_check_books();
}
END_TEST

START_TEST(nothing_is_left_after_the_last_context) {
  world_open();
  world_free(world_get(1));
  world_get(2);
  world_get(100 * MIB);
  backend_swap.context_leaving(world.context[0]);
  backend_swap.context_left(world.context[0]);
  account_context_destroyed(world.context[0]);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  ck_assert_uint_eq(world_card_bytes(0), 0);
  world_check_books();
}
END_TEST

START_TEST(a_forked_child_knows_nothing) {
  static void *volatile parents[2]; /* what the child abandons is not a leak */
  world_open();
  world_get(10);
  parents[0] = space_of(0)->oldest;
  parents[1] = account_addresses.root;
  forked_forget_all();
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 0);
  ck_assert(parents[0] && parents[1]);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("swap");
  TCase *cases = tcase_create("swap");
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  tcase_add_checked_fixture(cases, setup, world_end);
  tcase_add_test(cases, contents_leave_and_come_back);
  tcase_add_test(cases, a_step_is_bounded_and_tells_what_it_did);
  tcase_add_loop_test(cases, copies_out_leave_gaps, 0, 2);
  tcase_add_test(cases, what_leaves_and_what_comes_first);
  tcase_add_test(cases, a_room_that_changes_in_the_middle);
  tcase_add_test(cases, nothing_moves_while_the_space_is_open);
  tcase_add_test(cases, a_try_to_open_does_not_wait);
  tcase_add_test(cases, memory_of_a_closed_space_comes_with_the_next_restore);
  tcase_add_test(cases, the_ledger_knows_sizes_and_inner_addresses);
  tcase_add_test(cases, small_ones_share_blocks);
  tcase_add_loop_test(cases, holes_beside_each_other_become_one, 0, 2);
  tcase_add_test(cases, shared_blocks_grow);
  tcase_add_test(cases, pairs_of_alloc_and_free_map_once);
  tcase_add_test(cases, access_is_set_once_for_a_new_block);
  tcase_add_test(cases, frees_while_away_need_no_copy);
  tcase_add_test(cases, a_free_in_the_middle_of_a_move);
  tcase_add_test(cases, a_free_waits_for_work_but_not_within_a_capture);
  tcase_add_test(cases, a_free_while_work_stands_still_waits_for_it);
  tcase_add_test(cases, an_allocation_waits_for_room);
  tcase_add_test(cases, memory_that_cannot_be_swapped_takes_room_too);
  tcase_add_test(cases, an_allocation_that_loses_the_gpu_stays_off_the_card);
  tcase_add_test(cases, no_unmapped_memory_in_an_open_space);
  tcase_add_test(cases, without_a_daemon_a_refusal_is_final);
  tcase_add_test(cases, with_a_daemon_others_leave);
  tcase_add_test(cases, with_a_daemon_patience_ends);
  tcase_add_test(cases, a_restore_says_what_is_short);
  tcase_add_test(cases, a_host_without_memory);
  tcase_add_test(cases, a_copy_that_fails_is_undone);
  tcase_add_test(cases, a_broken_context_is_left_to_the_program);
  tcase_add_test(cases, a_driver_at_its_end);
  tcase_add_loop_test(cases, memory_goes_with_its_context, 0, 2);
  tcase_add_test(cases, a_free_that_was_put_off_ends_with_its_context);
  tcase_add_loop_test(cases, a_free_in_stream_order_ends_with_the_context_of_its_stream, 0, 2);
  tcase_add_test(cases, nothing_is_left_after_the_last_context);
  tcase_add_test(cases, a_forked_child_knows_nothing);
  suite_add_tcase(suite, cases);
  TCase *peers = tcase_create("peers");
  tcase_set_timeout(peers, SUITE_LIMIT_S);
  tcase_add_checked_fixture(peers, setup_two, world_end);
  tcase_add_test(peers, peers_reach_what_is_mapped_and_what_will_be);
  suite_add_tcase(suite, peers);
  return suite_run(suite);
}
