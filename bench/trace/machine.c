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
#include <string.h>

#include "common/clock.h"
#include "quantile.h"
#include "trace/trace.h"

/* How fast those that run do, and which part of the GPU that takes. */
static double speed(const struct machine *machine, double *busy) {
  double sum = 0;
  for (unsigned i = 0; i < machine->count; i++)
    sum += machine->jobs[i]->runs ? machine->jobs[i]->job->gpu_use : 0;
  *busy = sum > 1 ? 1 : sum;
  return sum > 1 ? 1 / sum : 1;
}

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

void machine_begin(struct machine *machine, const struct policy_under_test *policy) {
  machine->engine = policy->engine;
  machine->policy = policy->engine->begin(policy->rules);
}

void machine_end(struct machine *machine) { machine->engine->end(machine->policy); }

uint64_t machine_next_ns(const struct machine *machine) {
  uint64_t next_ns = machine->engine->deadline_ns(machine->policy);
  double busy, present_speed = speed(machine, &busy);
  for (unsigned i = 0; i < machine->count; i++)
    if (machine->jobs[i]->runs)
      next_ns = min_u64(next_ns, machine->now_ns + (uint64_t)ceil(machine->jobs[i]->left_ns / present_speed));
  return next_ns;
}

static void run_until(struct machine *machine, uint64_t end_ns) {
  double busy, done_ns = (double)(end_ns - machine->now_ns) * speed(machine, &busy);
  machine->busy_ns += (double)(end_ns - machine->now_ns) * busy;
  for (unsigned i = 0; i < machine->count; i++) {
    struct machine_job *job = machine->jobs[i];
    if (!job->runs)
      continue;
    if (job->left_ns >= (double)job->job->alone_ns)
      job->began_ns = machine->now_ns;
    job->left_ns -= done_ns;
  }
  machine->now_ns = end_ns;
}

static unsigned finish_jobs(struct machine *machine) {
  unsigned finished = 0;
  for (unsigned i = 0; i < machine->count;) {
    struct machine_job *job = machine->jobs[i];
    if (!job->runs || job->left_ns >= 1) {
      i++;
      continue;
    }
    job->runs = false;
    job->ended_ns = machine->now_ns;
    memmove(&machine->jobs[i], &machine->jobs[i + 1], (machine->count - i - 1) * sizeof *machine->jobs);
    machine->count--;
    finished++;
    machine->engine->finish(machine->policy, job, machine->now_ns);
  }
  return finished;
}

unsigned machine_advance(struct machine *machine, uint64_t end_ns) {
  run_until(machine, end_ns > machine->now_ns ? end_ns : machine->now_ns);
  return finish_jobs(machine);
}

void machine_arrive(struct machine *machine, struct machine_job *job) {
  machine->jobs[machine->count++] = job;
  machine->engine->arrive(machine->policy, job, machine->now_ns);
}

/* Those that run have all their memory on the card. */
static bool fit(const struct machine *machine) {
  uint64_t bytes = 0;
  for (unsigned i = 0; i < machine->count; i++)
    bytes += machine->jobs[i]->runs ? machine->jobs[i]->job->peak_bytes : 0;
  return bytes <= GPU_BYTES;
}

int machine_settle(struct machine *machine) {
  if (machine->engine->deadline_ns(machine->policy) <= machine->now_ns)
    machine->engine->expire(machine->policy, machine->now_ns);
  return fit(machine) ? 0 : -ENOMEM;
}

static int run(struct machine *machine, const struct trace *trace, struct machine_job *jobs) {
  for (unsigned arrived = 0, finished = 0; finished < trace->count;) {
    uint64_t arrives_ns = arrived < trace->count ? trace->jobs[arrived].arrives_ns : POLICY_NEVER;
    uint64_t next_ns = min_u64(machine_next_ns(machine), arrives_ns);
    if (next_ns == POLICY_NEVER)
      return -EDEADLK;
    finished += machine_advance(machine, next_ns);
    for (; arrived < trace->count && trace->jobs[arrived].arrives_ns <= machine->now_ns; arrived++) {
      const struct trace_job *spec = &trace->jobs[arrived];
      jobs[arrived] = (struct machine_job){.job = spec, .index = arrived, .left_ns = (double)spec->alone_ns};
      machine_arrive(machine, &jobs[arrived]);
    }
    if (machine_settle(machine) < 0)
      return -ENOMEM;
  }
  return 0;
}

int machine_run(const struct trace *trace, const struct policy_under_test *policy, struct outcome *outcome) {
  struct machine machine = {0};
  struct machine_job jobs[TRACE_JOBS];
  machine_begin(&machine, policy);
  int err = run(&machine, trace, jobs);
  machine_end(&machine);
  for (unsigned i = 0; err == 0 && i < trace->count; i++) {
    outcome->began_ns[i] = jobs[i].began_ns;
    outcome->ended_ns[i] = jobs[i].ended_ns;
  }
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
