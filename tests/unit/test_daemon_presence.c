/*
 * test_daemon_presence.c - the real daemon on a host whose GPU is played by another device: who has its file
 * open may attach, and nobody else, whatever he does to look so.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "shell.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define SOMEBODY 65534

static struct daemon_process daemon_process, *const it = &daemon_process;

/* ---- a host with a GPU ---- */

static char root[64];
static char device[96], false_device[96];

static void write_text(const char *path, const char *text) {
  char whole[160];
  snprintf(whole, sizeof whole, "%s/%s", root, path);
  FILE *file = fopen(whole, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

/* /dev/null under another name: it may be opened by all, as GPUs' may. */
static bool make_host(void) {
  strcpy(root, "/tmp/gpushare-host-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(root));
  chmod(root, 0755);
  ck_assert_int_eq(run_shell("mkdir -p %s/proc/driver/nvidia/gpus/0000:01:00.0 %s/false", root, root), 0);
  write_text("proc/devices", "Character devices:\n  1 nvidia\n  5 nvidiactl\n\nBlock devices:\n  7 loop\n");
  write_text("proc/driver/nvidia/gpus/0000:01:00.0/information",
             "Model: \t\t card\nGPU UUID: \t GPU-01000000-0000-0000-0000-000000000000\nDevice Minor: \t 3\n");
  snprintf(device, sizeof device, "%s/nvidia0", root);
  snprintf(false_device, sizeof false_device, "%s/false/nvidia0", root);
  setenv("GPUSHARE_HOST_ROOT", root, 1);
  return mknod(device, S_IFCHR | 0666, makedev(1, 3)) == 0 && chmod(device, 0666) == 0;
}

static bool able;

static void start(const char *require) {
  daemon_start(it, (const char *const[]){"--require-device", require, NULL});
}

static void set_up(void) { able = make_host(); }

static void tear_down(void) {
  daemon_clean_up(it);
  unsetenv("GPUSHARE_HOST_ROOT");
  run_shell("rm -r %s", root);
}

/* ---- programs ---- */

static struct gs_msg attach_message(uint8_t card) {
  struct gs_msg msg = wire_msg(GS_ATTACH, 0);
  msg.attach.uuid[0] = card;
  msg.attach.total_bytes = 16 * GIB;
  msg.attach.flags = GS_ATTACH_MANAGED;
  return msg;
}

/* The answer to its ATTACH: 0; or the reason for which it is refused. */
static uint32_t try_card(uint8_t card) {
  int fd = register_client(it);
  struct gs_msg msg = attach_message(card);
  tell(fd, &msg);
  msg = hear(fd);
  ck_assert_msg(msg.type == GS_ATTACHED || msg.type == GS_REJECTED, "%s", wire_type_name(msg.type));
  uint32_t reason = msg.type == GS_REJECTED ? msg.registered.reason : 0;
  close(fd);
  return reason;
}

static uint32_t try_attach(void) { return try_card(1); }

/* The same by a process of somebody else. */
static uint32_t try_as(uid_t uid, void (*prepare)(void)) {
  pid_t child = fork();
  if (child == 0) {
    if (setgid(uid) < 0 || setuid(uid) < 0)
      _exit(255);
    if (prepare)
      prepare();
    _exit((int)try_attach());
  }
  int status;
  waitpid(child, &status, 0);
  ck_assert(WIFEXITED(status) && WEXITSTATUS(status) != 255);
  return (uint32_t)WEXITSTATUS(status);
}

static void must_open(const char *path, int flags) { ck_assert_int_ge(open(path, flags), 0); }

static void open_device(void) { must_open(device, O_RDWR | O_CLOEXEC); }

/* ---- who may ---- */

TEST(who_has_it_open_may_attach) {
  if (!able)
    return;
  start("yes");
  ck_assert_uint_eq(try_as(SOMEBODY, open_device), 0);
  ck_assert_uint_eq(try_as(0, open_device), 0);
}

TEST(nobody_else_may) {
  if (!able)
    return;
  start("yes");
  ck_assert_uint_eq(try_as(SOMEBODY, NULL), GS_REJECT_DEVICE);
  ck_assert_uint_eq(try_as(0, NULL), GS_REJECT_DEVICE);
  ck_assert_uint_eq(try_card(2), GS_REJECT_GPU); /* the host has no such GPU */
}

static void open_file_of_its_name(void) { must_open(false_device, O_RDWR); }
static void open_path_of_device(void) { must_open(device, O_PATH); }
static void open_other_device(void) { must_open("/dev/zero", O_RDWR); }
static void open_folder(void) { must_open(root, O_RDONLY | O_DIRECTORY); }

TEST(what_only_looks_like_it_does_not_count) {
  if (!able)
    return;
  start("yes");
  close(open(false_device, O_CREAT | O_RDWR, 0666));
  chmod(false_device, 0666);
  ck_assert_uint_eq(try_as(SOMEBODY, open_file_of_its_name), GS_REJECT_DEVICE);
  unlink(false_device);
  ck_assert_int_eq(mknod(false_device, S_IFCHR | 0666, makedev(1, 5)), 0); /* another GPU */
  chmod(false_device, 0666);
  ck_assert_uint_eq(try_as(SOMEBODY, open_file_of_its_name), GS_REJECT_DEVICE);
  unlink(false_device);
  ck_assert_uint_eq(try_as(SOMEBODY, open_path_of_device), GS_REJECT_DEVICE);
  ck_assert_uint_eq(try_as(SOMEBODY, open_other_device), GS_REJECT_DEVICE);
  ck_assert_uint_eq(try_as(SOMEBODY, open_folder), GS_REJECT_DEVICE);
}

TEST(where_nobody_asks_all_may) {
  start("no");
  ck_assert_uint_eq(try_attach(), 0);
}

TEST(auto_is_for_gpus_that_the_host_knows) {
  start("auto");
  if (able)
    ck_assert_uint_eq(try_attach(), GS_REJECT_DEVICE);
  ck_assert_uint_eq(try_card(2), GS_REJECT_GPU);
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.presence, GS_PRESENCE_ON);
}

TEST(auto_is_off_where_there_are_none) {
  write_text("proc/devices", "Character devices:\n195 nvidiactl\n");
  start("auto");
  ck_assert_uint_eq(try_attach(), 0);
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.presence, GS_PRESENCE_OFF);
}

/* Not root. able: with what a service is given; else it can't look at others. */
static void be_somebody(bool able_to_look) {
  static const uint32_t kept = 1u << CAP_SYS_PTRACE | 1u << CAP_DAC_READ_SEARCH;
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct data[2] = {{.permitted = kept, .effective = kept, .inheritable = kept}};
  prctl(PR_SET_KEEPCAPS, able_to_look, 0, 0, 0);
  ck_assert_int_eq(setgid(SOMEBODY), 0);
  ck_assert_int_eq(setuid(SOMEBODY), 0);
  if (!able_to_look)
    return;
  ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
  ck_assert_int_eq(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_PTRACE, 0, 0), 0);
  ck_assert_int_eq(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0), 0);
}

static void start_as_somebody(const char *require, bool able_to_look) {
  pid_t child;
  daemon_start(it, (const char *const[]){"--require-device", require, NULL}); /* makes the folder */
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  ck_assert_int_eq(chown(it->folder, SOMEBODY, SOMEBODY), 0);
  child = fork();
  if (child == 0) {
    be_somebody(able_to_look);
    execl(GS_DAEMON, "gpushare-daemon", "--socket", it->socket, "--config", it->config, "--log", "warn",
          "--require-device", require, NULL);
    _exit(127);
  }
  it->pid = child;
  int fd;
  uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
  while ((fd = wire_connect(it->socket)) < 0)
    ck_assert(clock_now_ns() < end_ns);
  close(fd);
}

TEST(a_daemon_that_can_not_look_lets_in_or_refuses) {
  if (!able)
    return;
  start_as_somebody("auto", false);
  ck_assert_uint_eq(try_as(0, NULL), 0);
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.presence, GS_PRESENCE_BLIND);
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s status", it->socket, GS_CTL), 0);
  output_has("not of all programs it can be told whether they have their GPU open");
  kill(it->pid, SIGTERM);
  ck_assert_int_eq(daemon_wait(it), 0);
  start_as_somebody("yes", false);
  ck_assert_uint_eq(try_as(0, open_device), GS_REJECT_DEVICE);
}

/* ---- the process that looks ---- */

/* 0: it has none yet. */
static pid_t find_child(pid_t parent) {
  char path[64], text[64] = "";
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
  FILE *file = fopen(path, "r");
  if (file && !fgets(text, sizeof text, file))
    *text = '\0';
  if (file)
    fclose(file);
  return (pid_t)atoi(text);
}

static pid_t child_of(pid_t parent) {
  uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
  pid_t child;
  while ((child = find_child(parent)) == 0) {
    ck_assert_msg(clock_now_ns() < end_ns, "%d has no child", parent);
    poll(NULL, 0, 1); /* not ours to wait for */
  }
  return child;
}

static void await_end(pid_t pid) {
  uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
  while (kill(pid, 0) == 0) {
    ck_assert_msg(clock_now_ns() < end_ns, "%d is still there", pid);
    poll(NULL, 0, 1); /* not a child of ours */
  }
}

TEST(it_may_be_killed) {
  if (!able)
    return;
  start("yes");
  ck_assert_uint_eq(try_as(SOMEBODY, open_device), 0);
  for (int i = 0; i < 4; i++) {
    pid_t waits = child_of(it->pid), looks = child_of(waits), killed = i % 2 ? waits : looks;
    ck_assert_int_gt(waits, 0);
    ck_assert_int_gt(looks, 0);
    kill(killed, SIGKILL);
    await_end(looks);
    ck_assert_uint_eq(try_as(SOMEBODY, open_device), 0);
    ck_assert_uint_eq(try_as(SOMEBODY, NULL), GS_REJECT_DEVICE);
  }
}

/* Killed while it is asked: with the one that waits what it was asked is lost. */
TEST(what_it_was_asked_is_asked_again) {
  if (!able)
    return;
  start("yes");
  ck_assert_uint_eq(try_as(SOMEBODY, open_device), 0);
  open_device();
  for (int i = 0; i < 2; i++) {
    pid_t waits = child_of(it->pid), looks = child_of(waits);
    kill(looks, SIGSTOP);
    int fd = register_client(it);
    struct gs_msg msg = attach_message(1);
    tell(fd, &msg);
    expect_silence(it, fd); /* others are served meanwhile */
    kill(i ? waits : looks, SIGKILL);
    await_end(looks);
    expect(fd, GS_ATTACHED);
    close(fd);
  }
}

TEST(who_leaves_meanwhile_is_forgotten) {
  if (!able)
    return;
  start("yes");
  ck_assert_uint_eq(try_as(SOMEBODY, open_device), 0);
  pid_t looks = child_of(child_of(it->pid));
  kill(looks, SIGSTOP);
  int first = register_client(it), second = register_client(it), third = register_client(it);
  struct gs_msg msg = attach_message(1), exiting = wire_msg(GS_EXITING, 0);
  open_device();
  tell(first, &msg);
  tell(second, &msg);
  tell(third, &msg);
  tell(second, &exiting);
  close(first);
  close(second);
  while (get_status(it, GS_STATUS_DAEMON).daemon.jobs != 1)
    poll(NULL, 0, 1);
  kill(looks, SIGCONT);
  expect(third, GS_ATTACHED);
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s events", it->socket, GS_CTL), 0);
  output_has("ended with status 0"); /* what it has said behind that is read */
}

/* It does not answer: `yes` refuses, and `auto` lets in. */
static void stall(const char *require, uint32_t reason) {
  start(require);
  ck_assert_uint_eq(try_as(SOMEBODY, open_device), 0);
  kill(child_of(child_of(it->pid)), SIGSTOP);
  ck_assert_uint_eq(try_as(SOMEBODY, open_device), reason);
  ck_assert_uint_eq(try_as(SOMEBODY, open_device), 0); /* another one looks */
  ck_assert_uint_eq(try_as(SOMEBODY, NULL), GS_REJECT_DEVICE);
}

TEST(who_is_not_looked_at_in_time_is_let_in) {
  if (able)
    stall("auto", 0);
}

TEST(or_refused) {
  if (able)
    stall("yes", GS_REJECT_DEVICE);
}

TEST(nobody_waits_for_ever_to_be_looked_at) {
  if (!able)
    return;
  start("yes");
  ck_assert_uint_eq(try_as(SOMEBODY, open_device), 0);
  pid_t waits = child_of(it->pid);
  kill(child_of(waits), SIGKILL);
  kill(waits, SIGSTOP);
  for (int i = 0; i < 2; i++) /* one of whom it is asked, and one of whom it can't be */
    ck_assert_uint_eq(try_as(SOMEBODY, open_device), GS_REJECT_DEVICE);
  kill(waits, SIGCONT);
  while (try_as(SOMEBODY, open_device) != 0)
    ;
}

/* As systemd starts it: what the daemon is given it gives to that process alone. */
TEST(a_service_gives_up_what_it_is_given) {
  if (!able)
    return;
  start_as_somebody("yes", true);
  pid_t waits = child_of(it->pid), looks;
  ck_assert_uint_eq(try_as(0, open_device), 0);
  ck_assert_uint_eq(try_as(0, NULL), GS_REJECT_DEVICE);
  ck_assert_uint_eq(try_as(SOMEBODY - 1, open_device), 0);
  ck_assert_int_eq(run_shell("ls /proc/%d/task | wc -l", it->pid), 0);
  ck_assert_int_ge(atoi(output), 2); /* the log's thread, too */
  ck_assert_int_eq(
      run_shell("grep -hE 'Cap(Inh|Prm|Eff|Amb)' /proc/%d/task/*/status | sort -u | tr -d '\\n'", it->pid),
      0);
  ck_assert_str_eq(output, "CapAmb:\t0000000000000000CapEff:\t0000000000000000CapInh:\t0000000000000000"
                           "CapPrm:\t0000000000000000");
  looks = child_of(waits);
  kill(looks, SIGKILL); /* the next one has it, too */
  await_end(looks);
  ck_assert_uint_eq(try_as(0, open_device), 0);
  ck_assert_uint_eq(try_as(0, NULL), GS_REJECT_DEVICE);
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.presence, GS_PRESENCE_ON);
  kill(waits, SIGKILL); /* but there is none after this one */
  await_end(waits);
  while (get_status(it, GS_STATUS_DAEMON).daemon.presence != GS_PRESENCE_BLIND)
    poll(NULL, 0, 1);
}

/* It has nothing of the daemon's, and no capability but those that it needs. */
TEST(it_is_made_small) {
  if (!able)
    return;
  start("yes");
  ck_assert_uint_eq(try_as(SOMEBODY, open_device), 0);
  pid_t waits = child_of(it->pid), looks = child_of(waits);
  ck_assert_int_eq(run_shell("ls /proc/%d/fd | tr '\\n' ' '", looks), 0);
  output_has("0 1 2 3 ");
  ck_assert_int_eq(run_shell("grep -h CapPrm /proc/%d/status /proc/%d/status | tr '\\n' ' '", waits, looks),
                   0);
  output_has("CapPrm:\t0000000000080004 CapPrm:\t0000000000080004 ");
  kill(it->pid, SIGKILL);
  ck_assert_int_eq(daemon_wait(it), 128 + SIGKILL);
  await_end(waits);
  await_end(looks);
}

int main(void) { return suite_run_all("daemon_presence", set_up, tear_down); }
