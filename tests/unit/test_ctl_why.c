/* test_ctl_why.c - gpusharectl why: what it says of each reason. The daemon is played here. */
#include <string.h>

#include "common/clock.h"
#include "played_status.h"
#include "suite.h"

/* Job 3 has the GPU, of 16 GiB; job 5 is asked about: it has 20 GiB, 4 of them on the card. */
#define HOLDER "job 3 (pid 33, holder)"

struct said {
  struct {
    enum gs_job_state state;
    unsigned flags, holder_flags;
    enum gs_class class;
    enum gs_reason reason;
    enum gs_rule rule;
    uint32_t awaited;
    enum gs_limited limited;
    uint64_t limit, expected_ns, lacking_bytes, expected_bytes, soft_limit_bytes;
  } of;
  const char *text, *not ; /* of the answer a part, or all from "GPU" on; and what is not said */
};

static struct gs_msg *add(uint32_t number, const char *name, enum gs_job_state state, uint64_t used_bytes,
                          uint64_t resident_bytes) {
  struct gs_msg *job = played_add_job(state, 0, used_bytes, resident_bytes);
  job->job_status.job = number;
  job->job_status.pid = (int32_t)(11 * number);
  strcpy(job->job_status.name, name);
  played_add(GS_STATUS_TERMS);
  return played_add(GS_STATUS_WAIT);
}

static void play(const struct said *said) {
  played_begin();
  played_add_gpu(0);
  struct gs_msg *wait = add(3, "holder", GS_JOB_HOLDING, GIB, GIB);
  wait[-2].job_status.flags = (uint8_t)said->of.holder_flags;
  wait->wait_status.reason = GS_REASON_RUNS;
  wait = add(5, "train", said->of.state, 20 * GIB, 4 * GIB);
  wait[-2].job_status.flags = (uint8_t)said->of.flags;
  wait[-1].terms_status.class = said->of.class;
  wait[-1].terms_status.soft_limit_bytes = said->of.soft_limit_bytes;
  wait->wait_status.reason = said->of.reason;
  wait->wait_status.rule = said->of.rule;
  wait->wait_status.awaited = said->of.awaited;
  wait->wait_status.limited = said->of.limited;
  wait->wait_status.limit = said->of.limit;
  wait->wait_status.limited_for = 3;
  wait->wait_status.expected_ns = said->of.expected_ns;
  wait->wait_status.lacking_bytes = said->of.lacking_bytes;
  wait->wait_status.expected_bytes = said->of.expected_bytes;
}

static void expect_all(const struct said *said, size_t count) {
  for (size_t i = 0; i < count; i++) {
    play(&said[i]);
    ask("why 5", 0);
    output_has("GPU 0: job 5 (pid 55, train) ");
    output_has(said[i].text);
    if (strncmp(said[i].text, "GPU", 3) == 0)
      ck_assert_str_eq(output, said[i].text);
    if (said[i].not )
      output_lacks(said[i].not );
  }
}
#define EXPECT_ALL(said) expect_all(said, sizeof(said) / sizeof *(said))

START_TEST(every_reason_has_its_words) {
#define FOR(name, words)                                                                                     \
  { {GS_JOB_WAITING, .reason = GS_REASON_##name, .awaited = 3, .expected_ns = 250 * NS_PER_MS}, words, NULL }
  static const struct said said[] = {
      FOR(IDLE, "is idle: it has nothing for the GPU to do.\n"),
      FOR(RUNS, "runs.\n"),
      FOR(STOPS, "gives the GPU back: its submitted work finishes, as it can't be stopped.\n"),
      FOR(SILENT, "does not answer"),
      FOR(RESTORE, "has its turn, and its memory comes to the card. It should run in about 250 ms."),
      FOR(ROOM, "has its turn, but the memory of " HOLDER " leaves the card first."),
      FOR(STOP, "is next: the work of " HOLDER " has yet to stop."),
      FOR(TOO_BIG,
          "it uses 20.0 GiB, and without page faults all of that must fit the GPU, of which jobs may "
          "use 16.0 GiB."),
      FOR(STAYING, "for want of host memory"),
      FOR(PAUSED, "waits for job 3 of its gang, which is paused: gpusharectl resume 3 lets both go on."),
      FOR(MEMORY,
          "waits for memory: it will have 0 B, as it has said, and card and host have not so much left "
          "beside what the others have and will have."),
      FOR(MEMORY + 1, "does not know")};
  EXPECT_ALL(said);
}
END_TEST

START_TEST(stops_that_are_not_over) {
  static const struct said said[] = {
      {{GS_JOB_DROPPING, GS_STATE_CAPTURING, .reason = GS_REASON_STOPS},
       "as soon as its stream capture ends",
       NULL},
      {{GS_JOB_DROPPING, GS_STATE_CAPTURING | GS_STATE_OVERDUE, .reason = GS_REASON_STOPS},
       "does not answer",
       "capture ends"}};
  EXPECT_ALL(said);
}
END_TEST

START_TEST(what_limits_an_opportunistic_job) {
#define LIMITED(how, part, words)                                                                            \
  { {GS_JOB_HOLDING, .reason = GS_REASON_RUNS, .limited = GS_LIMITED_##how, .limit = part}, words, NULL }
  static const struct said said[] = {
      LIMITED(IDLE, GS_LIMITED_WHOLE,
              "runs. It may use all of the GPU while production " HOLDER " is idle.\n"),
      LIMITED(LOOK, 0,
              "runs. It may not use the GPU for the moment: it is measured what production " HOLDER
              " does undisturbed, for a tenth of a second.\n"),
      LIMITED(BACK, 0, "moment: production " HOLDER " has just begun to work.\n"),
      LIMITED(GROWS, GS_LIMITED_WHOLE / 100,
              "is limited to 1 % of the GPU, and more and more until production " HOLDER " loses speed.\n"),
      LIMITED(FOUND, GS_LIMITED_WHOLE / 1000 * 124,
              "runs. It is limited to 12 % of the GPU, by which production " HOLDER " keeps its speed.\n"),
      LIMITED(
          SET, GS_LIMITED_WHOLE / 5,
          "runs. It is limited to 20 % of the GPU, as has been set, until 'gpusharectl set-rate 5 auto'.\n"),
      LIMITED(CROWD, 0,
              "moment: production " HOLDER " works: beside so many production jobs no speed is measured.\n"),
      LIMITED(NOT, GS_LIMITED_WHOLE, "runs.\n")};
  EXPECT_ALL(said);
}
END_TEST

START_TEST(what_is_told_of_who_waits_for_a_turn) {
#define TURN(ns, ...)                                                                                        \
  { GS_JOB_WAITING, .reason = GS_REASON_TURN, .expected_ns = ns, __VA_ARGS__ }
#define SOFT "What it has beyond its soft limit of 8.0 GiB leaves before the memory of others. It should run"
  static const struct said said[] = {
      {TURN(15 * NS_PER_S, .awaited = 3, .lacking_bytes = 12 * GIB),
       "GPU 0: job 5 (pid 55, train) waits for its turn: " HOLDER
       " has the GPU. 12.0 GiB of its memory are not on "
       "the card. It should run in about 15 s.\n",
       NULL},
      {TURN(15 * NS_PER_S, .awaited = 3, .rule = GS_RULE_DOES_NOT_FIT),
       "has the GPU. It waits: it does not fit beside the jobs with seats. It should run", NULL},
      {TURN(UINT64_MAX, .awaited = 3, .class = GS_CLASS_OPPORTUNISTIC),
       "waits for its turn: " HOLDER
       " has the GPU. An opportunistic job runs when no other one wants to. How long "
       "that takes cannot be told.\n",
       NULL},
      {TURN(UINT64_MAX, .awaited = 3, .holder_flags = GS_STATE_STOPPED),
       "GPU 0: job 5 (pid 55, train) waits for its turn: " HOLDER
       " has the GPU. Job 3 (pid 33) is stopped (SIGSTOP, "
       "Ctrl-Z or a debugger) and can't give back what it has: 'kill -CONT 33' lets it go on. How long that "
       "takes "
       "cannot be told.\n",
       NULL},
      {{GS_JOB_WAITING, .reason = GS_REASON_STAYING, .holder_flags = GS_STATE_STOPPED}, /* in the way */
       "'kill -CONT 33' lets it go on.",
       NULL},
      /* 20 GiB are used. */
      {TURN(NS_PER_S, .lacking_bytes = 12 * GIB, .soft_limit_bytes = 8 * GIB), SOFT, NULL},
      {TURN(NS_PER_S, .lacking_bytes = 12 * GIB), "It should run", "soft"},
      {TURN(NS_PER_S, .soft_limit_bytes = 8 * GIB), "It should run", "soft"},
      {TURN(NS_PER_S, .lacking_bytes = 12 * GIB, .soft_limit_bytes = 20 * GIB), "It should run", "soft"},
      {TURN(NS_PER_S, .expected_bytes = 20 * GIB), "It should run", "Beside others it counts"},
      {TURN(NS_PER_S, .expected_bytes = 24 * GIB), "Beside others it counts with 24.0 GiB: it has said so",
       NULL},
      {TURN(NS_PER_MS), "waits for its turn. It should run in about 1 ms.", NULL},
      {TURN(1500 * NS_PER_MS), "about 1.5 s.", NULL},
      {TURN(300 * NS_PER_S), "about 5 minutes.", NULL},
      {TURN(9000 * NS_PER_S), "about 2.5 hours.", NULL},
      {TURN(864000 * NS_PER_S), "about 10 days.", NULL},
      {TURN(UINT64_MAX), "waits for its turn. How long that takes cannot be told.", NULL}};
  EXPECT_ALL(said);
  play(&said[3]);
  ask("why 3", 0);
  output_has("GPU 0: " HOLDER " runs. Job 3 (pid 33) is stopped");
}
END_TEST

/* On two GPUs, with another process of its gang on a third. */
START_TEST(a_job_is_told_of_on_each_of_its_gpus) {
  for (int i = 0; i < 3; i++) {
    played_add_gpu(0);
    struct gs_msg *wait = add(i == 2 ? 6 : 5, "train", GS_JOB_WAITING, 20 * GIB, 4 * GIB);
    strcpy(wait[-1].terms_status.gang, "pair");
    wait->wait_status.reason = GS_REASON_TURN;
    wait->wait_status.expected_ns = NS_PER_S;
  }
  ask("why 5", 0);
  output_has("GPU 0: job 5");
  output_has("\nGPU 1: job 5");
  output_lacks("GPU 2");
  output_has("Its gang 'pair' gets all its 3 GPUs at the same time.");
  ask("why 5 --json", 0);
  output_has("\"text\": \"GPU 1: job 5");
  output_has("\"uuid\": \"GPU-");
  output_has_json("{'job': 5, 'gpus': [{'gpu': 0}, {'gpu': 1, 'state': 'waiting', 'reason': 'turn',"
                  "                                 'expected_ns': 1000000000}]}");
}
END_TEST

START_TEST(what_is_pinned_is_named) {
  played_begin();
  played_add_gpu(0);
  struct gs_msg *wait = add(3, "holder", GS_JOB_HOLDING, GIB, GIB);
  wait->wait_status.pinned_bytes = GIB;
  struct gs_msg *memory = played_add(GS_STATUS_MEMORY);
  memory->memory_status.copies_bytes = 1;
  memory->memory_status.clean_bytes = 2;
  memory->memory_status.left_copied_bytes = 3;
  memory->memory_status.left_spared_bytes = 4;
  memory->memory_status.kind_bytes[GS_PINNED_ARRAYS] = GIB / 4;
  memory->memory_status.kind_bytes[GS_PINNED_SHARED] = GIB / 4 * 3;
  wait = add(5, "train", GS_JOB_WAITING, 20 * GIB, 4 * GIB);
  wait->wait_status.reason = GS_REASON_TOO_BIG;
  wait->wait_status.awaited = 3;
  ask("why 5", 0);
  output_has(
      "Most of what is in its way is pinned by " HOLDER
      ": 1.0 GiB that can't leave the card until they are freed. Of that: 256.0 MiB of arrays (they stay "
      "until they are destroyed; linear memory can leave), 768.0 MiB of exported memory (it can leave if "
      "no other process or device is given it).\n");
  ask("why 3", 0);
  output_has("1.0 GiB of its memory can't leave the card. Of that: 256.0 MiB of arrays (");
  ask("why 3 --json", 0);
  output_has_json("{'job': 3, 'gpus': [{'pinned_bytes': 1073741824, 'host_copies_bytes': 1, 'clean_bytes': 2,"
                  "'left_copied_bytes': 3, 'left_spared_bytes': 4, 'pinned_by_kind': {'other': 0, 'plain': 0,"
                  "'small': 0, 'arrays': 268435456, 'graphs': 0, 'pools': 0, 'shared': 805306368}}]}");
  ask("status", 0);
  output_has("holding, 1.0 GiB pinned");
}
END_TEST

START_TEST(who_is_not_there_is_no_job) {
  played_add_gpu(0);
  struct gs_msg *daemon = played_add(GS_STATUS_DAEMON);
  ask("why 5", 1);
  output_has(
      "no job on a GPU has the number 5: see gpusharectl status, and history of those that have ended\n");
  daemon->daemon.last_job = 4;
  ask("why 5", 1);
  output_has("no job on a GPU has the number 5: see gpusharectl status\n");
  daemon->daemon.last_job = 5;
  ask("why 5", 1);
  output_has("job 5 has ended, or is on no GPU: see gpusharectl history\n");
  ck_assert_int_eq(run_shell("%s why 0 2>&1", GS_CTL), 2);
  output_has("not the number of a job");
  ck_assert_int_eq(run_shell("%s why 2>&1", GS_CTL), 2);
  ck_assert_int_eq(run_shell("%s why 5 --gpu all 2>&1", GS_CTL), 2);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {every_reason_has_its_words,           stops_that_are_not_over,
                                what_limits_an_opportunistic_job,     what_is_told_of_who_waits_for_a_turn,
                                a_job_is_told_of_on_each_of_its_gpus, what_is_pinned_is_named,
                                who_is_not_there_is_no_job,           NULL};
  return suite_main("ctl_why", tests, played_set_up, played_tear_down);
}
