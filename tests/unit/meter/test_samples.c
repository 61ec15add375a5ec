/* test_samples.c - which submissions are measured, by which events, and what becomes of that; on a driver
 * that the test plays. */
#include <check.h>
#include <string.h>

#include "../suite.h"
#include "common/clock.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/limit.h"
#include "interpose/driver.h"
#include "meter/page.h"
#include "meter/samples.h"

#define US UINT64_C(1000)
#define CONTEXT ((CUcontext)1)
#define OTHER_CONTEXT ((CUcontext)2)
#define STREAM ((CUstream)100)       /* of CONTEXT */
#define SECOND ((CUstream)101)       /* likewise */
#define OTHER_STREAM ((CUstream)200) /* of OTHER_CONTEXT */

struct driver driver;

/* ---- the rest of the library ---- */

static struct gate_slot slots[2];
__thread struct gate_slot *gate_slot;
static struct gs_meter page;
static unsigned captures;
static bool limited;
static int64_t corrected_ns;

unsigned capture_count(void) { return captures; }
struct gs_meter *page_of(CUdevice device) {
  return device == 0 ? &page : NULL;
}
bool gate_is_limited(CUdevice device) { return device == 0 && limited; }
void limit_correct(CUdevice device, int64_t more_ns) {
  (void)device;
  corrected_ns += more_ns;
}

/* ---- the driver ---- */

static struct {
  CUcontext current;
  unsigned created, destroyed, recorded;
  CUresult record, query; /* what it answers */
  uint64_t took_ns;
  unsigned relaxed; /* calls by a thread that breaks no capture */
} play;
static CUstreamCaptureMode mode;

static CUresult exchange_mode(CUstreamCaptureMode *other) {
  CUstreamCaptureMode before = mode;
  mode = *other;
  *other = before;
  return CUDA_SUCCESS;
}

static CUresult stream_context(CUstream stream, CUcontext *context) {
  *context = stream == OTHER_STREAM ? OTHER_CONTEXT : CONTEXT;
  return CUDA_SUCCESS;
}

static CUresult current_context(CUcontext *context) {
  *context = CONTEXT;
  return CUDA_SUCCESS;
}

static CUresult push(CUcontext context) {
  play.current = context;
  return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context) {
  (void)context;
  play.current = NULL;
  return CUDA_SUCCESS;
}

/* An event is a number that tells its context. */
static CUresult create(CUevent *event, unsigned int flags) {
  ck_assert_uint_eq(flags, CU_EVENT_DEFAULT);
  play.created++;
  *event = (CUevent)((uintptr_t)play.current * 1000 + play.created);
  return CUDA_SUCCESS;
}

static CUresult destroy(CUevent event) {
  ck_assert_ptr_nonnull(event);
  play.destroyed++;
  return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream) {
  CUcontext context;
  stream_context(stream, &context);
  ck_assert_uint_eq((uintptr_t)event / 1000, (uintptr_t)context);
  play.recorded++;
  play.relaxed += mode == CU_STREAM_CAPTURE_MODE_RELAXED;
  return play.record;
}

static CUresult query(CUevent event) {
  ck_assert_ptr_nonnull(event);
  return play.query;
}

static CUresult elapsed(float *ms, CUevent begin, CUevent end) {
  ck_assert_ptr_ne(begin, end);
  *ms = (float)play.took_ns / (float)NS_PER_MS;
  return CUDA_SUCCESS;
}

bool contexts_each(CUdevice device, bool (*visit)(CUcontext context, void *argument), void *argument) {
  ck_assert_int_eq(device, 0);
  return visit(CONTEXT, argument) && visit(OTHER_CONTEXT, argument);
}

static void set_up(void) {
  memset(&play, 0, sizeof play);
  memset(&page, 0, sizeof page);
  play.query = CUDA_ERROR_NOT_READY;
  mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  gate_slot = &slots[0];
  captures = 0;
  limited = false;
  corrected_ns = 0;
  driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
  driver.cuStreamGetCtx = stream_context;
  driver.cuCtxGetCurrent = current_context;
  driver.cuCtxPushCurrent_v2 = push;
  driver.cuCtxPopCurrent_v2 = pop;
  driver.cuEventCreate = create;
  driver.cuEventDestroy_v2 = destroy;
  driver.cuEventRecord = record;
  driver.cuEventQuery = query;
  driver.cuEventElapsedTime = elapsed;
  samples_fork_child();
}

static void tear_down(void) {}

/* ---- the tests ---- */

static const struct meter_work kernel = {.what = &slots, .amount = {.kernels = 1, .blocks = 10}};
static const struct meter_work copy = {.what = &page, .amount = {.bytes = 5000}};

/* True if it was measured, or will be. */
static bool submit(CUstream stream, const struct meter_work *work) {
  struct sample *sample = sample_begin(0, stream, work);
  if (sample)
    sample_end(sample, true);
  return sample != NULL;
}

static uint64_t collect(void) { return samples_collect(0); }

static void measure(const struct meter_work *work, uint64_t took_ns) {
  ck_assert(submit(STREAM, work));
  play.query = CUDA_SUCCESS;
  play.took_ns = took_ns;
  ck_assert_uint_eq(collect(), 0);
}

/* What a kernel takes that is stopped in its middle says nothing of it. */
START_TEST(what_was_interrupted_is_not_learnt) {
  for (int i = 0; i < 4; i++)
    measure(&kernel, 1000);
  uint64_t cost_ns = samples_cost_ns(0, &kernel);
  ck_assert_uint_gt(cost_ns, 0);
  ck_assert(submit(STREAM, &kernel));
  samples_interrupted(1);
  samples_interrupted(0);
  play.query = CUDA_SUCCESS;
  play.took_ns = 1000000000;
  ck_assert_uint_eq(collect(), 0);
  ck_assert_uint_eq(samples_cost_ns(0, &kernel), cost_ns);
  measure(&kernel, 2000); /* the next one is */
  ck_assert_uint_ne(samples_cost_ns(0, &kernel), cost_ns);
}
END_TEST

START_TEST(one_at_a_time_in_each_stream) {
  ck_assert(submit(STREAM, &kernel));
  ck_assert(!submit(STREAM, &kernel));
  ck_assert(submit(SECOND, &kernel));
  ck_assert(submit(OTHER_STREAM, &kernel));
  ck_assert_uint_eq(play.recorded, 6);
  ck_assert_uint_eq(play.relaxed, 6);
  ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  ck_assert_uint_gt(collect(), 0); /* none has finished */
  ck_assert(!submit(STREAM, &kernel));
  play.query = CUDA_SUCCESS;
  ck_assert_uint_eq(collect(), 0);
  ck_assert(submit(STREAM, &kernel));
  ck_assert_uint_eq(play.created, 6);
}
END_TEST

START_TEST(each_thread_has_its_own_stream) {
  ck_assert(submit(CU_STREAM_PER_THREAD, &kernel));
  gate_slot = &slots[1];
  ck_assert(submit(CU_STREAM_PER_THREAD, &kernel));
  ck_assert(!submit(CU_STREAM_PER_THREAD, &kernel));
}
END_TEST

START_TEST(none_while_anything_captures) {
  captures = 1;
  ck_assert(!submit(STREAM, &kernel));
  ck_assert_uint_eq(play.recorded + play.created, 0);
}
END_TEST

START_TEST(what_was_not_submitted_is_not_measured) {
  sample_end(sample_begin(0, STREAM, &kernel), false);
  ck_assert_uint_eq(collect(), 0);
  ck_assert(submit(STREAM, &kernel));
}
END_TEST

START_TEST(a_driver_that_refuses_is_obeyed) {
  play.record = CUDA_ERROR_INVALID_HANDLE;
  ck_assert(!submit(STREAM, &kernel));
  ck_assert_uint_eq(collect(), 0);
  play.record = CUDA_SUCCESS;
  ck_assert(submit(STREAM, &kernel));
  play.query = CUDA_ERROR_ILLEGAL_ADDRESS;
  ck_assert_uint_eq(collect(), 0);
  ck_assert_uint_eq(samples_sums(0).count, 0);
}
END_TEST

/* The program may use more streams, and contexts, than there are places. */
START_TEST(places_are_given_back) {
  unsigned measured = 0;
  for (uintptr_t i = 0; i < 100; i++)
    measured += submit((CUstream)(1000 + i), &kernel);
  ck_assert_uint_ge(measured, 8);
  ck_assert_uint_lt(measured, 100);
  play.query = CUDA_SUCCESS;
  ck_assert_uint_eq(collect(), 0);
  ck_assert(submit(OTHER_STREAM, &kernel));
  ck_assert_uint_eq(play.destroyed, 2);
}
END_TEST

START_TEST(a_context_takes_its_events_along) {
  ck_assert(submit(STREAM, &kernel));
  struct sample *sample = sample_begin(0, SECOND, &kernel);
  samples_context_gone(CONTEXT);
  sample_end(sample, false);
  play.query = CUDA_SUCCESS;
  ck_assert_uint_eq(collect(), 0);
  ck_assert_uint_eq(play.destroyed, 0);
  ck_assert(submit(STREAM, &kernel));
  ck_assert(submit(SECOND, &kernel));
  ck_assert_uint_eq(play.created, 8);
}
END_TEST

START_TEST(no_place_is_lost_with_a_context) {
  for (int i = 0; i < 40; i++) {
    struct sample *sample = sample_begin(0, STREAM, &kernel);
    ck_assert_ptr_nonnull(sample);
    samples_context_gone(CONTEXT);
    sample_end(sample, true);
  }
}
END_TEST

START_TEST(what_is_expected_is_what_it_takes_undisturbed) {
  measure(&kernel, 100 * US);
  ck_assert_uint_eq(samples_sums(0).count, 0);
  page.undisturbed = 1;
  measure(&kernel, 100 * US);
  measure(&copy, 700 * US); /* which says nothing about kernels */
  page.undisturbed = 0;
  measure(&kernel, 300 * US);
  struct samples_sums sums = samples_sums(0);
  ck_assert_uint_eq(sums.count, 2);
  ck_assert_uint_eq(sums.sampled_ns / US, 400);
  ck_assert_uint_eq(sums.expected_ns / US, 200);
}
END_TEST

/* At the beginning nobody else was there, at the end somebody was. */
START_TEST(what_was_disturbed_in_between_teaches_nothing) {
  page.undisturbed = 1;
  ck_assert(submit(STREAM, &kernel));
  page.undisturbed = 0;
  play.query = CUDA_SUCCESS;
  play.took_ns = 100 * US;
  collect();
  ck_assert_uint_eq(samples_sums(0).count, 0);
}
END_TEST

START_TEST(what_it_took_more_than_was_believed_is_charged) {
  uint64_t believed_ns = samples_cost_ns(0, &kernel);
  measure(&kernel, 900 * US);
  ck_assert_int_eq(corrected_ns, 0);
  ck_assert_uint_eq(samples_cost_ns(0, &kernel) / US, 900);
  limited = true;
  measure(&copy, 1000 * US);
  ck_assert_int_eq(corrected_ns / (int64_t)US, 100); /* was believed to take as long as the kernel */
  measure(&kernel, 400 * US);
  ck_assert_int_eq(corrected_ns / (int64_t)US, 100 - 500);
  ck_assert_uint_ne(believed_ns, samples_cost_ns(0, &kernel));
}
END_TEST

/* By the same thread. */
START_TEST(what_follows_is_foreseen) {
  measure(&kernel, 50 * US);
  measure(&copy, 3000 * US);
  ck_assert_uint_eq(samples_charge(0, &kernel).next_ns, 0);
  for (int i = 0; i < 3; i++) {
    struct samples_charge charge = samples_charge(0, &copy);
    ck_assert_uint_eq(charge.ns / US, 3000);
    ck_assert_uint_eq(charge.next_ns / US, i > 0 ? 50 : 0);
    charge = samples_charge(0, &kernel);
    ck_assert_uint_eq(charge.ns / US, 50);
    ck_assert_uint_eq(charge.next_ns / US, 3000);
  }
}
END_TEST

START_TEST(little_is_known_at_first) {
  const struct meter_work as_large = {.what = &page, .amount = {.bytes = 6000}};
  for (int i = 0; i < 3; i++) {
    ck_assert(samples_lack(0, &copy));
    measure(&copy, 10 * US);
  }
  ck_assert(!samples_lack(0, &copy));
  ck_assert(!samples_lack(0, &as_large));
  ck_assert(samples_lack(0, &kernel));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {what_was_interrupted_is_not_learnt,
                                one_at_a_time_in_each_stream,
                                each_thread_has_its_own_stream,
                                none_while_anything_captures,
                                what_was_not_submitted_is_not_measured,
                                a_driver_that_refuses_is_obeyed,
                                places_are_given_back,
                                a_context_takes_its_events_along,
                                no_place_is_lost_with_a_context,
                                what_is_expected_is_what_it_takes_undisturbed,
                                what_was_disturbed_in_between_teaches_nothing,
                                what_it_took_more_than_was_believed_is_charged,
                                what_follows_is_foreseen,
                                little_is_known_at_first,
                                NULL};
  return suite_main("samples", tests, set_up, tear_down);
}
