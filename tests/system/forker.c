/*
 * forker.c - a program that uses the GPU and forks, as DataLoader workers and shell-outs do.
 *
 * usage: forker exit|exec|stale|fresh|orphan|clone N
 *   exit    the parent uses the GPU; N children end by _exit, one after each round
 *   exec    the same, but the children run another program
 *   stale   the same; each child makes a driver call first, which must return (with an error, as without us)
 *   fresh   the parent never touches CUDA; N children use it, all at once
 *   clone   the parent uses the GPU until it is killed; N children that only the kernel is told of exit with
 * 3 orphan  the parent uses the GPU until it is killed; a child lives on until stdin ends
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_table.h"
#include "sim/kernels.h"

#define WORDS (UINT64_C(1) << 18)

static struct driver_table table;
static uint64_t address;

static void must(int error, const char *what) {
  if (!error)
    return;
  printf("error %s: %d\n", what, error);
  exit(1);
}

static int launch_on(const char *kernel, uint64_t last) {
  uint64_t words = WORDS;
  return table_launch(kernel, WORDS / DEVICE_BLOCK_THREADS, (void *[]){&address, &words, &last});
}

static void start(void) {
#define X(field, function) table.field = function;
  DRIVER_FUNCTIONS(X)
#undef X
  must(table_start(&table), "start");
  must(table_alloc(&address, WORDS * sizeof(uint64_t)), "alloc");
  must(launch_on("gs_fill", (uint64_t)getpid()), "fill");
  must(table_finish(), "finish");
}

static void verify(uint64_t seed, uint64_t added) {
  static uint64_t host[WORDS];
  must(table_to_host(host, address, sizeof host), "copy");
  for (uint64_t i = 0; i < WORDS; i++)
    must(host[i] != gs_hash(seed, i) + added, "verify");
}

static void add_one(void) {
  must(launch_on("gs_add", 1), "add");
  must(table_finish(), "finish");
}

static pid_t fork_one(void) {
  fflush(stdout);
  pid_t pid = fork();
  must(pid < 0, "fork");
  return pid;
}

static void reap(pid_t pid) {
  int status = 0;
  must(waitpid(pid, &status, 0) != pid || status != 0, "child");
}

_Noreturn static void child_of_user(const char *how) {
  CUdeviceptr unused;
  if (strcmp(how, "exec") == 0) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(1);
  }
  if (strcmp(how, "stale") == 0)
    _exit(cuMemAlloc(&unused, 4096) == CUDA_SUCCESS);
  _exit(0);
}

static void use_and_fork(const char *how, int count) {
  start();
  for (int i = 0; i < count; i++) {
    pid_t pid = fork_one();
    if (pid == 0)
      child_of_user(how);
    add_one();
    reap(pid);
  }
  verify((uint64_t)getpid(), (uint64_t)count);
}

static void fork_and_use(int count) {
  pid_t pids[64];
  for (int i = 0; i < count; i++)
    if ((pids[i] = fork_one()) == 0) {
      start();
      add_one();
      verify((uint64_t)getpid(), 1);
      exit(0);
    }
  for (int i = 0; i < count; i++)
    reap(pids[i]);
}

static void live_on(void) {
  char line[16];
  pid_t pid = fork_one();
  if (pid == 0) {
    printf("child %d\n", (int)getpid());
    while (fgets(line, sizeof line, stdin))
      ;
    _exit(0);
  }
  for (;;)
    add_one();
}

static void clone_and_use(int count) {
  for (int i = 0; i < count; i++) {
    int status = 0;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
      exit(3);
    must(waitpid(pid, &status, 0) != pid || status != 3 << 8, "child");
    add_one();
  }
  printf("cloned\n");
  for (;;)
    add_one();
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc != 3)
    return 2;
  if (strcmp(argv[1], "fresh") == 0)
    fork_and_use(atoi(argv[2]));
  else if (strcmp(argv[1], "orphan") == 0) {
    start();
    live_on();
  } else if (strcmp(argv[1], "clone") == 0) {
    start();
    clone_and_use(atoi(argv[2]));
  } else
    use_and_fork(argv[1], atoi(argv[2]));
  printf("ok\n");
  return 0;
}
