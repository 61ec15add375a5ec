/* green.c - green contexts: contexts beneath the primary one; their share of the multiprocessors is only
 * written down. */
#include <stdlib.h>

#include "objects.h"

#if CUDA_VERSION >= 12050

struct CUdevResourceDesc_st {
  unsigned multiprocessors;
};

struct CUgreenCtx_st {
  CUcontext context;
  CUdevResource resource;
};

static void resource_fill(CUdevResource *resource, unsigned multiprocessors) {
  *resource = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_SM};
  resource->sm.smCount = multiprocessors;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type) {
  CUresult result = device_check(device);
  if (result != CUDA_SUCCESS || type != CU_DEV_RESOURCE_TYPE_SM)
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_RESOURCE_TYPE;
  resource_fill(resource, (unsigned)sim.card.multiprocessors);
  return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *split, unsigned int *nbGroups, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned int useFlags, unsigned int minCount) {
  (void)useFlags;
  if (nbGroups == NULL || input == NULL || minCount == 0)
    return CUDA_ERROR_INVALID_VALUE;
  unsigned possible = input->sm.smCount / minCount, groups = possible;
  if (split && *nbGroups < possible)
    groups = *nbGroups;
  for (unsigned i = 0; split && i < groups; i++)
    resource_fill(&split[i], minCount);
  if (remaining)
    resource_fill(remaining, input->sm.smCount - groups * minCount);
  *nbGroups = groups;
  return process_check();
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                   unsigned int nbResources) {
  CUdevResourceDesc made = calloc(1, sizeof(*made));
  if (made == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (unsigned i = 0; i < nbResources; i++)
    made->multiprocessors += resources[i].sm.smCount;
  *phDesc = made;
  return process_check();
}

/* The description is used up: the API has no call to free one. */
CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
  CUcontext primary;
  if (desc == NULL || !(flags & CU_GREEN_CTX_DEFAULT_STREAM))
    return CUDA_ERROR_INVALID_VALUE;
  CUgreenCtx made = calloc(1, sizeof(*made));
  if (made == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  resource_fill(&made->resource, desc->multiprocessors);
  CUresult result = cuDevicePrimaryCtxRetain(&primary, dev);
  if (result == CUDA_SUCCESS)
    result = context_make(&made->context, 0, dev, primary);
  if (result != CUDA_SUCCESS) {
    free(made);
    return result;
  }
  free(desc);
  *phCtx = made;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  CUdevice device = (CUdevice)hCtx->context->device;
  CUresult result = cuCtxDestroy_v2(hCtx->context);
  if (result == CUDA_SUCCESS)
    result = cuDevicePrimaryCtxRelease_v2(device);
  free(hCtx);
  return result;
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx) {
  *pContext = hCtx->context;
  return process_check();
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type) {
  if (type != CU_DEV_RESOURCE_TYPE_SM)
    return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = hCtx->resource;
  return process_check();
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING))
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  result = stream_create_locked(greenCtx->context, flags, priority, phStream);
  pthread_mutex_unlock(&objects_lock);
  return result;
}

#endif
