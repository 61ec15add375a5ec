/*
 * firsts.c - each way to touch memory, as the first thing that a program does after its memory has left the
 * card. It reads the number of a call, makes it, compares all of its memory with what it should be, and says
 * "done KEPT NAME", with the bytes that its pool keeps. Says "ready COUNT" first; at the end of stdin "ok".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define LARGE_BYTES ((size_t)6 << 20)
#define SMALL_BYTES ((size_t)4096)
#define PART_BYTES ((size_t)3000)
#define ROW_BYTES ((size_t)512)
#define ROWS ((size_t)40)
#define PITCH_BYTES ((size_t)1024)

/* Two allocations, and what they should hold. */
static CUdeviceptr large, small;
static unsigned char *large_expected, *small_expected, *seen;
static unsigned char *pinned, pageable[PITCH_BYTES * ROWS];
static struct gpu gpu;
static CUstream stream;
static CUgraphExec captured, built;

/* ---- lines ---- */

static void host_fill(unsigned char *host, size_t bytes) {
  static unsigned next;
  for (size_t i = 0; i < bytes; i++)
    host[i] = (unsigned char)(next++ * 31 >> 2);
}

static void to_large(const void *data, size_t at, size_t bytes) { memcpy(large_expected + at, data, bytes); }

static void expect_bytes(const void *got, const void *expected, size_t bytes) {
  if (memcmp(got, expected, bytes) != 0)
    gpu_must(CUDA_ERROR_UNKNOWN, "the bytes are not what they should be");
}

static void call_htod(void) {
  host_fill(pageable, PART_BYTES);
  MUST(cuMemcpyHtoD(large + 100, pageable, PART_BYTES));
  to_large(pageable, 100, PART_BYTES);
}

static void call_htod_async(void) {
  host_fill(pinned, PART_BYTES);
  MUST(cuMemcpyHtoDAsync(large + LARGE_BYTES / 2, pinned, PART_BYTES, stream));
  to_large(pinned, LARGE_BYTES / 2, PART_BYTES);
}

static void call_dtoh(void) {
  MUST(cuMemcpyDtoH(pageable, large + 77, PART_BYTES));
  expect_bytes(pageable, large_expected + 77, PART_BYTES);
}

static void call_dtoh_async(void) {
  MUST(cuMemcpyDtoHAsync(pinned, small + 5, PART_BYTES, stream));
  MUST(cuStreamSynchronize(stream));
  expect_bytes(pinned, small_expected + 5, PART_BYTES);
}

/* From the large one to the small one, and from the small one to the large one. */
static void call_dtod(void) {
  MUST(cuMemcpyDtoD(small, large + 1000, PART_BYTES));
  memcpy(small_expected, large_expected + 1000, PART_BYTES);
}

static void call_dtod_async(void) {
  MUST(cuMemcpyDtoDAsync(large + 3, small, SMALL_BYTES, stream));
  to_large(small_expected, 3, SMALL_BYTES);
}

static void call_any(void) {
  MUST(cuMemcpy(large + LARGE_BYTES - SMALL_BYTES, small, SMALL_BYTES));
  to_large(small_expected, LARGE_BYTES - SMALL_BYTES, SMALL_BYTES);
}

static void call_any_async(void) {
  MUST(cuMemcpyAsync(small + 8, large + 9, PART_BYTES, stream));
  memcpy(small_expected + 8, large_expected + 9, PART_BYTES);
}

static void call_peer(void) {
  MUST(cuMemcpyPeer(large, gpu.context, small, gpu.context, SMALL_BYTES));
  to_large(small_expected, 0, SMALL_BYTES);
}

static void call_peer_async(void) {
  MUST(cuMemcpyPeerAsync(large + 4096, gpu.context, small, gpu.context, SMALL_BYTES, stream));
  to_large(small_expected, 4096, SMALL_BYTES);
}

/* ---- planes and boxes ---- */

static void rows_expected(const unsigned char *data, size_t at) {
  for (size_t row = 0; row < ROWS; row++)
    to_large(data + row * ROW_BYTES, at + row * PITCH_BYTES, ROW_BYTES);
}

static CUDA_MEMCPY2D plane_in(size_t at) {
  host_fill(pageable, ROW_BYTES * ROWS);
  rows_expected(pageable, at);
  return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                         .srcHost = pageable,
                         .srcPitch = ROW_BYTES,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = large + at,
                         .dstPitch = PITCH_BYTES,
                         .WidthInBytes = ROW_BYTES,
                         .Height = ROWS};
}

static void call_plane(void) {
  const CUDA_MEMCPY2D plane = plane_in(0);
  MUST(cuMemcpy2D(&plane));
}

static void call_plane_unaligned(void) {
  const CUDA_MEMCPY2D plane = plane_in(13);
  MUST(cuMemcpy2DUnaligned(&plane));
}

static void call_plane_async(void) {
  const CUDA_MEMCPY2D plane = plane_in(LARGE_BYTES / 2);
  MUST(cuMemcpy2DAsync(&plane, stream));
}

static CUDA_MEMCPY3D box_in(size_t at) {
  host_fill(pageable, ROW_BYTES * ROWS);
  rows_expected(pageable, at);
  return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                         .srcHost = pageable,
                         .srcPitch = ROW_BYTES,
                         .srcHeight = ROWS,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = large + at,
                         .dstPitch = PITCH_BYTES,
                         .dstHeight = ROWS,
                         .WidthInBytes = ROW_BYTES,
                         .Height = ROWS,
                         .Depth = 1};
}

static void call_box(void) {
  const CUDA_MEMCPY3D box = box_in(PITCH_BYTES);
  MUST(cuMemcpy3D(&box));
}

static void call_box_async(void) {
  const CUDA_MEMCPY3D box = box_in(4 * PITCH_BYTES);
  MUST(cuMemcpy3DAsync(&box, stream));
}

/* ---- sets ---- */

static void set_expected(size_t at, size_t bytes, const void *element, size_t element_bytes) {
  for (size_t i = 0; i < bytes; i++)
    large_expected[at + i] = ((const unsigned char *)element)[i % element_bytes];
}

#define SET(name, call, at, type, value, count)                                                              \
  static void call_##name(void) {                                                                            \
    const type element = value;                                                                              \
    MUST(call);                                                                                              \
    set_expected(at, (count) * sizeof element, &element, sizeof element);                                    \
  }

SET(set_8, cuMemsetD8(large + 3, element, 100), 3, unsigned char, 0x5a, 100)
SET(set_16, cuMemsetD16(large + 10, element, 200), 10, unsigned short, 0x1234, 200)
SET(set_32, cuMemsetD32(large + 64, element, 300), 64, unsigned, 0x89abcdef, 300)
SET(set_8_async, cuMemsetD8Async(large + 33, element, 100, stream), 33, unsigned char, 0xa5, 100)
SET(set_16_async, cuMemsetD16Async(large + 512, element, 200, stream), 512, unsigned short, 0x4321, 200)
SET(set_32_async, cuMemsetD32Async(large + 1024, element, 300, stream), 1024, unsigned, 0xfedcba98, 300)

#define SET_ROWS(name, call, at, type, value)                                                                \
  static void call_##name(void) {                                                                            \
    const type element = value;                                                                              \
    MUST(call);                                                                                              \
    for (size_t row = 0; row < ROWS; row++)                                                                  \
      set_expected((at) + row * PITCH_BYTES, 20 * sizeof element, &element, sizeof element);                 \
  }

SET_ROWS(set_rows_8, cuMemsetD2D8(large, PITCH_BYTES, element, 20, ROWS), 0, unsigned char, 1)
SET_ROWS(set_rows_16, cuMemsetD2D16(large, PITCH_BYTES, element, 20, ROWS), 0, unsigned short, 0x203)
SET_ROWS(set_rows_32, cuMemsetD2D32(large, PITCH_BYTES, element, 20, ROWS), 0, unsigned, 0x4050607)
SET_ROWS(set_rows_8_async, cuMemsetD2D8Async(large, PITCH_BYTES, element, 20, ROWS, stream), 0, unsigned char,
         9)
SET_ROWS(set_rows_16_async, cuMemsetD2D16Async(large, PITCH_BYTES, element, 20, ROWS, stream), 0,
         unsigned short, 0x8899)
SET_ROWS(set_rows_32_async, cuMemsetD2D32Async(large, PITCH_BYTES, element, 20, ROWS, stream), 0, unsigned,
         0x12131415)

/* ---- kernels, graphs ---- */

static void add_expected(size_t at, size_t words, uint64_t delta) {
  for (size_t i = 0; i < words; i++) {
    uint64_t word;
    memcpy(&word, large_expected + at + i * 8, 8);
    word += delta;
    memcpy(large_expected + at + i * 8, &word, 8);
  }
}

static void call_kernel(void) {
  gpu_add(&gpu, stream, large, LARGE_BYTES / 8, 12345);
  add_expected(0, LARGE_BYTES / 8, 12345);
}

static void call_kernel_cooperative(void) {
  uint64_t at = large + 8, words = 1000, delta = 7;
  MUST(cuLaunchCooperativeKernel(gpu.add, 4, 1, 1, 256, 1, 1, 0, stream, (void *[]){&at, &words, &delta}));
  add_expected(8, words, delta);
}

static void call_kernel_configured(void) {
  uint64_t at = large + 800, words = 500000, delta = 99;
  const CUlaunchConfig config = {.gridDimX = 64,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 256,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .hStream = stream};
  MUST(cuLaunchKernelEx(&config, gpu.add, (void *[]){&at, &words, &delta}, NULL));
  add_expected(800, words, delta);
}

/* What both graphs do. */
static void graph_expected(void) {
  set_expected(2048, 100, "\x11", 1);
  memcpy(small_expected, large_expected + 2000, PART_BYTES);
}

static CUgraphExec graph_take(CUgraph graph) {
  CUgraphExec exec;
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  return exec;
}

static CUgraphExec graph_capture(void) {
  CUgraph graph;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(cuMemsetD8Async(large + 2048, 0x11, 100, stream));
  MUST(cuMemcpyDtoDAsync(small, large + 2000, PART_BYTES, stream));
  MUST(cuStreamEndCapture(stream, &graph));
  return graph_take(graph);
}

static CUgraphExec graph_build(void) {
  const CUDA_MEMSET_NODE_PARAMS set = {
      .dst = large + 2048, .value = 0x11, .elementSize = 1, .width = 100, .height = 1};
  const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = large + 2000,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = small,
                              .WidthInBytes = PART_BYTES,
                              .Height = 1,
                              .Depth = 1};
  CUgraph graph;
  CUgraphNode first, second;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuGraphAddMemsetNode(&first, graph, NULL, 0, &set, gpu.context));
  MUST(cuGraphAddMemcpyNode(&second, graph, &first, 1, &copy, gpu.context));
  return graph_take(graph);
}

static void graph_launch(CUgraphExec exec) {
  MUST(cuGraphLaunch(exec, stream));
  graph_expected();
}

static void call_graph_captured(void) { graph_launch(captured); }
static void call_graph_built(void) { graph_launch(built); }

static void call_capture(void) {
  CUgraphExec exec = graph_capture();
  graph_launch(exec);
  MUST(cuGraphExecDestroy(exec));
}

static void call_build(void) {
  CUgraphExec exec = graph_build();
  graph_launch(exec);
  MUST(cuGraphExecDestroy(exec));
}

/* ---- values ---- */

static void call_write_value(void) {
  const unsigned value = 0x600df00d;
  MUST(cuStreamWriteValue32(stream, large + 4, value, 0));
  to_large(&value, 4, sizeof value);
}

static void call_wait_value(void) {
  unsigned value;
  memcpy(&value, large_expected + 4, sizeof value);
  MUST(cuStreamWaitValue32(stream, large + 4, value, CU_STREAM_WAIT_VALUE_EQ));
}

/* ---- allocations ---- */

/* The memory is new when nothing of the process is on the card; it is right once the process may use it. */
static void call_alloc(void) {
  CUdeviceptr at = gpu_alloc(100000);
  gpu_fill(&gpu, stream, at, 100000, 5);
  MUST(cuStreamSynchronize(stream));
  gpu_verify(at, 100000, 5, 0);
  MUST(cuMemFree(at));
}

static void call_alloc_async(void) {
  CUdeviceptr at;
  MUST(cuMemAllocAsync(&at, 800000, stream));
  gpu_fill(&gpu, stream, at, 100000, 6);
  MUST(cuStreamSynchronize(stream));
  gpu_verify(at, 100000, 6, 0);
  MUST(cuMemFreeAsync(at, stream));
}

static void large_fill(uint64_t seed) {
  gpu_fill(&gpu, stream, large, LARGE_BYTES / 8, seed);
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemcpyDtoH(large_expected, large, LARGE_BYTES));
}

/* The graphs have its address: it must be the same, or they are made anew. */
static void call_free(void) {
  MUST(cuMemFree(large));
  MUST(cuGraphExecDestroy(captured));
  MUST(cuGraphExecDestroy(built));
  large = gpu_alloc(LARGE_BYTES / 8);
  large_fill(8);
  captured = graph_capture();
  built = graph_build();
}

/* ---- all of them ---- */

#define FIRST(name)                                                                                          \
  { #name, call_##name }

static const struct call {
  const char *name;
  void (*make)(void);
} calls[] = {
    FIRST(htod),
    FIRST(htod_async),
    FIRST(dtoh),
    FIRST(dtoh_async),
    FIRST(dtod),
    FIRST(dtod_async),
    FIRST(any),
    FIRST(any_async),
    FIRST(peer),
    FIRST(peer_async),
    FIRST(plane),
    FIRST(plane_unaligned),
    FIRST(plane_async),
    FIRST(box),
    FIRST(box_async),
    FIRST(set_8),
    FIRST(set_16),
    FIRST(set_32),
    FIRST(set_8_async),
    FIRST(set_16_async),
    FIRST(set_32_async),
    FIRST(set_rows_8),
    FIRST(set_rows_16),
    FIRST(set_rows_32),
    FIRST(set_rows_8_async),
    FIRST(set_rows_16_async),
    FIRST(set_rows_32_async),
    FIRST(kernel),
    FIRST(kernel_cooperative),
    FIRST(kernel_configured),
    FIRST(graph_captured),
    FIRST(graph_built),
    FIRST(capture),
    FIRST(build),
    FIRST(write_value),
    FIRST(wait_value),
    FIRST(alloc),
    FIRST(alloc_async),
    FIRST(free),
};
enum { COUNT = sizeof calls / sizeof *calls };

static void verify(void) {
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemcpyDtoH(seen, large, LARGE_BYTES));
  expect_bytes(seen, large_expected, LARGE_BYTES);
  MUST(cuMemcpyDtoH(seen, small, SMALL_BYTES));
  expect_bytes(seen, small_expected, SMALL_BYTES);
}

static void begin(void) {
  gpu_start(&gpu, 0);
  stream = gpu_stream();
  large_expected = malloc(LARGE_BYTES);
  small_expected = malloc(SMALL_BYTES);
  seen = malloc(LARGE_BYTES);
  if (!large_expected || !small_expected || !seen)
    gpu_must(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
  MUST(cuMemAllocHost((void **)&pinned, SMALL_BYTES));
  small = gpu_alloc(SMALL_BYTES / 8);
  large = gpu_alloc(LARGE_BYTES / 8);
  host_fill(small_expected, SMALL_BYTES);
  MUST(cuMemcpyHtoD(small, small_expected, SMALL_BYTES));
  large_fill(7);
  captured = graph_capture();
  built = graph_build();
}

/* What the device's pool keeps without use. */
static unsigned long long kept_bytes(void) {
  CUmemoryPool pool;
  cuuint64_t reserved, used;
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  return reserved - used;
}

int main(void) {
  char line[64];
  begin();
  printf("ready %d\n", COUNT);
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    const struct call *call = &calls[atoi(line) % COUNT];
    call->make();
    verify();
    printf("done %llu %s\n", kept_bytes(), call->name);
    fflush(stdout);
  }
  verify();
  gpu_say("ok");
  return 0;
}
