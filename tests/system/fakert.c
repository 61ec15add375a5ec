/* fakert.c - the stand-in for the CUDA runtime; see fakert.h. */
#include "fakert.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#include "kernel_image.h"

typedef CUresult (*get_function)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static struct {
  int error;
  CUmodule module;
  CUcontext context;
  __typeof__(&cuInit) init;
  __typeof__(&cuDeviceGet) device_get;
  __typeof__(&cuDevicePrimaryCtxRetain) primary_retain;
  __typeof__(&cuCtxSetCurrent) set_current;
  __typeof__(&cuModuleLoadData) module_load_data;
  __typeof__(&cuModuleGetFunction) module_function;
  __typeof__(&cuMemAlloc) mem_alloc;
  __typeof__(&cuMemFree) mem_free;
  __typeof__(&cuMemcpyAsync) memcpy_async;
  __typeof__(&cuLaunchKernel) launch_kernel;
  __typeof__(&cuStreamSynchronize) stream_synchronize;
} rt;

/* The runtime asks for each function with the version in which that ABI appeared. */
static const struct {
  const char *name;
  int version;
  size_t field;
} wanted[] = {
    {"cuInit", 2000, offsetof(__typeof__(rt), init)},
    {"cuDeviceGet", 2000, offsetof(__typeof__(rt), device_get)},
    {"cuDevicePrimaryCtxRetain", 7000, offsetof(__typeof__(rt), primary_retain)},
    {"cuCtxSetCurrent", 4000, offsetof(__typeof__(rt), set_current)},
    {"cuModuleLoadData", 2000, offsetof(__typeof__(rt), module_load_data)},
    {"cuModuleGetFunction", 2000, offsetof(__typeof__(rt), module_function)},
    {"cuMemAlloc", 3020, offsetof(__typeof__(rt), mem_alloc)},
    {"cuMemFree", 3020, offsetof(__typeof__(rt), mem_free)},
    {"cuMemcpyAsync", 4000, offsetof(__typeof__(rt), memcpy_async)},
    {"cuLaunchKernel", 4000, offsetof(__typeof__(rt), launch_kernel)},
    {"cuStreamSynchronize", 2000, offsetof(__typeof__(rt), stream_synchronize)},
};

/* cuGetProcAddress is asked for itself, as the runtime does. */
static get_function find_get(void *library) {
  void *first = dlsym(library, "cuGetProcAddress_v2");
  void *second = NULL;
  CUdriverProcAddressQueryResult found;
  if (!first || ((get_function)first)("cuGetProcAddress", &second, 12000, 0, &found) != CUDA_SUCCESS)
    return NULL;
  return (get_function)second;
}

static int find_all(get_function get) {
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void **slot = (void **)((char *)&rt + wanted[i].field);
    CUresult result = get(wanted[i].name, slot, wanted[i].version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL);
    if (result != CUDA_SUCCESS || !*slot)
      return CUDA_ERROR_NOT_FOUND;
  }
  return 0;
}

static int open_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  get_function get = library ? find_get(library) : NULL;
  CUdevice device;
  CUresult result;
  if (!get || find_all(get) != 0)
    return CUDA_ERROR_NOT_FOUND;
  if ((result = rt.init(0)) || (result = rt.device_get(&device, 0)) ||
      (result = rt.primary_retain(&rt.context, device)) || (result = rt.set_current(rt.context)))
    return (int)result;
  return (int)rt.module_load_data(&rt.module, kernel_image());
}

static void open_once(void) { rt.error = open_driver(); }

/* Lazily, and with the context current in whichever thread calls. */
static int ready(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_once);
  return rt.error ? rt.error : (int)rt.set_current(rt.context);
}

int frt_malloc(void **address, size_t bytes) {
  CUdeviceptr allocated = 0;
  int error = ready();
  if (!error)
    error = (int)rt.mem_alloc(&allocated, bytes);
  *address = (void *)(uintptr_t)allocated;
  return error;
}

int frt_free(void *address) {
  int error = ready();
  return error ? error : (int)rt.mem_free((CUdeviceptr)(uintptr_t)address);
}

/* Unified addressing: one copy for both directions. */
int frt_memcpy(void *to, const void *from, size_t bytes, enum frt_copy kind) {
  int error = ready();
  (void)kind;
  if (!error)
    error = (int)rt.memcpy_async((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes, NULL);
  return error ? error : (int)rt.stream_synchronize(NULL);
}

int frt_launch(const char *kernel, unsigned blocks, unsigned threads, void **parameters) {
  CUfunction function;
  int error = ready();
  if (!error)
    error = (int)rt.module_function(&function, rt.module, kernel);
  return error ? error
               : (int)rt.launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL);
}

int frt_synchronize(void) {
  int error = ready();
  return error ? error : (int)rt.stream_synchronize(NULL);
}
