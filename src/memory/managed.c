/* managed.c - unified memory in place of device memory: the card is its preferred location, and its pages can
 * leave. */
#include "memory/managed.h"

#include "driver/driver.h"
#include "memory/deferred.h"
#include "memory/device.h"
#include "memory/populate.h"

/* The advice is a hint: without it the memory works just as well, only slower at first. */
static void advise(CUdeviceptr address, size_t bytes, CUdevice device) {
  CUstreamCaptureMode mode = capture_relax();
  driver.cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
  capture_unrelax(mode);
}

static CUresult alloc_once(CUdeviceptr *address, size_t bytes, CUdevice device) {
  if (budget_reserve(device, BACKING_CONVERTED, bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = driver.cuMemAllocManaged(address, bytes, CU_MEM_ATTACH_GLOBAL);
  if (result != CUDA_SUCCESS)
    budget_release(device, BACKING_CONVERTED, bytes);
  return result;
}

CUresult managed_alloc(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  CUdeviceptr base;
  deferred_reap_for_more();
  CUresult result = alloc_once(&base, bytes, like->device);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && deferred_reap_all())
    result = alloc_once(&base, bytes, like->device);
  if (result != CUDA_SUCCESS)
    return result;
  advise(base, bytes, like->device);
  struct allocation new = *like;
  new.base = base;
  new.span = new.bytes = bytes;
  new.backing = BACKING_CONVERTED;
  new.away_bytes = populate(base, bytes, like->device, like->context);
  if (account_add(&account_addresses, &new)) {
    driver.cuMemFree_v2(base);
    account_gone(&new);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = base;
  return CUDA_SUCCESS;
}
