/*
 * test_policy.c - whose turn is next, policy by policy: jobs that always want to run, in a simulation of
 * time.
 */
#include "actors.h"
#include "core/internal.h"
#include "suite.h"

#define CARD (16 * GIB)
#define JOB (12 * GIB)
#define TQ_NS NS_PER_S

static struct actors them;

static void blame(const char *what, int i) { ck_abort_msg("job %d %s", i + 1, what); }

static void set_up(void) {
  actors_init(&them, 1, CARD);
  them.fail = blame;
  them.bytes_per_s = UINT64_C(5000) * GIB; /* hand-overs cost next to nothing */
  them.piece_bytes = GIB;
  them.drain_ns = NS_PER_MS;
  them.busy_percent = 100;
  them.gpu.handover.bytes_per_s = them.bytes_per_s;
  scheduler_set_mode(&them.scheduler, NULL, GS_MODE_ON, them.now_ns, &them.change);
  scheduler_set_tq(&them.scheduler, NULL, TQ_NS, them.now_ns, &them.change);
  actors_execute(&them);
}

static void set_policy(enum gs_policy policy) {
  scheduler_set_policy(&them.scheduler, NULL, policy, them.now_ns, &them.change);
  actors_execute(&them);
}

static void set_terms(int i, uint32_t weight, int32_t priority, uint64_t expected_ns) {
  struct sched_terms terms = {.weight = weight, .priority = priority, .expected_ns = expected_ns};
  scheduler_set_terms(&them.jobs[i], &terms, them.now_ns, &them.change);
  actors_execute(&them);
}

static void come(int i) {
  actors_attach(&them, i, JOB, 0, 0);
  actors_request(&them, i);
}

/* As the daemon does it: its terms are told before it asks. */
static void come_with_terms(int i, struct sched_terms terms) {
  terms.weight = terms.weight ? terms.weight : SCHED_WEIGHT;
  actors_attach(&them, i, JOB, 0, 0);
  scheduler_set_terms(&them.jobs[i], &terms, them.now_ns, &them.change);
  actors_execute(&them);
  actors_request(&them, i);
}

static void come_expecting(int i, uint64_t expected_ns) {
  come_with_terms(i, (struct sched_terms){.expected_ns = expected_ns});
}

static void come_as(int i, enum gs_class class) { come_with_terms(i, (struct sched_terms){.class = class}); }

static double had_s(int i) { return (double)sched_job_gpu_ns(&them.jobs[i], them.now_ns) / NS_PER_S; }

static bool runs(int i) { return them.actors[i].open; }

static void pass_s(double s) { actors_pass(&them, (uint64_t)(s * NS_PER_S)); }

/* The holder has nothing to do for now. */
static void rest(int i) {
  struct actor *actor = &them.actors[i];
  ck_assert(runs(i));
  actor->holding = actor->open = actor->requested = actor->wants = false;
  scheduler_release(&them.jobs[i], &(struct sched_release){.epoch = actor->epoch}, them.now_ns, &them.change);
  actors_execute(&them);
}

/* ---- fair ---- */

START_TEST(fair_gives_equal_time) {
  set_policy(GS_POLICY_FAIR);
  for (int i = 0; i < 3; i++)
    come(i);
  pass_s(60);
  for (int i = 0; i < 3; i++)
    ck_assert_double_eq_tol(had_s(i), 20, 1.1);
}
END_TEST

START_TEST(fair_follows_weights) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  come(1);
  set_terms(0, 300, 0, 0);
  pass_s(100);
  ck_assert_double_eq_tol(had_s(0), 75, 2);
  ck_assert_double_eq_tol(had_s(1), 25, 2);
  set_terms(0, 100, 0, 0);
  double before_s = had_s(0);
  pass_s(100);
  ck_assert_double_eq_tol(had_s(0) - before_s, 50, 2);
}
END_TEST

START_TEST(fair_newcomers_start_level) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  come(1);
  pass_s(100);
  double before_s[] = {had_s(0), had_s(1)};
  come(2);
  pass_s(30);
  ck_assert_double_eq_tol(had_s(0) - before_s[0], 10, 1.5);
  ck_assert_double_eq_tol(had_s(1) - before_s[1], 10, 1.5);
  ck_assert_double_eq_tol(had_s(2), 10, 1.5);
}
END_TEST

static double longest_turn_s(int i, double s) {
  uint64_t since_ns = them.now_ns, longest_ns = 0, end_ns = them.now_ns + (uint64_t)(s * NS_PER_S);
  while (them.now_ns < end_ns) {
    pass_s(0.01);
    since_ns = runs(i) ? since_ns : them.now_ns;
    longest_ns = them.now_ns - since_ns > longest_ns ? them.now_ns - since_ns : longest_ns;
  }
  return (double)longest_ns / NS_PER_S;
}

static double longest_turn_after_drains_s(uint64_t drain_ns) {
  set_policy(GS_POLICY_FAIR);
  for (int i = 0; i < 3; i++)
    come(i);
  them.drain_ns = drain_ns;
  while (!runs(2))
    pass_s(0.01);
  them.drain_ns = NS_PER_MS;
  return longest_turn_s(2, 10);
}

START_TEST(fair_makes_up_for_long_drains) {
  ck_assert_double_eq_tol(longest_turn_after_drains_s(3 * NS_PER_S), 3, 0.1);
}
END_TEST

/* Another quantum would put it further ahead than it is behind. */
START_TEST(fair_does_not_make_up_for_short_drains) {
  ck_assert_double_eq_tol(longest_turn_after_drains_s(100 * NS_PER_MS), 1, 0.1);
}
END_TEST

static int who_runs(void) {
  for (int i = 0; i < ACTORS; i++) {
    if (them.actors[i].attached && runs(i))
      return i;
  }
  return -1;
}

/* Turns pass, whose drains take more or less long; who had them. */
static void pass_turns(int *ran, int turns) {
  static const uint64_t drains_ms[] = {1, 40, 15, 60, 5, 30, 1};
  for (int turn = 0; turn < turns;) {
    int now = who_runs();
    if (now >= 0 && (turn == 0 || now != ran[turn - 1])) {
      them.drain_ns = drains_ms[turn % 7] * NS_PER_MS;
      ran[turn++] = now;
    }
    pass_s(0.01);
  }
}

/* What some drains have taken is made up for in the long run, not by passing another one each time: or in
 * some windows one of three would have a turn more, and another one a turn less. */
START_TEST(fair_keeps_the_order_of_equals) {
  int ran[40];
  set_policy(GS_POLICY_FAIR);
  for (int i = 0; i < 3; i++)
    come(i);
  pass_turns(ran, 40);
  for (int turn = 3; turn < 40; turn++)
    ck_assert_int_eq(ran[turn], ran[turn - 3]);
  for (int i = 1; i < 3; i++)
    ck_assert_double_eq_tol(had_s(i), had_s(0), 1.2);
}
END_TEST

/* Each is gone after a part of its first turn, and the next one comes. */
static void pass_beside_newcomers_s(int from, int to, enum gs_class class, double s) {
  for (int i = from; i <= to; i++)
    come_as(i, class);
  for (double passed_s = 0; passed_s < s; passed_s += 0.1) {
    pass_s(0.1);
    for (int i = from; i <= to; i++) {
      if (had_s(i) > 0.25) {
        actors_detach(&them, i);
        come_as(i, class);
      }
    }
  }
}

/* What one has who is always there. */
static double had_beside_newcomers_s(int newcomers, enum gs_class class, double s) {
  set_policy(GS_POLICY_FAIR);
  come_as(0, class);
  pass_s(3);
  double before_s = had_s(0);
  pass_beside_newcomers_s(1, newcomers, class, s);
  return had_s(0) - before_s;
}

START_TEST(fair_lets_no_stream_of_newcomers_pass) {
  ck_assert_double_ge(had_beside_newcomers_s(4, GS_CLASS_STANDARD, 60), 60.0 / 5);
}
END_TEST

START_TEST(fair_lets_no_crowd_of_newcomers_pass) {
  ck_assert_double_ge(had_beside_newcomers_s(5, GS_CLASS_STANDARD, 60), 60.0 / 6);
}
END_TEST

/* Beside one of a better class that wants nothing. */
START_TEST(fair_lets_no_stream_of_opportunistic_newcomers_pass) {
  actors_attach(&them, 5, JOB, 0, 0);
  ck_assert_double_ge(had_beside_newcomers_s(2, GS_CLASS_OPPORTUNISTIC, 60), 60.0 / 3);
}
END_TEST

/* One of three, which takes turns with the others, leaves while it waits: who is sorted behind it stays
 * there. */
START_TEST(fair_lets_no_stream_pass_who_was_level_with_one_that_left) {
  for (int k = 0; k < 40; k++) {
    int ran[12];
    set_up();
    set_policy(GS_POLICY_FAIR);
    for (int i = 0; i < 3; i++)
      come_as(i, GS_CLASS_STANDARD);
    pass_turns(ran, 9 + k % 3);
    them.drain_ns = (uint64_t)(k + 5) * 10 * NS_PER_MS;
    pass_s(6 + 0.1 * k);
    while (who_runs() < 0)
      pass_s(0.01);
    int leaves = (who_runs() + 1 + k % 2) % 3, stays = 3 - leaves - who_runs();
    actors_detach(&them, leaves);
    double before_s = had_s(stays);
    pass_beside_newcomers_s(3, 4, GS_CLASS_STANDARD, 40);
    ck_assert_double_ge(had_s(stays) - before_s, 40.0 / 5);
  }
}
END_TEST

/* Not where they were when it was started, and had told its terms. */
START_TEST(fair_lets_newcomers_begin_when_they_ask) {
  set_policy(GS_POLICY_FAIR);
  actors_attach(&them, 1, JOB, 0, 0);
  set_terms(1, SCHED_WEIGHT, 0, 0);
  come(0);
  come(2);
  pass_s(1.2); /* the first turn of the second */
  ck_assert(runs(2));
  actors_request(&them, 1);
  pass_s(1.2);
  ck_assert(runs(0));
  pass_s(1);
  ck_assert(runs(1));
}
END_TEST

/* A quantum of its own is ten thousand of the other one's. */
START_TEST(fair_lets_light_newcomers_run_soon) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  set_terms(0, 10000, 0, 0);
  come(1);
  set_terms(1, 1, 0, 0);
  pass_s(10);
  come_with_terms(2, (struct sched_terms){.weight = 1});
  pass_s(5);
  ck_assert_double_gt(had_s(2), 0);
}
END_TEST

/* Who has slept must not make up for it at the others' cost. */
static void come_with(int i, uint64_t bytes) {
  actors_attach(&them, i, bytes, 0, 0);
  actors_request(&them, i);
}

/* One goes on without a break while turns end, and begin again for one that needs the whole card. */
START_TEST(fair_remembers_what_was_had_before_turns_ended) {
  set_policy(GS_POLICY_FAIR);
  them.scheduler.settle_ns = 0;
  scheduler_set_mode(&them.scheduler, NULL, GS_MODE_AUTO, them.now_ns, &them.change);
  actors_execute(&them);
  come_with(0, 2 * GIB);
  set_terms(0, 400, 0, 0);
  come_with(1, 12 * GIB);
  come_with(2, 12 * GIB);
  pass_s(20);
  actors_detach(&them, 2);
  pass_s(0.1);
  ck_assert(!them.gpu.serialized);
  come_with(2, 15 * GIB);
  pass_s(2.5);
  ck_assert_double_ge(had_s(2), 0.9);
}
END_TEST

START_TEST(fair_sleepers_come_back_level) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  come(1);
  pass_s(4);
  while (!runs(1))
    pass_s(0.1);
  rest(1);
  pass_s(100);
  double before_s = had_s(0);
  actors_request(&them, 1);
  pass_s(20);
  ck_assert_double_eq_tol(had_s(0) - before_s, 10, 1.5);
}
END_TEST

/* Also if it asks again soon: what it gives up again and again is not saved up. */
START_TEST(fair_short_turns_are_not_saved_up) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  come(1);
  for (int i = 0; i < 100; i++) {
    for (int tries = 0; !runs(1) && tries < 300; tries++)
      pass_s(0.01);
    rest(1);
    pass_s(0.09);
    actors_request(&them, 1);
  }
  double before_s = had_s(1);
  pass_s(20);
  ck_assert_double_eq_tol(had_s(1) - before_s, 10, 1);
}
END_TEST

/* Nor does it lift the others to where it is. */
START_TEST(fair_follows_weights_beside_one_that_fills_gaps) {
  scheduler_set_mode(&them.scheduler, NULL, GS_MODE_AUTO, them.now_ns, &them.change);
  set_policy(GS_POLICY_FAIR);
  come(0);
  come(1);
  set_terms(0, 300, 0, 0);
  actors_attach(&them, 2, CARD / 16, 0, 0);
  set_terms(2, 10, 0, 0);
  actors_request(&them, 2);
  pass_s(100);
  ck_assert_double_eq_tol(had_s(0), 75, 3);
  ck_assert_double_eq_tol(had_s(1), 25, 3);
  ck_assert_double_ge(had_s(2), 95);
}
END_TEST

/* What fifo gave to one and not to the other is no debt. */
START_TEST(fair_forgets_what_other_policies_did) {
  set_policy(GS_POLICY_FIFO);
  come(0);
  come(1);
  pass_s(100);
  set_policy(GS_POLICY_FAIR);
  double before_s = had_s(0);
  pass_s(20);
  ck_assert_double_eq_tol(had_s(0) - before_s, 10, 2);
}
END_TEST

/* A quantum at weight 1 is a hundred at weight 100. */
/* Its rank is the same before and after. */
START_TEST(fair_charges_by_the_weight_that_was) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  pass_s(50);
  uint64_t rank = policy_rank(&them.jobs[0], them.now_ns);
  set_terms(0, 1000, 0, 0);
  ck_assert_uint_eq(policy_rank(&them.jobs[0], them.now_ns), rank);
}
END_TEST

START_TEST(fair_charges_nobody_while_no_turns_are_taken) {
  set_policy(GS_POLICY_FAIR);
  scheduler_set_mode(&them.scheduler, NULL, GS_MODE_AUTO, them.now_ns, &them.change);
  actors_execute(&them);
  come_with(0, 2 * GIB);
  pass_s(1);
  ck_assert(runs(0) && !them.gpu.serialized);
  uint64_t rank = policy_rank(&them.jobs[0], them.now_ns);
  pass_s(50);
  ck_assert_uint_eq(policy_rank(&them.jobs[0], them.now_ns), rank);
}
END_TEST

/* Where newcomers begin: who has rested and comes back is behind that. */
START_TEST(fair_the_level_never_goes_back) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  come(1);
  pass_s(20);
  while (!runs(1))
    pass_s(0.1);
  rest(1);
  pass_s(20);
  come(2);
  uint64_t level_ns = them.gpu.common.accounts[false].virtual_ns;
  actors_request(&them, 1);
  come(3);
  ck_assert_uint_ge(them.gpu.common.accounts[false].virtual_ns, level_ns);
}
END_TEST

START_TEST(fair_one_that_cannot_run_keeps_no_level) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  set_terms(0, 300, 0, 0);
  come(1);
  come_with(2, 14 * GIB);
  scheduler_set_capacity(&them.scheduler, NULL, 13 * GIB, them.now_ns, &them.change);
  actors_execute(&them);
  pass_s(100);
  ck_assert_double_eq(had_s(2), 0);
  ck_assert_double_eq_tol(had_s(1), 25, 2);
}
END_TEST

START_TEST(fair_takes_a_lead_in_quanta_of_the_new_weight) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  set_terms(0, 1, 0, 0);
  come(1);
  them.drain_ns = 3 * NS_PER_S;
  while (!runs(1))
    pass_s(0.1);
  them.drain_ns = NS_PER_MS;
  set_terms(0, 100, 0, 0);
  double before_s = had_s(0);
  pass_s(8);
  ck_assert_double_ge(had_s(0) - before_s, 2);
}
END_TEST

/* They wait for as long as others come, and do not keep newcomers behind. */
START_TEST(fair_goes_by_its_own_class) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  come(1);
  come_as(2, GS_CLASS_OPPORTUNISTIC);
  pass_s(100);
  double before_s = had_s(0);
  come(3);
  pass_s(30);
  ck_assert_double_eq_tol(had_s(0) - before_s, 10, 1.5);
  ck_assert_double_eq_tol(had_s(3), 10, 1.5);
}
END_TEST

/* ---- fifo ---- */

START_TEST(fifo_runs_to_completion) {
  set_policy(GS_POLICY_FIFO);
  come(0);
  come(1);
  come(2);
  pass_s(50);
  ck_assert_double_eq_tol(had_s(0), 50, 0.1);
  ck_assert(runs(0));
  actors_detach(&them, 0);
  pass_s(50);
  ck_assert_double_eq_tol(had_s(1), 50, 0.1);
  ck_assert(had_s(2) == 0);
}
END_TEST

START_TEST(fifo_lets_others_run_while_the_first_is_idle) {
  set_policy(GS_POLICY_FIFO);
  come(0);
  come(1);
  pass_s(5);
  rest(0);
  pass_s(1);
  ck_assert(runs(1));
  actors_request(&them, 0);
  pass_s(0.5); /* long before the quantum is over */
  ck_assert(runs(0));
}
END_TEST

/* ---- srtf ---- */

START_TEST(srtf_lets_the_short_job_through_at_once) {
  scheduler_set_tq(&them.scheduler, NULL, 100 * NS_PER_S, them.now_ns, &them.change);
  set_policy(GS_POLICY_SRTF);
  come_expecting(0, 1000 * NS_PER_S);
  pass_s(10);
  come_expecting(1, 20 * NS_PER_S);
  pass_s(20);
  ck_assert_double_ge(had_s(1), 19.8);
  actors_detach(&them, 1);
  pass_s(1);
  ck_assert(runs(0));
}
END_TEST

START_TEST(srtf_does_not_stop_who_is_nearly_done) {
  set_policy(GS_POLICY_SRTF);
  come_expecting(0, 60 * NS_PER_S);
  pass_s(50);
  come_expecting(1, 20 * NS_PER_S);
  pass_s(9.5);
  ck_assert_double_eq_tol(had_s(0), 59.5, 0.1);
}
END_TEST

/* A stream of short jobs passes a long one only for as long as its aging allows: 32 times its length. */
START_TEST(srtf_has_mercy_on_long_jobs) {
  set_policy(GS_POLICY_SRTF);
  come_expecting(0, 10 * NS_PER_S);
  for (int round = 0; round < 60; round++) {
    come_expecting(1, 8 * NS_PER_S);
    pass_s(8);
    actors_detach(&them, 1);
  }
  ck_assert_double_ge(had_s(0), 1);
}
END_TEST

START_TEST(srtf_expects_the_unknown_to_last_as_long_again) {
  set_policy(GS_POLICY_SRTF);
  come(0);
  pass_s(30);
  come(1);
  pass_s(5);
  ck_assert_double_ge(had_s(1), 4.5); /* has had less */
}
END_TEST

/* ---- priority ---- */

START_TEST(priority_goes_by_level) {
  scheduler_set_tq(&them.scheduler, NULL, 100 * NS_PER_S, them.now_ns, &them.change);
  set_policy(GS_POLICY_PRIORITY);
  come(0);
  pass_s(5);
  come_with_terms(1, (struct sched_terms){.priority = 1});
  pass_s(30);
  ck_assert_double_ge(had_s(1), 29.5);
}
END_TEST

START_TEST(priority_lets_nobody_starve) {
  set_policy(GS_POLICY_PRIORITY);
  come(0);
  come(1);
  set_terms(1, SCHED_WEIGHT, 2, 0);
  pass_s(1200);
  ck_assert_double_ge(had_s(0), 5);
  ck_assert_double_ge(had_s(1), 1100);
}
END_TEST

START_TEST(priority_takes_turns_among_equals) {
  set_policy(GS_POLICY_PRIORITY);
  come(0);
  come(1);
  pass_s(20);
  ck_assert_double_eq_tol(had_s(0), 10, 1.1);
  ck_assert_double_eq_tol(had_s(1), 10, 1.1);
}
END_TEST

/* ---- in general ---- */

/* After 32 quanta, and 32 after that: each time the one that has come first of those that were not put out.
 */
START_TEST(pack_lets_nobody_starve) {
  set_policy(GS_POLICY_PACK);
  for (int i = 0; i < 3; i++)
    come(i);
  pass_s(31.5);
  ck_assert(runs(0));
  pass_s(2);
  ck_assert(runs(1));
  pass_s(28);
  ck_assert(runs(1));
  pass_s(6);
  ck_assert(runs(2));
}
END_TEST

START_TEST(a_new_policy_concerns_those_who_wait) {
  come(0);
  come(1);
  come(2);
  set_terms(2, SCHED_WEIGHT, 5, 0);
  pass_s(0.5);
  ck_assert(runs(0));
  set_policy(GS_POLICY_PRIORITY);
  pass_s(0.5);
  ck_assert(runs(2));
}
END_TEST

/* Who rests again and again for a moment does not lose its place by it; but hand-overs of most of a second
 * may not take more than one second in twenty, besides the first. */
START_TEST(preemptions_take_one_part_in_twenty) {
  them.bytes_per_s = them.gpu.handover.bytes_per_s = JOB;
  scheduler_set_tq(&them.scheduler, NULL, 1000 * NS_PER_S, them.now_ns, &them.change);
  set_policy(GS_POLICY_SRTF);
  come_expecting(0, 1000 * NS_PER_S);
  pass_s(3);
  come_expecting(1, 100 * NS_PER_S);
  pass_s(2);
  ck_assert(runs(1));
  unsigned rests = 0;
  for (double s = 0; s < 100; s += 0.5) {
    if (runs(1)) {
      rest(1);
      pass_s(1.5);
      actors_request(&them, 1);
      rests++;
    }
    pass_s(0.5);
  }
  ck_assert_uint_ge(rests, 5);
  ck_assert_uint_le(rests, 12);
}
END_TEST

/* A notebook beside a training: what it does now and then does not wait for a quantum each time. */
START_TEST(fair_serves_who_needs_little_soon) {
  set_policy(GS_POLICY_FAIR);
  come(0);
  pass_s(10);
  come(1);
  double before_s = had_s(0);
  for (int i = 0; i < 40; i++) {
    for (int tries = 0; !runs(1) && tries < 300; tries++)
      pass_s(0.01);
    pass_s(0.05);
    rest(1);
    pass_s(0.05);
    actors_request(&them, 1);
  }
  ck_assert_double_eq_tol(had_s(1), 2, 0.5);
  ck_assert_double_le(had_s(0) - before_s, 8); /* forty quanta otherwise */
}
END_TEST

int main(void) {
  const TTest *const tests[] = {fair_gives_equal_time,
                                fair_follows_weights,
                                fair_newcomers_start_level,
                                fair_makes_up_for_long_drains,
                                fair_does_not_make_up_for_short_drains,
                                fair_keeps_the_order_of_equals,
                                fair_lets_no_stream_of_newcomers_pass,
                                fair_lets_no_crowd_of_newcomers_pass,
                                fair_lets_no_stream_of_opportunistic_newcomers_pass,
                                fair_lets_no_stream_pass_who_was_level_with_one_that_left,
                                fair_lets_newcomers_begin_when_they_ask,
                                fair_lets_light_newcomers_run_soon,
                                fair_remembers_what_was_had_before_turns_ended,
                                fair_charges_by_the_weight_that_was,
                                fair_charges_nobody_while_no_turns_are_taken,
                                fair_the_level_never_goes_back,
                                fair_one_that_cannot_run_keeps_no_level,
                                fair_sleepers_come_back_level,
                                fair_short_turns_are_not_saved_up,
                                fair_follows_weights_beside_one_that_fills_gaps,
                                fair_forgets_what_other_policies_did,
                                fair_takes_a_lead_in_quanta_of_the_new_weight,
                                fair_goes_by_its_own_class,
                                fifo_runs_to_completion,
                                fifo_lets_others_run_while_the_first_is_idle,
                                srtf_lets_the_short_job_through_at_once,
                                srtf_does_not_stop_who_is_nearly_done,
                                srtf_has_mercy_on_long_jobs,
                                srtf_expects_the_unknown_to_last_as_long_again,
                                priority_goes_by_level,
                                priority_lets_nobody_starve,
                                priority_takes_turns_among_equals,
                                pack_lets_nobody_starve,
                                a_new_policy_concerns_those_who_wait,
                                preemptions_take_one_part_in_twenty,
                                fair_serves_who_needs_little_soon,
                                NULL};
  return suite_main("policy", tests, set_up, NULL);
}
