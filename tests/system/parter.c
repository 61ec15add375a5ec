/*
 * parter.c - parts from a context while its memory moves. usage: parter created|green BYTES
 * (77: these headers have no green ones).
 *
 * Its first context is one that it creates, or a green one; then comes the primary one, which has the memory
 * that must survive. Some more is allocated in the first context. Says "ready"; at each line the next of:
 * destroys the first context and says "parted"; checks all memory that must be there still and says "ok".
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define SEED 3

#if CUDA_VERSION >= 12050
static CUgreenCtx green;

static CUcontext make_green(void) {
  CUdevResource all;
  CUdevResourceDesc description;
  CUcontext context;
  MUST(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  MUST(cuDevResourceGenerateDesc(&description, &all, 1));
  MUST(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  MUST(cuCtxFromGreenCtx(&context, green));
  return context;
}

static void end_green(void) { MUST(cuGreenCtxDestroy(green)); }
#else
static CUcontext make_green(void) { exit(77); }
static void end_green(void) {}
#endif

static CUcontext make_created(void) {
  CUcontext context;
#if CUDA_VERSION >= 13000
  MUST(cuCtxCreate(&context, NULL, 0, 0));
#else
  MUST(cuCtxCreate(&context, 0, 0));
#endif
  MUST(cuCtxPopCurrent(NULL));
  return context;
}

static void end_first(CUcontext first, bool is_green) {
  if (is_green)
    end_green();
  else
    MUST(cuCtxDestroy(first));
}

static CUdeviceptr fill_in(const struct gpu *gpu, CUcontext context, uint64_t words) {
  MUST(cuCtxPushCurrent(context));
  CUdeviceptr at = gpu_alloc(words);
  MUST(cuCtxPopCurrent(NULL));
  gpu_fill(gpu, NULL, at, words, SEED);
  return at;
}

int main(int argc, char **argv) {
  struct gpu gpu;
  if (argc != 3)
    return 2;
  uint64_t words = strtoull(argv[2], NULL, 0) / sizeof(uint64_t);
  bool is_green = strcmp(argv[1], "green") == 0;
  MUST(cuInit(0));
  CUcontext first = is_green ? make_green() : make_created();
  gpu_start(&gpu, 0);
  CUdeviceptr at = fill_in(&gpu, gpu.context, words), other = fill_in(&gpu, first, words / 4);
  MUST(cuCtxSynchronize());
  gpu_say("ready");
  gpu_await_line();
  end_first(first, is_green);
  gpu_say("parted");
  gpu_await_line();
  gpu_verify(at, words, SEED, 0);
  if (is_green)
    gpu_verify(other, words / 4, SEED, 0);
  gpu_say("ok");
  return 0;
}
