/* test_sim_capture.c - what a capture records, what breaks it (as probed on a real driver), and launching
 * graphs. */
#include "test_sim.h"

static struct gpu gpu;

enum { BYTES = 1 << 20 };

/* ---- recording ---- */

static CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec;
#if CUDA_VERSION >= 12000
  OK(cuGraphInstantiate(&exec, graph, 0));
#endif
  return exec;
}

static void test_record_and_launch(void) {
  CUstream stream;
  CUdeviceptr at;
  CUgraph graph;
  size_t nodes = 0;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemAlloc(&at, BYTES));
  OK(fill(&gpu, stream, at, BYTES, 1));
  OK(cuStreamSynchronize(stream));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(fill(&gpu, stream, at, BYTES, 2));
  OK(add(&gpu, stream, at, BYTES, 0));
  OK(cuStreamEndCapture(stream, &graph));
  CHECK_EQ(mismatches(&gpu, at, BYTES, 1), 0); /* recorded, not done */
  OK(cuGraphGetNodes(graph, NULL, &nodes));
  CHECK_EQ(nodes, 2);
  CUgraphExec exec = instantiate(graph);
  OK(cuGraphDestroy(graph));
  OK(cuGraphUpload(exec, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_EQ(mismatches(&gpu, at, BYTES, 2), 0);
  OK(cuGraphExecDestroy(exec));
  OK(cuMemFree(at));
  OK(cuStreamDestroy(stream));
}

static void test_fork_and_join(bool join, CUresult wanted) {
  CUstream origin, other;
  CUevent fork_event, join_event;
  CUdeviceptr at;
  CUgraph graph;
  OK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
  OK(cuMemAlloc(&at, BYTES));
  OK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(fill(&gpu, origin, at, BYTES, 3));
  OK(cuEventRecord(fork_event, origin));
  OK(cuStreamWaitEvent(other, fork_event, 0));
  OK(add(&gpu, other, at, BYTES, 1));
  CHECK_EQ(cuEventQuery(fork_event), CUDA_ERROR_CAPTURED_EVENT);
  if (join) {
    OK(cuEventRecord(join_event, other));
    OK(cuStreamWaitEvent(origin, join_event, 0));
  }
  CHECK_EQ(cuStreamEndCapture(origin, &graph), wanted);
  if (wanted == CUDA_SUCCESS) {
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphLaunch(exec, origin));
    OK(add(&gpu, origin, at, BYTES, UINT64_MAX));
    OK(cuStreamSynchronize(origin));
    CHECK_EQ(mismatches(&gpu, at, BYTES, 3), 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
  }
  OK(cuStreamSynchronize(other)); /* out of the capture again */
  OK(cuEventDestroy(fork_event));
  OK(cuEventDestroy(join_event));
  OK(cuMemFree(at));
  OK(cuStreamDestroy(other));
  OK(cuStreamDestroy(origin));
}

static uint64_t graph_bytes(CUgraphMem_attribute attribute) {
  cuuint64_t bytes = 0;
  OK(cuDeviceGetGraphMemAttribute(0, attribute, &bytes));
  return bytes;
}

static void check_graph_bytes(uint64_t used, uint64_t reserved) {
  CHECK_EQ(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), used);
  CHECK_EQ(graph_bytes(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), reserved);
}

/* Its memory takes its room with the first launch, and keeps it until it is trimmed. */
static void test_memory_node(void) {
  enum { ROOM = 2 << 20 };
  CUstream stream;
  CUdeviceptr at;
  CUgraph graph;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemAllocAsync(&at, BYTES, stream));
  OK(fill(&gpu, stream, at, BYTES, 5));
  OK(cuMemFreeAsync(at, stream));
  OK(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = instantiate(graph);
  uint64_t room = (BYTES + ROOM - 1) / ROOM * ROOM;
  check_graph_bytes(0, 0);
  OK(cuGraphLaunch(exec, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  check_graph_bytes(room, room);
  OK(cuDeviceGraphMemTrim(0));
  check_graph_bytes(0, 0);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuGraphDestroy(graph));
  OK(cuGraphExecDestroy(exec));
  check_graph_bytes(0, room);
  OK(cuDeviceGraphMemTrim(0));
  check_graph_bytes(0, 0);
  CHECK_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE); /* it went with the graph */
  OK(cuStreamDestroy(stream));
}

/* A graph built by hand: fill, then two additions of which the second waits for the first. */
static void test_graph_by_hand(void) {
  CUdeviceptr at;
  CUgraph graph;
  CUgraphNode first, second, third;
  uint64_t words = BYTES / 8, seed = 6, one = 1, two = UINT64_MAX;
  OK(cuMemAlloc(&at, BYTES));
  OK(cuGraphCreate(&graph, 0));
  CUDA_KERNEL_NODE_PARAMS p = {.func = gpu.fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1};
  p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = (void *[]){&at, &words, &seed};
  OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &p));
  p.func = gpu.add;
  p.kernelParams = (void *[]){&at, &words, &one};
  OK(cuGraphAddKernelNode(&second, graph, &first, 1, &p));
  p.kernelParams = (void *[]){&at, &words, &two};
  OK(cuGraphAddKernelNode(&third, graph, &second, 1, &p));
  CUgraphExec exec = instantiate(graph);
  OK(cuGraphLaunch(exec, NULL));
  CHECK_EQ(mismatches(&gpu, at, BYTES, 6), 0);
  seed = 7;
  p.func = gpu.fill;
  p.kernelParams = (void *[]){&at, &words, &seed};
  OK(cuGraphExecKernelNodeSetParams(exec, first, &p));
  OK(cuGraphLaunch(exec, NULL));
  CHECK_EQ(mismatches(&gpu, at, BYTES, 7), 0);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuMemFree(at));
}

/* ---- what breaks captures: by another thread, in three modes of the capture and two of the thread ---- */

#define LOST CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
#define FINE CUDA_SUCCESS

static CUstream own;
static CUevent event;
static CUdeviceptr unified;

static CUresult call_ctx_sync(void) { return cuCtxSynchronize(); }
static CUresult call_stream_sync(void) { return cuStreamSynchronize(own); }
static CUresult call_null_sync(void) { return cuStreamSynchronize(NULL); }
static CUresult call_query(void) { return cuStreamQuery(own); }
static CUresult call_event_query(void) { return cuEventQuery(event); }
static CUresult call_event_sync(void) { return cuEventSynchronize(event); }
static CUresult call_alloc(void) {
  CUdeviceptr at;
  CUresult result = cuMemAlloc(&at, BYTES);
  return result == CUDA_SUCCESS ? cuMemFree(at) : result;
}
static CUresult call_alloc_managed(void) {
  CUdeviceptr at;
  CUresult result = cuMemAllocManaged(&at, BYTES, CU_MEM_ATTACH_GLOBAL);
  return result == CUDA_SUCCESS ? cuMemFree(at) : result;
}
static CUresult call_alloc_async(void) {
  CUdeviceptr at;
  CUresult result = cuMemAllocAsync(&at, BYTES, own);
  return result == CUDA_SUCCESS ? cuMemFreeAsync(at, own) : result;
}
static CUresult call_launch(void) { return spin(&gpu, own, 1000); }
static CUresult call_set(void) { return cuMemsetD8(unified, 1, 64); }
static CUresult call_attribute(void) {
  unsigned value;
  return cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, unified);
}
static CUresult call_info(void) {
  size_t free_bytes, total;
  return cuMemGetInfo(&free_bytes, &total);
}
static CUresult call_is_capturing(void) {
  CUstreamCaptureStatus status;
  return cuStreamIsCapturing(NULL, &status);
}

static const struct {
  CUresult (*call)(void);
  CUresult in_global; /* by a thread in mode GLOBAL */
  CUresult otherwise;
} unsafe_calls[] = {
    {call_ctx_sync, LOST, LOST}, {call_stream_sync, LOST, FINE},   {call_null_sync, LOST, FINE},
    {call_query, LOST, FINE},    {call_event_query, LOST, FINE},   {call_event_sync, LOST, FINE},
    {call_alloc, LOST, FINE},    {call_alloc_managed, LOST, FINE}, {call_alloc_async, LOST, FINE},
    {call_launch, FINE, FINE},   {call_set, FINE, FINE},           {call_attribute, FINE, FINE},
    {call_info, FINE, FINE},     {call_is_capturing, FINE, FINE}};

struct order {
  size_t call;
  bool relaxed;
  CUresult result;
};

static void *other_thread(void *argument) {
  struct order *order = argument;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuCtxSetCurrent(gpu.context));
  if (order->relaxed)
    OK(cuThreadExchangeStreamCaptureMode(&mode));
  order->result = unsafe_calls[order->call].call();
  return NULL;
}

static void test_call(CUstream capturing, size_t call, CUstreamCaptureMode mode, bool relaxed) {
  struct order order = {.call = call, .relaxed = relaxed};
  CUgraph graph = (CUgraph)1;
  pthread_t thread;
  bool global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL && !relaxed;
  CUresult wanted = global ? unsafe_calls[call].in_global : unsafe_calls[call].otherwise;
  OK(cuStreamBeginCapture(capturing, mode));
  OK(spin(&gpu, capturing, 1));
  CHECK_EQ(pthread_create(&thread, NULL, other_thread, &order), 0);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  if (order.result != wanted)
    fprintf(stderr, "call %zu, mode %d, thread relaxed %d\n", call, (int)mode, relaxed);
  CHECK_EQ(order.result, wanted);
  CHECK_EQ(spin(&gpu, capturing, 1), wanted == FINE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK_EQ(cuStreamEndCapture(capturing, &graph),
           wanted == FINE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK((graph == NULL) == (wanted != FINE));
  if (graph)
    OK(cuGraphDestroy(graph));
}

static void test_unsafe_calls(void) {
  static const CUstreamCaptureMode modes[] = {
      CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
  CUstream capturing;
  OK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cuEventRecord(event, own));
  OK(cuMemAllocManaged(&unified, BYTES, CU_MEM_ATTACH_GLOBAL));
  OK(cuCtxSynchronize());
  for (size_t call = 0; call < sizeof(unsafe_calls) / sizeof(unsafe_calls[0]); call++)
    for (size_t m = 0; m < 3; m++)
      for (int relaxed = 0; relaxed < 2; relaxed++)
        test_call(capturing, call, modes[m], relaxed);
  OK(cuMemFree(unified));
  OK(cuEventDestroy(event));
  OK(cuStreamDestroy(own));
  OK(cuStreamDestroy(capturing));
}

static void test_own_stream_and_legacy(void) {
  CUstream blocking;
  CUgraph graph;
  CUstreamCaptureStatus status;
  OK(cuStreamCreate(&blocking, 0));
  OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_EQ(cuStreamQuery(blocking), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  OK(cuStreamIsCapturing(blocking, &status));
  CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK_EQ(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  OK(cuStreamEndCapture(blocking, &graph));
  OK(cuGraphDestroy(graph));
  OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK_EQ(spin(&gpu, NULL, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK_EQ(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  OK(cuStreamDestroy(blocking));
}

int main(void) {
  use_card("small");
  gpu_open(&gpu);
  test_record_and_launch();
  test_fork_and_join(true, CUDA_SUCCESS);
  test_fork_and_join(false, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  test_memory_node();
  test_graph_by_hand();
  test_unsafe_calls();
  test_own_stream_and_legacy();
  gpu_close(&gpu);
  return 0;
}
