/* test_backend.c - which memory stands behind the program's allocations, and the room as a whole. */
#include <check.h>

#include "../suite.h"
#include "driver/hooks.h"
#include "fake.h"
#include "gpushare/protocol.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/memory.h"
#include "memory/pinned.h"
#include "memory/reach.h"
#include "memory/swap/slabs.h"
#include "memory/swap/swap.h"

#define MIB (UINT64_C(1) << 20)

static CUdeviceptr get(size_t bytes) {
  CUdeviceptr address = 0;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
  return address;
}

static CUdeviceptr get_async(size_t bytes) {
  CUdeviceptr address = 0;
  ck_assert_int_eq(hook_cuMemAllocAsync(&address, bytes, NULL), CUDA_SUCCESS);
  return address;
}

static void start(int mode) {
  fake_set_memory(mode);
  ck_assert(memory_open(0, 0));
}

static void expect_usage(uint64_t total, uint64_t pinned, uint64_t resident) {
  struct memory_usage usage = memory_usage(0);
  ck_assert_uint_eq(usage.total_bytes, total);
  ck_assert_uint_eq(usage.pinned_bytes, pinned);
  ck_assert_uint_eq(usage.resident_bytes, resident);
}

static struct memory_moved settle(uint64_t room_bytes) {
  struct memory_moved moved = {0};
  enum memory_progress progress;
  int steps = 0;
  while ((progress = memory_step(0, room_bytes, &moved)) == MEMORY_MOVED)
    ck_assert_int_lt(++steps, 1000);
  ck_assert_int_eq(progress, MEMORY_SETTLED);
  return moved;
}

/* The choice. */

START_TEST(the_environment_says_it_else_the_daemon) {
  static const struct {
    int set;
    int daemon;
    const struct backend *expected;
  } rows[] = {{GS_MEMORY_MANAGED, GS_MEMORY_OFF, &backend_managed},
              {GS_MEMORY_SWAP, GS_MEMORY_OFF, &backend_swap},
              {GS_MEMORY_OFF, GS_MEMORY_SWAP, &backend_pinned},
              {MEMORY_UNSET, GS_MEMORY_SWAP, &backend_swap},
              {MEMORY_UNSET, GS_MEMORY_OFF, &backend_pinned},
              {MEMORY_UNSET, GS_MEMORY_MANAGED, &backend_managed},
              {MEMORY_UNSET, 99, &backend_managed}};
  fake_set_memory(rows[_i].set);
  fake.daemon_memory = rows[_i].daemon;
  ck_assert_ptr_eq(backend_on(0), rows[_i].expected);
  ck_assert_uint_eq(fake.mode_questions, rows[_i].set == MEMORY_UNSET);
  fake.daemon_memory = (rows[_i].daemon + 1) % 3; /* too late */
  ck_assert_ptr_eq(backend_on(0), rows[_i].expected);
  ck_assert_uint_eq(fake.mode_questions, rows[_i].set == MEMORY_UNSET);
  forked_forget_all();
  backend_on(0);
  ck_assert_uint_eq(fake.mode_questions, 2 * (rows[_i].set == MEMORY_UNSET));
}
END_TEST

START_TEST(what_the_device_cannot_do_it_does_not) {
  fake_set_memory(GS_MEMORY_SWAP);
  fake.no_mapping = true;
  fake.no_concurrent_access = _i;
  ck_assert_ptr_eq(backend_on(0), _i ? &backend_pinned : &backend_managed);
  get(4 * MIB);
  ck_assert_uint_eq(fake.managed_allocs, !_i);
  ck_assert_uint_eq(fake.plain_allocs, _i);
}
END_TEST

/* Allocations. */

START_TEST(plain_memory_comes_and_goes_by_the_piece) {
  start(GS_MEMORY_SWAP);
  CUdeviceptr address = get(40 * MIB);
  ck_assert_uint_eq(fake.plain_allocs + fake.managed_allocs, 0);
  ck_assert_uint_eq(fake.mapped_bytes, 40 * MIB);
  expect_usage(40 * MIB, 0, 40 * MIB);
  ck_assert_int_eq(hook_cuMemFree_v2(address), CUDA_SUCCESS);
  ck_assert_uint_eq(fake.frees, 0); /* the driver does not know it */
  ck_assert_uint_eq(fake.context_synchronizations, 1);
  ck_assert_uint_eq(swap_drop_spares(0), 40 * MIB);
  ck_assert_uint_eq(fake.mapped_bytes + fake.reserved_ranges, 0);
  expect_usage(0, 0, 0);
}
END_TEST

START_TEST(pitched_memory_too) {
  CUdeviceptr address;
  size_t pitch;
  start(GS_MEMORY_SWAP);
  ck_assert_int_eq(hook_cuMemAllocPitch_v2(&address, &pitch, 1000, 4096, 4), CUDA_SUCCESS);
  ck_assert_uint_eq(pitch, 1024);
  ck_assert_uint_eq(fake.mapped_bytes, 4 * MIB);
  ck_assert_int_eq(hook_cuMemFree_v2(address), CUDA_SUCCESS);
  swap_drop_spares(0);
  ck_assert_uint_eq(fake.mapped_bytes, 0);
}
END_TEST

START_TEST(the_card_is_told_as_its_own) {
  size_t left, total;
  start(GS_MEMORY_SWAP);
  CUdeviceptr address = get(40 * MIB);
  ck_assert_int_eq(hook_cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
  ck_assert_uint_eq(total, FAKE_CARD_BYTES);
  ck_assert_uint_eq(left, FAKE_CARD_BYTES - 40 * MIB);
  ck_assert_int_eq(hook_cuMemFree_v2(address), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
  ck_assert_uint_eq(left, FAKE_CARD_BYTES);
  ck_assert_uint_eq(swap_spare_bytes(0), 40 * MIB);
}
END_TEST

START_TEST(spares_make_way_for_what_stays) {
  start(GS_MEMORY_SWAP);
  ck_assert_int_eq(hook_cuMemFree_v2(get(40 * MIB)), CUDA_SUCCESS);
  ck_assert_uint_eq(swap_spare_bytes(0), 40 * MIB);
  ck_assert_int_eq(pinned_reserve(0, BACKING_PINNED_OTHER, FAKE_CARD_BYTES), 0);
  ck_assert_uint_eq(swap_spare_bytes(0), 0);
}
END_TEST

START_TEST(a_free_in_stream_order_waits_for_the_stream) {
  start(GS_MEMORY_SWAP);
  CUdeviceptr address = get(8 * MIB);
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
  ck_assert_uint_eq(fake.stream_frees, 0);
  get(2 * MIB); /* looks whether something is due */
  ck_assert_uint_eq(fake.mapped_bytes, 10 * MIB);
  fake.events_pending = false;
  get(2 * MIB);
  swap_drop_spares(0);
  ck_assert_uint_eq(fake.mapped_bytes, 4 * MIB);
  ck_assert_uint_eq(fake.context_synchronizations, 0);
  ck_assert_uint_eq(fake.strict_calls, 0);
}
END_TEST

START_TEST(pools_stay_managed_where_the_driver_has_such) {
  start(GS_MEMORY_SWAP);
  CUdeviceptr address = get_async(8 * MIB);
  ck_assert_int_eq(fake_kind(address), FAKE_MANAGED_POOL);
  ck_assert_uint_eq(fake.mapped_bytes, 0);
  expect_usage(8 * MIB, 0, 8 * MIB);
  ck_assert_int_eq(hook_cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
  expect_usage(0, 0, 0);
}
END_TEST

START_TEST(emulated_pools_draw_on_swap_memory) {
  CUmemoryPool pool;
  fake.no_managed_pools = _i == 0;
  fake.no_concurrent_access = _i == 1; /* nothing could page it */
  start(GS_MEMORY_SWAP);
  CUdeviceptr address = get_async(8 * MIB);
  ck_assert_uint_eq(fake.mapped_bytes, 8 * MIB);
  ck_assert_int_eq(hook_cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address),
                   CUDA_SUCCESS);
  ck_assert_ptr_eq(pool, FAKE_DEFAULT_POOL);
  ck_assert_int_eq(hook_cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
  get(2 * MIB);
  swap_drop_spares(0);
  ck_assert_uint_eq(fake.mapped_bytes, 2 * MIB);
}
END_TEST

START_TEST(a_context_takes_its_memory_along) {
  start(GS_MEMORY_SWAP);
  get(8 * MIB);
  CUdeviceptr address = get(4 * MIB);
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
  memory_context_destroyed(FAKE_OTHER_CONTEXT);
  ck_assert_uint_eq(fake.mapped_bytes, 12 * MIB);
  memory_context_destroyed(FAKE_CONTEXT);
  ck_assert_uint_eq(fake.mapped_bytes + fake.reserved_ranges, 0);
  ck_assert_uint_ge(fake.context_synchronizations, 1);
  expect_usage(0, 0, 0);
}
END_TEST

START_TEST(a_free_waits_for_a_stream_whose_context_ends) {
  start(GS_MEMORY_SWAP);
  CUdeviceptr address = get(4 * MIB);
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, FAKE_OTHER_STREAM), CUDA_SUCCESS);
  memory_context_destroyed(FAKE_OTHER_CONTEXT);
  ck_assert_uint_eq(fake.context_synchronizations, 1);
  ck_assert_uint_eq(fake.mapped_bytes, 0);
  expect_usage(0, 0, 0);
}
END_TEST

/* The room as a whole. */

START_TEST(the_process_runs_when_everything_is_there) {
  start(GS_MEMORY_SWAP);
  get(64 * MIB);
  memory_close(0, true);
  struct memory_moved moved = settle(40 * MIB);
  ck_assert_uint_eq(moved.out_bytes, 32 * MIB);
  expect_usage(64 * MIB, 0, 32 * MIB);
  ck_assert(!memory_open(0, 0));
  moved = settle(63 * MIB);
  ck_assert_uint_eq(moved.in_bytes, 0);
  moved = settle(64 * MIB);
  ck_assert_uint_eq(moved.in_bytes, 32 * MIB);
  ck_assert(memory_open(0, 64 * MIB));
  get(2 * MIB);
  ck_assert_uint_eq(fake.mapped_bytes, 66 * MIB);
}
END_TEST

START_TEST(unified_memory_opens_with_enough) {
  start(GS_MEMORY_MANAGED);
  get(64 * MIB);
  memory_close(0, true);
  ck_assert_uint_eq(settle(32 * MIB).out_bytes, 32 * MIB);
  expect_usage(64 * MIB, 0, 32 * MIB);
  ck_assert(!memory_open(0, 33 * MIB));
  ck_assert(memory_open(0, 32 * MIB));
  ck_assert_uint_eq(settle(UINT64_MAX).in_bytes, 32 * MIB);
  ck_assert(memory_open(0, UINT64_MAX)); /* nothing is away */
}
END_TEST

START_TEST(pinned_memory_takes_of_the_room) {
  CUDA_ARRAY_DESCRIPTOR shape = {
      .Width = 1024, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
  CUarray array;
  start(GS_MEMORY_SWAP);
  ck_assert_int_eq(hook_cuArrayCreate_v2(&array, &shape), CUDA_SUCCESS);
  get(32 * MIB);
  get(32 * MIB);
  expect_usage(72 * MIB, 8 * MIB, 72 * MIB);
  memory_close(0, true);
  settle(64 * MIB);
  expect_usage(72 * MIB, 8 * MIB, 40 * MIB);
  settle(0);
  expect_usage(72 * MIB, 8 * MIB, 8 * MIB);
  settle(UINT64_MAX);
  expect_usage(72 * MIB, 8 * MIB, 72 * MIB);
}
END_TEST

START_TEST(unified_memory_makes_way_for_swap_memory) {
  start(GS_MEMORY_SWAP);
  get(64 * MIB);
  get_async(32 * MIB);
  expect_usage(96 * MIB, 0, 96 * MIB);
  memory_close(0, true);
  settle(80 * MIB); /* half of the unified memory leaves */
  ck_assert_uint_eq(fake.mapped_bytes, 64 * MIB);
  ck_assert_uint_eq(fake_away_bytes(), 16 * MIB);
  ck_assert(memory_open(0, 80 * MIB));
  memory_close(0, true);
  settle(40 * MIB);
  ck_assert_uint_eq(fake.mapped_bytes, 32 * MIB);
  ck_assert_uint_eq(fake_away_bytes(), 32 * MIB);
  settle(96 * MIB);
  expect_usage(96 * MIB, 0, 96 * MIB);
}
END_TEST

static unsigned refused_moves;
static void count_move(void) { refused_moves++; }

START_TEST(what_the_driver_refuses_is_tried_once_in_a_step) {
  struct memory_moved moved = {0};
  start(GS_MEMORY_MANAGED);
  get(64 * MIB);
  memory_close(0, true);
  fake.refuse_prefetch = CUDA_ERROR_OUT_OF_MEMORY;
  fake.on_prefetch = count_move;
  ck_assert_int_eq(memory_step(0, 0, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(refused_moves, 1);
}
END_TEST

START_TEST(host_memory_is_made_ready_while_moves_may_come) {
  start(GS_MEMORY_SWAP);
  get(64 * MIB);
  memory_set_host_tight(true);
  memory_expect_moves(0, true);
  ck_assert_uint_eq(slabs_pinned_bytes(), 0);
  memory_close(0, true);
  settle(0);
  ck_assert_uint_eq(slabs_used_bytes(), 64 * MIB);
  ck_assert_uint_eq(memory_run_timers(UINT64_MAX), UINT64_MAX); /* all of it is in use */
}
END_TEST

/* Peers. */

static void expect_access(unsigned calls, CUmemAccess_flags flags) {
  ck_assert_uint_eq(fake.access_calls, calls);
  ck_assert_int_eq(fake.last_access.location.id, 1);
  ck_assert_int_eq(fake.last_access.flags, flags);
}

START_TEST(a_peer_reaches_swap_memory_once_the_program_has_said_so) {
  start(GS_MEMORY_SWAP);
  get(4 * MIB);
  ck_assert_uint_eq(fake.access_calls, 1);
  fake.current_device = 1; /* it is the second device that wants to reach the first one's memory */
  ck_assert_int_eq(hook_cuCtxEnablePeerAccess(FAKE_CONTEXT, 0), CUDA_SUCCESS);
  expect_access(2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ck_assert_int_eq(hook_cuCtxEnablePeerAccess(FAKE_OTHER_CONTEXT, 0), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuCtxDisablePeerAccess(FAKE_CONTEXT), CUDA_SUCCESS);
  expect_access(2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE); /* another pair of contexts still has it */
  ck_assert(fake.linked);
  fake.current_device = 0;
  get(4 * MIB); /* new memory is open to it from the start */
  expect_access(3, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  fake.current_device = 1;
  ck_assert_int_eq(hook_cuCtxDisablePeerAccess(FAKE_OTHER_CONTEXT), CUDA_SUCCESS);
  expect_access(5, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ck_assert(!fake.linked);
  ck_assert_int_eq(hook_cuCtxDisablePeerAccess(FAKE_OTHER_CONTEXT), CUDA_SUCCESS);
  expect_access(5, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}
END_TEST

/* Page faults bring what is missing. */
START_TEST(a_peer_need_not_wait_for_unified_memory) {
  start(GS_MEMORY_MANAGED);
  fake.current_device = 1;
  ck_assert_int_eq(hook_cuCtxEnablePeerAccess(FAKE_CONTEXT, 0), CUDA_SUCCESS);
  ck_assert(!fake.linked);
}
END_TEST

START_TEST(what_the_driver_refuses_changes_no_access) {
  start(GS_MEMORY_SWAP);
  get(4 * MIB);
  hook_cuCtxEnablePeerAccess(FAKE_CONTEXT, 0); /* the device itself */
  hook_cuCtxEnablePeerAccess((CUcontext)0x999, 0);
  fake.current_device = 1;
  fake.refuse_peer = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  ck_assert_int_eq(hook_cuCtxEnablePeerAccess(FAKE_CONTEXT, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  ck_assert_uint_eq(fake.access_calls, 1);
}
END_TEST

/* Small ones, which stay on the card under GS_MEMORY_MANAGED. */

static void start_with_small(int gpus) {
  fake.gpus = gpus;
  start(GS_MEMORY_MANAGED);
}

START_TEST(small_ones_are_mapped_and_stay) {
  start_with_small(1);
  CUdeviceptr word = get(4), two = get(2 * MIB), large = get(2 * MIB + 1);
  ck_assert_uint_eq(fake.managed_allocs, 1);
  ck_assert_uint_eq(fake.mapped_bytes, 4 * MIB);
  ck_assert_uint_eq(get(100), word + 512); /* beside it */
  expect_usage(6 * MIB + 1, 4 * MIB, 6 * MIB + 1);
  settle(0);
  expect_usage(6 * MIB + 1, 4 * MIB, 4 * MIB);
  ck_assert_uint_eq(fake.mapped_bytes, 4 * MIB);
  ck_assert(memory_open(0, 0));
  ck_assert_uint_eq(fake.context_synchronizations, 0);
  ck_assert_int_eq(hook_cuMemFree_v2(two), CUDA_SUCCESS);
  ck_assert_uint_eq(fake.context_synchronizations, 1);
  ck_assert_int_eq(hook_cuMemFree_v2(word), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemFree_v2(word + 512), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemFree_v2(large), CUDA_SUCCESS);
  ck_assert_uint_eq(fake.mapped_bytes + fake.reserved_ranges, 0);
  expect_usage(0, 0, 0);
}
END_TEST

/* Not before the process may run, for a flag may be what it waits with. */
START_TEST(small_ones_are_there_at_once) {
  fake.gpus = 1;
  fake_set_memory(GS_MEMORY_MANAGED);
  memory_close(0, true);
  get(4);
  ck_assert_uint_eq(fake.mapped_bytes, 2 * MIB);
}
END_TEST

START_TEST(what_stays_is_bounded) {
  start_with_small(1);
  for (int i = 0; i < 100; i++)
    get(2 * MIB);
  ck_assert_uint_eq(fake.mapped_bytes, 32 * MIB);
  ck_assert_uint_eq(fake.managed_allocs, 100 - 16);
  for (int i = 0; i < 100; i++)
    get(MIB - 512);
  ck_assert_uint_eq(fake.mapped_bytes, 64 * MIB);
  ck_assert_uint_eq(fake.managed_allocs, 100 - 16 + 100 - 32);
}
END_TEST

START_TEST(small_ones_are_unified_where_they_can_be_nothing_else) {
  fake.gpus = _i == 0 ? 2 : 1;
  fake.no_peers = _i == 0;
  fake.no_mapping = _i == 1;
  start(GS_MEMORY_MANAGED);
  if (_i == 2)
    get(memory_usage(0).total_bytes + FAKE_CARD_BYTES - MIB);
  unsigned before = fake.managed_allocs;
  get(4);
  ck_assert_uint_eq(fake.managed_allocs, before + 1);
  ck_assert_uint_eq(fake.mapped_bytes, 0);
}
END_TEST

START_TEST(every_gpu_reaches_small_ones) {
  start_with_small(3);
  get(4);
  ck_assert_int_eq(fake.last_access.location.id, 2);
  ck_assert_int_eq(fake.last_access.flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}
END_TEST

START_TEST(a_context_takes_small_ones_along) {
  start_with_small(1);
  get(4);
  get(2 * MIB);
  memory_context_destroyed(FAKE_CONTEXT);
  ck_assert_uint_eq(fake.mapped_bytes + fake.reserved_ranges, 0);
  expect_usage(0, 0, 0);
}
END_TEST

/* Natively a copy is checked to the byte. */
START_TEST(a_copy_beyond_an_allocation_is_known) {
  if (_i)
    start(GS_MEMORY_SWAP);
  else
    start_with_small(1);
  CUdeviceptr word = get(100), next = get(100);
  ck_assert(!reach_range(word, 100).beyond);
  ck_assert(!reach_range(word + 99, 1).beyond);
  ck_assert(!reach_range(word + 100, 0).beyond);
  ck_assert(reach_range(word, 101).beyond);
  ck_assert(reach_range(word + 100, 1).beyond);
  ck_assert(reach_range(word, UINT64_MAX).beyond);
  ck_assert(!reach_range(1 << 20, 100).beyond);
  ck_assert_uint_eq(reach_range(word, 100).gpus, _i);
  ck_assert(reach_pair(next, word, 101).beyond);
  ck_assert(reach_pair(1 << 20, next, 101).beyond);
  ck_assert(!reach_set(word, 32, 4, 1, 4).beyond);
  ck_assert(reach_set(word, 32, 4, 2, 4).beyond);
  ck_assert(reach_set(word, UINT64_MAX / 2, 4, 1, 4).beyond);
  hook_cuMemFree_v2(word);
  ck_assert(reach_range(word, 1).beyond);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("backend");
  TCase *cases = tcase_create("backend");
  tcase_add_checked_fixture(cases, fake_install, NULL);
  tcase_add_loop_test(cases, the_environment_says_it_else_the_daemon, 0, 7);
  tcase_add_loop_test(cases, what_the_device_cannot_do_it_does_not, 0, 2);
  tcase_add_test(cases, plain_memory_comes_and_goes_by_the_piece);
  tcase_add_test(cases, pitched_memory_too);
  tcase_add_test(cases, the_card_is_told_as_its_own);
  tcase_add_test(cases, spares_make_way_for_what_stays);
  tcase_add_test(cases, a_free_in_stream_order_waits_for_the_stream);
  tcase_add_test(cases, pools_stay_managed_where_the_driver_has_such);
  tcase_add_loop_test(cases, emulated_pools_draw_on_swap_memory, 0, 2);
  tcase_add_test(cases, a_context_takes_its_memory_along);
  tcase_add_test(cases, a_free_waits_for_a_stream_whose_context_ends);
  tcase_add_test(cases, the_process_runs_when_everything_is_there);
  tcase_add_test(cases, unified_memory_opens_with_enough);
  tcase_add_test(cases, pinned_memory_takes_of_the_room);
  tcase_add_test(cases, unified_memory_makes_way_for_swap_memory);
  tcase_add_test(cases, what_the_driver_refuses_is_tried_once_in_a_step);
  tcase_add_test(cases, host_memory_is_made_ready_while_moves_may_come);
  tcase_add_test(cases, a_peer_reaches_swap_memory_once_the_program_has_said_so);
  tcase_add_test(cases, a_peer_need_not_wait_for_unified_memory);
  tcase_add_test(cases, what_the_driver_refuses_changes_no_access);
  tcase_add_test(cases, small_ones_are_mapped_and_stay);
  tcase_add_test(cases, small_ones_are_there_at_once);
  tcase_add_test(cases, what_stays_is_bounded);
  tcase_add_loop_test(cases, small_ones_are_unified_where_they_can_be_nothing_else, 0, 3);
  tcase_add_test(cases, every_gpu_reaches_small_ones);
  tcase_add_test(cases, a_context_takes_small_ones_along);
  tcase_add_loop_test(cases, a_copy_beyond_an_allocation_is_known, 0, 2);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
