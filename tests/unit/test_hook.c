/* test_hook.c - the queue of on_job_end is shared by users, and the daemon's end does not wait for what the
 * kernel holds. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/hook.h"
#include "suite.h"

static struct hook hook;
static pid_t held; /* has been killed, and does not end */

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options) {
  if (pid != held || !held)
    return __real_waitpid(pid, status, options);
  ck_assert(options & WNOHANG);
  return 0;
}

static void set_up(void) {
  memset(&hook, 0, sizeof hook);
  strcpy(hook.command, "sleep 1000");
  held = 0;
}

static void tear_down(void) {}

static void end_of(uint32_t job, uid_t uid) {
  struct gs_msg ended = {.type = GS_EVENT};
  char command[GS_COMMAND_SIZE] = "";
  ended.event.job = job;
  ended.event.uid = uid;
  hook_add(&hook, &ended, command);
}

/* In their order; to how many of them this user's jobs have come. */
static unsigned count(uid_t uid) {
  unsigned found = 0;
  for (size_t i = 0; i < hook.count; i++) {
    const struct gs_msg *ended = &hook.waiting[(hook.first + i) % HOOK_WAITING].ended;
    const struct gs_msg *next = &hook.waiting[(hook.first + i + 1) % HOOK_WAITING].ended;
    found += ended->event.uid == uid;
    ck_assert(i + 1 == hook.count || ended->event.job < next->event.job);
  }
  return found;
}

TEST(one_user_loses_its_own_alone) {
  uint32_t job = 0;
  hook.first = HOOK_WAITING - 5; /* as after some time */
  for (int i = 0; i < 2 * HOOK_WAITING; i++)
    end_of(++job, 1);
  ck_assert_uint_eq(count(1), HOOK_WAITING);
  ck_assert_uint_eq(hook.waiting[hook.first].ended.event.job, 1);
  ck_assert_uint_eq(hook.lost, HOOK_WAITING);
  for (int i = 0; i < 3; i++)
    end_of(++job, 2);
  ck_assert_uint_eq(count(2), 3);
  for (int i = 0; i < HOOK_WAITING; i++)
    end_of(++job, 3);
  ck_assert_uint_eq(count(2), 3);
  ck_assert_uint_ge(count(3), HOOK_WAITING / 2 - 3);
  ck_assert_uint_ge(count(1), HOOK_WAITING / 2 - 3);
  ck_assert_uint_eq(hook.count, HOOK_WAITING);
  ck_assert_uint_ge(count(1) + 1, count(3));
  ck_assert_uint_eq(hook.waiting[hook.first].ended.event.job, 1);
}

TEST(an_end_does_not_wait_for_what_the_kernel_holds) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, NULL);
  for (uint32_t job = 1; job <= 2; job++) {
    end_of(job, 1);
    hook_on_time(&hook, clock_now_ns());
  }
  ck_assert(hook.runs[0].pid > 0 && hook.runs[1].pid > 0);
  held = hook.runs[0].pid;
  uint64_t begin_ns = clock_now_ns();
  hook_end(&hook);
  ck_assert_uint_lt(clock_now_ns() - begin_ns, HOOK_END_NS + 10 * NS_PER_S);
  ck_assert_int_eq(kill(hook.runs[1].pid, 0), -1); /* nothing is left of the other one */
  ck_assert_int_eq(__real_waitpid(held, NULL, 0), held);
  sigprocmask(SIG_UNBLOCK, &child, NULL);
}

int main(void) { return suite_run_all("hook", set_up, tear_down); }
