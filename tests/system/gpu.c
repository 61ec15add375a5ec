/* gpu.c - see gpu.h. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernel_image.h"
#include "sim/kernels.h"

#define BLOCK_THREADS 256

void gpu_must(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS)
    return;
  printf("error %s: %d\n", call, (int)result);
  fflush(stdout);
  fprintf(stderr, "%s: %d\n", call, (int)result);
  exit(1);
}

void gpu_start(struct gpu *gpu, int device) {
  CUmodule module;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&gpu->context, device));
  MUST(cuCtxSetCurrent(gpu->context));
  MUST(cuModuleLoadData(&module, kernel_image()));
  MUST(cuModuleGetFunction(&gpu->fill, module, "gs_fill"));
  MUST(cuModuleGetFunction(&gpu->add, module, "gs_add"));
  MUST(cuModuleGetFunction(&gpu->spin, module, "gs_spin"));
}

CUdeviceptr gpu_alloc(uint64_t words) {
  CUdeviceptr at;
  MUST(cuMemAlloc(&at, words * sizeof(uint64_t)));
  return at;
}

CUstream gpu_stream(void) {
  CUstream stream;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

static void launch(CUfunction function, CUstream stream, uint64_t words, void **parameters) {
  unsigned blocks = (unsigned)((words + BLOCK_THREADS - 1) / BLOCK_THREADS);
  MUST(cuLaunchKernel(function, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, parameters, NULL));
}

void gpu_fill(const struct gpu *gpu, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t seed) {
  launch(gpu->fill, stream, words, (void *[]){&at, &words, &seed});
}

void gpu_add(const struct gpu *gpu, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t delta) {
  launch(gpu->add, stream, words, (void *[]){&at, &words, &delta});
}

void gpu_spin(const struct gpu *gpu, CUstream stream, uint64_t ns) {
  MUST(cuLaunchKernel(gpu->spin, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&ns}, NULL));
}

void gpu_verify(CUdeviceptr at, uint64_t words, uint64_t seed, uint64_t added) {
  uint64_t *host = malloc(words * sizeof *host), wrong = 0;
  if (!host)
    gpu_must(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
  MUST(cuMemcpyDtoH(host, at, words * sizeof *host));
  for (uint64_t i = 0; i < words; i++)
    wrong += host[i] != gs_hash(seed, i) + added;
  free(host);
  if (wrong)
    gpu_must(CUDA_ERROR_UNKNOWN, "the words are not what they should be");
}

CUresult gpu_create(CUmemGenericAllocationHandle *handle, uint64_t bytes) {
  const CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  return cuMemCreate(handle, bytes, &kind, 0);
}

CUdeviceptr gpu_map(CUmemGenericAllocationHandle handle, uint64_t bytes) {
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr at;
  MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
  MUST(cuMemMap(at, bytes, 0, handle, 0));
  MUST(cuMemSetAccess(at, bytes, &access, 1));
  return at;
}

void gpu_verify_exported(CUmemGenericAllocationHandle handle, uint64_t words, uint64_t seed, uint64_t added) {
  CUmemGenericAllocationHandle imported;
  uint64_t bytes = words * sizeof(uint64_t);
  int fd;
  MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  MUST(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CUdeviceptr at = gpu_map(imported, bytes);
  gpu_verify(at, words, seed, added);
  MUST(cuMemUnmap(at, bytes));
  MUST(cuMemAddressFree(at, bytes));
  MUST(cuMemRelease(imported));
}

void gpu_say(const char *line) {
  printf("%s\n", line);
  fflush(stdout);
}

void gpu_await_line(void) {
  char line[64];
  if (!fgets(line, sizeof line, stdin))
    exit(3);
}
