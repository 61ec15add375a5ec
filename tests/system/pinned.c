/*
 * pinned.c - allocates memory, mostly such that can't leave the card, and frees it, again and again.
 * usage: pinned KIND BYTES TRIES
 *
 * KIND: create (cuMemCreate, mapped: that can leave), tiles (the same for sparse arrays, which can't), array,
 * alloc (cuMemAlloc: can't leave under GPUSHARE_MEMORY=off), pitch (likewise), pool (a pool for export, which
 * stays as it is), keep (likewise; it gives nothing back by itself), stream (cuMemAllocAsync), graph (the
 * launches of a graph that allocates). Each try writes all of it and checks it, but for arrays. Says "try N"
 * after each, and at the end how many were "refused N", and "ok". A driver's answer other than success and
 * CUDA_ERROR_OUT_OF_MEMORY is an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/parse.h"
#include "gpu.h"

static struct gpu gpu;
static CUmemoryPool pool;
static uint64_t bytes, tries, seed;

/* False: refused. */
static int got(CUresult result, const char *call) {
  if (result != CUDA_ERROR_OUT_OF_MEMORY)
    gpu_must(result, call);
  return result == CUDA_SUCCESS;
}
#define GOT(call) got(call, #call)

static void use(CUdeviceptr at) {
  uint64_t words = bytes / sizeof(uint64_t);
  gpu_fill(&gpu, NULL, at, words, ++seed);
  gpu_verify(at, words, seed, 0);
}

static int try_physical(unsigned short usage) {
  CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .allocFlags = {.usage = usage},
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUmemAccessDesc access = {.location = kind.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  if (!GOT(cuMemCreate(&handle, bytes, &kind, 0)))
    return 0;
  MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
  MUST(cuMemMap(at, bytes, 0, handle, 0));
  MUST(cuMemSetAccess(at, bytes, &access, 1));
  use(at);
  MUST(cuMemUnmap(at, bytes));
  MUST(cuMemRelease(handle));
  MUST(cuMemAddressFree(at, bytes));
  return 1;
}

static int try_create(void) { return try_physical(0); }
static int try_tiles(void) { return try_physical(CU_MEM_CREATE_USAGE_TILE_POOL); }

static int try_array(void) {
  CUDA_ARRAY_DESCRIPTOR shape = {
      .Width = 1024, .Height = bytes / 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUarray array;
  if (!GOT(cuArrayCreate(&array, &shape)))
    return 0;
  MUST(cuArrayDestroy(array));
  return 1;
}

static int try_alloc(void) {
  CUdeviceptr at;
  if (!GOT(cuMemAlloc(&at, bytes)))
    return 0;
  use(at);
  MUST(cuMemFree(at));
  return 1;
}

static int try_pitch(void) {
  CUdeviceptr at;
  size_t pitch;
  if (!GOT(cuMemAllocPitch(&at, &pitch, 4096, bytes / 4096, 4)))
    return 0;
  use(at);
  MUST(cuMemFree(at));
  return 1;
}

static int try_pool_keeping(cuuint64_t threshold) {
  CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUdeviceptr at;
  if (!pool) {
    MUST(cuMemPoolCreate(&pool, &properties));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  }
  if (!GOT(cuMemAllocFromPoolAsync(&at, bytes, pool, NULL)))
    return 0;
  use(at);
  MUST(cuMemFreeAsync(at, NULL));
  MUST(cuStreamSynchronize(NULL));
  return 1;
}

static int try_pool(void) { return try_pool_keeping(0); }
static int try_keep(void) { return try_pool_keeping(UINT64_MAX); }

static int try_graph(void) {
  static CUgraphExec exec;
  static CUstream stream;
  CUdeviceptr at;
  CUgraph graph;
  if (!exec) {
    stream = gpu_stream();
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    MUST(cuMemAllocAsync(&at, bytes, stream));
    gpu_fill(&gpu, stream, at, bytes / sizeof(uint64_t), 1);
    MUST(cuMemFreeAsync(at, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiate(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
  }
  if (!GOT(cuGraphLaunch(exec, stream)))
    return 0;
  MUST(cuStreamSynchronize(stream));
  return 1;
}

static int try_stream(void) {
  CUdeviceptr at;
  if (!GOT(cuMemAllocAsync(&at, bytes, NULL)))
    return 0;
  use(at);
  MUST(cuMemFreeAsync(at, NULL));
  MUST(cuStreamSynchronize(NULL));
  return 1;
}

static const struct kind {
  const char *name;
  int (*try)(void);
} kinds[] = {{"create", try_create}, {"tiles", try_tiles}, {"array", try_array},
             {"alloc", try_alloc},   {"pitch", try_pitch}, {"pool", try_pool},
             {"stream", try_stream}, {"keep", try_keep},   {"graph", try_graph}};

int main(int argc, char **argv) {
  char line[64];
  uint64_t refused = 0;
  const struct kind *kind = kinds, *end = kinds + sizeof kinds / sizeof *kinds;
  if (argc != 4 || parse_bytes(argv[2], &bytes) != 0)
    return 2;
  while (kind < end && strcmp(kind->name, argv[1]) != 0)
    kind++;
  if (kind == end)
    return 2;
  tries = strtoull(argv[3], NULL, 0);
  gpu_start(&gpu, 0);
  uint64_t most_bytes = bytes;
  for (uint64_t i = 1; i <= tries; i++) {
    bytes = most_bytes >> i % 4;
    refused += !kind->try();
    snprintf(line, sizeof line, "try %llu", (unsigned long long)i);
    gpu_say(line);
  }
  snprintf(line, sizeof line, "refused %llu", (unsigned long long)refused);
  gpu_say(line);
  while (getchar() != EOF) /* what it keeps it keeps */
    ;
  gpu_say("ok");
  return 0;
}
