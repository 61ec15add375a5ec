/* test_daemon_log.c - the real daemon's log: who does not read it, who floods it, and what it says of
 * changes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "suite.h"

#define FIRST_UID 70001
#define LINES_AT_ONCE 20 /* of one user */

static struct daemon_process daemon_process, *it = &daemon_process;
static FILE *log_file;
static const char *const arguments[] = {"--log", "info", NULL};

static void tear_down(void) {
  daemon_clean_up(it);
  if (log_file)
    fclose(log_file);
  log_file = NULL;
}

static void start_with_stderr(int fd) {
  int before = dup(STDERR_FILENO);
  dup2(fd, STDERR_FILENO);
  daemon_start(it, arguments);
  dup2(before, STDERR_FILENO);
  close(before);
}

static void start_with_file(void) {
  log_file = tmpfile();
  start_with_stderr(fileno(log_file));
}

/* One line of the log, but for what it is charged to: a client that registers, and is closed. */
static void register_twice(void) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  int fd = register_client(it);
  tell(fd, &msg);
  expect_end(fd);
}

/* As that user, where we may be. */
static void register_twice_as(uid_t uid) {
  if (geteuid() != 0) {
    register_twice();
    return;
  }
  ck_assert_int_eq(seteuid(uid), 0);
  register_twice();
  ck_assert_int_eq(seteuid(0), 0);
}

/* ---- reading ---- */

static unsigned long sum_of(const char *line, const char *before, const char *after) {
  const char *number = strstr(line, before);
  if (!number || !strstr(line, after))
    return 0;
  return strtoul(number + strlen(before), NULL, 10);
}

struct tally {
  unsigned closed, ended;
  unsigned long lost, left_out;
};

static void tally_line(struct tally *tally, const char *line) {
  tally->lost += sum_of(line, "(", " lines before this one are lost)");
  if (strstr(line, "are left out"))
    tally->left_out += sum_of(line, "info: ", " more lines like this");
  else if (strstr(line, "closing the connection"))
    tally->closed++;
  else if (strstr(line, "ending"))
    tally->ended++;
}

static struct tally tally_of(FILE *file) {
  char line[8192];
  struct tally tally = {0};
  while (fgets(line, sizeof line, file))
    tally_line(&tally, line);
  return tally;
}

static void fill(int fd) {
  char page[4096];
  memset(page, 'x', sizeof page);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  while (write(fd, page, sizeof page) > 0 || write(fd, "\n", 1) > 0)
    ;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

/* Of all that is said up to the daemon's end, which is wanted now. */
static struct tally tally_of_the_end(int fd) {
  FILE *reader = fdopen(fd, "r");
  kill(it->pid, SIGTERM);
  struct tally tally = tally_of(reader);
  ck_assert_int_eq(daemon_wait(it), 0);
  fclose(reader);
  return tally;
}

/* ---- a reader that has stopped ---- */

TEST(who_does_not_read_the_log_holds_nobody_up) {
  enum { USERS = 110, CLIENTS = USERS * LINES_AT_ONCE };
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  start_with_stderr(ends[1]);
  fill(ends[1]);
  close(ends[1]);
  for (unsigned i = 0; i < CLIENTS; i++)
    register_twice_as(FIRST_UID + i % USERS);
  struct tally tally = tally_of_the_end(ends[0]);
  if (geteuid() == 0) {
    ck_assert_uint_ge(tally.closed, 1000); /* the ring */
    ck_assert_uint_ge(tally.lost, 1);      /* and it has a bound */
  }
  ck_assert_uint_eq(tally.closed + tally.ended + tally.lost + tally.left_out, CLIENTS + 1);
}

TEST(who_never_reads_it_does_not_keep_the_daemon_from_ending) {
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  start_with_stderr(ends[1]);
  fill(ends[1]);
  register_twice();
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  close(ends[0]);
  close(ends[1]);
}

/* As a shell's other programs may do to the terminal that they share. */
TEST(one_that_others_have_made_non_blocking_is_waited_for) {
  enum { USERS = 10, CLIENTS = USERS * LINES_AT_ONCE };
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  ck_assert_int_ge(fcntl(ends[1], F_SETPIPE_SZ, 4096), 0);
  start_with_stderr(ends[1]);
  fcntl(ends[1], F_SETFL, fcntl(ends[1], F_GETFL) | O_NONBLOCK);
  close(ends[1]);
  for (unsigned i = 0; i < CLIENTS; i++)
    register_twice_as(FIRST_UID + i % USERS);
  struct tally tally = tally_of_the_end(ends[0]);
  ck_assert_uint_eq(tally.lost, 0);
  ck_assert_uint_eq(tally.closed + tally.left_out, CLIENTS);
}

TEST(the_last_word_before_a_failure_comes_out) {
  FILE *config;
  start_with_file();
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  config = fopen(it->config, "w");
  fputs("tq = soon\n", config);
  fclose(config);
  it->pid = fork();
  if (it->pid == 0) {
    dup2(fileno(log_file), STDERR_FILENO);
    execl(GS_DAEMON, "gpushare-daemon", "--config", it->config, NULL);
    _exit(127);
  }
  ck_assert_int_eq(daemon_wait(it), 78);
  char text[4096];
  rewind(log_file);
  text[fread(text, 1, sizeof text - 1, log_file)] = '\0';
  ck_assert_ptr_nonnull(strstr(text, ":1: tq: 'soon'"));
}

/* ---- one who floods ---- */

TEST(one_user_does_not_fill_the_log) {
  enum { CLIENTS = 300 };
  uint64_t start_ns = clock_now_ns();
  start_with_file();
  for (unsigned i = 0; i < CLIENTS; i++)
    register_twice_as(FIRST_UID);
  if (geteuid() == 0)
    register_twice_as(FIRST_UID + 1);
  unsigned most = LINES_AT_ONCE + 2 + (unsigned)((clock_now_ns() - start_ns) / NS_PER_S);
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  rewind(log_file);
  struct tally tally = tally_of(log_file);
  unsigned other = geteuid() == 0;
  ck_assert_uint_le(tally.closed, most + other);
  ck_assert_uint_eq(tally.closed + tally.left_out, CLIENTS + other);
  ck_assert_uint_eq(tally.lost, 0);
}

/* ---- who has changed what ---- */

/* The text is in the log, or comes. */
static void await_text(const char *text) {
  uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
  static char all[1 << 16];
  for (;;) {
    ssize_t size = pread(fileno(log_file), all, sizeof all - 1, 0);
    all[size > 0 ? size : 0] = '\0';
    if (strstr(all, text))
      return;
    ck_assert_msg(clock_now_ns() < end_ns, "'%s' is not in the log:\n%.2000s", text, all);
    poll(NULL, 0, 1);
  }
}

#define await_line(...)                                                                                      \
  do {                                                                                                       \
    char wanted[512];                                                                                        \
    snprintf(wanted, sizeof wanted, __VA_ARGS__);                                                            \
    await_text(wanted);                                                                                      \
  } while (0)

/* "root (uid 0, pid 77, test_daemon_log)": this process, as the log calls it. */
static const char *own_label(void) {
  static char label[128];
  const struct passwd *user = getpwuid(geteuid());
  char process[32] = "";
  FILE *comm = fopen("/proc/self/comm", "r");
  ck_assert_int_eq(fscanf(comm, "%31s", process), 1);
  fclose(comm);
  if (user)
    snprintf(label, sizeof label, "%s (uid %u, pid %d, %s)", user->pw_name, geteuid(), getpid(), process);
  else
    snprintf(label, sizeof label, "uid %u (pid %d, %s)", geteuid(), getpid(), process);
  return label;
}

static const char *own_name(void) {
  static char name[64];
  const struct passwd *user = getpwuid(geteuid());
  if (user)
    snprintf(name, sizeof name, "%s", user->pw_name);
  else
    snprintf(name, sizeof name, "uid %u", geteuid());
  return name;
}

TEST(changes_are_told_in_words) {
  start_with_file();
  int fd = attach_client(it, UINT64_C(1) << 30);
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 20 * NS_PER_S), 0);
  await_line("info: %s set the quantum of all GPUs to 20 s\n", own_label());
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 0), 0);
  await_text("set the quantum of all GPUs to auto\n");
  ck_assert_int_eq(change_setting(it, GS_SET_MODE, GS_MODE_ON), 0);
  await_text("set the mode of all GPUs to on\n");
  ck_assert_int_eq(change_setting(it, GS_SET_POLICY, GS_POLICY_FIFO), 0);
  await_text("set the policy of all GPUs to fifo\n");
  ck_assert_int_eq(change_setting(it, GS_SET_CAPACITY, UINT64_C(3) << 29), 0);
  await_text("set the capacity of all GPUs to 1.5 GiB\n");
  ck_assert_int_eq(change_setting(it, GS_SET_CAPACITY, 0), 0);
  await_text("set the capacity of all GPUs to all of the card\n");
  ck_assert_int_eq(set_terms(it, 1, GS_TERM_PAUSED, 1), 0);
  await_line("%s paused job 1 (pid %d, test, of %s)\n", own_label(), getpid(), own_name());
  ck_assert_int_eq(set_terms(it, 1, GS_TERM_PAUSED, 0), 0);
  await_line("%s resumed job 1 (pid %d, test, of %s)\n", own_label(), getpid(), own_name());
  ck_assert_int_eq(set_terms(it, 1, GS_TERM_WEIGHT, 50), 0);
  await_text("set the weight of job 1 (");
  ck_assert_int_eq(set_terms(it, 1, GS_TERM_CLASS, GS_CLASS_OPPORTUNISTIC), 0);
  await_text(") to opportunistic\n");
  ck_assert_int_eq(set_terms(it, 1, GS_TERM_RATE, 20), 0);
  await_text(") to 20 %\n");
  ck_assert_int_eq(set_terms(it, 1, GS_TERM_LIMIT, UINT64_C(1) << 31), 0);
  await_text(") to 2.0 GiB\n");
  ck_assert_int_eq(set_terms(it, 1, GS_TERM_LIMIT, 0), 0);
  await_text("set the memory limit of job 1 (");
  await_text(") to none\n");
  close(fd);
}

TEST(a_single_gpu_is_named) {
  start_with_file();
  int client = attach_client(it, UINT64_C(1) << 30), fd = connect_to(it);
  struct gs_msg gpu = get_status(it, GS_STATUS_GPU), msg = wire_msg(GS_SET_TQ, 0);
  memcpy(msg.set.uuid, gpu.gpu_status.uuid, sizeof msg.set.uuid);
  msg.set.value = NS_PER_MS;
  tell(fd, &msg);
  ck_assert_int_eq(expect(fd, GS_REPLY).status, 0);
  await_line("set the quantum of GPU 0 (%s, GPU-%02x%02x%02x%02x) to 1 ms\n", gpu.gpu_status.name,
             gpu.gpu_status.uuid[0], gpu.gpu_status.uuid[1], gpu.gpu_status.uuid[2], gpu.gpu_status.uuid[3]);
  close(fd);
  close(client);
}

/* Not even of others: what they may not do is told as well. */
TEST(attempts_are_told_too) {
  if (geteuid() != 0)
    return;
  start_with_file();
  int fd = attach_client(it, UINT64_C(1) << 30);
  ck_assert_int_eq(seteuid(FIRST_UID), 0);
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 20 * NS_PER_S), -EACCES);
  ck_assert_int_eq(set_terms(it, 1, GS_TERM_PAUSED, 1), -EACCES);
  ck_assert_int_eq(set_terms(it, 1, GS_TERM_WEIGHT, 1), -EACCES);
  for (int i = 0; i < 300; i++)
    ck_assert_int_eq(set_terms(it, 1, GS_TERM_PRIORITY, -i % 20), -EACCES);
  ck_assert_int_eq(seteuid(0), 0);
  await_line("warn: uid %d (pid %d, ", FIRST_UID, getpid());
  await_text("may not set the quantum of all GPUs to 20 s\n");
  await_text(") may not pause job 1 (");
  await_text(") may not set the weight of job 1 (");
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  await_line("more lines like this, caused by a user (uid %d), are left out: ... may not set the ... of ... "
             "to ...\n",
             FIRST_UID);
  close(fd);
}

TEST(signals_and_reloads_are_told) {
  start_with_file();
  kill(it->pid, SIGUSR1);
  await_line("info: %s set the mode of all GPUs to on, by SIGUSR1\n", own_label());
  kill(it->pid, SIGHUP);
  await_line("info: the configuration has been read again, by SIGHUP of %s: nothing has changed\n",
             own_label());
  FILE *config = fopen(it->config, "w");
  fputs("tq = 4\npolicy = fifo\n[gpu GPU-00000000-0000-0000-0000-000000000001]\ntq = 5\n", config);
  fclose(config);
  kill(it->pid, SIGHUP);
  await_text(
      ": tq = 4 instead of its default; policy = fifo instead of its default; other settings in sections\n");
  config = fopen(it->config, "w");
  fputs("tq = 3\npolicy = fifo\n[gpu GPU-00000000-0000-0000-0000-000000000001]\ntq = 5\n", config);
  fclose(config);
  kill(it->pid, SIGHUP);
  await_text(": tq = 3 instead of 4\n");
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  await_line("info: ending, by SIGTERM of %s\n", own_label());
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  return suite_run_all("daemon_log", NULL, tear_down);
}
