/* test_reason.c - what jobs wait for. */
#include "suite.h"
#include "world.h"

static struct world world;

static void set_up(void) {
  world_init(&world, GS_MODE_ON);
  for (int i = 1; i <= 3; i++)
    world_attach(&world, i, 10, 0);
  world_request(&world, 1);
}

static struct sched_reason reason(int job) { return sched_job_reason(&world.jobs[job], world.now_ns); }

static void because(int job, enum gs_reason why, int who) {
  ck_assert_int_eq(reason(job).why, why);
  ck_assert_ptr_eq(reason(job).who, who ? &world.jobs[who] : NULL);
}

START_TEST(who_runs_and_who_is_idle) {
  because(1, GS_REASON_RUNS, 0);
  because(2, GS_REASON_IDLE, 0);
}
END_TEST

START_TEST(turns_take_their_time) {
  world_request(&world, 2);
  world_request(&world, 3);
  world_pass(&world, 5 * NS_PER_S);
  because(2, GS_REASON_TURN, 1);
  because(3, GS_REASON_TURN, 1);
  /* 15 s are left of this quantum; then 4 GiB come, or 10, at 25 GB/s. */
  ck_assert_double_eq_tol((double)reason(2).expected_ns / NS_PER_S, 15.17, 0.01);
  ck_assert_double_eq_tol((double)reason(3).expected_ns / NS_PER_S, 35.43, 0.01);
}
END_TEST

START_TEST(one_after_the_other_takes_what_they_have_left) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .expected_ns = 100 * NS_PER_S};
  scheduler_set_policy(&world.scheduler, NULL, GS_POLICY_FIFO, world.now_ns, &world.change);
  for (int i = 1; i <= 2; i++)
    scheduler_set_terms(&world.jobs[i], &terms, world.now_ns, &world.change);
  world_request(&world, 2);
  world_request(&world, 3);
  world_pass(&world, 40 * NS_PER_S);
  ck_assert_double_eq_tol((double)reason(2).expected_ns / NS_PER_S, 60.43, 0.01);
  ck_assert_double_eq_tol((double)reason(3).expected_ns / NS_PER_S, 160.43, 0.01);
}
END_TEST

/* Ten levels below, it waits for ten minutes, of which five seconds have passed. */
START_TEST(a_level_takes_a_minute) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .priority = 10};
  world_set_policy(&world, GS_POLICY_PRIORITY);
  world_set_terms(&world, 1, &terms);
  world_request(&world, 2);
  world_pass(&world, 5 * NS_PER_S);
  ck_assert_double_eq_tol((double)reason(2).expected_ns / NS_PER_S, 595.43, 0.01);
}
END_TEST

START_TEST(a_drain_is_waited_for) {
  world_request(&world, 2);
  world_pass(&world, 20 * NS_PER_S);
  because(1, GS_REASON_STOPS, 0);
  because(2, GS_REASON_STOP, 1);
}
END_TEST

START_TEST(memory_that_leaves_is_waited_for) {
  world.clients[1].stuck = true;
  world_request(&world, 2);
  world_pass(&world, 20 * NS_PER_S);
  world_release(&world, 1);
  because(2, GS_REASON_ROOM, 1);
}
END_TEST

START_TEST(memory_that_comes_is_waited_for) {
  world.clients[2].stuck = true;
  world_request(&world, 2);
  world_pass(&world, 20 * NS_PER_S);
  world_release(&world, 1);
  because(2, GS_REASON_RESTORE, 0);
  ck_assert_uint_gt(reason(2).expected_ns, 0);
}
END_TEST

/* The grace of the one that comes to the card is not its quantum. */
START_TEST(a_quantum_that_has_yet_to_begin_is_no_longer_for_that) {
  world.clients[2].stuck = true;
  world_request(&world, 2);
  world_request(&world, 3);
  world_pass(&world, 20 * NS_PER_S);
  world_release(&world, 1);
  because(2, GS_REASON_RESTORE, 0);
  because(3, GS_REASON_TURN, 2);
  ck_assert_double_eq_tol((double)reason(3).expected_ns / NS_PER_S, 20, 1);
}
END_TEST

START_TEST(too_much_memory_never_runs) {
  world_request(&world, 2);
  world_set_capacity(&world, 8);
  because(2, GS_REASON_TOO_BIG, 0);
  ck_assert_uint_eq(reason(2).expected_ns, SCHED_NEVER);
}
END_TEST

START_TEST(nor_is_it_waited_for) {
  world_attach(&world, 4, 10, 0);
  world_memory(&world, 2, 14);
  for (int i = 2; i <= 4; i++)
    world_request(&world, i);
  world_set_capacity(&world, 12);
  because(2, GS_REASON_TOO_BIG, 0);
  ck_assert_uint_le(reason(4).expected_ns, 41 * NS_PER_S); /* what is left of this quantum, and that of 3 */
}
END_TEST

/* It holds nothing that others could have, and may answer at any time. */
START_TEST(nobody_knows_when_a_silent_one_answers) {
  world_set_mode(&world, GS_MODE_AUTO);
  world.clients[1].stuck = true;
  world_request(&world, 2);
  world_pass(&world, 20 * NS_PER_S);
  because(2, GS_REASON_STOP, 1);
  world_pass(&world, 30 * NS_PER_S);
  ck_assert_uint_eq(sched_job_flags(&world.jobs[1]), GS_STATE_OVERDUE);
  ck_assert_ptr_eq(reason(2).who, &world.jobs[1]);
  ck_assert_uint_eq(reason(2).expected_ns, SCHED_NEVER);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {who_runs_and_who_is_idle,
                                turns_take_their_time,
                                one_after_the_other_takes_what_they_have_left,
                                a_level_takes_a_minute,
                                a_drain_is_waited_for,
                                memory_that_leaves_is_waited_for,
                                memory_that_comes_is_waited_for,
                                a_quantum_that_has_yet_to_begin_is_no_longer_for_that,
                                too_much_memory_never_runs,
                                nor_is_it_waited_for,
                                nobody_knows_when_a_silent_one_answers,
                                NULL};
  return suite_main("reason", tests, set_up, NULL);
}
