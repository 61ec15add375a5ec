/* test_scheduler.c - the rules of the lock, one test each. */
#include "suite.h"
#include "world.h"

static struct world world;

#define said(text) ck_assert_str_eq(world_said(&world), text)
#define TQ (20 * NS_PER_S)
#define GRACE (30 * NS_PER_S)
#define MANAGED GS_ATTACH_MANAGED
#define RUNNING (GS_ATTACH_RUNNING | GS_ATTACH_MANAGED)

/* Jobs 1 .. n of 10 GiB each, in mode on: they take turns. */
static void take_turns(int jobs) {
  world_init(&world, GS_MODE_ON);
  for (int i = 1; i <= jobs; i++)
    world_attach(&world, i, 10, MANAGED);
  world_said(&world);
}

static void set_up(void) { world_init(&world, GS_MODE_AUTO); }

/* ---- turns off ---- */

START_TEST(off_a_release_is_granted_again) {
  world_attach(&world, 1, 1, MANAGED);
  world_said(&world);
  world_release(&world, 1);
  said("1:ok(2)");
}
END_TEST

/* ---- turns ---- */

START_TEST(a_second_request_waits_for_the_quantum) {
  take_turns(2);
  world_request(&world, 1);
  world_pass(&world, NS_PER_S);
  world_request(&world, 2);
  said("1:ok(1) 1:wanted(1)");
  world_pass(&world, TQ - NS_PER_S - 1);
  said("");
  world_pass(&world, 1);
  said("1:drop(1)");
  world_release_with(&world, 1, 1);
  said("2:ok(2)");
}
END_TEST

START_TEST(wanted_is_told_once_per_grant) {
  take_turns(3);
  world_request(&world, 1);
  world_request(&world, 2);
  world_request(&world, 3);
  said("1:ok(1) 1:wanted(1)");
  world_release(&world, 1); /* early, because it was idle */
  said("2:ok(2) 2:wanted(2)");
}
END_TEST

START_TEST(what_is_left_of_a_turn_is_shown_while_somebody_waits) {
  const struct sched_gpu *gpu = &world.gpus[0];
  take_turns(2);
  world_request(&world, 1);
  world_pass(&world, TQ / 4);
  ck_assert_uint_eq(sched_gpu_left_ns(gpu, world.now_ns), SCHED_NEVER);
  world_request(&world, 2);
  ck_assert_uint_eq(sched_gpu_left_ns(gpu, world.now_ns), TQ * 3 / 4);
  world_pass(&world, TQ / 2);
  ck_assert_uint_eq(sched_gpu_left_ns(gpu, world.now_ns), TQ / 4);
  world_detach(&world, 2);
  ck_assert_uint_eq(sched_gpu_left_ns(gpu, world.now_ns), SCHED_NEVER);
}
END_TEST

/* Its memory has yet to come to the card: the quantum has not begun. */
START_TEST(no_more_is_left_than_a_quantum) {
  world.clients[2].stuck = true;
  world_attach(&world, 1, 10, 0);
  world_attach(&world, 2, 10, 0);
  world_request(&world, 1);
  world_request(&world, 2);
  world_yield(&world, 1);
  ck_assert_uint_eq(sched_gpu_left_ns(&world.gpus[0], world.now_ns), TQ);
}
END_TEST

START_TEST(who_is_not_wanted_any_more_is_told) {
  take_turns(2);
  world_request(&world, 1);
  world_request(&world, 2);
  said("1:ok(1) 1:wanted(1)");
  world_detach(&world, 2);
  said("1:unwanted(1)");
}
END_TEST

START_TEST(the_queue_is_first_come_first_served) {
  take_turns(4);
  world_request(&world, 1);
  for (int i = 4; i > 1; i--)
    world_request(&world, i);
  world_said(&world);
  world_release(&world, 1);
  world_request(&world, 1);
  said("4:ok(2) 4:wanted(2)");
  world_release(&world, 4);
  said("3:ok(3) 3:wanted(3)");
  world_release(&world, 3);
  world_release(&world, 2);
  said("2:ok(4) 2:wanted(4) 1:ok(5)");
}
END_TEST

START_TEST(a_stale_release_is_ignored) {
  take_turns(2);
  world_request(&world, 1);
  world_request(&world, 2);
  world_said(&world);
  world_release_with(&world, 1, 0);
  world_release_with(&world, 1, 2);
  world_release_with(&world, 2, 0); /* it waits: it has nothing to release */
  said("");
  world_release(&world, 1);
  said("2:ok(2)");
}
END_TEST

START_TEST(so_is_who_says_that_it_runs_by_an_old_grant) {
  world_init(&world, GS_MODE_ON);
  world.clients[1].stuck = true;
  world_attach(&world, 1, 4, MANAGED);
  world_request(&world, 1);
  struct sched_active active = {.epoch = world.jobs[1].epoch - 1};
  ck_assert(!scheduler_active(&world.jobs[1], &active, world.now_ns, &world.change));
  ck_assert(!world.jobs[1].active);
}
END_TEST

START_TEST(a_changed_quantum_takes_effect_at_once) {
  take_turns(2);
  world_request(&world, 1);
  world_request(&world, 2);
  world_said(&world);
  world_pass(&world, 5 * NS_PER_S);
  world_set_tq(&world, 6 * NS_PER_S);
  said("");
  world_pass(&world, NS_PER_S);
  said("1:drop(1)");
  world_release(&world, 1);
  world_request(&world, 1);
  world_said(&world);
  world_pass(&world, 3 * NS_PER_S);
  world_set_tq(&world, NS_PER_S);
  said("2:drop(2)");
}
END_TEST

START_TEST(quanta_of_a_millisecond_work) {
  take_turns(2);
  world_set_tq(&world, NS_PER_MS);
  world_request(&world, 1);
  world_request(&world, 2);
  world_pass(&world, NS_PER_MS);
  said("1:ok(1) 1:wanted(1) 1:drop(1)");
  world_set_tq(&world, 1); /* too short: the shortest */
  ck_assert_uint_eq(world.gpus[0].settings.tq_ns, NS_PER_MS);
}
END_TEST

/* ---- death ---- */

START_TEST(what_a_dead_job_should_be_told_is_forgotten) {
  take_turns(1);
  struct sched_attach attach = {.id = 2};
  scheduler_attach(&world.gpus[0], &world.jobs[2], &attach, world.now_ns, &world.change);
  world_detach(&world, 2); /* before anybody has carried out the change */
  said("");
  ck_assert_uint_eq(world.gpus[0].job_count, 1);
}
END_TEST

/* ---- the grace ---- */

START_TEST(managed_memory_is_bypassed) {
  take_turns(3);
  world_request(&world, 1);
  world_request(&world, 2);
  world_pass(&world, TQ);
  world_said(&world);
  world_pass(&world, GRACE - 1);
  said("");
  world_pass(&world, 1);
  said("1:bypassed 2:ok(2)");
  ck_assert_int_eq(world.jobs[1].state, GS_JOB_BYPASSED);
  world_request(&world, 1); /* it still owes its answer */
  said("");
  world_release(&world, 1);
  said("");
  ck_assert_int_eq(world.jobs[1].state, GS_JOB_IDLE);
  world_request(&world, 1);
  said("2:wanted(2)");
}
END_TEST

START_TEST(other_memory_is_waited_for) {
  world_init(&world, GS_MODE_ON);
  world_attach(&world, 1, 10, 0);
  world_attach(&world, 2, 10, 0);
  world_request(&world, 1);
  world_request(&world, 2);
  world_pass(&world, TQ);
  world_said(&world);
  world_pass(&world, 100 * GRACE);
  said("1:overdue");
  ck_assert_uint_eq(world.jobs[1].flags, GS_STATE_OVERDUE);
  ck_assert_int_eq(world.jobs[1].state, GS_JOB_DROPPING);
  world_release(&world, 1);
  said("2:ok(2)");
  ck_assert_uint_eq(world.jobs[1].flags, 0);
}
END_TEST

START_TEST(who_fits_beside_it_need_not_wait_with_those_that_do_not) {
  world_init(&world, GS_MODE_AUTO);
  world_attach(&world, 1, 6, 0);
  world_attach(&world, 2, 12, 0);
  world_attach(&world, 3, 8, 0);
  for (int i = 1; i <= 3; i++)
    if (world.jobs[i].state == GS_JOB_DROPPING)
      world_release(&world, i);
  world_request(&world, 1);
  for (int i = 2; i <= 3; i++)
    if (world.jobs[i].state == GS_JOB_HOLDING)
      world_release(&world, i);
  struct sched_terms terms = world.jobs[1].terms;
  terms.paused = true; /* so it is told to stop, and does not */
  world_set_terms(&world, 1, &terms);
  world_pass(&world, GRACE);
  world_said(&world);
  world_request(&world, 2);
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_WAITING);
  world_request(&world, 3);
  ck_assert_int_eq(world.jobs[3].state, GS_JOB_HOLDING);
  world_pass(&world, 1);
  ck_assert(world.jobs[3].active); /* what 1 does not leave 2 does */
}
END_TEST

START_TEST(the_clients_reasons_are_kept_for_people) {
  take_turns(1);
  world_request(&world, 1);
  scheduler_set_flags(&world.jobs[1], GS_STATE_CAPTURING | 0xff00 | GS_STATE_OVERDUE);
  ck_assert_uint_eq(world.jobs[1].flags, GS_STATE_CAPTURING);
}
END_TEST

/* ---- turns begin and end ---- */

START_TEST(the_least_served_holder_is_kept) {
  world_attach(&world, 1, 4, MANAGED);
  world_pass(&world, NS_PER_S);
  world_attach(&world, 2, 4, MANAGED);
  world_pass(&world, NS_PER_S);
  world_attach(&world, 3, 4, MANAGED);
  world_said(&world);
  world_set_mode(&world, GS_MODE_ON);
  said("1:capacity 1:on 1:drop(1) 2:capacity 2:on 2:drop(2) 3:capacity 3:on");
}
END_TEST

START_TEST(mode_off_grants_all_but_those_who_owe_an_answer) {
  take_turns(3);
  world_request(&world, 1);
  world_pass(&world, TQ);
  world_request(&world, 2);
  said("1:ok(1) 1:drop(1)");
  world_set_mode(&world, GS_MODE_OFF);
  said("1:capacity 1:off 2:capacity 2:off 2:ok(2) 3:capacity 3:off 3:ok(3)");
  world_release(&world, 1);
  said("1:ok(4)");
}
END_TEST

START_TEST(auto_settles_before_it_ends_turns) {
  world.scheduler.settle_ns = NS_PER_S;
  world_attach(&world, 1, 10, MANAGED);
  world_attach(&world, 2, 10, MANAGED);
  world_pass(&world, NS_PER_S / 2);
  world_said(&world);
  world_memory(&world, 1, 6);
  said("");
  world_pass(&world, NS_PER_S / 2);
  said("1:off 2:off 2:ok(2)");
}
END_TEST

START_TEST(a_smaller_capacity_makes_turns_and_a_larger_one_ends_them) {
  world_attach(&world, 1, 4, MANAGED);
  world_attach(&world, 2, 4, MANAGED);
  world_said(&world);
  world_set_capacity(&world, 6);
  said("1:capacity 1:on 2:capacity 2:on 2:drop(2)");
  world_release(&world, 2);
  world_set_capacity(&world, 0);
  said("1:capacity 1:off 2:capacity 2:off 2:ok(3)");
}
END_TEST

/* However long it has held before. */
START_TEST(the_quantum_of_the_kept_holder_begins_with_the_turns) {
  world_attach(&world, 1, 4, MANAGED);
  world_attach(&world, 2, 4, MANAGED);
  world_pass(&world, TQ / 2);
  world_set_mode(&world, GS_MODE_ON);
  world_release(&world, 2);
  world_request(&world, 2);
  world_said(&world);
  world_pass(&world, TQ - 1);
  said("");
  world_pass(&world, 1);
  said("1:drop(1)");
}
END_TEST

/* ---- jobs that ran without a daemon ---- */

START_TEST(a_second_running_job_must_stop) {
  world_init(&world, GS_MODE_ON);
  world_attach(&world, 1, 10, RUNNING);
  world_pass(&world, NS_PER_S); /* it is not for who has held for longer to make way */
  world_attach(&world, 2, 10, RUNNING);
  said("1:attached 1:on 2:attached 2:on 2:drop(0)");
  world_release_with(&world, 2, 0);
  world_request(&world, 2);
  said("1:wanted(0)");
}
END_TEST

/* ---- one plan for several events ---- */

START_TEST(events_may_wait_for_one_plan) {
  world_init(&world, GS_MODE_ON);
  world_attach_at(&world, 0, 1, 4, MANAGED);
  world_attach_at(&world, 1, 2, 4, MANAGED);
  world.scheduler.deferred = true;
  uint64_t decisions = world.scheduler.decisions;
  world_said(&world);
  world_request(&world, 1);
  world_request(&world, 2);
  said("");
  ck_assert_uint_eq(world.scheduler.decisions, decisions);
  ck_assert_uint_eq(scheduler_deadline_ns(&world.scheduler), 0); /* it is due at once */
  scheduler_plan(&world.scheduler, &world.change);
  ck_assert_uint_eq(world.scheduler.decisions, decisions + 1);
  ck_assert_int_eq(world.jobs[1].state, GS_JOB_HOLDING);
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_HOLDING);
}
END_TEST

/* The other one holds after it. */
static void plan_gives_the_second(enum gs_job_state first) {
  scheduler_plan(&world.scheduler, &world.change);
  ck_assert_int_eq(world.jobs[1].state, first);
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_HOLDING);
}

/* Who stops while that plan is due is not granted anew beside others. */
START_TEST(turns_that_are_due_begin_before_anybody_is_granted) {
  take_turns(2);
  world_request(&world, 1);
  world_request(&world, 2);
  world_pass(&world, TQ);
  world_set_mode(&world, GS_MODE_OFF);
  world.scheduler.deferred = true;
  world_set_mode(&world, GS_MODE_ON);
  world_said(&world);
  world_release(&world, 1);
  plan_gives_the_second(GS_JOB_IDLE);
}
END_TEST

START_TEST(or_before_a_pause_ends) {
  struct sched_terms paused = {.weight = SCHED_WEIGHT, .paused = true};
  take_turns(2);
  world_set_mode(&world, GS_MODE_OFF);
  world_set_terms(&world, 1, &paused);
  world_release(&world, 1);
  world.scheduler.deferred = true;
  world_set_mode(&world, GS_MODE_ON);
  world_set_terms(&world, 1, &SCHED_TERMS_NONE);
  plan_gives_the_second(GS_JOB_IDLE);
}
END_TEST

/* What one has to leave comes first in the next, whatever happens before. */
START_TEST(a_plan_looks_at_some_of_the_gpus) {
  world_init(&world, GS_MODE_ON);
  world_attach_at(&world, 0, 1, 4, MANAGED);
  world_attach_at(&world, 1, 2, 4, MANAGED);
  world.scheduler.deferred = true;
  world.scheduler.event_jobs_most = 1;
  world_request(&world, 1);
  world_request(&world, 2);
  scheduler_plan(&world.scheduler, &world.change);
  ck_assert_int_eq(world.jobs[1].state, GS_JOB_HOLDING);
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_WAITING);
  ck_assert_uint_eq(scheduler_deadline_ns(&world.scheduler), 0);
  world_release(&world, 1);
  world_request(&world, 1);
  plan_gives_the_second(GS_JOB_WAITING);
}
END_TEST

/* ---- terms ---- */

START_TEST(a_job_comes_with_its_terms_in_one_event) {
  struct sched_terms terms = {
      .weight = 200, .class = GS_CLASS_OPPORTUNISTIC, .limit_bytes = 14 * GIB, .expected_bytes = 20 * GIB};
  const struct sched_job *job = &world.jobs[1], *after = &world.jobs[2];
  uint64_t decisions = world.scheduler.decisions;
  world.clients[1].stuck = world.clients[2].stuck = true; /* what they answer are other events */
  world_attach_with(&world, 0, 1, 10, MANAGED, &terms);
  ck_assert_uint_eq(world.scheduler.decisions, decisions + 1);
  world_attach_at(&world, 1, 2, 10, MANAGED);
  world_set_terms(&world, 2, &terms);
  ck_assert_uint_eq(job->terms.weight, terms.weight);
  ck_assert_uint_eq(job->terms.limit_bytes, terms.limit_bytes);
  ck_assert_int_eq(job->state, after->state);
  ck_assert_uint_eq(job->need_bytes, after->need_bytes);
  ck_assert_uint_eq(job->ephemeral.counted_bytes, 4 * GIB);
  ck_assert(job->account->late);
  for (int class = 0; class <= GS_CLASS_OPPORTUNISTIC; class ++)
    ck_assert_uint_eq(world.gpus[0].class_counts[class], world.gpus[1].class_counts[class]);
  ck_assert_uint_eq(world.gpus[0].ephemeral_bytes, world.gpus[1].ephemeral_bytes);
}
END_TEST

START_TEST(a_job_that_comes_paused_has_no_turn) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .paused = true};
  world_attach_with(&world, 0, 1, 10, RUNNING, &terms);
  said("1:attached 1:off 1:ok(1) 1:drop(1)");
  world_release(&world, 1);
  said("");
  terms.paused = false;
  world_set_terms(&world, 1, &terms);
  said("1:ok(2)");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {off_a_release_is_granted_again,
                                a_second_request_waits_for_the_quantum,
                                wanted_is_told_once_per_grant,
                                what_is_left_of_a_turn_is_shown_while_somebody_waits,
                                no_more_is_left_than_a_quantum,
                                who_is_not_wanted_any_more_is_told,
                                the_queue_is_first_come_first_served,
                                a_stale_release_is_ignored,
                                so_is_who_says_that_it_runs_by_an_old_grant,
                                a_changed_quantum_takes_effect_at_once,
                                quanta_of_a_millisecond_work,
                                what_a_dead_job_should_be_told_is_forgotten,
                                managed_memory_is_bypassed,
                                other_memory_is_waited_for,
                                who_fits_beside_it_need_not_wait_with_those_that_do_not,
                                the_clients_reasons_are_kept_for_people,
                                the_least_served_holder_is_kept,
                                mode_off_grants_all_but_those_who_owe_an_answer,
                                a_job_comes_with_its_terms_in_one_event,
                                a_job_that_comes_paused_has_no_turn,
                                auto_settles_before_it_ends_turns,
                                a_smaller_capacity_makes_turns_and_a_larger_one_ends_them,
                                the_quantum_of_the_kept_holder_begins_with_the_turns,
                                a_second_running_job_must_stop,
                                events_may_wait_for_one_plan,
                                turns_that_are_due_begin_before_anybody_is_granted,
                                or_before_a_pause_ends,
                                a_plan_looks_at_some_of_the_gpus,
                                NULL};
  return suite_main("scheduler", tests, set_up, NULL);
}
