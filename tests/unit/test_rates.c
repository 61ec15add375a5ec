/* test_rates.c - what is made of a meter page that says anything. */
#include <stdatomic.h>
#include <string.h>

#include "common/clock.h"
#include "rates.h"
#include "suite.h"

static struct rates rates;
static struct sched_job sched_jobs[2];
static struct rates_job production, opportunistic;
static uint64_t now_ns;

static void give(struct rates_job *job, enum gs_class class, uint32_t rate_percent) {
  rates_set_terms(&rates, job, &(struct sched_terms){.class = class, .rate_percent = rate_percent}, now_ns);
}

static void set_up(void) {
  now_ns = 100 * NS_PER_S;
  rates_init(&rates);
  for (int i = 0; i < 2; i++)
    sched_jobs[i] = (struct sched_job){.id = (uint32_t)i + 1, .state = GS_JOB_HOLDING, .active = true};
  rates_enter(&production, &sched_jobs[0]);
  rates_enter(&opportunistic, &sched_jobs[1]);
  give(&production, GS_CLASS_PRODUCTION, 0);
  give(&opportunistic, GS_CLASS_OPPORTUNISTIC, 0);
  atomic_store(&production.meter.page->seen_limit, 1);
}

static void tear_down(void) {
  rates_leave(&rates, &opportunistic, now_ns);
  rates_leave(&rates, &production, now_ns);
}

static unsigned told_count;

static void note_told(struct rates_job *job, uint64_t at_ns) {
  (void)job;
  ck_assert_uint_eq(at_ns, now_ns);
  told_count++;
}

static void step(void) { ck_assert_uint_gt(rates_on_time(&rates, now_ns, note_told), 0); }

/* A tick, and all that comes of it. */
static void pass_tick(void) {
  for (now_ns = rates_deadline_ns(&rates); rates_deadline_ns(&rates) <= now_ns;)
    step();
}

/* The counters that the controller was told last. */
static const struct rate_counters *told(uint64_t at_ns, uint32_t idle) {
  atomic_store(&production.meter.page->at_ns, at_ns);
  atomic_store(&production.meter.page->idle, idle);
  pass_tick();
  return &production.job.last;
}

START_TEST(ticks_come_while_both_are_there) {
  ck_assert_uint_eq(rates_deadline_ns(&rates), now_ns);
  pass_tick();
  ck_assert_uint_gt(rates_deadline_ns(&rates), now_ns);
  ck_assert_uint_le(rates_deadline_ns(&rates), now_ns + RATE_PERIOD_MOST_NS);
  give(&production, GS_CLASS_STANDARD, 0);
  pass_tick(); /* the last one */
  ck_assert_uint_eq(rates_deadline_ns(&rates), RATES_NEVER);
  ck_assert_int_eq(rates_limit(&rates, &opportunistic).why, GS_LIMITED_NOT);
  ck_assert_uint_eq(opportunistic.meter.page->limit, GS_LIMIT_NONE);
}
END_TEST

START_TEST(counters_tell_of_the_time_until_they_were_brought_up_to_date) {
  uint64_t at_ns = now_ns - 5 * NS_PER_MS;
  ck_assert_uint_eq(told(at_ns, 0)->at_ns, at_ns);
  ck_assert_uint_eq(told(at_ns - 1, 0)->at_ns, at_ns); /* never backwards */
  ck_assert_uint_eq(told(at_ns, 1)->at_ns, now_ns);    /* an idle job need not do so */
  uint64_t idle_ns = now_ns;
  ck_assert_uint_eq(told(at_ns, 0)->at_ns, idle_ns); /* it has begun to work, but has not done so yet */
  ck_assert_uint_eq(told(now_ns + NS_PER_S, 0)->at_ns, now_ns);
}
END_TEST

START_TEST(counters_are_told_as_they_are) {
  struct gs_meter *page = production.meter.page;
  atomic_store(&page->submissions, 1);
  atomic_store(&page->sampled_ns, 2);
  atomic_store(&page->expected_ns, 3);
  atomic_store(&page->busy_ns, 4);
  atomic_store(&page->throttled_ns, 5);
  const struct rate_counters *counters = told(now_ns, 0);
  ck_assert_uint_eq(counters->submissions, 1);
  ck_assert_uint_eq(counters->sampled_ns, 2);
  ck_assert_uint_eq(counters->expected_ns, 3);
  ck_assert_uint_eq(counters->busy_ns, 4);
  ck_assert_uint_eq(counters->throttled_ns, 5);
  ck_assert(!counters->idle);
}
END_TEST

START_TEST(who_cannot_lose_anything_counts_as_idle) {
  ck_assert(!told(now_ns, 0)->idle);
  sched_jobs[0].active = false;
  ck_assert(told(now_ns, 0)->idle);
  sched_jobs[0].active = true;
  sched_jobs[0].state = GS_JOB_WAITING;
  ck_assert(told(now_ns, 0)->idle);
  sched_jobs[0].state = GS_JOB_HOLDING;
  ck_assert(!told(now_ns, 0)->idle);
  atomic_store(&production.meter.page->seen_limit, 0); /* it does not read its page */
  ck_assert(told(now_ns, 0)->idle);
}
END_TEST

#define PERCENT (GS_LIMITED_WHOLE / 100)
#define RATE_WHOLE ((double)GS_LIMITED_WHOLE)

static void check_limit(uint64_t limit, enum gs_limited why) {
  ck_assert_uint_eq(opportunistic.meter.page->limit, limit);
  ck_assert_int_eq(rates_limit(&rates, &opportunistic).why, why);
}

START_TEST(a_rate_that_is_set_holds_whatever_production_does) {
  pass_tick();
  check_limit(0, GS_LIMITED_LOOK);
  uint32_t seq = opportunistic.meter.page->limit_seq;
  give(&opportunistic, GS_CLASS_OPPORTUNISTIC, 20);
  check_limit(20 * PERCENT, GS_LIMITED_SET);
  ck_assert_uint_ne(opportunistic.meter.page->limit_seq, seq); /* who waits there is woken */
  ck_assert_uint_eq(rates_limit(&rates, &opportunistic).limit, 20 * PERCENT);
  ck_assert_uint_eq(rates_limit(&rates, &opportunistic).production, 1);
  pass_tick(); /* the last one */
  ck_assert_uint_eq(rates_deadline_ns(&rates), RATES_NEVER);
  give(&opportunistic, GS_CLASS_OPPORTUNISTIC, 100);
  check_limit(100 * PERCENT, GS_LIMITED_SET);
  give(&production, GS_CLASS_STANDARD, 0);
  check_limit(100 * PERCENT, GS_LIMITED_SET);
  ck_assert_uint_eq(rates_limit(&rates, &opportunistic).production, 0);
  now_ns += NS_PER_S;
  give(&production, GS_CLASS_PRODUCTION, 0);
  give(&opportunistic, GS_CLASS_OPPORTUNISTIC, 0);
  ck_assert_uint_eq(opportunistic.meter.page->limit, 0);
  pass_tick();
  check_limit(0, GS_LIMITED_LOOK);
}
END_TEST

static void check_leftover(double part, uint32_t percent) {
  rates.gpu.limit = part * RATE_WHOLE;
  ck_assert_uint_eq(rates_leftover_percent(&rates), percent);
}

START_TEST(what_is_left_over_is_known_once_it_was_found) {
  rates.gpu.state = RATE_SLOW_START;
  check_leftover(0.376, 100);
  rates.gpu.started = true;
  rates.gpu.state = RATE_FREE;
  rates.gpu.reason = RATE_PRODUCTION_IDLE;
  check_leftover(0.376, 100);
  rates.gpu.reason = RATE_NO_OPPORTUNISTIC; /* the last one has gone, production works on */
  check_leftover(0.376, 37);
  rates.gpu.state = RATE_STEADY;
  check_leftover(0, 100);
  check_leftover(0.376, 37);
  check_leftover(0.001, 0);
  check_leftover(2.5, 100); /* of three jobs together */
  give(&production, GS_CLASS_STANDARD, 0);
  check_leftover(0.376, 100);
}
END_TEST

START_TEST(only_opportunistic_jobs_have_a_rate) {
  give(&opportunistic, GS_CLASS_OPPORTUNISTIC, 20);
  give(&opportunistic, GS_CLASS_STANDARD, 20);
  check_limit(GS_LIMIT_NONE, GS_LIMITED_NOT);
  give(&opportunistic, GS_CLASS_PRODUCTION, 20);
  check_limit(GS_LIMIT_NONE, GS_LIMITED_NOT);
  give(&opportunistic, GS_CLASS_OPPORTUNISTIC, 20);
  check_limit(20 * PERCENT, GS_LIMITED_SET);
}
END_TEST

/* ---- a crowd ---- */

#define CROWD 600

static struct sched_job crowd_sched[CROWD];
static struct rates_job crowd[CROWD];
static uint32_t crowd_seqs[CROWD];

static void come(int i) {
  crowd_sched[i] = (struct sched_job){.id = 3 + (uint32_t)i, .state = GS_JOB_HOLDING, .active = true};
  rates_enter(&crowd[i], &crowd_sched[i]);
  give(&crowd[i], GS_CLASS_OPPORTUNISTIC, 0);
}

static void crowd_come(void) {
  for (int i = 0; i < CROWD; i++)
    come(i);
}

static void crowd_go(void) {
  for (int i = 0; i < CROWD; i++)
    rates_leave(&rates, &crowd[i], now_ns);
}

/* How many pages of the crowd have been written since the last time. */
static unsigned count_written(void) {
  unsigned count = 0;
  for (int i = 0; i < CROWD; i++)
    if (crowd[i].meter.page && crowd[i].meter.page->limit_seq != crowd_seqs[i]) {
      crowd_seqs[i] = crowd[i].meter.page->limit_seq;
      count++;
    }
  return count;
}

static void step_counted(void) {
  told_count = 0;
  step();
  ck_assert_uint_le(count_written(), RATES_SLICE);
  ck_assert_uint_le(told_count, RATES_SLICE);
}

/* As pass_tick. Returns how many jobs were told. */
static unsigned pass_counted_tick(void) {
  unsigned all_told = 0;
  for (now_ns = rates_deadline_ns(&rates); rates_deadline_ns(&rates) <= now_ns; all_told += told_count)
    step_counted();
  return all_told;
}

/* The controller has found a limit, and the next tick shares it among jobs that use unequal parts of the GPU.
 */
static void find_limit(void) {
  pass_tick();
  rates.gpu.state = RATE_STEADY;
  rates.gpu.limit = RATE_WHOLE;
  production.job.signal.measured = true;
  for (int i = 0; i < CROWD; i++)
    atomic_store(&crowd[i].meter.page->busy_ns, 100 * (uint64_t)i);
  count_written();
}

/* Its page says what the controller has decided. */
static void check_told(const struct rates_job *job) {
  ck_assert_uint_eq(job->meter.page->limit, job->job.limit);
  ck_assert_uint_eq(job->meter.page->wanted, 1);
}

static void check_not_limited(const struct rates_job *job) {
  ck_assert_uint_eq(job->meter.page->limit, GS_LIMIT_NONE);
  ck_assert_uint_eq(job->meter.page->wanted, 0);
}

START_TEST(a_crowd_is_told_its_limits_in_slices) {
  crowd_come();
  find_limit();
  ck_assert_uint_eq(pass_counted_tick(), CROWD + 2);
  ck_assert_uint_gt(crowd[CROWD - 1].job.limit, crowd[CROWD - 2].job.limit);
  ck_assert_uint_gt(crowd[CROWD - 1].job.limit, crowd[0].job.limit);
  for (int i = 0; i < CROWD; i++)
    check_told(&crowd[i]);
  check_told(&opportunistic);
  ck_assert_uint_gt(rates_deadline_ns(&rates), now_ns);
  ck_assert_uint_le(rates_deadline_ns(&rates), now_ns + RATE_PERIOD_MOST_NS);
  crowd_go();
}
END_TEST

START_TEST(a_class_change_is_told_to_a_crowd_in_slices) {
  crowd_come();
  give(&production, GS_CLASS_STANDARD, 0);
  pass_tick(); /* the last one */
  count_written();
  now_ns += NS_PER_MS;
  give(&production, GS_CLASS_PRODUCTION, 0);
  ck_assert_uint_eq(count_written(), 0);
  ck_assert_uint_eq(production.meter.page->wanted, 1); /* itself: at once */
  pass_counted_tick();
  for (int i = 0; i < CROWD; i++)
    check_told(&crowd[i]);
  give(&production, GS_CLASS_STANDARD, 0);
  ck_assert_uint_eq(count_written(), 0);
  pass_counted_tick();
  for (int i = 0; i < CROWD; i++)
    check_not_limited(&crowd[i]);
  ck_assert_uint_eq(rates_deadline_ns(&rates), RATES_NEVER);
  crowd_go();
}
END_TEST

/* Up to the middle of a tick that tells all of them another limit. Returns the first job that is yet to be
 * told. */
static int pass_half_a_tick(void) {
  uint32_t before[CROWD];
  int next = 0;
  find_limit();
  memcpy(before, crowd_seqs, sizeof before);
  now_ns = rates_deadline_ns(&rates);
  while (crowd[0].meter.page->limit_seq == before[0])
    step_counted();
  while (next < CROWD && crowd[next].meter.page->limit_seq != before[next])
    next++;
  ck_assert_int_gt(next, 1);
  ck_assert_int_lt(next, CROWD - 10);
  ck_assert_uint_le(rates_deadline_ns(&rates), now_ns); /* the rest: at once */
  return next;
}

static void pass_the_other_half(void) {
  while (rates_deadline_ns(&rates) <= now_ns)
    step_counted();
}

START_TEST(jobs_come_and_go_while_a_crowd_is_told) {
  crowd_come();
  int next = pass_half_a_tick();
  const int leaving[] = {0, next, next + 1, CROWD - 1};
  for (size_t i = 0; i < 4; i++)
    rates_leave(&rates, &crowd[leaving[i]], now_ns);
  come(0); /* now the last one */
  ck_assert_uint_eq(crowd[0].meter.page->limit, 0);
  give(&crowd[1], GS_CLASS_OPPORTUNISTIC, 20);
  give(&crowd[next + 2], GS_CLASS_PRODUCTION, 0);
  give(&crowd[next + 3], GS_CLASS_STANDARD, 0);
  count_written();
  pass_the_other_half();
  for (int i = 0; i < CROWD; i++)
    if (crowd[i].class == GS_CLASS_OPPORTUNISTIC && crowd[i].meter.page && i != 1)
      check_told(&crowd[i]);
  ck_assert_uint_eq(crowd[1].meter.page->limit, 20 * PERCENT);
  ck_assert_uint_eq(crowd[next + 2].meter.page->limit, GS_LIMIT_NONE);
  ck_assert_uint_eq(crowd[next + 2].meter.page->wanted, 1);
  check_not_limited(&crowd[next + 3]);
  crowd_go();
}
END_TEST

START_TEST(all_jobs_go_while_they_are_told) {
  crowd_come();
  pass_half_a_tick();
  crowd_go();
  give(&opportunistic, GS_CLASS_STANDARD, 0);
  pass_the_other_half();
  pass_tick(); /* the last one */
  ck_assert_uint_eq(rates_deadline_ns(&rates), RATES_NEVER);
  check_not_limited(&production);
}
END_TEST

/* Those that were told before and after it has left have their limits until the last tick. */
START_TEST(production_goes_and_comes_while_a_crowd_is_told) {
  crowd_come();
  pass_half_a_tick();
  give(&production, GS_CLASS_STANDARD, 0);
  pass_the_other_half();
  for (int i = 0; i < CROWD; i++)
    check_told(&crowd[i]);
  now_ns = rates_deadline_ns(&rates); /* the last tick, and it comes back in its middle */
  ck_assert_uint_ne(now_ns, RATES_NEVER);
  count_written();
  while (count_written() == 0)
    step();
  now_ns += NS_PER_MS;
  give(&production, GS_CLASS_PRODUCTION, 0);
  rates_leave(&rates, &crowd[0], now_ns);
  come(0);
  for (count_written(); rates_deadline_ns(&rates) <= now_ns; step_counted())
    ck_assert_uint_eq(crowd[0].meter.page->limit, 0); /* from the beginning */
  for (int i = 0; i < CROWD; i++)
    check_told(&crowd[i]);
  crowd_go();
}
END_TEST

int main(void) {
  const TTest *const tests[] = {ticks_come_while_both_are_there,
                                counters_tell_of_the_time_until_they_were_brought_up_to_date,
                                counters_are_told_as_they_are,
                                who_cannot_lose_anything_counts_as_idle,
                                a_rate_that_is_set_holds_whatever_production_does,
                                what_is_left_over_is_known_once_it_was_found,
                                only_opportunistic_jobs_have_a_rate,
                                a_crowd_is_told_its_limits_in_slices,
                                a_class_change_is_told_to_a_crowd_in_slices,
                                jobs_come_and_go_while_a_crowd_is_told,
                                all_jobs_go_while_they_are_told,
                                production_goes_and_comes_while_a_crowd_is_told,
                                NULL};
  return suite_main("rates", tests, set_up, tear_down);
}
