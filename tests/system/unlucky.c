/*
 * unlucky.c - a program that uses what most do, and takes errors as they come: after a call that fails it
 * tears down what it has, and ends with 0. It says "failed CALL" then, else "worked". What succeeds must be
 * right: otherwise it ends with 5. usage: unlucky
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "kernel_image.h"
#include "sim/kernels.h"

#define WORDS (UINT64_C(1) << 19) /* 4 MiB */
#define SPINS 30                  /* of a millisecond: some quanta */

static CUcontext context;
static CUfunction fill, spin;
static CUstream stream;
static CUevent event;
static CUgraph graph;
static CUgraphExec exec;
static CUdeviceptr memory, pooled;
static uint64_t host[WORDS];

/* The result of a call that has failed ends the step. */
#define TRY(call)                                                                                            \
  do {                                                                                                       \
    if ((call) != CUDA_SUCCESS) {                                                                            \
      printf("failed %s\n", #call);                                                                          \
      return 0;                                                                                              \
    }                                                                                                        \
  } while (0)

static int begin(void) {
  CUmodule module;
  TRY(cuInit(0));
  TRY(cuDevicePrimaryCtxRetain(&context, 0));
  TRY(cuCtxSetCurrent(context));
  TRY(cuModuleLoadData(&module, kernel_image()));
  TRY(cuModuleGetFunction(&fill, module, "gs_fill"));
  TRY(cuModuleGetFunction(&spin, module, "gs_spin"));
  TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  TRY(cuEventCreate(&event, CU_EVENT_DEFAULT));
  return 1;
}

static int launch_fill(CUdeviceptr at, uint64_t words) {
  uint64_t seed = 1;
  TRY(cuLaunchKernel(fill, 64, 1, 1, 256, 1, 1, 0, stream, (void *[]){&at, &words, &seed}, NULL));
  return 1;
}

static void check(uint64_t words) {
  for (uint64_t i = 0; i < words; i++)
    if (host[i] != gs_hash(1, i)) {
      fprintf(stderr, "word %llu is wrong\n", (unsigned long long)i);
      exit(5);
    }
}

static int use(void) {
  uint64_t ns = 1000000;
  size_t free_bytes, total_bytes;
  TRY(cuMemGetInfo(&free_bytes, &total_bytes));
  TRY(cuMemAlloc(&memory, sizeof host));
  if (!launch_fill(memory, WORDS))
    return 0;
  for (int i = 0; i < SPINS; i++) {
    TRY(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&ns}, NULL));
    TRY(cuStreamSynchronize(stream));
  }
  memset(host, 0, sizeof host);
  TRY(cuMemcpyDtoH(host, memory, sizeof host));
  check(WORDS);
  TRY(cuMemAllocAsync(&pooled, 4096, stream));
  if (!launch_fill(pooled, 512))
    return 0;
  memset(host, 0, sizeof host);
  TRY(cuMemcpyDtoHAsync(host, pooled, 4096, stream));
  TRY(cuEventRecord(event, stream));
  TRY(cuEventSynchronize(event));
  check(512);
  return 1;
}

static int replay(void) {
  int recorded;
  TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  recorded = launch_fill(memory, WORDS / 2);
  TRY(cuStreamEndCapture(stream, &graph));
  if (!recorded)
    return 0;
  TRY(cuGraphInstantiateWithFlags(&exec, graph, 0));
  TRY(cuMemsetD8(memory, 0, sizeof host));
  TRY(cuCtxSynchronize());
  TRY(cuGraphLaunch(exec, stream));
  TRY(cuStreamSynchronize(stream));
  memset(host, 0, sizeof host);
  TRY(cuMemcpyDtoH(host, memory, sizeof host));
  check(WORDS / 2);
  return 1;
}

/* As far as it has got. Whether that succeeds is of no interest to it. */
static void end(void) {
  if (exec)
    cuGraphExecDestroy(exec);
  if (graph)
    cuGraphDestroy(graph);
  if (pooled)
    cuMemFreeAsync(pooled, stream);
  if (memory)
    cuMemFree(memory);
  if (event)
    cuEventDestroy(event);
  if (stream)
    cuStreamDestroy(stream);
  if (context)
    cuDevicePrimaryCtxRelease(0);
}

int main(void) {
  if (begin() && use() && replay())
    printf("worked\n");
  end();
  printf("ok\n");
  return 0;
}
