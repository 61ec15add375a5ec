/*
 * plain.c - plain allocations: what cuMemAlloc and cuMemAllocPitch ask for comes out of the device's backend,
 * so that it can leave the card (all but some small ones); the program's own unified memory is only booked.
 */
#include "memory/plain.h"

#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/gate.h"
#include "memory/backend.h"
#include "memory/deferred.h"
#include "memory/pinned.h"
#include "memory/pools.h"
#include "memory/reserves.h"

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
  struct allocation like = {.origin = ORIGIN_PLAIN};
  if (!dptr || !bytesize || !device_current(&like.device, &like.context))
    return driver.cuMemAlloc_v2(dptr, bytesize);
  return backend_on(like.device)->allocate(dptr, bytesize, &like);
}

static bool is_element_size(unsigned int bytes) { return bytes == 4 || bytes == 8 || bytes == 16; }

/* The driver judges what it may refuse: other element sizes, and sizes beyond all bounds. */
CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                 unsigned int ElementSizeBytes) {
  struct allocation like = {.origin = ORIGIN_PLAIN};
  size_t pitch, bytes;
  if (!dptr || !pPitch || !WidthInBytes || !Height || !device_current(&like.device, &like.context))
    return driver.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  size_t step = device_pitch_bytes(like.device);
  if (__builtin_add_overflow(WidthInBytes, step - 1, &pitch) ||
      __builtin_mul_overflow(pitch -= pitch % step, Height, &bytes))
    return driver.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (is_element_size(ElementSizeBytes) && backend_leaves(like.device)) {
    result = backend_on(like.device)->allocate(dptr, bytes, &like);
    *pPitch = result == CUDA_SUCCESS ? pitch : *pPitch;
  } else if (pinned_reserve(like.device, bytes) == 0) {
    struct pinned_patience patience = {0};
    do
      result = driver.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    while (pinned_again(result, like.device, bytes, &patience));
    result = account_enter(result, dptr, bytes, &like, BACKING_PINNED);
  }
  return result;
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
  struct allocation like = {.origin = ORIGIN_PLAIN};
  if (!dptr || !bytesize || !device_current(&like.device, &like.context))
    return driver.cuMemAllocManaged(dptr, bytesize, flags);
  if (budget_reserve(like.device, BACKING_APP, bytesize))
    return CUDA_ERROR_OUT_OF_MEMORY;
  return account_enter(driver.cuMemAllocManaged(dptr, bytesize, flags), dptr, bytesize, &like, BACKING_APP);
}

/* Of a plain pool, the pool keeps it. */
void plain_gone(const struct allocation *taken) {
  account_gone(taken);
  if (taken->origin != ORIGIN_POOL || taken->backing != BACKING_PINNED)
    return;
  pools_note_used(taken->pool, taken->device, 0, taken->bytes);
  reserves_look(taken->device);
}

static CUresult free_now(CUdeviceptr dptr) {
  struct allocation old;
  if (!dptr || !account_take(&account_addresses, dptr, &old))
    return deferred_holds(dptr) ? CUDA_ERROR_INVALID_VALUE : driver.cuMemFree_v2(dptr);
  CUresult result = backend_of(&old)->free(&old, false);
  if (result == CUDA_SUCCESS)
    plain_gone(&old);
  else
    account_put_back(&account_addresses, &old);
  return result;
}

bool plain_free_begin(CUdeviceptr dptr, bool waits) {
  struct allocation found;
  bool freed = dptr && ledger_find(&account_addresses, dptr, &found) && !backend_of(&found)->hidden;
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
