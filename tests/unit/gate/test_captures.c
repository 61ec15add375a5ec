/* test_captures.c - which captures may begin, and what is known of streams, on a played driver. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "../suite.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/streams.h"

struct driver driver;

/* ---- the gate is open ---- */

_Atomic uint32_t gate_all_open;
_Atomic bool gate_has_membarrier;
__thread struct gate_slot *gate_slot;
static __thread struct gate_slot own_slot;
static _Atomic unsigned leaves;
void gate_enter_slow(CUstream stream, uint64_t reach, uintptr_t frame) {
  (void)stream, (void)reach, (void)frame;
  gate_slot = &own_slot;
}
void gate_leave_slow(void) { leaves++; }

/* ---- the driver: streams 1 to 9 are of the first context, 11 to 19 of the second ---- */

#define STREAM(n) ((CUstream)(intptr_t)(0x100 + (n))) // NOLINT(performance-no-int-to-ptr)
#define CONTEXT(n) ((CUcontext)(intptr_t)(n))

static CUcontext current;
static CUstream busy, next_stream;
static CUcontext busy_in; /* its legacy stream */
static _Atomic unsigned begun;
static CUresult answer;

static CUcontext context_of(CUstream stream) { return CONTEXT((intptr_t)stream < 0x100 + 10 ? 1 : 2); }

static CUresult get_context(CUstream stream, CUcontext *context) {
  *context = context_of(stream);
  return CUDA_SUCCESS;
}
static CUresult query(CUstream stream) {
  if (stream == CU_STREAM_LEGACY)
    return current == busy_in ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  ck_assert_msg(context_of(stream) == current, "asked in another context");
  return stream == busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
static CUresult create(CUstream *stream, unsigned flags) {
  *stream = flags ? NULL : next_stream;
  return CUDA_SUCCESS;
}
static CUresult destroy(CUstream stream) {
  busy = stream == busy && answer == CUDA_SUCCESS ? NULL : busy;
  return answer;
}
static CUresult begin(CUstream stream) {
  begun += stream != NULL;
  return answer;
}
static CUresult end(CUstream stream, CUgraph *graph) {
  *graph = NULL;
  return stream ? answer : CUDA_ERROR_INVALID_VALUE;
}

bool contexts_each(CUdevice device, bool (*visit)(CUcontext context, void *argument), void *argument) {
  bool more = device == 0;
  for (intptr_t n = 1; n <= 2 && more; n++)
    more = visit(current = CONTEXT(n), argument);
  return more;
}

static void set_up(void) {
  driver.cuStreamGetCtx = get_context;
  driver.cuStreamQuery = query;
  driver.cuStreamCreate = create;
  driver.cuStreamDestroy_v2 = destroy;
  driver.cuStreamBeginCapture = begin;
  driver.cuStreamEndCapture = end;
  answer = CUDA_SUCCESS;
}

static void make(int n) {
  CUstream made;
  next_stream = STREAM(n);
  ck_assert_int_eq(hook_cuStreamCreate(&made, 0), CUDA_SUCCESS);
}

/* ---- captures ---- */

static void *begin_one(void *stream) {
  ck_assert_int_eq(hook_cuStreamBeginCapture(stream), CUDA_SUCCESS);
  return NULL;
}

START_TEST(no_capture_begins_while_that_is_forbidden) {
  pthread_t thread;
  capture_forbid();
  pthread_create(&thread, NULL, begin_one, STREAM(1));
  while (!leaves && !begun) /* it waits behind the gate, not within */
    suite_pause();
  ck_assert_uint_eq(capture_count() + begun, 0);
  capture_allow();
  pthread_join(thread, NULL);
  ck_assert_uint_eq(capture_count(), 1);
}
END_TEST

/* Both may belong to one graph: who waits for the first one's end would wait for ever. */
START_TEST(within_a_capture_another_begins_all_the_same) {
  CUgraph graph;
  begin_one(STREAM(1));
  capture_forbid();
  begin_one(STREAM(2));
  ck_assert_uint_eq(capture_count(), 2);
  ck_assert(!capture_wait_none(0));
  hook_cuStreamEndCapture(STREAM(1), &graph);
  hook_cuStreamEndCapture(STREAM(2), &graph);
  ck_assert(capture_wait_none(UINT64_MAX));
}
END_TEST

START_TEST(only_what_captures_counts) {
  CUgraph graph;
  answer = CUDA_ERROR_ILLEGAL_STATE;
  hook_cuStreamBeginCapture(STREAM(1));
  ck_assert_uint_eq(capture_count(), 0);
  answer = CUDA_SUCCESS;
  begin_one(STREAM(1));
  answer = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  hook_cuStreamEndCapture(STREAM(1), &graph);
  ck_assert_uint_eq(capture_count(), 1);
  hook_cuStreamDestroy_v2(STREAM(1));
  ck_assert_uint_eq(capture_count(), 1); /* refused */
  answer = CUDA_SUCCESS;
  hook_cuStreamDestroy_v2(STREAM(1));
  ck_assert_uint_eq(capture_count(), 0);
}
END_TEST

/* ---- streams ---- */

START_TEST(every_stream_and_the_legacy_ones_are_asked) {
  make(3);
  make(14);
  ck_assert_int_eq(streams_ask(0), STREAMS_FINISHED);
  for (int n = 1; n <= 2; n++) {
    busy_in = CONTEXT(n);
    ck_assert_int_eq(streams_ask(0), STREAMS_BUSY);
  }
  busy_in = NULL;
  busy = STREAM(14);
  ck_assert_int_eq(streams_ask(0), STREAMS_BUSY);
  answer = CUDA_ERROR_INVALID_HANDLE; /* a destruction that is refused */
  hook_cuStreamDestroy_v2(STREAM(14));
  ck_assert_int_eq(streams_ask(0), STREAMS_BUSY);
  answer = CUDA_SUCCESS;
  hook_cuStreamDestroy_v2(STREAM(14));
  ck_assert_int_eq(streams_ask(0), STREAMS_FINISHED);
  busy = STREAM(3);
  ck_assert_int_eq(streams_ask(0), STREAMS_BUSY);
  streams_context_gone(CONTEXT(1));
  ck_assert_int_eq(streams_ask(0), STREAMS_FINISHED);
}
END_TEST

START_TEST(per_thread_streams_can_not_be_asked) {
  streams_note(STREAM(3));
  streams_note(CU_STREAM_LEGACY);
  ck_assert_int_eq(streams_ask(0), STREAMS_FINISHED);
  streams_note(CU_STREAM_PER_THREAD);
  ck_assert_int_eq(streams_ask(0), STREAMS_UNKNOWN);
  busy_in = CONTEXT(1);
  ck_assert_int_eq(streams_ask(0), STREAMS_BUSY);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {no_capture_begins_while_that_is_forbidden,
                                within_a_capture_another_begins_all_the_same,
                                only_what_captures_counts,
                                every_stream_and_the_legacy_ones_are_asked,
                                per_thread_streams_can_not_be_asked,
                                NULL};
  return suite_main("captures", tests, set_up, NULL);
}
