/* test_service.c - for how long there is something to do, with a clock and a driver that the test plays. */
#include <check.h>
#include <errno.h>

#include "../suite.h"
#include "common/clock.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "interpose/driver.h"
#include "meter/service.h"

#define MS NS_PER_MS

struct driver driver;

static uint64_t now_ns;
static enum streams_state state;
static unsigned asked, captures, forbidden;
static uint64_t look_ns;
static bool look;
static CUdevice current;
static uint64_t submitted, submitted_meanwhile;
static bool in_flight;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time) {
  ck_assert_int_eq(clock, CLOCK_MONOTONIC);
  *time = (struct timespec){.tv_sec = (time_t)(now_ns / NS_PER_S), .tv_nsec = (long)(now_ns % NS_PER_S)};
  return 0;
}

enum streams_state streams_ask(CUdevice device) {
  ck_assert_int_eq(device, current);
  ck_assert_uint_gt(forbidden, 0);
  asked++;
  now_ns += look_ns;
  submitted += submitted_meanwhile;
  errno = EIO;
  return state;
}
void gate_set_look(enum gate_look reason, bool on) {
  ck_assert_int_eq(reason, GATE_LOOK_RESTING);
  look = on;
}
void gate_counts(CUdevice device, uint64_t counts[GATE_COUNTS]) {
  (void)device;
  counts[GATE_SUBMISSIONS] = submitted;
}
bool gate_in_flight(void) { return in_flight; }
unsigned capture_count(void) { return captures; }
void capture_forbid(void) { forbidden++; }
void capture_allow(void) { forbidden--; }

static CUresult get_device(CUdevice *device) {
  *device = current;
  return current < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static void set_up(void) {
  driver.cuCtxGetDevice = get_device;
  service_fork_child();
  now_ns = 100 * NS_PER_S;
  state = STREAMS_FINISHED;
  asked = captures = forbidden = 0;
  look_ns = submitted = submitted_meanwhile = 0;
  current = 0;
  look = in_flight = false;
}
static void tear_down(void) { ck_assert_uint_eq(forbidden, 0); }

/* A call that takes no time. */
static void wait_after(uint64_t ns) {
  now_ns += ns;
  service_waited(service_wait());
}

static void wait_for(uint64_t ns) {
  uint64_t since_ns = service_wait();
  now_ns += ns;
  service_waited(since_ns);
}

static void check_sums(uint64_t served, uint64_t waited_ms) {
  struct service_sums sums = service_sums(0);
  ck_assert_uint_eq(sums.served, served);
  ck_assert_uint_eq(sums.waited_ns, waited_ms * MS);
}

START_TEST(nobody_wants_to_know) {
  wait_after(10 * MS);
  ck_assert_uint_eq(asked, 0);
  ck_assert_uint_eq(service_sums(0).ns, 0);
  service_end(0, submitted);
  ck_assert(!look);
}
END_TEST

/* 5 ms of work, 20 ms without any. */
START_TEST(rests_do_not_count) {
  service_want(0, true);
  for (unsigned i = 1; i <= 10; i++) {
    wait_after(5 * MS);
    ck_assert(look);
    now_ns += 20 * MS;
    ck_assert_uint_eq(service_sums(0).ns, i * 5 * MS);
    service_begin(0);
    ck_assert(!look);
  }
  now_ns += 3 * MS;
  ck_assert_uint_eq(service_sums(0).ns, 53 * MS);
}
END_TEST

/* As in a training that waits for an earlier iteration. */
START_TEST(what_is_unfinished_goes_on) {
  service_want(0, true);
  state = _i == 0 ? STREAMS_BUSY : STREAMS_UNKNOWN;
  wait_after(5 * MS);
  ck_assert(!look);
  captures = 1;
  state = STREAMS_FINISHED;
  wait_after(5 * MS);
  ck_assert(!look);
  ck_assert_uint_eq(asked, 1);
  ck_assert_uint_eq(service_sums(0).ns, 10 * MS);
}
END_TEST

/* A request that wakes the watch, which looks before the driver has it. */
START_TEST(what_is_on_its_way_has_begun) {
  service_want(0, true);
  submitted = 3;
  wait_after(5 * MS);
  ck_assert(look);
  in_flight = true;
  service_begin(0);
  now_ns += MS;
  service_end(0, submitted);
  ck_assert(!look);
  now_ns += MS;
  if (_i == 0) { /* it has got there, and other calls are under way */
    service_end(0, submitted++);
    ck_assert(!look);
  } else { /* the driver has refused it */
    in_flight = false;
  }
  service_end(0, submitted);
  ck_assert(look);
  ck_assert_uint_eq(service_sums(0).ns, 7 * MS);
}
END_TEST

START_TEST(what_comes_while_the_streams_are_asked_goes_on) {
  service_want(0, true);
  submitted_meanwhile = 1;
  wait_after(5 * MS);
  ck_assert_uint_eq(asked, 1);
  ck_assert(!look);
  submitted_meanwhile = 0;
  wait_after(5 * MS);
  ck_assert(look);
  ck_assert_uint_eq(service_sums(0).ns, 10 * MS);
}
END_TEST

START_TEST(short_waits_are_not_looked_at) {
  service_want(0, true);
  wait_after(MS / 5 - 1);
  ck_assert_uint_eq(asked, 0);
  wait_after(1);
  ck_assert_uint_eq(asked, 1);
  wait_after(5 * MS); /* at rest already */
  ck_assert_uint_eq(asked, 1);
  ck_assert_uint_eq(service_sums(0).ns, MS / 5);
}
END_TEST

/* Of a program with many streams. Requests that follow each other are told apart if not all of them do. */
START_TEST(looks_take_a_small_part_of_the_time) {
  service_want(0, true);
  state = _i == 0 ? STREAMS_BUSY : STREAMS_FINISHED; /* something else goes on all the time, or nothing */
  look_ns = MS / 5;
  for (unsigned i = 0; i < 1000; i++) {
    service_begin(0);
    wait_after(MS);
  }
  ck_assert_uint_ge(asked, 25);
  ck_assert_uint_le(asked, 30);
}
END_TEST

/* A thread that is put aside while it looks. */
START_TEST(a_look_that_took_long_is_forgotten) {
  service_want(0, true);
  look_ns = 2 * MS;
  wait_after(5 * MS);
  look_ns = 0;
  for (unsigned i = 0; i < 20; i++) {
    now_ns += 20 * MS;
    service_begin(0);
    now_ns += 5 * MS;
    service_end(0, submitted); /* as watch.c finds out */
  }
  service_begin(0);
  wait_after(5 * MS);
  ck_assert_uint_eq(asked, 2);
  ck_assert(look);
}
END_TEST

/* Requests of 5 ms, of which 1 ms is waited; the look at the end of the first took so long that those after
 * it have none. As watch.c finds out later, after one has told its sums. */
START_TEST(what_was_not_looked_at_ends_with_its_wait) {
  service_want(0, true);
  look_ns = 2 * MS;
  submitted += 7;
  now_ns += 4 * MS;
  wait_for(MS);
  for (unsigned i = 2; i <= 10; i++) {
    now_ns += 20 * MS;
    service_begin(0);
    submitted += 7;
    now_ns += 4 * MS;
    wait_for(MS);
    ck_assert(!look);
    now_ns += 10 * MS;
    ck_assert_uint_eq(service_sums(0).ns, 2 * MS + i * 5 * MS);
    now_ns += 10 * MS;
    service_end(0, submitted);
    ck_assert(look);
    ck_assert_uint_eq(service_sums(0).ns, 2 * MS + i * 5 * MS);
    check_sums(7 * i, i);
  }
  ck_assert_uint_eq(asked, 1);
}
END_TEST

/* It has submitted more since; or the wait was looked at, and something else went on; or waits are not what
 * ends things here; or others have seen that something goes on; or it has polled since. */
START_TEST(what_goes_on_after_a_wait_does_not_end_with_it) {
  service_want(0, true);
  look_ns = _i == 1 ? 0 : 2 * MS; /* so that the next one is not looked at */
  submitted += 7;
  wait_after(5 * MS);
  service_begin(0);
  submitted += 7;
  if (_i == 2) {
    now_ns += 5 * MS;
    service_end(0, submitted);
    service_begin(0);
  }
  state = STREAMS_BUSY;
  wait_after(5 * MS);
  ck_assert_uint_eq(asked, _i == 1 ? 2 : 1);
  submitted += _i == 0;
  if (_i == 3)
    service_goes_on(0);
  if (_i == 4)
    service_polled();
  uint64_t before_ns = service_sums(0).ns;
  now_ns += 10 * MS;
  ck_assert_uint_eq(service_sums(0).ns, before_ns + 10 * MS);
  service_end(0, submitted);
  ck_assert_uint_eq(service_sums(0).ns, before_ns + 10 * MS);
  ck_assert_uint_eq(service_sums(0).served, submitted);
}
END_TEST

START_TEST(a_time_in_which_nobody_wants_to_know_is_none) {
  service_want(0, true);
  now_ns += 5 * MS;
  service_want(0, false);
  ck_assert(!look);
  now_ns += NS_PER_S;
  service_begin(0);
  ck_assert_uint_eq(service_sums(0).ns, 5 * MS);
  service_want(0, true);
  now_ns += MS;
  ck_assert_uint_eq(service_sums(0).ns, 6 * MS);
}
END_TEST

START_TEST(gpus_are_told_apart) {
  service_want(0, true);
  service_want(1, true);
  current = 1;
  wait_after(2 * MS);
  ck_assert(look);
  service_begin(0); /* it was not at rest: the other one still is */
  ck_assert(look);
  now_ns += 3 * MS;
  ck_assert_uint_eq(service_sums(0).ns, 5 * MS);
  ck_assert_uint_eq(service_sums(1).ns, 2 * MS);
  current = -1;
  wait_after(MS);
  ck_assert_uint_eq(asked, 1);
}
END_TEST

/* Of each request the host takes 5 ms, sometimes 6; then it waits, twice. What is submitted meanwhile counts
 * once it is over. */
START_TEST(what_a_wait_has_ended_is_known) {
  submitted = 1000; /* before anybody wanted to know */
  service_want(0, true);
  for (unsigned i = 1; i <= 10; i++) {
    submitted += 7;
    now_ns += (5 + i % 2) * MS;
    state = STREAMS_BUSY;
    wait_for(MS);
    check_sums(7 * (i - 1), 3 * (i - 1));
    state = STREAMS_FINISHED;
    wait_for(2 * MS);
    check_sums(7 * i, 3 * i);
    now_ns += 20 * MS;
    service_begin(0);
  }
}
END_TEST

/* Polled for, it may be: who knows for how long. Nor if it goes on and on. */
START_TEST(what_ends_unseen_counts_as_waited_for) {
  service_want(0, true);
  submitted += 7;
  state = STREAMS_BUSY;
  wait_for(MS / 2);
  now_ns += 4 * MS + MS / 2;
  service_end(0, submitted);
  check_sums(7, 5);
  now_ns += 20 * MS;
  service_begin(0);
  for (unsigned i = 1; i <= 10; i++) {
    submitted += 7;
    now_ns += 49 * MS;
    wait_for(MS);
    check_sums(i < 2 ? 7 : 7 + i / 2 * 14, i < 2 ? 5 : 5 + i / 2 * 100);
  }
}
END_TEST

/* Iterations of 90 and 104 ms, looked at in between, and then one that does not end. */
START_TEST(what_takes_little_longer_than_before_is_awaited) {
  service_want(0, true);
  submitted += 7;
  now_ns += 30 * MS;
  wait_for(60 * MS);
  check_sums(7, 60);
  service_begin(0);
  submitted += 7;
  now_ns += 30 * MS;
  uint64_t since_ns = service_wait();
  now_ns += 72 * MS;
  check_sums(7, 60);
  now_ns += 2 * MS;
  service_waited(since_ns);
  check_sums(14, 134);
  service_begin(0);
  submitted += 7;
  now_ns += 207 * MS;
  check_sums(14, 134);
  now_ns += MS;
  check_sums(21, 342);
  now_ns += 100 * MS;
  check_sums(21, 442);
}
END_TEST

START_TEST(nothing_is_awaited_for_ever) {
  service_want(0, true);
  wait_for(5 * NS_PER_S);
  service_begin(0);
  submitted += 7;
  now_ns += 399 * MS;
  check_sums(0, 5000);
  now_ns += MS;
  check_sums(7, 5400);
}
END_TEST

/* Polled for long ago: what is called back later was asked for then. */
START_TEST(what_was_polled_for_stays_so_until_it_is_over) {
  service_want(0, true);
  submitted += 7;
  service_polled();
  now_ns += 150 * MS;
  check_sums(7, 150);
  submitted += 7;
  now_ns += 50 * MS;
  wait_for(0);
  check_sums(14, 200);
}
END_TEST

/* The host is so slow that hardly anything is left to wait for. */
START_TEST(a_wait_for_what_is_over_is_one) {
  service_want(0, true);
  submitted += 7;
  now_ns += 5 * MS;
  wait_for(2000);
  ck_assert_uint_eq(asked, 1);
  ck_assert_uint_eq(service_sums(0).served, 7);
  ck_assert_uint_eq(service_sums(0).waited_ns, 2000);
}
END_TEST

/* However long it waits in the end; what comes next is known again. */
START_TEST(what_was_polled_for_counts_as_waited_for) {
  service_want(0, true);
  submitted += 7;
  now_ns += 5 * MS;
  service_polled();
  wait_for(_i == 0 ? 0 : 2 * MS);
  ck_assert_uint_eq(service_sums(0).served, 7);
  ck_assert_uint_eq(service_sums(0).waited_ns, service_sums(0).ns);
  uint64_t before_ns = service_sums(0).waited_ns;
  service_begin(0);
  submitted += 7;
  now_ns += 5 * MS;
  wait_for(MS);
  ck_assert_uint_eq(service_sums(0).served, 14);
  ck_assert_uint_eq(service_sums(0).waited_ns - before_ns, MS);
}
END_TEST

/* To pageable memory: it waits for all before it, and what waits for it then has nothing to wait for. To
 * pinned memory it does not. */
START_TEST(a_copy_that_takes_long_is_a_wait) {
  service_want(0, true);
  submitted += 7;
  now_ns += 5 * MS;
  service_copied(service_wait());
  ck_assert_uint_eq(asked, 0);
  uint64_t since_ns = service_wait();
  now_ns += 2 * MS;
  service_copied(since_ns);
  wait_for(0);
  ck_assert_uint_eq(asked, 1);
  check_sums(7, 2);
}
END_TEST

/* Several threads' waits are no more than the time there was. */
START_TEST(nobody_waits_for_longer_than_it_takes) {
  service_want(0, true);
  state = STREAMS_BUSY;
  uint64_t before_ns = now_ns - 3 * MS, since_ns = service_wait();
  now_ns += 5 * MS;
  service_waited(before_ns);
  service_waited(since_ns);
  state = STREAMS_FINISHED;
  wait_after(MS);
  check_sums(0, 6);
  before_ns = now_ns;
  now_ns += 20 * MS;
  service_begin(0);
  now_ns += 3 * MS;
  state = STREAMS_BUSY;
  service_waited(before_ns); /* for something else, and then for this */
  state = STREAMS_FINISHED;
  now_ns += 5 * MS;
  wait_for(2 * MS);
  check_sums(0, 6 + 3 + 2);
}
END_TEST

START_TEST(errno_stays) {
  service_want(0, true);
  errno = 0;
  wait_after(MS);
  ck_assert_int_eq(errno, 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("service");
  TCase *tests = tcase_create("service");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, nobody_wants_to_know);
  tcase_add_test(tests, rests_do_not_count);
  tcase_add_loop_test(tests, what_is_unfinished_goes_on, 0, 2);
  tcase_add_loop_test(tests, what_is_on_its_way_has_begun, 0, 2);
  tcase_add_test(tests, what_comes_while_the_streams_are_asked_goes_on);
  tcase_add_test(tests, short_waits_are_not_looked_at);
  tcase_add_loop_test(tests, looks_take_a_small_part_of_the_time, 0, 2);
  tcase_add_test(tests, a_look_that_took_long_is_forgotten);
  tcase_add_test(tests, what_was_not_looked_at_ends_with_its_wait);
  tcase_add_loop_test(tests, what_goes_on_after_a_wait_does_not_end_with_it, 0, 5);
  tcase_add_test(tests, a_time_in_which_nobody_wants_to_know_is_none);
  tcase_add_test(tests, gpus_are_told_apart);
  tcase_add_test(tests, what_a_wait_has_ended_is_known);
  tcase_add_test(tests, what_ends_unseen_counts_as_waited_for);
  tcase_add_test(tests, what_takes_little_longer_than_before_is_awaited);
  tcase_add_test(tests, nothing_is_awaited_for_ever);
  tcase_add_test(tests, what_was_polled_for_stays_so_until_it_is_over);
  tcase_add_test(tests, a_wait_for_what_is_over_is_one);
  tcase_add_loop_test(tests, what_was_polled_for_counts_as_waited_for, 0, 2);
  tcase_add_test(tests, a_copy_that_takes_long_is_a_wait);
  tcase_add_test(tests, nobody_waits_for_longer_than_it_takes);
  tcase_add_test(tests, errno_stays);
  suite_add_tcase(suite, tests);
  return suite_run(suite);
}
