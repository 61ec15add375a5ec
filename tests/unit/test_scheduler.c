/* test_scheduler.c - the rules of the lock, one test each. */
#include <errno.h>

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

START_TEST(off_everybody_holds_at_once) {
  world_init(&world, GS_MODE_OFF);
  world_attach(&world, 1, 10, MANAGED);
  world_attach(&world, 2, 10, MANAGED);
  said("1:attached 1:off 1:ok(1) 2:attached 2:off 2:ok(2)");
  world_pass(&world, 10 * TQ);
  said("");
}
END_TEST

START_TEST(off_a_release_is_granted_again) {
  world_attach(&world, 1, 1, MANAGED);
  world_said(&world);
  world_release(&world, 1);
  said("1:ok(2)");
}
END_TEST

START_TEST(off_a_request_that_crossed_the_grant_is_ignored) {
  world_attach(&world, 1, 1, MANAGED);
  world_said(&world);
  world_request(&world, 1);
  said("");
}
END_TEST

/* ---- turns ---- */

START_TEST(a_request_of_a_free_lock_is_granted) {
  take_turns(1);
  world_request(&world, 1);
  said("1:ok(1)");
  world_pass(&world, 100 * TQ); /* nobody waits: no hand-over */
  said("");
}
END_TEST

START_TEST(a_second_request_waits_for_the_quantum) {
  take_turns(2);
  world_request(&world, 1);
  world_pass(&world, NS_PER_S);
  world_request(&world, 2);
  said("1:ok(1) 1:wanted(1)");
  world_pass(&world, TQ - NS_PER_S - 1);
  said("");
  world_pass(&world, 1);
  said("1:drop(1,4)");
  world_release_with(&world, 1, 1, 4);
  said("2:ok(2)");
}
END_TEST

START_TEST(a_quantum_that_has_passed_ends_when_somebody_comes) {
  take_turns(2);
  world_request(&world, 1);
  world_pass(&world, 2 * TQ);
  world_request(&world, 2);
  said("1:ok(1) 1:drop(1,4)");
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

START_TEST(wanted_is_told_again_with_the_next_grant) {
  take_turns(2);
  world_request(&world, 1);
  world_request(&world, 2);
  world_release(&world, 1);
  world_request(&world, 1);
  world_release(&world, 2);
  world_request(&world, 2);
  said("1:ok(1) 1:wanted(1) 2:ok(2) 2:wanted(2) 1:ok(3) 1:wanted(3)");
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
  world_release_with(&world, 1, 0, 0);
  world_release_with(&world, 1, 2, 0);
  world_release_with(&world, 2, 0, 0); /* it waits: it has nothing to release */
  said("");
  world_release(&world, 1);
  said("2:ok(2)");
}
END_TEST

START_TEST(a_repeated_request_counts_once) {
  take_turns(2);
  world_request(&world, 1);
  world_request(&world, 2);
  world_request(&world, 2);
  world_request(&world, 1);
  world_said(&world);
  ck_assert_uint_eq(world.gpus[0].waiting_count, 1);
  world_release(&world, 1);
  world_release(&world, 2);
  said("2:ok(2)"); /* and nobody after it */
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
  said("1:drop(1,4)");
  world_release(&world, 1);
  world_request(&world, 1);
  world_said(&world);
  world_pass(&world, 3 * NS_PER_S);
  world_set_tq(&world, NS_PER_S);
  said("2:drop(2,4)");
}
END_TEST

START_TEST(quanta_of_a_millisecond_work) {
  take_turns(2);
  world_set_tq(&world, NS_PER_MS);
  world_request(&world, 1);
  world_request(&world, 2);
  world_pass(&world, NS_PER_MS);
  said("1:ok(1) 1:wanted(1) 1:drop(1,4)");
  world_set_tq(&world, 1); /* too short: the shortest */
  ck_assert_uint_eq(world.gpus[0].settings.tq_ns, NS_PER_MS);
}
END_TEST

START_TEST(gpus_have_locks_of_their_own) {
  world_init(&world, GS_MODE_ON);
  world_attach_at(&world, 0, 1, 10, MANAGED);
  world_attach_at(&world, 1, 2, 10, MANAGED);
  world_said(&world);
  world_request(&world, 1);
  world_request(&world, 2);
  said("1:ok(1) 2:ok(1)");
}
END_TEST

/* ---- death ---- */

START_TEST(a_dead_holder_loses_the_lock_at_once) {
  take_turns(2);
  world_request(&world, 1);
  world_request(&world, 2);
  world_said(&world);
  world_detach(&world, 1);
  said("2:ok(2)");
}
END_TEST

START_TEST(a_holder_that_dies_while_dropping_too) {
  take_turns(2);
  world_request(&world, 1);
  world_pass(&world, TQ);
  world_request(&world, 2);
  world_said(&world);
  world_detach(&world, 1);
  said("2:ok(2)");
}
END_TEST

START_TEST(a_dead_waiter_leaves_the_queue) {
  take_turns(3);
  world_request(&world, 1);
  world_request(&world, 2);
  world_request(&world, 3);
  world_said(&world);
  world_detach(&world, 2);
  world_release(&world, 1);
  said("3:ok(2)");
}
END_TEST

START_TEST(what_a_dead_job_should_be_told_is_forgotten) {
  take_turns(1);
  struct sched_attach attach = {.id = 2};
  scheduler_attach(&world.scheduler, &world.gpus[0], &world.jobs[2], &attach, world.now_ns, &world.change);
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

START_TEST(the_clients_reasons_are_kept_for_people) {
  take_turns(1);
  world_request(&world, 1);
  scheduler_set_flags(&world.jobs[1], GS_STATE_CAPTURING | 0xff00 | GS_STATE_OVERDUE);
  ck_assert_uint_eq(world.jobs[1].flags, GS_STATE_CAPTURING);
}
END_TEST

/* ---- turns begin and end ---- */

START_TEST(mode_on_keeps_one_holder) {
  for (int i = 1; i <= 3; i++)
    world_attach(&world, i, 4, MANAGED);
  world_said(&world);
  world_set_mode(&world, GS_MODE_ON);
  said("1:capacity 1:on 2:capacity 2:on 2:drop(2,0) 3:capacity 3:on 3:drop(3,0)");
  world_release(&world, 2);
  world_request(&world, 2);
  said("1:wanted(1)");
  world_release(&world, 1); /* 3 has not answered: nobody is granted */
  said("");
  world_release(&world, 3);
  said("2:ok(4)");
}
END_TEST

START_TEST(the_least_served_holder_is_kept) {
  world_attach(&world, 1, 4, MANAGED);
  world_pass(&world, NS_PER_S);
  world_attach(&world, 2, 4, MANAGED);
  world_pass(&world, NS_PER_S);
  world_attach(&world, 3, 4, MANAGED);
  world_said(&world);
  world_set_mode(&world, GS_MODE_ON);
  said("1:capacity 1:on 1:drop(1,0) 2:capacity 2:on 2:drop(2,0) 3:capacity 3:on");
}
END_TEST

START_TEST(mode_off_grants_all_but_those_who_owe_an_answer) {
  take_turns(3);
  world_request(&world, 1);
  world_pass(&world, TQ);
  world_request(&world, 2);
  said("1:ok(1) 1:drop(1,10)");
  world_set_mode(&world, GS_MODE_OFF);
  said("1:capacity 1:off 2:capacity 2:off 2:ok(2) 3:capacity 3:off 3:ok(3)");
  world_release(&world, 1);
  said("1:ok(4)");
}
END_TEST

START_TEST(auto_takes_turns_when_memory_grows) {
  world_attach(&world, 1, 4, MANAGED);
  world_attach(&world, 2, 4, MANAGED);
  world_said(&world);
  world_memory(&world, 2, 12); /* 16 of 16 */
  said("");
  world_memory(&world, 2, 12.5);
  said("1:on 2:on 2:drop(2,0.5)");
}
END_TEST

START_TEST(auto_takes_turns_when_a_job_comes) {
  world_attach(&world, 1, 10, MANAGED);
  world_said(&world);
  world_attach(&world, 2, 10, MANAGED);
  said("2:attached 2:on 1:on");
  world_request(&world, 2);
  said("1:wanted(1)");
}
END_TEST

START_TEST(auto_ends_turns_when_memory_shrinks_or_jobs_go) {
  world_attach(&world, 1, 10, MANAGED);
  world_attach(&world, 2, 10, MANAGED);
  world_said(&world);
  world_memory(&world, 1, 6);
  said("1:off 2:off 2:ok(2)");
  world_memory(&world, 1, 10);
  said("1:on 2:on 2:drop(2,4)");
  world_detach(&world, 1);
  said("2:off");
  world_release(&world, 2);
  said("2:ok(3)");
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
  said("1:capacity 1:on 2:capacity 2:on 2:drop(2,2)");
  world_release(&world, 2);
  world_set_capacity(&world, 0);
  said("1:capacity 1:off 2:capacity 2:off 2:ok(3)");
}
END_TEST

START_TEST(the_quantum_of_the_kept_holder_begins_with_the_turns) {
  world_attach(&world, 1, 4, MANAGED);
  world_attach(&world, 2, 4, MANAGED);
  world_pass(&world, 10 * TQ);
  world_set_mode(&world, GS_MODE_ON);
  world_release(&world, 2);
  world_request(&world, 2);
  world_said(&world);
  world_pass(&world, TQ - 1);
  said("");
  world_pass(&world, 1);
  said("1:drop(1,0)");
}
END_TEST

/* ---- jobs that ran without a daemon ---- */

START_TEST(a_running_job_holds) {
  world_init(&world, GS_MODE_ON);
  world_attach(&world, 1, 10, RUNNING);
  world_attach(&world, 2, 10, MANAGED);
  world_request(&world, 2);
  said("1:attached 1:on 2:attached 2:on 1:wanted(0)");
  world_release_with(&world, 1, 0, 0);
  said("2:ok(1)");
}
END_TEST

START_TEST(a_second_running_job_must_stop) {
  world_init(&world, GS_MODE_ON);
  world_attach(&world, 1, 10, RUNNING);
  world_attach(&world, 2, 10, RUNNING);
  said("1:attached 1:on 2:attached 2:on 2:drop(0,4)");
  world_release_with(&world, 2, 0, 4);
  world_request(&world, 2);
  said("1:wanted(0)");
}
END_TEST

START_TEST(a_running_job_that_makes_turns_begin_must_stop) {
  world_attach(&world, 1, 10, MANAGED);
  world_said(&world);
  world_attach(&world, 2, 10, RUNNING);
  said("2:attached 2:on 2:drop(0,4) 1:on");
}
END_TEST

START_TEST(a_running_job_without_turns_is_granted) {
  world_attach(&world, 1, 10, RUNNING);
  said("1:attached 1:off 1:ok(1)");
}
END_TEST

/* ---- memory ---- */

START_TEST(only_what_the_next_job_lacks_is_evicted) {
  world_init(&world, GS_MODE_ON);
  world_attach(&world, 1, 12, MANAGED);
  world_attach(&world, 2, 6, MANAGED);
  world_request(&world, 1);
  world_request(&world, 2);
  world_pass(&world, TQ);
  said("1:attached 1:on 2:attached 2:on 1:ok(1) 1:wanted(1) 1:drop(1,2)"); /* 12 + 6 of 16 */
  world_release_with(&world, 1, 1, 2);
  world_request(&world, 1);
  world_pass(&world, TQ);
  said("2:ok(2) 2:wanted(2) 2:drop(2,2)"); /* 10 are still there, 12 are needed, beside 6 */
}
END_TEST

START_TEST(several_that_stop_evict_together_what_one_lacks) {
  world_init(&world, GS_MODE_OFF);
  for (int i = 1; i <= 4; i++)
    world_attach(&world, i, 6, MANAGED); /* 24 of 16 */
  world_said(&world);
  world_set_mode(&world, GS_MODE_AUTO);
  said("1:capacity 1:on 2:capacity 2:on 2:drop(2,6) 3:capacity 3:on 3:drop(3,2) 4:capacity 4:on 4:drop(4,0)");
}
END_TEST

START_TEST(nothing_is_evicted_while_all_fit) {
  take_turns(0);
  world_attach(&world, 1, 8, MANAGED);
  world_attach(&world, 2, 8, MANAGED);
  world_request(&world, 1);
  world_request(&world, 2);
  world_said(&world);
  world_pass(&world, TQ);
  said("1:drop(1,0)");
}
END_TEST

START_TEST(pinned_bytes_are_not_asked_for) {
  uint64_t granted;
  take_turns(2);
  ck_assert_int_eq(scheduler_memory_request(&world.scheduler, &world.jobs[1], 10 * GIB, 9 * GIB, world.now_ns,
                                            &world.change, &granted),
                   0);
  world_request(&world, 1);
  world_request(&world, 2);
  world_said(&world);
  world_pass(&world, TQ);
  said("1:drop(1,1)");
}
END_TEST

static int request_memory(int job, double total_gib, double pinned_gib, uint64_t *granted) {
  return scheduler_memory_request(&world.scheduler, &world.jobs[job], (uint64_t)(total_gib * GIB),
                                  (uint64_t)(pinned_gib * GIB), world.now_ns, &world.change, granted);
}

START_TEST(memory_is_granted_up_to_card_and_host) {
  uint64_t granted = 0;
  world.scheduler.host_memory_bytes = 8 * GIB;
  world_attach(&world, 1, 0, MANAGED);
  world_attach(&world, 2, 10, MANAGED);
  ck_assert_int_eq(request_memory(1, 14, 0, &granted), 0);
  ck_assert_uint_eq(granted, 14 * GIB);
  ck_assert_int_eq(request_memory(1, 14.001, 0, &granted), -ENOMEM);
  ck_assert_uint_eq(world.jobs[1].used_bytes, 14 * GIB);
  world_detach(&world, 2);
  ck_assert_int_eq(request_memory(1, 24, 0, &granted), 0);
}
END_TEST

START_TEST(host_memory_is_shared_by_the_gpus) {
  uint64_t granted;
  world.scheduler.host_memory_bytes = 8 * GIB;
  world_attach_at(&world, 0, 1, 16 + 6, MANAGED);
  world_attach_at(&world, 1, 2, 0, MANAGED);
  ck_assert_int_eq(request_memory(2, 16 + 2, 0, &granted), 0);
  ck_assert_int_eq(request_memory(2, 16 + 2.5, 0, &granted), -ENOMEM);
  world_memory(&world, 1, 3);
  ck_assert_int_eq(request_memory(2, 16 + 8, 0, &granted), 0);
}
END_TEST

START_TEST(grants_have_slack_within_the_bound) {
  uint64_t granted;
  world.scheduler.host_memory_bytes = 0;
  world_attach(&world, 1, 0, MANAGED);
  ck_assert_int_eq(request_memory(1, 1.0 / GIB, 0, &granted), 0);
  ck_assert_uint_eq(granted, SCHED_SLACK_BYTES);
  ck_assert_uint_eq(world.jobs[1].used_bytes, 1); /* the slack is not used */
  world_set_capacity(&world, 1 + 1.0 / 128);      /* 8 MiB more than 1 GiB */
  ck_assert_int_eq(request_memory(1, 1 + 1.0 / 1024, 0, &granted), 0);
  ck_assert_uint_eq(granted, GIB + (8 << 20));
}
END_TEST

START_TEST(pinned_memory_must_fit_the_card) {
  uint64_t granted;
  world_attach(&world, 1, 0, MANAGED);
  world_attach(&world, 2, 0, MANAGED);
  ck_assert_int_eq(request_memory(1, 10, 10, &granted), 0);
  ck_assert_int_eq(request_memory(2, 7, 7, &granted), -ENOMEM);
  ck_assert_int_eq(request_memory(2, 7, 6, &granted), 0);
}
END_TEST

START_TEST(shrinking_is_never_refused) {
  uint64_t granted;
  world_attach(&world, 1, 100, MANAGED);
  world.scheduler.host_memory_bytes = 0;
  ck_assert_int_eq(request_memory(1, 90, 0, &granted), 0);
  ck_assert_uint_eq(granted, 90 * GIB);
}
END_TEST

START_TEST(absurd_sizes_do_not_overflow) {
  uint64_t granted;
  world_attach(&world, 1, 0, MANAGED);
  world_attach(&world, 2, 1, MANAGED);
  ck_assert_int_eq(scheduler_memory_request(&world.scheduler, &world.jobs[1], UINT64_MAX, UINT64_MAX,
                                            world.now_ns, &world.change, &granted),
                   -ENOMEM);
  scheduler_memory_report(&world.scheduler, &world.jobs[1], UINT64_MAX, UINT64_MAX, world.now_ns,
                          &world.change);
  ck_assert_uint_eq(world.gpus[0].used_bytes, SCHED_BYTES_MAX + GIB);
  world_memory(&world, 1, 0);
  ck_assert_uint_eq(world.gpus[0].used_bytes, GIB);
  ck_assert_uint_eq(world.scheduler.overflow_bytes, 0);
}
END_TEST

/* ---- figures ---- */

START_TEST(times_turns_and_handovers_are_counted) {
  take_turns(2);
  world_request(&world, 1);
  world_request(&world, 2);
  world_pass(&world, TQ);
  world_release_with(&world, 1, 1, 4);
  world_pass(&world, NS_PER_S);
  scheduler_active(&world.jobs[2], 2, 3 * GIB);
  scheduler_active(&world.jobs[2], 1, 3 * GIB); /* stale */
  ck_assert_uint_eq(sched_job_held_ns(&world.jobs[1], world.now_ns), TQ);
  ck_assert_uint_eq(sched_job_held_ns(&world.jobs[2], world.now_ns), NS_PER_S);
  ck_assert_uint_eq(sched_job_waited_ns(&world.jobs[2], world.now_ns), TQ);
  ck_assert_uint_eq(world.jobs[2].turns, 1);
  ck_assert_uint_eq(world.gpus[0].handovers, 1);
  ck_assert_uint_eq(world.gpus[0].moved_bytes, 7 * GIB);
  ck_assert_uint_eq(world.jobs[1].moved_bytes, 4 * GIB);
  ck_assert_uint_eq(world.jobs[1].drain_max_ns, NS_PER_MS);
}
END_TEST

START_TEST(places_in_the_queue_are_numbered) {
  take_turns(3);
  world_request(&world, 2);
  world_request(&world, 3);
  world_request(&world, 1);
  scheduler_number_queue(&world.gpus[0]);
  ck_assert_uint_eq(world.jobs[2].place, 0);
  ck_assert_uint_eq(world.jobs[3].place, 1);
  ck_assert_uint_eq(world.jobs[1].place, 2);
}
END_TEST

int main(void) {
  const TTest *const all[] = {off_everybody_holds_at_once,
                              off_a_release_is_granted_again,
                              off_a_request_that_crossed_the_grant_is_ignored,
                              a_request_of_a_free_lock_is_granted,
                              a_second_request_waits_for_the_quantum,
                              a_quantum_that_has_passed_ends_when_somebody_comes,
                              wanted_is_told_once_per_grant,
                              wanted_is_told_again_with_the_next_grant,
                              the_queue_is_first_come_first_served,
                              a_stale_release_is_ignored,
                              a_repeated_request_counts_once,
                              a_changed_quantum_takes_effect_at_once,
                              quanta_of_a_millisecond_work,
                              gpus_have_locks_of_their_own,
                              a_dead_holder_loses_the_lock_at_once,
                              a_holder_that_dies_while_dropping_too,
                              a_dead_waiter_leaves_the_queue,
                              what_a_dead_job_should_be_told_is_forgotten,
                              managed_memory_is_bypassed,
                              other_memory_is_waited_for,
                              the_clients_reasons_are_kept_for_people,
                              mode_on_keeps_one_holder,
                              the_least_served_holder_is_kept,
                              mode_off_grants_all_but_those_who_owe_an_answer,
                              auto_takes_turns_when_memory_grows,
                              auto_takes_turns_when_a_job_comes,
                              auto_ends_turns_when_memory_shrinks_or_jobs_go,
                              auto_settles_before_it_ends_turns,
                              a_smaller_capacity_makes_turns_and_a_larger_one_ends_them,
                              the_quantum_of_the_kept_holder_begins_with_the_turns,
                              a_running_job_holds,
                              a_second_running_job_must_stop,
                              a_running_job_that_makes_turns_begin_must_stop,
                              a_running_job_without_turns_is_granted,
                              only_what_the_next_job_lacks_is_evicted,
                              several_that_stop_evict_together_what_one_lacks,
                              nothing_is_evicted_while_all_fit,
                              pinned_bytes_are_not_asked_for,
                              memory_is_granted_up_to_card_and_host,
                              host_memory_is_shared_by_the_gpus,
                              grants_have_slack_within_the_bound,
                              pinned_memory_must_fit_the_card,
                              shrinking_is_never_refused,
                              absurd_sizes_do_not_overflow,
                              times_turns_and_handovers_are_counted,
                              places_in_the_queue_are_numbered,
                              NULL};
  return suite_main("scheduler", all, set_up, NULL);
}
