/* test_sched_classes.c - who makes way for whom by class, whatever the policy; and whose memory leaves first.
 */
#include "core/internal.h"
#include "suite.h"
#include "world.h"

static struct world world;

#define said(text) ck_assert_str_eq(world_said(&world), text)
#define TQ (20 * NS_PER_S)
#define SWAP 0
#define P GS_CLASS_PRODUCTION
#define S GS_CLASS_STANDARD
#define O GS_CLASS_OPPORTUNISTIC

static void set_class(int job, enum gs_class class) {
  struct sched_terms terms = world.jobs[job].terms;
  terms.class = class;
  world_set_terms(&world, job, &terms);
}

/* Jobs 1, 2 and 3 of these classes take turns on a card of 16 GiB; none wants to yet. */
static void take_turns(enum gs_class one, enum gs_class two, enum gs_class three, double gib) {
  const enum gs_class classes[] = {one, two, three};
  world_init(&world, GS_MODE_ON);
  for (int i = 1; i <= 3; i++) {
    world_attach(&world, i, gib, SWAP);
    set_class(i, classes[i - 1]);
  }
  world.gpus[0].preempt_saved_ns = SCHED_PREEMPT_SAVED_NS;
  world_said(&world);
}

static void request_all(void) {
  for (int i = 1; i <= 3; i++)
    world_request(&world, i);
}

/* ---- turns ---- */

START_TEST(opportunistic_jobs_come_last_whatever_the_policy) {
  for (int policy = GS_POLICY_RR; policy <= GS_POLICY_PACK; policy++) {
    take_turns(P, O, S, 10);
    world_set_policy(&world, (enum gs_policy)policy);
    request_all();
    world_said(&world);
    world_release(&world, 1);
    ck_assert_int_eq(world.jobs[3].state, GS_JOB_HOLDING);
    world_release(&world, 3);
    ck_assert_int_eq(world.jobs[2].state, GS_JOB_HOLDING);
  }
}
END_TEST

START_TEST(production_interrupts_them_at_once_whatever_the_policy) {
  for (int policy = GS_POLICY_RR; policy <= GS_POLICY_PACK; policy++) {
    take_turns(P, O, O, 10);
    world_set_policy(&world, (enum gs_policy)policy);
    world_request(&world, 2);
    world_pass(&world, NS_PER_S);
    world.gpus[0].preempt_saved_ns = -SCHED_PREEMPT_SAVED_NS; /* there is nothing for preemptions */
    world.gpus[0].preempt_saved_at_ns = world.now_ns;
    world_request(&world, 1);
    ck_assert_int_eq(world.jobs[2].state, GS_JOB_DROPPING);
    ck_assert_int_ge(world.gpus[0].preempt_saved_ns, -SCHED_PREEMPT_SAVED_NS); /* it costs nothing there */
    world_release(&world, 2);
    ck_assert_int_eq(world.jobs[1].state, GS_JOB_HOLDING);
  }
}
END_TEST

START_TEST(also_while_their_memory_comes) {
  take_turns(P, O, O, 10);
  world.clients[2].stuck = true;
  world_request(&world, 2);
  ck_assert(!world.jobs[2].active);
  world_request(&world, 1);
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_DROPPING);
}
END_TEST

/* Within what preemptions may cost. */
START_TEST(standard_jobs_interrupt_them_too) {
  take_turns(S, O, S, 10);
  world_set_policy(&world, GS_POLICY_RR);
  world_request(&world, 2);
  world_pass(&world, NS_PER_S);
  world_request(&world, 1);
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_DROPPING);
  world_release(&world, 2);
  world_request(&world, 3);
  world_pass(&world, TQ / 2);
  ck_assert_int_eq(world.jobs[1].state, GS_JOB_HOLDING); /* among themselves: by the policy */
}
END_TEST

START_TEST(no_one_of_them_stops_if_that_is_not_enough) {
  world_init(&world, GS_MODE_AUTO);
  world_attach(&world, 1, 4, SWAP);
  world_attach(&world, 2, 10, SWAP);
  set_class(1, O);
  world_attach(&world, 3, 12, SWAP);
  world_request(&world, 3);
  ck_assert_int_eq(world.jobs[1].state, GS_JOB_HOLDING);
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_HOLDING);
  ck_assert_int_eq(world.jobs[3].state, GS_JOB_WAITING);
}
END_TEST

START_TEST(who_is_not_idle_is_not_displaced_by_them) {
  for (int policy = GS_POLICY_RR; policy <= GS_POLICY_PACK; policy++) {
    take_turns(P, O, O, 10);
    world_set_policy(&world, (enum gs_policy)policy);
    request_all();
    world_pass(&world, 100 * TQ);
    ck_assert_int_eq(world.jobs[1].state, GS_JOB_HOLDING);
    ck_assert(world.clients[1].wanted); /* so it gives way once it is idle */
    ck_assert_uint_eq(world.jobs[1].turns, 1);
  }
}
END_TEST

START_TEST(a_class_that_changes_counts_at_once) {
  take_turns(S, S, S, 10);
  world_set_policy(&world, GS_POLICY_RR);
  world_request(&world, 1);
  world_request(&world, 2);
  world_pass(&world, NS_PER_S);
  world_said(&world);
  set_class(2, P);
  said("");
  set_class(1, O);
  said("1:drop(1)");
}
END_TEST

START_TEST(how_long_production_takes_cannot_be_told) {
  take_turns(P, O, S, 10);
  world_request(&world, 1);
  world_request(&world, 2);
  ck_assert_uint_eq(sched_job_reason(&world.jobs[2], world.now_ns).expected_ns, SCHED_NEVER);
  world_request(&world, 3);
  ck_assert_uint_lt(sched_job_reason(&world.jobs[3], world.now_ns).expected_ns, 2 * TQ);
}
END_TEST

/* ---- memory ---- */

static void has(double one, double two, double three) {
  ck_assert_double_eq((double)world.clients[1].resident_bytes / GIB, one);
  ck_assert_double_eq((double)world.clients[2].resident_bytes / GIB, two);
  ck_assert_double_eq((double)world.clients[3].resident_bytes / GIB, three);
}

/* Jobs 1 to 3 have 5 GiB each, all there, and are idle, the first for longest; job 4 comes, of so many. */
static void come(double gib) {
  request_all();
  for (int i = 1; i <= 3; i++) {
    world_release(&world, i);
    world_pass(&world, 1);
  }
  world_attach(&world, 4, gib, SWAP); /* 1 is free */
  world_request(&world, 4);
}

START_TEST(opportunistic_memory_leaves_first) {
  take_turns(P, S, O, 5);
  come(5);
  has(5, 5, 1);
}
END_TEST

START_TEST(then_that_of_standard_jobs) {
  take_turns(P, S, O, 5);
  come(10);
  has(5, 1, 0);
}
END_TEST

START_TEST(that_of_production_jobs_leaves_last) {
  take_turns(P, S, O, 5);
  come(13);
  has(3, 0, 0);
}
END_TEST

START_TEST(also_before_what_is_beyond_a_soft_limit) {
  take_turns(S, S, O, 5);
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .soft_limit_bytes = GIB};
  world_set_terms(&world, 1, &terms);
  come(7);
  has(4, 5, 0);
}
END_TEST

/* Behind somebody's turn, for who runs next: of a production job that is idle for long. */
START_TEST(production_memory_does_not_leave_behind_a_turn_for_them) {
  static const enum gs_class classes[] = {S, O};
  for (int i = 0; i < 2; i++) {
    take_turns(P, classes[i], classes[i], 6);
    world_set_policy(&world, GS_POLICY_RR);
    world_request(&world, 1);
    world_release(&world, 1);
    world_request(&world, 2);
    world_request(&world, 3); /* 4 of its memory are there */
    world_pass(&world, NS_PER_S);
    has(classes[i] == O ? 6 : 4, 6, classes[i] == O ? 4 : 6);
  }
}
END_TEST

/* ---- sums ---- */

static void expect_tally(enum gs_class class, uint64_t run_ns, uint64_t waited_ns, uint64_t turns) {
  struct sched_tally tally = sched_gpu_tally(&world.gpus[0], class, world.now_ns);
  ck_assert_uint_eq(tally.run_ns, run_ns);
  ck_assert_uint_eq(tally.held_ns, run_ns);
  ck_assert_uint_eq(tally.waited_ns, waited_ns);
  ck_assert_uint_eq(tally.turns, turns);
}

START_TEST(what_jobs_have_had_counts_for_the_class_that_they_had_then) {
  take_turns(S, S, S, 10);
  world_request(&world, 1);
  world_request(&world, 2);
  world_pass(&world, 3 * NS_PER_S);
  expect_tally(S, 3 * NS_PER_S, 3 * NS_PER_S, 1);
  set_class(1, P);
  set_class(2, O);
  expect_tally(S, 3 * NS_PER_S, 3 * NS_PER_S, 1);
  world_pass(&world, 2 * NS_PER_S);
  expect_tally(S, 3 * NS_PER_S, 3 * NS_PER_S, 1);
  expect_tally(P, 2 * NS_PER_S, 0, 0);
  expect_tally(O, 0, 2 * NS_PER_S, 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {opportunistic_jobs_come_last_whatever_the_policy,
                                production_interrupts_them_at_once_whatever_the_policy,
                                also_while_their_memory_comes,
                                standard_jobs_interrupt_them_too,
                                no_one_of_them_stops_if_that_is_not_enough,
                                who_is_not_idle_is_not_displaced_by_them,
                                a_class_that_changes_counts_at_once,
                                how_long_production_takes_cannot_be_told,
                                opportunistic_memory_leaves_first,
                                then_that_of_standard_jobs,
                                that_of_production_jobs_leaves_last,
                                also_before_what_is_beyond_a_soft_limit,
                                production_memory_does_not_leave_behind_a_turn_for_them,
                                what_jobs_have_had_counts_for_the_class_that_they_had_then,
                                NULL};
  return suite_main("sched_classes", tests, NULL, NULL);
}
