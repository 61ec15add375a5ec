/*
 * pinner.c - allocates memory that can't leave the card. usage: pinner BYTES
 *
 * Uses so much memory that can leave, says "ready", and makes for each line "array BYTES" an array, for each
 * "create BYTES" physical memory for sparse arrays, for "share" some that is exported, for "pool" some of a
 * pool for export, for "graph" that of a launch, and says "done"; for each "try BYTES" physical memory for
 * sparse arrays, and says "had" or "refused". For "free 0" it says "free BYTES", which it could have as the
 * driver tells. At the end of its input it checks what could leave and says "ok".
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define SEED 3

static void make_array(size_t bytes) {
  CUDA_ARRAY_DESCRIPTOR shape = {
      .Width = bytes / sizeof(float), .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUarray array;
  MUST(cuArrayCreate(&array, &shape));
}

static bool try(size_t bytes) {
  CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .allocFlags = {.usage = CU_MEM_CREATE_USAGE_TILE_POOL},
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUmemGenericAllocationHandle handle;
  CUresult result = cuMemCreate(&handle, bytes, &kind, 0);
  if (result != CUDA_ERROR_OUT_OF_MEMORY)
    gpu_must(result, "cuMemCreate");
  return result == CUDA_SUCCESS;
}

static void share(size_t bytes) {
  CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUmemGenericAllocationHandle handle;
  int fd;
  MUST(cuMemCreate(&handle, bytes, &kind, 0));
  MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

static void take_from_pool(size_t bytes) {
  CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUmemoryPool pool;
  CUdeviceptr at;
  MUST(cuMemPoolCreate(&pool, &properties));
  MUST(cuMemAllocFromPoolAsync(&at, bytes, pool, NULL));
}

static void launch_graph(size_t bytes) {
  CUstream stream = gpu_stream();
  CUgraphExec exec;
  CUgraph graph;
  CUdeviceptr at;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(cuMemAllocAsync(&at, bytes, stream));
  MUST(cuStreamEndCapture(stream, &graph));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, stream));
}

static void say_free(void) {
  char line[32];
  size_t free_bytes, total_bytes;
  MUST(cuMemGetInfo(&free_bytes, &total_bytes));
  snprintf(line, sizeof line, "free %zu", free_bytes);
  gpu_say(line);
}

/* False: it can't. */
static bool obey(const char *what, size_t bytes) {
  static const struct {
    const char *what;
    void (*make)(size_t bytes);
  } kinds[] = {{"array", make_array}, {"share", share}, {"pool", take_from_pool}, {"graph", launch_graph}};
  bool done = strcmp(what, "create") == 0;
  if (done && !try(bytes))
    return false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !done; i++)
    if ((done = strcmp(what, kinds[i].what) == 0))
      kinds[i].make(bytes);
  if (done)
    gpu_say("done");
  else if (strcmp(what, "try") == 0)
    gpu_say(try(bytes) ? "had" : "refused");
  else
    say_free();
  return true;
}

int main(int argc, char **argv) {
  struct gpu gpu;
  char line[64], what[16];
  size_t bytes;
  if (argc != 2)
    return 2;
  uint64_t words = strtoull(argv[1], NULL, 0) / sizeof(uint64_t);
  gpu_start(&gpu, 0);
  CUdeviceptr at = gpu_alloc(words);
  gpu_fill(&gpu, NULL, at, words, SEED);
  MUST(cuCtxSynchronize());
  gpu_say("ready");
  while (fgets(line, sizeof line, stdin) && sscanf(line, "%15s %zu", what, &bytes) == 2 && obey(what, bytes))
    ;
  gpu_verify(at, words, SEED, 0);
  gpu_say("ok");
  return 0;
}
