/* test_rates.c - what is made of a meter page that says anything. */
#include <stdatomic.h>

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

static void pass_tick(void) {
  now_ns = rates_deadline_ns(&rates);
  rates_on_time(&rates, now_ns);
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

int main(void) {
  const TTest *const tests[] = {ticks_come_while_both_are_there,
                                counters_tell_of_the_time_until_they_were_brought_up_to_date,
                                counters_are_told_as_they_are,
                                who_cannot_lose_anything_counts_as_idle,
                                a_rate_that_is_set_holds_whatever_production_does,
                                what_is_left_over_is_known_once_it_was_found,
                                only_opportunistic_jobs_have_a_rate,
                                NULL};
  return suite_main("rates", tests, set_up, tear_down);
}
