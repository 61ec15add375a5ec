/* sweep.h - the parts of a run of many jobs. One thread. */
#ifndef GS_CTL_SWEEP_H
#define GS_CTL_SWEEP_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "ctl/joblist.h"
#include "ctl/spread.h"

/* ---- sweep.c: who runs when ---- */

struct sweep_plan {
  char *const *command; /* NULL at the end */
  const struct joblist *list;
  size_t slots;       /* so many at once */
  unsigned retries;   /* for each job that fails */
  uint64_t grace_ns;  /* from SIGTERM to SIGKILL, once one has failed */
  const char *output; /* folder; NULL: a new one */
  bool prefix;        /* lines of ours instead of files */
  bool fail_fast;
  struct spread *spread; /* which GPUs they see */
  const char *socket;    /* of the daemon that knows who uses the GPUs; it need not be there */
};

/* Run them all: an exit code. */
int sweep_run(const struct sweep_plan *plan);

/* As run_command, the environment being set. */
struct run_request;
int run_many(const struct run_request *request);

/* ---- visible.c: GPUs, as others tell of them ---- */

/* Add the GPUs that a program which we start would see, in its order. An exit code, after a line on stderr
 * if CUDA_VISIBLE_DEVICES names some that are not there. Without a driver there are none. */
int visible_find(struct spread *spread);

/* Tell `spread` what room there is, as the daemon says; without one it stays. */
void visible_look_at_rooms(struct spread *spread, const char *socket);

/* ---- launch.c: one process, first of a process group of its own, which ends when we do ---- */

struct launch {
  char *const *command;
  const struct joblist_job *job;
  size_t index, count;     /* told to the program */
  const char *gpus;        /* its CUDA_VISIBLE_DEVICES, unless the job sets it; NULL: as ours */
  int out, err;            /* its stdout and stderr */
  const sigset_t *signals; /* blocked in it */
};

/* Its pid, or -errno. What keeps the program from running is told on its stderr. */
pid_t launch_start(const struct launch *launch);

/* Become it as it is. Returns only an exit code, after a line on stderr. */
int launch_become(char *const *command);

/* ---- guard.c: a process that outlives us, if only to kill ---- */

struct guard {
  pid_t *groups; /* by slot; 0: none. Those that are here when we are no more are killed */
  size_t count;
  pid_t pid;
  int fd; /* closed by our end */
};

/* 0 or -errno. */
int guard_start(struct guard *guard, size_t slots);
void guard_stop(struct guard *guard);

/* ---- lines.c: a stream of a job, copied in whole lines ---- */

struct lines {
  int fd; /* -1: none */
  size_t filled;
  char *text; /* what is not yet a whole line */
};

/* What the job writes to: a close-on-exec descriptor, or -errno. */
int lines_open(struct lines *lines);

/* Copy what can be read, each line with "[index] " in front; very long ones in pieces. At the
 * stream's end: close. */
void lines_copy(struct lines *lines, size_t index, FILE *to);

/* The job is over: copy what it has left behind, and close. */
void lines_close(struct lines *lines, size_t index, FILE *to);

/* ---- results.c: the folder with the jobs' output, and the table of their ends ---- */

struct ending {
  unsigned tries; /* 0: not started */
  int status;     /* of the last try, as of wait */
  uint64_t took_ns;
  char *gpus; /* that were taken for it, from malloc; NULL: none, it has seen what we see */
};

struct results {
  char *path; /* NULL: no folder */
  int folder;
  FILE *table;
};

/* Name NULL: a new folder with the time in its name. An exit code, after a line on stderr. */
int results_open(struct results *results, const char *name);

/* Where a job's stream ("out", "err") goes; emptied at the first try. A close-on-exec descriptor, or -errno.
 */
int results_open_stream(const struct results *results, size_t index, const char *stream, bool first);

void results_add(struct results *results, size_t index, const struct ending *ending, const char *command);

/* CTL_OK; CTL_REFUSED, after a line on stderr, if something could not be written. */
int results_close(struct results *results);

/* ---- sweep_progress.c: what a person sees, on stderr ---- */

struct progress {
  size_t waiting, running, done, failed;
  bool live; /* one line, written anew */
};

void progress_open(struct progress *progress, size_t jobs, bool live);
void progress_start(struct progress *progress, size_t index, const char *gpus, const char *command);
void progress_end(struct progress *progress, size_t index, const struct ending *ending, bool again);
void progress_close(struct progress *progress, const char *folder);

#endif
