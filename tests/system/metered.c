/*
 * metered.c - submits what the test tells it, line by line, and says "done" after each line:
 *
 *   launch N   N kernels of 2 x 3 x 5 blocks, in one stream
 *   serve      ten times a kernel of 2 ms that is waited for, and 30 ms without anything to do
 *   poll       the same, but it polls
 *   ask        the same, but it polls, and then waits
 *   await      the same, but it is called back, and then waits
 *   fetch      the same, but a copy waits
 *   copies     4 copies and 2 sets, of 14,000 bytes together; and a copy of nothing
 *   refused    a launch that the driver refuses
 *   record     a graph of two such kernels is captured, and instantiated
 *   graph      a graph of a kernel of 7 blocks, one of 11, a child graph with one of 13, a set of 600 bytes
 *              and a copy of 400 is built, and instantiated
 *   replay     the graph is launched
 *   edit       its second kernel gets 100 blocks, its set 60 bytes
 *   disable    its first kernel is left out
 *   update     it becomes as a graph whose kernels have 17, 19 and 13 blocks
 *   long       a graph of 1,000 kernels of 2 blocks each is built, and instantiated
 *   renew N    N times it becomes as one whose kernels have 3 blocks
 *   destroy    the graph is destroyed
 *   fork       a child ends at once
 *
 * An end of its input ends it.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"
#include "kernel_image.h"

#define BYTES 4096

static struct gpu gpu;
static CUfunction empty;
static CUstream stream, other;
static CUdeviceptr memory;
static bool capturing;
static unsigned char host[BYTES];

static CUgraph graph;
static CUgraphNode nodes[5];
static CUgraphExec exec;

static void launch(unsigned count) {
  for (unsigned i = 0; i < count; i++)
    MUST(cuLaunchKernel(empty, 2, 3, 5, 32, 1, 1, 0, stream, NULL, NULL));
}

static void copies(void) {
  CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = host,
                        .srcPitch = 100,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = memory,
                        .dstPitch = 100,
                        .WidthInBytes = 50,
                        .Height = 20};
  MUST(cuMemcpyHtoD(memory, host, 4000));
  MUST(cuMemcpyDtoHAsync(host, memory, 3000, stream));
  MUST(cuMemcpyDtoD(memory, memory + 2048, 2000));
  MUST(cuMemcpy2D(&rows));
  MUST(cuMemsetD32(memory, 7, 250));
  MUST(cuMemsetD2D16Async(memory, 60, 7, 25, 60, stream));
  MUST(cuMemcpyHtoD(memory, host, 0));
}

static void refused(void) {
  if (cuLaunchKernel(empty, 0, 1, 1, 32, 1, 1, 0, stream, NULL, NULL) == CUDA_SUCCESS)
    gpu_must(CUDA_ERROR_UNKNOWN, "an empty grid is taken");
}

static void record(void) {
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  launch(2);
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

static void build_long(CUgraph into, unsigned blocks) {
  CUDA_KERNEL_NODE_PARAMS params = kernel(blocks);
  CUgraphNode node;
  for (int i = 0; i < 1000; i++)
    MUST(cuGraphAddKernelNode(&node, into, NULL, 0, &params));
}

static void make_long(void) {
  MUST(cuGraphCreate(&graph, 0));
  build_long(graph, 2);
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static void renew(unsigned times) {
  CUgraph newer;
  CUgraphExecUpdateResultInfo info;
  MUST(cuGraphCreate(&newer, 0));
  build_long(newer, 3);
  for (unsigned i = 0; i < times; i++)
    MUST(cuGraphExecUpdate(exec, newer, &info));
  MUST(cuGraphDestroy(newer));
}

static void spin(unsigned ms) {
  for (int i = 0; i < 20; i++)
    gpu_spin(&gpu, stream, ms * UINT64_C(1000000));
}

static void poll_stream(void) {
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void await_stream(void) { MUST(cuStreamSynchronize(stream)); }
static void ask_for_stream(void) {
  poll_stream();
  await_stream();
}

static void is_over(void *flag) { atomic_store((atomic_bool *)flag, true); }
static void await_call(void) {
  atomic_bool over = false;
  MUST(cuLaunchHostFunc(stream, is_over, &over));
  while (!atomic_load(&over))
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  await_stream();
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
static void ask_and_serve(void) { work_and_rest(stream, ask_for_stream); }
static void serve_when_called(void) { work_and_rest(stream, await_call); }
static void fetch(void) { work_and_rest(CU_STREAM_LEGACY, copy_after_all); }

static void write_value(void) {
  void *word;
  MUST(cuMemAllocHost(&word, sizeof(uint64_t)));
  MUST(cuStreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)word, 1, 0));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemFreeHost(word));
}

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

static void open_capture(void) {
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  capturing = true;
}

static void outside(void) { gpu_spin(&gpu, other, 1000); }

static void close_capture(void) {
  MUST(cuStreamEndCapture(stream, &graph));
  capturing = false;
}

static bool has_page(void) {
  char line[512];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    found |= strstr(line, "gpushare-meter") != NULL;
  if (maps)
    fclose(maps);
  return found;
}

static void fork_child(void) {
  int status = 0;
  pid_t child = fork();
  if (child == 0)
    _exit(has_page());
  waitpid(child, &status, 0);
  if (!has_page() || status != 0)
    gpu_must(CUDA_ERROR_UNKNOWN, "the page is not the parent's alone");
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
} commands[] = {
    {"serve", serve},         {"poll", poll_and_serve},     {"fetch", fetch},       {"copies", copies},
    {"ask", ask_and_serve},   {"await", serve_when_called}, {"refused", refused},   {"record", record},
    {"graph", make_graph},    {"replay", replay},           {"edit", edit},         {"disable", disable},
    {"update", update},       {"destroy", destroy},         {"fork", fork_child},   {"write", write_value},
    {"call", call},           {"prefetch", prefetch},       {"open", open_capture}, {"outside", outside},
    {"close", close_capture}, {"long", make_long}};

static void obey(const char *line) {
  if (strncmp(line, "launch ", 7) == 0)
    launch((unsigned)atoi(line + 7));
  if (strncmp(line, "renew ", 6) == 0)
    renew((unsigned)atoi(line + 6));
  if (strncmp(line, "spin ", 5) == 0)
    spin((unsigned)atoi(line + 5));
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
  other = gpu_stream();
  memory = gpu_alloc(BYTES / sizeof(uint64_t));
  gpu_say("ready");
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = '\0';
    obey(line);
    if (!capturing)
      MUST(cuCtxSynchronize());
    gpu_say("done");
  }
  gpu_say("ok");
  return 0;
}
