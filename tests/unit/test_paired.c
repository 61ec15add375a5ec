/* test_paired.c - what benchmarks in pairs tell: the median of the ratios, and its error. */
#include "paired.h"

#include "common/splitmix.h"
#include "suite.h"

static struct paired pairs;
static uint64_t state;

static void set_up(void) {
  pairs.count = 0;
  state = 1;
}

static double chance(void) { return (double)(splitmix_next(&state) >> 11) / 0x1p53; }

/* About a normal distribution, of that standard deviation. */
static double noise(double deviation) {
  double sum = -6;
  for (int i = 0; i < 12; i++)
    sum += chance();
  return sum * deviation;
}

static void add(double with, double without) {
  pairs.with[pairs.count] = with;
  pairs.without[pairs.count++] = without;
}

static void add_noisy(unsigned count, double ratio, double deviation) {
  for (unsigned i = 0; i < count; i++)
    add(1e6 * ratio * (1 + noise(deviation)), 1e6);
}

START_TEST(the_quartiles_of_few) {
  add(4, 1), add(1, 1), add(3, 1), add(2, 1);
  struct paired_spread ratio = paired_ratio(&pairs);
  ck_assert_double_eq_tol(ratio.low, 1.75, 1e-9);
  ck_assert_double_eq_tol(ratio.median, 2.5, 1e-9);
  ck_assert_double_eq_tol(ratio.high, 3.25, 1e-9);
  add(9, 1);
  ck_assert_double_eq_tol(paired_ratio(&pairs).median, 3, 1e-9);
}
END_TEST

START_TEST(of_one_pair_all_are_the_same) {
  add(1, 2);
  struct paired_spread ratio = paired_ratio(&pairs);
  ck_assert_double_eq(ratio.low, 0.5);
  ck_assert_double_eq(ratio.median, 0.5);
  ck_assert_double_eq(ratio.high, 0.5);
}
END_TEST

START_TEST(a_machine_that_slows_down_is_no_difference) {
  for (unsigned i = 0; i < 50; i++)
    add(0.99 * (1e6 - 1e4 * i), 1e6 - 1e4 * i);
  ck_assert_double_eq_tol(paired_ratio(&pairs).median, 0.99, 1e-9);
}
END_TEST

START_TEST(disturbed_pairs_are_no_difference) {
  add_noisy(50, 1, 0.002);
  for (unsigned i = 0; i < 50; i += 10)
    pairs.with[i] /= 3;
  ck_assert_double_gt(paired_ratio(&pairs).median, 0.998);
}
END_TEST

START_TEST(a_difference_is_seen) {
  add_noisy(50, 0.99, 0.002);
  struct paired_spread ratio = paired_ratio(&pairs);
  ck_assert_double_eq_tol(ratio.median, 0.99, 4 * paired_error(&ratio, pairs.count));
  ck_assert_double_lt(ratio.median, 0.998);
}
END_TEST

START_TEST(of_too_few_the_error_is_not_known) {
  add_noisy(PAIRED_LEAST - 1, 1, 0.001);
  struct paired_spread ratio = paired_ratio(&pairs);
  ck_assert(isinf(paired_error(&ratio, pairs.count)));
  add_noisy(1, 1, 0.001);
  ratio = paired_ratio(&pairs);
  ck_assert(!isinf(paired_error(&ratio, pairs.count)));
}
END_TEST

/* How far medians of many runs scatter is what each of these runs tells of itself. */
START_TEST(the_error_is_how_far_medians_scatter) {
  enum { RUNS = 400, PAIRS = 50 };
  double squares = 0, told = 0;
  for (unsigned run = 0; run < RUNS; run++) {
    pairs.count = 0;
    add_noisy(PAIRS, 1, 0.01);
    struct paired_spread ratio = paired_ratio(&pairs);
    squares += (ratio.median - 1) * (ratio.median - 1) / RUNS;
    told += paired_error(&ratio, PAIRS) / RUNS;
  }
  ck_assert_double_eq_tol(told / sqrt(squares), 1, 0.15);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {the_quartiles_of_few,
                                of_one_pair_all_are_the_same,
                                a_machine_that_slows_down_is_no_difference,
                                disturbed_pairs_are_no_difference,
                                a_difference_is_seen,
                                of_too_few_the_error_is_not_known,
                                the_error_is_how_far_medians_scatter,
                                NULL};
  return suite_main("paired", tests, set_up, NULL);
}
