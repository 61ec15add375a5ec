/* web_child.c - see web_child.h. */
#include "web_child.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/process.h"

#define PROGRAM "gpushare-web"
#define PASSED_FD 3             /* as sd_listen_fds(3) describes it */
#define SOON_NS (10 * NS_PER_S) /* one that ends within that time would do so again */

/* Beside the daemon, as in a build folder; else where an installation has it. */
static bool find_program(char path[PATH_MAX]) {
  static const char *const folders[] = {"", WEB_CHILD_FOLDER "/"};
  char own[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  own[length > 0 ? length : 0] = '\0';
  char *slash = strrchr(own, '/');
  if (!slash)
    return false;
  slash[1] = '\0';
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if (snprintf(path, PATH_MAX, "%s%s" PROGRAM, own, folders[i]) < PATH_MAX && access(path, X_OK) == 0)
      return true;
  return false;
}

/* In the child. Its log is the daemon's. */
static _Noreturn void become(const struct web_child *web, char *path, pid_t daemon) {
  char socket[PATH_MAX], pid[40];
  char *const arguments[] = {(char *)(uintptr_t)PROGRAM, socket, NULL};
  snprintf(pid, sizeof pid, "LISTEN_PID=%d", getpid());
  char *const environment[] = {pid, (char *)(uintptr_t) "LISTEN_FDS=1", NULL};
  sigset_t none;
  sigemptyset(&none);
  if (!process_bind_to(daemon) || !realpath(web->socket, socket) || dup2(web->listener.fd, PASSED_FD) < 0)
    _exit(1);
  process_close_from(PASSED_FD + 1);
  signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (chdir("/") == 0)
    execve(path, arguments, environment);
  _exit(127);
}

/* 0 or -errno. */
static int begin(struct web_child *web) {
  char path[PATH_MAX];
  if (!find_program(path)) {
    log_error("the page needs " PROGRAM ", which is neither beside gpushare-daemon nor in " WEB_CHILD_FOLDER
              " from there (it is built where libmicrohttpd-dev is): install it again");
    return -ENOENT;
  }
  pid_t daemon = getpid(), pid = fork();
  if (pid == 0)
    become(web, path, daemon);
  if (pid < 0)
    log_error("can't start " PROGRAM ": %s", strerror(errno));
  web->pid = pid > 0 ? pid : 0;
  web->begun_ns = clock_now_ns();
  return pid > 0 ? 0 : -EAGAIN;
}

static void give_up(struct web_child *web) {
  log_error("web = %s: there is no page", web->listener.text);
  listener_close(&web->listener);
  web->pid = 0;
}

void web_child_show(struct web_child *web, const char *address, const char *socket) {
  if (web->shown && web->pid && strcmp(web->listener.text, address) == 0)
    return;
  web_child_end(web);
  if (strcmp(address, ADDRESS_OFF) == 0)
    return;
  web->shown = true;
  web->socket = socket;
  if (listener_open(&web->listener, address) < 0) {
    log_error("web = %s: there is no page", address);
    web->shown = false;
    return;
  }
  if (begin(web) < 0)
    give_up(web);
  else
    log_info("web page on %s", web->listener.shown);
}

void web_child_on_child(struct web_child *web) {
  int status;
  if (!web->pid || waitpid(web->pid, &status, WNOHANG) != web->pid)
    return;
  bool soon = clock_now_ns() - web->begun_ns < SOON_NS;
  if (WIFSIGNALED(status))
    log_error(PROGRAM " has ended, by signal %d", WTERMSIG(status));
  else
    log_error(PROGRAM " has ended: exit status %d", WEXITSTATUS(status));
  web->pid = 0;
  if (soon || begin(web) < 0)
    give_up(web);
}

void web_child_end(struct web_child *web) {
  if (web->pid && kill(web->pid, SIGKILL) == 0)
    waitpid(web->pid, NULL, 0);
  if (web->shown && web->listener.fd >= 0)
    listener_close(&web->listener);
  *web = (struct web_child){0};
}
