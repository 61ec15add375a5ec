/* job_output.h - what becomes of the output of many jobs, and what a person sees of them. */
#ifndef GS_CTL_JOB_OUTPUT_H
#define GS_CTL_JOB_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- a stream of a job, copied in whole lines ---- */

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

/* ---- the folder with the jobs' output, and the table of their ends ---- */

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

/* ---- what a person sees, on stderr ---- */

struct progress {
  size_t waiting, running, done, failed;
  bool live; /* one line, written anew */
};

void progress_open(struct progress *progress, size_t jobs, bool live);
void progress_start(struct progress *progress, size_t index, const char *gpus, const char *command);
void progress_end(struct progress *progress, size_t index, const struct ending *ending, bool again);
void progress_close(struct progress *progress, const char *folder);

#endif
