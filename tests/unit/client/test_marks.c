/* test_marks.c - marks (marks.c): programs are played, and whether two marks lie whole iterations apart is
 * known to the test alone. GPUSHARE_SEED: another one. */
#include "client/marks.h"

#include <stdio.h>

#include "../suite.h"
#include "common/clock.h"

#define MOST_BREAKS 14 /* a chain of CHAIN << errors pauses is soon too long for the ring; two for each */

static struct marks marks;
static uint64_t seed = 1, place, random_state;
static unsigned iterations, told, breaks, wrong;
static int where; /* within its iteration the last mark was; -1: there is none, or a break was told */

static void set_up(void) { random_state = seed; }
static void tear_down(void) {}

static void restart(void) {
  marks = (struct marks){0};
  place = 0;
  iterations = told = breaks = wrong = 0;
  where = -1;
}

static void count_anew(void) { iterations = told = breaks = wrong = 0; }

/* Less than that. */
static unsigned chance(unsigned below) {
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (unsigned)((random_state >> 33) % below);
}

static void submit(unsigned calls) { place += calls; }

/* At this point of its iteration. */
static void rest(int point, unsigned us, bool idle) {
  enum marks_sign sign = marks_pause(&marks, place, us * NS_PER_MS / 1000, idle);
  breaks += sign == MARKS_BREAK;
  told += sign == MARKS_MARK;
  wrong += sign == MARKS_MARK && where >= 0 && where != point;
  where = sign == MARKS_BREAK ? -1 : sign == MARKS_MARK ? point : where;
}

/* A training that is never without work: the driver's queue is full, and lets it submit as kernels end.
 * Others make it pause anywhere, for longer than ever. */
static void train(unsigned missing_percent, bool others) {
  static const unsigned us[] = {1000, 1400, 750}, spread_us[] = {500, 360, 600}, calls[] = {306, 158, 327};
  for (int i = 0; i < 3; i++) {
    unsigned part = 1 + chance(calls[i] - 1);
    submit(part);
    if (others)
      rest(3 + i, 1000 + chance(4000), false);
    submit(calls[i] - part);
    if (chance(100) >= missing_percent)
      rest(i, us[i] + chance(spread_us[i]), false);
  }
  iterations++;
}

START_TEST(marks_of_a_training_without_gaps_are_whole_iterations_apart) {
  for (int run = 0; run < 50; run++) {
    restart();
    while (iterations < 200)
      train(10, false);
    ck_assert_uint_ge(breaks, 1);
    ck_assert_uint_le(breaks, 6);
    count_anew();
    while (iterations < 2000)
      train(10, false);
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_le(breaks, 4);
    ck_assert_uint_ge(told, iterations * 4 / 5);
  }
}
END_TEST

START_TEST(pauses_by_others_are_no_marks) {
  unsigned all_wrong = 0;
  for (int run = 0; run < 50; run++) {
    restart();
    while (iterations < 100)
      train(5, iterations % 40 >= 8);
    for (count_anew(); iterations < 2000;)
      train(5, iterations % 40 >= 8);
    all_wrong += wrong;
    ck_assert_uint_le(breaks, 4);
    ck_assert_uint_ge(told, iterations * 4 / 5);
  }
  ck_assert_uint_le(all_wrong, 100); /* of 100,000: where a period was lost */
}
END_TEST

/* It waits for the GPU at the end of each; and before, for the host. */
static void train_in_step(bool idle) {
  for (int i = 0; i < 4; i++) {
    submit(50);
    rest(i, 900 + chance(300), false);
  }
  submit(20);
  rest(4, 9000 + chance(2000), idle);
  iterations++;
}

START_TEST(of_many_pauses_one_is_a_mark) {
  for (int idle = 0; idle < 2; idle++) {
    restart();
    while (iterations < 20)
      train_in_step(idle);
    for (count_anew(); iterations < 2000;)
      train_in_step(idle);
    ck_assert(wrong == 0 && breaks == 0 && told == iterations);
  }
}
END_TEST

START_TEST(without_a_period_the_longest_pauses_are_marks) {
  for (restart(); iterations < 5000; iterations++) {
    submit(50 + chance(50));
    rest(0, 1000 + chance(300), false);
    submit(50 + chance(50));
    rest(1, 9000 + chance(2000), false);
  }
  ck_assert_uint_le(wrong, 1); /* the first: how long the longest are is not known yet */
  ck_assert_uint_le(breaks, MOST_BREAKS);
  ck_assert_uint_ge(told, iterations * 4 / 5);
}
END_TEST

/* From one to two, to three parts in each, before its last part. */
START_TEST(another_period_is_found) {
  unsigned all_wrong = 0;
  for (int run = 0; run < 200; run++) {
    restart();
    for (int parts = 1; parts <= 3; parts++) {
      for (int i = 0; i < 400; i++) {
        for (int part = 0; part < parts; part++) {
          submit(200);
          rest(10 * part + 0, 1000 + chance(700), false);
          submit(100);
          if (chance(10))
            rest(10 * part + 1, 1000 + chance(700), false);
        }
        submit(40);
        iterations++;
        if (i == 100) {
          all_wrong += parts > 1 ? wrong : 0;
          count_anew();
        }
      }
      ck_assert_uint_eq(wrong, 0);
      ck_assert_uint_ge(told, iterations * 3 / 4);
      ck_assert_uint_le(breaks, 1);
    }
  }
  ck_assert_uint_le(all_wrong, 400); /* one by each change: the next pause where it was due is another one */
}
END_TEST

/* Such as a line of its log: some more submissions in every tenth. */
START_TEST(a_shift_is_no_other_period) {
  unsigned all_told = 0;
  for (int run = 0; run < 10; run++) {
    restart();
    for (int i = 0; i < 2000; i++) {
      train(1, false);
      submit(i % 10 == 9 ? 3 : 0);
      if (i == 50)
        count_anew();
    }
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_le(breaks, 4);
    all_told += told;
  }
  ck_assert_uint_ge(all_told, 10 * iterations / 2);
}
END_TEST

/* Twelve layers, all alike. */
START_TEST(a_pattern_within_iterations_is_no_period) {
  restart();
  for (int i = 0; i < 1000; i++) {
    for (int layer = 0; layer < 12; layer++) {
      submit(60);
      if (layer % 2)
        rest(layer, 1000 + chance(700), false);
    }
    submit(100);
    iterations++;
    if (i == 100)
      count_anew();
  }
  ck_assert(wrong == 0 && breaks == 0);
  ck_assert_uint_eq(told, iterations);
}
END_TEST

/* A server: requests of two kinds. */
START_TEST(what_comes_in_a_row_by_chance_is_soon_no_period) {
  static const unsigned percents[] = {50, 20, 5};
  for (int i = 0; i < 3; i++) {
    for (restart(); iterations < 20000; iterations++) {
      submit(chance(100) < percents[i] ? 130 : 100);
      rest(0, 100 + chance(800), true);
      if (iterations == 2000)
        told = 0;
    }
    ck_assert_uint_le(breaks, 2 * MOST_BREAKS);
    ck_assert_uint_ge(told, 15000);
  }
}
END_TEST

/* Another thread submits now and then. */
START_TEST(two_threads_do_no_harm) {
  static const unsigned most[] = {2, 4, 30};
  for (int i = 0; i < 3; i++) {
    for (restart(); iterations < 5000; iterations++) {
      submit(400 + chance(most[i]));
      rest(0, 1000 + chance(300), false);
      submit(300 + chance(most[i]));
      rest(1, 9000 + chance(2000), false);
    }
    ck_assert_uint_le(wrong, 1);
    ck_assert_uint_le(breaks, MOST_BREAKS);
    ck_assert_uint_ge(told, iterations / 2);
  }
}
END_TEST

/* A graph each; short pauses, and submissions that are counted far. */
START_TEST(iterations_may_be_of_one_submission) {
  restart();
  for (place = UINT32_MAX - 500; iterations < 1000; iterations++) {
    submit(1);
    rest(0, 500 + chance(100), false);
  }
  ck_assert_uint_eq(breaks, 1);
  ck_assert_uint_ge(told, 1000 - 10);
  restart();
  for (; iterations < 100; iterations++) {
    submit(1);
    rest(0, 300 + chance(100), false);
  }
  ck_assert(told == 0 && breaks == 0); /* where they lie is not known well */
}
END_TEST

START_TEST(kernels_in_a_row_are_no_period) {
  restart();
  for (int i = 0; i < 200; i++) {
    for (int kernel = 0; kernel < 7; kernel++) {
      submit(1);
      rest(kernel, 1000 + chance(700), false);
    }
    submit(500);
    iterations++;
    if (i == 20)
      count_anew();
  }
  ck_assert(wrong == 0 && breaks == 0 && told == iterations);
}
END_TEST

/* Now and then it does something else for a while, for ever. */
START_TEST(a_period_that_has_held_for_long_was_none_by_chance) {
  for (int run = 0; run < 20; run++) {
    for (iterations = 0; iterations < 40; iterations++) {
      submit(150);
      rest(10, 2000, false);
    }
    for (int i = 0; i < 340; i++) {
      train(0, false);
      if (i == 40)
        count_anew();
    }
    ck_assert(wrong == 0 && breaks == 0 && told == iterations);
  }
}
END_TEST

START_TEST(a_multiple_is_a_period_until_the_period_is_known) {
  for (restart(); iterations < 100; iterations++) {
    submit(300);
    if (iterations % 2 || iterations > 30)
      rest(0, 1000, false);
    if (iterations == 50)
      told = 0;
  }
  ck_assert(wrong == 0 && breaks == 1 && told == 49);
}
END_TEST

START_TEST(marks_of_both_kinds_are_never_mixed) {
  for (restart(); iterations < 20; iterations++) {
    submit(300);
    rest(0, 1000, false);
  }
  ck_assert(breaks == 1 && told == 4 + 15);
  for (count_anew(); breaks == 0; iterations++) {
    submit(310 + iterations);
    rest(0, 1000, false);
  }
  ck_assert(told == 0 && iterations <= 16);
  submit(400);
  rest(0, 700, false);
  ck_assert_uint_eq(told, 0); /* too short for one without a period */
  submit(500);
  rest(0, 1000, false);
  rest(0, 1000, false);
  ck_assert_uint_eq(told, 1); /* it is still the same pause */
}
END_TEST

int main(void) {
  const TTest *const tests[] = {marks_of_a_training_without_gaps_are_whole_iterations_apart,
                                pauses_by_others_are_no_marks,
                                of_many_pauses_one_is_a_mark,
                                without_a_period_the_longest_pauses_are_marks,
                                another_period_is_found,
                                a_shift_is_no_other_period,
                                a_pattern_within_iterations_is_no_period,
                                what_comes_in_a_row_by_chance_is_soon_no_period,
                                two_threads_do_no_harm,
                                iterations_may_be_of_one_submission,
                                kernels_in_a_row_are_no_period,
                                a_period_that_has_held_for_long_was_none_by_chance,
                                a_multiple_is_a_period_until_the_period_is_known,
                                marks_of_both_kinds_are_never_mixed,
                                NULL};
  const char *other = getenv("GPUSHARE_SEED");
  seed = other ? strtoull(other, NULL, 10) : seed;
  printf("seed %llu\n", (unsigned long long)seed);
  return suite_main("marks", tests, set_up, tear_down);
}
