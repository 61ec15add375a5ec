/* refused_ends.c - the driver refuses to end contexts, once each: they are there still, with all that is in
 * them. */
#include <stdlib.h>

#include "guest.h"

#include "system/kernel_image.h"

#define WORDS 4096

static struct gpu gpu;

static CUdeviceptr filled(CUfunction fill) {
  CUdeviceptr at = gpu_alloc(WORDS);
  uint64_t words = WORDS, seed = 1;
  MUST(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&at, &words, &seed}, NULL));
  return at;
}

static void made_by_hand(void) {
  CUcontext context;
  CUmodule module;
  CUfunction fill;
#if CUDA_VERSION >= 13000
  MUST(cuCtxCreate(&context, NULL, 0, 0));
#else
  MUST(cuCtxCreate(&context, 0, 0));
#endif
  MUST(cuModuleLoadData(&module, kernel_image()));
  MUST(cuModuleGetFunction(&fill, module, "gs_fill"));
  CUdeviceptr at = filled(fill);
  say("destroy %s", result_name(cuCtxDestroy(context)));
  gpu_verify(at, WORDS, 1, 0);
  MUST(cuMemFree(at));
  at = filled(fill);
  gpu_verify(at, WORDS, 1, 0);
  say("destroy %s", result_name(cuCtxDestroy(context)));
  say("destroy again %s", result_name(cuCtxDestroy(context)));
}

static void primary(void) {
  gpu_start(&gpu, 0);
  CUdeviceptr at = filled(gpu.fill);
  say("reset %s", result_name(cuDevicePrimaryCtxReset(0)));
  gpu_verify(at, WORDS, 1, 0);
  say("release %s", result_name(cuDevicePrimaryCtxRelease(0)));
  gpu_verify(at, WORDS, 1, 0);
  MUST(cuMemFree(at));
  use_gpu(&gpu);
  say("release %s", result_name(cuDevicePrimaryCtxRelease(0)));
}

int main(void) {
  setenv("GPUSHARE_SIM_FAIL",
         "cuCtxDestroy_v2:1:999,cuDevicePrimaryCtxRelease_v2:1:999,cuDevicePrimaryCtxReset_v2:1:999", 1);
  MUST(cuInit(0));
  made_by_hand();
  primary();
  say("ok");
  return 0;
}
