/*
 * launches.cu - fakert.h (what the runtime modes of tests/system need) as most CUDA programs are made:
 * kernels compiled in by nvcc and launched with <<<>>>.
 */
#include <string.h>

#include "kernels.cu"

extern "C" {
#include "system/fakert.h"
}

extern "C" int frt_malloc(void **address, size_t bytes) { return cudaMalloc(address, bytes); }

extern "C" int frt_free(void *address) { return cudaFree(address); }

extern "C" int frt_memcpy(void *to, const void *from, size_t bytes, enum frt_copy kind) {
  return cudaMemcpy(to, from, bytes, kind == FRT_TO_HOST ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice);
}

template <typename T> static T parameter(void **parameters, int index) { return *(T *)parameters[index]; }

extern "C" int frt_launch(const char *kernel, unsigned blocks, unsigned threads, void **parameters) {
  uint64_t *words = parameter<uint64_t *>(parameters, 0);
  uint64_t count = parameter<uint64_t>(parameters, 1), value = parameter<uint64_t>(parameters, 2);
  if (strcmp(kernel, "gs_fill") == 0)
    gs_fill<<<blocks, threads>>>(words, count, value);
  else if (strcmp(kernel, "gs_add") == 0)
    gs_add<<<blocks, threads>>>(words, count, value);
  else if (strcmp(kernel, "gs_check") == 0)
    gs_check<<<blocks, threads>>>(words, count, value, parameter<uint64_t *>(parameters, 3));
  else
    return cudaErrorInvalidDeviceFunction;
  return cudaGetLastError();
}

extern "C" int frt_synchronize(void) { return cudaDeviceSynchronize(); }
