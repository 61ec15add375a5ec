/* pointers.c - the attributes of swap memory, with the widths that driver 580 writes. */
#include "memory/pointers.h"

#include <string.h>

#include "driver/driver.h"

#define HW_DECOMPRESS_CAPABLE 21 /* an attribute that came with CUDA 12.8 */
#define PAGE_BYTES (UINT64_C(2) << 20)

/* The driver counts its own from 1: ours must differ from them. */
#define FIRST_ID (UINT64_C(1) << 62)

struct answer {
  uint64_t value;
  size_t bytes; /* 0: this attribute is not known here */
};

static struct answer whole(uint64_t value) { return (struct answer){value, sizeof(uint64_t)}; }
static struct answer word(unsigned int value) { return (struct answer){value, sizeof(unsigned int)}; }

static struct answer answer(const struct allocation *allocation, CUdeviceptr address, int attribute) {
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    return whole((uintptr_t)allocation->context);
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    return word(CU_MEMORYTYPE_DEVICE);
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    return whole(address);
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    return whole(0);
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    return word(allocation->sync_memops);
  case CU_POINTER_ATTRIBUTE_BUFFER_ID:
  case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    return whole(FIRST_ID + allocation->sequence);
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    return word((unsigned int)allocation->device);
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
  case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    return whole(allocation->base);
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    return whole(allocation->span);
  case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    return whole((allocation->span + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
  case CU_POINTER_ATTRIBUTE_MAPPED:
    return word(1);
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    return word(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    return whole((uintptr_t)allocation->pool);
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
  case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
  case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
  case HW_DECOMPRESS_CAPABLE:
    return word(0);
  default:
    return (struct answer){0};
  }
}

/* Peer-to-peer tokens are for devices that reach the memory behind the driver's back. */
static bool is_refused(CUpointer_attribute attribute) { return attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS; }

/* Little-endian, as all of CUDA's platforms are. */
static void store(const struct answer *answer, void *data) { memcpy(data, &answer->value, answer->bytes); }

CUresult pointers_attribute(const struct allocation *allocation, CUdeviceptr address,
                            CUpointer_attribute attribute, void *data) {
  struct answer found = answer(allocation, address, attribute);
  if (!data || is_refused(attribute))
    return CUDA_ERROR_INVALID_VALUE;
  if (!found.bytes)
    return driver.cuPointerGetAttribute(data, attribute, address);
  store(&found, data);
  return attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult one_of_many(const struct allocation *allocation, CUdeviceptr address,
                            CUpointer_attribute attribute, void *data) {
  struct answer found = answer(allocation, address, attribute);
  if (!data || is_refused(attribute))
    return CUDA_ERROR_INVALID_VALUE;
  if (!found.bytes)
    return driver.cuPointerGetAttributes(1, &attribute, &data, address);
  store(&found, data);
  return CUDA_SUCCESS;
}

CUresult pointers_attributes(const struct allocation *allocation, CUdeviceptr address, unsigned int count,
                             const CUpointer_attribute *attributes, void *const *data) {
  CUresult result = count && attributes && data ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = one_of_many(allocation, address, attributes[i], data[i]);
  return result;
}
