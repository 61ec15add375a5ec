/*
 * rush.c - jobs that queue work of one kind as deep as the driver lets them, or a few pieces of it that are
 * large, and never wait for anything else. They know nothing of gpushare.
 */
#include "worker.h"

enum { MARKS = 16, KERNELS_PER_MARK = 64, LARGE = 2, FLOOD_BLOCKS = 65536, FLOOD_THREADS = 256 };

#define GRAPH_NODE_NS (10 * 1000)

struct rush {
  struct probe p;
  CUevent marks[MARKS];
  uint64_t count, spin_ns;
  CUgraphExec graph;
  CUdeviceptr at, host_at;
  void *host; /* pinned */
  size_t bytes;
};

static bool rush_open(struct rush *rush) {
  bool ok = probe_open(&rush->p);
  for (int i = 0; i < MARKS; i++)
    ok = ok && !TRY(cuEventCreate(&rush->marks[i], CU_EVENT_DISABLE_TIMING));
  return ok;
}

/* A mark after so many; so many marks are in flight. */
static bool submit_one(struct rush *rush, bool (*submit)(struct rush *rush), unsigned per_mark,
                       unsigned marks) {
  CUevent mark = rush->marks[rush->count / per_mark % marks];
  bool marked = rush->count++ % per_mark == 0;
  return (!marked || rush->count <= (uint64_t)per_mark * marks || !TRY(cuEventSynchronize(mark))) &&
         submit(rush) && (!marked || !TRY(cuEventRecord(mark, rush->p.stream)));
}

static int run(struct rush *rush, bool (*submit)(struct rush *rush), unsigned per_mark, unsigned marks) {
  if (!worker_say("filled"))
    return 1;
  while (!worker_has_order())
    if (!submit_one(rush, submit, per_mark, marks))
      return 1;
  return 0;
}

/* ---- kinds ---- */

static bool submit_spin(struct rush *rush) {
  return !TRY(launch_spin(&rush->p, rush->spin_ns, rush->p.stream));
}

int rush_run(uint64_t spin_ns) {
  struct rush rush = {.spin_ns = spin_ns};
  return !rush_open(&rush) || run(&rush, submit_spin, KERNELS_PER_MARK, MARKS);
}

static bool submit_graph(struct rush *rush) { return !TRY(cuGraphLaunch(rush->graph, rush->p.stream)); }

int graphs_run(void) {
  struct rush rush = {.spin_ns = GRAPH_NODE_NS};
  CUgraph graph;
  bool ok =
      rush_open(&rush) && !TRY(cuStreamBeginCapture(rush.p.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (int i = 0; i < GRAPH_NODES; i++)
    ok = ok && submit_spin(&rush);
  return !ok || TRY(cuStreamEndCapture(rush.p.stream, &graph)) ||
         TRY(cuGraphInstantiate(&rush.graph, graph, 0)) || run(&rush, submit_graph, 1, LARGE);
}

static bool submit_copy(struct rush *rush) {
  return rush->count % 2 ? !TRY(cuMemcpyDtoHAsync(rush->host, rush->at, rush->bytes, rush->p.stream))
                         : !TRY(cuMemcpyHtoDAsync(rush->at, rush->host, rush->bytes, rush->p.stream));
}

int copies_run(size_t bytes) {
  struct rush rush = {.bytes = bytes};
  return !rush_open(&rush) || TRY(cuMemAlloc(&rush.at, bytes)) ||
         TRY(cuMemHostAlloc(&rush.host, bytes, CU_MEMHOSTALLOC_PORTABLE)) ||
         run(&rush, submit_copy, 1, LARGE);
}

/* Each thread finds one word that is not what it says it should be, and counts it in the host's memory. */
static bool submit_flood(struct rush *rush) {
  uint64_t words = rush->bytes / 8, seed = 1;
  return !TRY(cuLaunchKernel((CUfunction)rush->p.check, FLOOD_BLOCKS, 1, 1, FLOOD_THREADS, 1, 1, 0,
                             rush->p.stream, (void *[]){&rush->at, &words, &seed, &rush->host_at}, NULL));
}

int flood_run(void) {
  struct rush rush = {.bytes = (size_t)FLOOD_BLOCKS * FLOOD_THREADS * 8};
  return !rush_open(&rush) || TRY(cuMemAlloc(&rush.at, rush.bytes)) ||
         TRY(launch_fill(&rush.p, rush.at, rush.bytes, rush.p.stream)) ||
         TRY(cuMemHostAlloc(&rush.host, 8, CU_MEMHOSTALLOC_DEVICEMAP)) ||
         TRY(cuMemHostGetDevicePointer(&rush.host_at, rush.host, 0)) || run(&rush, submit_flood, 1, LARGE);
}
