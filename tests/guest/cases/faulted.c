/* faulted.c - a kernel has a fault while memory, streams, events and a graph are there. Every call after it
 * is answered as natively; the context is torn down, and what can be is made anew. */
#include <stdio.h>
#include <stdlib.h>

#include "guest.h"

#define WORDS 1024

static struct gpu gpu;
static CUstream stream;

static void fault(void) {
  CUdeviceptr wild = 4096;
  uint64_t words = 8, seed = 1;
  say("launch %s", result_name(cuLaunchKernel(gpu.fill, 1, 1, 1, 32, 1, 1, 0, stream,
                                              (void *[]){&wild, &words, &seed}, NULL)));
  say("wait %s", result_name(cuCtxSynchronize()));
}

#define SAY(call) say("%s %s", #call, result_name(call))

static void go_on(CUdeviceptr memory, CUdeviceptr pooled, CUevent event, void *host) {
  CUdeviceptr more;
  CUstream another;
  size_t free_bytes, total_bytes;
  uint64_t words[8];
  CUcontext current;
  SAY(cuCtxGetCurrent(&current));
  SAY(cuMemAlloc(&more, 4096));
  SAY(cuMemAllocManaged(&more, 4096, CU_MEM_ATTACH_GLOBAL));
  SAY(cuMemAllocAsync(&more, 4096, stream));
  SAY(cuMemcpyDtoH(words, memory, sizeof words));
  SAY(cuMemcpyHtoDAsync(memory, words, sizeof words, stream));
  SAY(cuMemsetD8(memory, 0, 64));
  SAY(cuMemGetInfo(&free_bytes, &total_bytes));
  SAY(cuStreamCreate(&another, CU_STREAM_NON_BLOCKING));
  SAY(cuStreamSynchronize(stream));
  SAY(cuStreamQuery(stream));
  SAY(cuEventRecord(event, stream));
  SAY(cuEventQuery(event));
  SAY(cuEventDestroy(event));
  SAY(cuMemFreeAsync(pooled, stream));
  SAY(cuMemFree(memory));
  SAY(cuMemFreeHost(host));
  SAY(cuStreamDestroy(stream));
}

static void play(void) {
  CUdeviceptr memory = gpu_alloc(WORDS), pooled;
  CUevent event;
  void *host;
  stream = gpu_stream();
  MUST(cuMemAllocAsync(&pooled, 4096, stream));
  MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
  MUST(cuMemAllocHost(&host, 4096));
  gpu_fill(&gpu, stream, memory, WORDS, 1);
  MUST(cuEventRecord(event, stream));
  MUST(cuStreamSynchronize(stream));
  gpu_verify(memory, WORDS, 1, 0);
  fault();
  go_on(memory, pooled, event, host);
}

int main(void) {
  CUcontext context;
  unsigned flags;
  int active;
  gpu_start(&gpu, 0);
  for (int round = 0; round < 3; round++) {
    play();
    if (round == 1)
      SAY(cuDevicePrimaryCtxReset(0));
    else
      SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
    say("active %d", active);
    CUresult again = cuDevicePrimaryCtxRetain(&context, 0);
    say("again %s", result_name(again));
    if (again != CUDA_SUCCESS)
      break;
    gpu_start(&gpu, 0);
    use_gpu(&gpu);
    MUST(cuDevicePrimaryCtxRelease(0));
  }
  say("ok");
  return 0;
}
