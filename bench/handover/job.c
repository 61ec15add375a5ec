/*
 * job.c - a job that uses all its memory and knows what every byte of it should be: filled once, then parts
 * of it are changed by kernels of about a millisecond, one after the other, until it is told to stop. It
 * knows nothing of gpushare.
 */
#include "worker.h"

#include <inttypes.h>
#include <unistd.h>

enum { BUFFERS = 4, PARTS = 16, AHEAD = 2, SPIN_US = 700 };

struct job {
  struct probe p;
  CUdeviceptr buffers[BUFFERS], counter;
  size_t part_bytes; /* of a buffer; each has PARTS / BUFFERS of them */
  uint64_t seed, rounds;
  uint64_t added[PARTS];
  CUevent done[AHEAD];
};

static size_t buffer_bytes(const struct job *job) { return job->part_bytes * (PARTS / BUFFERS); }

static CUdeviceptr part_at(const struct job *job, int part) {
  return job->buffers[part % BUFFERS] + (CUdeviceptr)(part / BUFFERS) * job->part_bytes;
}

static bool job_open(struct job *job, size_t bytes) {
  job->part_bytes = bytes / PARTS / 8 * 8;
  job->seed = (uint64_t)getpid() << 8;
  bool ok = probe_open(&job->p) && !TRY(cuMemAlloc(&job->counter, 8));
  for (int i = 0; i < BUFFERS; i++)
    ok = ok && !TRY(cuMemAlloc(&job->buffers[i], buffer_bytes(job)));
  for (int i = 0; i < AHEAD; i++)
    ok = ok && !TRY(cuEventCreate(&job->done[i], CU_EVENT_DISABLE_TIMING));
  return ok;
}

static bool job_fill(struct job *job) {
  bool ok = true;
  for (int i = 0; i < BUFFERS; i++)
    ok = ok && !TRY(launch_words(job->p.fill, job->buffers[i], buffer_bytes(job), job->seed + (uint64_t)i,
                                 job->p.stream));
  return ok && !TRY(cuStreamSynchronize(job->p.stream));
}

static bool part_add(struct job *job, int part, uint64_t delta) {
  job->added[part] += delta;
  return !TRY(launch_words(job->p.add, part_at(job, part), job->part_bytes, delta, job->p.stream));
}

/* At most AHEAD rounds are in flight, so that a drain takes about as long. */
static bool job_round(struct job *job) {
  CUevent done = job->done[job->rounds % AHEAD];
  if (job->rounds >= AHEAD && TRY(cuEventSynchronize(done)))
    return false;
  bool ok = part_add(job, (int)(job->rounds % PARTS), job->rounds + 1) &&
            !TRY(launch_spin(&job->p, SPIN_US * 1000, job->p.stream)) &&
            !TRY(cuEventRecord(done, job->p.stream));
  job->rounds++;
  return ok;
}

/* Takes back what was added; then everything must be as it was filled. */
static int64_t job_mismatches(struct job *job) {
  int64_t wrong = 0;
  for (int part = 0; part < PARTS; part++)
    if (!part_add(job, part, -job->added[part]))
      return -1;
  for (int i = 0; i < BUFFERS && wrong >= 0; i++) {
    int64_t found =
        worker_mismatches(&job->p, job->buffers[i], buffer_bytes(job), job->seed + (uint64_t)i, job->counter);
    wrong = found < 0 ? found : wrong + found;
  }
  return wrong;
}

int job_run(size_t bytes) {
  struct job job = {0};
  char order[WORKER_TEXT_SIZE];
  if (!job_open(&job, bytes) || !job_fill(&job) || !worker_say("filled"))
    return 1;
  while (!worker_has_order())
    if (!job_round(&job))
      return 1;
  if (!worker_hear(order))
    return 1;
  int64_t wrong = job_mismatches(&job);
  worker_say("%" PRId64 " wrong", wrong);
  return wrong != 0;
}
