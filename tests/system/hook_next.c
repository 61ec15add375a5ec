/* hook_next.c - another preloaded library, such as a memory profiler: hooks one function and finds the next
 * one by RTLD_NEXT. Says at the end how many calls it saw. */
#include <dlfcn.h>
#include <stdio.h>

#include <cuda.h>

static int calls;

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t bytes) {
  static __typeof__(&cuMemAlloc) next;
  if (!next)
    *(void **)&next = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
  calls++;
  return next ? next(address, bytes) : CUDA_ERROR_NOT_FOUND;
}

__attribute__((destructor)) static void report(void) { fprintf(stderr, "hook_next saw %d calls\n", calls); }
