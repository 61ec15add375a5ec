/* test_residency.c - moving memory out of the card and back. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../suite.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "fake.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/budget.h"
#include "memory/memory.h"
#include "memory/placement.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static CUdeviceptr get(size_t bytes) {
  CUdeviceptr address = 0;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
  return address;
}

/* What the books say; and it must be what the driver has been told. */
static uint64_t resident(void) {
  if (fake_gate_open)
    ck_assert_uint_eq(account_away_bytes(0), fake_away_bytes());
  return account_unified_bytes(0);
}

/* Steps up to the end; what they have moved. */
static struct memory_moved move_to(uint64_t room_bytes) {
  struct memory_moved moved = {.out_bytes = 0};
  enum memory_progress progress;
  do
    progress = backend_managed.step(0, room_bytes, &moved);
  while (progress == MEMORY_MOVED);
  ck_assert_int_eq(progress, MEMORY_SETTLED);
  return moved;
}

static uint64_t leave(uint64_t room_bytes) {
  struct memory_moved moved = move_to(room_bytes);
  ck_assert_uint_eq(moved.in_bytes, 0);
  return moved.out_bytes;
}

static uint64_t come(uint64_t room_bytes) {
  struct memory_moved moved = move_to(room_bytes);
  ck_assert_uint_eq(moved.out_bytes, 0);
  return moved.in_bytes;
}

static void setup(void) {
  fake_install();
  fake = (struct fake){0};
}

START_TEST(many_small_ones_come_in_together) {
  for (int i = 0; i < 300; i++)
    get(2 * MIB);
  ck_assert_uint_eq(leave(0), 600 * MIB);
  fake.refuse_batch = _i == 1; /* one by one, then */
  ck_assert_uint_eq(come(UINT64_MAX), 600 * MIB);
  ck_assert_uint_eq(resident(), 600 * MIB);
  ck_assert_uint_eq(fake.batches, _i == 1 ? 0 : 3);
}
END_TEST

/* In the order in which it was made. */
START_TEST(the_oldest_comes_first) {
  CUdeviceptr first = get(8 * MIB);
  get(64 * MIB);
  leave(0);
  ck_assert_uint_eq(come(8 * MIB), 8 * MIB);
  struct allocation found;
  ck_assert(ledger_find(&account_addresses, first, &found));
  ck_assert_uint_eq(found.away_bytes, 0);
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
  ck_assert_uint_eq(leave(64 * MIB), 2 * MIB);
  ck_assert_int_eq(hook_cuMemFree_v2(converted), CUDA_SUCCESS);
  ck_assert_uint_eq(resident(), 64 * MIB);
  ck_assert_uint_eq(leave(0), 64 * MIB);
  ck_assert_uint_eq(memory_usage(0).pinned_bytes, 4 * MIB);
}
END_TEST

/* The program's own unified memory, and what it says about parts of it. */

#define OWN_PAGES 64
#define PAGE_BYTES (2 * MIB)

static CUdeviceptr get_own(void) {
  CUdeviceptr own;
  ck_assert_int_eq(hook_cuMemAllocManaged(&own, OWN_PAGES * PAGE_BYTES, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  return own;
}

static void prefer(CUdeviceptr own, unsigned from, unsigned end, CUdevice device) {
  ck_assert_int_eq(hook_cuMemAdvise(own + from * PAGE_BYTES, (end - from) * PAGE_BYTES,
                                    CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device),
                   CUDA_SUCCESS);
}

START_TEST(what_the_program_wants_in_host_memory_stays_there) {
  CUdeviceptr own = get_own();
  prefer(own, 8, 24, CU_DEVICE_CPU);
  ck_assert_uint_eq(memory_usage(0).total_bytes, 48 * PAGE_BYTES);
  ck_assert_uint_eq(resident(), 48 * PAGE_BYTES);
  placement_moved(own + 40 * PAGE_BYTES, 8 * PAGE_BYTES, CU_DEVICE_CPU);
  ck_assert_uint_eq(resident(), 40 * PAGE_BYTES);
  ck_assert_uint_eq(leave(0), 40 * PAGE_BYTES);
  ck_assert_uint_eq(fake_away_bytes(), 40 * PAGE_BYTES);
  ck_assert(!fake_is_away(own + 8 * PAGE_BYTES) && !fake_is_away(own + 47 * PAGE_BYTES));
  ck_assert(fake_is_away(own + 7 * PAGE_BYTES) && fake_is_away(own + 48 * PAGE_BYTES));
  ck_assert_uint_eq(come(UINT64_MAX), 40 * PAGE_BYTES);
  ck_assert_uint_eq(fake.bytes_in, 40 * PAGE_BYTES);
  hook_cuMemAdvise(own, OWN_PAGES * PAGE_BYTES, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0);
  ck_assert_uint_eq(memory_usage(0).total_bytes, OWN_PAGES * PAGE_BYTES);
  prefer(own, 0, OWN_PAGES, CU_DEVICE_CPU);
  ck_assert_uint_eq(memory_usage(0).total_bytes, 0);
  placement_moved(own, PAGE_BYTES, 0);
  ck_assert_uint_eq(resident(), PAGE_BYTES);
  ck_assert_int_eq(hook_cuMemFree_v2(own), CUDA_SUCCESS);
  ck_assert_uint_eq(memory_usage(0).total_bytes, 0);
}
END_TEST

START_TEST(advice_that_says_nothing_of_a_place_changes_nothing) {
  CUdeviceptr own = get_own(), converted = get(2 * MIB);
  uint64_t all = resident();
  hook_cuMemAdvise(own, PAGE_BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, CU_DEVICE_CPU);
  hook_cuMemAdvise(own, PAGE_BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU);
  hook_cuMemAdvise(converted, 2 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
  hook_cuMemAdvise(1, PAGE_BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
  ck_assert_uint_eq(resident(), all);
}
END_TEST

START_TEST(a_new_allocation_has_no_advice_of_its_predecessor) {
  CUdeviceptr own = get_own();
  prefer(own, 0, OWN_PAGES, CU_DEVICE_CPU);
  struct allocation next = {.base = own,
                            .span = 8 * PAGE_BYTES,
                            .bytes = 8 * PAGE_BYTES,
                            .backing = BACKING_APP,
                            .backend = &backend_managed};
  struct placement_run run;
  ck_assert_int_eq(budget_reserve(0, BACKING_APP, next.bytes, false), 0);
  placement_forget(next.base, next.span);
  account_add(&account_addresses, &next);
  next.bytes--; /* asks the table */
  ck_assert(placement_run(&next, 0, &run));
  ck_assert_uint_eq(run.bytes, 8 * PAGE_BYTES);
}
END_TEST

/* Random advice between random moves: what moves is what is to be on the card, page by page, and the books
 * know what they count. */
START_TEST(random_advice_matches_a_model) {
  bool on_host[OWN_PAGES] = {false}, was_away[OWN_PAGES];
  CUdeviceptr own = get_own(), other = get(4 * PAGE_BYTES);
  srand((unsigned)_i);
  for (int step = 0; step < 300; step++) {
    unsigned from = (unsigned)rand() % OWN_PAGES, end = from + 1 + (unsigned)rand() % (OWN_PAGES - from);
    bool host = rand() % 2, out = rand() % 2;
    prefer(own, from, end, host ? CU_DEVICE_CPU : 0);
    uint64_t total = 4 * PAGE_BYTES;
    for (unsigned i = 0; i < OWN_PAGES; i++) {
      on_host[i] = i >= from && i < end ? host : on_host[i];
      was_away[i] = fake_is_away(own + i * PAGE_BYTES);
      total += on_host[i] ? 0 : PAGE_BYTES;
    }
    ck_assert_uint_eq(memory_usage(0).total_bytes, total);
    ck_assert_uint_le(account_away_bytes(0), total);
    struct memory_moved moved = move_to(rand() % 3 ? (unsigned)rand() % OWN_PAGES * PAGE_BYTES
                                        : out      ? 0
                                                   : UINT64_MAX);
    ck_assert(!moved.in_bytes || !moved.out_bytes);
    bool ends_there = account_unified_bytes(0) == 0;
    for (unsigned i = 0; i < OWN_PAGES; i++)
      if (on_host[i])
        ck_assert_int_eq(fake_is_away(own + i * PAGE_BYTES), was_away[i]);
    if (rand() % 4)
      continue;
    move_to(0); /* twice: a part that was taken back while it was away may have been believed there */
    move_to(UINT64_MAX);
    move_to(ends_there ? UINT64_MAX : 0);
    for (unsigned i = 0; i < OWN_PAGES; i++)
      if (!on_host[i])
        ck_assert_int_eq(fake_is_away(own + i * PAGE_BYTES), !ends_there);
    ck_assert_int_eq(fake_is_away(other), !ends_there);
  }
}
END_TEST

START_TEST(memory_made_while_others_hold_the_card_comes_with_the_grant) {
  fake_gate_open = false;
  get(8 * MIB);
  ck_assert_uint_eq(fake.prefetches_in, 0);
  ck_assert_uint_eq(resident(), 0);
  ck_assert_uint_eq(come(8 * MIB), 8 * MIB);
  ck_assert_uint_eq(fake.bytes_in, 8 * MIB);
}
END_TEST

/* The larger allocation, which is always tried first. */
static void refuse_every_other(void) {
  fake.refuse_prefetch = fake.refuse_prefetch ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* It does not keep the rest. */
START_TEST(what_is_refused_stays) {
  get(GIB);
  get(64 * MIB);
  fake.on_prefetch = refuse_every_other;
  ck_assert_uint_eq(leave(0), 64 * MIB);
  ck_assert_uint_eq(resident(), GIB);
  fake.on_prefetch = NULL;
  fake.refuse_prefetch = CUDA_ERROR_OUT_OF_MEMORY;
  ck_assert_uint_eq(leave(0), 0);
  ck_assert_uint_eq(resident(), GIB);
  fake.refuse_prefetch = CUDA_SUCCESS;
  ck_assert_uint_eq(leave(0), GIB);
}
END_TEST

static unsigned waits;
static uint64_t least_at_wait, most_at_wait; /* on the card, by the books */

/* The books change when a range is let go of. */
static CUresult look_while_moving(CUstream stream) {
  (void)stream;
  uint64_t there = account_unified_bytes(0);
  least_at_wait = waits && least_at_wait < there ? least_at_wait : there;
  most_at_wait = waits && most_at_wait > there ? most_at_wait : there;
  waits++;
  return CUDA_SUCCESS;
}

START_TEST(a_range_stays_pinned_until_it_has_moved) {
  struct memory_moved moved = {.out_bytes = 0};
  get(64 * MIB);
  get(64 * MIB);
  driver.cuStreamSynchronize = look_while_moving;
  waits = 0;
  ck_assert_int_eq(backend_managed.step(0, 64 * MIB, &moved), MEMORY_MOVED);
  ck_assert_uint_gt(waits, 0);
  ck_assert_uint_eq(least_at_wait, 128 * MIB);
  ck_assert_int_eq(backend_managed.step(0, 0, &moved), MEMORY_MOVED);
  waits = 0;
  ck_assert_int_eq(backend_managed.step(0, UINT64_MAX, &moved), MEMORY_MOVED);
  ck_assert_uint_gt(waits, 0);
  ck_assert_uint_eq(most_at_wait, 0);
  ck_assert_uint_eq(resident(), 128 * MIB);
}
END_TEST

static CUresult refuse_stream(CUstream *stream, unsigned flags) {
  (void)stream, (void)flags;
  return CUDA_ERROR_DEINITIALIZED;
}

START_TEST(a_dead_driver_is_told_apart) {
  struct memory_moved moved = {.out_bytes = 0};
  get(GIB);
  driver.cuStreamCreate = refuse_stream;
  ck_assert_int_eq(backend_managed.step(0, 0, &moved), MEMORY_FAILED);
  ck_assert_uint_eq(moved.out_bytes, 0);
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
  uint64_t moved = leave(0);
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
  struct memory_moved moved = {.out_bytes = 0};
  get(GIB);
  while (backend_managed.step(0, 0, &moved) == MEMORY_MOVED)
    ;
  parents = account_addresses.root;
  memory_fork_child();
  ck_assert_uint_eq(memory_usage(0).total_bytes, 0);
  ck_assert_uint_eq(come(UINT64_MAX), 0);
  ck_assert_ptr_nonnull(parents);
  get(MIB);
  ck_assert_uint_eq(account_unified_bytes(0), MIB);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("residency");
  TCase *cases = tcase_create("residency");
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  tcase_add_checked_fixture(cases, setup, NULL);
  tcase_add_test(cases, a_range_stays_pinned_until_it_has_moved);
  tcase_add_loop_test(cases, many_small_ones_come_in_together, 0, 2);
  tcase_add_test(cases, the_oldest_comes_first);
  tcase_add_test(cases, pinned_memory_stays_and_the_programs_own_goes_last);
  tcase_add_test(cases, what_the_program_wants_in_host_memory_stays_there);
  tcase_add_test(cases, advice_that_says_nothing_of_a_place_changes_nothing);
  tcase_add_test(cases, a_new_allocation_has_no_advice_of_its_predecessor);
  tcase_add_loop_test(cases, random_advice_matches_a_model, 1, 9);
  tcase_add_test(cases, memory_made_while_others_hold_the_card_comes_with_the_grant);
  tcase_add_test(cases, what_is_refused_stays);
  tcase_add_test(cases, a_dead_driver_is_told_apart);
  tcase_add_test(cases, frees_during_a_move);
  tcase_add_test(cases, a_forked_child_knows_nothing);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
