/*
 * cudart_runtime.c - fakert.h (what the runtime modes of tests/system need) on NVIDIA's runtime, without
 * nvcc: the kernels come from kernel_image() by cudaLibraryLoadData. Linked to libcudart, static or shared;
 * with -DCUDART_OPEN="libcudart.so.N" it opens the shared one itself.
 */
#include "system/fakert.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "system/kernel_image.h"

#define RUNTIME_FUNCTIONS(X)                                                                                 \
  X(cudaMalloc)                                                                                              \
  X(cudaFree)                                                                                                \
  X(cudaMemcpy)                                                                                              \
  X(cudaLibraryLoadData)                                                                                     \
  X(cudaLibraryGetKernel)                                                                                    \
  X(cudaLaunchKernel)                                                                                        \
  X(cudaDeviceSynchronize)

static struct {
  int error;
  cudaLibrary_t kernels;
#define X(function) __typeof__(&function) function;
  RUNTIME_FUNCTIONS(X)
#undef X
} rt;

#ifdef CUDART_OPEN
static int find_functions(void) {
  void *library = dlopen(CUDART_OPEN, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return cudaErrorInitializationError;
  }
  int missing = 0;
#define X(function) missing |= !(*(void **)&rt.function = dlsym(library, #function));
  RUNTIME_FUNCTIONS(X)
#undef X
  return missing ? cudaErrorInitializationError : 0;
}
#else
static int find_functions(void) {
#define X(function) rt.function = function;
  RUNTIME_FUNCTIONS(X)
#undef X
  return 0;
}
#endif

static void open_once(void) {
  rt.error = find_functions();
  if (!rt.error)
    rt.error = (int)rt.cudaLibraryLoadData(&rt.kernels, kernel_image(), NULL, NULL, 0, NULL, NULL, 0);
}

static int ready(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_once);
  return rt.error;
}

int frt_malloc(void **address, size_t bytes) {
  int error = ready();
  return error ? error : (int)rt.cudaMalloc(address, bytes);
}

int frt_free(void *address) {
  int error = ready();
  return error ? error : (int)rt.cudaFree(address);
}

int frt_memcpy(void *to, const void *from, size_t bytes, enum frt_copy kind) {
  int error = ready();
  return error ? error
               : (int)rt.cudaMemcpy(to, from, bytes,
                                    kind == FRT_TO_HOST ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice);
}

int frt_launch(const char *kernel, unsigned blocks, unsigned threads, void **parameters) {
  cudaKernel_t found;
  int error = ready();
  if (!error)
    error = (int)rt.cudaLibraryGetKernel(&found, rt.kernels, kernel);
  return error ? error
               : (int)rt.cudaLaunchKernel((const void *)found, (dim3){blocks, 1, 1}, (dim3){threads, 1, 1},
                                          parameters, 0, NULL);
}

int frt_synchronize(void) {
  int error = ready();
  return error ? error : (int)rt.cudaDeviceSynchronize();
}
