/*
 * submitter.c - submits what the test tells it, line by line, and says "done" after each line:
 *
 *   serve      ten times a kernel of 2 ms that is waited for, and 30 ms without anything to do
 *   poll       the same, but it polls
 *   await      the same, but it is called back
 *   fetch      the same, but a copy waits
 *   record     a graph of two kernels is captured, and instantiated
 *   borrow     the same with a graph that allocates and frees
 *   graph      a graph of two kernels, a child graph with one, a set and a copy is built, and instantiated
 *   replay     the graph is launched
 *   edit       one of its kernels, and its set, become other ones
 *   disable    one of its kernels is left out
 *   update     it becomes another one with the same nodes
 *   destroy    the graph is destroyed
 *   call       the driver calls it back
 *   prefetch   unified memory is prefetched
 *
 * An end of its input ends it.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gpu.h"
#include "kernel_image.h"

#define BYTES 4096

static struct gpu gpu;
static CUfunction empty;
static CUstream stream;
static CUdeviceptr memory;
static unsigned char host[BYTES];

static CUgraph graph;
static CUgraphNode nodes[5];
static CUgraphExec exec;

static void launch(unsigned count) {
  for (unsigned i = 0; i < count; i++)
    MUST(cuLaunchKernel(empty, 2, 3, 5, 32, 1, 1, 0, stream, NULL, NULL));
}

static void record(void) {
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  launch(2);
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

/* Its nodes allocate memory, and free it. */
static void borrow(void) {
  CUdeviceptr borrowed;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(cuMemAllocAsync(&borrowed, BYTES, stream));
  MUST(cuMemFreeAsync(borrowed, stream));
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static CUDA_KERNEL_NODE_PARAMS kernel(unsigned blocks) {
  return (CUDA_KERNEL_NODE_PARAMS){.func = empty,
                                   .gridDimX = blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 32,
                                   .blockDimY = 1,
                                   .blockDimZ = 1};
}

static CUDA_MEMSET_NODE_PARAMS setting(unsigned width) {
  return (CUDA_MEMSET_NODE_PARAMS){
      .dst = memory, .pitch = 100, .elementSize = 2, .width = width, .height = 6};
}

static void build(CUgraph into, unsigned first, unsigned second) {
  CUgraph child;
  CUgraphNode inner;
  CUDA_KERNEL_NODE_PARAMS a = kernel(first), b = kernel(second), c = kernel(13);
  CUDA_MEMSET_NODE_PARAMS set = setting(50);
  CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = host,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = memory,
                        .WidthInBytes = 400,
                        .Height = 1,
                        .Depth = 1};
  MUST(cuGraphCreate(&child, 0));
  MUST(cuGraphAddKernelNode(&inner, child, NULL, 0, &c));
  MUST(cuGraphAddKernelNode(&nodes[0], into, NULL, 0, &a));
  MUST(cuGraphAddKernelNode(&nodes[1], into, &nodes[0], 1, &b));
  MUST(cuGraphAddChildGraphNode(&nodes[2], into, &nodes[1], 1, child));
  MUST(cuGraphAddMemsetNode(&nodes[3], into, &nodes[2], 1, &set, gpu.context));
  MUST(cuGraphAddMemcpyNode(&nodes[4], into, &nodes[3], 1, &copy, gpu.context));
  MUST(cuGraphDestroy(child));
}

static void make_graph(void) {
  MUST(cuGraphCreate(&graph, 0));
  build(graph, 7, 11);
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static void edit(void) {
  CUDA_KERNEL_NODE_PARAMS b = kernel(100);
  CUDA_MEMSET_NODE_PARAMS set = setting(5);
  MUST(cuGraphExecKernelNodeSetParams(exec, nodes[1], &b));
  MUST(cuGraphExecMemsetNodeSetParams(exec, nodes[3], &set, gpu.context));
}

static void update(void) {
  CUgraphNode of_exec[5];
  CUgraph newer;
  CUgraphExecUpdateResultInfo info;
  memcpy(of_exec, nodes, sizeof nodes);
  MUST(cuGraphCreate(&newer, 0));
  build(newer, 17, 19);
  MUST(cuGraphExecUpdate(exec, newer, &info));
  MUST(cuGraphDestroy(newer));
  memcpy(nodes, of_exec, sizeof nodes);
}

static void poll_stream(void) {
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void await_stream(void) { MUST(cuStreamSynchronize(stream)); }
static void is_over(void *flag) { atomic_store((atomic_bool *)flag, true); }
static void await_call(void) {
  atomic_bool over = false;
  MUST(cuLaunchHostFunc(stream, is_over, &over));
  while (!atomic_load(&over))
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void copy_after_all(void) { MUST(cuMemcpyHtoD(memory, host, BYTES)); }

static void work_and_rest(CUstream on, void (*await)(void)) {
  for (int i = 0; i < 10; i++) {
    gpu_spin(&gpu, on, 2000000);
    await();
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
  }
}

static void serve(void) { work_and_rest(stream, await_stream); }
static void poll_and_serve(void) { work_and_rest(stream, poll_stream); }
static void serve_when_called(void) { work_and_rest(stream, await_call); }
static void fetch(void) { work_and_rest(CU_STREAM_LEGACY, copy_after_all); }

static void do_nothing(void *unused) { (void)unused; }
static void call(void) { MUST(cuLaunchHostFunc(stream, do_nothing, NULL)); }

static void prefetch(void) {
  CUdeviceptr managed;
  MUST(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
#if CUDA_VERSION >= 13000
  MUST(cuMemPrefetchAsync(managed, BYTES, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE}, 0, stream));
#else
  MUST(cuMemPrefetchAsync(managed, BYTES, 0, stream));
#endif
  MUST(cuMemFree(managed));
}

static void replay(void) { MUST(cuGraphLaunch(exec, stream)); }
static void disable(void) { MUST(cuGraphNodeSetEnabled(exec, nodes[0], 0)); }
static void destroy(void) {
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
}

static const struct {
  const char *name;
  void (*run)(void);
} commands[] = {{"serve", serve},      {"poll", poll_and_serve}, {"await", serve_when_called},
                {"fetch", fetch},      {"record", record},       {"borrow", borrow},
                {"graph", make_graph}, {"replay", replay},       {"edit", edit},
                {"disable", disable},  {"update", update},       {"destroy", destroy},
                {"call", call},        {"prefetch", prefetch}};

static void obey(const char *line) {
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
    if (strcmp(line, commands[i].name) == 0)
      commands[i].run();
}

int main(void) {
  char line[64];
  gpu_start(&gpu, 0);
  CUmodule module;
  MUST(cuModuleLoadData(&module, kernel_image()));
  MUST(cuModuleGetFunction(&empty, module, "gs_empty"));
  stream = gpu_stream();
  memory = gpu_alloc(BYTES / sizeof(uint64_t));
  gpu_say("ready");
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = '\0';
    obey(line);
    MUST(cuCtxSynchronize());
    gpu_say("done");
  }
  gpu_say("ok");
  return 0;
}
