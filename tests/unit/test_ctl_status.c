/* test_ctl_status.c - gpusharectl status: what it makes of a daemon's figures. The daemon is played here. */
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "common/clock.h"
#include "played_status.h"
#include "shell.h"
#include "suite.h"

/* Options of status. */
static void ask(const char *options) {
  ck_assert_int_eq(run_shell("%s --socket %s status %s 2>&1", GS_CTL, played_listen(), options), 0);
  played_end();
}

/* ---- what the daemon says ---- */

/* Four hand-overs in 2 s: 0.4 s drains, 1.6 s moves, 40 GB out, 30 GB in. The last: 0.5 s, 12 GB and 6 GB. */
static void add_handovers(void) {
  struct gs_msg *msg = played_add(GS_STATUS_HANDOVER);
  msg->handover_status.drain_ns = 400 * NS_PER_MS;
  msg->handover_status.move_ns = 1600 * NS_PER_MS;
  msg->handover_status.evicted_bytes = UINT64_C(40000000000);
  msg->handover_status.restored_bytes = UINT64_C(30000000000);
  msg->handover_status.drain_last_ns = 50 * NS_PER_MS;
  msg->handover_status.move_last_ns = 450 * NS_PER_MS;
  msg->handover_status.evicted_last_bytes = UINT64_C(12000000000);
  msg->handover_status.restored_last_bytes = UINT64_C(6000000000);
  msg->handover_status.hidden_bytes = 3 * GIB;
  msg->handover_status.overhead_bytes = 512 * MIB;
  msg->handover_status.left_ns = 3 * NS_PER_S;
}

/* ---- tests ---- */

static json_t *root;

static json_t *first_gpu(void) {
  json_error_t error;
  root = json_loads(output, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(root != NULL, "%s: %s", error.text, output);
  return json_array_get(json_object_get(root, "gpus"), 0);
}

static void expect_number(const json_t *object, const char *key, uint64_t value) {
  const json_t *found = json_object_get(object, key);
  ck_assert_msg(json_is_integer(found), "%s is missing in %s", key, output);
  ck_assert_msg((uint64_t)json_integer_value(found) == value, "%s: %lld", key,
                (long long)json_integer_value(found));
}

START_TEST(hand_overs_as_json) {
  played_add_gpu(4);
  add_handovers();
  ask("--json");
  const json_t *gpu = first_gpu(), *handover = json_object_get(gpu, "handover");
  expect_number(gpu, "handovers", 4);
  expect_number(gpu, "left_ns", 3 * NS_PER_S);
  expect_number(handover, "count", 4);
  expect_number(handover, "drain_ns", 400 * NS_PER_MS);
  expect_number(handover, "drain_mean_ns", 100 * NS_PER_MS);
  expect_number(handover, "drain_last_ns", 50 * NS_PER_MS);
  expect_number(handover, "move_ns", 1600 * NS_PER_MS);
  expect_number(handover, "move_mean_ns", 400 * NS_PER_MS);
  expect_number(handover, "move_last_ns", 450 * NS_PER_MS);
  expect_number(handover, "evicted_bytes", UINT64_C(40000000000));
  expect_number(handover, "evicted_last_bytes", UINT64_C(12000000000));
  expect_number(handover, "evicted_bytes_per_s", UINT64_C(20000000000));
  expect_number(handover, "evicted_last_bytes_per_s", UINT64_C(24000000000));
  expect_number(handover, "restored_bytes", UINT64_C(30000000000));
  expect_number(handover, "restored_last_bytes", UINT64_C(6000000000));
  expect_number(handover, "restored_bytes_per_s", UINT64_C(15000000000));
  expect_number(handover, "restored_last_bytes_per_s", UINT64_C(12000000000));
  expect_number(handover, "hidden_bytes", 3 * GIB);
  expect_number(handover, "overhead_bytes", 512 * MIB);
  json_decref(root);
}
END_TEST

START_TEST(hand_overs_in_the_table) {
  played_add_gpu(4);
  add_handovers();
  ask("");
  output_has("4 hand-overs");
  output_has("hand-over: drain 100.0 ms (last 50.0), moves 400.0 ms (last 450.0); out 37.3 GiB at 20.0 GB/s "
             "(last 24.0); in 27.9 GiB at 15.0 GB/s (last 12.0)\n");
  output_has("moved behind turns: 3.0 GiB\n");
  output_has("the driver has refused 512.0 MiB of the capacity\n");
}
END_TEST

START_TEST(what_can_be_done_with_the_work) {
  played_add_gpu(0)->gpu_status.jobs = 3;
  played_add_job(GS_JOB_HOLDING, GS_STATE_PREEMPTS | GS_STATE_OWN_CONTEXT, GIB, GIB);
  played_add_job(GS_JOB_HOLDING, GS_STATE_PREEMPTS | GS_STATE_OWN_CONTEXT, GIB, GIB);
  played_add_job(GS_JOB_IDLE, 0, GIB, 0);
  ask("");
  output_has(
      "  work of 2 of 3 jobs can be stopped in its middle; 2 have a context of ours to move memory in, "
      "about 520.0 MiB beside the capacity\n");
}
END_TEST

START_TEST(no_hand_over_has_no_figures) {
  played_add_gpu(0);
  played_add(GS_STATUS_HANDOVER)->handover_status.left_ns = UINT64_MAX;
  ask("");
  output_lacks("hand-over:");
  output_lacks("behind turns");
  output_lacks("refused");
  ask("--json");
  const json_t *gpu = first_gpu(), *handover = json_object_get(gpu, "handover");
  ck_assert(json_is_null(json_object_get(gpu, "left_ns")));
  expect_number(handover, "move_mean_ns", 0);
  expect_number(handover, "evicted_bytes_per_s", 0);
  json_decref(root);
}
END_TEST

START_TEST(each_gpu_has_its_own_figures) {
  played_add_gpu(4);
  add_handovers();
  played_add_job(GS_JOB_HOLDING, 0, GIB, GIB);
  played_add_gpu(0);
  played_add(GS_STATUS_HANDOVER);
  played_add_job(GS_JOB_HOLDING, 0, GIB, GIB);
  played_add_job(GS_JOB_IDLE, 0, GIB, 0);
  ask("--json");
  first_gpu();
  const json_t *gpus = json_object_get(root, "gpus"), *one = json_array_get(gpus, 0),
               *two = json_array_get(gpus, 1);
  ck_assert_uint_eq(json_array_size(json_object_get(one, "jobs")), 1);
  ck_assert_uint_eq(json_array_size(json_object_get(two, "jobs")), 2);
  const json_t *job = json_array_get(json_object_get(one, "jobs"), 0);
  ck_assert(json_real_value(json_object_get(job, "held_share")) > 0.99);
  expect_number(json_object_get(two, "handover"), "evicted_bytes", 0);
  json_decref(root);
}
END_TEST

static const json_t *ask_job(void) {
  ask("--json");
  return json_array_get(json_object_get(first_gpu(), "jobs"), 0);
}

static void add_terms(uint32_t weight, int32_t priority, uint64_t remaining_ns, uint64_t limit_bytes,
                      uint64_t soft_limit_bytes) {
  struct gs_msg *terms = played_add(GS_STATUS_TERMS);
  terms->terms_status.weight = weight;
  terms->terms_status.priority = priority;
  terms->terms_status.gpu_ns = 3 * NS_PER_S;
  terms->terms_status.remaining_ns = remaining_ns;
  terms->terms_status.limit_bytes = limit_bytes;
  terms->terms_status.soft_limit_bytes = soft_limit_bytes;
}

START_TEST(terms_as_json) {
  played_add_gpu(0)->gpu_status.policy = GS_POLICY_SRTF;
  played_add(GS_STATUS_HANDOVER);
  played_add_job(GS_JOB_HOLDING, 0, GIB, GIB);
  add_terms(300, -5, 90 * NS_PER_S, 4 * GIB, 2 * GIB);
  played_add_job(GS_JOB_IDLE, 0, GIB, GIB);
  add_terms(GS_WEIGHT_DEFAULT, 0, 0, 0, 0);
  const json_t *job = ask_job(), *gpu = json_array_get(json_object_get(root, "gpus"), 0);
  ck_assert_str_eq(json_string_value(json_object_get(gpu, "policy")), "srtf");
  expect_number(job, "weight", 300);
  expect_number(job, "priority", (uint64_t)-5);
  expect_number(job, "gpu_ns", 3 * NS_PER_S);
  expect_number(job, "remaining_ns", 90 * NS_PER_S);
  expect_number(job, "limit_bytes", 4 * GIB);
  expect_number(job, "soft_limit_bytes", 2 * GIB);
  job = json_array_get(json_object_get(gpu, "jobs"), 1);
  expect_number(job, "weight", GS_WEIGHT_DEFAULT);
  expect_number(job, "limit_bytes", 0);
  expect_number(job, "soft_limit_bytes", 0);
  ck_assert(json_is_null(json_object_get(job, "remaining_ns")));
  json_decref(root);
}
END_TEST

START_TEST(terms_in_the_table_when_they_say_something) {
  static const struct {
    uint32_t weight;
    int32_t priority;
    uint64_t remaining_ns, limit_bytes, soft_limit_bytes;
    const char *header, *one, *other;
  } cases[] = {{GS_WEIGHT_DEFAULT, 0, 0, 0, 0, "      MOVED  STATE\n", "0 B  holding\n", "0 B  idle\n"},
               {300, 0, 0, 0, 0, "MOVED WEIGHT  STATE\n", "0 B    300  holding\n", "0 B    100  idle\n"},
               {GS_WEIGHT_DEFAULT, -5, 90 * NS_PER_S, 0, 0, "MOVED PRIO      LEFT  STATE\n",
                "0 B   -5     90.0s  holding\n", "0 B    0         -  idle\n"},
               {GS_WEIGHT_DEFAULT, 0, 0, 4 * GIB, 0, "MOVED      LIMIT  STATE\n", "0 B    4.0 GiB  holding\n",
                "0 B          -  idle\n"},
               {GS_WEIGHT_DEFAULT, 0, 0, 0, 2 * GIB, "MOVED SOFT LIMIT  STATE\n", "0 B    2.0 GiB  holding\n",
                "0 B          -  idle\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    played_begin();
    played_add_gpu(0);
    played_add(GS_STATUS_HANDOVER);
    played_add_job(GS_JOB_HOLDING, 0, GIB, GIB);
    add_terms(cases[i].weight, cases[i].priority, cases[i].remaining_ns, cases[i].limit_bytes,
              cases[i].soft_limit_bytes);
    played_add_job(GS_JOB_IDLE, 0, GIB, GIB);
    add_terms(GS_WEIGHT_DEFAULT, 0, 0, 0, 0);
    ask("");
    output_has(cases[i].header);
    output_has(cases[i].one);
    output_has(cases[i].other);
  }
}
END_TEST

static void add_gang(const char *gang) {
  add_terms(GS_WEIGHT_DEFAULT, 0, 0, 0, 0);
  struct gs_msg *wait = played_add(GS_STATUS_WAIT);
  strcpy(wait[-1].terms_status.gang, gang);
  wait->wait_status.reason = GS_REASON_TURN;
  wait->wait_status.awaited = 7;
  wait->wait_status.expected_ns = 3 * NS_PER_S;
  wait->wait_status.lacking_bytes = GIB;
}

START_TEST(gangs_and_reasons_as_json) {
  played_add_gpu(0);
  played_add_job(GS_JOB_WAITING, 0, GIB, GIB);
  add_gang("pair");
  played_add_job(GS_JOB_WAITING, 0, GIB, GIB);
  add_gang("");
  struct gs_msg *wait = &played_add(GS_STATUS_GPU)[-1];
  wait->wait_status.awaited = 0;
  wait->wait_status.expected_ns = UINT64_MAX;
  wait->wait_status.reason = GS_REASON_TOO_BIG;
  const json_t *job = ask_job();
  ck_assert_str_eq(json_string_value(json_object_get(job, "gang")), "pair");
  ck_assert_str_eq(json_string_value(json_object_get(job, "reason")), "turn");
  expect_number(job, "awaited_job", 7);
  expect_number(job, "expected_ns", 3 * NS_PER_S);
  expect_number(job, "lacking_bytes", GIB);
  const json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
  job = json_array_get(json_object_get(gpu, "jobs"), 1);
  ck_assert_str_eq(json_string_value(json_object_get(job, "reason")), "too_big");
  ck_assert(json_is_null(json_object_get(job, "gang")));
  ck_assert(json_is_null(json_object_get(job, "awaited_job")));
  ck_assert(json_is_null(json_object_get(job, "expected_ns")));
  json_decref(root);
}
END_TEST

/* A job of a class, and what it may use. */
static struct gs_msg *add_limited(enum gs_class class, enum gs_limited limited, unsigned percent) {
  played_add_job(GS_JOB_HOLDING, 0, GIB, GIB);
  add_terms(GS_WEIGHT_DEFAULT, 0, 0, 0, 0);
  struct gs_msg *wait = played_add(GS_STATUS_WAIT);
  wait[-1].terms_status.class = class;
  wait->wait_status.reason = GS_REASON_RUNS;
  wait->wait_status.limited = limited;
  wait->wait_status.limit = percent * (GS_LIMITED_WHOLE / 100);
  wait->wait_status.limited_for = limited ? 3 : 0;
  return wait;
}

static void play_classes(void) {
  played_begin();
  played_add_gpu(0);
  add_limited(GS_CLASS_OPPORTUNISTIC, GS_LIMITED_FOUND, 12);
  add_limited(GS_CLASS_PRODUCTION, GS_LIMITED_NOT, 100);
  add_limited(GS_CLASS_OPPORTUNISTIC, GS_LIMITED_IDLE, 100);
  add_limited(GS_CLASS_STANDARD, GS_LIMITED_NOT, 100);
}

static void play_mps(enum gs_mps_state state, uint32_t programs) {
  played_begin();
  struct gs_msg *daemon = played_add(GS_STATUS_DAEMON);
  daemon->daemon.gpus = 1;
  daemon->daemon.mps = state;
  daemon->daemon.mps_programs = programs;
  daemon->daemon.mps_uid = 4000000000;
  played_add_gpu(0)->gpu_status.flags |= state ? GS_GPU_MPS : 0;
  played_add_job(GS_JOB_HOLDING, programs ? GS_STATE_MPS : 0, GIB, GIB);
}

START_TEST(mps_in_the_table) {
  play_mps(GS_MPS_OFF, 0);
  ask("");
  output_lacks("MPS");
  output_lacks("spatial");
  play_mps(GS_MPS_DOWN, 0);
  ask("");
  output_has("MPS does not run (the daemon's log tells why): programs share the GPUs by time\n");
  output_has(", 0 B moved, spatial mps\n");
  play_mps(GS_MPS_RUNS, 0);
  ask("");
  output_has("MPS runs: for no program so far\n");
  play_mps(GS_MPS_RUNS, 2);
  ask("");
  output_has("MPS runs: for 2 programs of 4000000000; a fatal fault of one of them ends all\n");
  output_has("  holding, by MPS\n");
}
END_TEST

START_TEST(mps_as_json) {
  play_mps(GS_MPS_RUNS, 1);
  const json_t *job = ask_job(), *daemon = json_object_get(root, "daemon");
  ck_assert(json_is_true(json_object_get(job, "mps")));
  ck_assert_str_eq(
      json_string_value(json_object_get(json_array_get(json_object_get(root, "gpus"), 0), "spatial")), "mps");
  ck_assert_str_eq(json_string_value(json_object_get(daemon, "mps")), "runs");
  ck_assert_str_eq(json_string_value(json_object_get(daemon, "mps_user")), "4000000000");
  expect_number(daemon, "mps_programs", 1);
  json_decref(root);
  play_mps(GS_MPS_OFF, 0);
  job = ask_job();
  ck_assert(json_is_false(json_object_get(job, "mps")));
  ck_assert_str_eq(
      json_string_value(json_object_get(json_array_get(json_object_get(root, "gpus"), 0), "spatial")),
      "none");
  ck_assert(json_is_null(json_object_get(json_object_get(root, "daemon"), "mps_user")));
  json_decref(root);
}
END_TEST

START_TEST(classes_in_the_table) {
  play_classes();
  ask("");
  output_has("MOVED         CLASS  STATE\n");
  output_has("0 B opportunistic  holding, limited to 12.0 %\n");
  output_has("0 B    production  holding\n");
  output_has("0 B opportunistic  holding\n");
  output_has("0 B             -  holding\n");
}
END_TEST

START_TEST(rates_in_the_table_when_some_are_set) {
  played_begin();
  played_add_gpu(0);
  add_limited(GS_CLASS_OPPORTUNISTIC, GS_LIMITED_SET, 20)[-1].terms_status.rate = 20;
  add_limited(GS_CLASS_OPPORTUNISTIC, GS_LIMITED_IDLE, 100);
  ask("");
  output_has("MOVED         CLASS  RATE  STATE\n");
  output_has("0 B opportunistic   20%  holding, limited to 20.0 %\n");
  output_has("0 B opportunistic     -  holding\n");
  const json_t *job = ask_job();
  expect_number(job, "rate_percent", 20);
  ck_assert_str_eq(json_string_value(json_object_get(job, "limited")), "set");
  ck_assert_double_eq_tol(json_real_value(json_object_get(job, "limit_share")), 0.2, 1e-9);
  json_decref(root);
}
END_TEST

START_TEST(classes_as_json) {
  play_classes();
  const json_t *job = ask_job();
  ck_assert_str_eq(json_string_value(json_object_get(job, "class")), "opportunistic");
  ck_assert_str_eq(json_string_value(json_object_get(job, "limited")), "found");
  ck_assert_double_eq_tol(json_real_value(json_object_get(job, "limit_share")), 0.12, 1e-9);
  expect_number(job, "limited_for", 3);
  const json_t *jobs = json_object_get(json_array_get(json_object_get(root, "gpus"), 0), "jobs");
  job = json_array_get(jobs, 1);
  ck_assert_str_eq(json_string_value(json_object_get(job, "class")), "production");
  ck_assert_str_eq(json_string_value(json_object_get(job, "limited")), "not");
  ck_assert(json_is_null(json_object_get(job, "limit_share")));
  ck_assert(json_is_null(json_object_get(job, "limited_for")));
  ck_assert(json_is_null(json_object_get(job, "rate_percent")));
  ck_assert(json_is_null(json_object_get(json_array_get(jobs, 2), "limit_share")));
  json_decref(root);
}
END_TEST

START_TEST(gangs_in_the_table_when_there_are_some) {
  played_add_gpu(0);
  played_add_job(GS_JOB_HOLDING, 0, GIB, GIB);
  add_gang("a pair");
  played_add_job(GS_JOB_IDLE, 0, GIB, GIB);
  add_gang("");
  ask("");
  output_has("MOVED GANG    STATE\n");
  output_has("0 B a pair  holding\n");
  output_has("0 B -       idle\n");
}
END_TEST

static struct gs_msg *add_origin(enum gs_origin kind, const char *name, const char *container) {
  played_add_job(GS_JOB_IDLE, 0, GIB, GIB)->job_status.pid = 100;
  add_terms(GS_WEIGHT_DEFAULT, 0, 0, 0, 0);
  struct gs_msg *origin = played_add(GS_STATUS_ORIGIN);
  origin->origin_status.kind = kind;
  origin->origin_status.own_pid = 100;
  strcpy(origin->origin_status.name, name);
  strcpy(origin->origin_status.container, container);
  return origin;
}

START_TEST(origins_in_the_table_when_there_are_some) {
  played_add_gpu(0);
  add_origin(GS_ORIGIN_UNIT, "train.service", "")->origin_status.own_pid = 0;
  add_origin(GS_ORIGIN_POD, "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "3f2a9c1b4d5e")->origin_status.own_pid =
      7;
  add_origin(GS_ORIGIN_SLURM, "1234.0", "")[-2].job_status.pid = 0;
  add_origin(GS_ORIGIN_NONE, "", "");
  ask("");
  output_has("MOVED  OWN PID FROM                   STATE\n");
  output_has("0 B        - train.service          idle\n");
  output_has("0 B        7 pod:0a1b2c3d/3f2a9c1b  idle\n");
  output_has("0 B      100 slurm:1234.0           idle\n");
  output_has("0 B      100 -                      idle\n");
  output_has("     0        - root");
  played_begin();
  played_add_gpu(0);
  add_origin(GS_ORIGIN_NONE, "", "");
  add_origin(GS_ORIGIN_NONE, "", "")->origin_status.own_pid = 0;
  ask("");
  output_lacks("OWN PID");
  output_lacks("FROM");
}
END_TEST

static void expect_text(const json_t *object, const char *key, const char *text) {
  const json_t *found = json_object_get(object, key);
  ck_assert_msg(text ? json_is_string(found) && strcmp(json_string_value(found), text) == 0
                     : json_is_null(found),
                "%s: %s", key, output);
}

START_TEST(origins_as_json) {
  played_add_gpu(0);
  add_origin(GS_ORIGIN_POD, "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "3f2a9c1b4d5e");
  add_origin(GS_ORIGIN_NONE, "", "")->origin_status.own_pid = 0;
  const json_t *job = ask_job();
  expect_number(job, "own_pid", 100);
  expect_text(job, "origin", "pod");
  expect_text(job, "origin_name", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9");
  expect_text(job, "container", "3f2a9c1b4d5e");
  job = json_array_get(json_object_get(json_array_get(json_object_get(root, "gpus"), 0), "jobs"), 1);
  expect_text(job, "own_pid", NULL);
  expect_text(job, "origin", NULL);
  expect_text(job, "origin_name", NULL);
  expect_text(job, "container", NULL);
  json_decref(root);
}
END_TEST

START_TEST(a_job_that_is_too_big) {
  played_add_gpu(0);
  played_add(GS_STATUS_HANDOVER);
  played_add_job(GS_JOB_WAITING, GS_STATE_TOO_BIG | GS_STATE_OVERDUE, 20 * GIB, 5 * GIB)->job_status.queue =
      2;
  const json_t *job = ask_job();
  ck_assert(json_is_true(json_object_get(job, "too_big")));
  ck_assert(json_is_true(json_object_get(job, "overdue")));
  ck_assert(json_is_false(json_object_get(job, "waits_for_room")));
  expect_number(job, "resident_bytes", 5 * GIB);
  json_decref(root);
  ask("");
  output_has("ON CARD");
  output_has("20.0 GiB    5.0 GiB");
  output_has("waiting (2), overdue, too big for the capacity\n");
}
END_TEST

/* Uses, has on the card, of a capacity of 16 GiB; while turns are taken, or not. */
START_TEST(a_holder_may_wait_for_room) {
  static const struct {
    uint64_t used_bytes, resident_bytes;
    enum gs_job_state state;
    bool turns, waits;
  } cases[] = {
      {8 * GIB, 7 * GIB, GS_JOB_HOLDING, true, true},    {8 * GIB, 8 * GIB, GS_JOB_HOLDING, true, false},
      {20 * GIB, 16 * GIB, GS_JOB_HOLDING, true, false}, {20 * GIB, 15 * GIB, GS_JOB_HOLDING, true, true},
      {8 * GIB, 7 * GIB, GS_JOB_HOLDING, false, false},  {8 * GIB, 7 * GIB, GS_JOB_IDLE, true, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    played_begin();
    played_add_gpu(0)->gpu_status.flags = cases[i].turns ? GS_GPU_SERIALIZED : 0;
    played_add(GS_STATUS_HANDOVER);
    played_add_job(cases[i].state, 0, cases[i].used_bytes, cases[i].resident_bytes);
    const json_t *job = ask_job();
    ck_assert_msg(json_is_true(json_object_get(job, "waits_for_room")) == cases[i].waits, "case %zu", i);
    json_decref(root);
    ask("");
    ck_assert_msg((strstr(output, "holding, waits for room\n") != NULL) == cases[i].waits, "%s", output);
  }
}
END_TEST

/* The driver has refused 512 MiB: nobody waits for these. */
START_TEST(overhead_is_no_room) {
  played_add_gpu(4);
  add_handovers();
  played_add_job(GS_JOB_HOLDING, 0, 16 * GIB, 16 * GIB - 512 * MIB);
  const json_t *job = ask_job();
  ck_assert(json_is_false(json_object_get(job, "waits_for_room")));
  json_decref(root);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {hand_overs_as_json,
                                hand_overs_in_the_table,
                                what_can_be_done_with_the_work,
                                no_hand_over_has_no_figures,
                                each_gpu_has_its_own_figures,
                                a_job_that_is_too_big,
                                a_holder_may_wait_for_room,
                                overhead_is_no_room,
                                terms_as_json,
                                terms_in_the_table_when_they_say_something,
                                gangs_and_reasons_as_json,
                                gangs_in_the_table_when_there_are_some,
                                mps_in_the_table,
                                mps_as_json,
                                classes_in_the_table,
                                rates_in_the_table_when_some_are_set,
                                classes_as_json,
                                origins_in_the_table_when_there_are_some,
                                origins_as_json,
                                NULL};
  return suite_main("ctl_status", tests, played_set_up, played_tear_down);
}
