/* test_bucket.c - how much GPU time may be submitted, with a clock that the test plays. */
#include <check.h>

#include "../suite.h"
#include "gate/bucket.h"

#define US UINT64_C(1000)
#define FIFTH (NS_PER_S / 5)

static struct bucket bucket;
static uint64_t now_ns;

static void set_up(void) { now_ns = 100 * NS_PER_S; }
static void tear_down(void) {}

/* Submits as much as it may for so long, each time what takes cost_ns; what it was believed to take was
 * advance_ns. */
static uint64_t submit_for(uint64_t time_ns, uint64_t advance_ns, uint64_t cost_ns) {
  uint64_t submitted_ns = 0, end_ns = now_ns + time_ns;
  while (now_ns < end_ns) {
    if (!bucket_take(&bucket, advance_ns, now_ns)) {
      uint64_t wait_ns = bucket_wait_ns(&bucket);
      if (wait_ns == 0)
        ck_abort_msg("nothing is there, and nobody has to wait"); /* an assertion each time would take long */
      now_ns += wait_ns < end_ns - now_ns ? wait_ns : end_ns - now_ns;
      continue;
    }
    bucket_correct(&bucket, (int64_t)cost_ns - (int64_t)advance_ns);
    submitted_ns += cost_ns;
    now_ns += 2 * US;
  }
  return submitted_ns;
}

static void check_about(uint64_t is, uint64_t should_be, uint64_t slack) {
  ck_assert_uint_ge(is + slack, should_be);
  ck_assert_uint_le(is, should_be + slack);
}

START_TEST(a_limit_is_what_is_submitted) {
  static const uint64_t limits[] = {NS_PER_S / 1000, NS_PER_S / 20, FIFTH, 9 * NS_PER_S / 10};
  static const uint64_t costs_ns[] = {3 * US, 50 * US, 700 * US, 20 * NS_PER_MS};
  uint64_t cost_ns = costs_ns[_i % 4], limit = limits[_i / 4];
  bucket_begin(&bucket, BUCKET_BURST_NS, limit, now_ns);
  uint64_t seconds = cost_ns < NS_PER_MS ? 2 : 200, all_ns = seconds * limit;
  check_about(submit_for(seconds * NS_PER_S, 50 * US, cost_ns), all_ns,
              BUCKET_MOST_NS + cost_ns + all_ns / 50);
}
END_TEST

START_TEST(nothing_passes_a_limit_of_0) {
  bucket_begin(&bucket, BUCKET_BURST_NS, 0, now_ns);
  ck_assert(!bucket_take(&bucket, US, now_ns));
  ck_assert(!bucket_take(&bucket, US, now_ns + 1000 * NS_PER_S));
  ck_assert_uint_eq(bucket_wait_ns(&bucket), UINT64_MAX);
}
END_TEST

/* Nor does a time without a limit count for the time after it. */
START_TEST(a_change_counts_from_now_on) {
  bucket_begin(&bucket, BUCKET_BURST_NS, FIFTH, now_ns);
  submit_for(NS_PER_S, 50 * US, 50 * US);
  bucket_limit(&bucket, 0, now_ns);
  now_ns += 10 * NS_PER_S;
  bucket_limit(&bucket, NS_PER_S / 2, now_ns);
  check_about(submit_for(NS_PER_S, 50 * US, 50 * US), NS_PER_S / 2, 10 * NS_PER_MS);
}
END_TEST

/* However long nothing was submitted: a burst, and what comes in a millisecond. */
START_TEST(little_is_saved_up) {
  static const uint64_t limits[] = {NS_PER_S / 100, FIFTH, 9 * NS_PER_S / 10};
  uint64_t limit = limits[_i];
  bucket_begin(&bucket, BUCKET_BURST_NS, limit, now_ns);
  now_ns += 100 * NS_PER_S;
  check_about(submit_for(BUCKET_BURST_NS / 10, 5 * US, 50 * US), BUCKET_BURST_NS + limit * 11 / 10000,
              100 * US);
}
END_TEST

/* Or each of them would have the GPU change hands. */
START_TEST(submissions_come_in_bursts) {
  static const uint64_t limits[] = {NS_PER_S / 100, FIFTH, 9 * NS_PER_S / 10};
  uint64_t bursts = 0, limit = limits[_i / 2], end_ns = now_ns + 10 * NS_PER_S;
  uint64_t burst_ns = _i % 2 ? BUCKET_SMALL_BURST_NS : BUCKET_BURST_NS;
  bucket_begin(&bucket, burst_ns, limit, now_ns);
  while (now_ns < end_ns) {
    bool taken = bucket_take(&bucket, burst_ns / 50, now_ns);
    bursts += !taken;
    now_ns += taken ? burst_ns / 1000 : bucket_wait_ns(&bucket);
  }
  check_about(bursts, 10 * limit / burst_ns, 10 * limit / burst_ns / 4);
}
END_TEST

/* Three tenths of a burst and eight in turn: no burst is longer than it should be because a long one came
 * last. */
START_TEST(what_does_not_fit_begins_the_next_burst) {
  uint64_t taken_ns = 0, costs_ns[] = {BUCKET_BURST_NS * 3 / 10, BUCKET_BURST_NS * 8 / 10};
  bucket_begin(&bucket, BUCKET_BURST_NS, NS_PER_S / 100, now_ns);
  for (unsigned i = 0; i < 1000; i++) {
    if (!bucket_take(&bucket, 50 * US, now_ns)) {
      taken_ns = 0;
      now_ns += bucket_wait_ns(&bucket);
      ck_assert(bucket_take(&bucket, 50 * US, now_ns));
    }
    taken_ns += costs_ns[i % 2];
    ck_assert_uint_le(taken_ns, BUCKET_BURST_NS);
    bucket_correct(&bucket, (int64_t)costs_ns[i % 2] - 50 * (int64_t)US);
    bucket_expect(&bucket, costs_ns[(i + 1) % 2]);
  }
  uint64_t all_ns = 500 * (costs_ns[0] + costs_ns[1]) * 100; /* at a hundredth, and nothing was lost */
  check_about(now_ns, 100 * NS_PER_S + all_ns, all_ns / 50);
}
END_TEST

/* One long submission has to be paid for; a wild one has a bound. */
START_TEST(what_was_too_much_is_owed) {
  bucket_begin(&bucket, BUCKET_BURST_NS, FIFTH, now_ns);
  ck_assert(bucket_take(&bucket, 50 * US, now_ns));
  bucket_correct(&bucket, (int64_t)(200 * NS_PER_MS));
  ck_assert(!bucket_take(&bucket, US, now_ns + 950 * NS_PER_MS));
  ck_assert(bucket_take(&bucket, US, now_ns + 1010 * NS_PER_MS)); /* with a burst beyond that */
  bucket_correct(&bucket, INT64_MAX);
  ck_assert_uint_le(bucket_wait_ns(&bucket), 5 * BUCKET_OWED_NS + NS_PER_S);
  bucket_correct(&bucket, INT64_MIN);
  ck_assert_int_le(bucket.level_ns, (int64_t)BUCKET_MOST_NS);
}
END_TEST

START_TEST(a_wild_limit_does_no_harm) {
  bucket_begin(&bucket, BUCKET_BURST_NS, UINT64_MAX - 1, now_ns);
  ck_assert(bucket_take(&bucket, NS_PER_MS, now_ns + 1000 * NS_PER_S));
  bucket_correct(&bucket, (int64_t)NS_PER_S);
  ck_assert_uint_le(bucket_wait_ns(&bucket), NS_PER_S);
  bucket_limit(&bucket, 1, now_ns);
  ck_assert_uint_gt(bucket_wait_ns(&bucket), NS_PER_S);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("bucket");
  TCase *tests = tcase_create("bucket");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, a_limit_is_what_is_submitted, 0, 16);
  tcase_add_test(tests, nothing_passes_a_limit_of_0);
  tcase_add_test(tests, a_change_counts_from_now_on);
  tcase_add_loop_test(tests, little_is_saved_up, 0, 3);
  tcase_add_loop_test(tests, submissions_come_in_bursts, 0, 6);
  tcase_add_test(tests, what_does_not_fit_begins_the_next_burst);
  tcase_add_test(tests, what_was_too_much_is_owed);
  tcase_add_test(tests, a_wild_limit_does_no_harm);
  suite_add_tcase(suite, tests);
  return suite_run(suite);
}
