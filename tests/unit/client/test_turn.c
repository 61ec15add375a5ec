/* test_turn.c - when a turn begins to be paced, which iteration it ends with, and what is learnt for the
 * next. */
#include <check.h>

#include "../suite.h"
#include "client/client.h"
#include "client/state.h"
#include "common/clock.h"
#include "gate/ends.h"
#include "gate/gate.h"
#include "gate/pace.h"
#include "preempt/preempt.h"
#include "settings.h"

#define MS NS_PER_MS
#define QUANTUM (10 * NS_PER_S)
#define NEVER UINT64_MAX

/* ---- the rest of the library ---- */

struct client client = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct settings set;
static enum gate_pace pace;
static uint32_t room_waits;
static bool watched, behind, held_back;
static uint64_t next_end_ns, caught_up_ns;
static unsigned drops, rounds;

const struct settings *settings(void) { return &set; }
static enum preempt_verdict verdict = PREEMPT_NO;
enum preempt_verdict preempt_verdict(int device) { return device == 0 ? verdict : PREEMPT_NO; }
uint32_t gate_waits(CUdevice device, uint32_t what) {
  return device == 0 && what == GATE_WAIT_ROOM ? room_waits : 0;
}
void gate_set_pace(CUdevice device, enum gate_pace new) {
  ck_assert_int_eq(device, 0);
  pace = new;
}
enum gate_pace gate_pace(CUdevice device) { return device == 0 ? pace : GATE_FREE; }
void pace_begin(CUdevice device, uint64_t now_ns) { rounds += device == 0 && now_ns; }
uint64_t pace_caught_up_ns(CUdevice device) { return device == 0 ? caught_up_ns : 0; }
bool pace_is_behind(CUdevice device) { return device == 0 && behind; }
bool pace_held_back(CUdevice device) { return device == 0 && held_back; }
void ends_watch(CUdevice device, bool watch) { watched = device == 0 && watch; }
uint64_t ends_next_ns(CUdevice device, uint64_t now_ns) {
  return device == 0 && now_ns ? next_end_ns : NEVER;
}
void client_wake(void) {}
struct gpu *client_gpu(CUdevice device) {
  return &client.gpus[device];
}
void handover_order_drop(struct gpu *gpu) {
  gpu->drop_pending = true;
  drops++;
}

/* ---- a turn ---- */

static struct gpu *const gpu = client.gpus;
static uint64_t begun_ns;

/* It begins `ago_ns` ago. */
static void begin(uint64_t ago_ns, bool wanted) {
  pace = GATE_FREE;
  begun_ns = clock_now_ns() - ago_ns;
  gpu->holding = true;
  gpu->drop_pending = gpu->wanted = false;
  turn_take(gpu, QUANTUM);
  turn_begin(gpu, begun_ns);
  if (wanted)
    turn_expect_end(gpu, QUANTUM, begun_ns);
}

static uint64_t check_after(uint64_t ns) { return turn_check(gpu, begun_ns + ns); }

/* A whole one, after which it is known how much was queued when it began to be paced. */
static void play_turn(uint64_t backlog_ns) {
  begin(0, true);
  caught_up_ns = backlog_ns;
  check_after(QUANTUM);
  turn_end(gpu, 0);
}

/* How long before the end. */
static uint64_t paced_for_ns(void) {
  begin(0, true);
  uint64_t next_ns = check_after(0);
  return pace == GATE_PACED ? QUANTUM : begun_ns + QUANTUM - next_ns;
}

static void set_up(void) {
  *gpu = (struct gpu){.device = 0};
  set.pace = true;
  verdict = PREEMPT_NO;
  watched = behind = held_back = false;
  next_end_ns = NEVER;
  caught_up_ns = drops = rounds = 0;
  room_waits = 0;
}

static void tear_down(void) {}

START_TEST(nothing_happens_while_nobody_waits) {
  begin(0, false);
  ck_assert_uint_eq(check_after(QUANTUM), NEVER);
  ck_assert(!watched);
  ck_assert_int_eq(pace, GATE_FREE);
}
END_TEST

START_TEST(work_that_can_be_stopped_is_not_paced) {
  verdict = PREEMPT_YES;
  begin(0, true);
  ck_assert_uint_eq(check_after(QUANTUM), NEVER);
  ck_assert(!watched);
  ck_assert_int_eq(pace, GATE_FREE);
  ck_assert(!turn_holds_back(gpu, begun_ns + QUANTUM));
}
END_TEST

START_TEST(nothing_happens_where_it_is_not_wanted_or_the_end_is_unknown) {
  set.pace = _i == 1;
  begin(0, true);
  turn_expect_end(gpu, _i == 0 ? QUANTUM : GS_LEFT_UNKNOWN, begun_ns);
  ck_assert_uint_eq(check_after(QUANTUM), NEVER);
  ck_assert_uint_eq(rounds, 0);
}
END_TEST

START_TEST(it_is_paced_near_its_end) {
  begin(0, true);
  uint64_t pace_at_ns = check_after(0);
  ck_assert(watched);
  ck_assert_int_eq(pace, GATE_FREE);
  ck_assert_uint_ge(pace_at_ns, begun_ns + QUANTUM - 2 * NS_PER_S);
  ck_assert_uint_ge(turn_check(gpu, pace_at_ns), begun_ns + QUANTUM);
  ck_assert_int_eq(pace, GATE_PACED);
  check_after(QUANTUM - 1);
  ck_assert_uint_eq(rounds, 1);
}
END_TEST

/* A twentieth, but as long as it takes to work off what is queued. */
START_TEST(it_is_paced_for_as_long_as_programs_need) {
  play_turn(10 * MS);
  ck_assert_uint_eq(paced_for_ns(), QUANTUM / 20);
  play_turn(2 * NS_PER_S);
  ck_assert_uint_eq(paced_for_ns(), 2500 * MS);
  play_turn(60 * NS_PER_S);
  ck_assert_uint_eq(paced_for_ns(), QUANTUM);
}
END_TEST

/* Paced from its beginning a program has queued nothing by then: that is no reason to let it do so next time.
 */
START_TEST(what_was_queued_is_remembered) {
  play_turn(60 * NS_PER_S);
  held_back = _i;
  begin(0, true);
  check_after(0);
  caught_up_ns = MS;
  turn_end(gpu, 0);
  bool remembered = paced_for_ns() == QUANTUM;
  ck_assert_int_eq(remembered, _i); /* it queues no more when nobody holds it back, either */
}
END_TEST

/* Before anybody waits, who would come too late to bound what is queued by then. */
START_TEST(it_is_paced_from_its_beginning_if_that_takes_as_long) {
  play_turn(60 * NS_PER_S);
  begin(0, false);
  ck_assert_int_eq(pace, GATE_PACED);
  uint64_t expect_by_ns = check_after(MS);
  ck_assert_uint_lt(expect_by_ns, begun_ns + QUANTUM);
  if (_i == 0)
    turn_expect_end(gpu, QUANTUM, begun_ns); /* somebody does */
  turn_check(gpu, expect_by_ns);
  ck_assert_int_eq(pace, _i == 0 ? GATE_PACED : GATE_FREE);
}
END_TEST

/* Its end becomes known a quantum before it, which is too late for who has queued more than that. */
START_TEST(it_is_paced_while_its_end_is_unknown_if_that_takes_as_long) {
  play_turn(_i == 0 ? 9 * NS_PER_S : 7 * NS_PER_S);
  begin(0, false);
  turn_end(gpu, 0); /* nobody has wanted it */
  begin(0, false);
  turn_expect_end(gpu, GS_LEFT_UNKNOWN, begun_ns);
  check_after(MS);
  ck_assert_int_eq(pace, _i == 0 ? GATE_PACED : GATE_FREE);
  unsigned begun = rounds;
  check_after(QUANTUM);
  turn_expect_end(gpu, QUANTUM, begun_ns + QUANTUM);
  check_after(QUANTUM);
  ck_assert_uint_eq(rounds, begun); /* the same pacing goes on */
  ck_assert_int_eq(pace, _i == 0 ? GATE_PACED : GATE_FREE);
  turn_expect_end(gpu, GS_LEFT_NOBODY, begun_ns + QUANTUM);
  check_after(QUANTUM);
  ck_assert_int_eq(pace, GATE_FREE);
}
END_TEST

/* It was granted before turns began: no quantum has been told. */
START_TEST(it_is_not_while_neither_its_end_nor_the_quantum_is_known) {
  play_turn(10 * MS);
  gpu->holding = true;
  gpu->drop_pending = false;
  turn_take(gpu, 0);
  turn_begin(gpu, begun_ns);
  turn_expect_end(gpu, GS_LEFT_UNKNOWN, begun_ns);
  check_after(MS);
  ck_assert_int_eq(pace, GATE_FREE);
  turn_expect_end(gpu, 10 * MS, begun_ns + MS);
  check_after(MS);
  ck_assert_int_eq(pace, GATE_PACED);
}
END_TEST

START_TEST(it_is_not_if_nobody_wanted_the_last_turn) {
  play_turn(60 * NS_PER_S);
  begin(0, false);
  turn_end(gpu, 0);
  begin(0, false);
  ck_assert_int_eq(pace, GATE_FREE);
}
END_TEST

START_TEST(a_drain_tells_what_was_not_worked_off) {
  bool was_long = _i > 0;
  behind = _i < 2;
  begin(7 * NS_PER_S, true);
  check_after(2 * NS_PER_S);
  ck_assert_int_eq(pace, GATE_FREE);
  gpu->turn_end_ns = begun_ns + 3 * NS_PER_S;
  check_after(3 * NS_PER_S); /* four seconds ago */
  turn_end(gpu, was_long ? 500 * MS : MS);
  bool learnt = paced_for_ns() >= 5 * NS_PER_S;
  ck_assert_int_eq(
      learnt, was_long && behind); /* else it was a stream that does nothing any more, or a long kernel */
}
END_TEST

START_TEST(another_quantum_goes_by_where_nobody_takes_its_place) {
  begin(0, true);
  check_after(QUANTUM);
  ck_assert_int_eq(pace, GATE_PACED);
  uint64_t next_ns = check_after(QUANTUM + NS_PER_S);
  ck_assert_int_eq(pace, GATE_FREE);
  ck_assert_uint_ge(next_ns, begun_ns + 2 * QUANTUM - 2 * NS_PER_S);
}
END_TEST

START_TEST(without_a_daemon_nobody_is_paced) {
  begin(0, true);
  check_after(QUANTUM);
  gpu->wanted = gpu->ends = false;
  check_after(QUANTUM);
  ck_assert_int_eq(pace, GATE_FREE);
}
END_TEST

/* ---- the ends of iterations ---- */

/* An iteration ends so long before the turn does, and the next one takes so long. */
static void end_iteration(uint64_t before_ns, uint64_t period_ns) {
  begin(QUANTUM - before_ns, true);
  next_end_ns = clock_now_ns() + period_ns;
  client_iteration_ended(0);
}

START_TEST(a_turn_ends_with_the_last_iteration_within_it) {
  end_iteration(QUANTUM / 25, QUANTUM / 20);
  ck_assert_uint_eq(drops, 1);
  ck_assert_int_eq(pace, GATE_HALTED);
}
END_TEST

START_TEST(a_turn_does_not_end_with_an_earlier_one) {
  end_iteration(QUANTUM / 15, QUANTUM / 10);  /* too early */
  end_iteration(QUANTUM / 25, QUANTUM / 100); /* another one comes */
  ck_assert_uint_eq(drops, 0);
  ck_assert_int_eq(pace, GATE_FREE);
}
END_TEST

START_TEST(a_turn_goes_on_while_it_allocates) {
  room_waits = 1;
  end_iteration(QUANTUM / 25, QUANTUM / 20);
  ck_assert_uint_eq(drops, 0);
}
END_TEST

START_TEST(an_end_of_an_iteration_ends_no_turn_that_nobody_waits_for) {
  begin(QUANTUM - MS, false);
  client_iteration_ended(0);
  ck_assert_uint_eq(drops, 0);
}
END_TEST

/* Fifty milliseconds at most. */
START_TEST(a_drop_waits_for_an_end_that_is_near) {
  begin(QUANTUM, true);
  uint64_t now_ns = clock_now_ns();
  ck_assert(!turn_holds_back(gpu, now_ns));
  next_end_ns = now_ns + 51 * MS;
  ck_assert(!turn_holds_back(gpu, now_ns));
  next_end_ns = now_ns + 49 * MS;
  ck_assert(turn_holds_back(gpu, now_ns));
  ck_assert_uint_eq(turn_check(gpu, now_ns + MS), now_ns + 50 * MS);
  ck_assert_uint_eq(drops, 0);
  if (_i)
    client_iteration_ended(0);
  else
    turn_check(gpu, now_ns + 50 * MS);
  ck_assert_uint_eq(drops, 1);
}
END_TEST

START_TEST(a_drop_is_forgotten_with_the_daemon_that_ordered_it) {
  begin(0, true);
  next_end_ns = begun_ns + 49 * MS;
  ck_assert(turn_holds_back(gpu, begun_ns));
  gpu->wanted = gpu->ends = false;
  check_after(MS);
  turn_expect_end(gpu, QUANTUM, begun_ns + NS_PER_S); /* the next daemon */
  check_after(NS_PER_S);
  ck_assert_uint_eq(drops, 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("turn");
  TCase *tests = tcase_create("turn");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, nothing_happens_while_nobody_waits);
  tcase_add_test(tests, work_that_can_be_stopped_is_not_paced);
  tcase_add_loop_test(tests, nothing_happens_where_it_is_not_wanted_or_the_end_is_unknown, 0, 2);
  tcase_add_test(tests, it_is_paced_near_its_end);
  tcase_add_test(tests, it_is_paced_for_as_long_as_programs_need);
  tcase_add_loop_test(tests, what_was_queued_is_remembered, 0, 2);
  tcase_add_loop_test(tests, it_is_paced_from_its_beginning_if_that_takes_as_long, 0, 2);
  tcase_add_loop_test(tests, it_is_paced_while_its_end_is_unknown_if_that_takes_as_long, 0, 2);
  tcase_add_test(tests, it_is_not_while_neither_its_end_nor_the_quantum_is_known);
  tcase_add_test(tests, it_is_not_if_nobody_wanted_the_last_turn);
  tcase_add_loop_test(tests, a_drain_tells_what_was_not_worked_off, 0, 3);
  tcase_add_test(tests, another_quantum_goes_by_where_nobody_takes_its_place);
  tcase_add_test(tests, without_a_daemon_nobody_is_paced);
  tcase_add_test(tests, a_turn_ends_with_the_last_iteration_within_it);
  tcase_add_test(tests, a_turn_does_not_end_with_an_earlier_one);
  tcase_add_test(tests, a_turn_goes_on_while_it_allocates);
  tcase_add_test(tests, an_end_of_an_iteration_ends_no_turn_that_nobody_waits_for);
  tcase_add_loop_test(tests, a_drop_waits_for_an_end_that_is_near, 0, 2);
  tcase_add_test(tests, a_drop_is_forgotten_with_the_daemon_that_ordered_it);
  suite_add_tcase(suite, tests);
  return suite_run(suite);
}
