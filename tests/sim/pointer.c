/* pointer.c - what the driver says about an address; the answers per kind of memory are those of driver 580.
 */
#include <string.h>
#include <unistd.h>

#include "objects.h"
#include "vmm.h"

static unsigned device_of_gpu(unsigned gpu) {
  for (int d = 0; d < sim.device_count; d++)
    if (devices[d].gpu == gpu)
      return (unsigned)d;
  return 0;
}

struct pointer { /* what is known of an address */
  struct memory_info info;
  struct vmm_info mapping; /* of reserved addresses */
};

/* False where there is no memory, as in a part of a reservation that nothing is mapped to. */
static bool pointer_find(CUdeviceptr at, struct pointer *pointer) {
  if (!memory_find(at, &pointer->info))
    return false;
  return pointer->info.kind != MEMORY_RESERVED || vmm_find(at, &pointer->mapping);
}

struct answer {
  uint64_t value;
  size_t bytes;
};

static struct answer whole(uint64_t value) { return (struct answer){value, 8}; }
static struct answer word(uint32_t value) { return (struct answer){value, 4}; }
static struct answer flag(bool value) { return (struct answer){value, 1}; }

static bool host_visible(const struct memory_info *info) {
  return info->kind != MEMORY_PLAIN && info->kind != MEMORY_RESERVED;
}

/* A plain cuMemAlloc, which alone can be shared with other processes and devices. */
static bool plain_own(const struct memory_info *info) {
  return info->kind == MEMORY_PLAIN && info->pool == NULL;
}

/* Where memory that is mapped by hand differs: the range is the reservation, the rest is the mapping's. */
static bool answer_mapped(const struct vmm_info *mapping, int attribute, struct answer *answer) {
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    *answer = flag(true);
    return true;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *answer = word(device_of_gpu(mapping->gpu));
    return true;
  case CU_POINTER_ATTRIBUTE_BUFFER_ID:
  case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    *answer = whole(mapping->id);
    return true;
  case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    *answer = whole(mapping->bytes);
    return true;
  case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    *answer = whole(mapping->base);
    return true;
  default:
    return false;
  }
}

static bool answer_find(const struct pointer *pointer, CUdeviceptr at, int attribute, struct answer *answer) {
  const struct memory_info *info = &pointer->info;
  bool device = memory_is_device(info);
  if (info->kind == MEMORY_RESERVED && answer_mapped(&pointer->mapping, attribute, answer))
    return true;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    *answer = whole((uintptr_t)info->context);
    return true;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *answer = word(device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    return true;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    *answer = whole(at);
    return true;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    *answer = whole(at);
    return host_visible(info);
  case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    *answer = (struct answer){0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS)};
    return device;
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    *answer = flag(info->sync_memops); /* 0 until set; 1 from the start on unified memory */
    return true;
  case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    *answer = whole(info->id);
    return true;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    *answer = word(info->kind == MEMORY_MANAGED);
    return true;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *answer = word(device_of_gpu(info->gpu));
    return true;
  case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
  case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    *answer = flag(plain_own(info));
    return true;
  case 21: /* IS_HW_DECOMPRESS_CAPABLE, of CUDA 12.8 */
    *answer = word(plain_own(info));
    return true;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *answer = whole(info->base);
    return true;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *answer = whole(info->bytes);
    return true;
  case CU_POINTER_ATTRIBUTE_MAPPED:
    *answer = flag(true);
    return true;
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    *answer = whole(0);
    return true;
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    *answer = word(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    return true;
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    *answer = whole((uintptr_t)info->pool);
    return true;
  case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    *answer = whole(info->pool ? info->block_bytes : info->bytes);
    return true;
  case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    *answer = whole(info->pool ? info->block_base : info->base);
    return true;
  case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    *answer = whole(info->block_id);
    return true;
  default:
    return false;
  }
}

static void answer_store(const struct answer *answer, void *data) {
  static const CUDA_POINTER_ATTRIBUTE_P2P_TOKENS none;
  if (answer->bytes > 8)
    memcpy(data, &none, sizeof(none));
  else
    memcpy(data, &answer->value, answer->bytes); /* little-endian */
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  struct pointer pointer;
  struct answer answer;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (data == NULL || !pointer_find(ptr, &pointer) || !answer_find(&pointer, ptr, (int)attribute, &answer))
    return CUDA_ERROR_INVALID_VALUE;
  answer_store(&answer, data);
  return CUDA_SUCCESS;
}

static size_t attribute_bytes(CUpointer_attribute attribute) {
  const struct pointer none = {.info.kind = MEMORY_MANAGED};
  struct answer answer;
  return answer_find(&none, 0, (int)attribute, &answer) ? answer.bytes : 0;
}

/* Unlike the single question, this one answers with zeroes where there is nothing to say. */
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr) {
  struct pointer pointer;
  struct answer answer;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  bool known = pointer_find(ptr, &pointer);
  for (unsigned i = 0; i < numAttributes; i++) {
    if (known && answer_find(&pointer, ptr, (int)attributes[i], &answer))
      answer_store(&answer, data[i]);
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
      memset(data[i], 0xfe, 4); /* CU_DEVICE_INVALID's relative: no device */
    else
      memset(data[i], 0, attribute_bytes(attributes[i]));
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  struct pointer pointer;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (pointer_find(ptr, &pointer) && pointer.info.kind == MEMORY_RESERVED)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
      !memory_set_sync_memops(ptr, *(const unsigned *)value != 0))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
  struct pointer pointer;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (!pointer_find(dptr, &pointer))
    return CUDA_ERROR_NOT_FOUND;
  bool mapped = pointer.info.kind == MEMORY_RESERVED;
  if (pbase)
    *pbase = mapped ? pointer.mapping.base : pointer.info.base;
  if (psize)
    *psize = mapped ? pointer.mapping.bytes : pointer.info.bytes;
  return CUDA_SUCCESS;
}

/* The handle can be made, not opened: memory of other processes is not simulated. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
  struct memory_info info;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (!memory_find(dptr, &info) || !plain_own(&info))
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t parts[3] = {(uint64_t)getpid(), info.base, info.bytes};
  memset(pHandle, 0, sizeof(*pHandle));
  memcpy(pHandle, parts, sizeof(parts));
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  (void)pdptr, (void)handle, (void)Flags;
  CUresult result = process_check();
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  (void)dptr;
  CUresult result = process_check();
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}
