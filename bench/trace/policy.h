/*
 * policy.h - what decides who runs: the line between the machine (machine.h) and the policies tried on it.
 *
 * A policy hears of jobs that arrive and finish, and of the deadline that it has named; in answer it sets and
 * clears `runs` of the jobs that it knows. Times: ns from the start of the trace, never decreasing.
 */
#ifndef GS_TRACE_POLICY_H
#define GS_TRACE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/jobs.h"

#define POLICY_NEVER UINT64_MAX

/* The paper's P100. */
#define GPU_BYTES (UINT64_C(16) << 30)

struct machine_job {
  const struct trace_job *job;
  unsigned index; /* in the trace */
  double left_ns; /* of its alone_ns */
  bool runs;      /* it uses the GPU now, perhaps with others */
};

struct policy_engine {
  const char *prefix;                /* of its figures */
  void *(*begin)(const void *rules); /* with no jobs; does not return without memory */
  void (*end)(void *state);
  void (*arrive)(void *state, struct machine_job *job, uint64_t now_ns);
  void (*finish)(void *state, struct machine_job *job, uint64_t now_ns); /* it does not run any more */
  uint64_t (*deadline_ns)(const void *state);
  void (*expire)(void *state, uint64_t now_ns); /* the deadline has come */
};

struct policy_under_test {
  const char *name; /* as in the paper's table 2, in small letters */
  const struct policy_engine *engine;
  const void *rules; /* the engine's */
};

/* Lists that end with a NULL name. */
extern const struct policy_under_test core_policies[];      /* the daemon's, hand-overs included: core.c */
extern const struct policy_under_test reference_policies[]; /* ideal ones: reference.c */

#endif
