/* memory_api.c - the API of plain, managed and host allocations. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "objects.h"

enum { PITCH_BYTES = 512 };

/* What is allocated in a green context is the primary one's. */
static CUcontext owner_of(CUcontext context) { return context->parent ? context->parent : context; }

static CUresult allocate(enum memory_kind kind, size_t bytes, unsigned flags, CUdeviceptr *address) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS && (address == NULL || bytes == 0))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    result = capture_check_unsafe();
  if (result != CUDA_SUCCESS)
    return result;
  const struct memory_request request = {
      .kind = kind, .gpu = context->gpu, .context = owner_of(context), .bytes = bytes, .flags = flags};
  result = memory_allocate(&request, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY)
    return result;
  memory_pool_trim(&devices[context->device].plain_pool, 0); /* what the pools keep without use */
  return memory_allocate(&request, address);
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
  return allocate(MEMORY_PLAIN, bytesize, 0, dptr);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
    return CUDA_ERROR_INVALID_VALUE;
  return allocate(MEMORY_MANAGED, bytesize, 0, dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  size_t pitch = (WidthInBytes + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
  CUresult result = allocate(MEMORY_PLAIN, pitch * Height, 0, dptr);
  if (result == CUDA_SUCCESS)
    *pPitch = pitch;
  return result;
}

/* As the real one, it waits for the card first: what runs may still use the memory. */
static CUresult free_memory(CUdeviceptr address, unsigned kinds) {
  struct memory_info info;
  CUresult result = process_check();
  if (result == CUDA_SUCCESS)
    result = capture_check_unsafe();
  if (result != CUDA_SUCCESS || address == 0)
    return result;
  if (!memory_find(address, &info) || info.base != address || info.leaving || !(KIND_BIT(info.kind) & kinds))
    return CUDA_ERROR_INVALID_VALUE;
  gpu_drain(info.gpu);
  return memory_free(address, kinds);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return free_memory(dptr, KIND_BIT(MEMORY_PLAIN) | KIND_BIT(MEMORY_MANAGED));
}

/* ---- host memory ---- */

static CUresult host_allocate(void **out, size_t bytes, unsigned flags) {
  CUdeviceptr address;
  if (out == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = allocate(MEMORY_HOST, bytes, flags, &address);
  if (result == CUDA_SUCCESS)
    *out = (void *)(uintptr_t)address;
  return result;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) { return host_allocate(pp, bytesize, 0); }
CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags) {
  return Flags > 7 ? CUDA_ERROR_INVALID_VALUE : host_allocate(pp, bytesize, Flags);
}
CUresult cuMemFreeHost(void *p) { return free_memory((CUdeviceptr)(uintptr_t)p, KIND_BIT(MEMORY_HOST)); }

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result == CUDA_SUCCESS && (p == NULL || bytesize == 0))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    result = capture_check_unsafe();
  if (result != CUDA_SUCCESS)
    return result;
  const struct memory_request request = {.kind = MEMORY_REGISTERED,
                                         .gpu = context->gpu,
                                         .context = owner_of(context),
                                         .bytes = bytesize,
                                         .flags = Flags};
  return memory_adopt(&request, (CUdeviceptr)(uintptr_t)p);
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags) {
  return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p) {
  CUresult result = free_memory((CUdeviceptr)(uintptr_t)p, KIND_BIT(MEMORY_REGISTERED));
  return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : result;
}

static CUresult host_find(const void *p, struct memory_info *info) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS && (!memory_find((CUdeviceptr)(uintptr_t)p, info) || memory_is_device(info)))
    result = CUDA_ERROR_INVALID_VALUE;
  return result;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
  struct memory_info info;
  CUresult result = Flags ? CUDA_ERROR_INVALID_VALUE : host_find(p, &info);
  if (result == CUDA_SUCCESS)
    *pdptr = (CUdeviceptr)(uintptr_t)p;
  return result;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p) {
  struct memory_info info;
  CUresult result = host_find(p, &info);
  if (result == CUDA_SUCCESS)
    *pFlags = info.flags;
  return result;
}
