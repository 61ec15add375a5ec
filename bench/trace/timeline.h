/* timeline.h - who ran when, as JSON: what trace_chart.py draws. */
#ifndef GS_TRACE_TIMELINE_H
#define GS_TRACE_TIMELINE_H

#include <stdio.h>

#include "trace/machine.h"

/* {"policies": [{"name", "jobs": [{"name", "bytes", "arrives_s", "ran_s": [[from, to], ...]}, ...]}, ...]} */
struct timeline {
  FILE *file;
  unsigned policies;
};

/* 0 or -errno. */
int timeline_open(struct timeline *timeline, const char *path);

/* Runs the trace once more and writes what happened. */
int timeline_write(struct timeline *timeline, const struct trace *trace,
                   const struct policy_under_test *policy);

/* 0, or -errno if not all could be written. */
int timeline_close(struct timeline *timeline);

#endif
