/*
 * rush.c - a job that queues kernels of one length as deep as the driver lets it, or a thousand of them; and
 * that never waits for anything else. It knows nothing of gpushare.
 */
#include "worker.h"

#include <inttypes.h>
#include <time.h>

enum { MARKS = 16, PER_MARK = 64 };

struct rush {
  struct probe p;
  CUevent marks[MARKS];
  uint64_t kernels;
};

/* Not by cuEventSynchronize, which looks like the end of an iteration. */
static bool await(CUevent mark) {
  CUresult result;
  while ((result = cuEventQuery(mark)) == CUDA_ERROR_NOT_READY)
    nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS / 5}, NULL);
  return !probe_try("cuEventQuery", result);
}

static bool rush_open(struct rush *rush) {
  bool ok = probe_open(&rush->p);
  for (int i = 0; i < MARKS; i++)
    ok = ok && !TRY(cuEventCreate(&rush->marks[i], CU_EVENT_DISABLE_TIMING));
  return ok;
}

static bool submit(struct rush *rush, uint64_t spin_ns) {
  CUevent mark = rush->marks[rush->kernels / PER_MARK % MARKS];
  bool marked = rush->kernels++ % PER_MARK == 0;
  return (!marked || await(mark)) && !TRY(launch_spin(&rush->p, spin_ns, rush->p.stream)) &&
         (!marked || !TRY(cuEventRecord(mark, rush->p.stream)));
}

/* Tells how many it was when it is told to stop, and stays, with nothing to do. */
int rush_run(uint64_t spin_ns) {
  struct rush rush = {0};
  char order[WORKER_TEXT_SIZE];
  if (!rush_open(&rush) || !worker_say("filled"))
    return 1;
  while (!worker_has_order())
    if (!submit(&rush, spin_ns))
      return 1;
  if (!worker_hear(order) || TRY(cuStreamSynchronize(rush.p.stream)))
    return 1;
  worker_say("%" PRIu64, rush.kernels);
  return !worker_hear(order);
}
