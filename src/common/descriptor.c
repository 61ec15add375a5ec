/* descriptor.c - see descriptor.h. */
#include "common/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/futex.h"
#include "common/thread.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define WITH_OWN_TABLE (1u << 1) /* CLOSE_RANGE_UNSHARE */

#define TOP 16 /* numbers below a low limit that we use instead */

struct descriptor descriptor_identify(int fd) {
  struct stat file;
  if (fd < 0 || fstat(fd, &file) < 0)
    return DESCRIPTOR_NONE;
  return (struct descriptor){
      .fd = fd, .type = file.st_mode & S_IFMT, .device = file.st_dev, .inode = file.st_ino};
}

static int least_number(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > DESCRIPTOR_LEAST + TOP)
    return DESCRIPTOR_LEAST;
  return limit.rlim_cur > 2 * TOP ? (int)limit.rlim_cur - TOP : STDERR_FILENO + 1;
}

static bool is_same(const struct descriptor *a, const struct descriptor *b) {
  return a->type == b->type && a->device == b->device && a->inode == b->inode;
}

struct descriptor descriptor_keep(int fd, bool (*is_it)(int fd, const void *argument), const void *argument) {
  struct descriptor low = descriptor_identify(fd), high = DESCRIPTOR_NONE;
  if (low.fd < 0 || !is_it(fd, argument)) {
    errno = fd < 0 ? errno : EBADF;
    return high;
  }
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, least_number());
  if (moved < 0)
    moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* all numbers up there are taken */
  high = descriptor_identify(moved);
  if (high.fd >= 0 && !is_same(&high, &low)) {
    struct descriptor now = descriptor_identify(fd);
    if (now.fd >= 0 && is_same(&high, &now)) /* we have made another name for a file of the program's */
      descriptor_close(&high);
    high = DESCRIPTOR_NONE; /* or it has taken the high number */
    errno = EBADF;
  }
  descriptor_close(&low);
  return high;
}

static bool is_at(int fd, const void *path) {
  struct stat file, named;
  return fstat(fd, &file) == 0 && stat(path, &named) == 0 && file.st_dev == named.st_dev &&
         file.st_ino == named.st_ino;
}

struct descriptor descriptor_open(const char *path) {
  return descriptor_keep(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), is_at, path);
}

bool descriptor_is_ours(const struct descriptor *descriptor) {
  struct descriptor now = descriptor_identify(descriptor->fd);
  return now.fd >= 0 && is_same(&now, descriptor);
}

void descriptor_close(struct descriptor *descriptor) {
  int kept = errno;
  if (descriptor_is_ours(descriptor))
    close(descriptor->fd);
  *descriptor = DESCRIPTOR_NONE;
  errno = kept;
}

bool descriptor_own_table(void) { return syscall(SYS_close_range, 0, ~0u, WITH_OWN_TABLE) == 0; }

struct errand {
  void (*action)(void *argument);
  void *argument;
  _Atomic uint32_t done; /* futex */
};

static void *run_errand(void *argument) {
  struct errand *errand = argument;
  thread_begin("gpushare-look");
  descriptor_own_table();
  errand->action(errand->argument);
  _Atomic uint32_t *done = &errand->done;
  atomic_store(done, 1);
  futex_wake(done, 1); /* the waiting thread may be gone: then that wakes nobody */
  return NULL;
}

void descriptor_apart(void (*action)(void *argument), void *argument) {
  struct errand errand = {.action = action, .argument = argument};
  int kept = errno;
  if (thread_start(NULL, run_errand, &errand) < 0)
    action(argument);
  else
    while (!atomic_load(&errand.done))
      futex_wait(&errand.done, 0, UINT64_MAX);
  errno = kept;
}
