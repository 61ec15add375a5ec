/* program.c - see program.h. */
#include "program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/kernels.h"
#include "system/kernel_image.h"

#define BLOCK_THREADS 256
#define BLOCKS_MAX 4096

_Noreturn void fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  printf("error ");
  vprintf(format, list);
  printf("\n");
  fflush(stdout);
  va_end(list);
  _Exit(1); /* other threads may be inside the driver */
}

void must_(CUresult result, const char *what) {
  const char *name = "?";
  if (result == CUDA_SUCCESS)
    return;
  cuGetErrorName(result, &name);
  fail("%.100s: %s (%d)", what, name, (int)result);
}

void program_say(const char *text) {
  printf("%s\n", text);
  fflush(stdout);
}

void program_await_line(void) {
  char line[64];
  if (!fgets(line, sizeof line, stdin))
    fail("stdin has ended");
}

CUdevice program_start(CUcontext *context) {
  CUdevice device;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(context, device));
  MUST(cuCtxSetCurrent(*context));
  return device;
}

CUcontext context_create(CUdevice device) {
  CUcontext context;
#if CUDA_VERSION >= 13000
  MUST(cuCtxCreate(&context, NULL, 0, device));
#else
  MUST(cuCtxCreate(&context, 0, device));
#endif
  return context;
}

struct kernels kernels_load(void) {
  CUmodule module;
  struct kernels k;
  MUST(cuModuleLoadData(&module, kernel_image()));
  MUST(cuModuleGetFunction(&k.fill, module, "gs_fill"));
  MUST(cuModuleGetFunction(&k.check, module, "gs_check"));
  MUST(cuModuleGetFunction(&k.add, module, "gs_add"));
  MUST(cuModuleGetFunction(&k.spin, module, "gs_spin"));
  return k;
}

static void launch_blocks(CUfunction function, CUstream stream, unsigned blocks, void **parameters) {
  MUST(cuLaunchKernel(function, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, parameters, NULL));
}

static void launch(CUfunction function, CUstream stream, uint64_t words, void **parameters) {
  uint64_t blocks = (words + BLOCK_THREADS - 1) / BLOCK_THREADS;
  launch_blocks(function, stream, blocks > BLOCKS_MAX ? BLOCKS_MAX : (unsigned)blocks, parameters);
}

void launch_fill(const struct kernels *k, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t seed) {
  launch(k->fill, stream, words, (void *[]){&at, &words, &seed});
}

void launch_fill_slowly(const struct kernels *k, CUstream stream, CUdeviceptr at, uint64_t words,
                        uint64_t seed) {
  launch_blocks(k->fill, stream, 1, (void *[]){&at, &words, &seed});
}

void launch_add(const struct kernels *k, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t delta) {
  launch(k->add, stream, words, (void *[]){&at, &words, &delta});
}

void launch_check(const struct kernels *k, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t seed,
                  CUdeviceptr mismatches) {
  launch(k->check, stream, words, (void *[]){&at, &words, &seed, &mismatches});
}

void launch_spin(const struct kernels *k, CUstream stream, uint64_t ns) {
  MUST(cuLaunchKernel(k->spin, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&ns}, NULL));
}

uint64_t wrong_words(CUstream stream, CUdeviceptr at, uint64_t words, uint64_t seed, uint64_t added) {
  uint64_t wrong = 0, *host = malloc(words * sizeof *host);
  if (!host)
    fail("no host memory");
  MUST(cuMemcpyDtoHAsync(host, at, words * sizeof *host, stream));
  MUST(cuStreamSynchronize(stream));
  for (uint64_t i = 0; i < words; i++)
    wrong += host[i] != gs_hash(seed, i) + added;
  free(host);
  return wrong;
}

uint64_t argument(int argc, char **argv, int index, uint64_t otherwise) {
  return index < argc ? strtoull(argv[index], NULL, 0) : otherwise;
}
