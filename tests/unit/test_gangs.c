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

START_TEST(gangs_in_a_ring_do_not_deadlock) {
  for (int gang = 0; gang < 3; gang++) {
    come(2 * gang, gang, gang);
    come(2 * gang + 1, (gang + 1) % 3, gang);
  }
  fleet_pass(&fleet, 30 * NS_PER_S);
  for (int gang = 0; gang < 3; gang++) /* one at a time */
    ck_assert_uint_ge(gang_ran_ns(gang), 7 * NS_PER_S);
}
END_TEST

START_TEST(all_ask_when_one_does) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 0, 1);
  fleet_pass(&fleet, NS_PER_S);
  fleet.clients[1].wants = false; /* it computes on the CPU, and the other one needs it on its GPU */
  fleet_pass(&fleet, 10 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns(0), 4 * NS_PER_S);
}
END_TEST

START_TEST(a_dead_member_is_not_waited_for) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 1, -1);
  fleet_pass(&fleet, NS_PER_S);
  fleet_die(&fleet, 1);
  uint64_t before_ns = fleet.clients[0].ran_ns;
  fleet_pass(&fleet, NS_PER_S);
  ck_assert_uint_ge(fleet.clients[0].ran_ns - before_ns, 900 * NS_PER_MS);
  ck_assert_ptr_eq(fleet.clients[0].job.gang->members.next, &fleet.clients[0].job.gang_link);
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
  ck_assert(!scheduler_join(&fleet.clients[2].job, &fleet.gangs[0], fleet.now_ns, &fleet.change));
  fleet_execute(&fleet);
  ck_assert_ptr_null(fleet.clients[2].job.gang);
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

int main(void) {
  const TTest *const tests[] = {two_gangs_share_two_gpus,
                                a_gang_shares_with_single_jobs,
                                who_runs_meanwhile_makes_way_at_once,
                                gangs_in_a_ring_do_not_deadlock,
                                all_ask_when_one_does,
                                a_dead_member_is_not_waited_for,
                                a_late_member_joins_those_that_hold,
                                a_gang_has_one_member_on_a_gpu,
                                who_leaves_a_gang_is_on_its_own,
                                NULL};
  return suite_main("gangs", tests, set_up, NULL);
}
