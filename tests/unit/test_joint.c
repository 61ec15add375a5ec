/*
 * test_joint.c - a gang of three that stops together (daemon/core/joint.c), and the rivals for its GPUs: what
 * each is told, step by step.
 */
#include <string.h>

#include "common/clock.h"
#include "core/scheduler.h"
#include "played_clock.h"
#include "suite.h"

#define CARD (UINT64_C(16) << 30)
#define TQ_NS (100 * NS_PER_MS)
#define GRACE_NS (2 * NS_PER_S)
#define GPUS 3

/* The members, by GPU; and those that they share the GPUs with. */
enum { A0, A1, A2, B0, B1, B2, JOBS };

/* What one has been told. */
struct told {
  bool holds, together, wanted;
  unsigned drops, passes, bypassed;
  uint64_t pass_calls;
  uint32_t pass_round;
  uint64_t quantum_ns;
};

static struct scheduler scheduler;
static struct sched_gpu gpus[GPUS];
static struct sched_gang gang;
static struct sched_job jobs[JOBS];
static struct told told[JOBS];
static struct sched_change change;
static uint64_t now_ns;

static void set_up(void) {
  memset(jobs, 0, sizeof jobs);
  memset(told, 0, sizeof told);
  now_ns = 10 * NS_PER_S;
  scheduler_init(&scheduler);
  scheduler.defaults.mode = GS_MODE_ON;
  scheduler.defaults.policy = GS_POLICY_RR;
  scheduler.defaults.tq_ns = TQ_NS;
  scheduler.grace_ns = GRACE_NS;
  change_init(&change);
  gang_init(&gang);
  for (int g = 0; g < GPUS; g++)
    scheduler_add_gpu(&scheduler, &gpus[g], (const uint8_t[GS_UUID_SIZE]){1, (uint8_t)g}, "card", CARD);
}

/* ---- what they are told ---- */

static void hear(const struct sched_action *action) {
  struct told *it = &told[action->job - jobs];
  if (action->type == SCHED_TELL_LOCK_OK) {
    it->holds = true;
    it->quantum_ns = action->quantum_ns;
  } else if (action->type == SCHED_TELL_LOCK_WANTED) {
    it->wanted = action->left_ns != GS_LEFT_NOBODY;
  } else if (action->type == SCHED_TELL_DROP_LOCK) {
    it->drops++;
    it->together = action->together;
  } else if (action->type == SCHED_TELL_LET_PASS) {
    it->passes++;
    it->pass_calls = action->pass_calls;
    it->pass_round = action->pass_round;
  } else if (action->type == SCHED_NOTE_BYPASSED) {
    it->bypassed++;
  }
}

static void execute(void) {
  struct sched_action action;
  while (change_next(&change, &action))
    hear(&action);
}

/* ---- what they do ---- */

static void come(int i, uint32_t flags) {
  struct sched_attach attach = {.id = (uint32_t)i + 1, .flags = flags};
  scheduler_attach(&gpus[i % GPUS], &jobs[i], &attach, now_ns, &change);
  execute();
}

static void join(int i) {
  ck_assert(scheduler_join(&jobs[i], &gang, now_ns, &change));
  execute();
}

static void request(int i) {
  scheduler_request(&jobs[i], now_ns, &change);
  execute();
}

static void activate(int i) {
  scheduler_active(&jobs[i], &(struct sched_active){.epoch = jobs[i].epoch}, now_ns, &change);
  execute();
}

static void say_stopped(int i, uint64_t calls, bool drained) {
  struct sched_stop stop = {
      .epoch = jobs[i].epoch, .calls = calls, .round = told[i].pass_round, .drained = drained};
  scheduler_stopped(&jobs[i], &stop, now_ns, &change);
  execute();
}

static void release(int i) {
  told[i] = (struct told){.holds = false};
  scheduler_release(&jobs[i], &(struct sched_release){.epoch = jobs[i].epoch}, now_ns, &change);
  execute();
}

static void pass(uint64_t ns) {
  for (uint64_t end_ns = now_ns + ns; clock_goes_on(&scheduler, &now_ns, end_ns, &change);)
    execute();
}

/* The one answers at once whenever it is told to let calls pass, and has none. */
static void pass_answering(int i, uint64_t calls, uint64_t ns) {
  for (uint64_t end_ns = now_ns + ns; now_ns < end_ns;) {
    unsigned passes = told[i].passes;
    pass(NS_PER_MS);
    if (told[i].passes > passes)
      say_stopped(i, calls, true);
  }
}

/* The gang runs, and others wait for all GPUs. */
static void run_gang(uint32_t flags) {
  for (int i = A0; i <= B2; i++)
    come(i, flags);
  for (int i = A0; i <= A2; i++)
    join(i);
  request(A0);
  for (int i = A0; i <= A2; i++) {
    ck_assert(told[i].holds);
    activate(i);
  }
  for (int i = B0; i <= B2; i++)
    request(i);
}

static void stop_gang(uint32_t flags) {
  run_gang(flags);
  pass(TQ_NS);
  ck_assert(told[A0].together && told[A1].together);
}

/* All have been counted, and none is ahead. */
static void stop_and_count(void) {
  stop_gang(GS_ATTACH_MANAGED);
  for (int i = A0; i <= A2; i++)
    say_stopped(i, 1000, true);
  for (int i = A0; i <= A2; i++)
    release(i);
  for (int i = B0; i <= B2; i++)
    activate(i);
  request(A0);
  pass(TQ_NS);
  for (int i = B0; i <= B2; i++)
    release(i);
  for (int i = A0; i <= A2; i++)
    activate(i);
  for (int i = B0; i <= B2; i++)
    request(i);
  pass(TQ_NS);
  ck_assert(told[A0].together && told[A1].together && told[A2].together);
}

/* ---- tests ---- */

START_TEST(who_is_behind_lets_a_few_calls_pass_at_a_time) {
  stop_and_count();
  say_stopped(A0, 1000 + (UINT64_C(1) << 40), false);
  say_stopped(A1, 2000, true);
  say_stopped(A2, 1000 + (UINT64_C(1) << 40), false);
  pass(NS_PER_MS);
  ck_assert_uint_eq(told[A1].passes, 1);
  ck_assert_uint_gt(told[A1].pass_calls, 2000);
  ck_assert_uint_le(told[A1].pass_calls, 2064); /* the other one may be done in a moment */
}
END_TEST

START_TEST(one_that_has_nothing_to_let_pass_is_not_asked_all_the_time) {
  stop_and_count();
  say_stopped(A0, 1000000, false);
  say_stopped(A1, 2000, true);
  say_stopped(A2, 1000000, false);
  pass_answering(A1, 2000, NS_PER_S);
  ck_assert_uint_ge(told[A1].passes, 3);
  ck_assert_uint_le(told[A1].passes, 100);
}
END_TEST

/* Members need not submit the same numbers of calls: the one that is behind by that count has none, and
 * another one has. */
START_TEST(if_that_does_not_help_others_let_some_pass) {
  stop_and_count();
  say_stopped(A0, 5000, false);
  say_stopped(A1, 2000, true);
  say_stopped(A2, 5000, true);
  pass_answering(A1, 2000, NS_PER_S);
  ck_assert_uint_ge(told[A2].passes, 1);
}
END_TEST

/* Each has submitted what ends only with something that another one holds back. */
START_TEST(if_nobody_finishes_all_come_to_the_same_place) {
  stop_and_count();
  say_stopped(A0, 1500, false);
  say_stopped(A1, 1510, false);
  say_stopped(A2, 1510, false);
  pass(30 * NS_PER_MS);
  for (int i = A0; i <= A2; i++)
    ck_assert_uint_eq(told[i].pass_calls, 1511);
}
END_TEST

/* It waits for the GPU, not at its gate: more would only be let through later, when nobody needs it. */
START_TEST(who_has_not_come_so_far_as_it_may_is_not_let_any_further) {
  stop_and_count();
  for (int i = A0; i <= A2; i++)
    say_stopped(i, 1500, false);
  pass(30 * NS_PER_MS);
  for (int round = 0; round < 20; round++) {
    say_stopped(A0, told[A0].pass_calls, false);
    say_stopped(A1, 1500, false);
    say_stopped(A2, 1500, false);
    pass(400 * NS_PER_MS / 20);
  }
  ck_assert_uint_ge(told[A0].passes, 5);
  ck_assert_uint_gt(told[A0].pass_calls, 1510);
  ck_assert_uint_eq(told[A1].pass_calls, 1501);
  ck_assert_uint_eq(told[A2].pass_calls, 1501);
}
END_TEST

static void expect_let_pass(int i, uint64_t calls) {
  unsigned passes = told[i].passes;
  for (int ms = 0; ms < 400 && told[i].passes == passes; ms++)
    pass(NS_PER_MS);
  ck_assert_uint_eq(told[i].passes, passes + 1);
  ck_assert_uint_eq(told[i].pass_calls, calls);
}

/* Nobody knows who is behind. What the one lets through is too much, by which the other one is behind. */
START_TEST(who_turns_out_to_be_behind_lets_half_of_it_through) {
  stop_gang(GS_ATTACH_MANAGED);
  say_stopped(A0, 1500, false);
  say_stopped(A2, 70, false);
  uint64_t calls = 1000;
  for (uint64_t more = 1; more <= 16; more *= 2) {
    say_stopped(A1, calls, true);
    expect_let_pass(A1, calls + more);
    calls += more;
  }
  say_stopped(A1, calls, false);
  say_stopped(A0, 1500, true);
  expect_let_pass(A0, 1508);
  say_stopped(A0, 1508, true);
  expect_let_pass(A0, 1512);
}
END_TEST

/* Who rests, and is needed by the others: nobody tells it that others wait, or it would give way. */
START_TEST(one_that_joins_a_gang_does_not_give_way_when_it_rests) {
  for (int i = A0; i <= B2; i++)
    come(i, GS_ATTACH_MANAGED);
  join(A0);
  request(A0);
  activate(A0);
  request(B0);
  ck_assert(told[A0].wanted);
  join(A1);
  ck_assert(!told[A0].wanted);
}
END_TEST

/* One holds its GPU; somebody else the other one's, to which it comes late. */
static void come_late(uint32_t flags) {
  for (int i = A0; i <= B2; i++)
    come(i, flags);
  join(A0);
  request(A0);
  request(B1);
  activate(A0);
  activate(B1);
  join(A1);
  request(B0);
}

/* What the first has submitted may wait for what the other one cannot submit. */
START_TEST(who_comes_late_has_its_place_at_once) {
  come_late(GS_ATTACH_MANAGED);
  ck_assert_uint_eq(told[B1].drops, 0);
  request(A1);
  ck_assert_uint_eq(told[B1].drops, 1);
  pass(TQ_NS);
  ck_assert_uint_eq(told[A0].drops, 0); /* nor is the first told to stop meanwhile */
  release(B1);
  ck_assert(told[A1].holds);
  request(B1);
  pass(2 * TQ_NS); /* but then both, together */
  ck_assert(told[A0].together && told[A1].together);
}
END_TEST

START_TEST(an_opportunistic_one_waits_for_others_all_the_same) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .class = GS_CLASS_OPPORTUNISTIC};
  come_late(GS_ATTACH_MANAGED);
  scheduler_set_terms(&jobs[A1], &terms, now_ns, &change);
  request(A1);
  pass(TQ_NS);
  ck_assert_uint_eq(told[B1].drops, 0);
}
END_TEST

/* It comes when the first has been told to stop already. */
static void check_latecomer(uint32_t flags) {
  come_late(flags);
  pass(TQ_NS);
  ck_assert_uint_ge(told[A0].drops, 1);
  request(A1);
  for (int i = 0; i < 10 && !told[A1].holds; i++) {
    if (told[B1].drops) {
      release(B1);
      request(B1);
    }
    pass(GRACE_NS);
  }
  ck_assert(told[A1].holds);
}

START_TEST(a_member_that_waits_need_not_wait_for_one_that_does_not_answer) {
  check_latecomer(GS_ATTACH_MANAGED);
}
END_TEST

START_TEST(nor_if_its_memory_has_no_page_faults) { check_latecomer(0); }
END_TEST

/* It has done what it was told. */
START_TEST(who_has_stopped_is_not_blamed_for_one_that_has_not) {
  stop_gang(GS_ATTACH_MANAGED);
  say_stopped(A0, 10, true);
  pass_answering(A0, 10, GRACE_NS + NS_PER_MS);
  ck_assert_uint_eq(told[A1].bypassed, 1);
  ck_assert_uint_eq(told[A0].bypassed, 0);
  ck_assert(!told[A0].together);
}
END_TEST

/* ---- two gangs for whom there was room, and that grow ---- */

static struct sched_gang rivals;

static void grow(int i, uint64_t bytes) {
  uint64_t granted_bytes;
  ck_assert_int_eq(scheduler_memory_request(&jobs[i], bytes, 0, now_ns, &change, &granted_bytes), 0);
  execute();
}

static void grow_on(int gpu, bool rivals_first) {
  grow(rivals_first ? B0 + gpu : A0 + gpu, CARD * 5 / 8);
  grow(rivals_first ? A0 + gpu : B0 + gpu, CARD * 5 / 8);
}

static void stop_alone(int i) {
  say_stopped(i, 10, true);
  release(i);
  request(i);
}

/* terms: of the one gang, or NULL. Turns begin on the one GPU: a member stops there, and the other goes on
 * until it waits for that one. */
static void begin_with_one_gpu(bool rivals_first, const struct sched_terms *terms) {
  scheduler_set_mode(&scheduler, NULL, GS_MODE_AUTO, now_ns, &change);
  gang_init(&rivals);
  for (int i = A0; i <= B1; i++)
    if (i % GPUS < 2)
      come(i, 0);
  join(A0);
  join(A1);
  for (int i = B0; i <= B1; i++)
    ck_assert(scheduler_join(&jobs[i], &rivals, now_ns, &change));
  for (int i = A0; i <= A1 && terms; i++)
    scheduler_set_terms(&jobs[i], terms, now_ns, &change);
  execute();
  grow_on(1, rivals_first);
}

/* So that one cannot stop without it: if turns begin there, too, its rival does, whoever is the last to grow.
 */
static void check_who_stops(int order) {
  set_up();
  begin_with_one_gpu(order & 1, NULL);
  ck_assert_uint_eq(told[A1].drops + told[B1].drops, 1);
  int loser = told[A1].drops ? A0 : B0, winner = loser == A0 ? B0 : A0;
  stop_alone(loser + 1);
  grow_on(0, order & 2);
  ck_assert_uint_eq(told[loser].drops, 0);
  ck_assert_uint_eq(told[winner].drops, 1);
  ck_assert(told[winner].together && told[winner + 1].together);
  for (int i = winner; i <= winner + 1; i++)
    say_stopped(i, 20, true);
  for (int i = winner; i <= winner + 1; i++)
    release(i);
  ck_assert(told[loser + 1].holds);
}

/* Its rivals are of the class standard: it stops before them on both GPUs. */
START_TEST(an_opportunistic_one_is_told_to_stop_all_the_same) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .class = GS_CLASS_OPPORTUNISTIC};
  begin_with_one_gpu(false, &terms);
  ck_assert_uint_eq(told[A1].drops, 1);
  stop_alone(A1);
  grow_on(0, true);
  ck_assert_uint_eq(told[A0].drops, 1);
  ck_assert_uint_eq(told[B0].drops, 0);
}
END_TEST

START_TEST(who_cannot_stop_alone_is_not_told_to) {
  for (int order = 0; order < 4; order++)
    check_who_stops(order);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {who_is_behind_lets_a_few_calls_pass_at_a_time,
                                one_that_has_nothing_to_let_pass_is_not_asked_all_the_time,
                                if_that_does_not_help_others_let_some_pass,
                                if_nobody_finishes_all_come_to_the_same_place,
                                who_has_not_come_so_far_as_it_may_is_not_let_any_further,
                                who_turns_out_to_be_behind_lets_half_of_it_through,
                                one_that_joins_a_gang_does_not_give_way_when_it_rests,
                                who_comes_late_has_its_place_at_once,
                                an_opportunistic_one_waits_for_others_all_the_same,
                                a_member_that_waits_need_not_wait_for_one_that_does_not_answer,
                                nor_if_its_memory_has_no_page_faults,
                                who_has_stopped_is_not_blamed_for_one_that_has_not,
                                who_cannot_stop_alone_is_not_told_to,
                                an_opportunistic_one_is_told_to_stop_all_the_same,
                                NULL};
  return suite_main("joint", tests, set_up, NULL);
}
