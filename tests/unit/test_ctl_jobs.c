/* test_ctl_jobs.c - gpusharectl jobs: each job once, and gangs with their members. The daemon is played here.
 */
#include <jansson.h>
#include <string.h>

#include "common/clock.h"
#include "played_status.h"
#include "shell.h"
#include "suite.h"

static void add(uint32_t job, enum gs_job_state state, const char *gang) {
  struct gs_msg *msg = played_add_job(state, 0, 2 * GIB, GIB);
  msg->job_status.job = job;
  msg->job_status.pid = 100 + (int32_t)job;
  msg->job_status.uid = 4000000000;
  msg->job_status.waited_ns = 3 * NS_PER_S;
  strcpy(msg->job_status.name, "train");
  msg = played_add(GS_STATUS_TERMS);
  msg->terms_status.gpu_ns = 5 * NS_PER_S;
  msg->terms_status.paused = state == GS_JOB_IDLE;
  strcpy(msg->terms_status.gang, gang);
  played_add(GS_STATUS_WAIT);
}

/* Job 1 is on both GPUs, in its gang only on the second one; job 2 is its only other member. */
static void add_all(void) {
  played_add_gpu(0);
  add(7, GS_JOB_HOLDING, "");
  add(1, GS_JOB_WAITING, "");
  played_add_gpu(0);
  add(2, GS_JOB_IDLE, "pair");
  add(1, GS_JOB_HOLDING, "pair");
  add(3, GS_JOB_IDLE, "");
}

static void ask(const char *options) {
  add_all();
  ck_assert_int_eq(run_shell("%s --socket %s jobs %s 2>&1", GS_CTL, played_listen(), options), 0);
  played_end();
}

static const char *line_of(const char *begin) {
  const char *line = strstr(output, begin);
  ck_assert_msg(line != NULL, "no line '%s' in: %s", begin, output);
  return line;
}

START_TEST(each_job_is_shown_once) {
  ask("");
  const char *one = line_of("\n     1      101 4000000000 train"), *two = line_of("\n     2      102");
  const char *three = line_of("\n     3      103"), *seven = line_of("\n     7      107");
  const char *gang = line_of("\ngang pair: 2 jobs\n");
  ck_assert(three < seven && seven < gang && gang < one && one < two);
  output_has("standard         4.0 GiB    2.0 GiB       10 s        6 s   0 waiting, 1 holding\n");
  output_has("standard         2.0 GiB    1.0 GiB        5 s        3 s   1 idle (paused)\n");
}
END_TEST

START_TEST(each_job_is_one_object) {
  static const json_int_t numbers[] = {3, 7, 1, 2};
  json_error_t error;
  ask("--json");
  json_t *root = json_loads(output, JSON_REJECT_DUPLICATES, &error), *jobs = json_object_get(root, "jobs");
  ck_assert_msg(root != NULL, "%s: %s", error.text, output);
  ck_assert_uint_eq(json_array_size(jobs), 4);
  for (size_t i = 0; i < 4; i++)
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(jobs, i), "job")), numbers[i]);
  const json_t *job = json_array_get(jobs, 2), *gpus = json_object_get(job, "gpus");
  ck_assert_str_eq(json_string_value(json_object_get(job, "gang")), "pair");
  ck_assert_uint_eq(json_array_size(gpus), 2);
  ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(gpus, 1), "gpu")), 1);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(gpus, 1), "state")), "holding");
  ck_assert(json_is_null(json_object_get(json_array_get(jobs, 0), "gang")));
  ck_assert(json_is_true(json_object_get(json_array_get(jobs, 0), "paused")));
  json_decref(root);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {each_job_is_shown_once, each_job_is_one_object, NULL};
  return suite_main("ctl_jobs", tests, played_set_up, played_tear_down);
}
