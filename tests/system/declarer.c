/*
 * declarer.c - does what it is told, line by line, and answers each with a line: what a program says about
 * itself with gpushare.h, and what it sees of its memory.
 *
 *   weight N, priority N, expected NS, soft BYTES, memory BYTES (expected), class N
 *                                       calls the function: "0", -errno, or "absent"
 *   become UID                          that user, for good, before it starts: "0", or -errno
 *   start                               begins to use GPU 0: "started"
 *   alloc BYTES                         "0", or the driver's error
 *   total                               what cuMemGetInfo says that there is
 *   fork                                goes on as a child, and ends with it: "child PID"
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"
#include "gpushare/gpushare.h"

static void say_number(long long number) {
  char line[32];
  snprintf(line, sizeof line, "%lld", number);
  gpu_say(line);
}

static void declare(const char *what, long long value) {
  if (!gpushare_set_weight || !gpushare_set_priority || !gpushare_set_expected_runtime ||
      !gpushare_set_memory_soft_limit || !gpushare_set_expected_memory || !gpushare_set_class)
    gpu_say("absent");
  else if (strcmp(what, "weight") == 0)
    say_number(gpushare_set_weight((uint32_t)value));
  else if (strcmp(what, "priority") == 0)
    say_number(gpushare_set_priority((int32_t)value));
  else if (strcmp(what, "soft") == 0)
    say_number(gpushare_set_memory_soft_limit((uint64_t)value));
  else if (strcmp(what, "memory") == 0)
    say_number(gpushare_set_expected_memory((uint64_t)value));
  else if (strcmp(what, "class") == 0)
    say_number(gpushare_set_class((int)value));
  else
    say_number(gpushare_set_expected_runtime((uint64_t)value));
}

static void become_child(void) {
  char line[32];
  int status;
  pid_t child = fork();
  if (child > 0) {
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  snprintf(line, sizeof line, "child %d", getpid());
  gpu_say(line);
}

static long long total_bytes(void) {
  size_t free_bytes, bytes;
  MUST(cuMemGetInfo(&free_bytes, &bytes));
  return (long long)bytes;
}

static void obey(const char *what, long long value) {
  static struct gpu gpu;
  CUdeviceptr at;
  if (strcmp(what, "start") == 0) {
    gpu_start(&gpu, 0);
    gpu_say("started");
  } else if (strcmp(what, "become") == 0) {
    uid_t uid = (uid_t)value;
    say_number(setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0 ? -errno : 0);
  } else if (strcmp(what, "alloc") == 0) {
    say_number(cuMemAlloc(&at, (size_t)value));
  } else if (strcmp(what, "total") == 0) {
    say_number(total_bytes());
  } else if (strcmp(what, "fork") == 0) {
    become_child();
  } else {
    declare(what, value);
  }
}

int main(void) {
  char line[64], what[16];
  while (fgets(line, sizeof line, stdin)) {
    long long value = 0;
    if (sscanf(line, "%15s %lld", what, &value) < 1)
      return 2;
    obey(what, value);
  }
  return 0;
}
