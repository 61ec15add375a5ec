/* descriptor.c - see descriptor.h. */
#include "common/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/futex.h"
#include "common/lock.h"
#include "common/thread.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define WITH_OWN_TABLE (1u << 1) /* CLOSE_RANGE_UNSHARE */

#define TOP 16 /* numbers below a low limit that we use instead */

/* Why system calls give, take and look at numbers, here and in wire.c and abstract_socket.c: a sanitizer that
 * watches those of the C library knows one table only, and our threads have others. Besides, open(2),
 * close(2) and connect(2) are cancellation points. */

static bool look_at(int fd, struct stat *file) { return syscall(SYS_fstat, fd, file) == 0; }

struct descriptor descriptor_identify(int fd) {
  struct stat file;
  if (fd < 0 || !look_at(fd, &file))
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

static int duplicate(int fd, int least) { return (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, least); }

static bool is_same(const struct descriptor *a, const struct descriptor *b) {
  return a->type == b->type && a->device == b->device && a->inode == b->inode;
}

struct descriptor descriptor_keep(int fd, bool (*is_it)(int fd, const void *argument), const void *argument) {
  struct descriptor low = descriptor_identify(fd), high = DESCRIPTOR_NONE;
  if (low.fd < 0 || !is_it(fd, argument)) {
    errno = fd < 0 ? errno : EBADF;
    return high;
  }
  int moved = duplicate(fd, least_number());
  if (moved < 0)
    moved = duplicate(fd, STDERR_FILENO + 1); /* all numbers up there are taken */
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

bool descriptor_may_stay(const struct descriptor *descriptor, unsigned eighths) {
  struct rlimit limit = {.rlim_cur = 0};
  getrlimit(RLIMIT_NOFILE, &limit);
  return descriptor->fd >= DESCRIPTOR_LEAST &&
         (rlim_t)(descriptor->fd - DESCRIPTOR_LEAST) < limit.rlim_cur / 8 * eighths;
}

static bool is_at(int fd, const void *path) {
  struct stat file, named;
  return look_at(fd, &file) && stat(path, &named) == 0 && file.st_dev == named.st_dev &&
         file.st_ino == named.st_ino;
}

struct descriptor descriptor_open(const char *path) {
  long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  return descriptor_keep((int)fd, is_at, path);
}

bool descriptor_is_ours(const struct descriptor *descriptor) {
  struct descriptor now = descriptor_identify(descriptor->fd);
  return now.fd >= 0 && is_same(&now, descriptor);
}

void descriptor_close(struct descriptor *descriptor) {
  int kept = errno;
  if (descriptor_is_ours(descriptor))
    syscall(SYS_close, descriptor->fd);
  *descriptor = DESCRIPTOR_NONE;
  errno = kept;
}

void descriptor_hang_up(struct descriptor *connected) {
  if (descriptor_is_ours(connected)) {
    shutdown(connected->fd, SHUT_RDWR);
    while (recv(connected->fd, &(char){0}, 1, MSG_DONTWAIT) > 0)
      ;
  }
  descriptor_close(connected);
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

/* ---- a copy of the table ---- */

struct frozen {
  void (*action)(void *argument);
  void *argument;
  bool ran;
};

/* In the new thread, on the stack and with the thread-local variables of the caller, which waits. Only what
 * is needed is copied: the end of a copy may have the file's server do work (NFS, FUSE). */
__attribute__((noinline, noreturn, no_sanitize_thread)) static void run_frozen(struct frozen *frozen,
                                                                               int flags) {
  if (!(flags & CLONE_FILES) || syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, WITH_OWN_TABLE) == 0) {
    frozen->action(frozen->argument);
    frozen->ran = true;
  }
  for (;;)
    syscall(SYS_exit, 0);
}

/* Why not clone(3): that one wants another stack, and sanitizers take it for a fork. With the caller's stack
 * the system call must not be in a function that returns, as in vfork. The instruction has `frozen` as an
 * input: else the compiler takes what a function that does not return has written for never read. */
__attribute__((noinline)) static void start_frozen(struct frozen *frozen, int flags) {
#if defined __x86_64__
  register long result __asm__("rax") = SYS_clone;
  register long first __asm__("rdi") = flags, stack __asm__("rsi") = 0, third __asm__("rdx") = 0,
                      fourth __asm__("r10") = 0, fifth __asm__("r8") = 0;
  __asm__ volatile("syscall"
                   : "+r"(result)
                   : "r"(first), "r"(stack), "r"(third), "r"(fourth), "r"(fifth), "r"(frozen)
                   : "rcx", "r11", "memory");
#elif defined __aarch64__
  register long number __asm__("x8") = SYS_clone;
  register long result __asm__("x0") = flags;
  register long stack __asm__("x1") = 0, third __asm__("x2") = 0, fourth __asm__("x3") = 0,
                      fifth __asm__("x4") = 0;
  __asm__ volatile("svc #0"
                   : "+r"(result)
                   : "r"(number), "r"(stack), "r"(third), "r"(fourth), "r"(fifth), "r"(frozen)
                   : "memory");
#else
#error "the system call of this processor"
#endif
  if (result == 0)
    run_frozen(frozen, flags);
}

/* Kernels before 5.9, and sandboxes, have no close_range: then the whole table is copied. */
bool descriptor_frozen(void (*action)(void *argument), void *argument) {
  const int thread = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_VFORK;
  struct frozen frozen = {.action = action, .argument = argument};
  sigset_t before;
  lock_enter();
  thread_block_signals(&before);
  start_frozen(&frozen, thread | CLONE_FILES);
  if (!frozen.ran)
    start_frozen(&frozen, thread);
  thread_restore_signals(&before);
  lock_leave();
  return frozen.ran;
}
