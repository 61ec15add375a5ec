/*
 * mode_runtime.c - the program uses a runtime library (fakert). Linking modes by definition:
 *   (none)             3 and 4: linked to it, static or shared
 *   -DMODE_OPEN        5: the runtime by dlopen
 *   -DMODE_OPEN_BOTH   6: runtime and driver by dlopen, both used
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include <cuda.h>

#include "device.h"
#include "fakert.h"

#if defined(MODE_OPEN) || defined(MODE_OPEN_BOTH)
static struct {
  __typeof__(&frt_malloc) malloc;
  __typeof__(&frt_free) free;
  __typeof__(&frt_memcpy) memcpy;
  __typeof__(&frt_launch) launch;
  __typeof__(&frt_synchronize) synchronize;
} runtime;

static int open_runtime(void) {
  void *library = dlopen(FAKERT_PATH, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  *(void **)&runtime.malloc = dlsym(library, "frt_malloc");
  *(void **)&runtime.free = dlsym(library, "frt_free");
  *(void **)&runtime.memcpy = dlsym(library, "frt_memcpy");
  *(void **)&runtime.launch = dlsym(library, "frt_launch");
  *(void **)&runtime.synchronize = dlsym(library, "frt_synchronize");
  return !runtime.malloc || !runtime.free || !runtime.memcpy || !runtime.launch || !runtime.synchronize;
}
#else
static const struct {
  __typeof__(&frt_malloc) malloc;
  __typeof__(&frt_free) free;
  __typeof__(&frt_memcpy) memcpy;
  __typeof__(&frt_launch) launch;
  __typeof__(&frt_synchronize) synchronize;
} runtime = {frt_malloc, frt_free, frt_memcpy, frt_launch, frt_synchronize};

static int open_runtime(void) { return 0; }
#endif

#ifdef MODE_OPEN_BOTH
/* Allocate by the driver, all else by the runtime. */
static __typeof__(&cuMemAlloc) driver_alloc;

static int start(void) {
  void *address, *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library || open_runtime() != 0)
    return 1;
  *(void **)&driver_alloc = dlsym(library, "cuMemAlloc_v2");
  int error = runtime.malloc(&address, 1); /* the runtime makes the context */
  return error ? error : runtime.free(address);
}

static int alloc(uint64_t *address, size_t bytes) {
  CUdeviceptr allocated = 0;
  int error = (int)driver_alloc(&allocated, bytes);
  *address = allocated;
  return error;
}
#else
static int start(void) { return open_runtime(); }

static int alloc(uint64_t *address, size_t bytes) {
  void *allocated = NULL;
  int error = runtime.malloc(&allocated, bytes);
  *address = (uint64_t)(uintptr_t)allocated;
  return error;
}
#endif

static int release(uint64_t address) { return runtime.free((void *)(uintptr_t)address); }

static int to_device(uint64_t address, const void *host, size_t bytes) {
  return runtime.memcpy((void *)(uintptr_t)address, host, bytes, FRT_TO_DEVICE);
}

static int to_host(void *host, uint64_t address, size_t bytes) {
  return runtime.memcpy(host, (void *)(uintptr_t)address, bytes, FRT_TO_HOST);
}

static int launch(const char *kernel, unsigned blocks, void **parameters) {
  return runtime.launch(kernel, blocks, DEVICE_BLOCK_THREADS, parameters);
}

static int finish(void) { return runtime.synchronize(); }

static const struct device runtime_device = {
    .mode = "runtime",
    .start = start,
    .alloc = alloc,
    .release = release,
    .to_device = to_device,
    .to_host = to_host,
    .launch = launch,
    .finish = finish,
};

int main(int argc, char **argv) { return workload_main(&runtime_device, argc, argv); }
