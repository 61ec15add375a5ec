/* arrays.c - arrays and mipmapped arrays: passed through, counted by what their shape must take at least. */
#include <stdbool.h>
#include <stddef.h>

#include "driver/driver.h"
#include "driver/hooks.h"
#include "memory/account.h"
#include "memory/device.h"
#include "memory/pinned.h"

/* Bits per pixel, all channels together. Numbers are those of CUarray_format beyond the headers of CUDA 12.0.
 */
static unsigned int format_bits(CUarray_format format, unsigned int channels) {
  switch ((unsigned int)format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8:
    return 8 * channels;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF:
    return 16 * channels;
  case 0xc0: /* 8 bits, 1, 2, 4 channels; unsigned, signed */
  case 0xc6:
    return 8;
  case 0xc1:
  case 0xc7:
  case 0xc3: /* 16 bits, 1, 2, 4 channels */
  case 0xc9:
    return 16;
  case 0xc5:
  case 0xcb:
    return 64;
  case 0x91: /* BC1, BC4: 8 bytes per 4 x 4 pixels */
  case 0x92:
  case 0x96:
  case 0x97:
    return 4;
  case 0x93: /* the other BC: 16 bytes */
  case 0x94:
  case 0x95:
  case 0x98 ... 0x9e:
    return 8;
  case CU_AD_FORMAT_NV12:
    return 12;
  case 0x9f: /* planar video in 16 bits */
  case 0xa1 ... 0xa3:
    return 32;
  default:
    return format >= 0xa0 || format == 0x50 ? 32 : 32 * channels;
  }
}

static uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t at_least_one(uint64_t n) { return n ? n : 1; }

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int level) {
  bool layered = shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
  uint64_t width = at_least_one(shape->Width >> level), height = at_least_one(shape->Height >> level);
  uint64_t depth = at_least_one(layered ? shape->Depth : shape->Depth >> level);
  uint64_t bits = times(times(width, height), times(depth, format_bits(shape->Format, shape->NumChannels)));
  return bits == UINT64_MAX ? bits : bits / 8;
}

uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
  uint64_t total = 0;
  if (shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
    return 0;
  for (unsigned int level = 0; level < levels && level < 64; level++) {
    uint64_t bytes = level_bytes(shape, level);
    total = total + bytes < total ? UINT64_MAX : total + bytes;
  }
  return total;
}

/* Reserve for a new array. False: there is no room. Without a device nothing is reserved, nothing entered. */
static bool reserve_array(struct allocation *new, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
  *new = (struct allocation){.span = 1, .origin = ORIGIN_OBJECT, .backing = BACKING_PINNED_ARRAYS};
  new->bytes = shape &&device_current(&new->device, &new->context) ? array_bytes(shape, levels) : 0;
  return pinned_reserve(new->device, BACKING_PINNED_ARRAYS, new->bytes) == 0;
}

static bool is_to_be_asked_again(CUresult result, const struct allocation *new,
                                 struct pinned_patience *patience) {
  return new->bytes &&pinned_again(result, new->device, new->bytes, patience);
}

static CUresult destroy_array(void *handle) { return driver.cuArrayDestroy(handle); }
static CUresult destroy_mipmapped(void *handle) { return driver.cuMipmappedArrayDestroy(handle); }

static CUresult enter_array(CUresult result, struct allocation *new, void *handle,
                            CUresult (*destroy)(void *)) {
  if (!new->bytes)
    return result;
  new->base = (uintptr_t)handle;
  if (result == CUDA_SUCCESS && account_add(&account_objects, new)) {
    destroy(handle);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS)
    account_gone(new);
  return result;
}

CUresult hook_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
  struct allocation new;
  struct pinned_patience patience = {0};
  CUresult result;
  if (!pHandle || !reserve_array(&new, pAllocateArray, 1))
    return pHandle ? CUDA_ERROR_OUT_OF_MEMORY : driver.cuArray3DCreate_v2(pHandle, pAllocateArray);
  do
    result = driver.cuArray3DCreate_v2(pHandle, pAllocateArray);
  while (is_to_be_asked_again(result, &new, &patience));
  return enter_array(result, &new, *pHandle, destroy_array);
}

CUresult hook_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
  struct allocation new;
  struct pinned_patience patience = {0};
  CUresult result;
  if (!pHandle || !pAllocateArray)
    return driver.cuArrayCreate_v2(pHandle, pAllocateArray);
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = pAllocateArray->Width,
                                   .Height = pAllocateArray->Height,
                                   .Format = pAllocateArray->Format,
                                   .NumChannels = pAllocateArray->NumChannels};
  if (!reserve_array(&new, &shape, 1))
    return CUDA_ERROR_OUT_OF_MEMORY;
  do
    result = driver.cuArrayCreate_v2(pHandle, pAllocateArray);
  while (is_to_be_asked_again(result, &new, &patience));
  return enter_array(result, &new, *pHandle, destroy_array);
}

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                     const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                     unsigned int numMipmapLevels) {
  struct allocation new;
  struct pinned_patience patience = {0};
  CUresult result;
  if (!pHandle)
    return driver.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
  if (!reserve_array(&new, pMipmappedArrayDesc, numMipmapLevels))
    return CUDA_ERROR_OUT_OF_MEMORY;
  do
    result = driver.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
  while (is_to_be_asked_again(result, &new, &patience));
  return enter_array(result, &new, *pHandle, destroy_mipmapped);
}

/* Take the entry out first, as for any free. */
static CUresult leave_array(CUresult (*destroy)(void *), void *handle) {
  struct allocation old;
  bool ours = account_take(&account_objects, (uintptr_t)handle, &old);
  CUresult result = destroy(handle);
  if (ours && result == CUDA_SUCCESS)
    account_gone(&old);
  else if (ours)
    account_put_back(&account_objects, &old);
  return result;
}

CUresult hook_cuArrayDestroy(CUarray hArray) { return leave_array(destroy_array, hArray); }

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return leave_array(destroy_mipmapped, hMipmappedArray);
}
