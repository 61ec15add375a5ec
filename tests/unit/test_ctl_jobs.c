/* test_ctl_jobs.c - gpusharectl jobs: each job once, and gangs with their members; plan: jobs in its order.
 * The daemon is played here. */
#include <string.h>

#include "common/clock.h"
#include "played_status.h"
#include "suite.h"

/* The output has these, one behind the other. */
static void expect_in_order(const char *const *texts, size_t count) {
  const char *at = output;
  for (size_t i = 0; i < count; i++) {
    const char *found = strstr(at, texts[i]);
    ck_assert_msg(found != NULL, "no '%s' after '%s'", texts[i], at);
    at = found;
  }
}

static struct gs_msg *add(uint32_t job, enum gs_job_state state, const char *gang) {
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
  return played_add(GS_STATUS_WAIT);
}

/* Job 1 is on both GPUs, in its gang only on the second one; job 2 is its only other member. */
START_TEST(each_job_is_told_once) {
  static const char *const lines[] = {"\n     3      103 ", "\n     7      107 ", "\ngang pair: 2 jobs\n",
                                      "\n     1      101 4000000000 train", "\n     2      102 "};
  played_add_gpu(0);
  add(7, GS_JOB_HOLDING, "");
  add(1, GS_JOB_WAITING, "");
  played_add_gpu(0);
  add(2, GS_JOB_IDLE, "pair");
  add(1, GS_JOB_HOLDING, "pair");
  add(3, GS_JOB_IDLE, "");
  ask("jobs", 0);
  expect_in_order(lines, sizeof lines / sizeof *lines);
  output_has("standard         4.0 GiB    2.0 GiB       10 s        6 s  0 waiting, 1 holding\n");
  output_has("standard         2.0 GiB    1.0 GiB        5 s        3 s  1 idle (paused)\n");
  ask("jobs --json", 0);
  output_has_json("{'jobs': [{'job': 3, 'gang': null, 'paused': true}, {'job': 7},"
                  " {'job': 1, 'gang': 'pair', 'gpus': [{}, {'gpu': 1, 'state': 'holding'}]}, {'job': 2}]}");
}
END_TEST

static void add_planned(uint32_t job, enum gs_job_state state, unsigned queue, enum gs_rule rule) {
  struct gs_msg *wait = add(job, state, "");
  wait[-2].job_status.queue = (uint16_t)queue;
  wait->wait_status.rule = rule;
  wait->wait_status.need_bytes = job * GIB;
  wait->wait_status.room_bytes = 2 * GIB;
  wait->wait_status.planned_bytes = 3 * GIB;
}

START_TEST(a_plan_has_jobs_with_seats_first_and_then_the_queue) {
#define REST "    2.0 GiB    3.0 GiB  "
  static const char *const lines[] = {
      "6 train               6.0 GiB" REST "has a seat until the quantum is over\n",
      "5 train               5.0 GiB" REST "has lost its seat, and is to stop\n",
      "4 train               4.0 GiB" REST "will have a seat when the quantum is over\n",
      "3 train               3.0 GiB" REST "cannot run: its memory is more than the GPU has for it\n",
      "2 train               2.0 GiB" REST "waits: it does not fit beside the jobs with seats\n",
      "1 train               1.0 GiB" REST "has nothing for the GPU to do\n",
      "7 train               7.0 GiB" REST "has nothing for the GPU to do\n"};
  played_add_gpu(0);
  add_planned(1, GS_JOB_IDLE, 0, GS_RULE_IDLE);
  add_planned(2, GS_JOB_WAITING, 2, GS_RULE_DOES_NOT_FIT);
  add_planned(3, GS_JOB_WAITING, 1, GS_RULE_TOO_BIG);
  add_planned(4, GS_JOB_WAITING, 3, GS_RULE_LATER);
  add_planned(5, GS_JOB_DROPPING, 0, GS_RULE_STOPS);
  add_planned(6, GS_JOB_HOLDING, 0, GS_RULE_MAKES_WAY);
  add_planned(7, GS_JOB_WAITING, 4, GS_RULE_ENTERS + 1); /* a newer daemon's */
  ask("plan", 0);
  expect_in_order(lines, sizeof lines / sizeof *lines);
  ask("plan --json", 0);
  output_has_json("{'gpus': [{'jobs': [{'job': 6, 'rule': 'makes_way', 'need_bytes': 6442450944},"
                  "                    {}, {}, {}, {}, {}, {}]}]}");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {each_job_is_told_once, a_plan_has_jobs_with_seats_first_and_then_the_queue,
                                NULL};
  return suite_main("ctl_jobs", tests, played_set_up, played_tear_down);
}
