/* test_ctl_why.c - gpusharectl why: what it says of each reason. The daemon is played here. */
#include <jansson.h>
#include <stdbool.h>

#include "common/clock.h"
#include "played_status.h"
#include "shell.h"
#include "suite.h"

/* Job 5, after that of a holder, job 3. */
static struct gs_msg *add_job(enum gs_job_state state, enum gs_reason reason, uint64_t expected_ns) {
  struct gs_msg *job = played_add_job(state, 0, 20 * GIB, 4 * GIB);
  job->job_status.job = 5;
  job->job_status.pid = 55;
  strcpy(job->job_status.name, "train");
  played_add(GS_STATUS_TERMS);
  struct gs_msg *wait = played_add(GS_STATUS_WAIT);
  wait->wait_status.reason = reason;
  wait->wait_status.expected_ns = expected_ns;
  return wait;
}

static void add_holder(void) {
  played_add_gpu(0);
  struct gs_msg *job = played_add_job(GS_JOB_HOLDING, 0, GIB, GIB);
  job->job_status.job = 3;
  job->job_status.pid = 33;
  strcpy(job->job_status.name, "holder");
  played_add(GS_STATUS_TERMS);
  played_add(GS_STATUS_WAIT)->wait_status.reason = GS_REASON_RUNS;
}

static int ask(const char *arguments) {
  int code = run_shell("%s --socket %s why %s 2>&1", GS_CTL, played_listen(), arguments);
  played_end();
  return code;
}

START_TEST(who_is_in_the_way_and_for_how_long) {
  add_holder();
  struct gs_msg *wait = add_job(GS_JOB_WAITING, GS_REASON_TURN, 15 * NS_PER_S);
  wait->wait_status.awaited = 3;
  wait->wait_status.lacking_bytes = 12 * GIB;
  ck_assert_int_eq(ask("5"), 0);
  ck_assert_str_eq(output,
                   "GPU 0: job 5 (pid 55, train) waits for its turn: job 3 (pid 33, holder) has the GPU. "
                   "12.0 GiB of its memory are not on the card. It should run in about 15 s.\n");
}
END_TEST

static void add_planned(uint32_t number, enum gs_job_state state, unsigned queue, enum gs_rule rule) {
  struct gs_msg *job = played_add_job(state, 0, 4 * GIB, 4 * GIB);
  job->job_status.job = number;
  job->job_status.queue = (uint16_t)queue;
  strcpy(job->job_status.name, "job");
  played_add(GS_STATUS_TERMS);
  struct gs_msg *wait = played_add(GS_STATUS_WAIT);
  wait->wait_status.rule = rule;
  wait->wait_status.need_bytes = number * GIB;
  wait->wait_status.room_bytes = 2 * GIB;
  wait->wait_status.planned_bytes = 3 * GIB;
}

static int ask_plan(const char *arguments) {
  int code = run_shell("%s --socket %s plan %s 2>&1", GS_CTL, played_listen(), arguments);
  played_end();
  return code;
}

/* Jobs with a seat first, then the queue. */
static void play_plan(void) {
  played_add_gpu(0);
  add_planned(1, GS_JOB_IDLE, 0, GS_RULE_IDLE);
  add_planned(2, GS_JOB_WAITING, 2, GS_RULE_DOES_NOT_FIT);
  add_planned(3, GS_JOB_WAITING, 1, GS_RULE_TOO_BIG);
  add_planned(4, GS_JOB_WAITING, 3, GS_RULE_LATER);
  add_planned(5, GS_JOB_DROPPING, 0, GS_RULE_STOPS);
  add_planned(6, GS_JOB_HOLDING, 0, GS_RULE_MAKES_WAY);
  add_planned(7, GS_JOB_WAITING, 4, GS_RULE_ENTERS + 1); /* a newer daemon's */
}

START_TEST(the_plan_is_shown_in_its_order) {
  play_plan();
  ck_assert_int_eq(ask_plan(""), 0);
  const char *at = output;
  static const char *const lines[] = {
      "6 job                 6.0 GiB    2.0 GiB    3.0 GiB  has a seat until the quantum is over\n",
      "5 job                 5.0 GiB    2.0 GiB    3.0 GiB  has lost its seat, and is to stop\n",
      "4 job                 4.0 GiB    2.0 GiB    3.0 GiB  will have a seat when the quantum is over\n",
      "3 job                 3.0 GiB    2.0 GiB    3.0 GiB  cannot run: its memory is more than the GPU has "
      "for it\n",
      "2 job                 2.0 GiB    2.0 GiB    3.0 GiB  waits: it does not fit beside the jobs with "
      "seats\n",
      "1 job                 1.0 GiB    2.0 GiB    3.0 GiB  has nothing for the GPU to do\n",
      "7 job                 7.0 GiB    2.0 GiB    3.0 GiB  has nothing for the GPU to do\n"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    const char *found = strstr(at, lines[i]);
    ck_assert_msg(found != NULL, "no '%s' after '%s'", lines[i], at);
    at = found;
  }
}
END_TEST

START_TEST(the_plan_is_json_as_well) {
  play_plan();
  ck_assert_int_eq(ask_plan("--json"), 0);
  json_t *root = json_loads(output, 0, NULL);
  json_t *jobs = json_object_get(json_array_get(json_object_get(root, "gpus"), 0), "jobs");
  ck_assert_uint_eq(json_array_size(jobs), 7);
  json_t *first = json_array_get(jobs, 0);
  ck_assert_int_eq(json_integer_value(json_object_get(first, "job")), 6);
  ck_assert_str_eq(json_string_value(json_object_get(first, "rule")), "makes_way");
  ck_assert_int_eq(json_integer_value(json_object_get(first, "need_bytes")), 6 * (json_int_t)GIB);
  json_decref(root);
}
END_TEST

START_TEST(the_rule_of_the_plan_is_told) {
  add_holder();
  struct gs_msg *wait = add_job(GS_JOB_WAITING, GS_REASON_TURN, 15 * NS_PER_S);
  wait->wait_status.awaited = 3;
  wait->wait_status.rule = GS_RULE_DOES_NOT_FIT;
  ck_assert_int_eq(ask("5"), 0);
  output_has("has the GPU. It waits: it does not fit beside the jobs with seats. It should run");
}
END_TEST

START_TEST(what_limits_an_opportunistic_job) {
  static const struct {
    enum gs_limited limited;
    uint64_t limit;
    const char *text;
  } cases[] = {
      {GS_LIMITED_IDLE, GS_LIMITED_WHOLE,
       "runs. It may use all of the GPU while production job 3 (pid 33, holder) is idle.\n"},
      {GS_LIMITED_LOOK, 0,
       "runs. It may not use the GPU for the moment: it is measured what production job 3 (pid 33, holder) "
       "does undisturbed, for a tenth of a second.\n"},
      {GS_LIMITED_BACK, 0, "moment: production job 3 (pid 33, holder) has just begun to work.\n"},
      {GS_LIMITED_GROWS, GS_LIMITED_WHOLE / 100,
       "is limited to 1 % of the GPU, and more and more until production job 3 (pid 33, holder) loses "
       "speed.\n"},
      {GS_LIMITED_FOUND, GS_LIMITED_WHOLE / 1000 * 124,
       "runs. It is limited to 12 % of the GPU, by which production job 3 (pid 33, holder) keeps its "
       "speed.\n"},
      {GS_LIMITED_SET, GS_LIMITED_WHOLE / 5,
       "runs. It is limited to 20 % of the GPU, as has been set, until 'gpusharectl set-rate 5 auto'.\n"},
      {GS_LIMITED_CROWD, 0,
       "moment: production job 3 (pid 33, holder) works: beside so many production jobs no speed is "
       "measured.\n"},
      {GS_LIMITED_NOT, GS_LIMITED_WHOLE, "runs.\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    played_begin();
    add_holder();
    struct gs_msg *wait = add_job(GS_JOB_HOLDING, GS_REASON_RUNS, 0);
    wait->wait_status.limited = cases[i].limited;
    wait->wait_status.limit = cases[i].limit;
    wait->wait_status.limited_for = 3;
    ck_assert_int_eq(ask("5"), 0);
    output_has(cases[i].text);
  }
}
END_TEST

START_TEST(what_an_opportunistic_job_waits_for) {
  add_holder();
  struct gs_msg *wait = add_job(GS_JOB_WAITING, GS_REASON_TURN, UINT64_MAX);
  wait->wait_status.awaited = 3;
  wait[-1].terms_status.class = GS_CLASS_OPPORTUNISTIC;
  ck_assert_int_eq(ask("5"), 0);
  output_has(
      "waits for its turn: job 3 (pid 33, holder) has the GPU. An opportunistic job runs when no other "
      "one wants to. How long that takes cannot be told.\n");
}
END_TEST

/* 20 GiB are used. */
START_TEST(what_is_beyond_a_soft_limit_may_be_away) {
  static const struct {
    uint64_t soft_limit_bytes, lacking_bytes;
    bool said;
  } cases[] = {
      {8 * GIB, 12 * GIB, true}, {0, 12 * GIB, false}, {8 * GIB, 0, false}, {20 * GIB, 12 * GIB, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    played_begin();
    add_holder();
    struct gs_msg *wait = add_job(GS_JOB_WAITING, GS_REASON_TURN, NS_PER_S);
    wait->wait_status.lacking_bytes = cases[i].lacking_bytes;
    wait[-1].terms_status.soft_limit_bytes = cases[i].soft_limit_bytes;
    ck_assert_int_eq(ask("5"), 0);
    const char *text =
        "What it has beyond its soft limit of 8.0 GiB leaves before the memory of others. It should run";
    ck_assert_msg((strstr(output, text) != NULL) == cases[i].said, "case %zu: %s", i, output);
    ck_assert_msg((strstr(output, "soft") != NULL) == cases[i].said, "case %zu: %s", i, output);
  }
}
END_TEST

START_TEST(what_it_is_expected_to_have_is_told) {
  for (unsigned gib = 20; gib <= 24; gib += 4) {
    played_begin();
    add_holder();
    struct gs_msg *wait = add_job(GS_JOB_WAITING, GS_REASON_TURN, NS_PER_S);
    wait->wait_status.expected_bytes = gib * GIB;
    ck_assert_int_eq(ask("5"), 0);
    ck_assert_int_eq(strstr(output, "Beside others it counts with 24.0 GiB: it has said so") != NULL,
                     gib > 20);
  }
}
END_TEST

START_TEST(every_reason_has_its_words) {
  static const struct {
    enum gs_reason reason;
    const char *text;
  } cases[] = {
      {GS_REASON_IDLE, "is idle: it has nothing for the GPU to do.\n"},
      {GS_REASON_RUNS, "runs.\n"},
      {GS_REASON_STOPS, "gives the GPU back: its submitted work finishes, as it can't be stopped.\n"},
      {GS_REASON_SILENT, "does not answer"},
      {GS_REASON_RESTORE, "has its turn, and its memory comes to the card. It should run in about 250 ms."},
      {GS_REASON_ROOM, "has its turn, but the memory of job 3 (pid 33, holder) leaves the card first."},
      {GS_REASON_STOP, "is next: the work of job 3 (pid 33, holder) has yet to stop."},
      {GS_REASON_TOO_BIG, "it uses 20.0 GiB, and without page faults all of that must fit the GPU, of which "
                          "jobs may use 16.0 GiB."},
      {GS_REASON_STAYING, "for want of host memory"},
      {GS_REASON_PAUSED,
       "waits for job 3 of its gang, which is paused: gpusharectl resume 3 lets both go on."},
      {GS_REASON_MEMORY,
       "waits for memory: it will have 0 B, as it has said, and card and host have not so much "
       "left beside what the others have and will have."},
      {GS_REASON_MEMORY + 1, "does not know"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    played_begin();
    add_holder();
    add_job(GS_JOB_WAITING, cases[i].reason, 250 * NS_PER_MS)->wait_status.awaited = 3;
    ck_assert_int_eq(ask("5"), 0);
    output_has("GPU 0: job 5 (pid 55, train) ");
    output_has(cases[i].text);
  }
}
END_TEST

START_TEST(durations_are_readable) {
  static const struct {
    uint64_t ns;
    const char *text;
  } cases[] = {{NS_PER_MS, "about 1 ms."},
               {1500 * NS_PER_MS, "about 1.5 s."},
               {300 * NS_PER_S, "about 5 minutes."},
               {9000 * NS_PER_S, "about 2.5 hours."},
               {864000 * NS_PER_S, "about 10 days."},
               {UINT64_MAX, "cannot be told."}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    played_begin();
    add_holder();
    add_job(GS_JOB_WAITING, GS_REASON_TURN, cases[i].ns);
    ck_assert_int_eq(ask("5"), 0);
    output_has("waits for its turn. ");
    output_has(cases[i].text);
  }
}
END_TEST

/* On two GPUs, with another process of its gang on a third. */
static void add_gang(void) {
  for (int i = 0; i < 3; i++) {
    played_add_gpu(0);
    struct gs_msg *wait = add_job(GS_JOB_WAITING, GS_REASON_TURN, NS_PER_S);
    wait[-2].job_status.job = i == 2 ? 6 : 5;
    strcpy(wait[-1].terms_status.gang, "pair");
  }
}

START_TEST(a_gang_is_named) {
  add_gang();
  ck_assert_int_eq(ask("5"), 0);
  output_has("GPU 0: job 5");
  output_has("\nGPU 1: job 5");
  output_lacks("GPU 2");
  output_has("Its gang 'pair' gets all its 3 GPUs at the same time.");
}
END_TEST

START_TEST(what_is_overdue_is_silent) {
  played_add_gpu(0);
  struct gs_msg *wait = add_job(GS_JOB_DROPPING, GS_REASON_STOPS, 0);
  wait[-2].job_status.flags = GS_STATE_CAPTURING;
  ck_assert_int_eq(ask("5"), 0);
  output_has("as soon as its stream capture ends");
  wait[-2].job_status.flags = GS_STATE_CAPTURING | GS_STATE_OVERDUE;
  ck_assert_int_eq(ask("5"), 0);
  output_has("does not answer");
}
END_TEST

START_TEST(who_is_stopped_is_named) {
  add_holder();
  struct gs_msg *wait = add_job(GS_JOB_WAITING, GS_REASON_TURN, UINT64_MAX);
  wait->wait_status.awaited = 3;
  wait[-5].job_status.flags = GS_STATE_STOPPED;
  ck_assert_int_eq(ask("5"), 0);
  ck_assert_str_eq(
      output, "GPU 0: job 5 (pid 55, train) waits for its turn: job 3 (pid 33, holder) has the GPU. Job 3 "
              "(pid 33) is stopped (SIGSTOP, Ctrl-Z or a debugger) and can't give back what it has: 'kill "
              "-CONT 33' lets it go on. How long that takes cannot be told.\n");
  ck_assert_int_eq(ask("3"), 0);
  output_has("runs. Job 3 (pid 33) is stopped");
  wait->wait_status.reason = GS_REASON_STAYING; /* its memory is in the way */
  wait->wait_status.awaited = 0;
  ck_assert_int_eq(ask("5"), 0);
  output_has("'kill -CONT 33' lets it go on.");
}
END_TEST

START_TEST(as_json) {
  json_error_t error;
  add_gang();
  ck_assert_int_eq(ask("5 --json"), 0);
  json_t *root = json_loads(output, JSON_REJECT_DUPLICATES, &error), *gpus = json_object_get(root, "gpus");
  ck_assert_msg(root != NULL, "%s: %s", error.text, output);
  ck_assert_int_eq(json_integer_value(json_object_get(root, "job")), 5);
  ck_assert_uint_eq(json_array_size(gpus), 2);
  const json_t *second = json_array_get(gpus, 1);
  ck_assert_int_eq(json_integer_value(json_object_get(second, "gpu")), 1);
  ck_assert_str_eq(json_string_value(json_object_get(second, "state")), "waiting");
  ck_assert_str_eq(json_string_value(json_object_get(second, "reason")), "turn");
  ck_assert_int_eq(json_integer_value(json_object_get(second, "expected_ns")), (json_int_t)NS_PER_S);
  ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(second, "text")), "GPU 1: job 5"));
  ck_assert(json_is_string(json_object_get(second, "uuid")));
  json_decref(root);
}
END_TEST

START_TEST(who_is_not_there_is_no_job) {
  add_holder();
  ck_assert_int_eq(ask("5"), 1);
  output_has("no job on a GPU has the number 5");
  ck_assert_int_eq(run_shell("%s why 0 2>&1", GS_CTL), 2);
  output_has("not the number of a job");
  ck_assert_int_eq(run_shell("%s why 2>&1", GS_CTL), 2);
  ck_assert_int_eq(run_shell("%s why 5 --gpu all 2>&1", GS_CTL), 2);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {the_plan_is_shown_in_its_order,
                                the_plan_is_json_as_well,
                                the_rule_of_the_plan_is_told,
                                who_is_in_the_way_and_for_how_long,
                                what_limits_an_opportunistic_job,
                                what_an_opportunistic_job_waits_for,
                                what_is_beyond_a_soft_limit_may_be_away,
                                what_it_is_expected_to_have_is_told,
                                every_reason_has_its_words,
                                durations_are_readable,
                                a_gang_is_named,
                                what_is_overdue_is_silent,
                                who_is_stopped_is_named,
                                as_json,
                                who_is_not_there_is_no_job,
                                NULL};
  return suite_main("ctl_why", tests, played_set_up, played_tear_down);
}
