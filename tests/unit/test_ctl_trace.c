/* test_ctl_trace.c - events made into a trace, also those whose beginning is not there any more. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/wire.h"
#include "ctl/trace.h"
#include "suite.h"

#define TURNS_OF(job) (1 + 2 * (job))

static struct trace trace;
static FILE *stream;
static char *text;
static size_t size;
static json_t *root;

static void begin(uint64_t now_ms) {
  struct gs_msg msg = wire_msg(GS_EVENTS_BEGIN, GS_GPU_ALL);
  msg.events.now_ns = now_ms * NS_PER_MS;
  stream = open_memstream(&text, &size);
  trace_begin(&trace, stream);
  trace_take(&trace, &msg);
}

static struct gs_msg event(enum gs_event_kind kind, uint32_t job, uint64_t at_ms) {
  struct gs_msg msg = wire_msg(GS_EVENT, 0);
  msg.event.kind = kind;
  msg.event.job = job;
  msg.event.at_ns = at_ms * NS_PER_MS;
  return msg;
}

static void take(enum gs_event_kind kind, uint32_t job, uint64_t at_ms) {
  struct gs_msg msg = event(kind, job, at_ms);
  trace_take(&trace, &msg);
}

static void take_job(uint32_t job, enum gs_job_state state) {
  struct gs_msg msg = wire_msg(GS_STATUS_JOB, 0);
  msg.job_status.job = job;
  msg.job_status.state = (uint8_t)state;
  trace_job(&trace, &msg);
}

static void end(void) {
  json_error_t error;
  ck_assert_int_eq(trace_end(&trace), 0);
  fclose(stream);
  root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(root != NULL, "%s: %s", error.text, text);
}

static void tear_down(void) {
  json_decref(root);
  free(text);
}

/* A thread's slices: "NAME FROM-TO, " in ms. */
static const char *slices(json_int_t thread) {
  static char list[256];
  json_t *entry;
  size_t i;
  *list = '\0';
  json_array_foreach(json_object_get(root, "traceEvents"), i, entry) {
    double from_ms = json_number_value(json_object_get(entry, "ts")) / 1000;
    double to_ms = from_ms + json_number_value(json_object_get(entry, "dur")) / 1000;
    if (strcmp(json_string_value(json_object_get(entry, "ph")), "X") == 0 &&
        json_integer_value(json_object_get(entry, "tid")) == thread)
      snprintf(list + strlen(list), sizeof list - strlen(list), "%s %.0f-%.0f, ",
               json_string_value(json_object_get(entry, "name")), from_ms, to_ms);
  }
  return list;
}

/* The values of a counter, in their order. */
static const char *values(const char *name, const char *key) {
  static char list[256];
  json_t *entry;
  size_t i;
  *list = '\0';
  json_array_foreach(json_object_get(root, "traceEvents"), i,
                     entry) if (strcmp(json_string_value(json_object_get(entry, "name")), name) == 0)
      snprintf(list + strlen(list), sizeof list - strlen(list), "%.0f ",
               json_number_value(json_object_get(json_object_get(entry, "args"), key)));
  return list;
}

START_TEST(turns_are_slices) {
  begin(100);
  take(GS_EVENT_ATTACHED, 1, 10);
  take(GS_EVENT_ASKED, 1, 20);
  take(GS_EVENT_GRANTED, 1, 30);
  take(GS_EVENT_RUNS, 1, 35);
  take(GS_EVENT_DROP, 1, 60);
  take(GS_EVENT_RELEASED, 1, 70);
  take(GS_EVENT_ASKED, 1, 80);
  end();
  ck_assert_str_eq(slices(TURNS_OF(1)),
                   "waits 10-20, restores 20-25, runs 25-50, drains 50-60, waits 70-90, ");
  ck_assert_str_eq(values("waiting", "jobs"), "1 0 1 ");
}
END_TEST

START_TEST(a_turn_without_length_is_told) {
  begin(100);
  take(GS_EVENT_ASKED, 1, 10);
  take(GS_EVENT_GRANTED, 1, 30);
  take(GS_EVENT_DETACHED, 1, 30);
  end();
  ck_assert_str_eq(slices(TURNS_OF(1)), "waits 0-20, restores 20-20, ");
}
END_TEST

START_TEST(what_was_before_the_first_event_is_known_from_it) {
  begin(100);
  take(GS_EVENT_DROP, 1, 10);
  take(GS_EVENT_RELEASED, 1, 20);
  take(GS_EVENT_GRANTED, 2, 20);
  take(GS_EVENT_RUNS, 2, 30);
  take(GS_EVENT_RUNS, 3, 40);
  end();
  ck_assert_str_eq(slices(TURNS_OF(1)), "drains 0-10, "); /* before that there is no time */
  ck_assert_str_eq(slices(TURNS_OF(2)), "waits 0-10, restores 10-20, runs 20-90, ");
  ck_assert_str_eq(slices(TURNS_OF(3)), "restores 0-30, runs 30-90, ");
  ck_assert_str_eq(values("waiting", "jobs"), "1 0 ");
}
END_TEST

START_TEST(one_without_events_does_what_it_did) {
  begin(100);
  take(GS_EVENT_ASKED, 1, 10);
  take_job(1, GS_JOB_HOLDING); /* of that there would be events */
  take_job(2, GS_JOB_HOLDING);
  take_job(3, GS_JOB_IDLE);
  end();
  ck_assert_str_eq(slices(TURNS_OF(1)), "waits 0-90, ");
  ck_assert_str_eq(slices(TURNS_OF(2)), "runs 0-90, ");
  ck_assert_str_eq(slices(TURNS_OF(3)), "");
}
END_TEST

START_TEST(what_is_missing_is_left_out) {
  struct gs_msg missed = wire_msg(GS_EVENTS_MISSED, GS_GPU_ALL);
  begin(100);
  take(GS_EVENT_RUNS, 1, 10);
  take(GS_EVENT_MEMORY, 1, 30);
  trace_take(&trace, &missed);
  take(GS_EVENT_ASKED, 1, 60);
  end();
  ck_assert_str_eq(slices(TURNS_OF(1)), "runs 0-20, waits 50-90, ");
}
END_TEST

START_TEST(slices_of_a_thread_do_not_overlap) {
  struct gs_msg msg = event(GS_EVENT_HANDOVER, 1, 30);
  begin(100);
  take(GS_EVENT_ATTACHED, 1, 10);
  msg.event.handover.drain_ns = 100 * NS_PER_MS; /* of several */
  msg.event.handover.move_ns = 5 * NS_PER_MS;
  trace_take(&trace, &msg);
  msg.event.at_ns = 40 * NS_PER_MS;
  trace_take(&trace, &msg);
  msg = event(GS_EVENT_EVICTED, 1, 50);
  msg.event.turn.until_ns = 45 * NS_PER_MS;
  msg.event.turn.ns = 10 * NS_PER_MS;
  trace_take(&trace, &msg);
  msg.event.kind = GS_EVENT_RESTORED;
  msg.event.turn.until_ns = 50 * NS_PER_MS;
  trace_take(&trace, &msg);
  end();
  ck_assert_str_eq(slices(1), "drain 0-15, moves 15-20, drain 20-25, moves 25-30, ");
  ck_assert_str_eq(slices(TURNS_OF(1) + 1), "evicts 25-35, restores 35-40, ");
}
END_TEST

START_TEST(memory_and_limits_are_counters) {
  struct gs_msg msg = event(GS_EVENT_RESTORED, 1, 20);
  begin(100);
  take(GS_EVENT_ATTACHED, 1, 10);
  msg.event.turn.resident_bytes = 3 << 20;
  trace_take(&trace, &msg);
  trace_take(&trace, &msg); /* no change */
  msg.event.kind = GS_EVENT_LIMIT;
  msg.event.turn.bytes = GS_LIMITED_WHOLE / 4;
  trace_take(&trace, &msg);
  take(GS_EVENT_DETACHED, 1, 30);
  end();
  ck_assert_str_eq(values("job 1 on card", "MiB"), "3 0 ");
  ck_assert_str_eq(values("job 1 limit", "percent"), "25 ");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {turns_are_slices,
                                a_turn_without_length_is_told,
                                what_was_before_the_first_event_is_known_from_it,
                                one_without_events_does_what_it_did,
                                what_is_missing_is_left_out,
                                slices_of_a_thread_do_not_overlap,
                                memory_and_limits_are_counters,
                                NULL};
  return suite_main("ctl_trace", tests, NULL, tear_down);
}
