/* test_costs.c - what is learnt from measured submissions, in a table of fixed size. */
#include <check.h>
#include <string.h>

#include "../suite.h"
#include "common/clock.h"
#include "meter/costs.h"

#define US UINT64_C(1000)
#define PLACES (COSTS_SETS * COSTS_WAYS)

static struct costs costs;

static void set_up(void) { memset(&costs, 0, sizeof costs); }
static void tear_down(void) {}

static struct cost_key key_of(uintptr_t what, uint64_t amount) {
  return (struct cost_key){.what = (const void *)what, .amount = amount};
}

static void learn(struct cost_key key, uint64_t took_ns, bool undisturbed, int times) {
  for (int i = 0; i < times; i++)
    costs_learn(&costs, &key, took_ns, undisturbed);
}

START_TEST(each_kind_is_known_by_itself) {
  struct cost_key small = key_of(0x1000, 10), large = key_of(0x1000, 1000), other = key_of(0x2000, 10);
  struct cost_key elsewhere = small;
  elsewhere.device = 1;
  learn(small, 10 * US, true, 1);
  learn(large, 900 * US, true, 1);
  ck_assert_uint_eq(costs_of(&costs, &small), 10 * US);
  ck_assert_uint_eq(costs_of(&costs, &large), 900 * US);
  ck_assert_ptr_null(costs_find(&costs, &other));
  ck_assert_ptr_null(costs_find(&costs, &elsewhere));
}
END_TEST

/* Mostly a long one comes after a short one, and the other way around. */
START_TEST(what_comes_next_is_learnt) {
  struct cost_key first = key_of(0x1000, 1), second = key_of(0x2000, 1), unknown = key_of(0x3000, 1);
  learn(first, 10 * US, true, 1);
  learn(second, 900 * US, true, 1);
  ck_assert_uint_eq(costs_next(&costs, &first), 0);
  for (int i = 0; i < 20; i++) {
    costs_follow(&costs, &first, i % 10 == 5 ? 100 * US : 900 * US);
    costs_follow(&costs, &second, 10 * US);
    costs_follow(&costs, &unknown, 7 * US);
  }
  ck_assert_uint_gt(costs_next(&costs, &first), 800 * US);
  ck_assert_uint_eq(costs_next(&costs, &second), 10 * US);
  ck_assert_uint_eq(costs_next(&costs, &unknown), 0);
}
END_TEST

START_TEST(what_is_not_known_costs_as_much_as_the_rest) {
  struct cost_key known = key_of(0x1000, 1), unknown = key_of(0x2000, 1);
  uint64_t first_ns = costs_of(&costs, &unknown);
  ck_assert(first_ns >= US && first_ns <= NS_PER_MS);
  learn(known, 5 * NS_PER_MS, false, 1);
  ck_assert_uint_eq(costs_of(&costs, &unknown), 5 * NS_PER_MS);
}
END_TEST

/* Half of the time somebody else is on the GPU. */
START_TEST(what_others_add_is_not_a_cost) {
  struct cost_key key = key_of(0x1000, 1);
  for (int i = 0; i < 100; i++)
    learn(key, i % 2 ? 100 * US : 200 * US, false, 1);
  ck_assert_uint_le(costs_of(&costs, &key), 120 * US);
  learn(key, 400 * US, false, 100); /* it has become longer */
  ck_assert_uint_ge(costs_of(&costs, &key), 390 * US);
}
END_TEST

START_TEST(what_to_expect_is_learnt_undisturbed_only) {
  struct cost_key key = key_of(0x1000, 1);
  learn(key, 300 * US, false, 10);
  ck_assert_uint_eq(costs_find(&costs, &key)->expected_ns, 0);
  for (int i = 0; i < 200; i++)
    learn(key, i % 2 ? 90 * US : 110 * US, true, 1);
  learn(key, 300 * US, false, 100);
  uint64_t expected_ns = costs_find(&costs, &key)->expected_ns;
  ck_assert_uint_ge(expected_ns, 97 * US);
  ck_assert_uint_le(expected_ns, 103 * US);
}
END_TEST

/* It may have waited for its code to be loaded. */
START_TEST(the_first_one_tells_nothing_of_those_to_expect) {
  struct cost_key key = key_of(0x1000, 1);
  learn(key, 2000 * US, true, 1);
  ck_assert_uint_eq(costs_find(&costs, &key)->expected_ns, 0);
  learn(key, 60 * US, true, 1);
  ck_assert_uint_eq(costs_find(&costs, &key)->expected_ns, 60 * US);
}
END_TEST

/* A program with more kinds than there are places: those that it uses all the time stay. */
START_TEST(what_is_used_stays) {
  struct cost_key often = key_of(0x1000, 1);
  for (uintptr_t i = 0; i < 20 * PLACES; i++) {
    learn(often, 10 * US, true, 1);
    learn(key_of(0x100000 + 64 * i, i), 1000 * US, true, 1);
  }
  ck_assert_ptr_nonnull(costs_find(&costs, &often));
  ck_assert_uint_eq(costs_of(&costs, &often), 10 * US);
}
END_TEST

START_TEST(places_are_used) {
  unsigned known = 0;
  for (uintptr_t i = 0; i < PLACES / 2; i++)
    learn(key_of(0x7f0000000000 + 256 * i, 128), 10 * US, true, 1);
  for (uintptr_t i = 0; i < PLACES / 2; i++) {
    struct cost_key key = key_of(0x7f0000000000 + 256 * i, 128);
    known += costs_find(&costs, &key) != NULL;
  }
  ck_assert_uint_ge(known, PLACES / 2 * 8 / 10);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {each_kind_is_known_by_itself,
                                what_comes_next_is_learnt,
                                what_is_not_known_costs_as_much_as_the_rest,
                                what_others_add_is_not_a_cost,
                                what_to_expect_is_learnt_undisturbed_only,
                                the_first_one_tells_nothing_of_those_to_expect,
                                what_is_used_stays,
                                places_are_used,
                                NULL};
  return suite_main("costs", tests, set_up, tear_down);
}
