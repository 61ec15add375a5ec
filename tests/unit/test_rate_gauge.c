/* test_rate_gauge.c - windows, undisturbed speeds and their errors. */
#include "core/rate_gauge.h"

#include <math.h>
#include <string.h>

#include "common/splitmix.h"
#include "suite.h"

static struct rate_gauge gauge;
static uint64_t state;

static void set_up(void) {
  memset(&gauge, 0, sizeof gauge);
  gauge_restart(&gauge);
  state = 1;
}

static double chance(void) { return (double)(splitmix_next(&state) >> 11) / 0x1p53; }

static void push(unsigned ticks, double speed) {
  for (unsigned i = 0; i < ticks; i++)
    gauge_push(&gauge, speed * 40, 40);
}

START_TEST(a_window_is_of_the_last_ticks) {
  push(20, 3);
  ck_assert_double_eq_tol(gauge_speed(&gauge, 20), 3, 1e-9);
  push(10, 5);
  ck_assert_double_eq_tol(gauge_speed(&gauge, 10), 5, 1e-9);
  ck_assert_double_eq_tol(gauge_speed(&gauge, 1), 5, 1e-9);
  ck_assert_double_eq_tol(gauge_speed(&gauge, 30), (20 * 3 + 10 * 5) / 30.0, 0.15);
  ck_assert_double_eq_tol(gauge_spent(&gauge, 7), 280, 1e-9);
}
END_TEST

START_TEST(it_remembers_no_more_than_its_longest_window) {
  push(5 * GAUGE_TICKS, 3);
  ck_assert_uint_eq(gauge.ticks, GAUGE_TICKS);
  push(GAUGE_TICKS, 4);
  ck_assert_double_eq_tol(gauge_speed(&gauge, 1000), 4, 1e-9);
}
END_TEST

START_TEST(a_restart_forgets_all_but_the_base) {
  push(20, 3);
  ck_assert(gauge_learn(&gauge, 20));
  gauge_restart(&gauge);
  ck_assert_uint_eq(gauge.ticks, 0);
  ck_assert_double_eq(gauge_speed(&gauge, 10), 0);
  ck_assert_double_eq_tol(gauge.base, 3, 1e-9);
}
END_TEST

START_TEST(what_spends_nothing_does_not_scatter) {
  for (unsigned i = 0; i < 20; i++) {
    push(1, 3);
    gauge_push(&gauge, 0, 0);
  }
  ck_assert(gauge_learn(&gauge, 40));
  ck_assert_double_eq_tol(gauge.base, 3, 1e-9);
  ck_assert_double_lt(gauge_error(&gauge, 1), 0.01);
}
END_TEST

/* What drifts is not known well, but goes on evenly; what comes at random does neither. */
START_TEST(what_changes_slowly_is_steady_all_the_same) {
  for (unsigned i = 0; i < 40; i++)
    push(1, 3 * (1 + 0.004 * i));
  ck_assert(gauge_learn(&gauge, 40));
  ck_assert_double_gt(gauge_base_error(&gauge), 0.01);
  ck_assert_double_lt(gauge.steady_error, 0.002);
  ck_assert_double_lt(gauge.beside_error, 0.03);
  ck_assert_double_eq_tol(gauge_wander(&gauge), 0.04, 0.015);
  set_up();
  for (unsigned i = 0; i < 40; i++)
    push(1, 6 * chance());
  ck_assert(gauge_learn(&gauge, 40));
  ck_assert_double_gt(gauge.steady_error, 0.02);
}
END_TEST

START_TEST(nothing_can_be_learnt_from_nothing) {
  ck_assert(!gauge_learn(&gauge, 20));
  push(1, 3);
  ck_assert(!gauge_learn(&gauge, 20));
  set_up();
  push(20, 0);
  ck_assert(!gauge_learn(&gauge, 20));
  ck_assert_double_eq(gauge.base, 0);
}
END_TEST

START_TEST(windows_begin_at_the_mark) {
  push(20, 3);
  gauge_mark(&gauge);
  ck_assert_uint_eq(gauge.marked, 0);
  push(5, 4);
  ck_assert_uint_eq(gauge.marked, 5);
  ck_assert_uint_eq(gauge.ticks, 25);
}
END_TEST

START_TEST(what_is_dropped_has_not_been) {
  push(20, 3);
  gauge_mark(&gauge);
  push(2, 9);
  gauge_drop(&gauge, 3);
  ck_assert_uint_eq(gauge.ticks, 19);
  ck_assert_uint_eq(gauge.marked, 0);
  push(5, 3);
  ck_assert_double_eq_tol(gauge_speed(&gauge, 24), 3, 1e-9);
  gauge_drop(&gauge, 100);
  ck_assert_uint_eq(gauge.ticks, 0);
}
END_TEST

START_TEST(what_is_expected_counts_by_its_certainty) {
  push(20, 1.01);
  ck_assert(gauge_learn(&gauge, 20));
  double learnt = gauge_base_error(&gauge);
  gauge_expect(&gauge, 1, learnt);
  ck_assert_double_eq_tol(gauge.base, 1.005, 1e-9);
  ck_assert_double_eq_tol(gauge_base_error(&gauge), learnt / sqrt(2), 1e-9);
  gauge_expect(&gauge, 2, 1000);
  ck_assert_double_eq_tol(gauge.base, 1.005, 1e-6);
}
END_TEST

/* Some ticks have twenty times the work of others: the error falls with what was spent, not with ticks. */
START_TEST(the_error_of_independent_ticks_by_what_they_spend) {
  double told = 0, squares = 0;
  const int rounds = 400;
  gauge.independent = true;
  for (int round = 0; round < rounds; round++) {
    gauge_restart(&gauge);
    for (unsigned i = 0; i < 40; i++) {
      double spent = i % 4 ? 1 : 20;
      gauge_push(&gauge, spent + sqrt(spent) * (chance() - 0.5), spent);
    }
    ck_assert(gauge_learn(&gauge, 40));
    told += gauge_base_error(&gauge) / rounds;
    squares += (gauge.base - 1) * (gauge.base - 1) / rounds;
  }
  ck_assert_double_eq_tol(told / sqrt(squares), 1, 0.15);
  ck_assert_double_eq_tol(gauge_error(&gauge, 4) / gauge_error(&gauge, 40), sqrt(10), 1e-6);
}
END_TEST

/* The error that it tells is about the error that it makes. */
static void check_error(double (*speed)(unsigned tick)) {
  double told = 0, squares = 0;
  const int rounds = 400;
  for (int round = 0; round < rounds; round++) {
    gauge_restart(&gauge);
    unsigned first = (unsigned)(chance() * 1000);
    for (unsigned i = 0; i < 40; i++)
      gauge_push(&gauge, speed(first + i) * 40, 40);
    ck_assert(gauge_learn(&gauge, 40));
    told += gauge_base_error(&gauge) / rounds;
    squares += (gauge.base - 1) * (gauge.base - 1) / rounds;
  }
  ck_assert_double_ge(told, 0.5 * sqrt(squares));
  ck_assert_double_le(told, 5 * sqrt(squares));
}

static double at_random(unsigned tick) {
  (void)tick;
  return 0.8 + 0.4 * chance();
}

/* Iterations of 3.7 ticks, of which the last tenth submits nothing. */
static double by_iterations(unsigned tick) {
  double done = 0;
  for (int i = 0; i < 100; i++)
    done += fmod(tick + i / 100.0, 3.7) < 3.33 ? 1 / 90.0 : 0;
  return done;
}

START_TEST(the_error_of_independent_ticks) { check_error(at_random); }
END_TEST

START_TEST(the_error_of_iterations) { check_error(by_iterations); }
END_TEST

/* Of 400 times, how often it tells less than 0.4 of the error that it makes. */
static unsigned times_it_is_too_sure(void) {
  double squares = 0, told[400];
  unsigned times = 0;
  for (int round = 0; round < 400; round++) {
    gauge_restart(&gauge);
    for (unsigned i = 0; i < 40; i++)
      gauge_push(&gauge, at_random(i) * 40, 40);
    ck_assert(gauge_learn(&gauge, 40));
    told[round] = gauge_base_error(&gauge);
    squares += (gauge.base - 1) * (gauge.base - 1) / 400;
  }
  for (int round = 0; round < 400; round++)
    times += told[round] < 0.4 * sqrt(squares);
  return times;
}

/* The longest windows agree by chance, and so well that the law by which their error falls may be steep. */
START_TEST(what_is_irregular_is_not_believed_to_be_clockwork) {
  ck_assert_uint_gt(times_it_is_too_sure(), 0);
  gauge.irregular = true;
  ck_assert_uint_eq(times_it_is_too_sure(), 0);
  ck_assert_double_eq(gauge.decay, 0.5);
  check_error(at_random);
}
END_TEST

START_TEST(longer_windows_err_less) {
  for (unsigned i = 0; i < 60; i++)
    gauge_push(&gauge, at_random(i) * 40, 40);
  ck_assert(gauge_learn(&gauge, 60));
  for (unsigned ticks = 1; ticks < 32; ticks *= 2)
    ck_assert_double_lt(gauge_error(&gauge, 2 * ticks), gauge_error(&gauge, ticks));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_window_is_of_the_last_ticks,
                                it_remembers_no_more_than_its_longest_window,
                                a_restart_forgets_all_but_the_base,
                                what_changes_slowly_is_steady_all_the_same,
                                what_spends_nothing_does_not_scatter,
                                nothing_can_be_learnt_from_nothing,
                                windows_begin_at_the_mark,
                                what_is_dropped_has_not_been,
                                what_is_expected_counts_by_its_certainty,
                                the_error_of_independent_ticks_by_what_they_spend,
                                the_error_of_independent_ticks,
                                the_error_of_iterations,
                                what_is_irregular_is_not_believed_to_be_clockwork,
                                longer_windows_err_less,
                                NULL};
  return suite_main("rate_gauge", tests, set_up, NULL);
}
