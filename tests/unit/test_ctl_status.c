/* test_ctl_status.c - gpusharectl status: what it makes of a daemon's figures. The daemon is played here. */
#include <string.h>

#include "common/clock.h"
#include "played_status.h"
#include "suite.h"

/* What the table has, and the JSON. */
#define show() ask("status", 0)
#define show_json() ask("status --json", 0)

/* ---- hand-overs ---- */

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

START_TEST(hand_overs_are_told_by_sum_mean_and_last) {
  played_add_gpu(4);
  add_handovers();
  show();
  output_has("4 hand-overs");
  output_has("hand-over: drain 100.0 ms (last 50.0), moves 400.0 ms (last 450.0); out 37.3 GiB at 20.0 GB/s "
             "(last 24.0); in 27.9 GiB at 15.0 GB/s (last 12.0)\n");
  output_has("moved behind turns: 3.0 GiB\n");
  output_has("the driver has refused 512.0 MiB of the capacity\n");
  show_json();
  output_has_json(
      "{'gpus': [{'handovers': 4, 'left_ns': 3000000000, 'handover': {'count': 4, 'drain_ns': 400000000,"
      " 'drain_mean_ns': 100000000, 'drain_last_ns': 50000000, 'move_ns': 1600000000,"
      " 'move_mean_ns': 400000000, 'move_last_ns': 450000000, 'evicted_bytes': 40000000000,"
      " 'evicted_last_bytes': 12000000000, 'evicted_bytes_per_s': 20000000000,"
      " 'evicted_last_bytes_per_s': 24000000000, 'restored_bytes': 30000000000,"
      " 'restored_last_bytes': 6000000000, 'restored_bytes_per_s': 15000000000,"
      " 'restored_last_bytes_per_s': 12000000000, 'hidden_bytes': 3221225472,"
      " 'overhead_bytes': 536870912}}]}");
}
END_TEST

START_TEST(no_hand_over_has_no_figures) {
  played_add_gpu(0);
  played_add(GS_STATUS_HANDOVER)->handover_status.left_ns = UINT64_MAX;
  show();
  output_lacks("hand-over:");
  output_lacks("behind turns");
  output_lacks("refused");
  show_json();
  output_has_json("{'gpus': [{'left_ns': null, 'handover': {'move_mean_ns': 0, 'evicted_bytes_per_s': 0}}]}");
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
  show_json();
  output_has_json("{'gpus': [{'jobs': [{'held_share': 1.0}]},"
                  "          {'jobs': [{'held_share': 0.5}, {}], 'handover': {'evicted_bytes': 0}}]}");
}
END_TEST

START_TEST(what_can_be_done_with_the_work) {
  played_add_gpu(0)->gpu_status.jobs = 3;
  played_add_job(GS_JOB_HOLDING, GS_STATE_PREEMPTS | GS_STATE_OWN_CONTEXT, GIB, GIB);
  played_add_job(GS_JOB_HOLDING, GS_STATE_PREEMPTS | GS_STATE_OWN_CONTEXT, GIB, GIB);
  played_add_job(GS_JOB_IDLE, 0, GIB, 0);
  show();
  output_has(
      "  work of 2 of 3 jobs can be stopped in its middle; 2 have a context of ours to move memory in, "
      "about 520.0 MiB beside the capacity\n");
}
END_TEST

/* ---- columns that are there when some job has something to say ---- */

/* A job with the terms of most, on the GPU, or without work for it. */
static struct gs_msg *add_job(enum gs_job_state state) {
  played_add_job(state, 0, GIB, GIB);
  struct gs_msg *terms = played_add(GS_STATUS_TERMS);
  terms->terms_status.weight = GS_WEIGHT_DEFAULT;
  terms->terms_status.gpu_ns = 3 * NS_PER_S;
  return terms;
}

START_TEST(terms_have_columns_where_they_say_something) {
  static const struct {
    uint32_t weight;
    int32_t priority;
    uint64_t remaining_ns, limit_bytes, soft_limit_bytes;
    const char *gang, *header, *one, *other, *json;
  } cases[] = {{100, 0, 0, 0, 0, "", "      MOVED  STATE\n", "0 B  holding\n", "0 B  idle\n", "{}"},
               {300, 0, 0, 0, 0, "", "MOVED WEIGHT  STATE\n", "0 B    300  holding\n", "0 B    100  idle\n",
                "{'weight': 300}"},
               {100, -5, 90 * NS_PER_S, 0, 0, "", "MOVED PRIO      LEFT  STATE\n",
                "0 B   -5     90.0s  holding\n", "0 B    0         -  idle\n",
                "{'priority': -5, 'gpu_ns': 3000000000, 'remaining_ns': 90000000000}"},
               {100, 0, 0, 4 * GIB, 0, "", "MOVED      LIMIT  STATE\n", "0 B    4.0 GiB  holding\n",
                "0 B          -  idle\n", "{'limit_bytes': 4294967296, 'soft_limit_bytes': 0}"},
               {100, 0, 0, 0, 2 * GIB, "", "MOVED SOFT LIMIT  STATE\n", "0 B    2.0 GiB  holding\n",
                "0 B          -  idle\n", "{'limit_bytes': 0, 'soft_limit_bytes': 2147483648}"},
               {100, 0, 0, 0, 0, "a pair", "MOVED GANG    STATE\n", "0 B a pair  holding\n",
                "0 B -       idle\n", "{'gang': 'a pair'}"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char wanted[512];
    played_begin();
    played_add_gpu(0)->gpu_status.policy = GS_POLICY_SRTF;
    played_add(GS_STATUS_HANDOVER);
    struct gs_msg *terms = add_job(GS_JOB_HOLDING);
    terms->terms_status.weight = cases[i].weight;
    terms->terms_status.priority = cases[i].priority;
    terms->terms_status.remaining_ns = cases[i].remaining_ns;
    terms->terms_status.limit_bytes = cases[i].limit_bytes;
    terms->terms_status.soft_limit_bytes = cases[i].soft_limit_bytes;
    strcpy(terms->terms_status.gang, cases[i].gang);
    add_job(GS_JOB_IDLE);
    show();
    output_has(cases[i].header);
    output_has(cases[i].one);
    output_has(cases[i].other);
    show_json();
    snprintf(wanted, sizeof wanted,
             "{'gpus': [{'policy': 'srtf', 'jobs': [%s, {'weight': 100, 'priority': 0, 'limit_bytes': 0,"
             " 'soft_limit_bytes': 0, 'remaining_ns': null, 'gang': null}]}]}",
             cases[i].json);
    output_has_json(wanted);
  }
}
END_TEST

/* What a person has started is told apart by its script. */
START_TEST(commands_without_interpreter_and_folders) {
  static const struct {
    const char *command, *shown;
  } cases[] = {{"/usr/bin/python3.11 -u -W ignore /home/ada/vision/train.py --lr 0.1", "train.py --lr 0.1"},
               {"bash run.sh", "run.sh"},
               {"python -m torch.distributed.run train.py", "python -m torch.distributed.run train.py"},
               {"/opt/bin/python3", "python3"},
               {"./build/job --out /tmp/x", "job --out /tmp/x"},
               {"train\033[2J", "train?[2J"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char row[128];
    played_begin();
    played_add_gpu(0);
    add_job(GS_JOB_HOLDING);
    strcpy(played_add(GS_STATUS_COMMAND)->command_status.text, cases[i].command);
    add_job(GS_JOB_IDLE);
    show();
    output_has("  STATE    COMMAND\n");
    snprintf(row, sizeof row, "  holding  %s\n", cases[i].shown);
    output_has(row);
    output_has("  idle\n");
  }
  show_json();
  output_has_json("{'gpus': [{'jobs': [{'command': 'train?[2J'}, {'command': null}]}]}");
}
END_TEST

START_TEST(reasons_as_json) {
  played_add_gpu(0);
  add_job(GS_JOB_WAITING);
  struct gs_msg *wait = played_add(GS_STATUS_WAIT);
  wait->wait_status.reason = GS_REASON_TURN;
  wait->wait_status.awaited = 7;
  wait->wait_status.expected_ns = 3 * NS_PER_S;
  wait->wait_status.lacking_bytes = GIB;
  add_job(GS_JOB_WAITING);
  wait = played_add(GS_STATUS_WAIT);
  wait->wait_status.reason = GS_REASON_TOO_BIG;
  wait->wait_status.expected_ns = UINT64_MAX;
  show_json();
  output_has_json("{'gpus': [{'jobs': [{'reason': 'turn', 'awaited_job': 7, 'expected_ns': 3000000000,"
                  "                     'lacking_bytes': 1073741824},"
                  "                    {'reason': 'too_big', 'awaited_job': null, 'expected_ns': null}]}]}");
}
END_TEST

/* A job of a class, and what it may use. */
static void add_limited(enum gs_class class, enum gs_limited limited, unsigned percent, unsigned rate) {
  struct gs_msg *terms = add_job(GS_JOB_HOLDING), *wait = played_add(GS_STATUS_WAIT);
  terms->terms_status.class = class;
  terms->terms_status.rate = rate;
  wait->wait_status.reason = GS_REASON_RUNS;
  wait->wait_status.limited = limited;
  wait->wait_status.limit = percent * (GS_LIMITED_WHOLE / 100);
  wait->wait_status.limited_for = limited ? 3 : 0;
}

START_TEST(classes_and_what_they_may_use) {
  played_add_gpu(0);
  add_limited(GS_CLASS_OPPORTUNISTIC, GS_LIMITED_FOUND, 12, 0);
  add_limited(GS_CLASS_PRODUCTION, GS_LIMITED_NOT, 100, 0);
  add_limited(GS_CLASS_OPPORTUNISTIC, GS_LIMITED_IDLE, 100, 0);
  add_limited(GS_CLASS_STANDARD, GS_LIMITED_NOT, 100, 0);
  show();
  output_has("MOVED         CLASS  STATE\n");
  output_has("0 B opportunistic  holding, limited to 12.0 %\n");
  output_has("0 B    production  holding\n");
  output_has("0 B opportunistic  holding\n");
  output_has("0 B             -  holding\n");
  show_json();
  output_has_json("{'gpus': [{'jobs': [{'class': 'opportunistic', 'limited': 'found', 'limit_share': 0.12,"
                  "                     'limited_for': 3},"
                  "                    {'class': 'production', 'limited': 'not', 'limit_share': null,"
                  "                     'limited_for': null, 'rate_percent': null},"
                  "                    {'limit_share': null}, {'class': 'standard'}]}]}");
}
END_TEST

START_TEST(rates_that_are_set) {
  played_add_gpu(0);
  add_limited(GS_CLASS_OPPORTUNISTIC, GS_LIMITED_SET, 20, 20);
  add_limited(GS_CLASS_OPPORTUNISTIC, GS_LIMITED_IDLE, 100, 0);
  show();
  output_has("MOVED         CLASS  RATE  STATE\n");
  output_has("0 B opportunistic   20%  holding, limited to 20.0 %\n");
  output_has("0 B opportunistic     -  holding\n");
  show_json();
  output_has_json("{'gpus': [{'jobs': [{'rate_percent': 20, 'limited': 'set', 'limit_share': 0.2}, {}]}]}");
}
END_TEST

static struct gs_msg *add_origin(enum gs_origin kind, const char *name, const char *container, int32_t pid,
                                 int32_t own_pid) {
  add_job(GS_JOB_IDLE)[-1].job_status.pid = pid;
  struct gs_msg *origin = played_add(GS_STATUS_ORIGIN);
  origin->origin_status.kind = kind;
  origin->origin_status.own_pid = own_pid;
  strcpy(origin->origin_status.name, name);
  strcpy(origin->origin_status.container, container);
  return origin;
}

#define POD "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"

START_TEST(origins_where_there_are_some) {
  played_add_gpu(0);
  add_origin(GS_ORIGIN_UNIT, "train.service", "", 100, 0);
  add_origin(GS_ORIGIN_POD, POD, "3f2a9c1b4d5e", 100, 7);
  add_origin(GS_ORIGIN_SLURM, "1234.0", "", 0, 100);
  add_origin(GS_ORIGIN_NONE, "", "", 100, 100);
  show();
  output_has("MOVED  OWN PID FROM                   STATE\n");
  output_has("0 B        - train.service          idle\n");
  output_has("0 B        7 pod:0a1b2c3d/3f2a9c1b  idle\n");
  output_has("0 B      100 slurm:1234.0           idle\n");
  output_has("0 B      100 -                      idle\n");
  output_has("     0        - root");
  show_json();
  output_has_json(
      "{'gpus': [{'jobs': [{'own_pid': null}, {'own_pid': 7, 'origin': 'pod', 'origin_name': '" POD
      "', 'container': '3f2a9c1b4d5e'}, {}, {'origin': null, 'origin_name': null,"
      " 'container': null}]}]}");
  played_begin();
  played_add_gpu(0);
  add_origin(GS_ORIGIN_NONE, "", "", 100, 100);
  add_origin(GS_ORIGIN_NONE, "", "", 100, 0);
  show();
  output_lacks("OWN PID");
  output_lacks("FROM");
}
END_TEST

/* ---- MPS ---- */

START_TEST(mps_is_told_where_it_is_to_run) {
  static const struct {
    enum gs_mps_state state;
    uint32_t programs;
    const char *line, *gpu, *job, *json;
  } cases[] = {
      {GS_MPS_OFF, 0, NULL, "0 B moved\n", "  holding\n",
       "{'daemon': {'mps_user': null}, 'gpus': [{'spatial': 'none', 'jobs': [{'mps': false}]}]}"},
      {GS_MPS_DOWN, 0, "MPS does not run (the daemon's log tells why): programs share the GPUs by time\n",
       ", 0 B moved, spatial mps\n", "  holding\n", "{'daemon': {'mps': 'down'}}"},
      {GS_MPS_RUNS, 0, "MPS runs: for no program so far\n", "spatial mps\n", "  holding\n", "{}"},
      {GS_MPS_RUNS, 2, "MPS runs: for 2 programs of 4000000000; a fatal fault of one of them ends all\n",
       "spatial mps\n", "  holding, by MPS\n",
       "{'daemon': {'mps': 'runs', 'mps_user': '4000000000', 'mps_programs': 2},"
       " 'gpus': [{'spatial': 'mps', 'jobs': [{'mps': true}]}]}"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    played_begin();
    struct gs_msg *daemon = played_add(GS_STATUS_DAEMON);
    daemon->daemon.gpus = 1;
    daemon->daemon.mps = cases[i].state;
    daemon->daemon.mps_programs = cases[i].programs;
    daemon->daemon.mps_uid = 4000000000;
    played_add_gpu(0)->gpu_status.flags |= cases[i].state ? GS_GPU_MPS : 0;
    played_add_job(GS_JOB_HOLDING, cases[i].programs ? GS_STATE_MPS : 0, GIB, GIB);
    show();
    if (cases[i].line)
      output_has(cases[i].line);
    else
      output_lacks("MPS");
    output_has(cases[i].gpu);
    output_has(cases[i].job);
    show_json();
    output_has_json(cases[i].json);
  }
}
END_TEST

/* ---- a job's state ---- */

START_TEST(a_job_that_is_too_big) {
  played_add_gpu(0);
  played_add(GS_STATUS_HANDOVER);
  played_add_job(GS_JOB_WAITING, GS_STATE_TOO_BIG | GS_STATE_OVERDUE, 20 * GIB, 5 * GIB)->job_status.queue =
      2;
  show();
  output_has("ON CARD");
  output_has("20.0 GiB    5.0 GiB");
  output_has("waiting (2), overdue, too big for the capacity\n");
  show_json();
  output_has_json("{'gpus': [{'jobs': [{'too_big': true, 'overdue': true, 'waits_for_room': false,"
                  "                     'resident_bytes': 5368709120}]}]}");
}
END_TEST

/* Uses, has on the card, of a capacity of 16 GiB, of which the driver may have refused 512 MiB; while turns
 * are taken, or not. */
START_TEST(a_holder_may_wait_for_room) {
  static const struct {
    uint64_t used_bytes, resident_bytes;
    enum gs_job_state state;
    bool turns, refused, waits;
  } cases[] = {{8 * GIB, 7 * GIB, GS_JOB_HOLDING, true, false, true},
               {8 * GIB, 8 * GIB, GS_JOB_HOLDING, true, false, false},
               {20 * GIB, 16 * GIB, GS_JOB_HOLDING, true, false, false},
               {20 * GIB, 15 * GIB, GS_JOB_HOLDING, true, false, true},
               {8 * GIB, 7 * GIB, GS_JOB_HOLDING, false, false, false},
               {8 * GIB, 7 * GIB, GS_JOB_IDLE, true, false, false},
               {16 * GIB, 16 * GIB - 512 * MIB, GS_JOB_HOLDING, true, false, true},
               {16 * GIB, 16 * GIB - 512 * MIB, GS_JOB_HOLDING, true, true, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    played_begin();
    played_add_gpu(0)->gpu_status.flags = cases[i].turns ? GS_GPU_SERIALIZED : 0;
    played_add(GS_STATUS_HANDOVER)->handover_status.overhead_bytes = cases[i].refused ? 512 * MIB : 0;
    played_add_job(cases[i].state, 0, cases[i].used_bytes, cases[i].resident_bytes);
    show();
    ck_assert_msg((strstr(output, "holding, waits for room\n") != NULL) == cases[i].waits, "%zu: %s", i,
                  output);
    show_json();
    output_has_json(cases[i].waits ? "{'gpus': [{'jobs': [{'waits_for_room': true}]}]}"
                                   : "{'gpus': [{'jobs': [{'waits_for_room': false}]}]}");
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {hand_overs_are_told_by_sum_mean_and_last,
                                no_hand_over_has_no_figures,
                                each_gpu_has_its_own_figures,
                                what_can_be_done_with_the_work,
                                terms_have_columns_where_they_say_something,
                                commands_without_interpreter_and_folders,
                                reasons_as_json,
                                classes_and_what_they_may_use,
                                rates_that_are_set,
                                origins_where_there_are_some,
                                mps_is_told_where_it_is_to_run,
                                a_job_that_is_too_big,
                                a_holder_may_wait_for_room,
                                NULL};
  return suite_main("ctl_status", tests, played_set_up, played_tear_down);
}
