/*
 * jobs.h - what is to be run: Salus' trainings, seeded traces of a hundred of them, and its two sweeps.
 *
 * Salus: Yu and Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications", MLSys
 * 2020. Its trace was not published; ours is calibrated by what its FIFO made of it (generate.c).
 */
#ifndef GS_TRACE_JOBS_H
#define GS_TRACE_JOBS_H

#include <stdint.h>

#define TRACE_JOBS 100
#define SWEEP_JOBS 300
#define TRACE_JOBS_MAX SWEEP_JOBS
#define TRACE_NAME_SIZE 24
#define MODEL_BATCHES 3

/* One row of the paper's table 3. */
struct model {
  const char *name;
  const char *batches[MODEL_BATCHES];
  uint32_t peak_mib[MODEL_BATCHES]; /* what it has on the card while it computes */
  uint32_t persistent_mib;          /* what of that it keeps between iterations */
  double gpu_use;                   /* which part of its time alone the GPU works for it */
};

#define MODELS 15
extern const struct model models[MODELS];

struct trace_job {
  char name[TRACE_NAME_SIZE]; /* model_batch */
  uint64_t arrives_ns;
  uint64_t alone_ns; /* how long it takes with the GPU to itself */
  uint64_t peak_bytes, persistent_bytes;
  double gpu_use;
};

struct trace {
  unsigned count;
  struct trace_job jobs[TRACE_JOBS_MAX]; /* as they arrive */
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

/* SWEEP_JOBS equal jobs that all arrive at once. The model and its batch are in table 3. */
void trace_sweep(struct trace *trace, const char *model, const char *batch);

#endif
