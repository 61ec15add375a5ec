/* test_pace.c - the marks that a paced submission makes, on a driver that the test plays: which stream they
 * are in, what they are never done to, and who waits for them. */
#include <check.h>
#include <string.h>

#include "../suite.h"
#include "common/clock.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "gate/lane.h"
#include "gate/limit.h"
#include "gate/pace.h"
#include "interpose/driver.h"

struct driver driver;

/* ---- the rest of the library ---- */

static struct gate_slot slots[2];
__thread struct gate_slot *gate_slot;
static unsigned captures;
static bool open;
static enum gate_pace pace;
static bool limited, wide;

unsigned capture_count(void) { return captures; }
bool gate_is_limited(CUdevice device) { return device == 0 && limited; }
bool limit_is_wide(CUdevice device) { return device == 0 && wide; }
bool gate_is_open(CUdevice device) { return device == 0 && open; }
enum gate_pace gate_pace(CUdevice device) { return device == 0 ? pace : GATE_FREE; }

/* ---- the driver ---- */

#define CONTEXT ((CUcontext)1)
#define STREAM ((CUstream)100)

static struct {
  unsigned created, recorded, asked;
  CUstream recorded_in; /* last */
  CUcontext current, created_in;
  CUresult passed, record; /* what it answers */
  unsigned answers;        /* until all is passed; 0: as `passed` says */
  unsigned relaxed;        /* questions by a thread that breaks no capture */
  unsigned slept;          /* between two looks */
} play;

static CUstreamCaptureMode mode;

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  play.slept += number == SYS_clock_nanosleep;
  return 0;
}

static CUresult exchange_mode(CUstreamCaptureMode *other) {
  CUstreamCaptureMode before = mode;
  mode = *other;
  *other = before;
  return CUDA_SUCCESS;
}

static void note_relaxed(void) { play.relaxed += mode == CU_STREAM_CAPTURE_MODE_RELAXED; }

static CUresult stream_context(CUstream stream, CUcontext *context) {
  (void)stream;
  *context = CONTEXT;
  return CUDA_SUCCESS;
}

static CUresult current_context(CUcontext *context) {
  *context = play.current;
  return CUDA_SUCCESS;
}

static CUresult push(CUcontext context) {
  play.current = context;
  return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context) {
  (void)context;
  play.current = CONTEXT;
  return CUDA_SUCCESS;
}

static CUresult create(CUevent *event, unsigned int flags) {
  ck_assert_uint_eq(flags, CU_EVENT_DISABLE_TIMING);
  play.created_in = play.current;
  *event = (CUevent)(uintptr_t)(1000 + play.created++);
  return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream) {
  ck_assert_ptr_nonnull(event);
  note_relaxed();
  play.recorded++;
  play.recorded_in = stream;
  return play.record;
}

static CUresult query(CUevent event) {
  ck_assert_ptr_nonnull(event);
  note_relaxed();
  play.asked++;
  if (play.answers > 0 && --play.answers == 0)
    play.passed = CUDA_SUCCESS;
  return play.passed;
}

static void set_up(void) {
  memset(&play, 0, sizeof play);
  play.current = CONTEXT;
  play.passed = CUDA_ERROR_NOT_READY;
  mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  gate_slot = &slots[0];
  captures = 0;
  open = true;
  pace = GATE_PACED;
  limited = wide = false;
  driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
  driver.cuStreamGetCtx = stream_context;
  driver.cuCtxGetCurrent = current_context;
  driver.cuCtxPushCurrent_v2 = push;
  driver.cuCtxPopCurrent_v2 = pop;
  driver.cuEventCreate = create;
  driver.cuEventRecord = record;
  driver.cuEventQuery = query;
  pace_fork_child();
  pace_begin(0, clock_now_ns());
}

static void tear_down(void) {}

START_TEST(a_mark_is_made_in_the_stream_of_the_submission) {
  pace_submission(0, STREAM);
  ck_assert_uint_eq(play.recorded, 1);
  ck_assert_ptr_eq(play.recorded_in, STREAM);
  ck_assert_ptr_eq(play.created_in, CONTEXT);
  pace_submission(0, CU_STREAM_LEGACY);
  ck_assert_uint_eq(play.recorded, 2);
  ck_assert_ptr_null(play.recorded_in);
  ck_assert_uint_eq(play.relaxed, play.recorded + play.asked);
  ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
END_TEST

START_TEST(nothing_is_done_while_anything_captures) {
  captures = 1;
  for (int i = 0; i < 100; i++)
    pace_submission(0, STREAM);
  ck_assert_uint_eq(play.recorded + play.asked + play.created, 0);
}
END_TEST

/* The GPU passes no mark: after some, each waits for as long as it has patience. */
START_TEST(who_has_waited_long_enough_passes_with_one_call) {
  for (int i = 0; i < 12; i++)
    pace_submission(0, STREAM);
  unsigned slept = play.slept;
  ck_assert_uint_gt(slept, 0);
  pace_submission(0, STREAM);
  ck_assert_uint_gt(play.slept, slept);
}
END_TEST

START_TEST(who_waits_goes_on_when_the_mark_is_passed) {
  play.answers = 20;
  for (int i = 0; i < 12; i++)
    pace_submission(0, STREAM);
  ck_assert_uint_ge(play.asked, 20);
  ck_assert(pace_held_back(0));
  ck_assert(!pace_is_behind(0));
  ck_assert_uint_gt(pace_caught_up_ns(0), 0);
}
END_TEST

/* Not near the end of a turn; nobody has said that it begins. */
START_TEST(where_it_is_limited_little_is_queued_all_the_time) {
  pace_fork_child();
  pace = GATE_FREE;
  pace_submission(0, STREAM);
  ck_assert_uint_eq(play.recorded, 0);
  limited = true;
  for (int i = 0; i < 5; i++)
    pace_submission(0, STREAM);
  ck_assert_uint_gt(play.recorded, 0);
  ck_assert_uint_gt(play.slept, 0); /* five of a millisecond, which would be little enough for a turn's end */
}
END_TEST

START_TEST(where_it_is_limited_widely_as_much_as_at_the_end_of_a_turn) {
  limited = wide = true;
  for (int i = 0; i < 5; i++)
    pace_submission(0, STREAM);
  ck_assert_uint_gt(play.recorded, 0);
  ck_assert_uint_eq(play.slept, 0);
}
END_TEST

START_TEST(before_that_it_is_behind) {
  ck_assert(!pace_is_behind(0));
  pace_submission(0, STREAM);
  ck_assert(pace_is_behind(0) && !pace_held_back(0));
  pace_begin(0, clock_now_ns());
  ck_assert(!pace_is_behind(0));
}
END_TEST

START_TEST(the_events_are_made_once) {
  play.passed = CUDA_SUCCESS;
  for (int round = 0; round < 5; round++) {
    pace_begin(0, clock_now_ns());
    for (int i = 0; i < 100; i++)
      pace_submission(0, STREAM);
  }
  ck_assert_uint_gt(play.recorded, LANE_MARKS);
  ck_assert_uint_le(play.created, LANE_MARKS);
}
END_TEST

/* Events of the old one mean nothing. */
START_TEST(a_context_that_comes_where_one_has_gone_has_its_own_events) {
  pace_submission(0, STREAM);
  pace_context_gone(CONTEXT);
  pace_submission(0, STREAM);
  ck_assert_uint_eq(play.created, 2);
}
END_TEST

START_TEST(each_thread_has_its_own_stream) {
  pace_submission(0, CU_STREAM_PER_THREAD);
  gate_slot = &slots[1];
  pace_submission(0, CU_STREAM_PER_THREAD);
  ck_assert_uint_eq(play.recorded, 2);
}
END_TEST

START_TEST(a_driver_that_refuses_is_not_asked_again) {
  play.record = CUDA_ERROR_INVALID_HANDLE;
  for (int i = 0; i < 100; i++)
    pace_submission(0, STREAM);
  ck_assert_uint_eq(play.recorded, 1);
}
END_TEST

START_TEST(more_streams_than_there_is_place_for_go_free) {
  for (uintptr_t i = 0; i < 200; i++)
    pace_submission(0, (CUstream)(1000 + i));
  ck_assert_uint_eq(play.recorded, 64);
  pace_begin(0, clock_now_ns()); /* other streams have a turn */
  pace_submission(0, (CUstream)1199);
  ck_assert_uint_eq(play.recorded, 65);
}
END_TEST

START_TEST(nobody_waits_before_a_gate_that_is_shut) {
  pace = GATE_HALTED;
  open = false;
  pace_submission(0, STREAM);
  ck_assert_uint_eq(play.slept, 0);
  open = true;
  pace_submission(0, STREAM); /* who finds it halted waits, and asks the driver nothing */
  ck_assert_uint_gt(play.slept, 0);
  ck_assert_uint_eq(play.recorded + play.asked, 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_mark_is_made_in_the_stream_of_the_submission,
                                nothing_is_done_while_anything_captures,
                                who_has_waited_long_enough_passes_with_one_call,
                                who_waits_goes_on_when_the_mark_is_passed,
                                where_it_is_limited_little_is_queued_all_the_time,
                                where_it_is_limited_widely_as_much_as_at_the_end_of_a_turn,
                                before_that_it_is_behind,
                                the_events_are_made_once,
                                a_context_that_comes_where_one_has_gone_has_its_own_events,
                                each_thread_has_its_own_stream,
                                a_driver_that_refuses_is_not_asked_again,
                                more_streams_than_there_is_place_for_go_free,
                                nobody_waits_before_a_gate_that_is_shut,
                                NULL};
  return suite_main("pace", tests, set_up, tear_down);
}
