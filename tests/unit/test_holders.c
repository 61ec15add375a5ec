/* test_holders.c - who holds together: sets of jobs that fit beside each other, in a simulation of time. */
#include "actors.h"
#include "suite.h"

#define CARD (16 * GIB)

static struct actors them;

static void blame(const char *what, int i) { ck_abort_msg("job %d %s", i + 1, what); }

static void set_up(void) {
  actors_init(&them, 1, CARD);
  them.fail = blame;
  them.bytes_per_s = them.gpu.handover.bytes_per_s = UINT64_C(5000) * GIB;
  them.piece_bytes = GIB;
  them.drain_ns = NS_PER_MS;
  them.busy_percent = 100;
  them.scheduler.settle_ns = 0;
  scheduler_set_mode(&them.scheduler, NULL, GS_MODE_AUTO, them.now_ns, &them.change);
  scheduler_set_tq(&them.scheduler, NULL, NS_PER_S, them.now_ns, &them.change);
  actors_execute(&them);
}

static void come(int i, uint64_t gib, uint32_t flags) {
  actors_attach(&them, i, gib * GIB, 0, flags);
  actors_request(&them, i);
}

static void pass_s(double s) { actors_pass(&them, (uint64_t)(s * NS_PER_S)); }

static double had_s(int i) { return (double)sched_job_gpu_ns(&them.jobs[i], them.now_ns) / NS_PER_S; }

/* Those that run now, as digits. */
static const char *running(void) {
  static char text[ACTORS + 1];
  char *end = text;
  for (int i = 0; i < ACTORS; i++)
    if (them.actors[i].attached && them.actors[i].open)
      *end++ = (char)('0' + i);
  *end = '\0';
  return text;
}

START_TEST(four_halves_run_two_by_two) {
  for (int i = 0; i < 4; i++)
    come(i, 8, 0);
  pass_s(0.5);
  ck_assert_str_eq(running(), "01");
  pass_s(1);
  ck_assert_str_eq(running(), "23");
  pass_s(1);
  ck_assert_str_eq(running(), "01");
  pass_s(100);
  for (int i = 0; i < 4; i++)
    ck_assert_double_eq_tol(had_s(i), 51, 2);
}
END_TEST

START_TEST(three_halves_have_two_thirds_each) {
  for (int i = 0; i < 3; i++)
    come(i, 8, 0);
  pass_s(90);
  for (int i = 0; i < 3; i++)
    ck_assert_double_eq_tol(had_s(i), 60, 2);
}
END_TEST

/* One job leaves for the one that comes; the other one goes on. */
START_TEST(only_as_many_stop_as_must) {
  for (int i = 0; i < 3; i++)
    come(i, 8, 0);
  pass_s(0.5);
  ck_assert_str_eq(running(), "01");
  uint64_t turns = them.jobs[0].turns + them.jobs[1].turns;
  pass_s(1);
  ck_assert_uint_eq(them.jobs[2].turns, 1);
  ck_assert_uint_eq(them.jobs[0].turns + them.jobs[1].turns, turns);
  ck_assert_uint_eq(strlen(running()), 2);
}
END_TEST

/* GiB. The small one has held for longer, so it makes way before the large one, whose seat 2 needs anyway. */
static void come_small_large_larger(void) {
  come(0, 3, 0);
  pass_s(0.1);
  come(1, 10, 0);
  come(2, 12, 0);
}

START_TEST(no_job_stops_whose_seat_is_not_needed) {
  come_small_large_larger();
  pass_s(100);
  ck_assert_uint_eq(them.jobs[0].turns, 1);
  ck_assert_double_eq_tol(had_s(0), 100, 1);
  ck_assert_double_eq_tol(had_s(1), 50, 2);
  ck_assert_double_eq_tol(had_s(2), 50, 2);
}
END_TEST

/* Another one waits that is smaller than 2, and comes before the small one, too. */
START_TEST(who_waits_takes_the_seat_that_the_first_one_does_not_need) {
  come_small_large_larger();
  come(3, 4, 0);
  pass_s(1.5);
  ck_assert_str_eq(running(), "23");
}
END_TEST

/* GiB. Beside 3, which needs the seat of 2, one of the small ones fits: 1, which has had less. */
START_TEST(of_those_whose_seats_are_not_needed_the_best_rank_stays) {
  come(0, 3, 0);
  pass_s(0.1);
  come(1, 3, 0);
  pass_s(0.1);
  come(2, 10, 0);
  come(3, 12, 0);
  pass_s(1.5);
  ck_assert_str_eq(running(), "13");
  ck_assert_uint_eq(them.jobs[1].turns, 1);
}
END_TEST

static void set_class(int i, enum gs_class class) {
  struct sched_terms terms = them.jobs[i].terms;
  terms.class = class;
  scheduler_set_terms(&them.jobs[i], &terms, them.now_ns, &them.change);
  actors_execute(&them);
}

/* GiB. Opportunistic jobs are asked first: this one's seat alone would not do, and is not needed. */
START_TEST(an_opportunistic_job_stays_beside_production_where_it_fits) {
  come(0, 10, 0);
  come(1, 3, 0);
  set_class(1, GS_CLASS_OPPORTUNISTIC);
  come(2, 12, 0);
  set_class(2, GS_CLASS_PRODUCTION);
  pass_s(10);
  ck_assert_uint_gt(them.jobs[2].turns, 3);
  ck_assert_uint_eq(them.jobs[1].turns, 1);
}
END_TEST

START_TEST(who_joins_is_told_what_is_left_of_the_quantum) {
  come(0, 12, 0);
  come(1, 12, 0);
  pass_s(0.4);
  come(2, 4, 0);
  ck_assert(them.jobs[2].quantum_ns > NS_PER_S / 2 && them.jobs[2].quantum_ns < NS_PER_S * 7 / 10);
}
END_TEST

/* The second one is granted while the quantum has yet to begin. */
START_TEST(a_set_that_begins_is_told_a_quantum) {
  for (int i = 0; i < 4; i++)
    come(i, 8, 0);
  pass_s(1.5);
  ck_assert_str_eq(running(), "23");
  ck_assert_uint_eq(them.jobs[2].quantum_ns, NS_PER_S);
  ck_assert_uint_eq(them.jobs[3].quantum_ns, NS_PER_S);
}
END_TEST

static void has_rules(const enum gs_rule rules[], int count) {
  for (int i = 0; i < count; i++)
    ck_assert_msg(sched_job_rule(&them.jobs[i]) == rules[i], "job %d: %d instead of %d", i,
                  sched_job_rule(&them.jobs[i]), rules[i]);
}

static void set_mode(enum gs_mode mode) {
  scheduler_set_mode(&them.scheduler, NULL, mode, them.now_ns, &them.change);
  actors_execute(&them);
}

/* Of 16 GiB. */
START_TEST(the_plan_tells_its_rules) {
  const uint64_t sizes[] = {8, 6, 8, 12, 1};
  for (int i = 0; i < 5; i++)
    come(i, sizes[i], 0);
  pass_s(0.5);
  has_rules((const enum gs_rule[]){GS_RULE_MAKES_WAY, GS_RULE_SEATED, GS_RULE_LATER, GS_RULE_DOES_NOT_FIT,
                                   GS_RULE_SEATED},
            5);
  set_mode(GS_MODE_ON);
  pass_s(0.1);
  has_rules((const enum gs_rule[]){GS_RULE_MAKES_WAY, GS_RULE_ONE_AT_A_TIME, GS_RULE_LATER,
                                   GS_RULE_ONE_AT_A_TIME, GS_RULE_ONE_AT_A_TIME},
            5);
}
END_TEST

/* 2 comes first once the quantum is over; 1 has stopped by then, and 0 not yet. */
START_TEST(the_plan_tells_who_is_next) {
  for (int i = 0; i < 2; i++)
    come(i, 12, 0);
  pass_s(0.5);
  them.actors[0].stalled = true;
  pass_s(1);
  has_rules((const enum gs_rule[]){GS_RULE_STOPS, GS_RULE_NEXT}, 2);
  actors_attach(&them, 2, 0, 0, 0);
  has_rules((const enum gs_rule[]){GS_RULE_STOPS, GS_RULE_NEXT, GS_RULE_IDLE}, 3);
}
END_TEST

START_TEST(the_plan_tells_what_can_not_run) {
  come(0, 8, 0);
  come(1, 12, 0);
  come(2, 10, 0);
  pass_s(0.5);
  struct sched_terms terms = them.jobs[2].terms;
  terms.paused = true;
  scheduler_set_terms(&them.jobs[2], &terms, them.now_ns, &them.change);
  actors_execute(&them);
  scheduler_set_capacity(&them.scheduler, NULL, 10 * GIB, them.now_ns, &them.change);
  actors_execute(&them);
  has_rules((const enum gs_rule[]){GS_RULE_SEATED, GS_RULE_TOO_BIG, GS_RULE_PAUSED}, 3);
}
END_TEST

/* The plan has not looked at 2: no seat comes free before the quantum's end, and 1 takes that one. */
START_TEST(what_is_passed_over_is_too_big_all_the_same) {
  come(0, 8, 0);
  come(1, 10, 0);
  come(2, 15, 0);
  pass_s(0.2);
  has_rules((const enum gs_rule[]){GS_RULE_MAKES_WAY, GS_RULE_LATER, GS_RULE_DOES_NOT_FIT}, 3);
  scheduler_set_capacity(&them.scheduler, NULL, 12 * GIB, them.now_ns, &them.change);
  actors_execute(&them);
  has_rules((const enum gs_rule[]){GS_RULE_MAKES_WAY, GS_RULE_LATER, GS_RULE_TOO_BIG}, 3);
  ck_assert_int_eq(sched_job_reason(&them.jobs[2], them.now_ns).why, GS_REASON_TOO_BIG);
}
END_TEST

static double expected_s(int i) {
  return (double)sched_job_reason(&them.jobs[i], them.now_ns).expected_ns / NS_PER_S;
}

/* Sizes in GiB; the quantum of 1 s is half over. */
START_TEST(why_tells_when_a_set_has_its_turn) {
  const uint64_t sizes[] = {8, 8, 8, 8, 16};
  for (int i = 0; i < 5; i++)
    come(i, sizes[i], 0);
  pass_s(0.5);
  ck_assert_str_eq(running(), "01");
  ck_assert_double_eq_tol(expected_s(2), 0.5, 0.1);
  ck_assert_double_eq_tol(expected_s(3), 0.5, 0.1);
  ck_assert_double_eq_tol(expected_s(4), 1.5, 0.1);
}
END_TEST

START_TEST(why_tells_that_small_ones_follow_a_large_one_together) {
  const uint64_t sizes[] = {16, 4, 4, 4};
  for (int i = 0; i < 4; i++)
    come(i, sizes[i], 0);
  pass_s(0.5);
  ck_assert_str_eq(running(), "0");
  for (int i = 1; i < 4; i++)
    ck_assert_double_eq_tol(expected_s(i), 0.5, 0.1);
}
END_TEST

START_TEST(a_large_job_is_not_starved_by_small_ones) {
  for (int i = 0; i < 4; i++)
    come(i, 4, 0);
  come(4, 14, 0);
  pass_s(100);
  ck_assert_double_ge(had_s(4), 30);
  for (int i = 0; i < 4; i++)
    ck_assert_double_ge(had_s(i), 30);
}
END_TEST

START_TEST(who_has_grown_too_large_for_the_set_breaks_it_up) {
  for (int i = 0; i < 3; i++)
    come(i, 8, 0);
  pass_s(0.5);
  actors_set_memory(&them, 0, 10 * GIB, 0);
  pass_s(0.1);
  ck_assert_uint_eq(strlen(running()), 1);
  pass_s(60);
  for (int i = 0; i < 3; i++)
    ck_assert_double_ge(had_s(i), 15);
}
END_TEST

/* A policy that preempts takes the place of those who come after it, and of no others. */
START_TEST(who_preempts_displaces_the_worst) {
  scheduler_set_policy(&them.scheduler, NULL, GS_POLICY_PRIORITY, them.now_ns, &them.change);
  for (int i = 0; i < 4; i++) {
    struct sched_terms terms = {.weight = SCHED_WEIGHT, .priority = i == 0 ? 5 : i == 3 ? 3 : 0};
    actors_attach(&them, i, 8 * GIB, 0, 0);
    scheduler_set_terms(&them.jobs[i], &terms, them.now_ns, &them.change);
    if (i < 3)
      actors_request(&them, i);
  }
  pass_s(0.5);
  ck_assert_str_eq(running(), "01");
  actors_request(&them, 3);
  pass_s(0.3);
  ck_assert_str_eq(running(), "03");
}
END_TEST

/* Of the jobs that wait, 2 comes before both that run, and takes the seat of 1; 3 comes before 1 alone. */
START_TEST(who_waits_opens_no_seat_for_those_behind_it) {
  static const int32_t priorities[] = {5, 0, 9, 1};
  scheduler_set_policy(&them.scheduler, NULL, GS_POLICY_FIFO, them.now_ns, &them.change);
  for (int i = 0; i < 4; i++) {
    struct sched_terms terms = {.weight = SCHED_WEIGHT, .priority = priorities[i]};
    actors_attach(&them, i, 8 * GIB, 0, 0);
    scheduler_set_terms(&them.jobs[i], &terms, them.now_ns, &them.change);
    actors_request(&them, i);
  }
  pass_s(0.5);
  ck_assert_str_eq(running(), "01");
  scheduler_set_policy(&them.scheduler, NULL, GS_POLICY_PRIORITY, them.now_ns, &them.change);
  actors_execute(&them);
  pass_s(0.3);
  ck_assert_str_eq(running(), "02");
  ck_assert_uint_eq(them.jobs[0].turns, 1);
}
END_TEST

START_TEST(pack_lets_them_run_to_completion) {
  scheduler_set_policy(&them.scheduler, NULL, GS_POLICY_PACK, them.now_ns, &them.change);
  for (int i = 0; i < 4; i++)
    come(i, 8, 0);
  pass_s(20);
  ck_assert_str_eq(running(), "01");
  actors_detach(&them, 0);
  pass_s(1);
  ck_assert_str_eq(running(), "12");
  pass_s(35); /* who waits for 32 quanta goes first */
  ck_assert_double_ge(had_s(3), 1);
}
END_TEST

/* What the next set needs comes back behind the turn of this one. */
START_TEST(moves_for_the_next_set_are_hidden) {
  them.bytes_per_s = them.gpu.handover.bytes_per_s = UINT64_C(50) * GIB;
  for (int i = 0; i < 6; i++)
    come(i, 4, 0);
  pass_s(20);
  uint64_t paid_bytes = them.gpu.handover.sum.evicted_bytes + them.gpu.handover.sum.restored_bytes;
  pass_s(20);
  ck_assert_uint_eq(them.gpu.handover.sum.evicted_bytes + them.gpu.handover.sum.restored_bytes, paid_bytes);
  ck_assert_uint_gt(them.gpu.handover.hidden_bytes, 100 * GIB);
}
END_TEST

/* ---- more than anybody looks at in one go ---- */

#define MANY 100

static struct sched_job many[MANY], late;

static void attach(struct sched_job *job, uint32_t id, uint64_t used_bytes) {
  struct sched_attach attach = {.id = id, .used_bytes = used_bytes};
  struct sched_action action;
  scheduler_attach(&them.gpu, job, &attach, them.now_ns, &them.change);
  scheduler_request(job, them.now_ns, &them.change);
  while (change_next(&them.change, &action))
    continue;
}

START_TEST(many_that_can_never_run_stand_in_nobodys_way) {
  scheduler_set_mode(&them.scheduler, NULL, GS_MODE_ON, them.now_ns, &them.change);
  scheduler_set_capacity(&them.scheduler, NULL, GIB, them.now_ns, &them.change);
  for (uint32_t i = 0; i < MANY; i++)
    attach(&many[i], i + 1, 2 * GIB);
  attach(&late, MANY + 1, GIB / 2);
  ck_assert_int_eq(late.state, GS_JOB_HOLDING);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {the_plan_tells_its_rules,
                                the_plan_tells_who_is_next,
                                the_plan_tells_what_can_not_run,
                                what_is_passed_over_is_too_big_all_the_same,
                                four_halves_run_two_by_two,
                                three_halves_have_two_thirds_each,
                                only_as_many_stop_as_must,
                                no_job_stops_whose_seat_is_not_needed,
                                who_waits_takes_the_seat_that_the_first_one_does_not_need,
                                of_those_whose_seats_are_not_needed_the_best_rank_stays,
                                an_opportunistic_job_stays_beside_production_where_it_fits,
                                who_joins_is_told_what_is_left_of_the_quantum,
                                a_set_that_begins_is_told_a_quantum,
                                why_tells_when_a_set_has_its_turn,
                                why_tells_that_small_ones_follow_a_large_one_together,
                                a_large_job_is_not_starved_by_small_ones,
                                who_has_grown_too_large_for_the_set_breaks_it_up,
                                who_preempts_displaces_the_worst,
                                who_waits_opens_no_seat_for_those_behind_it,
                                pack_lets_them_run_to_completion,
                                moves_for_the_next_set_are_hidden,
                                many_that_can_never_run_stand_in_nobodys_way,
                                NULL};
  return suite_main("holders", tests, set_up, NULL);
}
