/* test_rates.c - what jobs beside each other are told (SHARE), and what is said of opportunistic ones. */
#include "server/rates.h"

#include <string.h>

#include "common/clock.h"
#include "suite.h"

#define GUESTS 3
#define JOBS (GUESTS + 2)

static struct sched_gpu sched_gpu;
static struct sched_job sched_jobs[JOBS];
static struct rates rates;
static struct rates_job jobs[JOBS], *const production = &jobs[GUESTS], *const standard = &jobs[GUESTS + 1];
static unsigned told[JOBS];
static uint64_t now_ns, submissions, active_ns;

static const struct rates_job *frozen; /* it reads nothing */

static bool note_told(struct rates_job *job, uint64_t at_ns) {
  ck_assert_uint_eq(at_ns, now_ns);
  told[job - jobs] += job != frozen;
  return job != frozen;
}

static void give(struct rates_job *job, enum gs_class class, uint32_t weight, uint32_t rate_percent) {
  struct sched_job *sched = &sched_jobs[job - jobs];
  sched->terms = (struct sched_terms){.class = class, .weight = weight, .rate_percent = rate_percent};
  rates_set_terms(&rates, job, &sched->terms, now_ns);
}

static void come(struct rates_job *job) {
  struct sched_job *sched = &sched_jobs[job - jobs];
  *sched = (struct sched_job){.id = 1 + (uint32_t)(job - jobs),
                              .gpu = &sched_gpu,
                              .state = GS_JOB_HOLDING,
                              .active = true,
                              .terms = {.weight = 100}};
  rates_enter(&rates, job, sched);
  rates_on_sliced(&rates, job, true, now_ns);
  rates_set_terms(&rates, job, &sched->terms, now_ns);
}

static void set_up(void) {
  now_ns = 100 * NS_PER_S;
  sched_gpu = (struct sched_gpu){0};
  submissions = active_ns = 0;
  memset(told, 0, sizeof told);
  frozen = NULL;
  rates_init(&rates, note_told);
  for (int i = 0; i < JOBS; i++)
    come(&jobs[i]);
}

static void both_come(void) {
  give(&jobs[0], GS_CLASS_OPPORTUNISTIC, 100, 0);
  give(production, GS_CLASS_PRODUCTION, 100, 0);
}

static void say(bool active) {
  struct rate_progress progress = {.submissions = submissions, .active_ns = active_ns, .active = active};
  rates_on_progress(&rates, production, &progress, now_ns);
}

/* Production works on, for so long. */
static void pass(double s) {
  for (uint64_t end_ns = now_ns + (uint64_t)(s * 1e9); now_ns < end_ns;) {
    now_ns += 20 * NS_PER_MS;
    active_ns += 20 * NS_PER_MS;
    submissions += 200;
    say(true);
    if (now_ns >= rates_deadline_ns(&rates))
      rates_on_time(&rates, now_ns);
  }
}

static void pass_until(enum rate_state state) {
  for (int i = 0; i < 1000 && rates.gpu.state != state; i++)
    pass(0.02);
  ck_assert_int_eq(rates.gpu.state, state);
}

static void check(const struct rates_job *job, uint32_t share_ppm, uint32_t slice_us, enum gs_watch watch) {
  ck_assert_uint_eq(job->told.share_ppm, share_ppm);
  ck_assert_uint_eq(job->told.slice_us, slice_us);
  ck_assert_int_eq(job->told.watch, watch);
}

static void check_limit(const struct rates_job *job, enum gs_limited why, double part) {
  struct rates_limit limit = rates_limit(&rates, job);
  ck_assert_int_eq(limit.why, why);
  ck_assert_uint_eq(limit.limit, (uint64_t)(part * GS_LIMITED_WHOLE + 0.5));
  ck_assert_uint_eq(limit.production, why == GS_LIMITED_NOT ? 0 : production->sched->id);
}

/* ---- weights ---- */

TEST(who_is_like_the_others_is_told_nothing) {
  for (int i = 0; i < JOBS; i++)
    ck_assert_uint_eq(told[i], 0);
  check(standard, GS_SHARE_ALL, 0, GS_WATCH_NOT);
}

TEST(weights_become_slices_also_among_those_that_hold_together) {
  give(standard, GS_CLASS_STANDARD, 250, 0);
  check(standard, GS_SHARE_ALL, 5120, GS_WATCH_NOT);
  give(standard, GS_CLASS_STANDARD, 1, 0);
  check(standard, GS_SHARE_ALL, 20, GS_WATCH_NOT);
  give(standard, GS_CLASS_STANDARD, GS_WEIGHT_MAX, 0);
  check(standard, GS_SHARE_ALL, 204800, GS_WATCH_NOT);
  sched_gpu.serialized = true;
  rates_on_state(&rates, standard, now_ns);
  check(standard, GS_SHARE_ALL, 204800, GS_WATCH_NOT);
  ck_assert_uint_eq(told[standard - jobs], 3);
}

TEST(nothing_is_told_twice) {
  give(standard, GS_CLASS_STANDARD, 250, 0);
  give(standard, GS_CLASS_STANDARD, 250, 0);
  rates_on_state(&rates, standard, now_ns);
  ck_assert_uint_eq(told[standard - jobs], 1);
}

/* ---- classes ---- */

TEST(one_class_alone_is_as_any_other) {
  give(&jobs[0], GS_CLASS_OPPORTUNISTIC, 200, 0);
  check(&jobs[0], GS_SHARE_ALL, 4096, GS_WATCH_NOT);
  check_limit(&jobs[0], GS_LIMITED_NOT, 1);
  give(&jobs[0], GS_CLASS_PRODUCTION, 200, 0);
  check(&jobs[0], GS_SHARE_ALL, 4096, GS_WATCH_NOT);
  ck_assert_uint_eq(rates_deadline_ns(&rates), RATE_NEVER);
}

TEST(production_is_watched_and_has_long_slices) {
  both_come();
  check(production, GS_SHARE_ALL, RATE_LONG_SLICE_US, GS_WATCH_PROGRESS);
  check(&jobs[0], GS_SHARE_ALL, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  check(standard, GS_SHARE_ALL, RATE_LONG_SLICE_US, GS_WATCH_NOT); /* it shares with production as ever */
  give(production, GS_CLASS_PRODUCTION, 400, 0);
  check(production, GS_SHARE_ALL, 4 * RATE_LONG_SLICE_US, GS_WATCH_PROGRESS);
  rates.gpu.level = 1;
  give(production, GS_CLASS_PRODUCTION, 200, 0);
  check(production, GS_SHARE_ALL, 2 * RATE_SLICE_MOST_US, GS_WATCH_PROGRESS);
  rates.gpu.level = RATE_LEVEL_FIRST;
  give(production, GS_CLASS_PRODUCTION, 100, 0);
  check_limit(&jobs[0], GS_LIMITED_IDLE, 1);
  rates_leave(&rates, &jobs[0], now_ns);
  check(production, GS_SHARE_ALL, 0, GS_WATCH_NOT);
}

TEST(others_stand_still_from_the_message_on) {
  both_come();
  say(true);
  check(&jobs[0], 0, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  check(production, GS_SHARE_ALL, RATE_LONG_SLICE_US, GS_WATCH_PROGRESS);
  check_limit(&jobs[0], GS_LIMITED_BACK, 0);
  say(false);
  check(&jobs[0], GS_SHARE_ALL, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  say(true);
  production->sched = &sched_jobs[production - jobs];
  sched_jobs[production - jobs].state = GS_JOB_WAITING;
  rates_on_state(&rates, production, now_ns);
  check(&jobs[0], GS_SHARE_ALL, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  sched_jobs[production - jobs].state = GS_JOB_HOLDING;
  sched_jobs[production - jobs].active = false;
  rates_on_state(&rates, production, now_ns);
  check(&jobs[0], GS_SHARE_ALL, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  sched_jobs[production - jobs].active = true;
  rates_on_state(&rates, production, now_ns);
  check(&jobs[0], 0, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
}

/* Not lost, nor sent again and again: later. */
TEST(who_reads_nothing_is_told_later) {
  both_come();
  frozen = &jobs[0];
  unsigned before = told[0];
  for (int i = 0; i < 100; i++)
    say(i % 2 == 0);
  say(true);
  ck_assert_uint_eq(told[0], before);
  ck_assert(jobs[0].told.share_ppm == GS_SHARE_ALL);
  frozen = NULL;
  while (now_ns < 101 * NS_PER_S && jobs[0].told.share_ppm) {
    now_ns += NS_PER_MS;
    if (rates_deadline_ns(&rates) <= now_ns && now_ns < 100 * NS_PER_S + 49 * NS_PER_MS)
      ck_abort_msg("it is told again too soon");
    while (rates_deadline_ns(&rates) <= now_ns)
      rates_on_time(&rates, now_ns);
    say(true);
  }
  ck_assert_uint_eq(told[0], before + 1);
}

/* By itself: nothing else happens. */
TEST(it_is_tried_again_after_a_time) {
  frozen = &jobs[0];
  give(&jobs[0], GS_CLASS_OPPORTUNISTIC, 100, 30);
  ck_assert_uint_eq(rates_deadline_ns(&rates), now_ns + 100 * NS_PER_MS);
  now_ns = rates_deadline_ns(&rates);
  rates_on_time(&rates, now_ns);
  check(&jobs[0], GS_SHARE_ALL, 0, GS_WATCH_NOT);
  frozen = NULL;
  now_ns = rates_deadline_ns(&rates);
  rates_on_time(&rates, now_ns);
  check(&jobs[0], 300000, 0, GS_WATCH_NOT);
  ck_assert_uint_eq(rates_deadline_ns(&rates), RATE_NEVER);
}

TEST(who_has_no_part_of_a_trial_waits_for_the_next) {
  both_come();
  rates.gpu.level = RATE_LEVEL_UNSURE;
  give(&jobs[1], GS_CLASS_OPPORTUNISTIC, 100, 0);
  sched_jobs[1].state = GS_JOB_WAITING;
  rates_on_state(&rates, &jobs[1], now_ns);
  say(true);
  pass_until(RATE_TRIAL);
  check(&jobs[0], 200000, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  sched_jobs[1].state = GS_JOB_HOLDING;
  rates_on_state(&rates, &jobs[1], now_ns);
  check(&jobs[1], 0, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
}

/* Stopped, say, while it works. */
TEST(nobody_waits_for_long_for_who_falls_silent) {
  both_come();
  say(true);
  pass_until(RATE_CONTROL);
  uint64_t since_ns = now_ns;
  while (rates.gpu.state != RATE_FREE) {
    now_ns = rates_deadline_ns(&rates) > now_ns ? rates_deadline_ns(&rates) : now_ns;
    ck_assert_uint_le(now_ns - since_ns, 2 * NS_PER_S);
    rates_on_time(&rates, now_ns);
  }
  check(&jobs[0], GS_SHARE_ALL, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
}

TEST(who_comes_beside_production_that_works_stands_still) {
  both_come();
  say(true);
  give(&jobs[1], GS_CLASS_OPPORTUNISTIC, 100, 0);
  check(&jobs[1], 0, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
}

static void tell_work(struct rates_job *job, bool active) {
  struct rate_progress progress = {.submissions = 1, .active = active};
  rates_on_progress(&rates, job, &progress, now_ns);
}

TEST(for_others_work_nobody_is_stopped) {
  both_come();
  tell_work(&jobs[0], true);
  tell_work(standard, true);
  check(&jobs[0], GS_SHARE_ALL, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
}

TEST(it_is_known_whether_opportunistic_jobs_work) {
  both_come();
  ck_assert(rates.gpu.guests_work); /* unless they say otherwise */
  tell_work(standard, false);
  say(false);
  ck_assert(rates.gpu.guests_work);
  tell_work(&jobs[0], false);
  ck_assert(!rates.gpu.guests_work);
  give(&jobs[1], GS_CLASS_OPPORTUNISTIC, 100, 0);
  ck_assert(rates.gpu.guests_work);
  sched_jobs[1].state = GS_JOB_WAITING;
  rates_on_state(&rates, &jobs[1], now_ns);
  ck_assert(!rates.gpu.guests_work);
  tell_work(&jobs[0], true);
  tell_work(&jobs[0], true);
  ck_assert(rates.gpu.guests_work);
  give(&jobs[2], GS_CLASS_OPPORTUNISTIC, 100, 20); /* it is not tried out */
  rates_leave(&rates, &jobs[0], now_ns);
  ck_assert(!rates.gpu.guests_work && rates.working_count == 0);
}

TEST(a_trial_is_divided_among_those_that_hold) {
  both_come();
  rates.gpu.level = RATE_LEVEL_UNSURE;
  say(true);
  pass_until(RATE_CONTROL);
  check_limit(&jobs[0], GS_LIMITED_LOOK, 0);
  pass_until(RATE_TRIAL);
  check(&jobs[0], 200000, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  check_limit(&jobs[0], GS_LIMITED_GROWS, 0.2);
  give(&jobs[1], GS_CLASS_OPPORTUNISTIC, 100, 0);
  give(&jobs[2], GS_CLASS_OPPORTUNISTIC, 100, 0);
  sched_jobs[2].state = GS_JOB_WAITING;
  check(&jobs[0], 200000, RATE_SLICE_LEAST_US, GS_WATCH_WORK); /* the trial is what it was */
  check(&jobs[1], 0, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  pass_until(RATE_CONTROL);
  pass_until(RATE_TRIAL);
  uint32_t all_ppm = (uint32_t)(rate_duty(&rates.gpu) * GS_SHARE_ALL);
  ck_assert_uint_eq(jobs[0].told.share_ppm, all_ppm / 2);
  ck_assert_uint_eq(jobs[1].told.share_ppm, all_ppm / 2);
}

TEST(who_leaves_a_trial_and_comes_back_waits_for_the_next) {
  both_come();
  rates.gpu.level = RATE_LEVEL_UNSURE;
  give(&jobs[1], GS_CLASS_OPPORTUNISTIC, 100, 0);
  say(true);
  pass_until(RATE_TRIAL);
  check(&jobs[0], 100000, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  give(&jobs[0], GS_CLASS_STANDARD, 100, 0);
  check(&jobs[0], GS_SHARE_ALL, RATE_LONG_SLICE_US, GS_WATCH_NOT);
  give(&jobs[0], GS_CLASS_OPPORTUNISTIC, 100, 0);
  check(&jobs[0], 0, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
}

/* They share by their slices. */
TEST(where_nothing_is_stopped_nothing_is_divided) {
  both_come();
  give(&jobs[1], GS_CLASS_OPPORTUNISTIC, 100, 0);
  say(true);
  pass_until(RATE_TRIAL);
  check(&jobs[0], GS_SHARE_ALL, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  check(&jobs[1], GS_SHARE_ALL, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
}

/* By MPS, say: others would have as much as production. */
TEST(where_slices_do_not_hold_all_is_stopped_and_divided) {
  struct rates_job *late = &jobs[1];
  late->sliced = false;
  both_come();
  ck_assert_double_eq(rates.gpu.level, RATE_LEVEL_FIRST);
  give(late, GS_CLASS_OPPORTUNISTIC, 100, 0);
  ck_assert_double_eq(rates.gpu.level, RATE_LEVEL_UNSURE);
  say(true);
  pass_until(RATE_TRIAL);
  check(&jobs[0], 100000, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  check(late, 100000, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  rates.gpu.level = 1;
  pass_until(RATE_CONTROL);
  pass_until(RATE_TRIAL);
  check(&jobs[0], GS_SHARE_ALL / 2, rate_slice_us(&rates.gpu), GS_WATCH_WORK);
  rates.gpu.level = 1;
  give(standard, GS_CLASS_PRODUCTION, 100, 0);
  ck_assert_double_eq(rates.gpu.level, RATE_LEVEL_UNSURE);
  give(standard, GS_CLASS_STANDARD, 100, 0);
  give(production, GS_CLASS_STANDARD, 100, 0);
  give(late, GS_CLASS_STANDARD, 100, 0);
  ck_assert(rates.gpu.bounded);
  give(late, GS_CLASS_OPPORTUNISTIC, 100, 0);
  ck_assert(!rates.gpu.bounded);
  rates_on_sliced(&rates, late, true, now_ns);
  ck_assert(rates.gpu.bounded);
  rates_on_sliced(&rates, late, false, now_ns); /* the driver refuses them from now on */
  ck_assert(!rates.gpu.bounded);
  ck_assert_double_eq(rates.gpu.level, RATE_LEVEL_UNSURE);
}

TEST(alone_it_has_all_of_a_trial) {
  both_come();
  say(true);
  pass(20);
  pass_until(RATE_TRIAL);
  check(&jobs[0], GS_SHARE_ALL, RATE_SLICE_MOST_US, GS_WATCH_WORK);
  check_limit(&jobs[0], GS_LIMITED_FOUND, 1);
}

TEST(a_rate_that_is_set_holds_whatever_production_does) {
  both_come();
  rates.gpu.level = RATE_LEVEL_UNSURE;
  give(&jobs[0], GS_CLASS_OPPORTUNISTIC, 100, 20);
  check(&jobs[0], 200000, RATE_SLICE_LEAST_US, GS_WATCH_NOT);
  check_limit(&jobs[0], GS_LIMITED_SET, 0.2);
  say(true);
  check(&jobs[0], 200000, RATE_SLICE_LEAST_US, GS_WATCH_NOT);
  check_limit(&jobs[0], GS_LIMITED_SET, 0.2);
  give(&jobs[1], GS_CLASS_OPPORTUNISTIC, 100, 0);
  pass_until(RATE_TRIAL);
  check(&jobs[1], 200000, RATE_SLICE_LEAST_US, GS_WATCH_WORK); /* all that the controller has to give */
  give(&jobs[0], GS_CLASS_OPPORTUNISTIC, 100, 0);
  check(&jobs[0], 0, RATE_SLICE_LEAST_US, GS_WATCH_WORK);
  rates_leave(&rates, production, now_ns);
  check(&jobs[0], GS_SHARE_ALL, 0, GS_WATCH_NOT);
  give(&jobs[0], GS_CLASS_OPPORTUNISTIC, 100, 30); /* also beside nobody */
  check(&jobs[0], 300000, 0, GS_WATCH_NOT);
}

TEST(only_opportunistic_jobs_have_a_rate) {
  give(&jobs[0], GS_CLASS_STANDARD, 100, 20);
  check_limit(&jobs[0], GS_LIMITED_NOT, 1);
  give(&jobs[0], GS_CLASS_PRODUCTION, 100, 20);
  check_limit(&jobs[0], GS_LIMITED_NOT, 1);
  check(&jobs[0], GS_SHARE_ALL, 0, GS_WATCH_NOT);
}

TEST(what_is_left_over_is_known_once_it_was_tried) {
  both_come();
  ck_assert_uint_eq(rates_leftover_percent(&rates), 100);
  say(true);
  ck_assert_uint_eq(rates_leftover_percent(&rates), 100);
  pass(0.8);
  rates.gpu.level = 0.1;
  ck_assert_uint_eq(rates_leftover_percent(&rates), 20);
  rates.gpu.level = 0.7;
  ck_assert_uint_eq(rates_leftover_percent(&rates), 100);
  rates.gpu.level = 0.1;
  say(false);
  ck_assert_uint_eq(rates_leftover_percent(&rates), 100);
}

TEST(who_has_left_is_told_nothing) {
  both_come();
  rates_leave(&rates, &jobs[0], now_ns);
  unsigned count = told[0];
  give(&jobs[1], GS_CLASS_OPPORTUNISTIC, 100, 0);
  say(true);
  ck_assert_uint_eq(told[0], count);
  ck_assert_uint_eq(rates.opportunistic_count, 1);
}

/* ---- a crowd ---- */

#define CROWD 600

static struct sched_job crowd_sched[CROWD];
static struct rates_job crowd[CROWD];

static bool note_nobody(struct rates_job *job, uint64_t at_ns) { return job && at_ns; }

static void join(int i) {
  crowd_sched[i] = (struct sched_job){.id = 100 + (uint32_t)i,
                                      .gpu = &sched_gpu,
                                      .state = GS_JOB_HOLDING,
                                      .active = true,
                                      .terms = {.weight = 100, .class = GS_CLASS_OPPORTUNISTIC}};
  rates_enter(&rates, &crowd[i], &crowd_sched[i]);
  rates_set_terms(&rates, &crowd[i], &crowd_sched[i].terms, now_ns);
}

static unsigned count_standing(void) {
  unsigned count = 0;
  for (int i = 0; i < CROWD; i++)
    count += crowd[i].sched && crowd[i].told.share_ppm == 0;
  return count;
}

TEST(who_joins_a_crowd_takes_nobodys_place) {
  rates.tell = note_nobody;
  for (int i = 1; i < CROWD; i++)
    join(i);
  both_come();
  while (rates_deadline_ns(&rates) <= now_ns)
    rates_on_time(&rates, now_ns);
  rates.next = &crowd[100].link; /* the round begins in the middle */
  say(true);
  join(0);
  while (rates_deadline_ns(&rates) <= now_ns)
    rates_on_time(&rates, now_ns);
  ck_assert_uint_eq(count_standing(), CROWD);
}

TEST(a_crowd_is_told_in_slices) {
  rates.tell = note_nobody;
  for (int i = 0; i < CROWD; i++)
    join(i);
  both_come();
  while (rates_deadline_ns(&rates) <= now_ns)
    rates_on_time(&rates, now_ns);
  say(true);
  unsigned standing = count_standing();
  ck_assert_uint_gt(standing, RATES_SLICE - JOBS - 1);
  ck_assert_uint_le(standing, RATES_SLICE);
  rates_leave(&rates, &crowd[2], now_ns);
  rates_leave(&rates, list_entry(rates.next, struct rates_job, link), now_ns);
  join(2);
  ck_assert_uint_eq(crowd[2].told.share_ppm, 0);
  for (int i = 0; i < CROWD / RATES_SLICE; i++) {
    ck_assert_uint_le(rates_deadline_ns(&rates), now_ns);
    rates_on_time(&rates, now_ns);
  }
  ck_assert_uint_gt(rates_deadline_ns(&rates), now_ns);
  for (int i = 0; i < CROWD; i++)
    ck_assert(crowd[i].told.share_ppm == 0 || list_empty(&crowd[i].link));
  for (int i = 0; i < CROWD; i++)
    if (!list_empty(&crowd[i].link))
      rates_leave(&rates, &crowd[i], now_ns);
  ck_assert_uint_eq(rates.job_count, JOBS);
}

int main(void) { return suite_run_all("rates", set_up, NULL); }
