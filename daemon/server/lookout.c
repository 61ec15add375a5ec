/*
 * lookout.c - see lookout.h.
 *
 * What a descriptor is, its inode says and not its name: anybody may have a file of that name in a mount
 * namespace of his own. The name is looked at first all the same, as the rest of a look could wait for a file
 * system that does not answer, and all programs open the device by this name. Nothing is opened but folders
 * and texts of /proc.
 */
#include "server/lookout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/text_file.h"
#include "server/process.h"

#define NEEDED (UINT32_C(1) << CAP_SYS_PTRACE | UINT32_C(1) << CAP_DAC_READ_SEARCH)
#define NAME "nvidia"

/* The driver opens its devices when a program begins to use it, so they have low numbers. */
#define LOOK_MOST 65536u
#define LOOK_NS (100 * NS_PER_MS)
#define LOOKS_PER_CLOCK 256
#define WORKER_PAUSE_NS (100 * NS_PER_MS)

/* ---- a look ---- */

static bool is_device(int folder, const char *descriptor, const struct lookout_question *question,
                      uint64_t *inode) {
  struct statx status;
  if (statx(folder, descriptor, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &status) < 0)
    return false;
  *inode = status.stx_ino;
  return S_ISCHR(status.stx_mode) && status.stx_rdev_major == question->major &&
         status.stx_rdev_minor == question->minor;
}

/* Also those have descriptors of it that may not open it (O_PATH). The kernel tells the inode since 5.14:
 * another file may have come in its place. */
static bool is_open(int process, const char *descriptor, uint64_t inode) {
  char path[300], text[512];
  snprintf(path, sizeof path, "fdinfo/%.255s", descriptor);
  text_file_read(process, path, text, sizeof text);
  const char *flags = strstr(text, "flags:"), *told = strstr(text, "ino:");
  return flags && !(strtoul(flags + strlen("flags:"), NULL, 8) & O_PATH) &&
         (!told || strtoull(told + strlen("ino:"), NULL, 10) == inode);
}

/* Of the processor: a busy machine is no reason to give up. */
static uint64_t spent_ns(void) { return clock_read_ns(CLOCK_THREAD_CPUTIME_ID); }

static int find_device(int process, DIR *folder, const struct lookout_question *question,
                       uint32_t *looked_at) {
  uint64_t end_ns = spent_ns() + LOOK_NS, inode;
  for (const struct dirent *entry; (entry = readdir(folder));) {
    if (*entry->d_name == '.')
      continue;
    if (*looked_at == LOOK_MOST || (*looked_at % LOOKS_PER_CLOCK == 0 && spent_ns() >= end_ns))
      return -E2BIG;
    ++*looked_at;
    char text[PATH_MAX];
    ssize_t size = readlinkat(dirfd(folder), entry->d_name, text, sizeof text - 1);
    text[size > 0 ? size : 0] = '\0';
    const char *name = strrchr(text, '/');
    if (name && strncmp(name + 1, NAME, strlen(NAME)) == 0 &&
        is_device(dirfd(folder), entry->d_name, question, &inode) && is_open(process, entry->d_name, inode))
      return 1;
  }
  return 0;
}

static int open_folder(int at, const char *path) {
  int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

/* A folder of /proc stays that of its process, whoever has the number next. */
struct lookout_answer lookout_look(const struct lookout_question *question) {
  struct lookout_answer answer = {.id = question->id};
  char path[32];
  snprintf(path, sizeof path, "/proc/%d", question->pid);
  int process = open_folder(AT_FDCWD, path);
  if (process < 0 || (question->start_ticks && process_start_ticks(question->pid) != question->start_ticks)) {
    answer.found = -ESRCH;
  } else {
    int fd = open_folder(process, "fd");
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    answer.found = folder ? find_device(process, folder, question, &answer.looked_at) : fd < 0 ? fd : -ENOMEM;
    if (folder)
      closedir(folder);
    else if (fd >= 0)
      close(fd);
  }
  if (process >= 0)
    close(process);
  return answer;
}

/* ---- capabilities ---- */

static int get_capabilities(struct __user_cap_data_struct data[2]) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  return syscall(SYS_capget, &header, data) < 0 ? -errno : 0;
}

/* Of those that it has, the process keeps these and never has others again. */
static int keep_capabilities(uint32_t kept) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct data[2];
  int err = get_capabilities(data);
  if (err < 0)
    return err;
  data[0].permitted = data[0].effective = data[0].permitted & kept;
  data[0].inheritable = data[1].permitted = data[1].effective = data[1].inheritable = 0;
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

bool lookout_is_able(void) {
  struct __user_cap_data_struct data[2];
  return get_capabilities(data) == 0 && (data[0].permitted & NEEDED) == NEEDED;
}

/* ---- its processes ---- */

static void work(int fd) {
  struct lookout_question question;
  struct lookout_answer answer = {.found = getpid()};
  do {
    if (send(fd, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer ||
        recv(fd, &question, sizeof question, 0) != sizeof question)
      return;
    answer = lookout_look(&question);
  } while (true);
}

/* Until the daemon ends the connection. */
static void supervise(int fd) {
  for (;;) {
    pid_t self = getpid(), worker = fork();
    int status = -1;
    if (worker == 0) {
      if (process_bind_to(self))
        work(fd);
      _exit(0);
    }
    while (worker > 0 && waitpid(worker, &status, 0) < 0 && errno == EINTR)
      ;
    if (worker > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
      return;
    clock_sleep(WORKER_PAUSE_NS);
  }
}

/* In the child. */
static _Noreturn void become(int fd, pid_t daemon) {
  if (!process_bind_to(daemon) || dup2(fd, 3) < 0)
    _exit(1);
  process_close_from(4);
  prctl(PR_SET_NAME, "gpushare-look");
  prctl(PR_SET_DUMPABLE, 0);
  keep_capabilities(NEEDED);
  if (!process_bind_to(daemon) || chdir("/") < 0) /* what one may do has an effect on that */
    _exit(1);
  supervise(3);
  _exit(0);
}

int lookout_start(struct lookout *lookout) {
  int ends[2];
  *lookout = (struct lookout){.fd = -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return -errno;
  pid_t daemon = getpid(), pid = fork();
  if (pid == 0)
    become(ends[1], daemon);
  int err = pid < 0 ? -errno : 0;
  close(ends[1]);
  if (err < 0) {
    close(ends[0]);
    return err;
  }
  lookout->fd = ends[0];
  lookout->pid = pid;
  /* Root's are of use for more: MPS has them from it. */
  if (geteuid() != 0 && (err = keep_capabilities(0)) < 0)
    log_warn("the daemon can't give up its capabilities: %s", strerror(-err));
  return 0;
}

static void close_end(struct lookout *lookout) {
  if (lookout->fd >= 0)
    close(lookout->fd);
  lookout->fd = -1;
  lookout->worker = 0;
}

void lookout_end(struct lookout *lookout) {
  close_end(lookout);
  if (lookout->pid > 0) {
    kill(lookout->pid, SIGKILL); /* it may be in the middle of a look */
    waitpid(lookout->pid, NULL, 0);
  }
  lookout->pid = 0;
}

bool lookout_on_child(struct lookout *lookout) {
  if (lookout->pid <= 0 || waitpid(lookout->pid, NULL, WNOHANG) != lookout->pid)
    return false;
  lookout->pid = 0;
  close_end(lookout);
  return true;
}

int lookout_ask(const struct lookout *lookout, const struct lookout_question *question) {
  return send(lookout->fd, question, sizeof *question, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int lookout_hear(const struct lookout *lookout, struct lookout_answer *answer) {
  ssize_t size = recv(lookout->fd, answer, sizeof *answer, MSG_DONTWAIT);
  if (size < 0)
    return -errno;
  return size == sizeof *answer ? 0 : -ECONNRESET;
}

void lookout_replace(struct lookout *lookout) {
  if (lookout->worker > 0)
    kill(lookout->worker, SIGKILL);
  lookout->worker = 0;
}
