/* array.c - CUDA arrays and mipmapped arrays: created, counted as memory of the card, copied to and from. */
#include "array.h"

#include <stdlib.h>

#include "capture.h"
#include "objects.h"

enum { MIP_LEVELS = 16 };

struct CUmipmappedArray_st {
  unsigned levels;
  CUarray level[MIP_LEVELS];
};

static size_t format_bytes(CUarray_format format) {
  switch (format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8:
    return 1;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF:
    return 2;
  case CU_AD_FORMAT_UNSIGNED_INT32:
  case CU_AD_FORMAT_SIGNED_INT32:
  case CU_AD_FORMAT_FLOAT:
    return 4;
  default:
    return 0;
  }
}

static size_t at_least_one(size_t value) { return value ? value : 1; }

static CUresult array_create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
  CUcontext context;
  CUresult result = context_current(&context);
  size_t element = shape ? format_bytes(shape->Format) * shape->NumChannels : 0;
  if (result == CUDA_SUCCESS && (out == NULL || element == 0 || shape->Width == 0))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    result = capture_check_unsafe();
  CUarray made = result == CUDA_SUCCESS ? calloc(1, sizeof(*made)) : NULL;
  if (made == NULL)
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
  *made = (struct CUarray_st){.shape = *shape, .element_bytes = element, .pitch = shape->Width * element};
  made->slice = made->pitch * at_least_one(shape->Height);
  made->bytes = made->slice * at_least_one(shape->Depth);
  const struct memory_request request = {
      .kind = MEMORY_ARRAY, .gpu = context->gpu, .context = context, .bytes = made->bytes};
  result = memory_allocate(&request, &made->at);
  if (result == CUDA_SUCCESS)
    *out = made;
  else
    free(made);
  return result;
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray) {
  return array_create(pHandle, pAllocateArray);
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = pAllocateArray->Width,
                                         .Height = pAllocateArray->Height,
                                         .Format = pAllocateArray->Format,
                                         .NumChannels = pAllocateArray->NumChannels};
  return array_create(pHandle, &shape);
}

static CUresult array_destroy(CUarray array) {
  struct memory_info info;
  if (memory_find(array->at, &info))
    gpu_drain(info.gpu);
  CUresult result = memory_free(array->at, KIND_BIT(MEMORY_ARRAY));
  free(array);
  return result;
}

CUresult cuArrayDestroy(CUarray hArray) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS && hArray == NULL)
    result = CUDA_ERROR_INVALID_HANDLE;
  return result == CUDA_SUCCESS ? array_destroy(hArray) : result;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
  *pArrayDescriptor = hArray->shape;
  return process_check();
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray) {
  *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){.Width = hArray->shape.Width,
                                              .Height = hArray->shape.Height,
                                              .Format = hArray->shape.Format,
                                              .NumChannels = hArray->shape.NumChannels};
  return process_check();
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array,
                                      CUdevice device) {
  CUresult result = device_check(device);
  if (result == CUDA_SUCCESS)
    *memoryRequirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
        .size = (array->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, .alignment = PAGE_BYTES};
  return result;
}

/* ---- mipmaps ---- */

static size_t half(size_t size) { return size > 1 ? size / 2 : size; }

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  for (unsigned i = 0; i < hMipmappedArray->levels; i++)
    array_destroy(hMipmappedArray->level[i]);
  free(hMipmappedArray);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  CUDA_ARRAY3D_DESCRIPTOR shape = *pMipmappedArrayDesc;
  CUmipmappedArray made = calloc(1, sizeof(*made));
  CUresult result =
      made && numMipmapLevels > 0 && numMipmapLevels <= MIP_LEVELS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; result == CUDA_SUCCESS && i < numMipmapLevels; i++) {
    result = array_create(&made->level[i], &shape);
    made->levels += result == CUDA_SUCCESS;
    shape.Width = half(shape.Width);
    shape.Height = half(shape.Height);
    shape.Depth = half(shape.Depth);
  }
  if (result == CUDA_SUCCESS)
    *pHandle = made;
  else if (made && made->levels)
    cuMipmappedArrayDestroy(made);
  else
    free(made);
  return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  if (level >= hMipmappedArray->levels)
    return CUDA_ERROR_INVALID_VALUE;
  *pLevelArray = hMipmappedArray->level[level];
  return process_check();
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device) {
  size_t bytes = 0;
  CUresult result = device_check(device);
  for (unsigned i = 0; i < mipmap->levels; i++)
    bytes += mipmap->level[i]->bytes;
  if (result == CUDA_SUCCESS)
    *memoryRequirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
        .size = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, .alignment = PAGE_BYTES};
  return result;
}
