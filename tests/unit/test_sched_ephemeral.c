/* test_sched_ephemeral.c - memory that a job frees and allocates again is kept for it; what it frees for good
 * is not. */
#include "suite.h"
#include "world.h"

static struct world world;

#define SWAP 0
#define CALM_NS (2 * (uint64_t)SCHED_EPHEMERAL_NS) /* after that it is not expected back */

static double resident(int job) { return (double)world.clients[job].resident_bytes / GIB; }

static void expect_holders(bool one, bool two) {
  ck_assert_int_eq(world.clients[1].holds, one);
  ck_assert_int_eq(world.clients[2].holds, two);
}

static void grow(int job, double gib) {
  uint64_t granted_bytes;
  ck_assert_int_eq(world_ask(&world, job, gib, 0, &granted_bytes), 0);
}

/* Who is told to stop does. */
static void answer(void) {
  for (int i = 1; i <= 2; i++)
    if (world.jobs[i].state == GS_JOB_DROPPING)
      world_yield(&world, i);
}

static void rise(int job, double gib) {
  grow(job, gib);
  answer();
  world_pass(&world, 10 * NS_PER_MS);
}

static void fall(int job, double gib) {
  world_memory(&world, job, gib);
  world_pass(&world, 10 * NS_PER_MS);
}

/* 1 has 4 GiB, and 10 from time to time; 2 has 8. Of 16. */
static void begin(void) {
  world_init(&world, GS_MODE_AUTO);
  world_set_policy(&world, GS_POLICY_FIFO); /* the first one has precedence */
  world_attach(&world, 1, 4, SWAP);
  world_attach(&world, 2, 8, SWAP);
  world_request(&world, 1);
  world_request(&world, 2);
  expect_holders(true, true);
}

/* 1 is the one that goes on. */
static void rise_and_fall(void) {
  rise(1, 10);
  expect_holders(true, false);
  fall(1, 4);
}

START_TEST(what_comes_back_is_kept_for_it) {
  begin();
  rise_and_fall();
  rise_and_fall();
  expect_holders(true, false);
  rise(1, 10);
  expect_holders(true, false);
}
END_TEST

START_TEST(what_comes_back_in_part_says_nothing_of_the_rest) {
  begin();
  rise_and_fall();
  rise(1, 6);
  expect_holders(true, true);
  ck_assert_uint_eq(world.gpus[0].ephemeral_bytes, 0);
}
END_TEST

START_TEST(what_has_not_come_back_for_long_is_free) {
  begin();
  rise_and_fall();
  rise_and_fall();
  world_pass(&world, SCHED_EPHEMERAL_NS / 2);
  expect_holders(true, false);
  world_pass(&world, CALM_NS);
  expect_holders(true, true);
  ck_assert_uint_eq(world.gpus[0].ephemeral_bytes, 0);
}
END_TEST

START_TEST(it_is_kept_as_long_as_it_comes_back) {
  begin();
  rise_and_fall();
  rise_and_fall();
  for (int i = 0; i < 20; i++) {
    world_pass(&world, SCHED_EPHEMERAL_NS / 3);
    expect_holders(true, false);
    rise_and_fall();
  }
  world_pass(&world, CALM_NS);
  expect_holders(true, true);
}
END_TEST

/* From then on it is as much as it has had lately. */
START_TEST(less_than_before_is_kept_if_less_comes_back) {
  begin();
  rise_and_fall();
  rise_and_fall();
  for (int i = 0; i < 5; i++) {
    world_pass(&world, SCHED_EPHEMERAL_NS / 2);
    grow(1, 6);
    fall(1, 4);
  }
  expect_holders(true, true); /* 6 and 8 fit */
  ck_assert_uint_eq(world.gpus[0].ephemeral_bytes, 2 * GIB);
}
END_TEST

START_TEST(a_little_that_comes_and_goes_says_nothing_of_the_rest) {
  begin();
  rise(1, 10);
  fall(1, 9.5);
  rise(1, 10);
  fall(1, 4);
  expect_holders(true, true);
}
END_TEST

/* The card is full when 1 has all; what 2 lacks does not come back while 1 has less. */
START_TEST(memory_of_others_does_not_come_back_for_a_moment) {
  world_init(&world, GS_MODE_ON);
  world_attach(&world, 1, 4, SWAP);
  world_attach(&world, 2, 10, SWAP);
  world_request(&world, 1);
  world_request(&world, 2);
  for (int i = 0; i < 3; i++) {
    rise(1, 12);
    ck_assert_double_le(resident(2), 4);
    fall(1, 4);
    ck_assert(i == 0 || resident(2) <= 4);
  }
}
END_TEST

static void tell_expected(int job, uint64_t bytes) {
  struct sched_terms terms = world.jobs[job].terms;
  terms.expected_bytes = bytes;
  world_set_terms(&world, job, &terms);
  answer();
  world_pass(&world, 10 * NS_PER_MS);
}

START_TEST(who_says_what_it_will_have_counts_with_that) {
  begin();
  tell_expected(1, 9 * GIB);
  expect_holders(true, false);
  tell_expected(1, 7 * GIB);
  expect_holders(true, true);
}
END_TEST

/* Who uses no memory needs no place for it yet. */
START_TEST(but_not_before_it_has_any) {
  begin();
  fall(1, 0);
  tell_expected(1, 9 * GIB);
  expect_holders(true, true);
  rise(1, 0.5);
  expect_holders(true, false);
}
END_TEST

/* Nobody keeps clear what it can't get. */
START_TEST(it_counts_with_no_more_than_its_limit) {
  struct sched_terms limited = {.weight = 1, .limit_bytes = 6 * GIB, .expected_bytes = 12 * GIB};
  begin();
  world_set_terms(&world, 1, &limited);
  answer();
  expect_holders(true, true); /* 6 and 8 fit */
  ck_assert_uint_eq(world.gpus[0].ephemeral_bytes, 2 * GIB);
  limited.limit_bytes = 2 * GIB; /* it keeps what it has */
  world_set_terms(&world, 1, &limited);
  ck_assert_uint_eq(world.gpus[0].ephemeral_bytes, 0);
}
END_TEST

START_TEST(nor_does_it_with_what_it_has_had_before_the_limit) {
  begin();
  rise_and_fall();
  rise_and_fall();
  expect_holders(true, false);
  world_set_terms(&world, 1, &(struct sched_terms){.weight = 1, .limit_bytes = 7 * GIB});
  world_pass(&world, 10 * NS_PER_MS);
  expect_holders(true, true);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {what_comes_back_is_kept_for_it,
                                what_comes_back_in_part_says_nothing_of_the_rest,
                                what_has_not_come_back_for_long_is_free,
                                it_is_kept_as_long_as_it_comes_back,
                                less_than_before_is_kept_if_less_comes_back,
                                a_little_that_comes_and_goes_says_nothing_of_the_rest,
                                who_says_what_it_will_have_counts_with_that,
                                but_not_before_it_has_any,
                                it_counts_with_no_more_than_its_limit,
                                nor_does_it_with_what_it_has_had_before_the_limit,
                                memory_of_others_does_not_come_back_for_a_moment,
                                NULL};
  return suite_main("sched_ephemeral", tests, NULL, NULL);
}
