/* test_residency.c - moving memory out of the card and back. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../suite.h"
#include "fake.h"
#include "interpose/hooks.h"
#include "memory/account.h"
#include "memory/memory.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static CUdeviceptr get(size_t bytes) {
  CUdeviceptr address = 0;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
  return address;
}

/* What the books say; and it must be what the driver has been told. */
static uint64_t resident(void) {
  struct memory_usage usage = memory_usage(0);
  if (fake_gate_open)
    ck_assert_uint_eq(usage.total_bytes - usage.pinned_bytes - usage.resident_bytes, fake_away_bytes());
  return usage.resident_bytes;
}

static void setup(void) {
  fake_install();
  fake = (struct fake){0};
}

START_TEST(out_and_back) {
  get(3 * GIB);
  for (int i = 0; i < 10; i++)
    get(10 * MIB + 512);
  uint64_t all = resident();
  ck_assert_uint_eq(all, 3 * GIB + 10 * (10 * MIB + 512));
  ck_assert_uint_eq(memory_evict(0, UINT64_MAX), all);
  ck_assert_uint_eq(fake.bytes_out, all);
  ck_assert_uint_eq(resident(), 0);
  ck_assert_uint_eq(memory_usage(0).total_bytes, all);
  ck_assert_uint_eq(memory_evict(0, UINT64_MAX), 0);
  uint64_t before = fake.bytes_in;
  ck_assert_uint_eq(memory_restore(0), all);
  ck_assert_uint_eq(fake.bytes_in - before, all);
  ck_assert_uint_eq(resident(), all);
  ck_assert_uint_eq(memory_restore(0), 0);
  ck_assert_uint_gt(fake.synchronizations, 3); /* what is queued is bounded */
  ck_assert_uint_eq(fake.strict_calls, 0);
  ck_assert_int_eq(fake.mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
END_TEST

START_TEST(many_small_ones_come_in_together) {
  for (int i = 0; i < 300; i++)
    get(2 * MIB);
  ck_assert_uint_eq(memory_evict(0, UINT64_MAX), 600 * MIB);
  fake.refuse_batch = _i == 1; /* one by one, then */
  ck_assert_uint_eq(memory_restore(0), 600 * MIB);
  ck_assert_uint_eq(resident(), 600 * MIB);
  ck_assert_uint_eq(fake.batches, _i == 1 ? 0 : 3);
}
END_TEST

START_TEST(only_as_much_as_asked_for_in_whole_pages) {
  get(GIB);
  get(2 * GIB);
  ck_assert_uint_eq(memory_evict(0, 5 * MIB), 6 * MIB);
  ck_assert_uint_eq(memory_evict(0, 2 * GIB), 2 * GIB);
  ck_assert_uint_eq(resident(), GIB - 6 * MIB);
  ck_assert_uint_eq(memory_restore(0), 2 * GIB + 6 * MIB);
  ck_assert_uint_eq(resident(), 3 * GIB);
}
END_TEST

START_TEST(pinned_memory_stays_and_the_programs_own_goes_last) {
  CUdeviceptr own;
  CUDA_ARRAY_DESCRIPTOR shape = {
      .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUarray array;
  ck_assert_int_eq(hook_cuMemAllocManaged(&own, 64 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuArrayCreate_v2(&array, &shape), CUDA_SUCCESS);
  CUdeviceptr converted = get(2 * MIB);
  ck_assert_uint_eq(memory_evict(0, 2 * MIB), 2 * MIB);
  ck_assert_int_eq(hook_cuMemFree_v2(converted), CUDA_SUCCESS);
  ck_assert_uint_eq(resident(), 64 * MIB);
  ck_assert_uint_eq(memory_evict(0, UINT64_MAX), 64 * MIB);
  ck_assert_uint_eq(memory_usage(0).pinned_bytes, 4 * MIB);
}
END_TEST

START_TEST(memory_made_while_others_hold_the_card_comes_with_the_grant) {
  fake_gate_open = false;
  get(8 * MIB);
  ck_assert_uint_eq(fake.prefetches_in, 0);
  ck_assert_uint_eq(resident(), 0);
  ck_assert_uint_eq(memory_restore(0), 8 * MIB);
  ck_assert_uint_eq(fake.bytes_in, 8 * MIB);
}
END_TEST

START_TEST(no_more_comes_back_than_the_card_holds) {
  CUdeviceptr own;
  get(15 * GIB);
  ck_assert_int_eq(hook_cuMemAllocManaged(&own, 3 * GIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ck_assert_uint_eq(memory_evict(0, UINT64_MAX), 18 * GIB);
  ck_assert_uint_eq(memory_restore(0), 16 * GIB);
  ck_assert_uint_eq(resident(), 16 * GIB);
}
END_TEST

START_TEST(a_failing_move_ends_and_is_not_counted) {
  get(GIB);
  fake.refuse_prefetch = CUDA_ERROR_OUT_OF_MEMORY;
  ck_assert_uint_eq(memory_evict(0, UINT64_MAX), 0);
  ck_assert_uint_eq(resident(), GIB);
}
END_TEST

static CUdeviceptr doomed[64];
static atomic_int freed, started;
static pthread_t freer;

static void *free_all(void *argument) {
  (void)argument;
  for (int i = 0; i < 64; i++)
    ck_assert_int_eq(hook_cuMemFree_v2(doomed[i]), CUDA_SUCCESS);
  atomic_store(&freed, 1);
  return NULL;
}

static void free_meanwhile(void) {
  if (!atomic_exchange(&started, 1))
    pthread_create(&freer, NULL, free_all, NULL);
}

/* A prefetch of memory that is gone would be refused by the fake, as by the driver. */
START_TEST(frees_during_a_move) {
  for (int i = 0; i < 64; i++)
    doomed[i] = get(64 * MIB);
  fake.on_prefetch = free_meanwhile;
  uint64_t moved = memory_evict(0, UINT64_MAX);
  pthread_join(freer, NULL);
  ck_assert_uint_eq(moved, fake.bytes_out);
  ck_assert_int_eq(atomic_load(&freed), 1);
  ck_assert_uint_eq(memory_usage(0).total_bytes, 0);
  ck_assert_uint_eq(resident(), 0);
  fake.on_prefetch = NULL;
  CUdeviceptr next = get(MIB); /* nothing of the old is left in the books */
  ck_assert_uint_eq(resident(), MIB);
  ck_assert_int_eq(hook_cuMemFree_v2(next), CUDA_SUCCESS);
}
END_TEST

START_TEST(a_forked_child_knows_nothing) {
  static struct ledger_node *volatile parents; /* what the child abandons is not a leak */
  get(GIB);
  memory_evict(0, GIB);
  parents = account_addresses.root;
  memory_fork_child();
  ck_assert_uint_eq(memory_usage(0).total_bytes, 0);
  ck_assert_uint_eq(memory_restore(0), 0);
  ck_assert_ptr_nonnull(parents);
  get(MIB);
  ck_assert_uint_eq(memory_usage(0).resident_bytes, MIB);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("residency");
  TCase *cases = tcase_create("residency");
  tcase_set_timeout(cases, 60);
  tcase_add_checked_fixture(cases, setup, NULL);
  tcase_add_test(cases, out_and_back);
  tcase_add_loop_test(cases, many_small_ones_come_in_together, 0, 2);
  tcase_add_test(cases, only_as_much_as_asked_for_in_whole_pages);
  tcase_add_test(cases, pinned_memory_stays_and_the_programs_own_goes_last);
  tcase_add_test(cases, memory_made_while_others_hold_the_card_comes_with_the_grant);
  tcase_add_test(cases, no_more_comes_back_than_the_card_holds);
  tcase_add_test(cases, a_failing_move_ends_and_is_not_counted);
  tcase_add_test(cases, frees_during_a_move);
  tcase_add_test(cases, a_forked_child_knows_nothing);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
