/* probe.c - see probe.h. */
#include "ctl/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"

static _Noreturn void answer(probe_f *ask, const void *argument, int out) {
  int in = open("/dev/null", O_RDONLY);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  int code = ask(argument);
  fflush(NULL);
  _exit(code);
}

/* Until its end: all that the child had open is closed then. False: it took too long. */
static bool read_answer(int fd, char *text, size_t size) {
  uint64_t end_ns = clock_now_ns() + PROBE_MS * NS_PER_MS;
  char rest[512];
  size_t length = 0;
  ssize_t n = 1;
  while (n > 0) {
    uint64_t now_ns = clock_now_ns();
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    if (now_ns >= end_ns || poll(&readable, 1, (int)((end_ns - now_ns) / NS_PER_MS) + 1) == 0)
      break;
    bool full = length + 1 >= size;
    n = read(fd, full ? rest : text + length, full ? sizeof rest : size - 1 - length);
    length += n > 0 && !full ? (size_t)n : 0;
    n = n < 0 && errno == EINTR ? 1 : n;
  }
  text[length] = '\0';
  return n <= 0;
}

int probe(probe_f *ask, const void *argument, char *text, size_t size) {
  int ends[2], status = 0;
  *text = '\0';
  if (pipe2(ends, O_CLOEXEC) < 0)
    return -errno;
  fflush(NULL);
  pid_t pid = fork();
  int err = -errno;
  if (pid == 0)
    answer(ask, argument, ends[1]);
  close(ends[1]);
  bool ended = pid > 0 && read_answer(ends[0], text, size);
  close(ends[0]);
  if (pid < 0)
    return err;
  if (!ended)
    kill(pid, SIGKILL);
  /* A child that a driver holds in the kernel does not even die: nobody waits for that one. */
  if (waitpid(pid, &status, ended ? 0 : WNOHANG) != pid)
    return -ETIMEDOUT;
  return !ended ? -ETIMEDOUT : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
