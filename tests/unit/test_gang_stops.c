/*
 * test_gang_stops.c - a gang of three that must stop, and the rivals for its GPUs: what each is told, step by
 * step.
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
enum { A0, A1, A2, B0, B1, B2, C0, C1, C2, JOBS };

/* What one has been told. */
struct told {
  bool holds, wanted;
  unsigned drops, bypassed, overdue;
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
  } else if (action->type == SCHED_TELL_LOCK_WANTED) {
    it->wanted = action->wanted;
  } else if (action->type == SCHED_TELL_DROP_LOCK) {
    it->drops++;
  } else if (action->type == SCHED_NOTE_BYPASSED) {
    it->bypassed++;
  } else if (action->type == SCHED_NOTE_OVERDUE) {
    it->overdue++;
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

static void release(int i) {
  told[i] = (struct told){.holds = false};
  scheduler_release(&jobs[i], &(struct sched_release){.epoch = jobs[i].epoch}, now_ns, &change);
  execute();
}

static void pass(uint64_t ns) {
  for (uint64_t end_ns = now_ns + ns; clock_goes_on(&scheduler, &now_ns, end_ns, &change);)
    execute();
}

/* The gang runs. */
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
}

static void expect_all_told(void) {
  for (int i = A0; i <= A2; i++)
    ck_assert_uint_eq(told[i].drops, 1);
}

/* Others wait for all GPUs, and its quantum is over. */
static void stop_gang(uint32_t flags) {
  run_gang(flags);
  for (int i = B0; i <= B2; i++)
    request(i);
  pass(TQ_NS);
  expect_all_told();
}

/* ---- all at once ---- */

/* Nobody waits for the other two GPUs. */
START_TEST(all_are_told_in_the_same_change) {
  run_gang(GS_ATTACH_MANAGED);
  request(B1);
  while (!told[A1].drops && clock_goes_on(&scheduler, &now_ns, now_ns + 2 * TQ_NS, &change))
    execute();
  expect_all_told();
}
END_TEST

START_TEST(so_they_are_if_one_is_paused) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .paused = true};
  run_gang(GS_ATTACH_MANAGED);
  scheduler_set_terms(&jobs[A2], &terms, now_ns, &change);
  execute();
  expect_all_told();
}
END_TEST

/* ---- each for itself ---- */

START_TEST(the_next_one_follows_who_has_stopped_at_once) {
  stop_gang(GS_ATTACH_MANAGED);
  for (int i = A0; i <= A2; i++) {
    release(i);
    for (int next = B0; next <= B2; next++)
      ck_assert_int_eq(told[next].holds, next - B0 <= i - A0);
  }
}
END_TEST

/* Nobody but the next one on its own GPU waits for it, and that no longer than the grace. */
static void be_silent_on_one_gpu(uint32_t flags) {
  stop_gang(flags);
  release(A0);
  release(A2);
  ck_assert(told[B0].holds && told[B2].holds);
  pass(GRACE_NS - NS_PER_MS);
  ck_assert_uint_eq(told[A1].bypassed + told[A1].overdue, 0);
  ck_assert(!told[B1].holds);
  pass(NS_PER_MS);
  ck_assert_uint_eq(told[A0].bypassed + told[A0].overdue + told[A2].bypassed + told[A2].overdue, 0);
}

/* Its fellows have their next turns meanwhile. */
static void expect_next_turn(void) {
  activate(B0);
  activate(B2);
  request(A0);
  pass(TQ_NS);
  release(B0);
  release(B2);
  ck_assert(told[A0].holds && told[A2].holds);
}

START_TEST(one_that_never_stops_is_passed_over_after_the_grace) {
  be_silent_on_one_gpu(GS_ATTACH_MANAGED);
  ck_assert_uint_eq(told[A1].bypassed, 1);
  ck_assert(told[B1].holds);
  expect_next_turn();
}
END_TEST

START_TEST(if_its_memory_has_no_page_faults_only_its_gpu_waits) {
  be_silent_on_one_gpu(0);
  ck_assert_uint_eq(told[A1].overdue, 1);
  ck_assert(!told[B1].holds);
  expect_next_turn();
  ck_assert(jobs[A0].steps && jobs[A2].steps); /* it may wait for what they submit */
  activate(A0);
  ck_assert_uint_eq(told[A0].drops, 0);
  release(A1); /* from then on they would run ahead */
  ck_assert(told[A0].drops == 1 && told[A2].drops == 1);
}
END_TEST

/* ---- who has part of the places ---- */

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
  pass(2 * TQ_NS); /* but then both */
  ck_assert(told[A0].drops == 1 && told[A1].drops == 1);
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

/* So its place is kept: if turns begin there, too, its rival stops, whoever is the last to grow. */
static void check_who_stops(int order) {
  set_up();
  begin_with_one_gpu(order & 1, NULL);
  ck_assert_uint_eq(told[A1].drops + told[B1].drops, 1);
  int loser = told[A1].drops ? A0 : B0, winner = loser == A0 ? B0 : A0;
  stop_alone(loser + 1);
  grow_on(0, order & 2);
  ck_assert_uint_eq(told[loser].drops, 0);
  ck_assert_uint_eq(told[winner].drops, 1);
  ck_assert_uint_eq(told[winner + 1].drops, 1);
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

START_TEST(who_is_needed_by_a_fellow_that_waits_is_not_told_to_stop) {
  for (int order = 0; order < 4; order++)
    check_who_stops(order);
}
END_TEST

/* ---- what a gang has claimed, and where it is owed a place ---- */

/* Its rivals hold; the members named have joined, and one has asked. */
static void wait_as_gang(int last) {
  for (int i = A0; i <= C2; i++)
    come(i, 0);
  grow(A1, CARD / 2);
  for (int i = B0; i <= B2; i++) {
    request(i);
    activate(i);
  }
  for (int i = A0; i <= last; i++)
    join(i);
}

static void claim(int last) {
  wait_as_gang(last);
  request(A0);
  pass(TQ_NS);
  ck_assert(gang.claims);
  ck_assert(told[B0].drops == 1 && told[B1].drops == 1);
}

static void stop_and_ask(int i) {
  release(i);
  request(i);
}

START_TEST(a_gang_that_cannot_come_any_more_has_claimed_nothing) {
  claim(A2);
  scheduler_set_capacity(&scheduler, &gpus[1], CARD / 4, now_ns, &change); /* A1 has more */
  execute();
  stop_and_ask(B0);
  ck_assert(told[B0].holds);
}
END_TEST

START_TEST(who_is_left_alone_has_claimed_nothing) {
  claim(A1);
  scheduler_detach(&jobs[A1], now_ns, &change);
  execute();
  ck_assert(!gang.claims);
  stop_and_ask(B0);
  ck_assert(told[A0].holds);
  activate(A0);
  pass(TQ_NS);
  ck_assert_uint_eq(told[A0].drops, 1);
}
END_TEST

/* It has waited by itself, and its turn has not come. */
START_TEST(who_joins_has_claimed_nothing) {
  scheduler_set_tq(&scheduler, &gpus[2], 10 * TQ_NS, now_ns, &change);
  claim(A1);
  request(A2);
  join(A2);
  ck_assert_uint_eq(told[B2].drops, 0);
  pass(9 * TQ_NS);
  ck_assert_uint_eq(told[B2].drops, 1);
}
END_TEST

/* One has yet to stop on a GPU on which no turns are taken any more. */
START_TEST(where_no_turns_are_taken_nobody_is_waited_for) {
  stop_gang(0);
  for (int i = A0; i <= A1; i++) {
    release(i);
    activate(B0 + i);
  }
  scheduler_set_mode(&scheduler, &gpus[2], GS_MODE_OFF, now_ns, &change);
  execute();
  ck_assert_int_eq(jobs[A2].state, GS_JOB_DROPPING);
  request(A0);
  pass(TQ_NS);
  ck_assert(told[B0].drops == 1 && told[B1].drops == 1);
}
END_TEST

/* On GPU 0 the gang is first, and C0 second. On GPU 1 a quantum takes long; C1 is first there, or nobody. */
static void wait_for_gpu_1(bool behind_another) {
  scheduler_set_tq(&scheduler, &gpus[1], 1000 * TQ_NS, now_ns, &change);
  wait_as_gang(A1);
  if (behind_another)
    request(C1);
  now_ns++;
  request(A0);
  now_ns++;
  request(C0);
  pass(2 * TQ_NS);
}

START_TEST(a_place_that_is_owed_nobody_else_takes) {
  wait_for_gpu_1(false);
  ck_assert(gpus[0].owed);
  ck_assert_uint_eq(told[B0].drops, 0);
}
END_TEST

/* But only if nothing is missing on the others than the end of a quantum. */
START_TEST(no_place_is_owed_to_a_gang_that_waits_for_others_turns) {
  wait_for_gpu_1(true);
  ck_assert(!gpus[0].owed);
  ck_assert_uint_eq(told[B0].drops, 1);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {all_are_told_in_the_same_change,
                                so_they_are_if_one_is_paused,
                                the_next_one_follows_who_has_stopped_at_once,
                                one_that_never_stops_is_passed_over_after_the_grace,
                                if_its_memory_has_no_page_faults_only_its_gpu_waits,
                                one_that_joins_a_gang_does_not_give_way_when_it_rests,
                                who_comes_late_has_its_place_at_once,
                                an_opportunistic_one_waits_for_others_all_the_same,
                                a_member_that_waits_need_not_wait_for_one_that_does_not_answer,
                                nor_if_its_memory_has_no_page_faults,
                                who_is_needed_by_a_fellow_that_waits_is_not_told_to_stop,
                                an_opportunistic_one_is_told_to_stop_all_the_same,
                                a_gang_that_cannot_come_any_more_has_claimed_nothing,
                                who_is_left_alone_has_claimed_nothing,
                                who_joins_has_claimed_nothing,
                                where_no_turns_are_taken_nobody_is_waited_for,
                                a_place_that_is_owed_nobody_else_takes,
                                no_place_is_owed_to_a_gang_that_waits_for_others_turns,
                                NULL};
  return suite_main("gang_stops", tests, set_up, NULL);
}
