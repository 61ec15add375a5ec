/* test_slabs.c - pinned host memory in slots: where they lie, how slabs are made, kept and given back. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "common/clock.h"
#include "common/host.h"
#include "driver/driver.h"
#include "gate/contexts.h"
#include "memory/device.h"
#include "memory/forked.h"
#include "memory/swap/slabs.h"

#define MIB (UINT64_C(1) << 20)
#define FIRST_CONTEXT ((CUcontext)0x100)
#define SECOND_CONTEXT ((CUcontext)0x101)

/* The rest of the library, and the driver. */

struct driver driver;
static _Atomic uint64_t host_bytes;
static _Atomic bool has_context, refuse_register, refuse_unregister;
static _Atomic unsigned registered, unregistered, strict_calls, searches;
static __thread bool relaxed, in_context;
static pthread_mutex_t visit = PTHREAD_MUTEX_INITIALIZER; /* a context that is visited does not go */

uint64_t host_available_bytes(void) { return host_bytes; }

CUstreamCaptureMode capture_relax(void) {
  relaxed = true;
  return CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void capture_unrelax(CUstreamCaptureMode mode) { relaxed = mode != CU_STREAM_CAPTURE_MODE_GLOBAL; }

bool contexts_any(CUdevice device, void (*action)(void *argument), void *argument) {
  searches += device == 1;
  if (device != 1 || !has_context)
    return false;
  pthread_mutex_lock(&visit);
  in_context = true;
  action(argument);
  in_context = false;
  pthread_mutex_unlock(&visit);
  return true;
}

static CUcontext current = FIRST_CONTEXT;

static CUresult fake_current(CUcontext *context) {
  *context = current;
  return in_context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult fake_register(void *memory, size_t bytes, unsigned flags) {
  strict_calls += !relaxed;
  if (refuse_register || flags != CU_MEMHOSTREGISTER_PORTABLE || !in_context)
    return CUDA_ERROR_INVALID_CONTEXT;
  ck_assert_uint_eq((uintptr_t)memory % (2 * MIB), 0);
  host_bytes -= bytes;
  registered++;
  return CUDA_SUCCESS;
}

static CUresult fake_unregister(void *memory) {
  strict_calls += !relaxed;
  if (refuse_unregister || !memory || !in_context)
    return CUDA_ERROR_INVALID_CONTEXT;
  unregistered++;
  return CUDA_SUCCESS;
}

static void set_up(void) {
  driver = (struct driver){.cuCtxGetCurrent = fake_current,
                           .cuMemHostRegister_v2 = fake_register,
                           .cuMemHostUnregister = fake_unregister};
  host_bytes = 1024 * MIB;
  has_context = true;
  in_context = true; /* the tests' own thread */
}

static void tear_down(void) { ck_assert_uint_eq(strict_calls, 0); }

/* The background thread does what it has been asked to. */
static void wait_for_pinned(uint64_t bytes) {
  uint64_t deadline_ns = clock_now_ns() + 20 * NS_PER_S;
  while (slabs_pinned_bytes() != bytes && clock_now_ns() < deadline_ns)
    suite_pause();
  ck_assert_uint_eq(slabs_pinned_bytes(), bytes);
}

/* Tests. */

/* So many bytes may have to leave from now on. */
static void prepare(uint64_t bytes) {
  slabs_expect(0, bytes > 0);
  slabs_need(0, BACKING_SWAP, bytes);
}

START_TEST(a_small_program_pins_little) {
  char *slot = slabs_get(10 * MIB);
  ck_assert_ptr_nonnull(slot);
  memset(slot, 1, 10 * MIB);
  ck_assert_uint_eq(slabs_pinned_bytes(), 32 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 10 * MIB);
  slabs_put(slot, 10 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  ck_assert_uint_eq(slabs_pinned_bytes(), 32 * MIB);
}
END_TEST

START_TEST(slabs_grow_with_what_there_is) {
  static const uint64_t sums[] = {32, 96, 224, 480, 736};
  uint64_t used = 0;
  for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
    while (used < sums[i]) {
      ck_assert_ptr_nonnull(slabs_get(32 * MIB));
      used += 32;
      ck_assert_uint_eq(slabs_pinned_bytes(), sums[i] * MIB);
    }
  }
  ck_assert_uint_eq(registered, 5);
}
END_TEST

START_TEST(a_large_slot_gets_a_slab_that_holds_it) {
  ck_assert_ptr_nonnull(slabs_get(SLABS_SLAB_BYTES));
  ck_assert_uint_eq(slabs_pinned_bytes(), SLABS_SLAB_BYTES);
  ck_assert_ptr_null(slabs_get(SLABS_SLAB_BYTES + SLABS_GRAIN_BYTES));
  ck_assert_ptr_null(slabs_get(0));
  ck_assert_ptr_null(slabs_get(MIB));
}
END_TEST

START_TEST(slots_are_the_first_that_fit_and_never_overlap) {
  char *a = slabs_get(8 * MIB), *b = slabs_get(16 * MIB), *c = slabs_get(8 * MIB);
  ck_assert_ptr_eq(b, a + 8 * MIB);
  ck_assert_ptr_eq(c, b + 16 * MIB);
  slabs_put(b, 16 * MIB);
  ck_assert_ptr_eq(slabs_get(6 * MIB), b);
  char *far = slabs_get(12 * MIB); /* 10 are left in the hole */
  ck_assert(far < a || far >= a + 32 * MIB);
  ck_assert_ptr_eq(slabs_get(10 * MIB), b + 6 * MIB);
  ck_assert_uint_eq(slabs_used_bytes(), 44 * MIB);
}
END_TEST

START_TEST(freed_neighbours_join) {
  char *slots[16];
  for (int i = 0; i < 16; i++)
    slots[i] = slabs_get(2 * MIB);
  slabs_put(slots[3], 2 * MIB);
  slabs_put(slots[5], 2 * MIB);
  slabs_put(slots[4], 2 * MIB);
  ck_assert_ptr_eq(slabs_get(6 * MIB), slots[3]);
  ck_assert_uint_eq(slabs_pinned_bytes(), 32 * MIB);
}
END_TEST

START_TEST(the_host_is_not_overdrawn) {
  host_bytes = 80 * MIB;
  ck_assert_ptr_nonnull(slabs_get(32 * MIB));
  ck_assert_ptr_nonnull(slabs_get(32 * MIB)); /* 64 would be next, 48 are left: 32 do */
  ck_assert_uint_eq(slabs_pinned_bytes(), 64 * MIB);
  ck_assert_ptr_null(slabs_get(2 * MIB));
  ck_assert_ptr_null(slabs_get(64 * MIB));
  prepare(1024 * MIB);
  wait_for_pinned(64 * MIB);
  host_bytes = 48 * MIB;
  ck_assert_ptr_null(slabs_get(64 * MIB)); /* nor is a slab made that is too small for it */
  ck_assert_uint_eq(slabs_pinned_bytes(), 64 * MIB);
  ck_assert_ptr_nonnull(slabs_get(2 * MIB));
}
END_TEST

START_TEST(without_registration_it_works_all_the_same) {
  refuse_register = true;
  char *slot = slabs_get(32 * MIB);
  ck_assert_ptr_nonnull(slot);
  memset(slot, 7, 32 * MIB);
  slabs_put(slot, 32 * MIB);
  refuse_unregister = true; /* there is nothing to unregister */
  slabs_set_tight(true);
  wait_for_pinned(0);
}
END_TEST

START_TEST(slabs_are_made_ahead) {
  prepare(300 * MIB);
  wait_for_pinned(320 * MIB); /* 256, and the rest in a small one */
  ck_assert_uint_eq(registered, 2);
  ck_assert_ptr_nonnull(slabs_get(32 * MIB));
  prepare(320 * MIB); /* those in use count */
  slabs_trim(clock_now_ns());
  ck_assert_uint_eq(slabs_pinned_bytes(), 320 * MIB);
  ck_assert_uint_eq(registered, 2);
}
END_TEST

START_TEST(nothing_is_made_ahead_without_a_context) {
  has_context = false;
  prepare(64 * MIB);
  ck_assert_ptr_nonnull(slabs_get(32 * MIB));
  wait_for_pinned(32 * MIB);
  ck_assert_uint_le(searches, 2);
  has_context = true;
  prepare(64 * MIB);
  wait_for_pinned(64 * MIB);
}
END_TEST

START_TEST(what_is_not_used_goes_after_a_while) {
  char *slot = slabs_get(32 * MIB), *other = slabs_get(64 * MIB);
  uint64_t now_ns = clock_now_ns();
  ck_assert_uint_eq(slabs_trim(now_ns + 100 * NS_PER_S), UINT64_MAX); /* all in use */
  slabs_put(other, 64 * MIB);
  uint64_t due_ns = slabs_trim(now_ns);
  ck_assert_uint_ge(due_ns, now_ns + 30 * NS_PER_S);
  ck_assert_uint_lt(due_ns, now_ns + 40 * NS_PER_S);
  ck_assert_uint_eq(slabs_trim(due_ns - 1), due_ns);
  ck_assert_uint_eq(slabs_trim(due_ns), UINT64_MAX);
  wait_for_pinned(32 * MIB);
  ck_assert_uint_eq(unregistered, 1);
  memset(slot, 1, 32 * MIB);
}
END_TEST

START_TEST(what_is_prepared_stays) {
  prepare(300 * MIB);
  wait_for_pinned(320 * MIB);
  ck_assert_uint_eq(slabs_trim(clock_now_ns() + 100 * NS_PER_S), UINT64_MAX);
  prepare(20 * MIB);
  slabs_trim(clock_now_ns() + 100 * NS_PER_S);
  wait_for_pinned(64 * MIB);
  prepare(0);
  slabs_trim(clock_now_ns() + 100 * NS_PER_S);
  wait_for_pinned(0);
}
END_TEST

START_TEST(scarce_memory_goes_at_once) {
  char *slot = slabs_get(32 * MIB);
  prepare(300 * MIB);
  wait_for_pinned(32 * MIB + 256 * MIB + 32 * MIB);
  slabs_set_tight(true);
  wait_for_pinned(32 * MIB);
  prepare(300 * MIB); /* not now */
  char *other = slabs_get(64 * MIB);
  ck_assert_ptr_nonnull(other);
  slabs_put(slot, 32 * MIB);
  wait_for_pinned(64 * MIB);
  slabs_put(other, 64 * MIB);
  wait_for_pinned(0);
  slabs_set_tight(false);
  wait_for_pinned(320 * MIB);
}
END_TEST

START_TEST(what_the_driver_holds_on_to_stays) {
  char *slot = slabs_get(32 * MIB);
  slabs_put(slot, 32 * MIB);
  refuse_unregister = true;
  uint64_t next_ns = slabs_trim(clock_now_ns() + 31 * NS_PER_S);
  ck_assert_uint_eq(next_ns, UINT64_MAX);
  char *again;
  do /* until the background thread has given up */
    again = slabs_get(32 * MIB);
  while (again != slot);
  slabs_put(slot, 32 * MIB);
  refuse_unregister = false;
  slabs_set_tight(true);
}
END_TEST

static void wait_for_registered(unsigned count) {
  uint64_t deadline_ns = clock_now_ns() + 20 * NS_PER_S;
  while (registered != count && clock_now_ns() < deadline_ns)
    suite_pause();
  ck_assert_uint_eq(registered, count);
}

static void lose_context(CUcontext context) {
  pthread_mutex_lock(&visit);
  slabs_context_gone(context);
  pthread_mutex_unlock(&visit);
}

START_TEST(a_registration_that_died_with_its_context_is_made_again) {
  char *slot = slabs_get(32 * MIB);
  current = SECOND_CONTEXT;
  ck_assert_ptr_nonnull(slabs_get(64 * MIB));
  memset(slot, 7, 32 * MIB);
  lose_context(FIRST_CONTEXT);
  wait_for_registered(3); /* the first slab, in the second context */
  lose_context(FIRST_CONTEXT);
  has_context = false;
  lose_context(SECOND_CONTEXT); /* the last one */
  has_context = true;
  prepare(1);
  wait_for_registered(5);
  ck_assert_int_eq(slot[32 * MIB - 1], 7);
}
END_TEST

static void *use_slots(void *argument) {
  unsigned seed = (unsigned)(uintptr_t)argument;
  char *held[8] = {0};
  in_context = true;
  for (int i = 0; i < 2000; i++) {
    unsigned at = (unsigned)rand_r(&seed) % 8;
    uint64_t bytes = (1 + at) * 2 * MIB;
    if (held[at]) {
      ck_assert_int_eq(held[at][0], held[at][bytes - 1]);
      slabs_put(held[at], bytes);
      held[at] = NULL;
    } else if ((held[at] = slabs_get(bytes))) {
      held[at][0] = held[at][bytes - 1] = (char)rand_r(&seed);
    }
  }
  for (unsigned at = 0; at < 8; at++)
    if (held[at])
      slabs_put(held[at], (1 + at) * 2 * MIB);
  return NULL;
}

START_TEST(many_threads) {
  pthread_t threads[4];
  for (uintptr_t i = 0; i < 4; i++)
    pthread_create(&threads[i], NULL, use_slots, (void *)(i + 1));
  for (int i = 0; i < 50; i++) {
    prepare(64 * MIB * (i % 3));
    slabs_trim(clock_now_ns() + 100 * NS_PER_S);
    slabs_set_tight(i % 5 == 0);
  }
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  ck_assert_uint_eq(slabs_used_bytes(), 0);
  slabs_set_tight(true);
  wait_for_pinned(0);
}
END_TEST

START_TEST(the_child_of_a_fork_has_none) {
  char *slot = slabs_get(16 * MIB);
  pid_t child = fork();
  if (child == 0) {
    unsigned char resident;
    forked_forget_all();
    bool fresh = slabs_pinned_bytes() == 0 && slabs_used_bytes() == 0;
    bool unmapped = mincore(slot, 4096, &resident) != 0;
    char *own = slabs_get(2 * MIB);
    _exit(fresh && unmapped && own && *(volatile char *)own == 0 ? 0 : 1);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_small_program_pins_little,
                                slabs_grow_with_what_there_is,
                                a_large_slot_gets_a_slab_that_holds_it,
                                slots_are_the_first_that_fit_and_never_overlap,
                                freed_neighbours_join,
                                the_host_is_not_overdrawn,
                                without_registration_it_works_all_the_same,
                                slabs_are_made_ahead,
                                nothing_is_made_ahead_without_a_context,
                                what_is_not_used_goes_after_a_while,
                                what_is_prepared_stays,
                                scarce_memory_goes_at_once,
                                what_the_driver_holds_on_to_stays,
                                a_registration_that_died_with_its_context_is_made_again,
                                many_threads,
                                the_child_of_a_fork_has_none,
                                NULL};
  return suite_main("slabs", tests, set_up, tear_down);
}
