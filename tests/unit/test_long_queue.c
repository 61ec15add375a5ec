/*
 * test_long_queue.c - more that wait than are looked at: who fits is found however many are before it, and a
 * decision looks at no more of them for that.
 *
 * Most jobs have next to no memory, and say how much they will have: so there is nothing to move.
 */
#include "common/clock.h"
#include "core/scheduler.h"
#include "played_clock.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define CARD (16 * GIB)
#define JOBS 400
#define TQ_NS (100 * NS_PER_MS)

static struct scheduler scheduler;
static struct sched_gpu gpu;
static struct sched_job jobs[JOBS];
static int count;
static struct sched_change change;
static uint64_t now_ns;

static void execute(void) { clock_obey(&change, now_ns); }

static void expect_bytes(struct sched_job *job, uint64_t bytes) {
  struct sched_terms terms = job->terms;
  terms.expected_bytes = bytes;
  scheduler_set_terms(job, &terms, now_ns, &change);
  execute();
}

static struct sched_job *come_with(uint64_t used_bytes, uint64_t expected_bytes) {
  struct sched_job *job = &jobs[count++];
  struct sched_attach attach = {.id = (uint32_t)count, .used_bytes = used_bytes};
  scheduler_attach(&gpu, job, &attach, now_ns, &change);
  execute();
  expect_bytes(job, expected_bytes);
  scheduler_request(job, now_ns, &change);
  execute();
  return job;
}

static struct sched_job *come(uint64_t gib) { return come_with(1, gib * GIB); }

static void pass(uint64_t ns) {
  for (uint64_t end_ns = now_ns + ns; clock_goes_on(&scheduler, &now_ns, end_ns, &change);)
    execute();
}

static void set_up(void) {
  now_ns = 10 * NS_PER_S;
  count = 0;
  scheduler_init(&scheduler);
  scheduler.settle_ns = 0;
  scheduler.defaults.tq_ns = TQ_NS;
  change_init(&change);
  scheduler_add_gpu(&scheduler, &gpu, (const uint8_t[GS_UUID_SIZE]){1}, "card", CARD);
}

/* One of 12 GiB holds, and beside it none of the others has a place. */
static void come_many(void) {
  come(12);
  for (int i = 0; i < 200; i++)
    come(8);
}

START_TEST(who_fits_is_found_behind_many_that_do_not) {
  come_many();
  ck_assert_int_eq(come(5)->state, GS_JOB_WAITING);
  ck_assert_int_eq(come(4)->state, GS_JOB_HOLDING);
  ck_assert_int_eq(come(1)->state, GS_JOB_WAITING);
}
END_TEST

START_TEST(who_comes_to_fit_is_found) {
  come_many();
  struct sched_job *job = come(5);
  expect_bytes(job, 4 * GIB);
  ck_assert_int_eq(job->state, GS_JOB_HOLDING);
}
END_TEST

START_TEST(who_frees_memory_is_found) {
  come_many();
  struct sched_job *job = come_with(5 * GIB, 0);
  ck_assert_int_eq(job->state, GS_JOB_WAITING);
  scheduler_memory_report(job, 4 * GIB, 0, now_ns, &change);
  execute();
  ck_assert_int_eq(job->state, GS_JOB_HOLDING);
}
END_TEST

START_TEST(who_does_not_fit_any_more_is_left) {
  come_many();
  struct sched_job *before = come(5), *job = come(5);
  expect_bytes(job, 6 * GIB);
  expect_bytes(&jobs[0], 11 * GIB);
  ck_assert_int_eq(before->state, GS_JOB_HOLDING);
  ck_assert_int_eq(job->state, GS_JOB_WAITING);
}
END_TEST

/* The second one waits in vain for what the small holder has; the third one gets it. */
START_TEST(who_may_take_a_place_is_looked_at) {
  come(12);
  struct sched_job *small = come(2), *first = come(8), *second = come(12), *third = come(8);
  ck_assert_int_eq(small->state, GS_JOB_HOLDING);
  pass(TQ_NS);
  ck_assert_int_eq(first->state, GS_JOB_HOLDING);
  ck_assert_int_eq(second->state, GS_JOB_WAITING);
  ck_assert_int_eq(third->state, GS_JOB_HOLDING);
}
END_TEST

/* For one more. */
static bool all_are_looked_at(void) {
  uint64_t before = gpu.looked_at;
  come(8);
  return gpu.looked_at - before >= 60;
}

/* Their claims come from looking at them. */
START_TEST(where_there_are_gangs_all_are_looked_at) {
  static struct sched_gang gang;
  gang_init(&gang);
  come_many();
  ck_assert(!all_are_looked_at());
  scheduler_join(&jobs[100], &gang, now_ns, &change);
  ck_assert(all_are_looked_at());
  scheduler_join(&jobs[100], NULL, now_ns, &change);
  ck_assert(!all_are_looked_at());
}
END_TEST

/* How many were looked at in so many quanta, of so many jobs: of 4 GiB, or of which no two need the same. */
static uint64_t looked_at(enum gs_policy policy, int so_many, bool mixed) {
  set_up();
  gpu.settings.policy = policy;
  for (int i = 0; i < so_many; i++)
    come_with(1, mixed ? GIB / 1000 * (uint64_t)(125 + i * 3001 % 7873) : 4 * GIB);
  uint64_t before = gpu.looked_at;
  pass(50 * TQ_NS);
  return gpu.looked_at - before;
}

/* 20 jobs and 400: log n doubles, this does not. */
START_TEST(a_longer_queue_is_not_looked_at_for_longer) {
  static const enum gs_policy policies[] = {GS_POLICY_RR, GS_POLICY_FAIR, GS_POLICY_SRTF, GS_POLICY_PRIORITY};
  for (size_t i = 0; i < 2 * sizeof policies / sizeof *policies; i++) {
    enum gs_policy policy = policies[i / 2];
    uint64_t few = looked_at(policy, 20, i % 2), many = looked_at(policy, JOBS, i % 2);
    ck_assert_uint_gt(few, 0);
    ck_assert_msg(many < 2 * few, "policy %d: %lu of 20 jobs, %lu of %d", (int)policy, few, many, JOBS);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {who_fits_is_found_behind_many_that_do_not,
                                who_comes_to_fit_is_found,
                                who_frees_memory_is_found,
                                who_does_not_fit_any_more_is_left,
                                who_may_take_a_place_is_looked_at,
                                where_there_are_gangs_all_are_looked_at,
                                a_longer_queue_is_not_looked_at_for_longer,
                                NULL};
  return suite_main("long_queue", tests, set_up, NULL);
}
