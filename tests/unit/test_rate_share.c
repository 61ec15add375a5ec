/* test_rate_share.c - how opportunistic jobs share one limit. */
#include <math.h>
#include <string.h>

#include "common/splitmix.h"
#include "core/rate_internal.h"
#include "suite.h"

#define JOBS 8

static struct rate_gpu gpu;
static struct rate_job jobs[JOBS];

static void set_up(void) { rate_gpu_init(&gpu); }

static void add(unsigned count, double limit) {
  for (unsigned i = 0; i < count; i++)
    rate_job_add(&gpu, &jobs[i], RATE_OPPORTUNISTIC);
  gpu.limit = limit * RATE_WHOLE_GPU;
}

/* Uses so much of the GPU, for long; hungry: would use more. */
static void use(struct rate_job *job, double part, bool hungry) {
  job->growth = (struct rate_growth){
      .elapsed_ns = 1e7, .busy_ns = part * 1e7, .throttled_ns = hungry ? 1e7 : 0, .sane = true};
  for (int i = 0; i < 50; i++)
    share_take(job);
}

static double limit_of(unsigned i) { return (double)jobs[i].limit / RATE_WHOLE_GPU; }

static double sum(unsigned count) {
  double sum = 0;
  for (unsigned i = 0; i < count; i++)
    sum += limit_of(i);
  return sum;
}

START_TEST(hungry_jobs_have_equal_parts) {
  add(4, 0.4);
  for (int i = 0; i < 4; i++)
    use(&jobs[i], 0.1 * i, true);
  share_split(&gpu);
  for (unsigned i = 0; i < 4; i++)
    ck_assert_double_eq_tol(limit_of(i), 0.1, 1e-6);
}
END_TEST

START_TEST(what_a_modest_job_leaves_the_others_share) {
  add(3, 0.6);
  use(&jobs[0], 0.04, false);
  use(&jobs[1], 0.2, true);
  use(&jobs[2], 0.2, true);
  share_split(&gpu);
  ck_assert_double_ge(limit_of(0), 0.04);
  ck_assert_double_le(limit_of(0), 0.08);
  ck_assert_double_eq_tol(limit_of(1), limit_of(2), 1e-6);
  ck_assert_double_ge(limit_of(1), 0.26);
  ck_assert_double_eq_tol(sum(3), 0.6, 1e-6);
}
END_TEST

START_TEST(an_idle_job_can_begin_at_once) {
  add(2, 0.4);
  use(&jobs[0], 0, false);
  use(&jobs[1], 0.4, true);
  share_split(&gpu);
  ck_assert_double_ge(limit_of(0), 0.02);
  ck_assert_double_ge(limit_of(1), 0.35);
}
END_TEST

START_TEST(nothing_is_kept_back_when_all_are_modest) {
  add(3, 0.9);
  for (int i = 0; i < 3; i++)
    use(&jobs[i], 0.01 * (i + 1), false);
  share_split(&gpu);
  ck_assert_double_eq_tol(sum(3), 0.9, 1e-6);
}
END_TEST

START_TEST(one_is_enough_to_want_more) {
  add(2, 0.2);
  use(&jobs[0], 0.01, false);
  use(&jobs[1], 0.01, false);
  ck_assert(!share_is_wanted(&gpu));
  use(&jobs[1], 0.1, true);
  ck_assert(share_is_wanted(&gpu));
  use(&jobs[1], 0.1, false);
  ck_assert(!share_is_wanted(&gpu));
}
END_TEST

START_TEST(nobody_to_share_with) {
  add(0, 0.5);
  share_split(&gpu);
  ck_assert(!share_is_wanted(&gpu));
}
END_TEST

/* Whatever the demands: all of the limit is given out, no hungry job has less than another has. */
START_TEST(random_demands) {
  uint64_t random = 1;
  for (int round = 0; round < 2000; round++) {
    unsigned count = 1 + (unsigned)(splitmix_next(&random) % JOBS);
    set_up();
    add(count, 0.001 * (double)(1 + splitmix_next(&random) % 1000));
    for (unsigned i = 0; i < count; i++)
      use(&jobs[i], 0.001 * (double)(splitmix_next(&random) % 500), splitmix_next(&random) % 2);
    share_split(&gpu);
    ck_assert_double_eq_tol(sum(count) * RATE_WHOLE_GPU, gpu.limit, 2.0 * JOBS);
    for (unsigned i = 0; i < count; i++)
      for (unsigned k = 0; k < count; k++)
        ck_assert(!jobs[i].hungry || limit_of(i) >= limit_of(k) - 1e-6 || !share_is_wanted(&gpu));
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {hungry_jobs_have_equal_parts,
                                what_a_modest_job_leaves_the_others_share,
                                an_idle_job_can_begin_at_once,
                                nothing_is_kept_back_when_all_are_modest,
                                one_is_enough_to_want_more,
                                nobody_to_share_with,
                                random_demands,
                                NULL};
  return suite_main("rate_share", tests, set_up, NULL);
}
