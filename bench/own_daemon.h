/* own_daemon.h - a daemon of the benchmark's own, on a socket in a temporary folder; it dies with its parent.
 */
#ifndef GS_BENCH_OWN_DAEMON_H
#define GS_BENCH_OWN_DAEMON_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"

enum { OWN_DAEMON_ARGUMENTS = 32 };

static char folder[] = "/tmp/gpushare-bench-XXXXXX", socket_path[64];
static pid_t daemon_pid;

static inline void daemon_stop(void) {
  if (daemon_pid > 0 && kill(daemon_pid, SIGTERM) == 0)
    waitpid(daemon_pid, NULL, 0);
  daemon_pid = 0;
  unlink(socket_path);
  rmdir(folder);
}

_Noreturn static inline void die(const char *what, int err) {
  fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(err < 0 ? -err : err));
  daemon_stop();
  exit(EXIT_FAILURE);
}

/* For other users, too. */
static inline void folder_make(void) {
  if (!mkdtemp(folder) || chmod(folder, 0755) < 0)
    die("mkdtemp", errno);
  snprintf(socket_path, sizeof socket_path, "%s/daemon.sock", folder);
}

/* options: the daemon's, besides the socket; up to NULL. In the folder, once that is made. */
static inline void daemon_begin(const char *const *options) {
  const char *argv[OWN_DAEMON_ARGUMENTS] = {"gpushare-daemon", "--socket", socket_path, "--config",
                                            "/dev/null"};
  int fd;
  for (int place = 5; *options && place < OWN_DAEMON_ARGUMENTS - 1; place++)
    argv[place] = *options++;
  daemon_pid = fork();
  if (daemon_pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(GS_DAEMON, (char *const *)(uintptr_t)argv);
    _exit(127);
  }
  while ((fd = wire_connect(socket_path)) < 0) {
    if (waitpid(daemon_pid, NULL, WNOHANG) != 0) {
      daemon_pid = 0;
      die(GS_DAEMON, ENOEXEC);
    }
    poll(NULL, 0, 1); /* nothing tells when another process listens */
  }
  close(fd);
}

#endif
