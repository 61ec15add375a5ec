/*
 * trace.h - events of the daemon as a trace: who held which GPU when, in the Trace Event Format (JSON) that
 * Perfetto (ui.perfetto.dev) and chrome://tracing show.
 *
 * A process per GPU. In it a thread for its hand-overs: a slice for each part that it stood idle, and an
 * instant for each hand-over that status counts; and two for each job: what it does ("waits", "restores",
 * "runs", "drains"), and what moves ("evicts", "restores"). What a job has on the card, what limits it, and
 * how many jobs wait are counters. Slices of a thread do not overlap, and each is whole ("X"): its end is
 * known when it is written. Times are on the clock of the daemon's events, and microseconds since the origin
 * in the file.
 */
#ifndef GS_CTL_TRACE_H
#define GS_CTL_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "gpushare/protocol.h"

struct trace {
  FILE *out;
  uint64_t origin_ns; /* nothing is before that; UINT64_MAX: not known yet */
  uint64_t entries;
  bool failed;         /* no memory: it is worth nothing */
  struct gs_msg begin; /* EVENTS_BEGIN */
  uint64_t last_ns;    /* of the last event */
  void *tracks;        /* of jobs on GPUs: tsearch */
  void *gpus;
};

void trace_begin(struct trace *trace, FILE *out);

/* A GPU, from a STATUS_GPU: before its events. */
void trace_gpu(struct trace *trace, const struct gs_msg *gpu);

/* A job, from a STATUS_JOB: after its events. If there are none, it has done all the time what it does. */
void trace_job(struct trace *trace, const struct gs_msg *job);

/* EVENTS_BEGIN, EVENT or EVENTS_MISSED. */
void trace_take(struct trace *trace, const struct gs_msg *msg);

/* What goes on is told until the moment of asking. 0, or -ENOMEM. */
int trace_end(struct trace *trace);

#endif
