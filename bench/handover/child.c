/* child.c - processes on a short leash; see child.h. */
#include "child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

static uint64_t deadline_ns;
static volatile sig_atomic_t interrupted;

static void note_signal(int number) {
  (void)number;
  interrupted = 1;
}

void deadline_set(uint64_t seconds) {
  static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    sigaction(signals[i], &(struct sigaction){.sa_handler = note_signal}, NULL);
  deadline_ns = clock_now_ns() + seconds * NS_PER_S;
}

uint64_t deadline_left_ns(void) {
  uint64_t now = clock_now_ns();
  return interrupted || now >= deadline_ns ? 0 : deadline_ns - now;
}

int deadline_poll_ms(int most_ms) {
  uint64_t left_ms = deadline_left_ns() / NS_PER_MS;
  return left_ms < (uint64_t)most_ms ? (int)left_ms : most_ms;
}

bool complain(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fputs("bench_handover: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  return false;
}

bool complain_late(const char *awaited) {
  static bool said;
  if (!said)
    complain("%s: while waiting for %s", interrupted ? "interrupted" : "no time left", awaited);
  said = true;
  return false;
}

static void environment_change(const char *const *environment) {
  for (; environment && *environment; environment++)
    if (strchr(*environment, '='))
      putenv((char *)(uintptr_t)*environment);
    else
      unsetenv(*environment);
}

_Noreturn static void become(char *const argv[], const char *const *environment, pid_t parent, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent || dup2(fd, 0) < 0 || dup2(2, 1) < 0)
    _exit(126);
  environment_change(environment);
  execv(argv[0], argv);
  dprintf(2, "bench_handover: cannot run %s: %s\n", argv[0], strerror(errno));
  _exit(127);
}

bool child_start(struct child *child, const char *name, char *const argv[], const char *const *environment) {
  int ends[2];
  pid_t parent = getpid();
  *child = (struct child){.name = name};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return complain("socketpair: %s", strerror(errno));
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0)
    become(argv, environment, parent, ends[1]);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return complain("fork: %s", strerror(errno));
  }
  child->pid = pid;
  child->fd = ends[0];
  return true;
}

/* A signal or the end of time leaves the loop, too. */
static bool await_packet(const struct child *child) {
  struct pollfd packet = {.fd = child->fd, .events = POLLIN};
  while (deadline_left_ns() > 0)
    if (poll(&packet, 1, deadline_poll_ms(1000)) > 0)
      return true;
  return complain_late(child->name);
}

bool child_hear(const struct child *child, char text[CHILD_TEXT_SIZE]) {
  if (!await_packet(child))
    return false;
  ssize_t got = recv(child->fd, text, CHILD_TEXT_SIZE - 1, 0);
  text[got > 0 ? got : 0] = '\0';
  return got > 0 || complain("%s is gone", child->name);
}

bool child_expect(const struct child *child, const char *text) {
  char heard[CHILD_TEXT_SIZE];
  if (!child_hear(child, heard))
    return false;
  return strcmp(heard, text) == 0 || complain("%s says: %s", child->name, heard);
}

bool child_say(const struct child *child, const char *text) {
  return send(child->fd, text, strlen(text), MSG_NOSIGNAL) >= 0 || complain("%s is gone", child->name);
}

bool child_stirs(const struct child *child) {
  struct pollfd packet = {.fd = child->fd, .events = POLLIN};
  return poll(&packet, 1, 0) > 0;
}

static void forget(struct child *child) {
  close(child->fd);
  *child = (struct child){.name = child->name};
}

/* Its end of the socket closes when it ends. */
bool child_wait(struct child *child) {
  char text[CHILD_TEXT_SIZE];
  int status = 0;
  shutdown(child->fd, SHUT_WR);
  while (await_packet(child) && recv(child->fd, text, sizeof text, 0) > 0)
    ;
  if (deadline_left_ns() == 0) {
    child_kill(child);
    return false;
  }
  waitpid(child->pid, &status, 0);
  forget(child);
  return status == 0 || complain("%s has ended with status 0x%x", child->name, (unsigned)status);
}

void child_kill(struct child *child) {
  if (child->pid <= 0)
    return;
  kill(child->pid, SIGKILL);
  waitpid(child->pid, NULL, 0);
  forget(child);
}
