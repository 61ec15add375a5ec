/* test_streams.c - stream-ordered allocation, out of managed pools and without them. */
#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "../suite.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "fake.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/budget.h"
#include "memory/memory.h"
#include "memory/pools.h"

#define MIB (UINT64_C(1) << 20)
#define STREAM ((CUstream)0x10)

static CUdeviceptr get(size_t bytes) {
  CUdeviceptr address = 0;
  ck_assert_int_eq(hook_cuMemAllocAsync(&address, bytes, STREAM), CUDA_SUCCESS);
  return address;
}

static uint64_t used(void) { return memory_usage(0).total_bytes; }

START_TEST(the_default_pool_is_managed) {
  CUmemoryPool shown, current;
  CUdeviceptr address = get(MIB);
  ck_assert_int_eq(fake_kind(address), FAKE_MANAGED_POOL);
  ck_assert_ptr_eq(fake.last_stream, STREAM);
  ck_assert_uint_eq(used(), MIB);
  ck_assert_int_eq(hook_cuDeviceGetDefaultMemPool(&shown, 0), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  ck_assert_ptr_ne(shown, FAKE_DEFAULT_POOL);
  ck_assert_ptr_eq(shown, current);
  ck_assert_int_eq(hook_cuMemPoolDestroy(shown), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(fake.stream_frees, 1);
  ck_assert_uint_eq(used(), 0);
}
END_TEST

START_TEST(nothing_is_allocated_for_zero_bytes) {
  ck_assert_uint_eq(get(0), 0);
  ck_assert_uint_eq(used(), 0);
}
END_TEST

START_TEST(per_thread_variants_name_the_per_thread_stream) {
  CUdeviceptr address;
  ck_assert_int_eq(hook_cuMemAllocAsync_ptsz(&address, MIB, NULL), CUDA_SUCCESS);
  ck_assert_ptr_eq(fake.last_stream, CU_STREAM_PER_THREAD);
  ck_assert_int_eq(hook_cuMemFreeAsync_ptsz(address, NULL), CUDA_SUCCESS);
  ck_assert_ptr_eq(fake.last_stream, CU_STREAM_PER_THREAD);
  ck_assert_int_eq(hook_cuMemAllocAsync(&address, MIB, NULL), CUDA_SUCCESS);
  ck_assert_ptr_null(fake.last_stream);
}
END_TEST

START_TEST(user_pools_are_made_managed_unless_they_are_for_export) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUmemoryPool mine, exported;
  CUdeviceptr address;
  ck_assert_int_eq(hook_cuMemPoolCreate(&mine, &props), CUDA_SUCCESS);
  ck_assert_int_eq(fake.created_type, CU_MEM_ALLOCATION_TYPE_MANAGED);
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ck_assert_int_eq(hook_cuMemPoolCreate(&exported, &props), CUDA_SUCCESS);
  ck_assert_int_eq(fake.created_type, CU_MEM_ALLOCATION_TYPE_PINNED);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, mine, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(memory_usage(0).pinned_bytes, 0);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, exported, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(memory_usage(0).pinned_bytes, MIB);
}
END_TEST

static void trim_all(CUmemoryPool pool) { fake.reserved_bytes = pool ? MIB : fake.reserved_bytes; }

/* What the pool keeps counts as the process' already. */
START_TEST(reused_memory_of_a_pool_waits_for_no_room) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUmemoryPool pool;
  CUdeviceptr address;
  ck_assert_int_eq(hook_cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  fake.reserved_bytes = 2 * MIB;
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, pool, STREAM), CUDA_SUCCESS);
  unsigned waits = fake.room_waits;
  ck_assert_uint_gt(waits, 0);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, pool, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(fake.room_waits, waits);
  ck_assert_uint_eq(memory_usage(0).pinned_bytes, 2 * MIB);
}
END_TEST

/* What the driver keeps without use is on the card, and is the first to leave. */
START_TEST(what_a_pool_keeps_leaves_first) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  struct memory_moved moved = {.out_bytes = 0};
  CUmemoryPool pool;
  CUdeviceptr address, unified = get(MIB);
  ck_assert_int_eq(hook_cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  fake.reserved_bytes = 3 * MIB;
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, pool, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(memory_usage(0).resident_bytes, 4 * MIB);
  ck_assert_uint_eq(memory_usage(0).pinned_there_bytes, MIB);
  fake.on_trim = trim_all;
  fake_gate_open = false;
  ck_assert_int_eq(memory_step(0, MIB, &moved), MEMORY_MOVED);
  ck_assert_uint_eq(fake.trims, 1);
  ck_assert_uint_eq(moved.out_bytes, 2 * MIB);
  ck_assert(!fake_is_away(unified));
  ck_assert_uint_eq(memory_usage(0).resident_bytes, 2 * MIB);
}
END_TEST

static void trim_nothing(CUmemoryPool pool) { (void)pool; }

/* A trim gives nothing back before the streams have come to what was freed in their order: the program's next
 * wait, or its next use of the pool, makes that able to leave again. */
START_TEST(what_a_trim_has_left_can_leave_later) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  struct memory_moved moved = {.out_bytes = 0};
  CUmemoryPool pool;
  CUdeviceptr address, other;
  ck_assert_int_eq(hook_cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  fake.reserved_bytes = 3 * MIB;
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, pool, STREAM), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&other, MIB, pool, STREAM), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  fake.on_trim = trim_nothing;
  ck_assert_int_eq(memory_step(0, MIB, &moved), MEMORY_SETTLED);
  ck_assert_uint_eq(memory_usage(0).pinned_bytes, 3 * MIB);
  fake.over_room = true;
  if (_i == 0)
    ck_assert_int_eq(hook_cuStreamSynchronize(STREAM), CUDA_SUCCESS);
  else
    ck_assert_int_eq(hook_cuMemFreeAsync(other, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(memory_usage(0).pinned_bytes, _i == 0 ? MIB : 0);
  ck_assert_uint_eq(fake.move_orders, 1);
  fake.on_trim = trim_all;
  ck_assert_int_eq(memory_step(0, MIB, &moved), MEMORY_MOVED);
}
END_TEST

/* And no reason to refuse anything. */
START_TEST(what_a_pool_keeps_makes_way) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUmemoryPool pool;
  CUdeviceptr address;
  ck_assert_int_eq(hook_cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  fake.reserved_bytes = FAKE_CARD_BYTES / 2;
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, pool, STREAM), CUDA_SUCCESS);
  fake.on_trim = trim_all;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, FAKE_CARD_BYTES * 3 / 4), CUDA_SUCCESS);
  ck_assert_uint_eq(fake.trims, 1);
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, FAKE_CARD_BYTES / 2), CUDA_ERROR_OUT_OF_MEMORY);
}
END_TEST

/* Nor is what can't leave there before it has come. */
START_TEST(what_is_awaited_is_not_there) {
  ck_assert_int_eq(budget_reserve(0, BACKING_PINNED_PLAIN, 3 * MIB, true), 0);
  ck_assert_uint_eq(memory_usage(0).pinned_bytes, 3 * MIB);
  ck_assert_uint_eq(memory_usage(0).pinned_there_bytes, 0);
  ck_assert_uint_eq(memory_usage(0).resident_bytes, 0);
  memory_pinned_arrives(0, 2 * MIB);
  ck_assert_uint_eq(memory_usage(0).pinned_there_bytes, 2 * MIB);
  ck_assert_uint_eq(memory_usage(0).resident_bytes, 2 * MIB);
}
END_TEST

START_TEST(the_programs_choice_of_a_pool_stands_until_it_is_destroyed) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUmemoryPool mine;
  ck_assert_int_eq(hook_cuMemPoolCreate(&mine, &props), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuDeviceSetMemPool(0, mine), CUDA_SUCCESS);
  ck_assert_int_eq(fake_kind(get(MIB)), FAKE_POOL);
  ck_assert_int_eq(hook_cuMemPoolDestroy(mine), CUDA_SUCCESS);
  ck_assert_int_eq(fake_kind(get(MIB)), FAKE_MANAGED_POOL);
}
END_TEST

START_TEST(a_converted_pool_can_be_the_current_one) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  CUmemoryPool mine, shown, first;
  ck_assert_int_eq(hook_cuDeviceGetMemPool(&first, 0), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemPoolCreate(&mine, &props), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuDeviceSetMemPool(0, mine), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuDeviceGetMemPool(&shown, 0), CUDA_SUCCESS);
  ck_assert_ptr_eq(shown, mine);
  ck_assert_int_eq(hook_cuMemGetMemPool(&shown, &here, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
  ck_assert_ptr_eq(shown, mine);
  get(MIB);
  ck_assert_ptr_eq(fake.last_pool, mine);
  ck_assert_int_eq(hook_cuMemPoolDestroy(mine), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuDeviceGetMemPool(&shown, 0), CUDA_SUCCESS);
  ck_assert_ptr_eq(shown, first);
  get(MIB);
  ck_assert_ptr_eq(fake.last_pool, first);
}
END_TEST

START_TEST(a_managed_pool_of_the_programs_own_is_left_alone) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUmemoryPool mine, before, after;
  CUdeviceptr address;
  unsigned managed = 7;
  ck_assert_int_eq(hook_cuDeviceGetMemPool(&before, 0), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemPoolCreate(&mine, &props), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuDeviceSetMemPool(0, mine), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuDeviceGetMemPool(&after, 0), CUDA_SUCCESS);
  ck_assert_ptr_eq(before, after);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, mine, STREAM), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address),
                   CUDA_SUCCESS);
  ck_assert_uint_eq(managed, 1);
}
END_TEST

START_TEST(pool_memory_outlives_contexts) {
  get(MIB);
  memory_context_destroyed(FAKE_CONTEXT);
  ck_assert_uint_eq(used(), MIB);
}
END_TEST

START_TEST(in_a_capture_both_are_the_drivers) {
  CUdeviceptr address;
  fake.capturing = true;
  ck_assert_int_eq(hook_cuMemAllocAsync(&address, MIB, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(used(), 0);
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(fake.events, 0);
}
END_TEST

START_TEST(a_refused_allocation_or_free_leaves_the_books_as_they_were) {
  CUdeviceptr address = get(MIB);
  fake.refuse_alloc = CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr other;
  ck_assert_int_eq(hook_cuMemAllocAsync(&other, MIB, STREAM), CUDA_ERROR_OUT_OF_MEMORY);
  ck_assert_uint_eq(used(), MIB);
  fake.refuse_free = CUDA_ERROR_INVALID_VALUE;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(used(), MIB);
}
END_TEST

START_TEST(fresh_pool_memory_is_populated_in_stream_order_and_reused_memory_is_not) {
  fake.reserved_bytes = 32 * MIB;
  CUdeviceptr address = get(4 * MIB);
  ck_assert_uint_eq(fake.prefetches_in, 1);
  ck_assert_ptr_eq(fake.last_stream, STREAM);
  hook_cuMemFreeAsync(address, STREAM);
  get(4 * MIB);
  ck_assert_uint_eq(fake.prefetches_in, 1);
}
END_TEST

/* What another thread does while a call of ours is on its way. */

static pthread_t other_thread;
static sem_t other_done;

/* Run it, and give it the time to do harm if nothing holds it up. */
static void meanwhile(void *(*run)(void *), void *argument) {
  struct timespec deadline;
  sem_init(&other_done, 0, 0);
  pthread_create(&other_thread, NULL, run, argument);
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_nsec += 100000000;
  deadline.tv_sec += deadline.tv_nsec / 1000000000;
  deadline.tv_nsec %= 1000000000;
  sem_timedwait(&other_done, &deadline);
}

static void *destroy_pool(void *pool) {
  CUresult result = hook_cuMemPoolDestroy(pool);
  sem_post(&other_done);
  return (void *)(uintptr_t)result;
}

static CUmemoryPool doomed_pool;

static void destroy_pool_meanwhile(CUmemoryPool trimmed) {
  if (trimmed == doomed_pool)
    meanwhile(destroy_pool, trimmed);
}

START_TEST(a_pool_is_not_destroyed_while_it_is_trimmed) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  struct memory_moved moved = {.out_bytes = 0};
  CUdeviceptr address;
  void *result;
  fake.reserved_bytes = 3 * MIB;
  ck_assert_int_eq(hook_cuMemPoolCreate(&doomed_pool, &props), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, doomed_pool, STREAM), CUDA_SUCCESS);
  fake.on_trim = destroy_pool_meanwhile;
  memory_step(0, 0, &moved);
  pthread_join(other_thread, &result);
  ck_assert_ptr_eq(result, (void *)CUDA_SUCCESS);
  ck_assert_uint_eq(fake.trims, 1);
  ck_assert_uint_eq(fake.uses_of_dead, 0);
  memory_step(0, 0, &moved);
  ck_assert_uint_eq(fake.trims, 1);
}
END_TEST

/* What the driver does to a pool of unified memory that gives memory back: pools.c. */

static CUmemoryPool make_pool(CUmemAllocationType type, void *security) {
  CUmemPoolProps props = {.allocType = type,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                          .win32SecurityAttributes = security};
  CUmemoryPool pool;
  ck_assert_int_eq(hook_cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  return pool;
}

static CUmemoryPool unified_pool(int which) {
  CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  CUmemoryPool pool;
  switch (which) {
  case 0:
    ck_assert_int_eq(hook_cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    return pool;
  case 1:
    return make_pool(CU_MEM_ALLOCATION_TYPE_PINNED, NULL);
  case 2:
    return make_pool(CU_MEM_ALLOCATION_TYPE_MANAGED, NULL);
  default:
    ck_assert_int_eq(hook_cuMemGetDefaultMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_MANAGED), CUDA_SUCCESS);
    return pool;
  }
}

static cuuint64_t threshold_of(CUmemoryPool pool) {
  cuuint64_t threshold;
  ck_assert_int_eq(hook_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
                   CUDA_SUCCESS);
  return threshold;
}

START_TEST(a_pool_of_unified_memory_gives_nothing_back) {
  CUmemoryPool pool = unified_pool(_i);
  CUdeviceptr address;
  struct memory_moved moved = {.out_bytes = 0};
  cuuint64_t wanted = 5 * MIB;
  ck_assert_uint_eq(threshold_of(pool), 0);
  ck_assert_int_eq(hook_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted),
                   CUDA_SUCCESS);
  ck_assert_uint_eq(threshold_of(pool), wanted);
  if (pool != FAKE_UNIFIED_POOL) /* whose threshold the fake does not keep */
    ck_assert_uint_eq(fake_threshold(pool), UINT64_MAX);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, pool, STREAM), CUDA_SUCCESS);
  memory_step(0, 0, &moved);
  ck_assert_int_eq(hook_cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  ck_assert_uint_eq(fake.trims, 0);
}
END_TEST

START_TEST(a_destroyed_pool_of_unified_memory_serves_the_next_like_it) {
  CUmemoryPool standard = unified_pool(0), first = unified_pool(_i), second;
  CUdeviceptr address;
  cuuint64_t wanted = 5 * MIB;
  ck_assert_int_eq(hook_cuMemPoolSetAttribute(first, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted),
                   CUDA_SUCCESS);
  int no = 0;
  ck_assert_int_eq(hook_cuMemPoolSetAttribute(first, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &no),
                   CUDA_SUCCESS);
  ck_assert_int_eq(fake_follows(first), 0);
  ck_assert_int_eq(hook_cuMemPoolDestroy(first), CUDA_SUCCESS);
  ck_assert_int_eq(fake_pool_destroyed(first), false);
  ck_assert_int_eq(hook_cuMemPoolDestroy(first), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, first, STREAM), CUDA_ERROR_INVALID_VALUE);
  ck_assert_ptr_ne(first, standard);
  ck_assert_ptr_ne(make_pool(CU_MEM_ALLOCATION_TYPE_PINNED, &wanted), first);
  fake.used_bytes = MIB; /* not yet freed */
  ck_assert_ptr_ne(unified_pool(_i), first);
  fake.used_bytes = 0;
  second = unified_pool(_i);
  ck_assert_ptr_eq(second, first);
  ck_assert_uint_eq(threshold_of(second), 0);
  ck_assert_int_eq(fake_follows(second), 1);
  ck_assert_uint_eq(fake_threshold(second), UINT64_MAX);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, second, STREAM), CUDA_SUCCESS);
}
END_TEST

START_TEST(the_drivers_own_pool_of_unified_memory_cannot_be_destroyed) {
  CUmemoryPool pool = unified_pool(3);
  CUdeviceptr address;
  cuuint64_t wanted = 5 * MIB;
  ck_assert_int_eq(hook_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &wanted),
                   CUDA_SUCCESS);
  for (int i = 0; i < 2; i++) /* a refusal changes nothing */
    ck_assert_int_eq(hook_cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
  ck_assert_uint_eq(threshold_of(pool), wanted);
  ck_assert_int_eq(hook_cuMemAllocFromPoolAsync(&address, MIB, pool, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(used(), MIB);
  ck_assert_uint_eq(memory_usage(0).pinned_bytes, 0);
}
END_TEST

static void *destroy_other_context(void *unused) {
  memory_context_destroyed(FAKE_OTHER_CONTEXT);
  fake.other_context_dead = true;
  sem_post(&other_done);
  return unused;
}

static void destroy_other_context_meanwhile(void) {
  fake.on_query = NULL;
  meanwhile(destroy_other_context, NULL);
}

START_TEST(a_context_is_not_destroyed_while_an_event_of_it_is_looked_at) {
  CUdeviceptr address, next;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, MIB), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemFreeAsync(address, FAKE_OTHER_STREAM), CUDA_SUCCESS);
  fake.events_pending = _i; /* else the one who looks frees the memory */
  fake.on_query = destroy_other_context_meanwhile;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&next, 2 * MIB), CUDA_SUCCESS);
  pthread_join(other_thread, NULL);
  ck_assert_uint_eq(fake.uses_of_dead, 0);
  ck_assert_uint_eq(fake.frees, 1);
  ck_assert_int_eq(fake_kind(address), FAKE_NONE);
  ck_assert_uint_eq(used(), 2 * MIB);
}
END_TEST

/* Without managed pools. */

START_TEST(emulated_memory_is_freed_only_after_the_streams_work) {
  fake.no_managed_pools = true;
  CUdeviceptr address = get(MIB);
  ck_assert_int_eq(fake_kind(address), FAKE_MANAGED);
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  ck_assert_ptr_eq(fake.last_stream, STREAM);
  CUdeviceptr other = get(2 * MIB);
  ck_assert_int_eq(fake_kind(address), FAKE_MANAGED); /* the stream may still use it */
  ck_assert_uint_eq(used(), 3 * MIB);
  fake.events_pending = false;
  ck_assert_int_eq(hook_cuMemFreeAsync(other, STREAM), CUDA_SUCCESS);
  ck_assert_int_eq(fake_kind(address), FAKE_NONE);
  ck_assert_uint_eq(used(), 2 * MIB);
  ck_assert_uint_eq(fake.strict_calls, 0);
}
END_TEST

START_TEST(emulated_memory_is_used_again_on_the_same_stream_at_once) {
  fake.no_managed_pools = true;
  CUdeviceptr address = get(MIB), other;
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemAllocAsync(&other, MIB, FAKE_OTHER_STREAM), CUDA_SUCCESS);
  ck_assert_uint_ne(other, address);
  ck_assert_uint_ne(get(2 * MIB), address);
  ck_assert_uint_eq(get(MIB), address);
  ck_assert_uint_ne(get(MIB), address);
  ck_assert_uint_eq(used(), 5 * MIB);
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM),
                   CUDA_SUCCESS); /* it is a new one, to be freed once */
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_ERROR_INVALID_VALUE);
  fake.streams_gone++; /* the handle may be another stream's now */
  ck_assert_uint_ne(get(MIB), address);
}
END_TEST

static size_t left(void) {
  size_t free_bytes, total_bytes;
  ck_assert_int_eq(hook_cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
  return free_bytes;
}

/* The driver would wait for the other streams. */
START_TEST(emulated_memory_is_freed_while_the_gpu_is_idle) {
  fake.no_managed_pools = true;
  CUdeviceptr address = get(200 * MIB), other = get(100 * MIB);
  fake.streams_busy = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  ck_assert_uint_eq(left(), FAKE_CARD_BYTES - 100 * MIB);
  ck_assert_int_eq(fake_kind(address), FAKE_MANAGED);
  ck_assert_int_eq(hook_cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  if (_i == 0) {
    fake.streams_busy = false;
    ck_assert_uint_eq(left(), FAKE_CARD_BYTES - 100 * MIB);
  } else { /* it is never idle */
    ck_assert_int_eq(hook_cuMemFreeAsync(other, STREAM), CUDA_SUCCESS);
    ck_assert_uint_eq(left(), FAKE_CARD_BYTES);
    ck_assert_int_eq(fake_kind(address), FAKE_MANAGED);
    get(MIB);
    ck_assert_int_eq(fake_kind(other), FAKE_NONE);
  }
  ck_assert_int_eq(fake_kind(address), FAKE_NONE);
  ck_assert_uint_eq(fake.strict_calls, 0);
}
END_TEST

START_TEST(at_a_hand_over_it_is_freed_before_anything_moves) {
  struct memory_moved moved = {.out_bytes = 0};
  fake.no_managed_pools = true;
  CUdeviceptr address = get(8 * MIB);
  fake.streams_busy = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  ck_assert_int_eq(memory_step(0, 0, &moved), MEMORY_SETTLED);
  ck_assert_int_eq(fake_kind(address), FAKE_NONE);
  ck_assert_uint_eq(memory_usage(0).resident_bytes, 0);
}
END_TEST

START_TEST(a_double_free_in_stream_order_is_an_error) {
  fake.no_managed_pools = true;
  CUdeviceptr address = get(MIB);
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(hook_cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  ck_assert_int_eq(fake_kind(address), FAKE_MANAGED);
}
END_TEST

START_TEST(memory_that_waits_for_its_free_is_waited_for_before_an_allocation_fails) {
  fake.no_managed_pools = true;
  CUdeviceptr address = get(FAKE_CARD_BYTES);
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  get(FAKE_CARD_BYTES - MIB);
  ck_assert_uint_eq(used(), FAKE_CARD_BYTES - MIB);
  ck_assert_uint_eq(fake_live(), 1);
}
END_TEST

START_TEST(plain_memory_may_be_freed_in_stream_order) {
  CUdeviceptr address;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, MIB), CUDA_SUCCESS);
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  ck_assert_int_eq(fake_kind(address), FAKE_MANAGED);
  fake.events_pending = false;
  get(MIB);
  hook_cuMemFreeAsync(get(MIB), STREAM);
  ck_assert_int_eq(fake_kind(address), FAKE_NONE);
}
END_TEST

START_TEST(plain_memory_may_be_freed_on_a_stream_of_another_context) {
  CUdeviceptr address, next;
  CUcontext current;
  ck_assert_int_eq(hook_cuMemAlloc_v2(&address, MIB), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemFreeAsync(address, FAKE_OTHER_STREAM), CUDA_SUCCESS);
  driver.cuCtxGetCurrent(&current);
  ck_assert_ptr_eq(current, FAKE_CONTEXT);
  ck_assert_int_eq(hook_cuMemAlloc_v2(&next, MIB), CUDA_SUCCESS);
  ck_assert_int_eq(fake_kind(address), FAKE_NONE);
  ck_assert_int_eq(hook_cuMemFreeAsync(next, NULL), CUDA_SUCCESS);
}
END_TEST

START_TEST(the_programs_own_unified_memory_may_not) {
  CUdeviceptr own;
  ck_assert_int_eq(hook_cuMemAllocManaged(&own, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemFreeAsync(own, STREAM), CUDA_ERROR_NOT_SUPPORTED);
  ck_assert_uint_eq(used(), MIB);
}
END_TEST

START_TEST(what_waits_dies_with_its_context) {
  fake.no_managed_pools = true;
  CUdeviceptr address = get(MIB);
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(address, STREAM), CUDA_SUCCESS);
  memory_context_destroyed(FAKE_CONTEXT);
  ck_assert_uint_eq(used(), 0);
  ck_assert_uint_eq(fake.frees, 0);
}
END_TEST

/* Its memory is the primary context's, so the driver frees nothing by itself. */
START_TEST(a_green_context_leaves_its_memory_behind) {
  CUdeviceptr freed, kept;
  struct allocation found;
  ck_assert_int_eq(driver.cuCtxPushCurrent_v2(FAKE_OTHER_CONTEXT), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemAlloc_v2(&freed, MIB), CUDA_SUCCESS);
  ck_assert_int_eq(hook_cuMemAlloc_v2(&kept, 2 * MIB), CUDA_SUCCESS);
  driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  fake.events_pending = true;
  ck_assert_int_eq(hook_cuMemFreeAsync(freed, FAKE_OTHER_STREAM), CUDA_SUCCESS);
  memory_green_context_destroyed(FAKE_OTHER_CONTEXT, FAKE_CONTEXT);
  ck_assert_int_eq(fake_kind(freed), FAKE_NONE);
  ck_assert_uint_eq(used(), 2 * MIB);
  ck_assert(ledger_find(&account_addresses, kept, &found));
  ck_assert_ptr_eq(found.context, FAKE_CONTEXT);
  memory_context_destroyed(FAKE_CONTEXT);
  ck_assert_uint_eq(used(), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("streams");
  TCase *cases = tcase_create("streams");
  tcase_add_checked_fixture(cases, fake_install, NULL);
  tcase_add_test(cases, the_default_pool_is_managed);
  tcase_add_test(cases, nothing_is_allocated_for_zero_bytes);
  tcase_add_test(cases, per_thread_variants_name_the_per_thread_stream);
  tcase_add_test(cases, reused_memory_of_a_pool_waits_for_no_room);
  tcase_add_test(cases, what_a_pool_keeps_leaves_first);
  tcase_add_loop_test(cases, what_a_trim_has_left_can_leave_later, 0, 2);
  tcase_add_test(cases, what_a_pool_keeps_makes_way);
  tcase_add_test(cases, what_is_awaited_is_not_there);
  tcase_add_test(cases, user_pools_are_made_managed_unless_they_are_for_export);
  tcase_add_test(cases, the_programs_choice_of_a_pool_stands_until_it_is_destroyed);
  tcase_add_test(cases, a_converted_pool_can_be_the_current_one);
  tcase_add_test(cases, a_managed_pool_of_the_programs_own_is_left_alone);
  tcase_add_test(cases, pool_memory_outlives_contexts);
  tcase_add_test(cases, in_a_capture_both_are_the_drivers);
  tcase_add_test(cases, a_refused_allocation_or_free_leaves_the_books_as_they_were);
  tcase_add_test(cases, fresh_pool_memory_is_populated_in_stream_order_and_reused_memory_is_not);
  tcase_add_test(cases, a_pool_is_not_destroyed_while_it_is_trimmed);
  tcase_add_loop_test(cases, a_pool_of_unified_memory_gives_nothing_back, 0, 4);
  tcase_add_loop_test(cases, a_destroyed_pool_of_unified_memory_serves_the_next_like_it, 1, 3);
  tcase_add_test(cases, the_drivers_own_pool_of_unified_memory_cannot_be_destroyed);
  tcase_add_loop_test(cases, a_context_is_not_destroyed_while_an_event_of_it_is_looked_at, 0, 2);
  tcase_add_test(cases, emulated_memory_is_freed_only_after_the_streams_work);
  tcase_add_test(cases, emulated_memory_is_used_again_on_the_same_stream_at_once);
  tcase_add_loop_test(cases, emulated_memory_is_freed_while_the_gpu_is_idle, 0, 2);
  tcase_add_test(cases, at_a_hand_over_it_is_freed_before_anything_moves);
  tcase_add_test(cases, a_double_free_in_stream_order_is_an_error);
  tcase_add_test(cases, memory_that_waits_for_its_free_is_waited_for_before_an_allocation_fails);
  tcase_add_test(cases, plain_memory_may_be_freed_in_stream_order);
  tcase_add_test(cases, plain_memory_may_be_freed_on_a_stream_of_another_context);
  tcase_add_test(cases, the_programs_own_unified_memory_may_not);
  tcase_add_test(cases, what_waits_dies_with_its_context);
  tcase_add_test(cases, a_green_context_leaves_its_memory_behind);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
