/*
 * tracer.c - makes a fixed series of driver calls, right and wrong ones, and prints what came back: the same
 * lines must come with and without libunified.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "kernel_image.h"

#define SIZE ((size_t)4 << 20)
#define ERRNO_MARK 77

static int failures_of_errno;

/* One line per call: its name and result; errno must be what it was. */
static CUresult trace(const char *what, CUresult result) {
  failures_of_errno += errno != ERRNO_MARK;
  printf("%s %d\n", what, (int)result);
  errno = ERRNO_MARK;
  return result;
}

#define TRACE(call) trace(#call, call)

static void trace_allocations(void) {
  CUdeviceptr address = 0, other = 0;
  size_t pitch = 0;
  TRACE(cuMemAlloc(&address, 0));
  TRACE(cuMemAlloc(NULL, SIZE));
  TRACE(cuMemAlloc(&address, (size_t)1 << 50));
  TRACE(cuMemAlloc(&address, SIZE));
  TRACE(cuMemAllocPitch(&other, &pitch, 1000, 16, 4));
  printf("pitch %zu\n", pitch);
  TRACE(cuMemAllocPitch(&other, &pitch, 1000, 16, 3));
  TRACE(cuMemFree(address + 4096));
  TRACE(cuMemFree(address));
  TRACE(cuMemFree(address));
  TRACE(cuMemFree(0));
  TRACE(cuMemFree(0x1234));
}

static void trace_copies(void) {
  static char host[4096];
  CUdeviceptr address;
  TRACE(cuMemAlloc(&address, SIZE));
  TRACE(cuMemcpyHtoD(address, host, sizeof host));
  TRACE(cuMemcpyDtoH(host, address, sizeof host));
  TRACE(cuMemcpyDtoH(host, 0x10, sizeof host));
  TRACE(cuMemcpyDtoH(NULL, address, sizeof host));
  TRACE(cuMemcpyHtoD(address, NULL, sizeof host));
  TRACE(cuMemcpyDtoDAsync(address + 4096, address, 4096, NULL));
  TRACE(cuMemsetD8(address, 1, SIZE));
  TRACE(cuMemsetD8(0, 1, SIZE));
  TRACE(cuMemsetD32Async(address + 1, 1, 4, NULL));
  TRACE(cuCtxSynchronize());
  TRACE(cuMemFree(address));
}

static void trace_launches(void) {
  CUmodule module;
  CUfunction function;
  TRACE(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  TRACE(cuModuleLoadData(&module, kernel_image()));
  TRACE(cuModuleGetFunction(&function, module, "no_such_kernel"));
  TRACE(cuModuleGetFunction(&function, module, "gs_empty"));
  TRACE(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  TRACE(cuLaunchKernel(function, 1, 1, 1, 4096, 1, 1, 0, NULL, NULL, NULL));
  TRACE(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  TRACE(cuCtxSynchronize());
}

static void trace_captures(void) {
  CUstream stream;
  CUgraph graph = NULL;
  CUstreamCaptureStatus status;
  CUdeviceptr address;
  TRACE(cuMemAlloc(&address, SIZE));
  TRACE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  TRACE(cuStreamEndCapture(stream, &graph));
  TRACE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  TRACE(cuMemsetD8Async(address, 3, SIZE, stream));
  TRACE(cuStreamIsCapturing(stream, &status));
  printf("capturing %d\n", (int)status);
  TRACE(cuStreamSynchronize(stream));
  TRACE(cuStreamEndCapture(stream, &graph));
  TRACE(cuStreamIsCapturing(stream, &status));
  printf("capturing %d\n", (int)status);
  TRACE(cuStreamDestroy(stream));
  TRACE(cuMemFree(address));
}

static void trace_attribute(CUdeviceptr address, CUpointer_attribute attribute, const char *name) {
  uint64_t value = 0;
  CUresult result = cuPointerGetAttribute(&value, attribute, address);
  printf("%s %d %" PRIu64 "\n", name, (int)result, result == CUDA_SUCCESS ? value : 0);
  errno = ERRNO_MARK;
}

static void trace_attributes(void) {
  CUdeviceptr address;
  uint64_t start = 0;
  TRACE(cuMemAlloc(&address, SIZE));
  trace_attribute(address + 100, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "memory type");
  trace_attribute(address + 100, CU_POINTER_ATTRIBUTE_IS_MANAGED, "is managed");
  trace_attribute(address + 100, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device");
  trace_attribute(address + 100, CU_POINTER_ATTRIBUTE_RANGE_SIZE, "range size");
  trace_attribute(address + 100, CU_POINTER_ATTRIBUTE_HOST_POINTER, "host pointer");
  trace_attribute(0x1234, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "memory type of nothing");
  cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 100);
  printf("range start %d\n", start == address);
  unsigned type = 99, managed = 99;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void *answers[] = {&type, &managed};
  TRACE(cuPointerGetAttributes(2, asked, answers, address));
  printf("at once %u %u\n", type, managed & 0xff);
  TRACE(cuMemFree(address));
}

static void trace_memory_info(void) {
  size_t free_before = 0, total_before = 0, free_after = 0, total_after = 0, whole = 0;
  CUdeviceptr address;
  TRACE(cuMemGetInfo(&free_before, &total_before));
  TRACE(cuMemAlloc(&address, SIZE));
  TRACE(cuMemGetInfo(&free_after, &total_after));
  TRACE(cuDeviceTotalMem(&whole, 0));
  printf("total %zu, the same %d, whole %zu, used %zu\n", total_before, total_before == total_after, whole,
         free_before - free_after);
  TRACE(cuMemFree(address));
  TRACE(cuMemGetInfo(&free_after, &total_after));
  printf("given back %d\n", free_after == free_before);
}

/* The driver refuses to destroy a primary context: nothing may have changed. */
static void trace_refused_destruction(CUcontext context) {
  size_t free_before = 0, free_after = 0, total;
  CUdeviceptr address;
  TRACE(cuMemAlloc(&address, SIZE));
  TRACE(cuMemGetInfo(&free_before, &total));
  TRACE(cuCtxDestroy(context));
  TRACE(cuMemGetInfo(&free_after, &total));
  printf("used as before %d\n", free_before == free_after);
  trace_attribute(address, CU_POINTER_ATTRIBUTE_IS_MANAGED, "is managed");
  TRACE(cuMemsetD8(address, 1, SIZE));
  TRACE(cuMemFree(address));
  TRACE(cuMemGetInfo(&free_after, &total));
  printf("given back %zu\n", free_after - free_before);
}

static void trace_look_ups(void) {
  void *found = &found;
  CUdriverProcAddressQueryResult status;
  TRACE(cuGetProcAddress("cuNoSuchFunction", &found, 12000, 0, &status));
  printf("found %d, status %d\n", found != NULL, (int)status);
  TRACE(cuGetProcAddress("cuMemAlloc", &found, 12000, 0, NULL));
  printf("found %d\n", found != NULL);
  TRACE(cuGetProcAddress("cuLaunchKernel", &found, 1000, 0, &status));
  printf("status %d\n", (int)status);
  TRACE(cuGetProcAddress(NULL, &found, 12000, 0, &status));
}

int main(void) {
  CUcontext context;
  CUdeviceptr address;
  setvbuf(stdout, NULL, _IOLBF, 0);
  errno = ERRNO_MARK;
  TRACE(cuMemAlloc(&address, SIZE)); /* before cuInit */
  TRACE(cuInit(1));
  TRACE(cuInit(0));
  TRACE(cuMemAlloc(&address, SIZE)); /* without a context */
  TRACE(cuCtxSynchronize());
  TRACE(cuDevicePrimaryCtxRetain(&context, 99));
  TRACE(cuDevicePrimaryCtxRetain(&context, 0));
  TRACE(cuCtxSetCurrent(context));
  errno = ERRNO_MARK; /* making a context may change it; nothing after this may */
  failures_of_errno = 0;
  trace_look_ups();
  trace_memory_info();
  trace_allocations();
  trace_copies();
  trace_launches();
  trace_captures();
  trace_attributes();
  trace_refused_destruction(context);
  TRACE(cuDevicePrimaryCtxRelease(0));
  printf("errno changed %d times\n", failures_of_errno);
  return 0;
}
