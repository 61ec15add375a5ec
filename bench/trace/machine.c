/*
 * machine.c - one GPU in virtual time: from events to who has finished when.
 *
 * A job alone works for the GPU's part of its time (gpu_use); the rest is its own processor's. Side by side,
 * jobs are not slowed down while their parts fit, and share the GPU evenly in proportion to them beyond that:
 * each runs at min(1, 1 / sum of gpu_use) of its speed alone. What that leaves out: processes that overlap on
 * one GPU also take turns at its cores, which has cost two compute-bound trainings 7 % on an H200.
 */
#include <errno.h>
#include <math.h>

#include "common/clock.h"
#include "quantile.h"
#include "trace/trace.h"

struct machine {
  const struct trace *trace;
  const struct policy_engine *engine;
  void *policy;
  struct outcome *outcome;
  struct machine_job jobs[TRACE_JOBS];
  unsigned arrived, finished;
  uint64_t now_ns;
};

static bool is_over(const struct machine *machine) { return machine->finished == machine->trace->count; }

/* How fast those that run do. */
static double speed(const struct machine *machine) {
  double sum = 0;
  for (unsigned i = 0; i < machine->arrived; i++)
    sum += machine->jobs[i].runs ? machine->jobs[i].job->gpu_use : 0;
  return sum > 1 ? 1 / sum : 1;
}

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t next_event_ns(const struct machine *machine) {
  const struct trace *trace = machine->trace;
  uint64_t next_ns = machine->engine->deadline_ns(machine->policy);
  double present_speed = speed(machine);
  if (machine->arrived < trace->count)
    next_ns = min_u64(next_ns, trace->jobs[machine->arrived].arrives_ns);
  for (unsigned i = 0; i < machine->arrived; i++)
    if (machine->jobs[i].runs)
      next_ns = min_u64(next_ns, machine->now_ns + (uint64_t)ceil(machine->jobs[i].left_ns / present_speed));
  return next_ns;
}

static void run_until(struct machine *machine, uint64_t end_ns) {
  double done_ns = (double)(end_ns - machine->now_ns) * speed(machine);
  for (unsigned i = 0; i < machine->arrived; i++) {
    struct machine_job *job = &machine->jobs[i];
    if (!job->runs)
      continue;
    if (job->left_ns >= (double)job->job->alone_ns)
      machine->outcome->began_ns[i] = machine->now_ns;
    job->left_ns -= done_ns;
  }
  machine->now_ns = end_ns;
}

static void finish_jobs(struct machine *machine) {
  for (unsigned i = 0; i < machine->arrived; i++) {
    struct machine_job *job = &machine->jobs[i];
    if (!job->runs || job->left_ns >= 1)
      continue;
    job->runs = false;
    machine->outcome->ended_ns[i] = machine->now_ns;
    machine->finished++;
    machine->engine->finish(machine->policy, job, machine->now_ns);
  }
}

static void admit_jobs(struct machine *machine) {
  const struct trace *trace = machine->trace;
  while (machine->arrived < trace->count && trace->jobs[machine->arrived].arrives_ns <= machine->now_ns) {
    const struct trace_job *spec = &trace->jobs[machine->arrived];
    struct machine_job *job = &machine->jobs[machine->arrived];
    *job = (struct machine_job){.job = spec, .index = machine->arrived, .left_ns = (double)spec->alone_ns};
    machine->arrived++;
    machine->engine->arrive(machine->policy, job, machine->now_ns);
  }
}

/* Those that run have all their memory on the card. */
static bool fit(const struct machine *machine) {
  uint64_t bytes = 0;
  for (unsigned i = 0; i < machine->arrived; i++)
    bytes += machine->jobs[i].runs ? machine->jobs[i].job->peak_bytes : 0;
  return bytes <= GPU_BYTES;
}

static int run(struct machine *machine) {
  while (!is_over(machine)) {
    uint64_t next_ns = next_event_ns(machine);
    if (next_ns == POLICY_NEVER)
      return -EDEADLK;
    run_until(machine, next_ns > machine->now_ns ? next_ns : machine->now_ns);
    finish_jobs(machine);
    admit_jobs(machine);
    if (machine->engine->deadline_ns(machine->policy) <= machine->now_ns)
      machine->engine->expire(machine->policy, machine->now_ns);
    if (!fit(machine))
      return -ENOMEM;
  }
  return 0;
}

int machine_run(const struct trace *trace, const struct policy_under_test *policy, struct outcome *outcome) {
  struct machine machine = {.trace = trace, .engine = policy->engine, .outcome = outcome};
  machine.policy = policy->engine->begin(policy->rules);
  int err = run(&machine);
  policy->engine->end(machine.policy);
  return err;
}

/* ---- figures ---- */

static double minutes(uint64_t ns) { return (double)ns / (double)(60 * NS_PER_S); }

struct row row_of(const struct trace *trace, const struct outcome *outcome) {
  double jcts[TRACE_JOBS];
  struct row row = {0};
  for (unsigned i = 0; i < trace->count; i++) {
    uint64_t arrives_ns = trace->jobs[i].arrives_ns, ended_ns = outcome->ended_ns[i];
    jcts[i] = minutes(ended_ns - arrives_ns);
    row.jct += jcts[i] / trace->count;
    row.queuing += minutes(outcome->began_ns[i] - arrives_ns) / trace->count;
    if (row.makespan < minutes(ended_ns))
      row.makespan = minutes(ended_ns);
  }
  row.jct_95 = quantile(jcts, trace->count, 0.95);
  return row;
}
