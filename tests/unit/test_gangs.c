/* test_gangs.c - jobs of several GPUs that must hold together: simple histories. */
#include "fleet.h"
#include "suite.h"

static struct fleet fleet;

static void set_up(void) { fleet_init(&fleet, 1); }

static void come(int i, int gpu, int gang) { fleet_come(&fleet, i, gpu, gang, 0, 0); }

static uint64_t gang_ran_ns(int gang) {
  for (int i = 0; i < FLEET_JOBS; i++)
    if (fleet.clients[i].there && fleet.clients[i].gang == gang)
      return fleet.clients[i].ran_ns;
  return 0;
}

START_TEST(two_gangs_share_two_gpus) {
  for (int gang = 0; gang < 2; gang++)
    for (int gpu = 0; gpu < 2; gpu++)
      come(2 * gang + gpu, gpu, gang);
  fleet_pass(&fleet, 20 * NS_PER_S);
  for (int gang = 0; gang < 2; gang++) /* half of the time each, less drains and waiting for both GPUs */
    ck_assert_uint_ge(gang_ran_ns(gang), 8 * NS_PER_S);
  for (int i = 0; i < 4; i++) /* and hardly ever one of them alone */
    ck_assert_uint_le(fleet.alone_ns[i], fleet.clients[i].ran_ns + NS_PER_S);
}
END_TEST

START_TEST(a_gang_shares_with_single_jobs) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 0, -1);
  come(3, 1, -1);
  fleet_pass(&fleet, 20 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns(0), 6 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[2].ran_ns, 6 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[3].ran_ns, 6 * NS_PER_S);
}
END_TEST

/* GPU 1 has nothing else to do while the gang waits for GPU 0: a single job runs there, and makes way. */
START_TEST(who_runs_meanwhile_makes_way_at_once) {
  come(2, 0, -1);
  come(3, 1, -1);
  come(0, 0, 0);
  come(1, 1, 0);
  fleet_pass(&fleet, 10 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns(0), 4 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[3].ran_ns, 4 * NS_PER_S);
}
END_TEST

static void come_in_a_ring(void) {
  for (int gang = 0; gang < 3; gang++) {
    come(2 * gang, gang, gang);
    come(2 * gang + 1, (gang + 1) % 3, gang);
  }
}

START_TEST(gangs_in_a_ring_do_not_deadlock) {
  come_in_a_ring();
  fleet_pass(&fleet, 30 * NS_PER_S);
  for (int gang = 0; gang < 3; gang++) /* one at a time */
    ck_assert_uint_ge(gang_ran_ns(gang), 7 * NS_PER_S);
}
END_TEST

static void set_tq(int gpu, uint64_t tq_ns) {
  scheduler_set_tq(&fleet.scheduler, &fleet.gpus[gpu], tq_ns, fleet.now_ns, &fleet.change);
  fleet_execute(&fleet);
}

/* The two that use GPU 0 could end their turns before a quantum of another GPU is ever over. */
START_TEST(two_gangs_that_alternate_do_not_keep_a_third_waiting) {
  set_tq(0, FLEET_TQ_NS / 3);
  come_in_a_ring();
  fleet_pass(&fleet, 30 * NS_PER_S);
  for (int gang = 0; gang < 3; gang++)
    ck_assert_uint_ge(gang_ran_ns(gang), 4 * NS_PER_S);
}
END_TEST

/* On GPUs 0 and 1: two single jobs each, of which whoever holds gives its turn back after so much time. */
static void pass_with_yields(uint64_t ns, uint64_t first_ns, uint64_t second_ns) {
  uint64_t end_ns = fleet.now_ns + ns, next_ns[2] = {fleet.now_ns + first_ns, fleet.now_ns + second_ns};
  while (fleet.now_ns < end_ns) {
    int gpu = next_ns[0] <= next_ns[1] ? 0 : 1;
    fleet_pass(&fleet, next_ns[gpu] - fleet.now_ns);
    fleet_yield(&fleet, 2 * gpu);
    fleet_yield(&fleet, 2 * gpu + 1);
    next_ns[gpu] += gpu == 0 ? first_ns : second_ns;
  }
}

static void share_with_yielding_jobs(void) {
  for (int i = 0; i < 4; i++)
    come(i, i / 2, -1);
  fleet_pass(&fleet, FLEET_TQ_NS / 2);
  come(4, 0, 0);
  come(5, 1, 0);
}

/* No quantum is ever over. */
START_TEST(who_gives_its_turns_back_keeps_no_gang_waiting) {
  static const unsigned lengths_ms[][2] = {{30, 37}, {60, 47}, {20, 20}, {80, 33}, {70, 90}};
  for (size_t i = 0; i < sizeof lengths_ms / sizeof *lengths_ms; i++) {
    fleet_init(&fleet, 1);
    share_with_yielding_jobs();
    pass_with_yields(20 * NS_PER_S, lengths_ms[i][0] * NS_PER_MS, lengths_ms[i][1] * NS_PER_MS);
    ck_assert_msg(gang_ran_ns(0) >= 4 * NS_PER_S, "%u and %u ms: %lu ms", lengths_ms[i][0], lengths_ms[i][1],
                  gang_ran_ns(0) / NS_PER_MS);
  }
}
END_TEST

/* Nor other gangs, though one waits for them that cannot claim. */
START_TEST(a_gang_that_waits_for_single_jobs_keeps_no_other_waiting) {
  come(6, 2, -1);
  share_with_yielding_jobs();
  pass_with_yields(NS_PER_S, 30 * NS_PER_MS, 37 * NS_PER_MS);
  come(7, 0, 1);
  come(8, 2, 1);
  pass_with_yields(20 * NS_PER_S, 30 * NS_PER_MS, 37 * NS_PER_MS);
  ck_assert_uint_ge(gang_ran_ns(1), 4 * NS_PER_S);
}
END_TEST

/* Jobs of GPUs 0 and 2 have nothing to do with GPU 1, which a gang waits for whose other GPU is GPU 0. */
START_TEST(a_long_quantum_elsewhere_keeps_no_gang_waiting) {
  set_tq(1, 36000 * FLEET_TQ_NS);
  come(0, 1, -1);
  fleet_pass(&fleet, FLEET_TQ_NS / 2);
  come(1, 0, 0);
  come(2, 1, 0);
  come(8, 2, -1);
  come(9, 2, -1);
  fleet_pass(&fleet, FLEET_TQ_NS / 2);
  come(3, 0, 1);
  come(4, 2, 1);
  fleet_pass(&fleet, 20 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns(1), 5 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[8].ran_ns, 5 * NS_PER_S);
}
END_TEST

/* On GPU 0 the gangs alternate; on GPU 1 both fit beside another job, but not beside a large one. */
static void share_with_a_large_job(void) {
  scheduler_set_mode(&fleet.scheduler, &fleet.gpus[1], GS_MODE_AUTO, fleet.now_ns, &fleet.change);
  fleet_come(&fleet, 4, 1, -1, 6 * GIB, 0);
  fleet_come(&fleet, 5, 1, -1, 12 * GIB, 0);
  for (int gang = 0; gang < 2; gang++) {
    come(2 * gang, 0, gang);
    fleet_come(&fleet, 2 * gang + 1, 1, gang, 4 * GIB, 0);
  }
}

START_TEST(gangs_that_alternate_do_not_prolong_the_quantum_of_others) {
  set_tq(0, FLEET_TQ_NS / 3);
  share_with_a_large_job();
  fleet_pass(&fleet, 10 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[5].ran_ns, 2 * NS_PER_S);
}
END_TEST

/* Each leaves when GPU 0 is to change hands, and the other one is there already: no quantum of GPU 1 is ever
 * over. */
START_TEST(gangs_that_alternate_do_not_keep_a_large_job_waiting) {
  scheduler_set_mode(&fleet.scheduler, &fleet.gpus[1], GS_MODE_AUTO, fleet.now_ns, &fleet.change);
  set_tq(1, 3 * FLEET_TQ_NS / 2);
  for (int gang = 0; gang < 2; gang++) {
    come(2 * gang, 0, gang);
    fleet_come(&fleet, 2 * gang + 1, 1, gang, 4 * GIB, 0);
  }
  fleet_pass(&fleet, NS_PER_S / 20);
  fleet_come(&fleet, 4, 1, -1, 14 * GIB, 0);
  fleet_pass(&fleet, 20 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[4].ran_ns, NS_PER_S);
  for (int gang = 0; gang < 2; gang++)
    ck_assert_uint_ge(gang_ran_ns(gang), 5 * NS_PER_S);
}
END_TEST

START_TEST(a_place_that_is_owed_does_not_prolong_it_either) {
  set_tq(0, 100 * FLEET_TQ_NS);
  share_with_a_large_job();
  fleet_pass(&fleet, 10 * FLEET_TQ_NS);
  ck_assert_uint_ge(fleet.clients[5].ran_ns, FLEET_TQ_NS * 3 / 2);
}
END_TEST

START_TEST(a_place_is_not_owed_to_one_that_cannot_come) {
  set_tq(1, 1000 * FLEET_TQ_NS);
  come(2, 0, -1);
  come(3, 1, -1);
  come(0, 0, 0);
  fleet_come(&fleet, 1, 1, 0, 8 * GIB, 0);
  come(4, 0, -1);
  fleet_pass(&fleet, 2 * FLEET_TQ_NS);
  scheduler_set_capacity(&fleet.scheduler, &fleet.gpus[1], 4 * GIB, fleet.now_ns, &fleet.change);
  fleet_execute(&fleet);
  fleet_pass(&fleet, 10 * FLEET_TQ_NS);
  ck_assert_uint_ge(fleet.clients[4].ran_ns, 3 * FLEET_TQ_NS);
}
END_TEST

START_TEST(a_late_member_joins_those_that_hold) {
  come(2, 1, -1);
  come(0, 0, 0);
  fleet_pass(&fleet, NS_PER_S);
  come(1, 1, 0);
  fleet_pass(&fleet, 10 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns(0), 4 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[2].ran_ns, 4 * NS_PER_S);
}
END_TEST

START_TEST(a_gang_has_one_member_on_a_gpu) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 0, -1);
  uint64_t decisions = fleet.scheduler.decisions;
  ck_assert(!scheduler_join(&fleet.clients[2].job, &fleet.gangs[0], fleet.now_ns, &fleet.change));
  ck_assert_uint_eq(fleet.scheduler.decisions, decisions); /* nothing has happened */
  fleet_execute(&fleet);
  ck_assert_ptr_null(fleet.clients[2].job.gang);
}
END_TEST

START_TEST(a_job_takes_the_place_of_another_in_one_event) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 0, -1);
  uint64_t decisions = fleet.scheduler.decisions;
  scheduler_replace(&fleet.clients[0].job, &fleet.clients[2].job, fleet.now_ns, &fleet.change);
  ck_assert_uint_eq(fleet.scheduler.decisions, decisions + 1);
  fleet_execute(&fleet);
  ck_assert_ptr_null(fleet.clients[0].job.gang);
  ck_assert_ptr_eq(fleet.clients[2].job.gang, &fleet.gangs[0]);
  fleet.clients[0].gang = -1;
  fleet.clients[2].gang = 0;
  fleet_pass(&fleet, 20 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns(0), 6 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[0].ran_ns, 6 * NS_PER_S);
}
END_TEST

START_TEST(who_leaves_a_gang_is_on_its_own) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 1, -1);
  scheduler_join(&fleet.clients[1].job, NULL, fleet.now_ns, &fleet.change);
  fleet_execute(&fleet);
  fleet.clients[0].gang = fleet.clients[1].gang = -1;
  fleet_pass(&fleet, 10 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[0].ran_ns, 9 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[1].ran_ns, 4 * NS_PER_S);
}
END_TEST

/* Jobs 2 and 3 take turns; a member, which has held for longer than 2, fits beside each of them. */
START_TEST(a_gang_does_not_stop_for_a_place_that_is_not_needed) {
  scheduler_set_mode(&fleet.scheduler, NULL, GS_MODE_AUTO, fleet.now_ns, &fleet.change);
  fleet_come(&fleet, 0, 0, 0, 3 * GIB, 0);
  fleet_come(&fleet, 1, 1, 0, 3 * GIB, 0);
  fleet_pass(&fleet, FLEET_TQ_NS);
  fleet_come(&fleet, 2, 0, -1, 10 * GIB, 0);
  fleet_come(&fleet, 3, 0, -1, 12 * GIB, 0);
  fleet_pass(&fleet, 10 * NS_PER_S);
  ck_assert_uint_ge(fleet.clients[2].job.turns, 10);
  ck_assert_uint_ge(fleet.clients[3].job.turns, 10);
  ck_assert_uint_eq(fleet.clients[0].job.turns, 1);
  ck_assert_uint_eq(fleet.clients[1].job.turns, 1);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {two_gangs_share_two_gpus,
                                a_gang_shares_with_single_jobs,
                                who_runs_meanwhile_makes_way_at_once,
                                gangs_in_a_ring_do_not_deadlock,
                                two_gangs_that_alternate_do_not_keep_a_third_waiting,
                                who_gives_its_turns_back_keeps_no_gang_waiting,
                                a_gang_that_waits_for_single_jobs_keeps_no_other_waiting,
                                a_long_quantum_elsewhere_keeps_no_gang_waiting,
                                gangs_that_alternate_do_not_prolong_the_quantum_of_others,
                                gangs_that_alternate_do_not_keep_a_large_job_waiting,
                                a_place_that_is_owed_does_not_prolong_it_either,
                                a_place_is_not_owed_to_one_that_cannot_come,
                                a_late_member_joins_those_that_hold,
                                a_gang_has_one_member_on_a_gpu,
                                a_job_takes_the_place_of_another_in_one_event,
                                who_leaves_a_gang_is_on_its_own,
                                a_gang_does_not_stop_for_a_place_that_is_not_needed,
                                NULL};
  return suite_main("gangs", tests, set_up, NULL);
}
