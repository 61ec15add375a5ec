/* mps.c - see mps.h. */
#include "mps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "gpushare/protocol.h"

#define CONTROL "nvidia-cuda-mps-control"
#define INSTEAD "programs share the GPUs by time"
#define PATH_SIZE 160
#define LONGEST_NAME "/" GS_MPS_PIPES "/control_privileged"

#define DELAY_FIRST_NS (NS_PER_S / 2)
#define DELAY_MOST_NS (60 * NS_PER_S)
#define STABLE_NS (10 * NS_PER_S) /* it has run well: the next end is a new matter */

#define QUIT_NS (3 * NS_PER_S) /* to end by itself, then by SIGTERM */
#define TERM_NS (2 * NS_PER_S)

enum { EXIT_NOT_RUN = 126, EXIT_NOT_THERE = 127 };

/* ---- its folders ---- */

static void path_of(const struct mps *mps, const char *name, char path[PATH_SIZE]) {
  snprintf(path, PATH_SIZE, "%s/%s", mps->folder, name);
}

/* Root's MPS has servers of other users, who write there: as in /tmp, nobody removes what is another's. */
static int make_folder(const char *path, mode_t mode) {
  struct stat status;
  if (mkdir(path, 0755) < 0 && errno != EEXIST)
    return -errno;
  if (lstat(path, &status) < 0)
    return -errno;
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid())
    return -EEXIST;
  return chmod(path, mode) < 0 ? -errno : 0;
}

/* What an earlier one has left there. */
static void clear_pipes(const struct mps *mps) {
  char path[PATH_SIZE];
  path_of(mps, GS_MPS_PIPES, path);
  DIR *directory = opendir(path);
  if (!directory)
    return;
  for (const struct dirent *entry; (entry = readdir(directory));)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      unlinkat(dirfd(directory), entry->d_name, 0);
  closedir(directory);
}

static int make_folders(const struct mps *mps) {
  char pipes[PATH_SIZE], logs[PATH_SIZE];
  mode_t mode = geteuid() == 0 ? 01777 : 0755;
  path_of(mps, GS_MPS_PIPES, pipes);
  path_of(mps, "log", logs);
  int err = make_folder(mps->folder, 0755);
  if (err == 0)
    err = make_folder(pipes, mode);
  return err == 0 ? make_folder(logs, mode) : err;
}

/* ---- a process of it ---- */

static void set_environment(const struct mps *mps) {
  static const char *const foreign[] = {"CUDA_VISIBLE_DEVICES", "CUDA_MPS_CLIENT_PRIORITY",
                                        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                                        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "LD_PRELOAD"};
  char path[PATH_SIZE];
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    unsetenv(foreign[i]);
  if (*mps->visible)
    setenv("CUDA_VISIBLE_DEVICES", mps->visible, 1);
  path_of(mps, GS_MPS_PIPES, path);
  setenv("CUDA_MPS_PIPE_DIRECTORY", path, 1);
  path_of(mps, "log", path);
  setenv("CUDA_MPS_LOG_DIRECTORY", path, 1);
}

/* In the child. It is killed, not asked to end, when the daemon dies: so its servers are not told to end, and
 * who has one may go on. */
static _Noreturn void become(const struct mps *mps, char *const arguments[], int input, pid_t daemon) {
  sigset_t none;
  sigemptyset(&none);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != daemon)
    _exit(EXIT_NOT_RUN);
  int nothing = open("/dev/null", O_RDWR);
  dup2(input < 0 ? nothing : input, 0);
  dup2(nothing, 1);
  dup2(nothing, 2);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  umask(022); /* whatever the daemon's is: other users come to its sockets */
  sigprocmask(SIG_SETMASK, &none, NULL);
  set_environment(mps);
  execvp(arguments[0], arguments);
  _exit(errno == ENOENT ? EXIT_NOT_THERE : EXIT_NOT_RUN);
}

/* input: its stdin; -1: nothing. Its number, or -errno. */
static pid_t start(const struct mps *mps, const char *option, int input) {
  char *const arguments[] = {(char *)CONTROL, (char *)(uintptr_t)option, NULL};
  pid_t daemon = getpid(), pid = fork();
  if (pid == 0)
    become(mps, arguments, input, daemon);
  return pid < 0 ? -errno : pid;
}

/* ---- it begins, and ends ---- */

/* Once, until it has run well. */
static void tell(struct mps *mps, const char *why) {
  if (!mps->told)
    log_warn("no MPS: %s: " INSTEAD, why);
  mps->told = true;
}

static void plan_again(struct mps *mps, uint64_t now_ns) {
  mps->delay_ns = mps->delay_ns ? 2 * mps->delay_ns : DELAY_FIRST_NS;
  if (mps->delay_ns > DELAY_MOST_NS)
    mps->delay_ns = DELAY_MOST_NS;
  mps->again_ns = now_ns + mps->delay_ns;
}

static void begin(struct mps *mps, uint64_t now_ns) {
  mps->again_ns = 0;
  int err = make_folders(mps);
  if (err == 0) {
    clear_pipes(mps);
    err = start(mps, "-f", -1);
  }
  if (err < 0) {
    char why[PATH_SIZE + 80];
    snprintf(why, sizeof why, "%s: %s", mps->folder, strerror(-err));
    tell(mps, why);
    plan_again(mps, now_ns);
    return;
  }
  mps->pid = err;
  mps->started_ns = now_ns;
  log_info("MPS starts for %s (pid %d), in %s", *mps->visible ? mps->visible : "all GPUs", mps->pid,
           mps->folder);
}

void mps_start(struct mps *mps, const char *socket, const char *visible, uint64_t now_ns) {
  *mps = (struct mps){.visible = visible};
  snprintf(mps->folder, sizeof mps->folder, "%.107s" GS_MPS_FOLDER, socket);
  if (strlen(mps->folder) + sizeof LONGEST_NAME <= sizeof((struct sockaddr_un *)0)->sun_path) {
    begin(mps, now_ns);
    return;
  }
  *mps->folder = '\0';
  tell(mps, "the path of the daemon's socket is too long for MPS");
}

static void describe_end(const struct mps *mps, int status, char *text, size_t size) {
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (code == EXIT_NOT_THERE)
    snprintf(text, size, "there is no " CONTROL " on this machine's PATH");
  else if (code == EXIT_NOT_RUN)
    snprintf(text, size, CONTROL " can't be run");
  else
    snprintf(text, size, CONTROL " has ended with %s %d (%s/log/control.log may say why)",
             WIFEXITED(status) ? "exit status" : "signal", WIFEXITED(status) ? code : WTERMSIG(status),
             mps->folder);
}

void mps_on_child(struct mps *mps, uint64_t now_ns) {
  int status;
  if (mps->pid == 0 || waitpid(mps->pid, &status, WNOHANG) != mps->pid)
    return;
  char why[PATH_SIZE + 120];
  describe_end(mps, status, why, sizeof why);
  if (now_ns - mps->started_ns >= STABLE_NS) {
    mps->told = false;
    mps->delay_ns = 0;
  }
  mps->pid = 0;
  clear_pipes(mps);
  tell(mps, why);
  plan_again(mps, now_ns);
}

bool mps_is_ready(const struct mps *mps) {
  char path[PATH_SIZE];
  struct stat status;
  path_of(mps, GS_MPS_PIPES "/control", path);
  return mps->pid > 0 && lstat(path, &status) == 0 && S_ISSOCK(status.st_mode);
}

uint64_t mps_deadline_ns(const struct mps *mps) { return mps->again_ns ? mps->again_ns : UINT64_MAX; }

void mps_on_time(struct mps *mps, uint64_t now_ns) {
  if (now_ns >= mps_deadline_ns(mps))
    begin(mps, now_ns);
}

/* ---- the end of all of it ---- */

/* By its own interface: another process of the same program, told by its input. */
static pid_t ask_to_quit(const struct mps *mps) {
  static const char order[] = "quit\n";
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return -errno;
  bool written = write(ends[1], order, sizeof order - 1) == sizeof order - 1;
  close(ends[1]);
  pid_t pid = written ? start(mps, NULL, ends[0]) : -EIO;
  close(ends[0]);
  return pid;
}

static bool has_ended(pid_t pid) { return pid <= 0 || waitpid(pid, NULL, WNOHANG) == pid; }

static bool await_end(pid_t pid, uint64_t patience_ns) {
  uint64_t end_ns = clock_now_ns() + patience_ns;
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  while (!has_ended(pid)) {
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= end_ns)
      return false;
    struct timespec left = {.tv_sec = (time_t)((end_ns - now_ns) / NS_PER_S),
                            .tv_nsec = (long)((end_ns - now_ns) % NS_PER_S)};
    sigtimedwait(&child, NULL, &left);
  }
  return true;
}

static void kill_and_wait(pid_t pid) {
  if (has_ended(pid))
    return;
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

static void stop(struct mps *mps) {
  pid_t asker = ask_to_quit(mps);
  if (!await_end(mps->pid, QUIT_NS)) {
    log_warn("MPS does not end when asked to: SIGTERM");
    kill(mps->pid, SIGTERM);
    if (!await_end(mps->pid, TERM_NS))
      kill_and_wait(mps->pid);
  }
  kill_and_wait(asker);
  mps->pid = 0;
}

void mps_end(struct mps *mps) {
  char path[PATH_SIZE];
  if (!*mps->folder)
    return;
  if (mps->pid > 0)
    stop(mps);
  clear_pipes(mps);
  path_of(mps, GS_MPS_PIPES, path);
  rmdir(path);
  mps->again_ns = 0;
}
