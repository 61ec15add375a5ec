/* test_iteration.c - what is learnt about a program's iterations, and when that can be told. */
#include <check.h>

#include "../suite.h"
#include "common/clock.h"
#include "gate/iteration.h"

static struct iteration it;
static uint64_t now_ns, calls;

static void set_up(void) {
  it = (struct iteration){0};
  now_ns = NS_PER_S;
  calls = 1000;
}

static void tear_down(void) {}

static void iterate(unsigned count, uint64_t period_ns, uint64_t launches) {
  for (unsigned i = 0; i < count; i++) {
    now_ns += period_ns;
    calls += launches;
    iteration_end(&it, now_ns, calls);
  }
}

START_TEST(regular_iterations_are_known) {
  iterate(8, 20 * NS_PER_MS, 50);
  ck_assert(!iteration_is_known(&it));
  ck_assert_uint_eq(iteration_next_ns(&it, now_ns), UINT64_MAX);
  iterate(1, 20 * NS_PER_MS, 50);
  ck_assert(iteration_is_known(&it));
  ck_assert_uint_eq(iteration_next_ns(&it, now_ns), now_ns + 20 * NS_PER_MS);
  ck_assert_uint_eq(iteration_next_ns(&it, now_ns + 5 * NS_PER_MS), now_ns + 20 * NS_PER_MS);
}
END_TEST

START_TEST(a_little_irregular_is_regular) {
  for (unsigned i = 0; i < 50; i++)
    iterate(1, (19 + i % 3) * NS_PER_MS, 50 + i % 2);
  ck_assert(iteration_is_known(&it));
}
END_TEST

START_TEST(irregular_times_are_not_known) {
  for (unsigned i = 0; i < 50; i++)
    iterate(1, (i % 2 ? 5 : 35) * NS_PER_MS, 50);
  ck_assert(!iteration_is_known(&it));
}
END_TEST

START_TEST(irregular_numbers_of_launches_are_not_known) {
  for (unsigned i = 0; i < 50; i++)
    iterate(1, 20 * NS_PER_MS, i % 2 ? 10 : 90);
  ck_assert(!iteration_is_known(&it));
}
END_TEST

START_TEST(ends_without_work_between_them_are_one) {
  for (unsigned i = 0; i < 50; i++) {
    iterate(1, 20 * NS_PER_MS, 50);
    iteration_end(&it, now_ns + NS_PER_MS, calls);
    iteration_end(&it, now_ns + 3 * NS_PER_MS, calls);
  }
  ck_assert(iteration_is_known(&it));
  ck_assert_uint_eq(iteration_next_ns(&it, now_ns), now_ns + 20 * NS_PER_MS);
}
END_TEST

/* Late by a little it is expected any moment; by more, nobody knows. */
START_TEST(an_end_may_be_late) {
  iterate(20, 16 * NS_PER_MS, 50);
  ck_assert_uint_eq(iteration_next_ns(&it, now_ns + 17 * NS_PER_MS), now_ns + 17 * NS_PER_MS);
  ck_assert_uint_eq(iteration_next_ns(&it, now_ns + 19 * NS_PER_MS), UINT64_MAX);
}
END_TEST

/* The time between two turns of the program is no iteration. */
START_TEST(a_pause_teaches_nothing) {
  iterate(20, 20 * NS_PER_MS, 50);
  iteration_pause(&it);
  ck_assert_uint_eq(iteration_next_ns(&it, now_ns), UINT64_MAX);
  iterate(1, NS_PER_S, 7);
  iterate(1, 20 * NS_PER_MS, 50);
  ck_assert(iteration_is_known(&it));
  ck_assert_uint_eq(it.period_ns, 20 * NS_PER_MS);
}
END_TEST

START_TEST(another_rhythm_is_learnt) {
  iterate(20, 20 * NS_PER_MS, 50);
  iterate(1, 80 * NS_PER_MS, 200);
  ck_assert(!iteration_is_known(&it));
  iterate(50, 80 * NS_PER_MS, 200);
  ck_assert(iteration_is_known(&it));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {regular_iterations_are_known,
                                a_little_irregular_is_regular,
                                irregular_times_are_not_known,
                                irregular_numbers_of_launches_are_not_known,
                                ends_without_work_between_them_are_one,
                                an_end_may_be_late,
                                a_pause_teaches_nothing,
                                another_rhythm_is_learnt,
                                NULL};
  return suite_main("iteration", tests, set_up, tear_down);
}
