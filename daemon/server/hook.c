/* hook.c - see hook.h. */
#include "server/hook.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/words.h"
#include "server/daemon_log.h"
#include "server/process.h"

/* ---- in the child ---- */

#define VARIABLES 14

struct environment {
  char texts[VARIABLES][160];
  char *list[VARIABLES + 1]; /* NULL at the end */
  size_t count;
};

static void put(struct environment *environment, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put(struct environment *environment, const char *format, ...) {
  char *text = environment->texts[environment->count];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof *environment->texts, format, list);
  va_end(list);
  environment->list[environment->count++] = text;
}

/* Nothing of the daemon's own but the way to programs: the service manager has told it what is not for
 * others.
 */
static void describe(struct environment *environment, const struct gs_msg *ended, const char *command) {
  const char *path = getenv("PATH"), *user = user_names_find(ended->event.uid);
  uint64_t wall_ns = clock_realtime_ns() - clock_now_ns();
  bool exited = ended->event.detail == GS_END_EXIT;
  put(environment, "PATH=%s", path && strlen(path) < 150 ? path : "/usr/sbin:/usr/bin:/sbin:/bin");
  put(environment, "GPUSHARE_JOB_ID=%u", ended->event.job);
  put(environment, "GPUSHARE_JOB_PID=%d", ended->event.pid);
  put(environment, "GPUSHARE_JOB_UID=%u", ended->event.uid);
  put(environment, "GPUSHARE_JOB_USER=%s", user ? user : "");
  put(environment, "GPUSHARE_JOB_NAME=%s", ended->event.name);
  put(environment, "GPUSHARE_JOB_COMMAND=%s", command);
  put(environment, "GPUSHARE_JOB_END=%s", words_end(ended->event.detail));
  put(environment, exited ? "GPUSHARE_JOB_STATUS=%d" : "GPUSHARE_JOB_STATUS=", ended->event.end.status);
  put(environment, "GPUSHARE_JOB_STARTED=%" PRIu64, (ended->event.end.started_ns + wall_ns) / NS_PER_S);
  put(environment, "GPUSHARE_JOB_ENDED=%" PRIu64, (ended->event.at_ns + wall_ns) / NS_PER_S);
  put(environment, "GPUSHARE_JOB_GPU_SECONDS=%.3f", (double)ended->event.end.gpu_ns / NS_PER_S);
  put(environment, "GPUSHARE_JOB_WAITED_SECONDS=%.3f", (double)ended->event.end.waited_ns / NS_PER_S);
  put(environment, "GPUSHARE_JOB_TURNS=%" PRIu64, ended->event.end.turns);
}

/* A group of its own, so that all that it has started is killed with it. */
static _Noreturn void become(const struct hook *hook, const struct gs_msg *ended, const char *command,
                             pid_t daemon) {
  struct environment environment = {.count = 0};
  char *const arguments[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
                             (char *)(uintptr_t)hook->command, NULL};
  describe(&environment, ended, command);
  process_leave(daemon);
  setpgid(0, 0);
  if (chdir("/") == 0)
    execve("/bin/sh", arguments, environment.list);
  _exit(127);
}

/* ---- in the daemon ---- */

static size_t place(const struct hook *hook, size_t nth) { return (hook->first + nth) % HOOK_WAITING; }

static size_t count_of(const struct hook *hook, uid_t uid) {
  size_t count = 0;
  for (size_t i = 0; i < hook->count; i++)
    count += hook->waiting[place(hook, i)].ended.event.uid == uid;
  return count;
}

/* For one more of this user: the last of the user that has most. False: that is this one. */
static bool give_up_one(struct hook *hook, uid_t uid) {
  size_t most = count_of(hook, uid) + 1, victim = hook->count;
  for (size_t i = 0; i < hook->count; i++) {
    uid_t other = hook->waiting[place(hook, i)].ended.event.uid;
    size_t count = count_of(hook, other);
    if (count > most ||
        (victim < hook->count && other == hook->waiting[place(hook, victim)].ended.event.uid)) {
      most = count;
      victim = i;
    }
  }
  if (victim == hook->count)
    return false;
  for (size_t i = victim; i + 1 < hook->count; i++)
    hook->waiting[place(hook, i)] = hook->waiting[place(hook, i + 1)];
  hook->count--;
  return true;
}

void hook_add(struct hook *hook, const struct gs_msg *ended, const char *command) {
  if (!*hook->command)
    return;
  if (hook->count == HOOK_WAITING) {
    hook->lost++;
    if (!give_up_one(hook, ended->event.uid))
      return;
  }
  size_t at = place(hook, hook->count++);
  hook->waiting[at].ended = *ended;
  memcpy(hook->waiting[at].command, command, sizeof hook->waiting[at].command);
}

static void begin(struct hook *hook, size_t run, uint64_t now_ns) {
  const struct gs_msg *ended = &hook->waiting[hook->first].ended;
  pid_t daemon = getpid(), pid = fork();
  if (pid == 0)
    become(hook, ended, hook->waiting[hook->first].command, daemon);
  if (pid < 0)
    log_for(ended->event.uid, LOG_LEVEL_WARN, "on_job_end can't be run for job %u: %s", ended->event.job,
            strerror(errno));
  hook->runs[run].pid = pid > 0 ? pid : 0;
  hook->runs[run].until_ns = now_ns + HOOK_MOST_NS;
  hook->first = (hook->first + 1) % HOOK_WAITING;
  hook->count--;
}

uint64_t hook_deadline_ns(const struct hook *hook) {
  uint64_t next_ns = UINT64_MAX;
  for (size_t i = 0; i < HOOK_AT_ONCE; i++) {
    if (!hook->runs[i].pid && hook->count)
      return 0;
    if (hook->runs[i].pid && hook->runs[i].until_ns < next_ns)
      next_ns = hook->runs[i].until_ns;
  }
  return next_ns;
}

static void kill_run(const struct hook *hook, size_t run) {
  kill(-hook->runs[run].pid, SIGKILL);
  kill(hook->runs[run].pid, SIGKILL); /* it may not have its group yet */
}

/* One begins at a time: to fork takes a while. */
void hook_on_time(struct hook *hook, uint64_t now_ns) {
  bool begun = false;
  for (size_t i = 0; i < HOOK_AT_ONCE; i++)
    if (!hook->runs[i].pid && hook->count && !begun) {
      begin(hook, i, now_ns);
      begun = true;
    } else if (hook->runs[i].pid && now_ns >= hook->runs[i].until_ns) {
      log_warn("on_job_end takes longer than %lu s: it is killed", HOOK_MOST_NS / NS_PER_S);
      kill_run(hook, i);
      hook->runs[i].until_ns = UINT64_MAX;
    }
  if (hook->lost && hook->count < HOOK_WAITING) {
    log_warn("on_job_end is too slow: it was not run for %" PRIu64 " jobs", hook->lost);
    hook->lost = 0;
  }
}

void hook_on_child(struct hook *hook) {
  for (size_t i = 0; i < HOOK_AT_ONCE; i++) {
    int status;
    if (!hook->runs[i].pid || waitpid(hook->runs[i].pid, &status, WNOHANG) != hook->runs[i].pid)
      continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
      log_for(LOG_NOBODY, LOG_LEVEL_WARN, "on_job_end has failed: exit status %d", WEXITSTATUS(status));
    hook->runs[i].pid = 0;
  }
}

void hook_end(struct hook *hook) {
  uint64_t end_ns = clock_now_ns() + HOOK_END_NS;
  for (size_t i = 0; i < HOOK_AT_ONCE; i++)
    if (hook->runs[i].pid)
      kill_run(hook, i);
  for (size_t i = 0; i < HOOK_AT_ONCE; i++)
    while (hook->runs[i].pid && waitpid(hook->runs[i].pid, NULL, WNOHANG) == 0 && process_await_child(end_ns))
      ;
}
