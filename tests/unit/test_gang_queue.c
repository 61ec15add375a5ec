/*
 * test_gang_queue.c - a queue with more gangs in it than are looked at, which come first and can't run for
 * the sake of their members elsewhere: who comes after them has its turns all the same.
 */
#include "common/clock.h"
#include "core/scheduler.h"
#include "played_clock.h"
#include "suite.h"

#define CARD (UINT64_C(16) << 30)
#define GANGS 80
#define TQ_NS (100 * NS_PER_MS)

enum { FIRST, LAST, SINGLES }; /* without a gang, both on GPU 0: that holds, and that comes last */

static struct scheduler scheduler;
static struct sched_gpu gpus[2];
static struct sched_gang gangs[GANGS];
static struct sched_job members[GANGS][2], singles[SINGLES]; /* by GPU */
static struct sched_change change;
static uint64_t now_ns;

static void execute(void) { clock_obey(&change, now_ns); }

static void come(struct sched_job *job, int gpu, uint64_t used_bytes) {
  static uint32_t last_id;
  struct sched_attach attach = {.id = ++last_id, .used_bytes = used_bytes};
  scheduler_attach(&gpus[gpu], job, &attach, now_ns, &change);
  execute();
}

static void request(struct sched_job *job) {
  scheduler_request(job, now_ns, &change);
  execute();
}

static void pause_job(struct sched_job *job) {
  struct sched_terms terms = job->terms;
  terms.paused = true;
  scheduler_set_terms(job, &terms, now_ns, &change);
  execute();
}

static void pass(uint64_t ns) {
  for (uint64_t end_ns = now_ns + ns; clock_goes_on(&scheduler, &now_ns, end_ns, &change);)
    execute();
}

static void set_up(void) {
  now_ns = 10 * NS_PER_S;
  scheduler_init(&scheduler);
  scheduler.defaults.mode = GS_MODE_ON;
  scheduler.defaults.policy = GS_POLICY_RR;
  scheduler.defaults.tq_ns = TQ_NS;
  change_init(&change);
  for (int g = 0; g < 2; g++)
    scheduler_add_gpu(&scheduler, &gpus[g], (const uint8_t[GS_UUID_SIZE]){1, (uint8_t)g}, "card", CARD);
  come(&singles[FIRST], 0, 0);
  request(&singles[FIRST]);
}

/* Two members each, of which that on GPU 0 wants to run. */
static void come_gangs(uint64_t elsewhere_bytes, bool paused) {
  for (int i = 0; i < GANGS; i++) {
    gang_init(&gangs[i]);
    for (int g = 0; g < 2; g++) {
      come(&members[i][g], g, g == 1 ? elsewhere_bytes : 0);
      scheduler_join(&members[i][g], &gangs[i], now_ns, &change);
      execute();
    }
    if (paused)
      pause_job(&members[i][1]);
    request(&members[i][0]);
  }
}

static void expect_turns_of_the_last(void) {
  come(&singles[LAST], 0, 0);
  request(&singles[LAST]);
  pass(10 * TQ_NS);
  ck_assert_uint_ge(sched_job_gpu_ns(&singles[LAST], now_ns), 3 * TQ_NS);
  ck_assert_uint_ge(sched_job_gpu_ns(&singles[FIRST], now_ns), 3 * TQ_NS);
}

START_TEST(gangs_of_which_some_are_paused_are_passed_over) {
  come_gangs(0, true);
  struct sched_reason reason = sched_job_reason(&members[0][0], now_ns);
  ck_assert_int_eq(reason.why, GS_REASON_PAUSED);
  ck_assert_ptr_eq(reason.who, &members[0][1]);
  expect_turns_of_the_last();
}
END_TEST

START_TEST(gangs_of_which_some_are_too_big_are_passed_over) {
  come_gangs(2 * CARD, false);
  expect_turns_of_the_last();
}
END_TEST

START_TEST(a_gang_that_is_resumed_has_its_turn) {
  struct sched_terms terms;
  come_gangs(0, true);
  pass(10 * TQ_NS);
  ck_assert_uint_eq(sched_job_gpu_ns(&members[7][0], now_ns), 0);
  terms = members[7][1].terms;
  terms.paused = false;
  scheduler_set_terms(&members[7][1], &terms, now_ns, &change);
  execute();
  pass(10 * TQ_NS);
  ck_assert_uint_ge(sched_job_gpu_ns(&members[7][0], now_ns), 3 * TQ_NS);
  ck_assert_uint_ge(sched_job_gpu_ns(&members[7][1], now_ns), 3 * TQ_NS);
}
END_TEST

START_TEST(a_plan_looks_at_no_more_of_them_than_it_may) {
  come_gangs(0, false);
  scheduler.deferred = true;
  scheduler.event_jobs_most = UINT32_MAX;
  scheduler.gang_looks_most = 0;
  scheduler_set_tq(&scheduler, NULL, TQ_NS, now_ns, &change);
  scheduler_plan(&scheduler, &change);
  ck_assert(!gpus[0].dirty);
  ck_assert(gpus[1].dirty && scheduler.dirty);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {
      gangs_of_which_some_are_paused_are_passed_over, gangs_of_which_some_are_too_big_are_passed_over,
      a_gang_that_is_resumed_has_its_turn, a_plan_looks_at_no_more_of_them_than_it_may, NULL};
  return suite_main("gang_queue", tests, set_up, NULL);
}
