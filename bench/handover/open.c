/* open.c - a context on the first card with the test kernels; launches of them. */
#include "probe.h"

#include <string.h>

/* The kernels as PTX, in the program itself. */
__asm__(".pushsection .rodata\n"
        "gs_kernels_text: .incbin \"" GS_KERNELS_PTX "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char gs_kernels_text[] __attribute__((visibility("hidden")));

enum { GRID = 1024, BLOCK = 256 };

const char *result_name(CUresult result) {
  static _Thread_local char number[16];
  const char *name = NULL;
  if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
    return strncmp(name, "CUDA_", 5) == 0 ? name + 5 : name;
  snprintf(number, sizeof(number), "%d", (int)result);
  return number;
}

CUresult probe_try(const char *what, CUresult result) {
  if (result != CUDA_SUCCESS)
    printf("  FAILED %.90s: %s\n", what, result_name(result));
  return result;
}

static CUresult launch(CUkernel kernel, unsigned grid, unsigned block, CUstream stream, void **args) {
  return cuLaunchKernel((CUfunction)kernel, grid, 1, 1, block, 1, 1, 0, stream, args, NULL);
}

CUresult launch_empty(const struct probe *p, CUstream stream) { return launch(p->empty, 1, 1, stream, NULL); }

CUresult launch_words(CUkernel kernel, CUdeviceptr at, size_t bytes, uint64_t value, CUstream stream) {
  uint64_t words = bytes / 8;
  return launch(kernel, GRID, BLOCK, stream, (void *[]){&at, &words, &value});
}

CUresult launch_fill(const struct probe *p, CUdeviceptr at, size_t bytes, CUstream stream) {
  return launch_words(p->fill, at, bytes, 0, stream);
}

CUresult launch_check(const struct probe *p, CUdeviceptr at, size_t bytes, uint64_t seed,
                      CUdeviceptr mismatches, CUstream stream) {
  uint64_t words = bytes / 8;
  return launch(p->check, GRID, BLOCK, stream, (void *[]){&at, &words, &seed, &mismatches});
}

CUresult launch_spin(const struct probe *p, uint64_t ns, CUstream stream) {
  return launch(p->spin, 1, 1, stream, (void *[]){&ns});
}

CUresult launch_tick(const struct probe *p, CUdeviceptr at, uint64_t ns, CUstream stream) {
  return launch(p->tick, 1, 1, stream, (void *[]){&at, &ns});
}

static bool kernels_load(struct probe *p) {
  const struct {
    const char *name;
    CUkernel *kernel;
  } wanted[] = {{"gs_empty", &p->empty}, {"gs_fill", &p->fill}, {"gs_check", &p->check},
                {"gs_add", &p->add},     {"gs_spin", &p->spin}, {"gs_tick", &p->tick}};
  CUlibrary library;
  CUresult result = TRY(cuLibraryLoadData(&library, gs_kernels_text, NULL, NULL, 0, NULL, NULL, 0));
  for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && !result; i++)
    result = TRY(cuLibraryGetKernel(wanted[i].kernel, library, wanted[i].name));
  return result == CUDA_SUCCESS;
}

bool probe_open(struct probe *p) {
  if (TRY(cuInit(0)) || TRY(cuDeviceGet(&p->device, 0)) ||
      TRY(cuDevicePrimaryCtxRetain(&p->context, p->device)) || TRY(cuCtxSetCurrent(p->context)) ||
      !kernels_load(p) || TRY(cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING)))
    return false;
  launch_empty(p, p->stream);
  launch_spin(p, 1000, p->stream);
  return TRY(cuStreamSynchronize(p->stream)) == CUDA_SUCCESS;
}
