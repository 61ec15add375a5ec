/*
 * rusher.c - submits as fast as it may, for as long as its stdin has no line. usage: rusher HOW AHEAD SPIN
 *
 *   kernels     up to AHEAD kernels of SPIN are queued, in one stream, as a driver's own bound would have it
 *   capturing   the same, while another stream of it captures
 *   waits       AHEAD kernels, the last of them later, then it waits for them: an iteration
 *   copies      AHEAD kernels and a small copy to the host; at most two such iterations are queued
 *   graphs      AHEAD kernels in a graph; at most two such iterations are queued
 *
 * Says "rushing" once all is there; and at its end "recorded N", as many events, and "ok".
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/parse.h"
#include "gpu.h"

#define AHEAD_MAX 1024

static struct gpu gpu;
static CUstream stream, other;
static unsigned ahead;
static uint64_t spin_ns;
static uint64_t recorded; /* events */

static bool told(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  return poll(&input, 1, 0) > 0;
}

static void take_ns(uint64_t ns) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)}, NULL);
}

/* Not by cuEventSynchronize, which is what the end of an iteration looks like. */
static void await(CUevent event) {
  CUresult result;
  while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
    take_ns(NS_PER_MS / 10);
  gpu_must(result, "cuEventQuery");
}

static void spin(void) { gpu_spin(&gpu, stream, spin_ns); }

static void mark(CUevent event) {
  MUST(cuEventRecord(event, stream));
  recorded++;
}

/* At most so many steps are queued. */
static void rush(void (*step)(void), unsigned steps) {
  static CUevent events[AHEAD_MAX];
  for (unsigned i = 0; i < steps; i++)
    MUST(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
  for (unsigned i = 0; !told(); i = (i + 1) % steps) {
    await(events[i]);
    step();
    mark(events[i]);
  }
}

/* ---- iterations ---- */

static void submit_iteration(void) {
  for (unsigned i = 0; i < ahead; i++)
    spin();
}

/* The last one comes while the one before runs. */
static void submit_slowly(CUevent before) {
  for (unsigned i = 2; i < ahead; i++)
    spin();
  mark(before);
  spin();
  await(before);
  spin();
}

static void rush_waiting(void) {
  CUevent before;
  MUST(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
  while (!told()) {
    submit_slowly(before);
    MUST(cuStreamSynchronize(stream));
  }
}

static CUdeviceptr word;

static void submit_copying(void) {
  static uint64_t *host;
  if (!host)
    MUST(cuMemAllocHost((void **)&host, sizeof *host));
  submit_iteration();
  MUST(cuMemcpyDtoHAsync(host, word, sizeof *host, stream));
}

static CUgraphExec iteration;

static void build_graph(void) {
  CUgraph graph;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  submit_iteration();
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&iteration, graph, 0));
}

static void submit_graph(void) { MUST(cuGraphLaunch(iteration, stream)); }

/* ---- captures ---- */

static void rush_capturing(void) {
  CUgraph graph;
  size_t nodes = 0;
  MUST(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
  gpu_spin(&gpu, other, spin_ns);
  rush(spin, ahead);
  gpu_spin(&gpu, other, spin_ns);
  MUST(cuStreamEndCapture(other, &graph));
  MUST(cuGraphGetNodes(graph, NULL, &nodes));
  gpu_must(nodes == 2 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "as many nodes as were recorded");
}

static void play(const char *how) {
  if (strcmp(how, "kernels") == 0)
    rush(spin, ahead);
  else if (strcmp(how, "capturing") == 0)
    rush_capturing();
  else if (strcmp(how, "waits") == 0)
    rush_waiting();
  else if (strcmp(how, "copies") == 0)
    rush(submit_copying, 2);
  else if (strcmp(how, "graphs") == 0)
    rush(submit_graph, 2);
  else
    exit(2);
}

int main(int argc, char **argv) {
  if (argc != 4 || parse_duration_ns(argv[3], &spin_ns) != 0)
    return 2;
  ahead = (unsigned)atoi(argv[2]);
  gpu_start(&gpu, 0);
  stream = gpu_stream();
  other = gpu_stream();
  if (strcmp(argv[1], "copies") == 0)
    word = gpu_alloc(1);
  if (strcmp(argv[1], "graphs") == 0)
    build_graph();
  gpu_spin(&gpu, stream, 1000); /* it has the GPU */
  gpu_say("rushing");
  play(argv[1]);
  MUST(cuStreamSynchronize(stream));
  printf("recorded %llu\n", (unsigned long long)recorded);
  gpu_say("ok");
  return 0;
}
