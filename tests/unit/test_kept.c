/* test_kept.c - what outlives the daemon as a text: it comes back as it was, and of a damaged one what is
 * right. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/kept.h"
#include "suite.h"

#define BOOT "11111111-2222"
#define ALICE 1000
#define PID 4711
#define START 987654

static struct kept kept, again;
static char text[1 << 16];
static size_t size;

static void set_up(void) {
  kept_init(&kept);
  kept_init(&again);
  size = 0;
}

static void tear_down(void) {
  kept_end(&kept);
  kept_end(&again);
}

static int put(struct kept_output *output, const char *line, size_t length) {
  (void)output;
  ck_assert_uint_le(size + length, sizeof text);
  memcpy(text + size, line, length);
  size += length;
  return 0;
}

static void add(const char *line, size_t length) { put(NULL, line, length); }

static void write_all(bool (*there)(const struct kept_process *)) {
  struct kept_output output = {.put = put, .there = there};
  size = 0;
  ck_assert_int_eq(kept_write(&kept, BOOT, &output), 0);
}

static struct terms pause_and_limit(void) {
  struct terms terms = {0};
  terms_restore(&terms, GS_TERM_PAUSED, 1, true);
  terms_restore(&terms, GS_TERM_PRIORITY, (uint64_t)-7, false);
  terms_restore(&terms, GS_TERM_LIMIT, UINT64_C(1) << 30, false);
  return terms;
}

static const struct decision quantum = {.uuid = {5}, .field = OVERRIDE_TQ, .value = 3 * NS_PER_S, .base = 20};
static const struct decision mode = {.field = OVERRIDE_MODE, .value = GS_MODE_OFF, .base = GS_MODE_AUTO};

/* A job with terms, decisions, a command and a run of it, as the daemon adds them. */
static void tell_a_life(void) {
  char line[KEPT_LINE_SIZE];
  struct kept_process process = {.pid = PID, .start = START, .uid = ALICE, .job_id = 12, .started_ns = 77};
  struct terms terms = pause_and_limit();
  struct gs_msg command = wire_msg(GS_EVENT, GS_GPU_ALL), ended = command;
  command.event.kind = GS_EVENT_COMMAND;
  command.event.job = ended.event.job = 11;
  command.event.uid = ended.event.uid = ALICE;
  command.event.at_ns = ended.event.at_ns = 1000;
  strcpy(command.event.text, "python train.py --epochs 3");
  ended.event.kind = GS_EVENT_ENDED;
  ended.event.detail = GS_END_EXIT;
  ended.event.end.status = -3;
  ended.event.end.gpu_ns = 42;
  strcpy(ended.event.name, "python");
  struct gs_msg usage = wire_msg(GS_EVENT, GS_GPU_NUMBER(3u, 1u));
  usage.event.kind = GS_EVENT_USAGE;
  usage.event.job = 11;
  usage.event.uid = ALICE;
  usage.event.detail = GS_CLASS_OPPORTUNISTIC;
  usage.event.at_ns = 1000;
  usage.event.usage.since_ns = 400;
  usage.event.usage.held_ns = 300;
  usage.event.usage.gpu_ns = 200;
  usage.event.usage.waited_ns = 100;
  usage.event.usage.moved_bytes = 50;
  usage.energy_mj = 40;
  strcpy(usage.event.name, "python");
  add(line, kept_line_version(line));
  add(line, kept_line_boot(line, BOOT));
  add(line, kept_line_job(line, &process));
  for (unsigned term = 0; term < GS_TERM_COUNT; term++)
    if (terms.set_fields >> term & 1)
      add(line, kept_line_term(line, PID, 12, &terms, (enum gs_term)term));
  add(line, kept_line_set(line, &mode));
  add(line, kept_line_set(line, &quantum));
  add(line, kept_line_learnt(line, ALICE, 99, 5 * NS_PER_S));
  add(line, kept_line_event(line, &command));
  add(line, kept_line_event(line, &ended));
  add(line, kept_line_event(line, &usage));
  add(line, kept_line_last(line, 15));
}

static void read_into(struct kept *to) { ck_assert_int_eq(kept_read(to, text, size, BOOT), 0); }

static void check_the_life(struct kept *read) {
  ck_assert_uint_eq(read->wrong_lines, 0);
  ck_assert(read->this_boot);
  ck_assert_uint_eq(read->last_job_id, 15);
  ck_assert_uint_eq(read->decisions.count, 2);
  ck_assert_uint_eq(decisions_find(&read->decisions, quantum.uuid, OVERRIDE_TQ)->value, quantum.value);
  ck_assert_uint_eq(decisions_find(&read->decisions, quantum.uuid, OVERRIDE_TQ)->base, quantum.base);
  ck_assert_uint_eq(decisions_find(&read->decisions, mode.uuid, OVERRIDE_MODE)->value, GS_MODE_OFF);
  ck_assert_uint_eq(history_expected_ns(&read->history, ALICE, 99), 5 * NS_PER_S);
  ck_assert_uint_eq(read->usage.next_seq, 2);
  const struct gs_msg *usage = &record_next(&read->usage, 0)->msg;
  ck_assert_uint_eq(usage->gpu, GS_GPU_NUMBER(3u, 1u));
  ck_assert_uint_eq(usage->event.detail, GS_CLASS_OPPORTUNISTIC);
  ck_assert_uint_eq(usage->event.usage.since_ns, 400);
  ck_assert_uint_eq(usage->event.usage.held_ns, 300);
  ck_assert_uint_eq(usage->event.usage.gpu_ns, 200);
  ck_assert_uint_eq(usage->event.usage.waited_ns, 100);
  ck_assert_uint_eq(usage->event.usage.moved_bytes, 50);
  ck_assert_uint_eq(usage->energy_mj, 40);
  ck_assert_str_eq(usage->event.name, "python");
  ck_assert_uint_eq(read->runs.next_seq, 3);
  ck_assert_str_eq(record_next(&read->runs, 1)->msg.event.text, "python train.py --epochs 3");
  ck_assert_str_eq(record_next(&read->runs, 2)->msg.event.name, "python");
  ck_assert_int_eq(record_next(&read->runs, 2)->msg.event.end.status, -3);
  ck_assert_uint_eq(record_next(&read->runs, 2)->msg.event.end.gpu_ns, 42);
  ck_assert_ptr_null(kept_take(read, PID, START + 1, ALICE));
  ck_assert_ptr_null(kept_take(read, PID, START, ALICE + 1));
  struct kept_process *process = kept_take(read, PID, START, ALICE);
  ck_assert_ptr_nonnull(process);
  struct terms terms = pause_and_limit();
  ck_assert_uint_eq(process->job_id, 12);
  ck_assert_uint_eq(process->started_ns, 77);
  ck_assert_mem_eq(&process->terms, &terms, sizeof terms);
  ck_assert_ptr_null(kept_take(read, PID, START, ALICE));
  free(process);
}

TEST(it_comes_back) {
  tell_a_life();
  read_into(&kept);
  check_the_life(&kept);
}

TEST(also_when_it_has_been_written_anew) {
  tell_a_life();
  read_into(&kept);
  write_all(NULL);
  read_into(&again);
  check_the_life(&again);
}

/* As a daemon that kept no energy has written it. */
TEST(a_span_without_energy_comes_back) {
  char line[KEPT_LINE_SIZE];
  add(line, kept_line_version(line));
  add(line, kept_line_boot(line, BOOT));
  add(line, kept_line_text(line, "usage\t1000\t11\t4\t1001\t0\t0\t400\t300\t200\t100\t50\tpython"));
  read_into(&kept);
  ck_assert_uint_eq(kept.wrong_lines, 0);
  const struct gs_msg *usage = &record_next(&kept.usage, 0)->msg;
  ck_assert_uint_eq(usage->event.usage.moved_bytes, 50);
  ck_assert_uint_eq(usage->energy_mj, 0);
  ck_assert_str_eq(usage->event.name, "python");
}

static bool nobody(const struct kept_process *process) {
  (void)process;
  return false;
}

TEST(processes_that_are_gone_are_left_out) {
  tell_a_life();
  read_into(&kept);
  write_all(nobody);
  read_into(&again);
  ck_assert_uint_eq(again.process_count, 0);
  ck_assert_uint_eq(again.last_job_id, 15);
}

/* Also after it has been written anew; the later word counts. A file without such lines has no gangs. */
TEST(gangs_come_back) {
  char line[KEPT_LINE_SIZE];
  struct kept_process process = {.pid = PID, .start = START, .uid = ALICE, .job_id = 12};
  uint64_t a = 1, b = UINT64_MAX;
  tell_a_life();
  read_into(&kept);
  ck_assert_ptr_null(kept_next_of_gang(&kept, NULL, ALICE, a));
  process.gang = b;
  add(line, kept_line_gang(line, &process));
  process.gang = a;
  add(line, kept_line_gang(line, &process));
  process.pid++; /* nobody */
  add(line, kept_line_gang(line, &process));
  kept_end(&kept);
  kept_init(&kept);
  read_into(&kept);
  write_all(NULL);
  read_into(&again);
  struct kept_process *member = kept_next_of_gang(&again, NULL, ALICE, a);
  ck_assert_ptr_nonnull(member);
  ck_assert_int_eq(member->pid, PID);
  ck_assert_ptr_null(kept_next_of_gang(&again, member, ALICE, a));
  ck_assert_ptr_null(kept_next_of_gang(&again, NULL, ALICE, b));
  ck_assert_ptr_null(kept_next_of_gang(&again, NULL, ALICE + 1, a));
  check_the_life(&again);
  ck_assert_ptr_null(kept_next_of_gang(&again, NULL, ALICE, a));
}

TEST(jobs_end) {
  char line[KEPT_LINE_SIZE];
  tell_a_life();
  add(line, kept_line_gone(line, PID, 12));
  read_into(&kept);
  ck_assert_uint_eq(kept.process_count, 0);
}

TEST(jobs_of_another_boot_are_others) {
  tell_a_life();
  ck_assert_int_eq(kept_read(&kept, text, size, "another"), 0);
  ck_assert(!kept.this_boot);
  ck_assert_uint_eq(kept.process_count, 0);
  ck_assert_uint_eq(kept.last_job_id, 15);
  ck_assert_uint_eq(kept.decisions.count, 2);
  ck_assert_int_eq(kept_read(&again, text, size, ""), 0); /* nobody knows which one */
  ck_assert_uint_eq(again.process_count, 0);
  char line[KEPT_LINE_SIZE];
  struct kept_process process = {.pid = PID, .start = START, .uid = ALICE, .job_id = 16};
  add(line, kept_line_boot(line, "")); /* nor did the daemon before */
  add(line, kept_line_job(line, &process));
  ck_assert_int_eq(kept_read(&again, text, size, ""), 0);
  ck_assert_uint_eq(again.last_job_id, 16);
  ck_assert_uint_eq(again.process_count, 0);
}

TEST(later_words_count) {
  char line[KEPT_LINE_SIZE];
  struct decision other = quantum;
  struct decision all = {.field = OVERRIDE_TQ, .value = 9 * NS_PER_S};
  other.value = 4 * NS_PER_S;
  tell_a_life();
  add(line, kept_line_set(line, &other));
  read_into(&kept);
  ck_assert_uint_eq(decisions_find(&kept.decisions, quantum.uuid, OVERRIDE_TQ)->value, other.value);
  add(line, kept_line_set(line, &all)); /* in place of those of single GPUs */
  read_into(&again);
  ck_assert_ptr_null(decisions_find(&again.decisions, quantum.uuid, OVERRIDE_TQ));
  ck_assert_uint_eq(decisions_find(&again.decisions, all.uuid, OVERRIDE_TQ)->value, all.value);
  add(line, kept_line_unset(line, &all));
  read_into(&again);
  ck_assert_uint_eq(again.decisions.count, 1);
}

TEST(a_later_version_is_not_understood) {
  char *digit;
  tell_a_life();
  text[size] = '\0';
  ck_assert_int_eq(kept_read(&kept, text, size, BOOT), 0);
  digit = strstr(text, "gpushare-state\t1");
  ck_assert_ptr_nonnull(digit);
  digit[strlen("gpushare-state\t")] = '2'; /* with a wrong checksum it is only damaged */
  ck_assert_int_eq(kept_read(&again, text, size, BOOT), 0);
  ck_assert_uint_eq(again.wrong_lines, 1);
}

/* ---- damage ---- */

/* Whatever has been read is what the daemon would take. */
static void check_sane(struct kept *read) {
  for (size_t i = 0; i < read->decisions.count; i++)
    ck_assert_ptr_null(decisions_wrong(read->decisions.list[i].field, read->decisions.list[i].value));
  for (size_t i = 0; i < KEPT_BUCKETS; i++)
    list_each(node, &read->processes[i]) {
      const struct kept_process *process = list_entry(node, struct kept_process, link);
      struct sched_terms terms = terms_of(&process->terms);
      ck_assert(process->pid > 0 && process->job_id > 0);
      ck_assert(terms.weight >= 1 && terms.weight <= SCHED_WEIGHT_MAX);
      ck_assert(terms.class <= GS_CLASS_OPPORTUNISTIC && terms.rate_percent <= 100);
    }
}

static void check_damaged(size_t wrong_lines_most) {
  kept_end(&kept);
  kept_init(&kept);
  ck_assert_int_eq(kept_read(&kept, text, size, BOOT), 0);
  ck_assert_uint_le(kept.wrong_lines, wrong_lines_most);
  check_sane(&kept);
}

TEST(each_byte_costs_its_line_alone) {
  static const uint8_t flips[] = {0x01, 0x80, 0xff, '\n', '\t', 0x10};
  tell_a_life();
  for (size_t at = 0; at < size; at++)
    for (size_t i = 0; i < sizeof flips; i++) {
      char was = text[at];
      text[at] = (char)(text[at] ^ flips[i]);
      check_damaged(2); /* a line's end that is no more costs two */
      text[at] = i % 2 ? '\n' : '\0';
      check_damaged(2);
      text[at] = was;
    }
  check_damaged(0);
}

TEST(each_length_keeps_what_is_whole) {
  tell_a_life();
  for (size_t whole = size; size > 0; size--) {
    check_damaged(0);
    ck_assert(size == whole || kept.last_job_id < 15);
  }
}

static const char *const absurd[] = {
    "set\tall\ttq\t1\t0",
    "set\tall\tmode\t3\t0",
    "set\tall\tpolicy\t99\t0",
    "set\tall\tcapacity\t18446744073709551615\t0",
    "set\tall\tmemory\t1\t0",
    "set\tGPU-1\ttq\t1000000000\t0",
    "set\tall\ttq\t-1\t0",
    "set\tall\ttq\t99999999999999999999999\t0",
    "set\tall\ttq\t1000000000",
    "job\t0\t1\t1\t1\t1",
    "job\t4294967297\t1\t1\t1\t1",
    "job\t1\t1\t1\t0\t1",
    "job\t1\t1\t1\t4294967296\t1",
    "gang\t4711\t12",
    "gang\t4711\t12\tname",
    "gang\t4711\t4294967296\t1",
    "term\t4711\t12\t0\t0\t0",
    "term\t4711\t12\t5\t3\t0",
    "term\t4711\t12\t6\t101\t0",
    "term\t4711\t12\t9\t0\t0",
    "term\t4711\t12\t0\t10001\t0",
    "term\t4711\t12\t0\t1\t2",
    "learnt\t1\t0\t1",
    "learnt\t1\t1\t0",
    "ended\t1\t1\t1\t1\t4\t0\t0\t0\t0\t0\tname",
    "nothing\t1",
    "",
};

/* With right checksums. */
TEST(absurd_values_are_not_taken) {
  tell_a_life();
  for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
    char line[KEPT_LINE_SIZE];
    size_t before = size;
    add(line, kept_line_text(line, absurd[i]));
    kept_end(&kept);
    kept_init(&kept);
    ck_assert_int_eq(kept_read(&kept, text, size, BOOT), 0);
    ck_assert_msg(kept.wrong_lines == 1, "%s", absurd[i]);
    kept.wrong_lines = 0;
    check_the_life(&kept);
    size = before;
  }
}

TEST(long_lines_are_passed_over) {
  memset(text, 'x', 2000);
  text[2000] = '\n';
  size = 2001;
  tell_a_life();
  ck_assert_int_eq(kept_read(&kept, text, size, BOOT), 0);
  ck_assert_uint_eq(kept.wrong_lines, 1);
  kept.wrong_lines = 0;
  check_the_life(&kept);
}

/* What one user has run and what its commands take displaces nothing of another's, also in the file. */
TEST(one_user_displaces_no_lines_of_another) {
  char line[KEPT_LINE_SIZE];
  struct gs_msg command = wire_msg(GS_EVENT, GS_GPU_ALL);
  command.event.kind = GS_EVENT_COMMAND;
  command.event.job = 17;
  command.event.uid = ALICE + 1;
  strcpy(command.event.text, "again");
  tell_a_life();
  read_into(&kept);
  for (uint64_t i = 1; i <= KEPT_RUNS + 100; i++) {
    size = 0;
    add(line, kept_line_event(line, &command));
    add(line, kept_line_learnt(line, ALICE + 1, i, 5 * NS_PER_S));
    read_into(&kept);
  }
  ck_assert_uint_eq(history_expected_ns(&kept.history, ALICE, 99), 5 * NS_PER_S);
  ck_assert_str_eq(record_next(&kept.runs, 0)->msg.event.text, "python train.py --epochs 3");
}

static struct kept_process *leaving(pid_t pid, uid_t uid, bool standing) {
  struct kept_process *process = calloc(1, sizeof *process);
  ck_assert_ptr_nonnull(process);
  process->pid = pid;
  process->start = START;
  process->uid = uid;
  terms_restore(&process->terms, GS_TERM_PAUSED, 1, standing);
  return process;
}

/* Whatever its owners set for others of theirs. */
TEST(what_stands_is_not_displaced) {
  ck_assert_ptr_null(kept_leave(&kept, leaving(1, ALICE, true)));
  for (pid_t pid = 2; pid < 2 + 2 * KEPT_AWAY_MAX; pid++)
    free(kept_leave(&kept, leaving(pid, ALICE + (uid_t)(pid % 2 ? 0 : pid / 8), false)));
  ck_assert_uint_le(kept.away_count, KEPT_AWAY_MAX);
  ck_assert_uint_eq(kept.away_count, kept.process_count);
  struct kept_process *process = kept_take(&kept, 1, START, ALICE);
  ck_assert_ptr_nonnull(process);
  ck_assert(process->left);
  free(process);
}

TEST(a_user_has_so_many_away_and_no_more) {
  for (pid_t pid = 1; pid <= KEPT_AWAY_PER_USER; pid++)
    ck_assert_ptr_null(kept_leave(&kept, leaving(pid, ALICE, false)));
  struct kept_process *oldest = kept_leave(&kept, leaving(KEPT_AWAY_PER_USER + 1, ALICE, false));
  ck_assert_ptr_nonnull(oldest);
  ck_assert_int_eq(oldest->pid, 1);
  free(oldest);
  ck_assert_ptr_null(kept_leave(&kept, leaving(KEPT_AWAY_PER_USER + 2, ALICE + 1, false)));
}

static bool is_odd(const struct kept_process *process) { return process->pid % 2; }
TEST(what_has_ended_is_found) {
  for (pid_t pid = 1; pid <= 4; pid++)
    ck_assert_ptr_null(kept_leave(&kept, leaving(pid, ALICE, true)));
  for (int i = 0; i < 4; i++) {
    struct kept_process *ended = kept_take_ended(&kept, is_odd);
    ck_assert(!ended == (i % 2 == 0));
    free(ended);
  }
  ck_assert_uint_eq(kept.away_count, 2);
}

/* Thousands of records begin here: untouched pages of the kernel's cost less than zeros of malloc's. */
int main(void) {
  mallopt(M_MMAP_THRESHOLD, 1 << 16);
  return suite_run_all("kept", set_up, tear_down);
}
