/*
 * plain.c - plain allocations: what cuMemAlloc and cuMemAllocPitch ask for comes out of the device's backend,
 * so that it can leave the card (all but some small ones); the program's own unified memory is only booked.
 */
#include "memory/plain.h"

#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/gate.h"
#include "memory/deferred.h"
#include "memory/device.h"
#include "memory/managed.h"
#include "memory/physical.h"
#include "memory/pools.h"
#include "memory/reserves.h"
#include "memory/swap/swap.h"

/* After a kernel's fault every call fails, but for few: those that make swap memory are among these. So
 * another one is asked, which changes nothing. */
static CUresult find_fault(void) {
  CUresult result = driver.cuCtxGetStreamPriorityRange(NULL, NULL);
  return driver_is_fatal(result) ? result : CUDA_SUCCESS;
}

/* Why small allocations are not unified memory: the driver refuses that to stream memory operations. */
CUresult plain_alloc(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  CUresult fault = find_fault();
  if (fault != CUDA_SUCCESS)
    return fault;
  if (device_memory(like->device) == MEMORY_SWAP)
    return swap_alloc(address, bytes, like);
  return swap_alloc_small(address, bytes, like) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                : managed_alloc(address, bytes, like);
}

/* Enter an allocation that stays what it is, once its bytes are reserved and the driver has answered. */
static CUresult enter(CUresult result, const CUdeviceptr *address, size_t bytes,
                      struct allocation *allocation) {
  if (result != CUDA_SUCCESS) {
    budget_release(allocation->device, allocation->backing, bytes);
    return result;
  }
  allocation->base = *address;
  allocation->span = allocation->bytes = bytes;
  if (account_add(&account_addresses, allocation) == 0)
    return result;
  driver.cuMemFree_v2(*address);
  account_gone(allocation);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
  struct allocation new = {.origin = ORIGIN_PLAIN, .backing = BACKING_PINNED};
  if (!dptr || !bytesize || !device_current(&new.device, &new.context))
    return driver.cuMemAlloc_v2(dptr, bytesize);
  if (device_converts(new.device))
    return plain_alloc(dptr, bytesize, &new);
  if (physical_reserve(new.device, bytesize))
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct physical_patience patience = {0};
  CUresult result;
  do
    result = driver.cuMemAlloc_v2(dptr, bytesize);
  while (physical_again(result, new.device, bytesize, &patience));
  return enter(result, dptr, bytesize, &new);
}

static bool is_element_size(unsigned int bytes) { return bytes == 4 || bytes == 8 || bytes == 16; }

/* The driver judges what it may refuse: other element sizes, and sizes beyond all bounds. */
CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                 unsigned int ElementSizeBytes) {
  struct allocation new = {.origin = ORIGIN_PLAIN, .backing = BACKING_PINNED};
  size_t pitch, bytes;
  if (!dptr || !pPitch || !WidthInBytes || !Height || !device_current(&new.device, &new.context))
    return driver.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  size_t step = device_pitch_bytes(new.device);
  if (__builtin_add_overflow(WidthInBytes, step - 1, &pitch) ||
      __builtin_mul_overflow(pitch -= pitch % step, Height, &bytes))
    return driver.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (is_element_size(ElementSizeBytes) && device_converts(new.device)) {
    result = plain_alloc(dptr, bytes, &new);
    *pPitch = result == CUDA_SUCCESS ? pitch : *pPitch;
  } else if (physical_reserve(new.device, bytes) == 0) {
    struct physical_patience patience = {0};
    do
      result = driver.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    while (physical_again(result, new.device, bytes, &patience));
    result = enter(result, dptr, bytes, &new);
  }
  return result;
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
  struct allocation new = {.origin = ORIGIN_PLAIN, .backing = BACKING_APP};
  if (!dptr || !bytesize || !device_current(&new.device, &new.context))
    return driver.cuMemAllocManaged(dptr, bytesize, flags);
  if (budget_reserve(new.device, BACKING_APP, bytesize))
    return CUDA_ERROR_OUT_OF_MEMORY;
  return enter(driver.cuMemAllocManaged(dptr, bytesize, flags), dptr, bytesize, &new);
}

/* Of a plain pool, the pool keeps it. */
void plain_gone(const struct allocation *taken) {
  account_gone(taken);
  if (taken->origin != ORIGIN_POOL || taken->backing != BACKING_PINNED)
    return;
  pools_note_used(taken->pool, taken->device, 0, taken->bytes);
  reserves_look(taken->device);
}

/* Swap memory is ours alone: the driver knows nothing of the allocation. */
static CUresult free_now(CUdeviceptr dptr) {
  struct allocation old;
  bool ours = dptr && account_take(&account_addresses, dptr, &old);
  bool swap = ours && old.backing == BACKING_SWAP;
  if (!ours && deferred_holds(dptr))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = swap ? find_fault() : driver.cuMemFree_v2(dptr);
  if (swap && result == CUDA_SUCCESS)
    swap_free(&old, false);
  else if (ours && result == CUDA_SUCCESS)
    plain_gone(&old);
  else if (ours)
    account_put_back(&account_addresses, &old);
  return result;
}

bool plain_free_begin(CUdeviceptr dptr, bool waits) {
  struct allocation found;
  bool freed = dptr && ledger_find(&account_addresses, dptr, &found) && found.backing != BACKING_SWAP;
  if (freed && waits)
    gate_await_work(found.device);
  if (freed)
    gate_forbid_stop(found.device);
  return freed;
}

void plain_free_end(bool begun) {
  if (begun)
    gate_allow_stop();
}

CUresult hook_cuMemFree_v2(CUdeviceptr dptr) {
  bool begun = plain_free_begin(dptr, true);
  CUresult result = free_now(dptr);
  plain_free_end(begun);
  return result;
}
