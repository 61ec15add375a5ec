/* test_ctl_report.c - gpusharectl report: what has been had of GPUs, over restarts, and who sees it. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "shell.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)

static struct daemon_process daemon_process, *const it = &daemon_process;
static char folder[64];

static void start(void) { daemon_start(it, (const char *const[]){"--state", folder, "--mode", "on", NULL}); }

static void set_up(void) {
  strcpy(folder, "/tmp/gpushare-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  start();
}

static void tear_down(void) {
  daemon_clean_up(it);
  run_shell("rm -rf %s", folder);
}

static void restart(int signal) {
  kill(it->pid, signal);
  ck_assert_int_eq(daemon_wait(it), signal == SIGKILL ? 128 + SIGKILL : 0);
  start();
}

/* So many spans are in the kernel's hands: the daemon writes a moment after it has told of them. */
static void await_written(unsigned spans) {
  do
    ck_assert_int_eq(run_shell("grep -c '\tusage\t' %s/state; true", folder), 0);
  while ((unsigned)atoi(output) < spans);
  ck_assert_int_eq(atoi(output), spans);
}

/* Holds the card for so long at least, and goes. */
static void hold(uint8_t card, unsigned ms) {
  int fd = register_elsewhere(it);
  attach_card(fd, card, GIB, GS_ATTACH_MANAGED);
  tell_simple(fd, GS_REQ_LOCK);
  tell_active(fd, expect(fd, GS_LOCK_OK).epoch);
  usleep(ms * 1000);
  close(fd);
}

static int report(const char *options) {
  return run_shell("%s --socket %s report %s 2>&1", GS_CTL, it->socket, options);
}

static json_t *rows(const char *options) {
  json_error_t error;
  char all[128];
  snprintf(all, sizeof all, "--json %s", options);
  ck_assert_int_eq(report(all), 0);
  json_t *root = json_loads(output, 0, &error);
  ck_assert_msg(root != NULL, "%s: %s", error.text, output);
  json_t *list = json_incref(json_object_get(root, "rows"));
  json_decref(root);
  return list;
}

static uint64_t number(const json_t *list, size_t row, const char *key) {
  return (uint64_t)json_integer_value(json_object_get(json_array_get(list, row), key));
}

/* All have ended, of which the daemon hears a moment later; so many were on a GPU. */
static void await_jobs(uint64_t count) {
  while (get_status(it, GS_STATUS_DAEMON).daemon.jobs > 0)
    usleep(1000);
  json_t *list = rows("");
  ck_assert_uint_eq(number(list, 0, "jobs"), count);
  json_decref(list);
}

static void check_sum(void) {
  json_t *list = rows("--by user");
  ck_assert_uint_eq(json_array_size(list), 1);
  ck_assert_uint_eq(number(list, 0, "uid"), geteuid());
  ck_assert_uint_eq(number(list, 0, "jobs"), 2);
  ck_assert_uint_ge(number(list, 0, "held_ns"), 150 * NS_PER_MS);
  json_decref(list);
}

TEST(it_sums_up) {
  ck_assert_int_eq(report(""), 0);
  output_has("no job has had a GPU in that time");
  hold(1, 100);
  hold(2, 50);
  await_jobs(2);
  check_sum();
  json_t *list = rows("--by gpu");
  ck_assert_uint_eq(json_array_size(list), 2);
  ck_assert_uint_eq(number(list, 1, "jobs"), 1);
  json_decref(list);
  list = rows("--by job --since 1h");
  ck_assert_uint_eq(json_array_size(list), 2);
  ck_assert_uint_eq(number(list, 0, "job"), 1);
  json_decref(list);
  list = rows("--by class");
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 0), "class")), "standard");
  json_decref(list);
  ck_assert_int_eq(report("--by job"), 0);
  output_has("JOB            USER       NAME              GPU HOURS");
  ck_assert_int_eq(report("--csv"), 0);
  output_has("user,jobs,held_seconds,gpu_seconds,waited_seconds,moved_bytes,since,until,energy_joules\n\"");
  output_has("Z,\n"); /* no NVML: no energy */
}

/* The job's only row; NULL: there is none. */
static json_t *row_of(uint64_t job) {
  json_t *list = rows("--by job --since 1s"), *row = NULL;
  for (size_t i = 0; i < json_array_size(list); i++)
    if (number(list, i, "job") == job) {
      ck_assert_ptr_null(row);
      row = json_incref(json_array_get(list, i));
    }
  json_decref(list);
  return row;
}

/* One that has the GPU, and one that waits for it: long before their spans end. */
TEST(jobs_that_are_there_count_up_to_now) {
  uint64_t begin_ns = clock_now_ns();
  int fds[2];
  for (int i = 0; i < 2; i++) {
    fds[i] = register_elsewhere(it);
    attach_card(fds[i], 1, GIB, GS_ATTACH_MANAGED);
    tell_simple(fds[i], GS_REQ_LOCK);
  }
  tell_active(fds[0], expect(fds[0], GS_LOCK_OK).epoch);
  uint64_t held_ns = 0, waited_ns = 0;
  while (held_ns < 50 * NS_PER_MS || waited_ns < 50 * NS_PER_MS) { /* it grows */
    json_t *holds = row_of(1), *waits = row_of(2);
    held_ns = holds ? (uint64_t)json_integer_value(json_object_get(holds, "held_ns")) : 0;
    waited_ns = waits ? (uint64_t)json_integer_value(json_object_get(waits, "waited_ns")) : 0;
    json_decref(holds);
    json_decref(waits);
  }
  ck_assert_int_eq(report("--since 1s"), 0);
  output_lacks("no job has had a GPU");
  ck_assert_int_eq(report("--by user --csv | wc -l"), 0);
  ck_assert_str_eq(output, "2\n");
  close(fds[0]);
  close(fds[1]);
  await_jobs(2);
  json_t *list = rows("");
  ck_assert_uint_ge(number(list, 0, "held_ns"), held_ns);
  ck_assert_uint_lt(number(list, 0, "held_ns"), clock_now_ns() - begin_ns); /* nothing counts twice */
  json_decref(list);
}

TEST(it_is_as_old_as_one_wants) {
  hold(1, 50);
  await_jobs(1);
  size_t count = 1;
  while (count > 0) {
    json_t *list = rows("--since 100ms");
    count = json_array_size(list);
    json_decref(list);
  }
  json_t *list = rows("--since 7d");
  ck_assert_uint_eq(json_array_size(list), 1);
  json_decref(list);
}

TEST(accounts_outlive_the_daemon) {
  hold(1, 100);
  hold(2, 50);
  await_jobs(2);
  await_written(2);
  for (int i = 0; i < 3; i++) {
    restart(i == 1 ? SIGTERM : SIGKILL);
    check_sum();
  }
}

/* What a power loss leaves of a line costs that line alone. */
TEST(a_torn_line_is_passed_over) {
  hold(1, 100);
  hold(2, 50);
  await_jobs(2);
  hold(1, 50);
  await_jobs(3);
  await_written(3);
  kill(it->pid, SIGKILL);
  daemon_wait(it);
  ck_assert_int_eq(
      run_shell("cd %s && n=$(grep -n usage state | tail -1 | cut -d: -f1) && head -$n state | head -c -20 "
                ">torn && cat torn >state && rm torn",
                folder),
      0);
  start();
  check_sum();
}

/* A job that is there still is told of when the daemon ends. */
TEST(an_end_loses_nothing) {
  int fd = register_client(it);
  attach_card(fd, 1, GIB, GS_ATTACH_MANAGED);
  tell_simple(fd, GS_REQ_LOCK);
  tell_active(fd, expect(fd, GS_LOCK_OK).epoch);
  json_t *list = rows("");
  uint64_t held_ns = number(list, 0, "held_ns");
  json_decref(list);
  ck_assert_uint_gt(held_ns, 0);
  restart(SIGTERM);
  close(fd);
  list = rows("");
  ck_assert_uint_eq(json_array_size(list), 1);
  ck_assert_uint_ge(number(list, 0, "held_ns"), held_ns);
  json_decref(list);
}

TEST(others_see_their_own) {
  if (geteuid() != 0) {
    puts("not tried: not root");
    return;
  }
  hold(1, 50);
  await_jobs(1);
  ck_assert_int_eq(
      run_shell("chmod 755 %s; cp %s %s/ctl; setpriv --reuid 65534 --regid 65534 --clear-groups %s/ctl "
                "--socket %s report 2>&1",
                it->folder, GS_CTL, it->folder, it->folder, it->socket),
      0);
  output_has("no job has had a GPU in that time, of those that you may see");
  run_shell("rm %s/ctl", it->folder);
}

/* A job's name is its user's, and may be meant for the spreadsheet. */
TEST(no_cell_is_a_formula) {
  static const char *const names[] = {"=1+1", "+1", "-1", "@SUM(A1)", "a=1"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct gs_msg msg = wire_msg(GS_REGISTER, 0);
    int fd = connect_to(it);
    strcpy(msg.reg.name, names[i]);
    tell(fd, &msg);
    expect(fd, GS_REGISTERED);
    attach_card(fd, 1, GIB, GS_ATTACH_MANAGED);
    tell_simple(fd, GS_REQ_LOCK);
    tell_active(fd, expect(fd, GS_LOCK_OK).epoch);
    usleep(20000);
    close(fd);
  }
  await_jobs(sizeof names / sizeof *names);
  ck_assert_int_eq(report("--by job --csv"), 0);
  output_has(",\"'=1+1\",");
  output_has(",\"'+1\",");
  output_has(",\"'-1\",");
  output_has(",\"'@SUM(A1)\",");
  output_has(",\"a=1\",");
}

/* Runs gpusharectl with a daemon that receives its message, and answers this. Its exit code. */
static int ask_played(const char *words, const struct gs_msg *answers, size_t count) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct gs_msg msg;
  snprintf(address.sun_path, sizeof address.sun_path, "%s/older", folder);
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  ck_assert_int_eq(listen(listener, 1), 0);
  pid_t pid = fork();
  if (pid == 0) {
    int fd = accept(listener, NULL, NULL);
    while (wire_recv(fd, &msg) == -EAGAIN)
      usleep(1000);
    for (size_t i = 0; i < count; i++)
      wire_send(fd, &answers[i]);
    _exit(0);
  }
  int code = run_shell("%s --socket %s %s 2>&1", GS_CTL, address.sun_path, words);
  waitpid(pid, NULL, 0);
  close(listener);
  unlink(address.sun_path);
  return code;
}

/* It takes a record that it does not know for that of events, and hangs up on messages that it does not know.
 */
TEST(an_older_daemon_is_told_from_others) {
  const struct gs_msg answers[] = {wire_msg(GS_EVENTS_BEGIN, GS_GPU_ALL),
                                   wire_msg(GS_EVENTS_END, GS_GPU_ALL)};
  static const char *const unknown[] = {"kill 1", "reload"};
  ck_assert_int_eq(ask_played("report", answers, 2), 3);
  output_has("the daemon is older than this program");
  output_lacks("no job has had");
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    ck_assert_int_eq(ask_played(unknown[i], NULL, 0), 3);
    output_has("the daemon has closed the connection: see gpushare-daemon's log");
  }
}

/* 0.5 kWh in two spans of a job, and one of which NVML has not told. */
TEST(energy_is_summed_up) {
  struct gs_msg answers[5] = {wire_msg(GS_EVENTS_BEGIN, GS_GPU_ALL)};
  answers[0].events.record = GS_RECORD_USAGE;
  for (int i = 1; i <= 3; i++) {
    answers[i] = wire_msg(GS_EVENT, 0);
    answers[i].event.kind = GS_EVENT_USAGE;
    answers[i].event.seq = (uint64_t)i;
    answers[i].event.job = i < 3 ? 1 : 2;
    answers[i].event.usage.held_ns = NS_PER_S;
    answers[i].energy_mj = i < 3 ? UINT64_C(900000000) : 0;
  }
  answers[4] = wire_msg(GS_EVENTS_END, GS_GPU_ALL);
  ck_assert_int_eq(ask_played("report --by job", answers, 5), 0);
  output_has(" MOVED        KWH\n");
  output_has(" 0 B      0.500\n");
  output_has(" 0 B\n");
  ck_assert_int_eq(ask_played("report --by job --csv", answers, 5), 0);
  output_has("Z,1800000.000\n");
  output_has("Z,\n");
  ck_assert_int_eq(ask_played("report --by user --json", answers, 5), 0);
  output_has("\"energy_joules\": 1800000.0");
  answers[1].energy_mj = answers[2].energy_mj = 0;
  ck_assert_int_eq(ask_played("report --json", answers, 5), 0);
  output_has("\"energy_joules\": null");
}

TEST(wrong_usage_is_said) {
  ck_assert_int_eq(report("--by colour"), 2);
  output_has("--by is user, job, gpu or class, not 'colour'");
  ck_assert_int_eq(report("--since soon"), 2);
  output_has("not a duration (90, 15m, 2.5h, 7d): 'soon'");
  ck_assert_int_eq(report("--csv --json"), 2);
}

int main(void) { return suite_run_all("ctl_report", set_up, tear_down); }
