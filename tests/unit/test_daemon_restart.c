/* test_daemon_restart.c - what a real daemon is told, and what the next one knows of it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/text_file.h"
#include "common/wire.h"
#include "daemon_process.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define MANAGED GS_ATTACH_MANAGED

static struct daemon_process daemon_process, *it = &daemon_process;
static char folder[64];

static void start(void) {
  daemon_start(it, (const char *const[]){"--state", folder, "--host-memory", "1T", NULL});
}

static void set_up(void) {
  strcpy(folder, "/tmp/gpushare-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  start();
}

static void tear_down(void) {
  char command[128];
  daemon_clean_up(it);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

/* Abruptly or orderly. */
static void restart(int signal) {
  kill(it->pid, signal);
  ck_assert_int_eq(daemon_wait(it), signal == SIGKILL ? 128 + SIGKILL : 0);
  start();
}

static void write_config(const char *text) {
  FILE *file = fopen(it->config, "w");
  fputs(text, file);
  fclose(file);
}

/* ---- settings ---- */

static void set_for_card(uint8_t card, enum gs_msg_type type, uint64_t value) {
  struct gs_msg msg = wire_msg(type, GS_GPU_ALL);
  int fd = connect_to(it);
  msg.set.uuid[0] = card;
  msg.set.value = value;
  tell(fd, &msg);
  ck_assert_int_eq(expect(fd, GS_REPLY).status, 0);
  close(fd);
}

static struct gs_msg gpu_of_card(uint8_t card) {
  int fd = register_client(it);
  attach_card(fd, card, 0, MANAGED);
  struct gs_msg gpu = get_status(it, GS_STATUS_GPU);
  close(fd);
  return gpu;
}

TEST(settings_outlive_it) {
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(change_setting(it, GS_SET_TQ, (3 + (uint64_t)i) * NS_PER_S), 0);
    ck_assert_int_eq(change_setting(it, GS_SET_MODE, GS_MODE_ON), 0);
    ck_assert_int_eq(change_setting(it, GS_SET_POLICY, GS_POLICY_SRTF), 0);
    ck_assert_int_eq(change_setting(it, GS_SET_CAPACITY, 5 * GIB), 0);
    restart(i ? SIGKILL : SIGTERM);
    struct gs_msg gpu = gpu_of_card(1);
    ck_assert_uint_eq(gpu.gpu_status.tq_ns, (3 + (uint64_t)i) * NS_PER_S);
    ck_assert_uint_eq(gpu.gpu_status.mode, GS_MODE_ON);
    ck_assert_uint_eq(gpu.gpu_status.policy, GS_POLICY_SRTF);
    ck_assert_uint_eq(gpu.gpu_status.capacity_bytes, 5 * GIB);
  }
}

TEST(settings_of_one_gpu_outlive_it) {
  gpu_of_card(3);
  set_for_card(3, GS_SET_TQ, 9 * NS_PER_S);
  ck_assert_int_eq(change_setting(it, GS_SET_MODE, GS_MODE_ON), 0);
  restart(SIGKILL);
  restart(SIGKILL);
  ck_assert_uint_eq(gpu_of_card(3).gpu_status.tq_ns, 9 * NS_PER_S);
  restart(SIGTERM);
  struct gs_msg gpu = gpu_of_card(4);
  ck_assert_uint_eq(gpu.gpu_status.tq_ns, 20 * NS_PER_S);
  ck_assert_uint_eq(gpu.gpu_status.mode, GS_MODE_ON);
}

TEST(signals_set_as_well) {
  kill(it->pid, SIGUSR1);
  while (gpu_of_card(1).gpu_status.mode != GS_MODE_ON)
    usleep(1000);
  restart(SIGKILL);
  ck_assert_uint_eq(gpu_of_card(1).gpu_status.mode, GS_MODE_ON);
}

static uint64_t default_tq_s(void) {
  return get_status(it, GS_STATUS_DAEMON).daemon.default_tq_ns / NS_PER_S;
}

/* A reload that changes something else leaves what has been set; grace tells when it is done. */
static void reload(const char *text, uint64_t grace_s) {
  write_config(text);
  kill(it->pid, SIGHUP);
  while (get_status(it, GS_STATUS_DAEMON).daemon.grace_ns != grace_s * NS_PER_S)
    usleep(1000);
}

TEST(the_later_word_counts) {
  reload("tq = 7\ngrace = 1\n", 1);
  ck_assert_uint_eq(default_tq_s(), 7);
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 3 * NS_PER_S), 0);
  reload("tq = 7\ngrace = 2\n", 2);
  ck_assert_uint_eq(default_tq_s(), 3);
  restart(SIGTERM);
  ck_assert_uint_eq(default_tq_s(), 3);
  reload("tq = 8\ngrace = 3\n", 3);
  ck_assert_uint_eq(default_tq_s(), 8);
  restart(SIGKILL);
  ck_assert_uint_eq(default_tq_s(), 8);
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 4 * NS_PER_S), 0);
  write_config("tq = 9\n"); /* while it is away */
  restart(SIGKILL);
  ck_assert_uint_eq(default_tq_s(), 9);
}

/* ---- jobs ---- */

static uint32_t enroll(int *fd) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  *fd = connect_to(it);
  tell(*fd, &msg);
  return expect(*fd, GS_REGISTERED).registered.job;
}

static uint32_t enroll_elsewhere(void) {
  int ends[2], fd;
  uint32_t job;
  ck_assert_int_eq(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    job = enroll(&fd);
    _exit(write(ends[1], &job, sizeof job) == sizeof job ? 0 : 1);
  }
  ck_assert_int_eq(read(ends[0], &job, sizeof job), sizeof job);
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
  return job;
}

TEST(a_process_keeps_its_number_and_terms) {
  int fd, other_fd;
  uint32_t job = enroll(&fd), other = enroll(&other_fd), last = other;
  attach_card(fd, 1, GIB, MANAGED);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_LIMIT, 2 * GIB), 0);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_PAUSED, 1), 0);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_WEIGHT, 321), 0);
  for (int i = 0; i < 4; i++) {
    restart(i % 2 ? SIGTERM : SIGKILL);
    ck_assert_uint_eq(enroll(&fd), job);
    ck_assert_uint_eq(enroll(&other_fd), other);
    ck_assert_uint_eq(attach_card(fd, 1, GIB, MANAGED | GS_ATTACH_RUNNING).attached.capacity_bytes, 2 * GIB);
    struct gs_msg terms = get_status(it, GS_STATUS_TERMS);
    ck_assert_uint_eq(terms.terms_status.weight, 321);
    ck_assert_uint_eq(terms.terms_status.paused, 1);
    uint32_t fresh = enroll_elsewhere();
    ck_assert_uint_gt(fresh, last);
    last = fresh;
  }
}

/* Until the daemon has noticed. */
static void leave(int fd) {
  close(fd);
  while (get_status(it, GS_STATUS_DAEMON).daemon.jobs)
    usleep(1000);
}

/* Until the state file says so: what nobody is told of follows within a tenth of a second. */
static void await_gone(uint32_t job) {
  char path[96], end[32], text[4096];
  snprintf(path, sizeof path, "%s/state", folder);
  snprintf(end, sizeof end, "gone\t%d\t%u\n", (int)getpid(), job);
  do {
    usleep(1000);
    ck_assert_int_ge(text_file_read(AT_FDCWD, path, text, sizeof text), 0);
  } while (!strstr(text, end));
}

/* What registers after the end of its process' former connection is another job. */
TEST(numbers_are_given_once) {
  int fd;
  uint32_t last = 0;
  for (int i = 0; i < 6; i++) {
    uint32_t job = enroll(&fd);
    ck_assert_uint_gt(job, last);
    last = job;
    leave(fd);
    await_gone(job);
    restart(SIGKILL);
  }
}

/* It may not rid itself of what is set for it by a new connection, nor by a restart in between. */
TEST(what_is_set_for_a_process_outlives_its_connection) {
  int fd;
  uint32_t job = enroll(&fd);
  attach_card(fd, 1, GIB, MANAGED);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_LIMIT, 2 * GIB), 0);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_PAUSED, 1), 0);
  for (int i = 0; i < 6; i++) {
    if (i % 3 == 1)
      ck_assert_int_eq(evict(it, job), 0);
    leave(fd);
    ck_assert_uint_gt(enroll_elsewhere(), job);
    if (i % 3 == 2)
      restart(i == 2 ? SIGKILL : SIGTERM);
    ck_assert_uint_eq(enroll(&fd), job);
    ck_assert_uint_eq(attach_card(fd, 1, GIB, MANAGED).attached.capacity_bytes, 2 * GIB);
    ck_assert_uint_eq(get_status(it, GS_STATUS_TERMS).terms_status.paused, 1);
  }
}

/* What is set for a process: of its connection with this job. */
static struct gs_msg terms_of(uint32_t job) {
  int fd = connect_to(it);
  struct gs_msg msg, found = {0};
  tell_simple(fd, GS_GET_STATUS);
  while ((msg = hear(fd)).type != GS_STATUS_END)
    if (msg.type == GS_STATUS_TERMS && msg.terms_status.job == job)
      found = msg;
  close(fd);
  ck_assert_uint_eq(found.type, GS_STATUS_TERMS);
  return found;
}

static void check_limited_and_paused(uint32_t job, bool paused) {
  ck_assert_uint_eq(terms_of(job).terms_status.limit_bytes, 2 * GIB);
  ck_assert_uint_eq(terms_of(job).terms_status.paused, paused);
}

/* Nor by one more connection, whether it has that already or makes it later. */
TEST(what_is_set_for_a_process_holds_for_all_its_connections) {
  int fd, later;
  uint32_t job = enroll(&fd), before = enroll(&later), after;
  attach_card(fd, 1, 0, MANAGED);
  attach_card(later, 1, 0, MANAGED);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_LIMIT, 2 * GIB), 0);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_PAUSED, 1), 0);
  check_limited_and_paused(before, true);
  after = enroll(&later);
  ck_assert_uint_eq(attach_card(later, 1, 0, MANAGED).attached.capacity_bytes, 2 * GIB);
  check_limited_and_paused(after, true);
  ck_assert_int_eq(set_terms(it, after, GS_TERM_PAUSED, 0), 0);
  check_limited_and_paused(job, false);
  check_limited_and_paused(before, false);
}

/* One of them is away when it is set, and comes back, also to another daemon. */
TEST(what_is_set_for_a_process_holds_for_those_that_come_back) {
  for (int i = 0; i < 3; i++) {
    int fd, other;
    uint32_t job = enroll(&fd), leaves = enroll(&other);
    attach_card(fd, 1, 0, MANAGED);
    attach_card(other, 1, 0, MANAGED);
    ck_assert_int_eq(set_terms(it, leaves, GS_TERM_LIMIT, 2 * GIB), 0);
    close(other);
    while (get_status(it, GS_STATUS_DAEMON).daemon.jobs > 1)
      usleep(1000);
    ck_assert_int_eq(set_terms(it, job, GS_TERM_PAUSED, 1), 0);
    if (i == 1)
      restart(SIGKILL);
    if (i == 2) {
      close(fd);
      while (get_status(it, GS_STATUS_DAEMON).daemon.jobs)
        usleep(1000);
    }
    uint32_t again = enroll(&other);
    attach_card(other, 1, 0, MANAGED);
    check_limited_and_paused(again, true);
    restart(SIGTERM);
    again = enroll(&other);
    attach_card(other, 1, 0, MANAGED);
    check_limited_and_paused(again, true);
    tear_down();
    set_up();
  }
}

TEST(another_process_is_given_nothing_of_it) {
  int fd;
  uint32_t job = enroll(&fd);
  attach_card(fd, 1, GIB, MANAGED);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_LIMIT, 2 * GIB), 0);
  restart(SIGKILL);
  ck_assert_uint_gt(enroll_elsewhere(), job);
  ck_assert_uint_eq(enroll(&fd), job);
}

/* ---- gangs ---- */

static void join_on(int fd, const char *gang, uint8_t card) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  strcpy(msg.declare.gang, gang);
  tell(fd, &msg);
  attach_card(fd, card, GIB, MANAGED);
}

/* As this process, and as one that the daemon has not seen before. */
static uint32_t join(int *fd, const char *gang) {
  uint32_t job = enroll(fd);
  join_on(*fd, gang, 1);
  return job;
}

static uint32_t join_elsewhere(const char *gang) {
  int fd = register_elsewhere(it);
  struct gs_msg msg, last = {0};
  int asks = connect_to(it);
  join_on(fd, gang, 2);
  tell_simple(asks, GS_GET_STATUS);
  while ((msg = hear(asks)).type != GS_STATUS_END)
    if (msg.type == GS_STATUS_JOB && msg.job_status.job > last.job_status.job)
      last = msg;
  close(asks);
  return last.job_status.job;
}

static void pause_gang_of(uint32_t job, bool paused) {
  ck_assert_int_eq(set_terms(it, job, GS_TERM_PAUSED, paused), 0);
}

/* Also what has been set for it while it was away: whoever comes back first speaks for all. Not for other
 * gangs. */
TEST(a_gang_is_one_over_a_restart) {
  int fd;
  uint32_t job = join(&fd, "a"), other = join_elsewhere("a");
  for (int i = 0; i < 6; i++) {
    pause_gang_of(other, true);
    ck_assert_uint_eq(terms_of(job).terms_status.paused, 1);
    restart(i % 2 ? SIGTERM : SIGKILL);
    pause_gang_of(join_elsewhere("b"), false);
    other = join_elsewhere("a");
    pause_gang_of(other, false);
    if (i % 3 == 2)
      restart(SIGKILL);
    ck_assert_uint_eq(join(&fd, "a"), job);
    ck_assert_uint_eq(terms_of(job).terms_status.paused, 0);
    restart(SIGKILL);
    other = join_elsewhere("a");
    pause_gang_of(other, true);
    ck_assert_uint_eq(join(&fd, "a"), job);
    ck_assert_uint_eq(terms_of(job).terms_status.paused, 1);
    restart(SIGKILL);
    pause_gang_of(join_elsewhere("b"), false);
    ck_assert_uint_eq(join(&fd, "a"), job);
    ck_assert_uint_eq(terms_of(job).terms_status.paused, 1);
    other = join_elsewhere("a");
  }
}

/* It is back, and has yet to come to its GPU, or to have memory there: so it is in no gang of a GPU's. */
TEST(a_gang_is_one_while_it_comes_back) {
  int fd;
  uint32_t job = join(&fd, "a"), other = join_elsewhere("a");
  for (int i = 0; i < 4; i++) {
    bool paused = i % 2 == 0;
    pause_gang_of(other, paused);
    restart(SIGKILL);
    ck_assert_uint_eq(enroll(&fd), job);
    other = join_elsewhere("a");
    pause_gang_of(other, !paused);
    join_on(fd, "a", 1);
    ck_assert_uint_eq(terms_of(job).terms_status.paused, !paused);
    restart(SIGKILL);
    ck_assert_uint_eq(enroll(&fd), job);
    attach_card(fd, 1, 0, MANAGED);
    other = join_elsewhere("a");
    pause_gang_of(job, paused); /* this one speaks for the others */
    ck_assert_uint_eq(terms_of(other).terms_status.paused, paused);
    ck_assert_uint_eq(terms_of(job).terms_status.paused, paused);
  }
}

/* ---- runs ---- */

static size_t count_runs(uint32_t job, struct gs_msg *ended) {
  int fd = connect_to(it);
  size_t count = 0;
  struct gs_msg msg = wire_msg(GS_GET_EVENTS, GS_GPU_ALL);
  msg.get_events.record = GS_RECORD_RUNS;
  tell(fd, &msg);
  struct gs_msg begin = expect(fd, GS_EVENTS_BEGIN);
  while ((msg = hear(fd)).type != GS_EVENTS_END)
    if (msg.event.kind == GS_EVENT_ENDED && msg.event.job == job) {
      count++;
      ck_assert_uint_le(msg.event.at_ns, begin.events.now_ns);
      *ended = msg;
    }
  close(fd);
  return count;
}

TEST(runs_outlive_it_and_what_goes_on_is_none) {
  struct gs_msg ended, again;
  int fd, other;
  uint32_t job = enroll(&fd), goes_on = enroll(&other);
  attach_card(fd, 1, GIB, MANAGED);
  attach_card(other, 1, GIB, MANAGED);
  struct gs_msg exiting = wire_msg(GS_EXITING, 0);
  exiting.exiting.status = 5;
  tell(fd, &exiting);
  close(fd);
  while (count_runs(job, &ended) == 0)
    usleep(1000);
  for (int i = 0; i < 2; i++) {
    usleep(i ? 200000 : 0);
    restart(i ? SIGKILL : SIGTERM);
    ck_assert_uint_eq(count_runs(job, &again), 1);
    ck_assert_int_eq(again.event.end.status, 5);
    ck_assert_uint_lt(again.event.at_ns - ended.event.at_ns + NS_PER_S, 2 * NS_PER_S);
    ck_assert_uint_eq(count_runs(goes_on, &again), 0);
    ck_assert_uint_eq(enroll(&other), goes_on);
  }
}

/* Connections alone would displace what others have run. */
TEST(what_was_on_no_gpu_is_no_run) {
  struct gs_msg ended;
  int fd, other;
  uint32_t idle = enroll(&fd);
  close(fd);
  uint32_t job = enroll(&other);
  attach_card(other, 1, GIB, MANAGED);
  close(other);
  while (count_runs(job, &ended) == 0)
    usleep(1000);
  ck_assert_uint_eq(count_runs(idle, &ended), 0);
}

/* ---- doubt ---- */

TEST(a_damaged_file_does_not_keep_it_from_starting) {
  char path[128];
  snprintf(path, sizeof path, "%s/state", folder);
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 3 * NS_PER_S), 0);
  for (int i = 0; i < 40; i++) {
    kill(it->pid, SIGKILL);
    daemon_wait(it);
    FILE *file = fopen(path, "r+");
    ck_assert_ptr_nonnull(file);
    fseek(file, 7 * i, SEEK_SET);
    fputc(i % 3 ? 0xff : '\n', file);
    fclose(file);
    start();
    uint64_t tq_s = default_tq_s();
    ck_assert(tq_s == 3 || tq_s == 20);
    ck_assert_int_eq(change_setting(it, GS_SET_TQ, 3 * NS_PER_S), 0);
  }
}

static bool state_has(const char *text) {
  char command[256];
  snprintf(command, sizeof command, "grep -q '%s' %s/state", text, folder);
  return system(command) == 0;
}

/* Jobs that come and go meanwhile leave no room even in memory. */
TEST(what_is_set_while_the_disk_is_full_is_kept_later) {
  struct rlimit limit = {.rlim_cur = 1, .rlim_max = RLIM_INFINITY};
  int fd, passing;
  uint32_t job = enroll(&fd);
  attach_card(fd, 1, GIB, MANAGED);
  ck_assert_int_eq(prlimit(it->pid, RLIMIT_FSIZE, &limit, NULL), 0);
  for (int i = 0; i < 12000; i++) {
    enroll(&passing);
    close(passing);
  }
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 3 * NS_PER_S), 0);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_LIMIT, 2 * GIB), 0);
  limit.rlim_cur = RLIM_INFINITY;
  ck_assert_int_eq(prlimit(it->pid, RLIMIT_FSIZE, &limit, NULL), 0);
  while (!state_has("set.all.tq") || !state_has("term"))
    usleep(10000);
  restart(SIGKILL);
  ck_assert_uint_eq(default_tq_s(), 3);
  ck_assert_uint_eq(enroll(&fd), job);
  ck_assert_uint_eq(attach_card(fd, 1, GIB, MANAGED).attached.capacity_bytes, 2 * GIB);
}

TEST(two_daemons_share_no_folder) {
  struct daemon_process second = {0};
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 3 * NS_PER_S), 0);
  daemon_start(&second, (const char *const[]){"--state", folder, NULL});
  ck_assert_uint_eq(get_status(&second, GS_STATUS_DAEMON).daemon.default_tq_ns, 20 * NS_PER_S);
  ck_assert_int_eq(change_setting(&second, GS_SET_TQ, 5 * NS_PER_S), 0);
  daemon_clean_up(&second);
  restart(SIGTERM);
  ck_assert_uint_eq(default_tq_s(), 3);
}

int main(void) { return suite_run_all("daemon_restart", set_up, tear_down); }
