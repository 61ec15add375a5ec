/* test_trace.c - bench_trace's machinery: its traces, its GPU, and the core's hand-overs.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/clock.h"
#include "quantile.h"
#include "suite.h"
#include "trace/trace.h"

#define GIB (UINT64_C(1) << 30)

static struct trace trace;
static struct outcome outcome;

static void set_up(void) { trace = (struct trace){0}; }

static void add_job(uint64_t arrives_s, uint64_t alone_s, uint64_t gib, double gpu_use) {
  trace.jobs[trace.count++] = (struct trace_job){.arrives_ns = arrives_s * NS_PER_S,
                                                 .alone_ns = alone_s * NS_PER_S,
                                                 .peak_bytes = gib * GIB,
                                                 .gpu_use = gpu_use};
}

static void run(const char *name) {
  const struct policy_under_test *policy = core_policies;
  while (strcmp(policy->name, name) != 0)
    policy++;
  ck_assert_int_eq(machine_run(&trace, policy, &outcome), 0);
}

static void check_ends(const double *ends_s) {
  for (unsigned i = 0; i < trace.count; i++)
    ck_assert_double_eq_tol((double)outcome.ended_ns[i] / NS_PER_S, ends_s[i], 1e-6);
}

/* ---- traces ---- */

START_TEST(a_trace_follows_from_its_seed) {
  static struct trace other;
  trace_generate(&trace, trace_mix_find(NULL), 7);
  trace_generate(&other, trace_mix_find(NULL), 7);
  ck_assert_mem_eq(&trace, &other, sizeof trace);
  trace_generate(&other, trace_mix_find(NULL), 8);
  ck_assert_mem_ne(&trace, &other, sizeof trace);
}
END_TEST

START_TEST(a_trace_is_what_its_mix_says) {
  const struct trace_mix *mix = trace_mix_find("minutes");
  double work_min = 0;
  trace_generate(&trace, mix, 7);
  ck_assert_uint_eq(trace.count, TRACE_JOBS);
  for (unsigned i = 0; i < trace.count; i++) {
    const struct trace_job *job = &trace.jobs[i];
    work_min += (double)job->alone_ns / NS_PER_S / 60;
    ck_assert_uint_ge(job->alone_ns, (uint64_t)(mix->shortest_min * 60 * NS_PER_S));
    ck_assert_uint_le(job->peak_bytes, GPU_BYTES);
    if (i > 0)
      ck_assert_uint_ge(job->arrives_ns, job[-1].arrives_ns);
  }
  ck_assert_double_eq_tol(work_min, mix->work_min, 1e-3);
  ck_assert_ptr_null(trace_mix_find("unheard of"));
}
END_TEST

/* ---- the GPU ---- */

static void *begin_nothing(const void *rules) {
  (void)rules;
  return NULL;
}
static void end_nothing(void *state) { (void)state; }
static void ignore(void *state, struct machine_job *job, uint64_t now_ns) {
  (void)state;
  (void)job;
  (void)now_ns;
}
static uint64_t never(const void *state) {
  (void)state;
  return POLICY_NEVER;
}

static void let_run(void *state, struct machine_job *job, uint64_t now_ns) {
  ignore(state, job, now_ns);
  job->runs = true;
}

static const struct policy_under_test let_all_run = {.name = "all",
                                                     .engine =
                                                         &(const struct policy_engine){.begin = begin_nothing,
                                                                                       .end = end_nothing,
                                                                                       .arrive = let_run,
                                                                                       .finish = ignore,
                                                                                       .deadline_ns = never}};

START_TEST(jobs_that_leave_each_other_room_are_not_slowed_down) {
  add_job(0, 10, 1, 0.5);
  add_job(0, 20, 1, 0.5);
  ck_assert_int_eq(machine_run(&trace, &let_all_run, &outcome), 0);
  check_ends((double[]){10, 20});
}
END_TEST

/* Together at 1 / 1.6 until the first has done its 10 s at 16; the second has 10 left. */
START_TEST(jobs_that_do_not_share_the_gpu) {
  add_job(0, 10, 1, 0.8);
  add_job(0, 20, 1, 0.8);
  ck_assert_int_eq(machine_run(&trace, &let_all_run, &outcome), 0);
  check_ends((double[]){16, 26});
}
END_TEST

START_TEST(a_policy_that_lets_too_many_run_is_caught) {
  add_job(0, 2, 8, 1);
  add_job(1, 2, 8, 1);
  ck_assert_int_eq(machine_run(&trace, &let_all_run, &outcome), 0);
  add_job(2, 2, 1, 1);
  ck_assert_int_eq(machine_run(&trace, &let_all_run, &outcome), -ENOMEM);
}
END_TEST

START_TEST(a_policy_that_lets_nobody_run_is_caught) {
  const struct policy_engine engine = {
      .begin = begin_nothing, .end = end_nothing, .arrive = ignore, .finish = ignore, .deadline_ns = never};
  const struct policy_under_test policy = {.name = "none", .engine = &engine};
  add_job(0, 1, 1, 1);
  ck_assert_int_eq(machine_run(&trace, &policy, &outcome), -EDEADLK);
}
END_TEST

/* ---- the core ---- */

static double began_s(unsigned i) { return (double)outcome.began_ns[i] / NS_PER_S; }
static double ended_s(unsigned i) { return (double)outcome.ended_ns[i] / NS_PER_S; }

START_TEST(the_core_brings_memory_in_before_a_job_runs) {
  add_job(0, 10, 8, 1);
  run("fifo");
  ck_assert_double_eq_tol(began_s(0), 8.0 * GIB / 42e9, 1e-3);
  ck_assert_double_eq_tol(ended_s(0), began_s(0) + 10, 1e-6);
}
END_TEST

/* What fits stays on the card: later turns cost their drains, which lose no work. */
START_TEST(turns_of_jobs_that_fit_cost_nothing) {
  add_job(0, 60, 8, 1);
  add_job(0, 60, 8, 1);
  run("fair");
  ck_assert_double_lt(ended_s(1), 120 + 2 * 8.0 * GIB / 42e9);
  ck_assert_double_gt(ended_s(0), 90); /* they took turns */
}
END_TEST

/* 12 + 12 GiB on 16: at each hand-over 8 GiB go out while 8 come in, but for what moves before the first
 * turns. */
START_TEST(turns_of_jobs_that_do_not_fit_cost_their_moves) {
  const double moves_s = 8.0 * GIB / 42e9;
  add_job(0, 100, 12, 1);
  add_job(0, 100, 12, 1);
  run("fair");
  double lost_s = fmax(ended_s(0), ended_s(1)) - 200;
  ck_assert_double_gt(lost_s, 8 * moves_s);
  ck_assert_double_lt(lost_s, 12 * moves_s);
}
END_TEST

/* But for what hand-overs cost. */
START_TEST(fifo_on_the_core_is_fifo) {
  trace_generate(&trace, trace_mix_find(NULL), 3);
  run("fifo");
  uint64_t ideal_ns = 0;
  for (unsigned i = 0; i < trace.count; i++) {
    const struct trace_job *job = &trace.jobs[i];
    ideal_ns = (job->arrives_ns > ideal_ns ? job->arrives_ns : ideal_ns) + job->alone_ns;
    ck_assert_double_gt(ended_s(i), (double)ideal_ns / NS_PER_S - 1e-6);
    ck_assert_double_lt(ended_s(i), (double)ideal_ns / NS_PER_S + 0.5 * (i + 1));
  }
}
END_TEST

/* ---- figures ---- */

START_TEST(a_row_has_the_papers_figures) {
  add_job(0, 600, 1, 1);
  add_job(60, 60, 1, 1);
  outcome = (struct outcome){.began_ns = {0, 600 * NS_PER_S}, .ended_ns = {600 * NS_PER_S, 660 * NS_PER_S}};
  struct row row = row_of(&trace, &outcome);
  ck_assert_double_eq_tol(row.makespan, 11, 1e-6);
  ck_assert_double_eq_tol(row.queuing, 4.5, 1e-6); /* 0 and 9 */
  ck_assert_double_eq_tol(row.jct, 10, 1e-6);
  ck_assert_double_eq_tol(row.jct_95, 10, 1e-6);
}
END_TEST

START_TEST(quantiles_are_interpolated) {
  ck_assert_double_eq_tol(quantile((double[]){5, 1, 3}, 3, 0.5), 3, 1e-9);
  ck_assert_double_eq_tol(quantile((double[]){4, 2}, 2, 0.5), 3, 1e-9);
  ck_assert_double_eq_tol(quantile((double[]){1, 2, 3, 4, 5}, 5, 0.95), 4.8, 1e-9);
  ck_assert_double_eq_tol(quantile((double[]){9}, 1, 0.95), 9, 1e-9);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_trace_follows_from_its_seed,
                                a_trace_is_what_its_mix_says,
                                jobs_that_leave_each_other_room_are_not_slowed_down,
                                jobs_that_do_not_share_the_gpu,
                                a_policy_that_lets_too_many_run_is_caught,
                                a_policy_that_lets_nobody_run_is_caught,
                                the_core_brings_memory_in_before_a_job_runs,
                                turns_of_jobs_that_fit_cost_nothing,
                                turns_of_jobs_that_do_not_fit_cost_their_moves,
                                fifo_on_the_core_is_fifo,
                                a_row_has_the_papers_figures,
                                quantiles_are_interpolated,
                                NULL};
  return suite_main("trace", tests, set_up, NULL);
}
