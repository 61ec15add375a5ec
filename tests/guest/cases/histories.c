/*
 * histories.c - random histories of what a program may do with descriptors (open, dup2, close, closefrom,
 * close_range, pipe, socketpair, fork, raw clone, exec, also of 0 and 2), while a thread of it uses CUDA and
 * the library logs all that it does. After each history every file, pipe and socket has what the program has
 * put there, every number means what the program has made of it, and none is open that it has closed.
 *
 * GS_TEST_SEED: another seed. GS_TEST_HISTORIES: how many; 500 is usual.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef SANDBOX
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#endif

/* Whether descriptors of others may be, for a moment, at numbers of the program's: the library's in a
 * sandbox, the driver's where it makes memory that can be passed. */
#ifdef SANDBOX
static int may_pass = 1;
#else
static int may_pass;
#endif

#define NUMBERS 640   /* that a history may touch */
#define PER_WORKER 25 /* histories of a process */
#define STEPS 30
#define OBJECTS 4096

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* What a number may mean. Two descriptors of a pipe, or of a pair of sockets, are two objects. */
struct object {
  enum { OTHER, FILE_, PIPE_IN, PIPE_OUT, SOCKET } kind;
  dev_t device;
  ino_t inode;
  int peer;            /* the other object */
  unsigned references; /* numbers that mean it */
  size_t bytes;        /* FILE_: in it; PIPE_OUT and SOCKET: not yet read from it */
};

static struct object objects[OBJECTS];
static int object_count;
static int numbers[NUMBERS]; /* what each means: an object, or -1 */
static uint64_t seed;
static int is_clone; /* a child that the library was not told of: what was passing has stayed with it */
static unsigned history;

_Noreturn static void fail(const char *what, long a, long b) {
  printf("history %u: %s: %ld, %ld\n", history, what, a, b);
  fflush(stdout);
  _exit(1);
}

static uint64_t draw(uint64_t below) {
  seed ^= seed >> 12;
  seed ^= seed << 25;
  seed ^= seed >> 27;
  return (seed * UINT64_C(2685821657736338717) >> 33) % below;
}

/* ---- the model ---- */

static int object_new(int fd, int kind) {
  struct stat file;
  if (object_count == OBJECTS || fstat(fd, &file) < 0)
    fail("no object", fd, errno);
  objects[object_count] =
      (struct object){.kind = kind, .device = file.st_dev, .inode = file.st_ino, .peer = -1};
  return object_count++;
}

static void set(int fd, int object) {
  if (numbers[fd] >= 0)
    objects[numbers[fd]].references--;
  numbers[fd] = object;
  if (object >= 0)
    objects[object].references++;
}

static int lowest(int from) {
  while (from < NUMBERS && numbers[from] >= 0)
    from++;
  return from;
}

/* The C library and the kernel promise the lowest number. */
static void check_number(int fd, int expected) {
  if (fd < 0 || fd >= NUMBERS || numbers[fd] >= 0)
    fail("a number that cannot be", fd, errno);
  if (fd != expected && !may_pass)
    fail("not the lowest number", fd, expected);
}

static void look_around(void) {
  struct stat file;
  object_count = 0;
  for (int fd = 0; fd < NUMBERS; fd++)
    numbers[fd] = -1;
  for (int fd = 0; fd < GUEST_OWN; fd++)
    if (fstat(fd, &file) == 0)
      set(fd, object_new(fd, OTHER));
}

/* ---- steps ---- */

static int any_open(void) {
  int fd = (int)draw(NUMBERS);
  for (int i = 0; i < NUMBERS; i++, fd = (fd + 1) % NUMBERS)
    if (fd != 1 && numbers[fd] >= 0)
      return fd;
  return -1;
}

static int any_target(void) {
  static const int near[] = {0, 2, 3, 4, 5, 6, 7, 8};
  uint64_t kind = draw(4);
  return kind == 0 ? near[draw(8)] : kind == 1 ? GUEST_OWN + (int)draw(6) : 2 + (int)draw(NUMBERS - 2);
}

static void do_open(void) {
  char name[32];
  int expected = lowest(0);
  snprintf(name, sizeof name, "file%d", (int)draw(1000000));
  int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0 && errno == EEXIST)
    return;
  check_number(fd, expected);
  unlink(name);
  set(fd, object_new(fd, FILE_));
}

static void do_pair(int sockets) {
  int ends[2], first = lowest(0), second = lowest(first + 1);
  static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
  if ((sockets ? socketpair(AF_UNIX, types[draw(3)], 0, ends) : pipe(ends)) < 0)
    fail("no pair", errno, 0);
  check_number(ends[0], first);
  set(ends[0], object_new(ends[0], sockets ? SOCKET : PIPE_OUT));
  check_number(ends[1], second);
  set(ends[1], object_new(ends[1], sockets ? SOCKET : PIPE_IN));
  objects[numbers[ends[0]]].peer = numbers[ends[1]];
  objects[numbers[ends[1]]].peer = numbers[ends[0]];
}

static void do_write(void) {
  static const char bytes[64] = "of the program";
  int fd = any_open();
  if (fd < 0)
    return;
  struct object *object = &objects[numbers[fd]];
  struct object *into = object->kind == FILE_                               ? object
                        : object->kind == PIPE_IN || object->kind == SOCKET ? &objects[object->peer]
                                                                            : NULL;
  size_t size = 1 + draw(sizeof bytes);
  if (!into || into->references == 0 || (into != object && into->bytes > 2048))
    return;
  if (write(fd, bytes, size) != (ssize_t)size)
    fail("a write", fd, errno);
  into->bytes += size;
}

static void do_dup2(void) {
  int from = any_open(), to = any_target();
  if (from < 0 || to == 1)
    return;
  if (dup2(from, to) != to)
    fail("dup2", to, errno);
  set(to, numbers[from]);
}

static void do_dup(void) {
  int from = any_open(), expected = lowest(0);
  if (from < 0)
    return;
  int fd = dup(from);
  check_number(fd, expected);
  set(fd, numbers[from]);
}

/* By system calls: a sanitizer that sees the C library's would blame the program. */
static void do_close(int fd) {
  if (fd == 1)
    return;
  int done = (int)syscall(SYS_close, fd);
  if (done != 0 && numbers[fd] >= 0)
    fail("closed before", fd, errno);
  if (done == 0 && numbers[fd] < 0 && fd < GUEST_OWN && !may_pass)
    fail("another descriptor was closed", fd, 0);
  set(fd, -1);
}

static void do_close_range(int from, int to) {
  if (syscall(SYS_close_range, from, to, 0) < 0)
    for (int fd = from; fd <= to && fd < 1024; fd++)
      syscall(SYS_close, fd);
  for (int fd = from; fd <= to && fd < NUMBERS; fd++)
    set(fd, -1);
}

/* ---- what must be so ---- */

static size_t waiting_bytes(int fd) {
  char buffer[8192];
  size_t bytes = 0;
  ssize_t n;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  while ((n = read(fd, buffer, sizeof buffer)) > 0 || (n < 0 && errno == ECONNRESET))
    bytes += n > 0 ? (size_t)n : 0;
  return bytes;
}

static int is_closed(void *fd) { return fcntl(*(int *)fd, F_GETFD) < 0; }

static void check_all(int contents) {
  struct stat file;
  for (int fd = 0; fd < NUMBERS; fd++) {
    const struct object *object = numbers[fd] >= 0 ? &objects[numbers[fd]] : NULL;
    int open = fstat(fd, &file) == 0;
    if (!object && open && may_pass && is_clone)
      continue;
    if (!object && open && fd < GUEST_OWN && may_pass)
      await(is_closed, &fd, "a descriptor passes");
    else if (!object && open && fd < GUEST_OWN)
      fail("open, and nobody has opened it", fd, (long)file.st_mode);
    if (!object)
      continue;
    if (!open)
      fail("closed, and the program has not", fd, object->kind);
    if (file.st_dev != object->device || file.st_ino != object->inode)
      fail("it means something else", fd, (long)file.st_mode);
    if (object->kind == FILE_ && (size_t)file.st_size != object->bytes)
      fail("bytes in a file", (long)file.st_size, (long)object->bytes);
  }
  for (int fd = 0; contents && fd < NUMBERS; fd++) {
    struct object *object = numbers[fd] >= 0 ? &objects[numbers[fd]] : NULL;
    if (!object || (object->kind != PIPE_OUT && object->kind != SOCKET))
      continue;
    size_t bytes = waiting_bytes(fd);
    if (bytes != object->bytes)
      fail("bytes in a pipe or socket", (long)bytes, (long)object->bytes);
    object->bytes = 0;
  }
}

/* ---- children ---- */

static void child(int how) {
  is_clone = how == 1;
  check_all(0);
  if (how == 0) {
    char count[16];
    do_close_range(3, 1023);
    for (int fd = 3; fd < 5; fd++)
      do_pair(1);
    snprintf(count, sizeof count, "%d", lowest(3));
    char *arguments[] = {"histories", "descriptors", count, NULL};
    execv("/proc/self/exe", arguments);
    _exit(1);
  }
  do_close_range(2, 1023); /* what it has from its parent it does not touch */
  do_close(0);
  do_open();
  do_write();
  do_pair(1);
  check_all(1);
  _exit(0);
}

static void do_child(void) {
  int how = (int)draw(6), status = 0;
  pid_t pid = how == 1 ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
  if (pid == 0)
    child(how);
  if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
    fail("a child", how, status);
}

/* ---- a history ---- */

static void step(void) {
  uint64_t kind = draw(100);
  if (kind < 18)
    do_open();
  else if (kind < 26)
    do_pair(0);
  else if (kind < 36)
    do_pair(1);
  else if (kind < 56)
    do_write();
  else if (kind < 70)
    do_dup2();
  else if (kind < 76)
    do_dup();
  else if (kind < 92)
    do_close(any_target());
  else if (kind < 94)
    do_close_range(2 + (int)draw(8), 1 << 20);
  else if (kind < 97) {
    int from = 2 + (int)draw(NUMBERS - 2);
    do_close_range(from, from + (int)draw(200));
  } else if (kind == 99)
    do_child();
}

static struct gpu gpu;
static _Atomic int stop, rounds;

static void *compute(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  while (!stop) {
    CUdeviceptr at;
    MUST(cuMemAlloc(&at, UINT64_C(4) << 20));
    gpu_fill(&gpu, NULL, at, 8, 1);
    gpu_verify(at, 8, 1, 0);
    MUST(cuMemFree(at));
    rounds++;
  }
  return unused;
}

static int has_computed(void *before) { return rounds >= *(int *)before + 2; }

/* No file that the process has may be one that another one writes to. */
static void work(unsigned first, unsigned count) {
  pthread_t thread;
  look_around();
  gpu_start(&gpu, 0);
  if (pthread_create(&thread, NULL, compute, NULL) != 0)
    fail("no thread", errno, 0);
  for (history = first; history < first + count; history++) {
    int before = rounds;
    for (uint64_t steps = 1 + draw(STEPS); steps > 0; steps--)
      step();
    check_all(1);
    if (draw(8) == 0) { /* the GPU is this program's, now and then, whatever it has done */
      await(has_computed, &before, "it computes");
      check_all(1);
    }
  }
  stop = 1;
  pthread_join(thread, NULL);
  check_all(1);
  _exit(0);
}

#ifdef SANDBOX
/* As sandboxes do that know nothing of close_range: the library's threads get no table of their own. */
static void enter_sandbox(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    exit(77);
}
#endif

static unsigned number_of(const char *name, unsigned usual) {
  const char *text = getenv(name);
  return text ? (unsigned)strtoul(text, NULL, 0) : usual;
}

/* After an exec: what it was given is there, and nothing else. */
static int count_descriptors(int expected) {
  for (int fd = 3; fd < NUMBERS; fd++)
    if ((fcntl(fd, F_GETFD) >= 0) != (fd < expected))
      return 1;
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3)
    return count_descriptors(atoi(argv[2]));
  if (!getenv("GPUSHARE_LOG")) {
    setenv("GPUSHARE_LOG", "debug", 1);
    execv("/proc/self/exe", argv);
  }
  const char *memory = getenv("GPUSHARE_MEMORY");
  may_pass |= memory && strcmp(memory, "swap") == 0;
  unsigned start = number_of("GS_TEST_SEED", 20261123), wanted = number_of("GS_TEST_HISTORIES", 500);
  say("seed %u, %u histories", start, wanted);
#ifdef SANDBOX
  enter_sandbox();
#endif
  signal(SIGPIPE, SIG_IGN);
  for (unsigned first = 0; first < wanted; first += PER_WORKER) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
      seed = (start + first) * UINT64_C(0x9e3779b97f4a7c15) | 1;
      work(first, wanted - first < PER_WORKER ? wanted - first : PER_WORKER);
    }
    waitpid(pid, &status, 0);
    if (status) {
      say("histories from %u on: wait status %x", first, (unsigned)status);
      return 1;
    }
    if (first % 500 == 0)
      say("%u histories have begun", first + 1);
  }
  say("ok");
  return 0;
}
