/*
 * machine.h - one GPU in virtual time: from events to who has finished when.
 *
 * A job alone works for the GPU's part of its time (gpu_use); the rest is its own processor's. Side by side,
 * jobs are not slowed down while their parts fit, and share the GPU evenly in proportion to them beyond that:
 * each runs at min(1, 1 / sum of gpu_use) of its speed alone. What that leaves out: processes that overlap on
 * one GPU also take turns at its cores, which has cost two compute-bound trainings 7 % on an H200.
 */
#ifndef GS_TRACE_MACHINE_H
#define GS_TRACE_MACHINE_H

#include "trace/policy.h"

struct outcome {
  uint64_t began_ns[TRACE_JOBS_MAX]; /* when it first ran */
  uint64_t ended_ns[TRACE_JOBS_MAX];
};

/* Hears that the job ran during that time, in order of time. */
struct machine_watcher {
  void (*ran)(void *context, unsigned index, uint64_t from_ns, uint64_t to_ns);
  void *context;
};

/* Runs all jobs to their ends; watcher may be NULL. 0; or -EDEADLK: the policy lets nobody run; or
 * -ENOMEM: it lets more run than fit the card. */
int machine_run(const struct trace *trace, const struct policy_under_test *policy, struct outcome *outcome,
                const struct machine_watcher *watcher);

#endif
