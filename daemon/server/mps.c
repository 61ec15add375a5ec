/* mps.c - see mps.h. */
#include "server/mps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "gpushare/protocol.h"
#include "server/process.h"
#include "shared/printable.h"

/* ---- which GPUs ---- */

static void add(struct spatial *spatial, const uint8_t uuid[GS_UUID_SIZE]) {
  if (spatial->count < OVERRIDES_MAX)
    memcpy(spatial->gpus[spatial->count++], uuid, GS_UUID_SIZE);
}

void spatial_choose(struct spatial *spatial, const struct sched_settings *general,
                    const struct overrides *overrides, const uint8_t (*host)[GS_UUID_SIZE], int host_count) {
  const struct override *list = overrides->list;
  *spatial = (struct spatial){.all = general->spatial == GS_SPATIAL_MPS};
  for (size_t i = 0; i < overrides->count; i++)
    spatial->all &= !(list[i].fields & OVERRIDE_SPATIAL) || list[i].settings.spatial != GS_SPATIAL_NONE;
  if (spatial->all)
    return;
  for (int i = 0; i < host_count; i++)
    if (overrides_settings(overrides, host[i], *general).spatial == GS_SPATIAL_MPS)
      add(spatial, host[i]);
  for (size_t i = 0; host_count < 1 && i < overrides->count; i++)
    if (!list[i].numbered && list[i].fields & OVERRIDE_SPATIAL && list[i].settings.spatial == GS_SPATIAL_MPS)
      add(spatial, list[i].uuid);
  spatial->all = host_count > 0 && spatial->count == host_count;
}

bool spatial_is_on(const struct spatial *spatial) { return spatial->all || spatial->count > 0; }

bool spatial_has(const struct spatial *spatial, const uint8_t uuid[GS_UUID_SIZE]) {
  for (int i = 0; i < spatial->count; i++)
    if (memcmp(spatial->gpus[i], uuid, GS_UUID_SIZE) == 0)
      return true;
  return spatial->all;
}

bool spatial_is_same(const struct spatial *spatial, const struct spatial *other) {
  return spatial->all == other->all && spatial->count == other->count &&
         memcmp(spatial->gpus, other->gpus, (size_t)spatial->count * GS_UUID_SIZE) == 0;
}

void spatial_visible(const struct spatial *spatial, char text[SPATIAL_VISIBLE_SIZE]) {
  *text = '\0';
  for (int i = 0; !spatial->all && i < spatial->count; i++) {
    if (i > 0)
      *text++ = ',';
    format_uuid(spatial->gpus[i], text);
    text += strlen(text);
  }
}

/* ---- which programs ---- */

/* It tells the GPUs that it sees if its environment names them; else it may be any. */
static bool sees_only_ours(const struct spatial *spatial, const struct gs_msg *ask) {
  uint32_t count = ask->ask_spatial.count;
  if (spatial->all)
    return true;
  if (count < 1 || count > GS_SPATIAL_UUIDS)
    return false;
  for (uint32_t i = 0; i < count; i++)
    if (!spatial_has(spatial, ask->ask_spatial.uuids[i]))
      return false;
  return true;
}

enum gs_spatial_verdict spatial_judge(const struct spatial *spatial, const struct gs_msg *ask, uid_t uid,
                                      uid_t own) {
  if (!spatial_is_on(spatial))
    return GS_SPATIAL_OFF;
  if (!sees_only_ours(spatial, ask))
    return GS_SPATIAL_OTHER_GPUS;
  if ((own != 0 && uid != own) || (spatial->programs > 0 && uid != spatial->uid))
    return GS_SPATIAL_OTHER_USER;
  return spatial->programs < SPATIAL_PROGRAMS_MOST ? GS_SPATIAL_ON : GS_SPATIAL_FULL;
}

void spatial_enter(struct spatial *spatial, uid_t uid) {
  spatial->uid = uid;
  spatial->programs++;
}

void spatial_leave(struct spatial *spatial) { spatial->programs--; }

/* ---- mps ---- */

#define CONTROL "nvidia-cuda-mps-control"
#define INSTEAD "programs share the GPUs by time"
#define PATH_SIZE 160
#define LOGS "log"
#define REMOVED_MOST 10000 /* of what others have put in the way; more stays, under another name */
#define REMOVED_DEPTH 8
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

/* What is there goes, with all in it, by no link elsewhere: as far as `left` entries and `depth` folders go.
 * Somebody else may be at work in there. */
static void remove_all(int parent, const char *name, int depth, int *left) {
  if ((*left)-- <= 0 || unlinkat(parent, name, 0) == 0)
    return;
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *directory = fd < 0 ? NULL : fdopendir(fd);
  if (fd >= 0 && !directory)
    close(fd);
  if (!directory)
    return;
  for (const struct dirent *entry; depth > 0 && (entry = readdir(directory));)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      remove_all(fd, entry->d_name, depth - 1, left);
  closedir(directory);
  unlinkat(parent, name, AT_REMOVEDIR);
}

static void remove_tree(int parent, const char *name) {
  int left = REMOVED_MOST;
  remove_all(parent, name, REMOVED_DEPTH, &left);
}

/* In one step, whatever is there: nobody can come between. The other is at `path` then; what is another's in
 * a folder like /tmp stays where it is, unless the daemon is root. */
static int put_in_place(const char *path, const char *folder) {
  for (int tries = 3; tries > 0; tries--) {
    if (renameat2(AT_FDCWD, path, AT_FDCWD, folder, RENAME_NOREPLACE) == 0 ||
        (errno == EEXIST && renameat2(AT_FDCWD, path, AT_FDCWD, folder, RENAME_EXCHANGE) == 0))
      return 0;
    if (errno != ENOENT)
      break;
  }
  return -errno;
}

static void leave_folder(struct mps *mps) {
  if (mps->folder_fd > 0)
    close(mps->folder_fd);
  mps->folder_fd = 0;
}

/* A fresh one for each daemon: what earlier ones, or others, have left there is not used. */
static int make_folder(struct mps *mps) {
  char path[PATH_SIZE];
  struct stat own, there;
  if (mps->folder_fd > 0 && fstat(mps->folder_fd, &own) == 0 && lstat(mps->folder, &there) == 0 &&
      own.st_dev == there.st_dev && own.st_ino == there.st_ino)
    return 0;
  leave_folder(mps);
  snprintf(path, sizeof path, "%s.XXXXXX", mps->folder);
  if (!mkdtemp(path))
    return -errno;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int err = 0;
  /* Servers and programs of other users come to the sockets, which the control makes, and nobody else makes
   * anything there; nor in the folder of logs, which is the control's alone: its servers tell it what to
   * write. */
  if (fd < 0 || mkdirat(fd, GS_MPS_PIPES, 0755) < 0 || fchmodat(fd, GS_MPS_PIPES, 0755, 0) < 0 ||
      mkdirat(fd, LOGS, 0700) < 0 || fchmod(fd, 0755) < 0)
    err = -errno;
  if (err == 0)
    err = put_in_place(path, mps->folder);
  remove_tree(AT_FDCWD, path);
  if (err == 0)
    mps->folder_fd = fd;
  else if (fd >= 0)
    close(fd);
  return err;
}

/* What an earlier control has left there; but for that, the folder stays. */
static int make_pipes_anew(const struct mps *mps) {
  remove_tree(mps->folder_fd, GS_MPS_PIPES);
  return mkdirat(mps->folder_fd, GS_MPS_PIPES, 0755) < 0 ||
                 fchmodat(mps->folder_fd, GS_MPS_PIPES, 0755, 0) < 0
             ? -errno
             : 0;
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
  path_of(mps, LOGS, path);
  setenv("CUDA_MPS_LOG_DIRECTORY", path, 1);
}

/* In the child. It is killed when the daemon dies: nobody would know who uses it any more. */
static _Noreturn void become(const struct mps *mps, char *const arguments[], int input, int output,
                             pid_t daemon) {
  sigset_t none;
  sigemptyset(&none);
  if (!process_bind_to(daemon))
    _exit(EXIT_NOT_RUN);
  int nothing = open("/dev/null", O_RDWR);
  dup2(input < 0 ? nothing : input, 0);
  dup2(output < 0 ? nothing : output, 1);
  dup2(output < 0 ? nothing : output, 2);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  umask(022); /* whatever the daemon's is: other users come to its sockets */
  sigprocmask(SIG_SETMASK, &none, NULL);
  set_environment(mps);
  execvp(arguments[0], arguments);
  _exit(errno == ENOENT ? EXIT_NOT_THERE : EXIT_NOT_RUN);
}

/* input: its stdin; output: its stdout and stderr; -1: nothing. Its number, or -errno. */
static pid_t start(const struct mps *mps, const char *option, int input, int output) {
  char *const arguments[] = {(char *)CONTROL, (char *)(uintptr_t)option, NULL};
  pid_t daemon = getpid(), pid = fork();
  if (pid == 0)
    become(mps, arguments, input, output, daemon);
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

/* A pipe that is its own reader: for who writes, none is ever missing, nor waited for. It may be more than
 * there is room for, and others' servers write there as well: that is lost. */
static int open_output(int *reader) {
  char path[32];
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
    return -1;
  snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
  int output = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  close(ends[1]);
  *reader = ends[0];
  return output;
}

static void close_output(struct mps *mps) {
  if (mps->output_fd > 0)
    close(mps->output_fd);
  mps->output_fd = 0;
}

/* Its last line; empty: nothing. */
static void read_output(struct mps *mps, char *line, size_t size) {
  char text[4096];
  size_t length = 0;
  *line = '\0';
  for (ssize_t n;
       mps->output_fd > 0 && (n = read(mps->output_fd, text + length, sizeof text - 1 - length)) > 0;) {
    length += (size_t)n;
    if (length > sizeof text / 2) { /* the end counts */
      memmove(text, text + length - sizeof text / 2, sizeof text / 2);
      length = sizeof text / 2;
    }
  }
  close_output(mps);
  while (length > 0 && text[length - 1] == '\n')
    length--;
  text[length] = '\0';
  const char *last = strrchr(text, '\n');
  printable_copy(line, last ? last + 1 : text, size);
}

static void begin(struct mps *mps, uint64_t now_ns) {
  mps->again_ns = 0;
  int err = make_folder(mps);
  if (err == 0)
    err = make_pipes_anew(mps);
  if (err == 0) {
    close_output(mps);
    int output = open_output(&mps->output_fd);
    err = start(mps, "-f", -1, output);
    if (output >= 0)
      close(output);
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

static void describe_end(struct mps *mps, int status, char *text, size_t size) {
  char said[128];
  read_output(mps, said, sizeof said);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (code == EXIT_NOT_THERE)
    snprintf(text, size, "there is no " CONTROL " on this machine's PATH");
  else if (code == EXIT_NOT_RUN)
    snprintf(text, size, CONTROL " can't be run");
  else
    snprintf(text, size, CONTROL " has ended with %s %d%s%s", WIFEXITED(status) ? "exit status" : "signal",
             WIFEXITED(status) ? code : WTERMSIG(status), *said ? ", and has said: " : "", said);
}

void mps_on_child(struct mps *mps, uint64_t now_ns) {
  int status;
  if (mps->pid == 0 || waitpid(mps->pid, &status, WNOHANG) != mps->pid)
    return;
  char why[320];
  describe_end(mps, status, why, sizeof why);
  if (now_ns - mps->started_ns >= STABLE_NS) {
    mps->told = false;
    mps->delay_ns = 0;
  }
  mps->pid = 0;
  make_pipes_anew(mps);
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
  pid_t pid = written ? start(mps, NULL, ends[0], -1) : -EIO;
  close(ends[0]);
  return pid;
}

static bool has_ended(pid_t pid) { return pid <= 0 || waitpid(pid, NULL, WNOHANG) == pid; }

static bool await_end(pid_t pid, uint64_t patience_ns) {
  uint64_t end_ns = clock_now_ns() + patience_ns;
  while (!has_ended(pid))
    if (!process_await_child(end_ns))
      return false;
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
  if (!*mps->folder)
    return;
  if (mps->pid > 0)
    stop(mps);
  close_output(mps);
  if (mps->folder_fd > 0)
    remove_tree(mps->folder_fd, GS_MPS_PIPES);
  leave_folder(mps);
  mps->again_ns = 0;
}
