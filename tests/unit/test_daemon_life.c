/* test_daemon_life.c - the real daemon: who dies, who does not answer, signals, configuration, restarts. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define MANAGED GS_ATTACH_MANAGED

static struct daemon_process daemon_process, *const it = &daemon_process;

static void start(const char *const *arguments) {
  if (it->pid)
    daemon_clean_up(it);
  daemon_start(it, arguments);
}

static void set_up(void) { start((const char *const[]){NULL}); }

static void tear_down(void) { daemon_clean_up(it); }

static void start_on(void) {
  start((const char *const[]){"--mode", "on", "--tq", "10ms", "--host-memory", "1T", NULL});
}

/* ---- death and signals ---- */

/* A process with a client that holds the GPU. With a child, that has everything that it has and stays: told
 * by the second byte that comes, and it ends when nobody reads them any more. */
static pid_t start_holder(bool with_child, int *heard) {
  int told[2];
  ck_assert_int_eq(pipe(told), 0);
  pid_t holder = fork();
  if (holder == 0) {
    close(told[0]);
    int fd = attach_client(it, GIB);
    tell_simple(fd, GS_REQ_LOCK);
    expect(fd, GS_LOCK_OK);
    (void)!write(told[1], "", 1);
    if (with_child && fork() == 0) {
      struct pollfd unread = {.fd = told[1]};
      (void)!write(told[1], "", 1);
      poll(&unread, 1, -1);
      _exit(0);
    }
    for (;;)
      pause();
  }
  close(told[1]);
  *heard = told[0];
  char byte;
  for (int i = 0; i <= with_child; i++)
    ck_assert_int_eq(read(*heard, &byte, 1), 1);
  return holder;
}

static void kill_holder(bool with_child) {
  start_on();
  int heard;
  pid_t holder = start_holder(with_child, &heard);
  int fd = attach_client(it, GIB);
  tell_simple(fd, GS_REQ_LOCK);
  expect_silence(it, fd);
  kill(holder, SIGKILL);
  expect(fd, GS_LOCK_OK);
  waitpid(holder, NULL, 0);
  close(heard);
}

TEST(a_killed_holder_loses_the_lock) { kill_holder(false); }

TEST(a_killed_holder_loses_the_lock_whoever_has_its_socket) { kill_holder(true); }

/* The child makes a connection of its own, as libunified does there. */
TEST(a_child_stays_when_its_parent_dies) {
  int told[2];
  char byte;
  ck_assert_int_eq(pipe(told), 0);
  if (fork() == 0) {
    close(told[0]);
    int inherited = attach_client(it, GIB);
    if (fork() > 0)
      _exit(0);
    struct gs_msg msg;
    while (wire_recv(inherited, &msg) != -ECONNRESET) /* the daemon has seen the parent's end */
      poll(NULL, 0, 1);
    int fd = attach_client(it, GIB);
    tell_simple(fd, GS_REQ_LOCK);
    expect(fd, GS_LOCK_OK);
    (void)!write(told[1], "", 1);
    expect_end(fd); /* not before the test's */
    _exit(0);
  }
  close(told[1]);
  ck_assert_int_eq(read(told[0], &byte, 1), 1);
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.jobs, 1);
  wait(NULL);
}

TEST(who_does_not_answer_is_bypassed) {
  start((const char *const[]){"--mode", "on", "--tq", "1ms", "--grace", "20ms", NULL});
  int a = attach_client(it, GIB), b = attach_client(it, GIB);
  tell_simple(a, GS_REQ_LOCK);
  tell_active(a, expect(a, GS_LOCK_OK).epoch);
  tell_simple(b, GS_REQ_LOCK);
  expect(b, GS_LOCK_OK);
  struct gs_msg job = get_status(it, GS_STATUS_JOB);
  ck_assert_uint_eq(job.job_status.state, GS_JOB_BYPASSED);
  ck_assert_uint_eq(job.job_status.flags, GS_STATE_OVERDUE);
}

TEST(sigterm_ends_it_orderly) {
  int fd = attach_client(it, GIB);
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  ck_assert_int_ne(access(it->socket, F_OK), 0);
  expect_end(fd);
}

TEST(signals_switch_turns) {
  int a = attach_client(it, GIB), b = attach_client(it, GIB);
  expect(a, GS_LOCK_OK);
  expect(b, GS_LOCK_OK);
  kill(it->pid, SIGUSR1);
  ck_assert_uint_eq(expect(a, GS_CAPACITY).attached.mode, GS_MODE_ON);
  expect(a, GS_SCHED_ON);
  expect(b, GS_CAPACITY);
  expect(b, GS_SCHED_ON);
  struct gs_msg drop = expect(a, GS_DROP_LOCK); /* it has held for longer */
  tell_released(a, drop.epoch);
  kill(it->pid, SIGUSR2);
  expect(a, GS_CAPACITY);
  expect(a, GS_SCHED_OFF);
  expect(a, GS_LOCK_OK);
}

static void write_config(const char *text) {
  FILE *file = fopen(it->config, "w");
  fputs(text, file);
  fclose(file);
}

TEST(sighup_rereads_the_configuration) {
  int fd = attach_client(it, 0);
  expect(fd, GS_LOCK_OK);
  write_config("tq = 3\nmode = on\npolicy = fifo\ngrace = 7\n");
  kill(it->pid, SIGHUP);
  ck_assert_uint_eq(expect(fd, GS_CAPACITY).attached.mode, GS_MODE_ON);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.tq_ns, 3 * NS_PER_S);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.policy, GS_POLICY_FIFO);
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.grace_ns, 7 * NS_PER_S);
  write_config("tq = 4\nmode = sometimes\n"); /* wrong: nothing changes */
  expect(fd, GS_SCHED_ON);
  kill(it->pid, SIGHUP);
  kill(it->pid, SIGUSR2);
  ck_assert_uint_eq(expect(fd, GS_CAPACITY).attached.mode, GS_MODE_OFF);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.tq_ns, 3 * NS_PER_S);
}

#define CARD_3 "[gpu GPU-03000000-0000-0000-0000-000000000000]\n"

static void expect_attached(const struct gs_msg *msg, enum gs_mode mode, enum gs_memory memory,
                            uint64_t capacity_bytes) {
  ck_assert_uint_eq(msg->attached.mode, mode);
  ck_assert_uint_eq(msg->attached.memory, memory);
  ck_assert_uint_eq(msg->attached.capacity_bytes, capacity_bytes);
}

/* Card 3 is known before the configuration is read, and again after it; card 4 has only the general settings.
 */
TEST(a_gpu_has_settings_of_its_own) {
  int fd = register_client(it), early = register_client(it);
  struct gs_msg msg = attach_card(early, 3, 0, MANAGED);
  expect_attached(&msg, GS_MODE_AUTO, GS_MEMORY_MANAGED, 16 * GIB);
  expect(early, GS_LOCK_OK);
  write_config("memory = swap\ncapacity = 8G\n" CARD_3 "mode = on\ntq = 3\ncapacity = 2G\nmemory = off\n");
  kill(it->pid, SIGHUP);
  ck_assert_uint_eq(expect(early, GS_CAPACITY).attached.capacity_bytes, 2 * GIB);
  expect(early, GS_SCHED_ON);
  msg = attach_card(fd, 3, 0, MANAGED);
  expect_attached(&msg, GS_MODE_ON, GS_MEMORY_OFF, 2 * GIB);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.tq_ns, 3 * NS_PER_S);
  msg = attach_card(register_client(it), 4, 0, MANAGED);
  expect_attached(&msg, GS_MODE_AUTO, GS_MEMORY_SWAP, 8 * GIB);
}

TEST(a_new_gpu_has_settings_of_its_own) {
  kill(it->pid, SIGTERM);
  daemon_wait(it);
  write_config(CARD_3 "mode = on\ntq = 3\npolicy = fair\n");
  daemon_start(it, (const char *const[]){"--memory", "swap", "--tq", "9", NULL});
  struct gs_msg msg = attach_card(register_client(it), 3, 0, MANAGED);
  expect_attached(&msg, GS_MODE_ON, GS_MEMORY_SWAP, 16 * GIB);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.tq_ns, 3 * NS_PER_S);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.policy, GS_POLICY_FAIR);
}

TEST(a_restart_finds_its_clients_again) {
  start_on();
  int fd = attach_client(it, GIB);
  kill(it->pid, SIGKILL);
  ck_assert_int_eq(daemon_wait(it), 128 + SIGKILL);
  expect_end(fd);
  ck_assert_int_eq(access(it->socket, F_OK), 0); /* stale, and replaced */
  daemon_start(it, (const char *const[]){"--mode", "on", NULL});
  int a = register_client(it), b = register_client(it);
  attach_card(a, 1, GIB, MANAGED | GS_ATTACH_RUNNING);
  attach_card(b, 1, GIB, MANAGED | GS_ATTACH_RUNNING);
  ck_assert_uint_eq(expect(b, GS_DROP_LOCK).epoch, 0);
  tell_released(b, 0);
  tell_simple(b, GS_REQ_LOCK);
  ck_assert_uint_eq(expect(a, GS_LOCK_WANTED).epoch, 0);
  tell_released(a, 0);
  expect(b, GS_LOCK_OK);
}

static int exit_code_of(const char *const *arguments) {
  struct daemon_process other = {0};
  pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    execv(GS_DAEMON, (char *const *)arguments);
    _exit(127);
  }
  other.pid = child;
  return daemon_wait(&other);
}

TEST(a_second_daemon_is_refused) {
  ck_assert_int_eq(
      exit_code_of((const char *const[]){"d", "--socket", it->socket, "--config", it->config, NULL}), 3);
  get_status(it, GS_STATUS_DAEMON); /* the first one is unharmed */
}

TEST(the_folder_that_it_makes_is_open_to_all) {
  char folder[sizeof it->socket];
  struct stat status;
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  ck_assert_int_lt(snprintf(folder, sizeof folder, "%s/made", it->folder), (int)sizeof folder);
  ck_assert_int_lt(snprintf(it->socket, sizeof it->socket, "%s/made/s", it->folder), (int)sizeof it->socket);
  mode_t before = umask(0077);
  daemon_start(it, (const char *const[]){NULL});
  umask(before);
  ck_assert_int_eq(stat(folder, &status), 0);
  ck_assert_uint_eq(status.st_mode & 07777, 0755);
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  ck_assert_int_eq(rmdir(folder), 0);
}

TEST(a_folder_that_is_there_stays_as_it_is) {
  struct stat status;
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  ck_assert_int_eq(chmod(it->folder, 0700), 0);
  daemon_start(it, (const char *const[]){NULL});
  ck_assert_int_eq(stat(it->folder, &status), 0);
  ck_assert_uint_eq(status.st_mode & 07777, 0700);
}

TEST(a_wrong_configuration_is_refused) {
  write_config("tq = soon\n");
  ck_assert_int_eq(exit_code_of((const char *const[]){"d", "--config", it->config, NULL}), 78);
  ck_assert_int_eq(exit_code_of((const char *const[]){"d", "--config", "/nonexistent/file", NULL}), 78);
  ck_assert_int_eq(exit_code_of((const char *const[]){"d", "--config", it->folder, NULL}), 78);
  ck_assert_int_eq(exit_code_of((const char *const[]){"d", "--mode", "sometimes", NULL}), 78);
  ck_assert_int_eq(exit_code_of((const char *const[]){"d", "--nonsense", NULL}), 64);
  ck_assert_int_eq(
      exit_code_of((const char *const[]){"d", "--config", "/dev/null", "--socket", "/dev/null", NULL}), 1);
}

int main(void) { return suite_run_all("daemon_life", set_up, tear_down); }
