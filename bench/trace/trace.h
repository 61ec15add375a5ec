/*
 * trace.h - trainings in virtual time: what is to be run, what decides who runs, one GPU, and the figures of
 * a run. Salus' experiment has seeded traces of a hundred trainings; bench_cluster has many GPUs.
 *
 * Salus: Yu and Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications", MLSys
 * 2020. Its trace was not published; ours is calibrated by what its FIFO made of it (generate.c).
 */
#ifndef GS_TRACE_H
#define GS_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#define TRACE_JOBS 100
#define TRACE_NAME_SIZE 24

/* ---- jobs ---- */

/* One row of the paper's table 3. */
#define MODELS 15
#define MODEL_BATCHES 3
struct model {
  const char *name;
  const char *batches[MODEL_BATCHES];
  uint32_t peak_mib[MODEL_BATCHES]; /* what it has on the card while it computes */
  double gpu_use;                   /* which part of its time alone the GPU works for it */
};
extern const struct model models[MODELS];

struct trace_job {
  char name[TRACE_NAME_SIZE]; /* model_batch */
  uint64_t arrives_ns;
  uint64_t alone_ns; /* how long it takes with the GPU to itself */
  uint64_t peak_bytes;
  double gpu_use;
};

struct trace {
  unsigned count;
  struct trace_job jobs[TRACE_JOBS]; /* as they arrive */
};

/* A distribution of traces, calibrated. */
struct trace_mix {
  const char *name;
  double work_min;     /* of all jobs together, alone */
  double gap_min;      /* between arrivals, on average */
  double early;        /* how far long jobs tend to come before short ones; 0: not at all */
  double shortest_min; /* no job is shorter */
};

/* By name; NULL: the first. Returns NULL if there is none. */
const struct trace_mix *trace_mix_find(const char *name);

/* The same seed gives the same trace. */
void trace_generate(struct trace *trace, const struct trace_mix *mix, uint64_t seed);

/* ---- policies ---- */

/*
 * A policy hears of jobs that arrive and finish, and of the deadline that it has named; in answer it sets and
 * clears `runs` of the jobs that it knows. Times: ns from the start of the trace, never decreasing.
 */
#define POLICY_NEVER UINT64_MAX

/* The paper's P100. */
#define GPU_BYTES (UINT64_C(16) << 30)

struct machine_job {
  const struct trace_job *job;
  unsigned index;              /* in the trace */
  double left_ns;              /* of its alone_ns */
  bool runs;                   /* it uses the GPU now, perhaps with others */
  uint64_t began_ns, ended_ns; /* when it first ran; when it was over */
};

struct policy_engine {
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

/* The daemon's, hand-overs included (core.c); the list ends with a NULL name. */
extern const struct policy_under_test core_policies[];

/* ---- the GPU ---- */

/* One GPU, driven from outside: its caller says when jobs come. Zeroed before machine_begin. Times: as above.
 */
struct machine {
  const struct policy_engine *engine;
  void *policy;
  struct machine_job *jobs[TRACE_JOBS]; /* those that are there, which are the caller's */
  unsigned count;
  uint64_t now_ns;
  double busy_ns; /* for how long it has worked, in sum */
};

void machine_begin(struct machine *machine, const struct policy_under_test *policy);
void machine_end(struct machine *machine);
/* When something happens if no job comes; POLICY_NEVER: nothing. */
uint64_t machine_next_ns(const struct machine *machine);
/* Runs what runs, at most until machine_next_ns, and takes those away that are over. Returns how many were.
 */
unsigned machine_advance(struct machine *machine, uint64_t end_ns);
/* At its present time; caller must: count < TRACE_JOBS. */
void machine_arrive(struct machine *machine, struct machine_job *job);
/* After the arrivals: a deadline that has come. 0; or -ENOMEM: the policy lets more run than fit the card. */
int machine_settle(struct machine *machine);

struct outcome {
  uint64_t began_ns[TRACE_JOBS]; /* when it first ran */
  uint64_t ended_ns[TRACE_JOBS];
};

/* Runs all jobs to their ends. 0; or -EDEADLK: the policy lets nobody run; or -ENOMEM: it lets more run than
 * fit the card. */
int machine_run(const struct trace *trace, const struct policy_under_test *policy, struct outcome *outcome);

/* A row of the paper's table 2, in minutes. */
struct row {
  double makespan;
  double queuing; /* from arrival to the first turn, on average */
  double jct;     /* from arrival to the end, on average */
  double jct_95;  /* of 95 % of the jobs at most, interpolated */
};

struct row row_of(const struct trace *trace, const struct outcome *outcome);

#endif
