/* test_share.c - a job in a part of the time (share.c), and what a watched one tells of itself (progress.c):
 * the rules, in one thread, with the times as the test sets them. */
#include <check.h>

#include <time.h>

#include "../suite.h"
#include "client/progress.h"
#include "common/clock.h"
#include "common/thread.h"

#define played_assert ck_assert
#include "played_library.h"

static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time) {
  *time = (struct timespec){.tv_sec = (time_t)(now_ns / NS_PER_S), .tv_nsec = (long)(now_ns % NS_PER_S)};
  return clock == CLOCK_MONOTONIC ? 0 : -1;
}

static unsigned threads;
int __wrap_thread_start_needed(void *(*body)(void *), void *argument);
int __wrap_thread_start_needed(void *(*body)(void *), void *argument) {
  threads += body && !argument;
  return 0;
}

static struct gs_msg said;
static unsigned messages, breaks;

void __wrap_post_send(const struct gs_msg *msg);
void __wrap_post_send(const struct gs_msg *msg) {
  breaks += msg->progress.mark_active_ns < said.progress.mark_active_ns;
  said = *msg;
  messages++;
}

static struct gpu *gpu;

static void set_up(void) {
  gpu = client_gpu(0);
  now_ns = NS_PER_S;
  verdict = PREEMPT_YES;
  lock_take(&client.lock);
  client.started = client.connected = gpu->used = gpu->machine.attached = gpu->machine.holding = true;
  gate_opened = true;
  gpu->turned_ns = now_ns;
}

static void tear_down(void) { lock_release(&client.lock); }

#define STEP_NS (NS_PER_MS / 50)

/* What is due until then; returns for how long it has stood still. */
static uint64_t pass(uint64_t ns) {
  uint64_t still_ns = 0;
  for (uint64_t passed = 0; passed < ns; passed += STEP_NS) {
    if (share_step_due(gpu, now_ns))
      share_step(gpu);
    still_ns += stands_still || !gate_opened ? STEP_NS : 0;
    now_ns += STEP_NS;
  }
  return still_ns;
}

/* ---- shares ---- */

START_TEST(a_job_that_is_told_nothing_runs) {
  ck_assert_uint_eq(pass(NS_PER_S), 0);
  ck_assert_uint_eq(share_next_ns(gpu), UINT64_MAX);
  share_take(gpu, GS_SHARE_ALL);
  ck_assert_uint_eq(pass(NS_PER_S), 0);
  ck_assert_uint_eq(stops, 0);
}
END_TEST

START_TEST(a_share_of_nothing_stops_it_at_once_and_for_good) {
  share_take(gpu, 0);
  ck_assert_uint_eq(pass(NS_PER_S), NS_PER_S);
  ck_assert(stops == 1 && gate_opened && gpu->machine.holding);
  ck_assert_uint_eq(share_next_ns(gpu), UINT64_MAX);
  share_take(gpu, GS_SHARE_ALL);
  ck_assert_uint_eq(pass(NS_PER_S), 0);
}
END_TEST

START_TEST(it_runs_for_its_share_of_the_time) {
  static const uint32_t shares_ppm[] = {20000, 100000, 500000, 900000};
  for (unsigned i = 0; i < 4; i++) {
    share_take(gpu, shares_ppm[i]);
    double ran = 1 - (double)pass(20 * NS_PER_S) / (20.0 * NS_PER_S);
    ck_assert_double_eq_tol(ran, shares_ppm[i] / 1e6, 0.02);
  }
}
END_TEST

/* They cost others time. */
START_TEST(stops_are_rare) {
  static const uint32_t shares_ppm[] = {20000, 100000, 500000, 900000};
  static const unsigned most[] = {11, 51, 51, 51};
  for (unsigned i = 0; i < 4; i++) {
    unsigned before = stops;
    share_take(gpu, shares_ppm[i]);
    pass(NS_PER_S);
    ck_assert_uint_le(stops - before, most[i]);
  }
}
END_TEST

/* As long as it has run as it liked. */
START_TEST(earlier_runs_are_no_debt) {
  now_ns += UINT64_C(7200) * NS_PER_S;
  share_take(gpu, 0);
  pass(100 * NS_PER_MS);
  ck_assert(stands_still);
  share_take(gpu, 200000);
  ck_assert_uint_le(pass(100 * NS_PER_MS), 90 * NS_PER_MS);
  share_take(gpu, GS_SHARE_ALL);
  now_ns += UINT64_C(7200) * NS_PER_S;
  share_take(gpu, 100000);
  ck_assert_uint_le(pass(100 * NS_PER_MS), 95 * NS_PER_MS);
}
END_TEST

/* It has been told a share, or many of them, and the stop takes long. */
START_TEST(no_rest_is_for_longer_than_a_second_s_run) {
  verdict = PREEMPT_NO;
  share_take(gpu, 500000);
  endless = true;
  pass(NS_PER_S * 19 / 10);
  endless = false;
  ck_assert_uint_le(pass(2 * NS_PER_S), NS_PER_S * 9 / 5);
}
END_TEST

/* What is recorded may need calls that are not; where work is stopped, it does not matter. */
START_TEST(no_gate_shuts_while_anything_captures) {
  verdict = PREEMPT_NO;
  captures_open = 1;
  share_take(gpu, 0);
  ck_assert_uint_eq(pass(100 * NS_PER_MS), 0);
  captures_open = 0;
  ck_assert_uint_ge(pass(100 * NS_PER_MS), 95 * NS_PER_MS);
  share_take(gpu, GS_SHARE_ALL);
  pass(NS_PER_MS);
  verdict = PREEMPT_YES;
  captures_open = 1;
  share_take(gpu, 0);
  ck_assert_uint_ge(pass(100 * NS_PER_MS), 95 * NS_PER_MS);
}
END_TEST

/* What does not finish may wait for a thread behind the gate. */
START_TEST(what_does_not_finish_goes_on) {
  verdict = PREEMPT_NO;
  share_take(gpu, 0);
  endless = true;
  pass(NS_PER_S);
  ck_assert(!gate_opened);
  bool opened = false;
  for (int i = 0; i < 2000 && !opened; i++) {
    pass(NS_PER_MS);
    opened = gate_opened;
  }
  ck_assert(opened);
}
END_TEST

/* A call that waits in the driver for work has it go on, and none stops until it is over. */
START_TEST(a_call_that_waits_for_work_has_it_go_on) {
  share_take(gpu, 0);
  pass(NS_PER_MS);
  ck_assert(stands_still);
  forbidden = true;
  ck_assert(share_step_due(gpu, now_ns));
  pass(5 * NS_PER_MS);
  ck_assert(!stands_still);
  forbidden = false;
  pass(5 * NS_PER_MS);
  ck_assert(stands_still);
}
END_TEST

START_TEST(a_new_share_is_obeyed_while_it_rests) {
  share_take(gpu, 1000); /* 2 ms in 2 s */
  pass(10 * NS_PER_MS);
  ck_assert(stands_still);
  share_take(gpu, 900000);
  pass(NS_PER_MS);
  ck_assert(!stands_still);
}
END_TEST

START_TEST(without_a_turn_or_a_daemon_there_are_no_shares) {
  share_take(gpu, 0);
  gpu->machine.holding = false;
  ck_assert_uint_eq(pass(NS_PER_S), 0);
  gpu->machine.holding = gpu->machine.grant_pending = true;
  ck_assert_uint_eq(pass(NS_PER_S), 0);
  gpu->machine.grant_pending = false;
  ck_assert_uint_eq(pass(NS_PER_S), NS_PER_S);
  client.connected = false;
  ck_assert_uint_eq(pass(NS_PER_S), 0);
}
END_TEST

START_TEST(a_stop_that_is_forbidden_comes_later) {
  forbidden = true;
  share_take(gpu, 0);
  ck_assert_uint_eq(pass(5 * NS_PER_MS), 0);
  forbidden = false;
  ck_assert_uint_ge(pass(10 * NS_PER_MS), 8 * NS_PER_MS);
}
END_TEST

/* What it has queued counts as its time. */
START_TEST(where_nothing_can_be_stopped_the_gate_is_shut) {
  verdict = PREEMPT_NO;
  share_take(gpu, 500000);
  endless = true;
  pass(15 * NS_PER_MS);
  ck_assert(!gate_opened && stops == 0);
  pass(85 * NS_PER_MS);
  ck_assert(!gate_opened); /* it runs, all the time */
  endless = false;
  pass(90 * NS_PER_MS);
  ck_assert(!gate_opened); /* for as long as it ran */
  pass(11 * NS_PER_MS);
  ck_assert(gate_opened);
}
END_TEST

START_TEST(it_goes_on_for_what_needs_that) {
  share_take(gpu, 0);
  pass(NS_PER_MS);
  ck_assert(stands_still);
  share_go_on(gpu);
  ck_assert(!stands_still);
  pass(NS_PER_MS);
  ck_assert(stands_still);
}
END_TEST

/* ---- giving way in pauses ---- */

static struct sight sight_now(void) { return (struct sight){.now_ns = now_ns, .needed = true}; }

/* It is granted the GPU, where its memory takes so long to come, and gives it up in a pause, which then goes
 * on for so long. Returns how long the next one must last. */
static uint64_t turn(uint64_t restore_ns, uint64_t rest_ns) {
  struct machine *machine = &gpu->machine;
  struct orders orders = {0};
  struct gs_msg granted = wire_msg(GS_LOCK_OK, 0), wanted = wire_msg(GS_LOCK_WANTED, 0);
  granted.epoch = wanted.epoch = machine->epoch + 1;
  struct sight sight = sight_now();
  machine_hear(machine, &granted, &sight, &orders);
  now_ns += restore_ns;
  sight = sight_now();
  machine_tried(machine, true, &sight, &orders);
  machine_hear(machine, &wanted, &sight, &orders);
  machine_idle(machine, machine->epoch, machine->generation, now_ns, &orders);
  machine_begin_release(machine);
  sight.needed = false;
  machine_end_release(machine, 0, &sight, &orders);
  now_ns += rest_ns;
  sight = sight_now();
  machine_want(machine, &sight, &orders);
  return machine_patience_ns(machine);
}

#define COST_NS (100 * NS_PER_MS)

START_TEST(who_pauses_for_long_gives_way_at_once) {
  ck_assert_uint_eq(turn(COST_NS, NS_PER_S), 25 * NS_PER_MS);
  for (int i = 0; i < 3; i++)
    turn(COST_NS, NS_PER_S);
  ck_assert_uint_eq(turn(COST_NS, NS_PER_S), NS_PER_MS / 2);
}
END_TEST

/* A pause that is shorter than a hand-over is not worth one. */
START_TEST(who_pauses_shortly_is_let_be) {
  ck_assert_uint_eq(turn(COST_NS, 10 * NS_PER_MS), COST_NS);
  gpu->machine.patience = (struct patience){0};
  for (int i = 0; i < 5; i++)
    turn(COST_NS, NS_PER_S);
  ck_assert_uint_eq(turn(COST_NS, 10 * NS_PER_MS), 21 * NS_PER_MS);
  gpu->machine.patience = (struct patience){0};
  turn(COST_NS, 40 * NS_PER_MS); /* it had lasted 100 ms before: nothing to remember */
  ck_assert_uint_eq(turn(COST_NS, NS_PER_S), 25 * NS_PER_MS);
}
END_TEST

/* Servers that are asked by turns. */
START_TEST(pauses_about_as_long_as_a_hand_over_are_believed) {
  for (int i = 0; i < 4; i++)
    turn(COST_NS, i % 2 ? 90 * NS_PER_MS : 110 * NS_PER_MS);
  ck_assert_uint_le(machine_patience_ns(&gpu->machine), NS_PER_MS);
}
END_TEST

/* Of pauses of either kind, few of the short ones are believed. */
START_TEST(short_pauses_are_remembered_among_long_ones) {
  uint64_t waited_ns = 0;
  unsigned mistakes = 0, long_ones = 0;
  for (unsigned i = 0; i < 1000; i++) {
    uint64_t pause_ns = i % 10 ? 3 * NS_PER_MS : NS_PER_S, patience_ns = machine_patience_ns(&gpu->machine);
    if (pause_ns <= patience_ns)
      continue;
    mistakes += i % 10 > 0;
    long_ones += i % 10 == 0;
    waited_ns += patience_ns;
    turn(COST_NS, pause_ns - patience_ns);
  }
  ck_assert_uint_eq(long_ones, 100);
  ck_assert_uint_ge(mistakes, 2); /* it is tried again */
  ck_assert_uint_le(mistakes, 8);
  ck_assert_uint_le(waited_ns, 8 * COST_NS);
}
END_TEST

/* A hand-over that moved nothing says little of the next one. */
START_TEST(what_a_hand_over_costs_is_not_forgotten_at_once) {
  turn(COST_NS, 0);
  ck_assert_uint_eq(turn(0, 0), COST_NS / 2);
  for (int i = 0; i < 20; i++)
    turn(0, 0);
  ck_assert_uint_eq(machine_patience_ns(&gpu->machine), 2 * NS_PER_MS);
}
END_TEST

/* ---- progress ---- */

static bool is_active(void) { return said.progress.flags & GS_PROGRESS_ACTIVE; }

/* It submits, or not, and its thread looks. */
static void live(uint64_t ns, uint64_t calls_per_look) {
  for (uint64_t passed = 0; passed < ns; passed += NS_PER_MS / 4) {
    if (calls_per_look && told_of) {
      lock_release(&client.lock);
      client_submits(0);
      lock_take(&client.lock);
    }
    calls_made += calls_per_look;
    now_ns += NS_PER_MS / 4;
    progress_look();
  }
}

START_TEST(only_a_watched_job_tells) {
  live(NS_PER_S, 1);
  ck_assert(messages == 0 && threads == 0);
  progress_watch(gpu, GS_WATCH_PROGRESS);
  ck_assert(messages == 1 && said.type == GS_PROGRESS && is_active() && threads == 1);
  live(NS_PER_S, 1);
  ck_assert_uint_ge(messages, 40);
  ck_assert_uint_le(messages, 52);
  ck_assert_uint_eq(said.progress.submissions, calls_made);
  progress_watch(gpu, GS_WATCH_NOT);
  unsigned before = messages;
  live(NS_PER_S, 1);
  ck_assert(messages == before && !told_of);
}
END_TEST

START_TEST(of_some_only_whether_they_work_is_told) {
  progress_watch(gpu, GS_WATCH_WORK);
  ck_assert(messages == 1 && is_active());
  live(NS_PER_S, 1);
  ck_assert_uint_eq(messages, 1);
  live(NS_PER_S, 0);
  ck_assert(messages == 2 && !is_active());
  live(NS_PER_MS, 1);
  ck_assert(messages == 3 && is_active());
}
END_TEST

/* Neither does it get on, nor has it finished; what it had finished before, it has. */
START_TEST(what_rests_by_its_share_tells_nothing_new) {
  progress_watch(gpu, GS_WATCH_WORK);
  endless = true;
  live(10 * NS_PER_MS, 1);
  gpu->rest = 1;
  endless = false;
  live(NS_PER_S, 0);
  ck_assert(messages == 1 && is_active());
  for (int i = 0; i < 30; i++) { /* 60 ms */
    gpu->rest = 0;
    live(2 * NS_PER_MS, 0);
    gpu->rest = 1;
    live(18 * NS_PER_MS, 0);
  }
  gpu->rest = 0;
  ck_assert(!is_active());
}
END_TEST

START_TEST(an_end_and_a_return_are_told_at_once) {
  progress_watch(gpu, GS_WATCH_PROGRESS);
  endless = true;
  live(10 * NS_PER_MS, 1);
  live(NS_PER_S, 0); /* it waits for the GPU, and the GPU works */
  ck_assert(is_active() && !told_of);
  endless = false;
  live(42 * NS_PER_MS, 0); /* nothing is known of its pauses yet */
  ck_assert(!is_active() && told_of);
  uint64_t active_ns = said.progress.active_ns;
  ck_assert_uint_ge(active_ns, NS_PER_S + 9 * NS_PER_MS);
  ck_assert_uint_le(active_ns, NS_PER_S + 12 * NS_PER_MS);
  unsigned before = messages;
  live(NS_PER_S, 0);
  ck_assert_uint_eq(messages, before);
  lock_release(&client.lock);
  client_submits(0);
  lock_take(&client.lock);
  ck_assert(messages == before + 1 && is_active() && !told_of);
  ck_assert_uint_eq(said.progress.active_ns, active_ns);
}
END_TEST

/* Pauses of 2 ms, 20 times: it is believed to go on; a long pause is seen as soon as ever after some. */
START_TEST(short_pauses_are_not_believed) {
  unsigned before = 0;
  progress_watch(gpu, GS_WATCH_PROGRESS);
  for (int i = 0; i < 40; i++) {
    before = i == 20 ? messages : before;
    live(NS_PER_MS, 1);
    live(2 * NS_PER_MS, 0);
  }
  ck_assert(is_active());
  ck_assert_uint_le(messages - before, 5); /* each 20 ms, no ends */
  for (int i = 0; i < 10; i++) {
    live(NS_PER_MS, 1);
    live(60 * NS_PER_MS, 0);
    ck_assert(!is_active());
  }
  live(NS_PER_MS, 1);
  ck_assert(is_active());
  live(NS_PER_MS, 0);
  ck_assert(!is_active());
}
END_TEST

/* Long ones have taught it to believe at once; some mistakes later it does not. */
START_TEST(a_pause_that_was_believed_and_was_short_is_remembered) {
  progress_watch(gpu, GS_WATCH_PROGRESS);
  for (int i = 0; i < 8; i++) {
    live(NS_PER_MS, 1);
    live(60 * NS_PER_MS, 0);
  }
  live(NS_PER_MS, 1);
  live(NS_PER_MS, 0);
  ck_assert(!is_active());
  for (int i = 0; i < 10; i++) {
    live(NS_PER_MS, 1);
    live(2 * NS_PER_MS, 0);
  }
  ck_assert(is_active());
}
END_TEST

/* One that has begun while another one was looked at is looked at before the thread sleeps. */
START_TEST(who_has_begun_is_looked_at_at_once) {
  progress_watch(gpu, GS_WATCH_PROGRESS);
  ck_assert_uint_eq(progress_look(), 0);
  ck_assert_uint_gt(progress_look(), now_ns);
  live(60 * NS_PER_MS, 0);
  ck_assert(!is_active());
  ck_assert_uint_eq(progress_look(), UINT64_MAX);
  lock_release(&client.lock);
  client_submits(0);
  lock_take(&client.lock);
  ck_assert_uint_eq(progress_look(), 0);
}
END_TEST

/* As those of a server that answers 40 requests a second. */
START_TEST(pauses_of_a_server_are_soon_believed) {
  progress_watch(gpu, GS_WATCH_PROGRESS);
  for (int i = 0; i < 10; i++) {
    live(5 * NS_PER_MS, 1);
    live(20 * NS_PER_MS, 0);
  }
  live(5 * NS_PER_MS, 1);
  ck_assert(is_active());
  live(NS_PER_MS, 0);
  ck_assert(!is_active());
}
END_TEST

/* Iterations of 100 submissions and 25 ms. */
START_TEST(marks_are_whole_iterations_apart) {
  progress_watch(gpu, GS_WATCH_PROGRESS);
  endless = true;
  uint64_t submissions = 0, active_ns = 0;
  for (int i = 0; i < 20; i++) {
    live(5 * NS_PER_MS, 5);
    live(20 * NS_PER_MS, 0);
    if (i == 9) {
      submissions = said.progress.mark_submissions;
      active_ns = said.progress.mark_active_ns;
    }
  }
  ck_assert_uint_gt(said.progress.mark_submissions, submissions);
  ck_assert_uint_eq(submissions % 100, 0); /* at its beginning, not at any submission */
  ck_assert_uint_eq((said.progress.mark_submissions - submissions) % 100, 0);
  uint64_t iterations = (said.progress.mark_submissions - submissions) / 100;
  ck_assert_uint_eq(said.progress.mark_active_ns - active_ns, iterations * 25 * NS_PER_MS);
}
END_TEST

/* What the daemon has heard of before it is void, which it sees by counters that go back. */
START_TEST(a_break_is_told_before_the_next_mark) {
  progress_watch(gpu, GS_WATCH_PROGRESS);
  endless = true;
  ck_assert(said.progress.mark_submissions == 0 && said.progress.mark_active_ns == 0);
  for (int i = 0; i < 40; i++) {
    live(2 * NS_PER_MS, i < 20 ? 5 : 9);
    live(6 * NS_PER_MS, 0);
  }
  ck_assert_uint_eq(breaks, 2); /* a period is found, and another one */
  ck_assert_uint_eq((said.progress.mark_submissions - 20 * 40) % 72, 0);
}
END_TEST

/* The host has a pause within each, too. */
START_TEST(a_pause_within_an_iteration_is_no_mark) {
  progress_watch(gpu, GS_WATCH_PROGRESS);
  endless = true;
  for (int i = 0; i < 40; i++) {
    live(5 * NS_PER_MS, 5);
    live(3 * NS_PER_MS, 0);
    live(5 * NS_PER_MS, 5);
    live((i < 20 ? 15 : 7) * NS_PER_MS, 0);
    ck_assert(i < 2 || said.progress.mark_submissions % 200 == 0);
  }
  ck_assert_uint_ge(said.progress.mark_submissions, 38 * 200);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_job_that_is_told_nothing_runs,
                                a_share_of_nothing_stops_it_at_once_and_for_good,
                                it_runs_for_its_share_of_the_time,
                                stops_are_rare,
                                earlier_runs_are_no_debt,
                                no_rest_is_for_longer_than_a_second_s_run,
                                no_gate_shuts_while_anything_captures,
                                what_does_not_finish_goes_on,
                                a_call_that_waits_for_work_has_it_go_on,
                                a_new_share_is_obeyed_while_it_rests,
                                without_a_turn_or_a_daemon_there_are_no_shares,
                                a_stop_that_is_forbidden_comes_later,
                                where_nothing_can_be_stopped_the_gate_is_shut,
                                it_goes_on_for_what_needs_that,
                                who_pauses_for_long_gives_way_at_once,
                                who_pauses_shortly_is_let_be,
                                short_pauses_are_remembered_among_long_ones,
                                pauses_about_as_long_as_a_hand_over_are_believed,
                                what_a_hand_over_costs_is_not_forgotten_at_once,
                                only_a_watched_job_tells,
                                of_some_only_whether_they_work_is_told,
                                what_rests_by_its_share_tells_nothing_new,
                                an_end_and_a_return_are_told_at_once,
                                short_pauses_are_not_believed,
                                a_pause_that_was_believed_and_was_short_is_remembered,
                                who_has_begun_is_looked_at_at_once,
                                pauses_of_a_server_are_soon_believed,
                                marks_are_whole_iterations_apart,
                                a_break_is_told_before_the_next_mark,
                                a_pause_within_an_iteration_is_no_mark,
                                NULL};
  return suite_main("share", tests, set_up, tear_down);
}
