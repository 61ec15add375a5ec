/*
 * unread_stderr.c - stderr is a pipe that nobody reads, or that is full, or has a signal of the program's
 * pending about it, while the library has much to say. Each scene is this program once more, as stderr is
 * what it is from the beginning.
 */
#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_pending(void) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE);
}

static void block(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  sigprocmask(SIG_BLOCK, &set, NULL);
}

static int play(const char *scene) {
  struct gpu gpu;
  if (strcmp(scene, "plain") != 0)
    block();
  if (strcmp(scene, "pending") == 0)
    raise(SIGPIPE);
  gpu_start(&gpu, 0);
  for (int i = 0; i < 5; i++)
    use_gpu(&gpu);
  pid_t pid = fork();
  if (pid == 0)
    _exit(is_pending()); /* a child has no signals pending */
  int status = -1;
  waitpid(pid, &status, 0);
  say("scene %s: pending: %d, child: %d", scene, is_pending(), status);
  return 0;
}

static void fill(int fd) {
  static const char bytes[4096];
  fcntl(fd, F_SETFL, O_NONBLOCK);
  while (write(fd, bytes, sizeof bytes) > 0)
    ;
  while (write(fd, bytes, 1) > 0)
    ;
  fcntl(fd, F_SETFL, 0);
}

static void run(const char *scene, int full) {
  int ends[2], status = -1;
  if (pipe2(ends, O_CLOEXEC) < 0)
    exit(1);
  if (full)
    fill(ends[1]);
  else
    close(ends[0]);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], 2);
    setenv("GPUSHARE_LOG", "debug", 1);
    execl("/proc/self/exe", "unread_stderr", scene, (char *)NULL);
    _exit(1);
  }
  waitpid(pid, &status, 0);
  say("scene %s, %s: wait status %x", scene, full ? "full" : "without a reader", (unsigned)status);
  if (full) {
    int bytes = 0;
    char byte;
    close(ends[1]);
    while (read(ends[0], &byte, 1) == 1)
      bytes += byte != 0;
    say("%d foreign bytes", bytes);
    close(ends[0]);
  } else {
    close(ends[1]);
  }
}

int main(int argc, char **argv) {
  if (argc == 2)
    return play(argv[1]);
  for (int full = 0; full < 2; full++) {
    run("plain", full);
    run("blocked", full);
    run("pending", full);
  }
  say("ok");
  return 0;
}
