/* test_lane.c - how far submissions run ahead of a GPU that the test plays, with marks and without a driver.
 */
#include <check.h>
#include <string.h>

#include "../suite.h"
#include "gate/lane.h"

#define US UINT64_C(1000)

/* A program that submits as fast as it may, and the GPU. */
static struct {
  struct lane lane;
  uint64_t now_ns, busy_until_ns;
  uint64_t passes_ns[LANE_MARKS]; /* when the GPU passes the mark in this place of the ring */
  uint64_t submitted, marks;
  uint64_t ahead_ns; /* of work may be queued */
  uint64_t idle_ns;  /* of the GPU, since its first work */
} play;

static void set_up(void) {
  memset(&play, 0, sizeof play);
  play.now_ns = play.busy_until_ns = NS_PER_S;
  play.ahead_ns = LANE_AHEAD_NS;
  lane_begin(&play.lane);
}

static void tear_down(void) {}

static unsigned passed(void) {
  unsigned count = 0;
  while (count < play.lane.count && play.passes_ns[(play.lane.first + count) % LANE_MARKS] <= play.now_ns)
    count++;
  return count;
}

static void give_work(uint64_t work_ns) {
  if (play.busy_until_ns < play.now_ns) {
    play.idle_ns += play.submitted ? play.now_ns - play.busy_until_ns : 0;
    play.busy_until_ns = play.now_ns;
  }
  play.busy_until_ns += work_ns;
  play.submitted++;
}

/* As pace.c does it: looks, and looks again, until it may submit. */
static void submit(uint64_t work_ns, uint64_t call_ns) {
  for (bool waited = false;; waited = true) {
    unsigned marks = passed();
    if (marks)
      lane_pass(&play.lane, marks, play.now_ns, waited);
    if (lane_mark_is_due(&play.lane, play.now_ns)) {
      play.passes_ns[lane_next(&play.lane)] = play.busy_until_ns;
      lane_mark(&play.lane, play.now_ns);
      play.marks++;
    }
    if (!lane_is_ahead(&play.lane, play.ahead_ns, play.now_ns))
      break;
    play.now_ns += LANE_LOOK_NS;
  }
  lane_submit(&play.lane, play.now_ns);
  give_work(work_ns);
  play.now_ns += call_ns;
}

static uint64_t queued_ns(void) {
  return play.busy_until_ns > play.now_ns ? play.busy_until_ns - play.now_ns : 0;
}

static uint64_t most_queued_ns(unsigned calls, uint64_t work_ns, uint64_t call_ns) {
  uint64_t most_ns = 0;
  for (unsigned i = 0; i < calls; i++) {
    submit(work_ns, call_ns);
    most_ns = queued_ns() > most_ns ? queued_ns() : most_ns;
  }
  return most_ns;
}

/* Whatever the kernels take, as soon as that is known; and the GPU always has something to do. */
START_TEST(little_is_queued) {
  static const uint64_t works_ns[] = {5 * US, 50 * US, 500 * US, NS_PER_MS, 2 * NS_PER_MS, 5 * NS_PER_MS};
  uint64_t work_ns = works_ns[_i];
  most_queued_ns(100 + (unsigned)(200 * NS_PER_MS / work_ns), work_ns, 2 * US);
  play.idle_ns = 0;
  uint64_t start_ns = play.now_ns;
  ck_assert_uint_le(most_queued_ns((unsigned)(NS_PER_S / work_ns), work_ns, 2 * US), 14 * NS_PER_MS);
  ck_assert_uint_le(play.idle_ns, (play.now_ns - start_ns) / 1000);
}
END_TEST

START_TEST(less_is_queued_where_others_must_not_wait) {
  play.ahead_ns = LANE_LIMITED_NS;
  most_queued_ns(2000, 100 * US, 2 * US);
  play.idle_ns = 0;
  ck_assert_uint_le(most_queued_ns(2000, 100 * US, 2 * US), 6 * NS_PER_MS);
  ck_assert_uint_eq(play.idle_ns, 0);
}
END_TEST

/* Also at first. */
START_TEST(little_is_queued_before_anything_is_known) {
  ck_assert_uint_le(most_queued_ns(100, 2 * NS_PER_MS, 2 * US), 25 * NS_PER_MS);
}
END_TEST

START_TEST(kernels_that_become_longer_are_noticed) {
  most_queued_ns(10000, 100 * US, 2 * US);
  most_queued_ns(200, 5 * NS_PER_MS, 2 * US); /* those that were queued by then */
  ck_assert_uint_le(most_queued_ns(200, 5 * NS_PER_MS, 2 * US), 10 * NS_PER_MS);
}
END_TEST

/* The driver is asked about as often as that is of use. */
START_TEST(marks_are_two_milliseconds_apart) {
  most_queued_ns(20000, 20 * US, 2 * US);
  uint64_t before = play.marks, start_ns = play.now_ns;
  most_queued_ns(50000, 20 * US, 2 * US);
  uint64_t marks = play.marks - before, took_ms = (play.now_ns - start_ns) / NS_PER_MS;
  ck_assert_uint_ge(marks, took_ms / 4);
  ck_assert_uint_le(marks, took_ms);
}
END_TEST

/* A program that is slower than the GPU never waits. */
START_TEST(who_does_not_run_ahead_never_waits) {
  most_queued_ns(1000, 20 * US, 30 * US);
  uint64_t start_ns = play.now_ns;
  most_queued_ns(1000, 20 * US, 30 * US);
  ck_assert_uint_eq(play.now_ns - start_ns, 1000 * 30 * US);
}
END_TEST

/* What was queued when it begins: two hundred milliseconds. */
START_TEST(what_was_queued_before_is_worked_off) {
  play.busy_until_ns += 200 * NS_PER_MS;
  most_queued_ns(20, NS_PER_MS, 2 * US);
  ck_assert_uint_le(queued_ns(), 25 * NS_PER_MS);
}
END_TEST

/* However little seems to have come after it; and it counts for nothing when it is learnt what a submission
 * takes. */
START_TEST(what_was_queued_before_teaches_nothing) {
  most_queued_ns(20000, 5 * US, 2 * US);
  lane_begin(&play.lane);
  play.busy_until_ns = play.now_ns + 2001 * NS_PER_MS / 10; /* which one look finds passed, with all else */
  most_queued_ns(510, US / 10, 20 * US);                    /* it has to wait when 500 are made */
  ck_assert_uint_le(queued_ns(), 14 * NS_PER_MS);
  ck_assert_uint_le(play.lane.call_ns, 10 * US);
}
END_TEST

/* While one runs the next one waits. */
START_TEST(long_kernels_follow_each_other) {
  ck_assert_uint_le(most_queued_ns(50, 40 * NS_PER_MS, 2 * US), 500 * NS_PER_MS);
  play.idle_ns = 0;
  ck_assert_uint_le(most_queued_ns(50, 40 * NS_PER_MS, 2 * US), 80 * NS_PER_MS);
  ck_assert_uint_eq(play.idle_ns, 0);
}
END_TEST

START_TEST(there_are_never_more_marks_than_places) {
  submit(NS_PER_MS, NS_PER_MS);
  for (int i = 0; i < LANE_MARKS - 1; i++) {
    lane_submit(&play.lane, play.now_ns);
    ck_assert(lane_mark_is_due(&play.lane, play.now_ns + LANE_MARK_NS));
    lane_mark(&play.lane, play.now_ns);
  }
  lane_submit(&play.lane, play.now_ns);
  ck_assert(!lane_mark_is_due(&play.lane, play.now_ns + LANE_MARK_NS));
}
END_TEST

START_TEST(what_was_learnt_stays_for_the_next_time) {
  most_queued_ns(100, 5 * NS_PER_MS, 2 * US);
  play.now_ns = play.busy_until_ns;
  lane_begin(&play.lane);
  ck_assert_uint_le(most_queued_ns(100, 5 * NS_PER_MS, 2 * US), 10 * NS_PER_MS);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("lane");
  TCase *tests = tcase_create("lane");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, little_is_queued, 0, 6);
  tcase_add_test(tests, less_is_queued_where_others_must_not_wait);
  tcase_add_test(tests, little_is_queued_before_anything_is_known);
  tcase_add_test(tests, kernels_that_become_longer_are_noticed);
  tcase_add_test(tests, marks_are_two_milliseconds_apart);
  tcase_add_test(tests, who_does_not_run_ahead_never_waits);
  tcase_add_test(tests, what_was_queued_before_is_worked_off);
  tcase_add_test(tests, what_was_queued_before_teaches_nothing);
  tcase_add_test(tests, long_kernels_follow_each_other);
  tcase_add_test(tests, there_are_never_more_marks_than_places);
  tcase_add_test(tests, what_was_learnt_stays_for_the_next_time);
  suite_add_tcase(suite, tests);
  return suite_run(suite);
}
