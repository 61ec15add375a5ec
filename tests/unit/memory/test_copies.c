/* test_copies.c - what leaves without being copied, and what is kept in host memory for that. */
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "driver/driver.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/swap/copies.h"
#include "memory/swap/slabs.h"
#include "memory/swap/space.h"
#include "memory/swap/swap.h"
#include "sim.h"
#include "swap_world.h"

static struct driver real; /* before a test replaces functions */

static void setup(void) {
  world_start("small,capacity=1 GiB,scale=0");
  real = driver;
  copies_set_mode(GS_HOST_COPIES_AUTO);
}

static uint64_t copied(enum gs_sim_counter direction) {
  struct gs_sim_process process;
  ck_assert_int_eq(gs_sim_process_read(NULL, getpid(), 0, &process), 0);
  return process.counters[direction];
}

/* All of it leaves and comes back: how many bytes were copied out, as told and as the card has seen. */
static uint64_t out_and_in(void) {
  uint64_t before = copied(GS_SIM_copied_out_bytes);
  struct memory_moved moved = {0};
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(0, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 0);
  ck_assert_uint_eq(moved.out_bytes + moved.spared_bytes, backend_swap.needed_bytes(0));
  ck_assert_uint_eq(moved.clean_bytes, moved.spared_bytes);
  ck_assert_uint_eq(swap_copies_bytes(0), 0);
  ck_assert_uint_eq(copied(GS_SIM_copied_out_bytes) - before, moved.out_bytes);
  world_check_books();
  world_open();
  world_check_books();
  return moved.out_bytes;
}

/* ---- what is not copied ---- */

START_TEST(what_has_not_changed_is_not_copied_again) {
  world_open();
  char *memory = world_get(PIECE_BYTES + 6 * MIB), *small = world_get(700 * KIB);
  world_fill(memory, PIECE_BYTES + 6 * MIB, 1);
  world_fill(small, 700 * KIB, 2);
  ck_assert_uint_eq(out_and_in(), PIECE_BYTES + 8 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), PIECE_BYTES + 8 * MIB); /* kept */
  ck_assert_uint_eq(swap_copies_bytes(0), PIECE_BYTES + 8 * MIB);
  for (int i = 0; i < 2; i++) {
    ck_assert_uint_eq(out_and_in(), 0);
    ck_assert(world_intact(memory, PIECE_BYTES + 6 * MIB, 1));
    ck_assert(world_intact(small, 700 * KIB, 2));
  }
  world_free(memory);
  world_free(small);
  backend_swap.close(0, true);
  world_settle(0, NULL); /* the block that is kept for small ones, too */
  ck_assert_uint_eq(slabs_used_bytes(), 0);
}
END_TEST

/* One byte, wherever it is. */
START_TEST(what_has_changed_is_copied) {
  static const uint64_t places[] = {0, 7, 8, 4 * MIB - 1, 4 * MIB, PIECE_BYTES - 1};
  uint64_t bytes = PIECE_BYTES + 2 * MIB, at = places[_i];
  world_open();
  char *memory = world_get(bytes);
  world_fill(memory, bytes, 1);
  out_and_in();
  memory[at] ^= 1;
  ck_assert_uint_eq(out_and_in(), PIECE_BYTES);
  memory[at] ^= 1;
  ck_assert(world_intact(memory, bytes, 1));
  ck_assert_uint_eq(out_and_in(), PIECE_BYTES);
  ck_assert_uint_eq(out_and_in(), 0);
  ck_assert(world_intact(memory, bytes, 1));
}
END_TEST

/* Words that have changed their places are a change: single ones, and pairs. */
START_TEST(the_order_of_words_counts) {
  world_open();
  uint64_t *words = world_get(PIECE_BYTES);
  world_fill(words, PIECE_BYTES, 1);
  out_and_in();
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i <= _i; i++) {
      uint64_t first = words[i], other = words[1000 + i];
      words[i] = other;
      words[1000 + i] = first;
    }
    ck_assert_uint_eq(out_and_in(), PIECE_BYTES);
  }
  ck_assert(world_intact(words, PIECE_BYTES, 1));
}
END_TEST

START_TEST(zeros_move_neither_way) {
  uint64_t before = copied(GS_SIM_copied_in_bytes), bytes = PIECE_BYTES + 2 * MIB;
  world_open();
  char *memory = world_get(bytes);
  ck_assert_uint_eq(out_and_in(), 0); /* new memory is all zero */
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  memset(memory, 1, bytes);
  memory[PIECE_BYTES] = 0;
  ck_assert_uint_eq(out_and_in(), bytes);
  ck_assert_uint_eq(copied(GS_SIM_copied_in_bytes) - before, bytes);
  memset(memory, 0, PIECE_BYTES);
  ck_assert_uint_eq(out_and_in(), 0);
  ck_assert_uint_eq(slabs_used_bytes(), 2 * MIB);
  ck_assert_uint_eq(copied(GS_SIM_copied_in_bytes) - before, bytes + 2 * MIB);
  for (uint64_t i = 0; i < bytes; i += 4 * KIB)
    ck_assert_int_eq(memory[i], i > PIECE_BYTES);
}
END_TEST

/* Physical memory that comes from elsewhere is not zero by itself. */
static CUresult dirty_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
  CUresult result = real.cuMemSetAccess(at, bytes, access, count);
  memset((void *)(uintptr_t)at, 0x55, bytes);
  return result;
}

START_TEST(zeros_come_back_on_used_memory) {
  world_open();
  char *memory = world_get(6 * MIB);
  driver.cuMemSetAccess = dirty_access;
  ck_assert_uint_eq(out_and_in(), 0);
  for (uint64_t i = 0; i < 6 * MIB; i += 8)
    ck_assert_int_eq(memory[i], 0);
}
END_TEST

/* What has come and leaves again before anything ran is known: nobody looks at it. */
START_TEST(what_has_just_come_is_known) {
  struct memory_moved moved = {0};
  world_open();
  char *memory = world_get(PIECE_BYTES + 2 * MIB);
  world_fill(memory, PIECE_BYTES + 2 * MIB, 1);
  backend_swap.close(0, true);
  world_settle(0, &moved);
  world_settle(UINT64_MAX, &moved);
  driver.cuLaunchKernel = NULL;
  moved = (struct memory_moved){0};
  world_settle(PIECE_BYTES, &moved);
  ck_assert_uint_eq(moved.out_bytes, 0);
  ck_assert_uint_eq(moved.spared_bytes, 2 * MIB);
  world_open();
  ck_assert(world_intact(memory, PIECE_BYTES + 2 * MIB, 1));
}
END_TEST

/* What a look has found before the space was open says nothing after that. */
START_TEST(what_was_found_does_not_outlast_the_opening) {
  struct memory_moved moved = {0};
  world_open();
  char *memory = world_get(PIECE_BYTES + 2 * MIB);
  world_fill(memory, PIECE_BYTES + 2 * MIB, 1);
  out_and_in();
  backend_swap.close(0, true);
  backend_swap.step(0, PIECE_BYTES, &moved); /* one is looked at, and leaves */
  world_settle(UINT64_MAX, &moved);
  world_open();
  world_fill(memory, PIECE_BYTES + 2 * MIB, 2);
  ck_assert_uint_eq(out_and_in(), PIECE_BYTES + 2 * MIB);
  ck_assert(world_intact(memory, PIECE_BYTES + 2 * MIB, 2));
}
END_TEST

/* More pieces than are looked at together: some are being looked at when no more is to leave. */
static char *leave_many(void) {
  struct memory_moved moved = {0};
  char *memory = NULL;
  world_open();
  for (int i = 0; i < HASH_MOST + 8; i++)
    memory = world_get(2 * MIB);
  world_fill(memory, 2 * MIB, 1);
  backend_swap.close(0, true);
  backend_swap.step(0, 0, &moved);
  ck_assert_uint_eq(space_of(0)->looks.count, 8);
  return memory;
}

START_TEST(no_look_is_under_way_in_an_open_space) {
  char *memory = leave_many();
  ck_assert(!backend_swap.open(0, true, false)); /* that would have to wait */
  world_open();
  ck_assert_uint_eq(space_of(0)->looks.count, 0);
  ck_assert(world_intact(memory, 2 * MIB, 1));
}
END_TEST

/* A block that goes while it is being looked at is waited for. */
START_TEST(a_free_in_the_middle_of_looks) {
  char *memory = leave_many();
  struct block *oldest = space_of(0)->oldest;
  ck_assert(oldest->piece[0].looking);
  world_free((void *)(uintptr_t)oldest->base);
  ck_assert_uint_eq(space_of(0)->looks.count, 0);
  world_settle(0, NULL);
  world_open();
  ck_assert(world_intact(memory, 2 * MIB, 1));
  world_check_books();
}
END_TEST

/* ---- what it costs ---- */

static unsigned launches;
static CUresult count_launch(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {
  launches++;
  return real.cuLaunchKernel(f, x, y, z, bx, by, bz, shared, stream, params, extra);
}

/* Three looks in vain, then 8 times none; one that finds out what there is, one in vain, then 16 times none.
 */
START_TEST(looks_in_vain_become_rare) {
  driver.cuLaunchKernel = count_launch;
  world_open();
  char *memory = world_get(2 * MIB);
  unsigned looked = 0, last = 0;
  for (uint64_t turn = 1; turn <= 1 + 3 + 8 + 2 + 16 + 2 + 32; turn++) {
    world_fill(memory, 2 * MIB, turn);
    ck_assert_uint_eq(out_and_in(), 2 * MIB);
    ck_assert(world_intact(memory, 2 * MIB, turn));
    looked += turn > 1 && launches != last; /* the first time, trials are launched as well */
    last = launches;
  }
  ck_assert_uint_eq(looked, 3 + 2 + 2);
  out_and_in(); /* finds out what there is now */
  ck_assert_uint_eq(out_and_in(), 0);
  ck_assert_uint_eq(out_and_in(), 0);
}
END_TEST

START_TEST(without_host_copies_nothing_is_looked_at) {
  copies_set_mode(GS_HOST_COPIES_OFF);
  driver.cuLaunchKernel = NULL;
  world_open();
  ck_assert_ptr_nonnull(world_get(6 * MIB));
  ck_assert_uint_eq(out_and_in(), 6 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  ck_assert_uint_eq(out_and_in(), 6 * MIB);
}
END_TEST

/* ---- host memory ---- */

static uint64_t keep_some(uint64_t bytes) {
  world_open();
  char *memory = world_get(bytes);
  world_fill(memory, bytes, 1);
  out_and_in();
  return (uintptr_t)memory;
}

START_TEST(scarce_host_memory_has_no_copies) {
  char *memory = (char *)(uintptr_t)keep_some(6 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 6 * MIB);
  ck_assert_uint_ne(copies_trim(1), UINT64_MAX);
  if (_i == 0)
    slabs_set_tight(true);
  else
    copies_set_mode(GS_HOST_COPIES_OFF);
  ck_assert_uint_eq(copies_trim(1), UINT64_MAX);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  ck_assert_uint_eq(out_and_in(), 6 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  ck_assert(world_intact(memory, 6 * MIB, 1));
}
END_TEST

START_TEST(a_host_that_lacks_plenty_keeps_none) {
  world.plentiful = false;
  keep_some(6 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  copies_set_mode(GS_HOST_COPIES_ON);
  ck_assert_uint_eq(out_and_in(), 6 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 6 * MIB);
  ck_assert_uint_eq(out_and_in(), 0);
}
END_TEST

/* Copies make way for what has to leave. */
START_TEST(copies_are_given_up_for_what_leaves) {
  char *memory = (char *)(uintptr_t)keep_some(28 * MIB);
  char *other = world_get(28 * MIB);
  world_fill(other, 28 * MIB, 2);
  world.host_bytes = 0;
  backend_swap.close(0, true);
  ck_assert_int_eq(world_settle(28 * MIB, NULL), MEMORY_SETTLED);
  ck_assert_uint_eq(backend_swap.resident_bytes(0), 28 * MIB);
  world_open();
  ck_assert(world_intact(memory, 28 * MIB, 1));
  ck_assert(world_intact(other, 28 * MIB, 2));
}
END_TEST

/* ---- faults ---- */

static CUresult refuse_launch(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {
  (void)f, (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz;
  (void)shared, (void)stream, (void)params, (void)extra;
  return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult forget_launch(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {
  refuse_launch(f, x, y, z, bx, by, bz, shared, stream, params, extra);
  return CUDA_SUCCESS;
}

/* It is refused, or does not compute what it should; from the start, or later. */
START_TEST(a_kernel_that_fails_is_done_without) {
  world_open();
  char *memory = world_get(6 * MIB);
  world_fill(memory, 6 * MIB, 1);
  if (_i == 2)
    out_and_in();
  driver.cuLaunchKernel = _i ? refuse_launch : forget_launch;
  ck_assert_uint_eq(out_and_in(), 6 * MIB);
  driver.cuLaunchKernel = real.cuLaunchKernel;
  ck_assert_uint_eq(out_and_in(), 6 * MIB);
  ck_assert(world_intact(memory, 6 * MIB, 1));
  world_check_books();
}
END_TEST

/* While work stands still, nothing is loaded; what was loaded before is used. */
START_TEST(nothing_is_loaded_while_work_stands_still) {
  world_open();
  char *memory = world_get(6 * MIB);
  world_fill(memory, 6 * MIB, 1);
  if (_i)
    backend_swap.prepare_stop(0);
  world.stopped = true;
  out_and_in();
  ck_assert_uint_eq(out_and_in(), _i ? 0 : 6 * MIB);
  ck_assert(world_intact(memory, 6 * MIB, 1));
}
END_TEST

/* The kernel goes with its context; the copies stay right. */
START_TEST(another_context_looks_on) {
  char *memory = (char *)(uintptr_t)keep_some(6 * MIB);
  CUcontext other;
  ck_assert_int_eq(real.cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  ck_assert_uint_eq(out_and_in(), 0);
  backend_swap.context_leaving(other);
  ck_assert_int_eq(real.cuCtxDestroy_v2(other), CUDA_SUCCESS);
  ck_assert_int_eq(real.cuCtxPushCurrent_v2(world.context[0]), CUDA_SUCCESS);
  ck_assert_uint_eq(out_and_in(), 0);
  ck_assert(world_intact(memory, 6 * MIB, 1));
}
END_TEST

/* Its handle may be that of the next context. */
START_TEST(nothing_is_kept_of_a_context_without_memory) {
  char *memory = (char *)(uintptr_t)keep_some(6 * MIB);
  world_free(memory);
  ck_assert_uint_eq(backend_swap.needed_bytes(0), 0);
  ck_assert_ptr_eq(space_of(0)->looks.hasher.context, world.context[0]);
  backend_swap.context_leaving(world.context[0]);
  ck_assert_ptr_null(space_of(0)->looks.hasher.context);
  ck_assert_ptr_null(space_of(0)->mover.context);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("copies");
  TCase *cases = tcase_create("copies");
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  tcase_add_checked_fixture(cases, setup, world_end);
  tcase_add_test(cases, what_has_not_changed_is_not_copied_again);
  tcase_add_loop_test(cases, what_has_changed_is_copied, 0, 6);
  tcase_add_loop_test(cases, the_order_of_words_counts, 0, 2);
  tcase_add_test(cases, zeros_move_neither_way);
  tcase_add_test(cases, zeros_come_back_on_used_memory);
  tcase_add_test(cases, what_has_just_come_is_known);
  tcase_add_test(cases, what_was_found_does_not_outlast_the_opening);
  tcase_add_test(cases, no_look_is_under_way_in_an_open_space);
  tcase_add_test(cases, a_free_in_the_middle_of_looks);
  tcase_add_test(cases, looks_in_vain_become_rare);
  tcase_add_test(cases, without_host_copies_nothing_is_looked_at);
  tcase_add_loop_test(cases, scarce_host_memory_has_no_copies, 0, 2);
  tcase_add_test(cases, a_host_that_lacks_plenty_keeps_none);
  tcase_add_test(cases, copies_are_given_up_for_what_leaves);
  tcase_add_loop_test(cases, a_kernel_that_fails_is_done_without, 0, 3);
  tcase_add_loop_test(cases, nothing_is_loaded_while_work_stands_still, 0, 2);
  tcase_add_test(cases, another_context_looks_on);
  tcase_add_test(cases, nothing_is_kept_of_a_context_without_memory);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
