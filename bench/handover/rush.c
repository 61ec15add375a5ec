/*
 * rush.c - jobs that queue kernels of one length as deep as the driver lets them, or a thousand of them; and
 * that never wait for anything else. They know nothing of gpushare.
 */
#include "worker.h"

#include <inttypes.h>
#include <time.h>

enum { MARKS = 16, PER_MARK = 64 };

#define SLICE_NS (20 * NS_PER_MS)

struct rush {
  struct probe p;
  CUevent marks[MARKS];
  uint64_t kernels;
  uint64_t waits; /* for the GPU */
};

/* Not by cuEventSynchronize, which looks like the end of an iteration. */
static bool await(struct rush *rush, CUevent mark) {
  CUresult result = cuEventQuery(mark);
  rush->waits += result == CUDA_ERROR_NOT_READY;
  for (; result == CUDA_ERROR_NOT_READY; result = cuEventQuery(mark))
    nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS / 5}, NULL);
  return !probe_try("cuEventQuery", result);
}

static bool rush_open(struct rush *rush) {
  bool ok = probe_open(&rush->p);
  for (int i = 0; i < MARKS; i++)
    ok = ok && !TRY(cuEventCreate(&rush->marks[i], CU_EVENT_DISABLE_TIMING));
  return ok;
}

static CUresult launch(const struct rush *rush, uint64_t spin_ns) {
  return spin_ns ? launch_spin(&rush->p, spin_ns, rush->p.stream) : launch_empty(&rush->p, rush->p.stream);
}

static bool submit(struct rush *rush, uint64_t spin_ns) {
  CUevent mark = rush->marks[rush->kernels / PER_MARK % MARKS];
  bool marked = rush->kernels++ % PER_MARK == 0;
  return (!marked || await(rush, mark)) && !TRY(launch(rush, spin_ns)) &&
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

/* The clock is looked at, and the socket, so seldom that neither counts beside the launches. */
static bool slice(struct rush *rush) {
  uint64_t kernels = rush->kernels, waits = rush->waits, begin_ns = clock_now_ns(), end_ns;
  do {
    for (int i = 0; i < PER_MARK; i++)
      if (!submit(rush, 0))
        return false;
    end_ns = clock_now_ns();
  } while (end_ns - begin_ns < SLICE_NS);
  return worker_say("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, rush->kernels - kernels, begin_ns, end_ns,
                    rush->waits - waits);
}

int launches_run(void) {
  struct rush rush = {0};
  if (!rush_open(&rush) || !worker_say("filled"))
    return 1;
  while (!worker_has_order())
    if (!slice(&rush))
      return 1;
  return TRY(cuStreamSynchronize(rush.p.stream)) != CUDA_SUCCESS;
}
