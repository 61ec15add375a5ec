/* test_carry.c - unified memory that is carried, on the simulated driver, whose discards leave garbage. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../suite.h"
#include "common/clock.h"
#include "driver/driver.h"
#include "gate/gate.h"
#include "memory/backend.h"
#include "memory/carry.h"
#include "memory/deferred.h"
#include "memory/forked.h"
#include "memory/swap/slabs.h"
#include "memory/swap/swap.h"
#include "sim.h"
#include "swap_world.h"

/* ---- memory of the program ---- */

static struct driver real; /* before a test replaces functions */

/* Small memory is mapped only where all GPUs are known: here it is unified memory, too. */
static CUresult refuse_count(int *count) {
  return count ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

static void start(const char *card) {
  world_start(card);
  driver.cuDeviceGetCount = refuse_count;
  real = driver;
  world.gate_open = true;
}

static void setup(void) { start("small,capacity=1 GiB,scale=0"); }

static CUdeviceptr get(size_t bytes) {
  struct allocation like = {.context = world.context[0], .origin = ORIGIN_PLAIN};
  CUdeviceptr address = 0;
  ck_assert_int_eq(backend_managed.allocate(&address, bytes, &like), CUDA_SUCCESS);
  ck_assert_int_eq(driver.cuCtxSynchronize(), CUDA_SUCCESS);
  return address;
}

static CUdeviceptr get_filled(size_t bytes, uint64_t seed) {
  CUdeviceptr address = get(bytes);
  world_fill((void *)(uintptr_t)address, bytes, seed);
  return address;
}

static bool intact(CUdeviceptr address, size_t bytes, uint64_t seed) {
  return world_intact((const void *)(uintptr_t)address, bytes, seed);
}

static struct allocation taken;
static bool take(CUdeviceptr address) { return account_take(&account_addresses, address, &taken); }

static void give_back(CUdeviceptr address) {
  ck_assert(take(address));
  ck_assert_int_eq(driver.cuMemFree_v2(address), CUDA_SUCCESS);
  account_gone(&taken);
}

static enum memory_progress settle(uint64_t room_bytes) {
  struct memory_moved moved = {0};
  enum memory_progress progress;
  world.gate_open = false;
  do
    progress = backend_managed.step(0, room_bytes, &moved);
  while (progress == MEMORY_MOVED);
  ck_assert_int_eq(world.held, 0);
  return progress;
}

static void leave(void) { ck_assert_int_eq(settle(0), MEMORY_SETTLED); }

static void come(void) {
  ck_assert_int_eq(settle(UINT64_MAX), MEMORY_SETTLED);
  ck_assert_uint_eq(carry_bytes(0), 0);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
}

static struct gs_sim_process process(void) {
  struct gs_sim_process now;
  ck_assert_int_eq(gs_sim_process_read(NULL, getpid(), 0, &now), 0);
  return now;
}

static uint64_t on_card(void) { return process().resident_bytes; }
static uint64_t counted(enum gs_sim_counter counter) { return process().counters[counter]; }

/* ---- out and in ---- */

START_TEST(contents_leave_and_come_back) {
  uint64_t sizes[] = {2 * MIB, 33 * MIB + 5, 100 * MIB, 3 * MIB, 64 * MIB};
  CUdeviceptr memory[5];
  for (int i = 0; i < 5; i++)
    memory[i] = get_filled(sizes[i], (uint64_t)i);
  leave();
  ck_assert_uint_eq(on_card(), 0);
  ck_assert_uint_eq(carry_bytes(0), 200 * MIB); /* whole pages */
  ck_assert_uint_eq(slabs_used_bytes(), 200 * MIB);
  ck_assert_uint_eq(account_unified_bytes(0), 0);
  ck_assert(!intact(memory[2], sizes[2], 2)); /* discarded */
  come();
  ck_assert_uint_eq(on_card(), 204 * MIB);
  ck_assert_uint_eq(account_away_bytes(0), 0);
  for (int i = 0; i < 5; i++) {
    ck_assert(intact(memory[i], sizes[i], (uint64_t)i));
    give_back(memory[i]);
  }
}
END_TEST

static CUresult no_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                          unsigned long long flags) {
  (void)handle, (void)bytes, (void)prop, (void)flags;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

START_TEST(a_card_that_is_too_full_for_stages) {
  driver.cuMemCreate = no_create;
  CUdeviceptr memory = get_filled(333 * MIB, 1);
  for (int i = 0; i < 2; i++) {
    leave();
    ck_assert_uint_eq(carry_bytes(0), 332 * MIB);
    come();
    ck_assert(intact(memory, 333 * MIB, 1));
    driver.cuMemCreate = real.cuMemCreate;
  }
}
END_TEST

START_TEST(rooms_that_end_within_a_part) {
  CUdeviceptr first = get_filled(70 * MIB, 1), second = get_filled(50 * MIB + MIB, 2);
  for (uint64_t room = 0; room <= 122 * MIB; room += 10 * MIB) {
    settle(room);
    ck_assert_uint_le(on_card(), room);
    ck_assert_uint_ge(on_card() + 4 * MIB, room < 121 * MIB ? room : 121 * MIB);
    ck_assert_uint_eq(carry_bytes(0), slabs_used_bytes());
    ck_assert_uint_le(carry_bytes(0), account_away_bytes(0));
  }
  settle(31 * MIB);
  come();
  ck_assert(intact(first, 70 * MIB, 1) && intact(second, 51 * MIB, 2));
}
END_TEST

/* With what is freed and made between two moves. */
START_TEST(random_moves) {
  enum { MOST = 12 };
  struct {
    CUdeviceptr at;
    size_t bytes;
    uint64_t seed;
  } have[MOST] = {{0}};
  uint64_t seed = (uint64_t)_i + 1;
  srand((unsigned)seed);
  for (int round = 0; round < 60; round++) {
    int i = rand() % MOST;
    if (have[i].at) {
      bool there = account_away_bytes(0) == 0;
      ck_assert(!there || intact(have[i].at, have[i].bytes, have[i].seed));
      give_back(have[i].at);
      have[i].at = 0;
    } else {
      have[i].bytes = (size_t)(1 + rand() % 80) * MIB / 2;
      have[i].seed = ++seed;
      world.gate_open = rand() % 2; /* else it comes with the next move */
      have[i].at = get_filled(have[i].bytes, have[i].seed);
    }
    settle(rand() % 3 ? (uint64_t)(rand() % 400) * MIB : UINT64_MAX);
    ck_assert_uint_eq(carry_bytes(0), slabs_used_bytes());
    while (rand() % 4 == 0 && backend_managed.land(0) == MEMORY_MOVED)
      ;
  }
  come();
  for (int i = 0; i < MOST; i++)
    ck_assert(!have[i].at || intact(have[i].at, have[i].bytes, have[i].seed));
}
END_TEST

START_TEST(what_does_not_fit_lands_in_host_memory) {
  CUdeviceptr memory = get_filled(300 * MIB, 7);
  leave();
  settle(100 * MIB);
  ck_assert_uint_eq(carry_bytes(0), 200 * MIB);
  unsigned steps = 0;
  while (backend_managed.land(0) == MEMORY_MOVED)
    steps++;
  ck_assert_uint_ge(steps, 2); /* orders come between them */
  ck_assert_uint_eq(carry_bytes(0), 0);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  ck_assert_uint_eq(account_away_bytes(0), 200 * MIB);
  ck_assert_uint_eq(on_card(), 100 * MIB);
  ck_assert(intact(memory, 300 * MIB, 7));
  backend_managed.opened(0); /* page faults move it from now on: nobody knows what is where */
  uint64_t discarded = counted(GS_SIM_discarded_bytes);
  leave();
  ck_assert_uint_eq(carry_bytes(0), 0);
  come();
  backend_managed.opened(0);
  ck_assert_uint_eq(counted(GS_SIM_discarded_bytes), discarded);
  leave();
  ck_assert_uint_eq(carry_bytes(0), 300 * MIB);
  come();
  ck_assert(intact(memory, 300 * MIB, 7));
}
END_TEST

START_TEST(host_memory_is_made_ready) {
  get(40 * MIB);
  slabs_expect(0, true);
  slabs_need(0, BACKING_CONVERTED, backend_managed.host_bytes(0));
  while (slabs_pinned_bytes() < 40 * MIB) /* in the background */
    clock_sleep(NS_PER_MS);
  world.gate_open = true;
  get(300 * MIB);
  backend_managed.close(0, true);
  while (slabs_pinned_bytes() < 340 * MIB)
    clock_sleep(NS_PER_MS);
}
END_TEST

/* ---- what is not carried ---- */

static void check_prefetched(void) {
  world.gate_open = true;
  CUdeviceptr memory = get_filled(80 * MIB, 3);
  leave();
  ck_assert_uint_eq(carry_bytes(0), 0);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  ck_assert_uint_eq(on_card(), 0);
  ck_assert_uint_ge(counted(GS_SIM_prefetched_out_bytes), 80 * MIB);
  come();
  ck_assert(intact(memory, 80 * MIB, 3));
  give_back(memory);
}

START_TEST(a_driver_without_discards) {
  *(_i ? (void **)&driver.cuMemDiscardBatchAsync : (void **)&driver.cuMemDiscardAndPrefetchBatchAsync) = NULL;
  check_prefetched();
}
END_TEST

START_TEST(a_driver_that_refuses_or_loses) {
  static const char *const cards[] = {"small,scale=0,discard_status=801", "small,scale=0,discard_loses=1",
                                      "small,scale=0,driver_version=12020"};
  start(cards[_i]);
  check_prefetched();
  uint64_t discarded = counted(GS_SIM_discarded_bytes);
  check_prefetched();
  ck_assert_uint_eq(counted(GS_SIM_discarded_bytes), discarded); /* it is not tried again */
  world_end();
}
END_TEST

START_TEST(the_programs_own_unified_memory_is_not_carried) {
  struct allocation own = {.context = world.context[0], .backing = BACKING_APP, .backend = &backend_managed};
  CUdeviceptr base;
  ck_assert_int_eq(driver.cuMemAllocManaged(&base, 64 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  own.base = base;
  own.span = own.bytes = 64 * MIB;
  ck_assert_int_eq(budget_reserve(0, BACKING_APP, own.bytes, false), 0);
  ck_assert_int_eq(account_add(&account_addresses, &own), 0);
  world_fill((void *)(uintptr_t)own.base, own.bytes, 9);
  get_filled(10 * MIB, 1);
  leave();
  ck_assert_uint_eq(carry_bytes(0), 10 * MIB);
  ck_assert(intact(own.base, own.bytes, 9)); /* while it is away */
  come();
}
END_TEST

START_TEST(nothing_of_a_process_with_several_gpus) {
  gate_several = 1;
  check_prefetched();
  gate_several = 0;
}
END_TEST

/* The driver might wait for what stands still. */
START_TEST(nothing_is_tried_while_work_stands_still) {
  world.stopped = true;
  check_prefetched();
  world.stopped = false;
  world.gate_open = true;
  CUdeviceptr memory = get_filled(80 * MIB, 4);
  carry_prepare(0);
  world.stopped = true;
  leave();
  ck_assert_uint_eq(carry_bytes(0), 80 * MIB);
  come();
  ck_assert(intact(memory, 80 * MIB, 4));
  carry_context_gone(world.context[0]); /* the kernel has gone with it */
  leave();
  ck_assert_uint_eq(carry_bytes(0), 0);
  come();
  ck_assert(intact(memory, 80 * MIB, 4));
}
END_TEST

/* It may read and write by the processor. */
START_TEST(nothing_while_a_call_is_in_flight) {
  CUdeviceptr memory = get_filled(80 * MIB, 6);
  world.in_flight = true;
  settle(40 * MIB);
  ck_assert_uint_eq(on_card(), 40 * MIB);
  ck_assert_uint_eq(carry_bytes(0), 0);
  ck_assert(intact(memory, 80 * MIB, 6));
  world.in_flight = false;
  leave();
  ck_assert_uint_eq(carry_bytes(0), 40 * MIB);
  world.in_flight = true; /* inward it makes no difference */
  come();
  world.in_flight = false;
  ck_assert(intact(memory, 80 * MIB, 6));
}
END_TEST

START_TEST(nothing_while_the_gate_is_open) {
  struct memory_moved moved = {0};
  CUdeviceptr memory = get_filled(80 * MIB, 6);
  while (backend_managed.step(0, 0, &moved) == MEMORY_MOVED)
    ;
  ck_assert_uint_eq(on_card(), 0);
  ck_assert_uint_eq(carry_bytes(0), 0);
  ck_assert(intact(memory, 80 * MIB, 6));
}
END_TEST

static int managed_allocs;
static CUresult counted_managed(CUdeviceptr *at, size_t bytes, unsigned int flags) {
  managed_allocs++;
  return real.cuMemAllocManaged(at, bytes, flags);
}

/* Its memory is never freed, so it has only that: in each context, with which it goes. */
START_TEST(a_trial_that_is_put_off_takes_no_more_memory) {
  CUdeviceptr memory = get_filled(80 * MIB, 5);
  driver.cuMemAllocManaged = counted_managed;
  world.leaving = true; /* no slot can be used now */
  for (int i = 0; i < 10; i++)
    carry_prepare(0);
  ck_assert_int_eq(managed_allocs, 1);
  carry_context_gone(world.context[0]);
  for (int i = 0; i < 10; i++)
    carry_prepare(0);
  ck_assert_int_eq(managed_allocs, 2);
  world.leaving = false;
  leave();
  ck_assert_uint_eq(carry_bytes(0), 80 * MIB);
  ck_assert_int_eq(managed_allocs, 2);
  come();
  ck_assert(intact(memory, 80 * MIB, 5));
}
END_TEST

START_TEST(a_host_without_memory) {
  CUdeviceptr first = get_filled(100 * MIB, 1), second = get_filled(90 * MIB, 2);
  world.host_bytes = 0;
  leave();
  ck_assert_uint_eq(on_card(), 0);
  ck_assert_uint_eq(slabs_pinned_bytes(), 0);
  world.host_bytes = 4 * GIB;
  come();
  leave();
  ck_assert_uint_eq(carry_bytes(0), 190 * MIB);
  come();
  ck_assert(intact(first, 100 * MIB, 1) && intact(second, 90 * MIB, 2));
}
END_TEST

static uint64_t scarce_after; /* slots */
static CUresult copy_and_starve(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (scarce_after && --scarce_after == 0)
    world.host_bytes = 0;
  return real.cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

START_TEST(a_host_whose_memory_ends_in_the_middle) {
  CUdeviceptr memory[10];
  for (int i = 0; i < 10; i++)
    memory[i] = get_filled(34 * MIB, (uint64_t)i);
  carry_prepare(0);
  driver.cuMemcpyDtoHAsync_v2 = copy_and_starve;
  scarce_after = 5;
  leave();
  ck_assert_uint_gt(carry_bytes(0), 0);
  ck_assert_uint_lt(carry_bytes(0), 340 * MIB);
  ck_assert_uint_eq(on_card(), 0);
  come();
  for (int i = 0; i < 10; i++)
    ck_assert(intact(memory[i], 34 * MIB, (uint64_t)i));
}
END_TEST

/* ---- calls that fail in the middle ---- */

static int fails_at; /* the call with this number, and all that follow */
static bool fails(void) { return fails_at && (fails_at == 1 || --fails_at == 1); }

static CUresult no_discard(CUdeviceptr *at, size_t *bytes, size_t count, unsigned long long flags,
                           CUstream stream) {
  return fails() ? CUDA_ERROR_INVALID_VALUE : real.cuMemDiscardBatchAsync(at, bytes, count, flags, stream);
}

static CUresult no_pages(CUdeviceptr *at, size_t *bytes, size_t count, CUmemLocation *places, size_t *first,
                         size_t place_count, unsigned long long flags, CUstream stream) {
  return fails() ? CUDA_ERROR_INVALID_VALUE
                 : real.cuMemDiscardAndPrefetchBatchAsync(at, bytes, count, places, first, place_count, flags,
                                                          stream);
}

static CUresult no_launch(CUfunction f, unsigned int x, unsigned int y, unsigned int z, unsigned int bx,
                          unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
                          void **params, void **extra) {
  return fails() ? CUDA_ERROR_INVALID_VALUE
                 : real.cuLaunchKernel(f, x, y, z, bx, by, bz, shared, stream, params, extra);
}

static CUresult no_copy_out(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return fails() ? CUDA_ERROR_INVALID_VALUE : real.cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

static CUresult no_copy_in(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return fails() ? CUDA_ERROR_INVALID_VALUE : real.cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}

/* Copies that end with an error, and have copied nothing. */
static int lost_from, launched, waited;

static CUresult lost_launch(CUfunction f, unsigned int x, unsigned int y, unsigned int z, unsigned int bx,
                            unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
                            void **params, void **extra) {
  return ++launched >= lost_from ? CUDA_SUCCESS
                                 : real.cuLaunchKernel(f, x, y, z, bx, by, bz, shared, stream, params, extra);
}

static CUresult lost_wait(CUevent event) {
  CUresult result = real.cuEventSynchronize(event);
  return ++waited >= lost_from ? CUDA_ERROR_INVALID_VALUE : result;
}

enum { KINDS = 5, TIMES = 2 };

/* A kind of call fails from the time-th on. */
static void break_something(int kind, int time) {
  fails_at = 2 + 6 * time;
  switch (kind) {
  case 0:
    driver.cuMemDiscardBatchAsync = no_discard;
    break;
  case 1:
    driver.cuMemDiscardAndPrefetchBatchAsync = no_pages;
    break;
  case 2:
    driver.cuLaunchKernel = no_launch;
    break;
  case 3:
    driver.cuMemcpyDtoHAsync_v2 = no_copy_out;
    driver.cuMemcpyHtoDAsync_v2 = no_copy_in;
    break;
  default:
    lost_from = fails_at;
    driver.cuLaunchKernel = lost_launch;
    driver.cuEventSynchronize = lost_wait;
  }
}

/* Twelve parts. */
enum { ALLOCATIONS = 9 };
static size_t size_of(int i) { return (i % 3 ? 2 : 34) * MIB; }

/* On the way out, and then on the way in. */
START_TEST(calls_that_fail) {
  int kind = _i % KINDS, time = _i / KINDS % TIMES;
  bool outward = _i < KINDS * TIMES;
  CUdeviceptr memory[ALLOCATIONS];
  for (int i = 0; i < ALLOCATIONS; i++)
    memory[i] = get_filled(size_of(i), (uint64_t)i);
  carry_prepare(0);
  if (outward)
    break_something(kind, time);
  leave();
  if (!outward)
    break_something(kind, time);
  ck_assert_uint_eq(on_card(), 0);
  ck_assert_uint_eq(carry_bytes(0), slabs_used_bytes());
  come();
  for (int i = 0; i < ALLOCATIONS; i++)
    ck_assert(intact(memory[i], size_of(i), (uint64_t)i));
  fails_at = 0;
  if (outward)
    check_prefetched(); /* for good */
}
END_TEST

static CUresult broken; /* what these say */
static CUresult no_stream(CUstream *stream, unsigned int flags) {
  return broken ? broken : real.cuStreamCreate(stream, flags);
}
static CUresult no_advice(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device) {
  return broken ? broken : real.cuMemAdvise(at, bytes, advice, device);
}

/* What the processor can still write has its contents, and the rest is let go. */
START_TEST(a_driver_that_does_not_work_any_more) {
  static const CUresult results[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_DEINITIALIZED};
  CUdeviceptr memory = get_filled(300 * MIB, 5);
  leave();
  ck_assert_uint_eq(carry_bytes(0), 300 * MIB);
  driver.cuStreamCreate = no_stream;
  driver.cuMemAdvise = no_advice;
  broken = results[_i];
  ck_assert_int_eq(settle(UINT64_MAX), MEMORY_FAILED);
  ck_assert_uint_eq(carry_bytes(0), 300 * MIB);
  while (backend_managed.land(0) == MEMORY_MOVED)
    ;
  ck_assert_uint_eq(carry_bytes(0), 0);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  broken = CUDA_SUCCESS;
  ck_assert_int_eq(intact(memory, 300 * MIB, 5), _i == 0);
}
END_TEST

/* The registration of the slots is gone: the processor copies. */
START_TEST(slots_that_are_not_registered) {
  CUdeviceptr memory = get_filled(100 * MIB, 5);
  leave();
  ck_assert_uint_eq(carry_bytes(0), 100 * MIB);
  CUcontext context = world.context[0];
  world.context[0] = NULL; /* nor is there one to register them in */
  slabs_context_gone(context);
  uint64_t copied = counted(GS_SIM_copied_in_bytes);
  come();
  world.context[0] = context;
  ck_assert_uint_eq(counted(GS_SIM_copied_in_bytes), copied);
  ck_assert(intact(memory, 100 * MIB, 5));
}
END_TEST

START_TEST(a_context_that_is_being_destroyed) {
  CUdeviceptr memory = get_filled(100 * MIB, 6);
  carry_prepare(0);
  world.leaving = _i;
  leave();
  ck_assert_uint_eq(carry_bytes(0), _i ? 0 : 100 * MIB);
  world.leaving = true;
  settle(UINT64_MAX);
  ck_assert_uint_eq(carry_bytes(0), _i ? 0 : 100 * MIB);
  ck_assert_int_eq(backend_managed.land(0), _i ? MEMORY_SETTLED : MEMORY_SHORT); /* not now */
  world.leaving = false;
  come();
  ck_assert(intact(memory, 100 * MIB, 6));
}
END_TEST

/* ---- what ends while it is away ---- */

START_TEST(frees_while_away) {
  CUdeviceptr plain = get_filled(40 * MIB, 1), ordered = get_filled(40 * MIB, 2);
  CUdeviceptr refused = get_filled(40 * MIB, 3);
  CUstream stream;
  leave();
  give_back(plain);
  ck_assert_uint_eq(slabs_used_bytes(), 80 * MIB);
  ck_assert(take(ordered));
  ck_assert_int_eq(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ck_assert_int_eq(deferred_free(&taken, stream), CUDA_SUCCESS);
  ck_assert_uint_eq(slabs_used_bytes(), 40 * MIB);
  deferred_reap_all();
  ck_assert(take(refused));
  ck_assert_uint_eq(carry_bytes(0), 40 * MIB); /* it may come back yet */
  account_put_back(&account_addresses, &taken);
  come();
  ck_assert(intact(refused, 40 * MIB, 3));
}
END_TEST

START_TEST(what_goes_with_its_context) {
  CUdeviceptr memory = get_filled(40 * MIB, 1);
  leave();
  ck_assert_uint_eq(slabs_used_bytes(), 40 * MIB);
  if (_i)
    account_context_destroyed(world.context[0]);
  else /* unnoticed */
    ck_assert_int_eq(account_add(&account_addresses,
                                 &(struct allocation){.base = memory + MIB, .span = MIB, .bytes = MIB}),
                     0);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  ck_assert_uint_eq(carry_bytes(0), 0);
}
END_TEST

static void *volatile parents[2]; /* what the child abandons is not a leak */
static CUresult load_and_keep(CUmodule *module, const void *image) {
  CUresult result = real.cuModuleLoadData(module, image);
  parents[0] = *module;
  return result;
}

START_TEST(a_forked_child_knows_nothing) {
  driver.cuModuleLoadData = load_and_keep;
  get_filled(40 * MIB, 1);
  leave();
  parents[1] = account_addresses.root;
  forked_forget_all();
  ck_assert_uint_eq(carry_bytes(0), 0);
  ck_assert(parents[0] && parents[1]);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("carry");
  TCase *cases = tcase_create("carry");
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  tcase_add_checked_fixture(cases, setup, world_end);
  tcase_add_test(cases, contents_leave_and_come_back);
  tcase_add_test(cases, a_card_that_is_too_full_for_stages);
  tcase_add_test(cases, rooms_that_end_within_a_part);
  tcase_add_loop_test(cases, random_moves, 0, 8);
  tcase_add_test(cases, what_does_not_fit_lands_in_host_memory);
  tcase_add_test(cases, host_memory_is_made_ready);
  tcase_add_loop_test(cases, a_driver_without_discards, 0, 2);
  tcase_add_test(cases, the_programs_own_unified_memory_is_not_carried);
  tcase_add_test(cases, nothing_of_a_process_with_several_gpus);
  tcase_add_test(cases, nothing_is_tried_while_work_stands_still);
  tcase_add_test(cases, nothing_while_a_call_is_in_flight);
  tcase_add_test(cases, nothing_while_the_gate_is_open);
  tcase_add_test(cases, a_trial_that_is_put_off_takes_no_more_memory);
  tcase_add_test(cases, a_host_without_memory);
  tcase_add_test(cases, a_host_whose_memory_ends_in_the_middle);
  tcase_add_loop_test(cases, calls_that_fail, 0, 2 * KINDS * TIMES);
  tcase_add_loop_test(cases, a_driver_that_does_not_work_any_more, 0, 3);
  tcase_add_test(cases, slots_that_are_not_registered);
  tcase_add_loop_test(cases, a_context_that_is_being_destroyed, 0, 2);
  tcase_add_test(cases, frees_while_away);
  tcase_add_loop_test(cases, what_goes_with_its_context, 0, 2);
  tcase_add_test(cases, a_forked_child_knows_nothing);
  suite_add_tcase(suite, cases);
  TCase *drivers = tcase_create("drivers");
  tcase_set_timeout(drivers, SUITE_LIMIT_S);
  tcase_add_loop_test(drivers, a_driver_that_refuses_or_loses, 0, 3);
  suite_add_tcase(suite, drivers);
  return suite_run(suite);
}
