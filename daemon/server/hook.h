/*
 * hook.h - the administrator's command that runs when a job ends (setting on_job_end): as the daemon's user,
 * with the job's figures in its environment. Whatever it does, the daemon does not wait for it: so many run
 * at once, others wait in a bounded queue, and one that takes too long is killed. A full queue gives up the
 * last of the user that has most in it.
 *
 * Not thread-safe. SIGCHLD is blocked, and its coming told by hook_on_child().
 */
#ifndef GS_HOOK_H
#define GS_HOOK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/clock.h"
#include "gpushare/protocol.h"

#define HOOK_AT_ONCE 4
#define HOOK_WAITING 256
#define HOOK_MOST_NS (60 * NS_PER_S)
#define HOOK_END_NS (2 * NS_PER_S)

struct hook {
  char command[256]; /* for the shell; empty: there is none */
  struct {
    pid_t pid; /* 0: none */
    uint64_t until_ns;
  } runs[HOOK_AT_ONCE];
  struct {
    struct gs_msg ended; /* its ENDED */
    char command[GS_COMMAND_SIZE];
  } waiting[HOOK_WAITING];
  size_t first, count; /* of these */
  uint64_t lost;       /* for which there was no room, since the log has told */
};

/* A program has ended. */
void hook_add(struct hook *hook, const struct gs_msg *ended, const char *command);

uint64_t hook_deadline_ns(const struct hook *hook);
void hook_on_time(struct hook *hook, uint64_t now_ns);

/* Some child has ended. */
void hook_on_child(struct hook *hook);

/* The daemon ends, and with it those that run: it waits HOOK_END_NS for them. One that a driver or a file
 * system holds in the kernel stays behind, killed. */
void hook_end(struct hook *hook);

#endif
