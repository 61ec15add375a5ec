/*
 * plain.c - what cuMemAlloc and its like ask for comes out of the device's backend, so that it can leave the
 * card (all but some small ones); the program's own unified memory is only booked.
 *
 * In stream order the driver allocates and frees out of a managed pool. Where there are none, memory is
 * allocated at once and freed when the stream has come to the free. In a capture both become nodes of a
 * graph, which owns the memory: passed through.
 */
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/deferred.h"
#include "memory/managed.h"
#include "memory/pinned.h"
#include "memory/placement.h"
#include "memory/pools.h"

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
  } else if (pinned_reserve(like.device, BACKING_PINNED_PLAIN, bytes) == 0) {
    struct pinned_patience patience = {0};
    do
      result = driver.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    while (pinned_again(result, like.device, bytes, &patience));
    like.backend = &backend_pinned;
    result = account_enter(result, dptr, bytes, &like, BACKING_PINNED_PLAIN);
  }
  return result;
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
  struct allocation like = {.origin = ORIGIN_PLAIN, .backend = &backend_managed};
  if (!dptr || !bytesize || !device_current(&like.device, &like.context))
    return driver.cuMemAllocManaged(dptr, bytesize, flags);
  if (reserve_or_trim(like.device, BACKING_APP, bytesize))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = driver.cuMemAllocManaged(dptr, bytesize, flags);
  if (result == CUDA_SUCCESS)
    placement_forget(*dptr, bytesize);
  return account_enter(result, dptr, bytesize, &like, BACKING_APP);
}

/* The driver has freed an allocation that was taken out of the ledger, or will in stream order. Of a plain
 * pool, the pool keeps it. */
static void gone(const struct allocation *taken) {
  account_gone(taken);
  if (taken->origin != ORIGIN_POOL || !backing_is_pinned(taken->backing))
    return;
  reserves_note_used(taken->pool, taken->device, 0, taken->bytes);
  reserves_look(taken->device);
}

static CUresult free_now(CUdeviceptr dptr) {
  struct allocation old;
  if (!dptr || !account_take(&account_addresses, dptr, &old))
    return deferred_holds(dptr) ? CUDA_ERROR_INVALID_VALUE : driver.cuMemFree_v2(dptr);
  CUresult result = old.backend->free(&old, false);
  if (result == CUDA_SUCCESS)
    gone(&old);
  else
    account_put_back(&account_addresses, &old);
  return result;
}

/* Around a free of an allocation that the driver frees: meanwhile the memory is in no ledger by which it
 * could leave. So no work is stopped then, and what stands still goes on first. `waits`: the driver waits for
 * the device's work, so that is waited for before. Returns what the end needs. */
static bool begin_free(CUdeviceptr dptr, bool waits) {
  struct allocation found;
  bool freed = dptr && ledger_find(&account_addresses, dptr, &found) && !found.backend->hidden;
  if (freed && waits)
    gate_await_work(found.device);
  if (freed)
    gate_forbid_stop(found.device);
  return freed;
}

static void end_free(bool begun) {
  if (begun)
    gate_allow_stop();
}

CUresult hook_cuMemFree_v2(CUdeviceptr dptr) {
  bool begun = begin_free(dptr, true);
  CUresult result = free_now(dptr);
  end_free(begun);
  return result;
}

/* ---- in stream order ---- */

/* A stream that cannot be asked is left to the driver, too. */
static bool is_driver_concern(CUstream stream) {
  CUstreamCaptureStatus status;
  return driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool is_capturing(CUstream stream) { return capture_count() > 0 && is_driver_concern(stream); }

/* The program's call, as it was; pool NULL: the current one. */
static CUresult ask_driver(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return pool ? driver.cuMemAllocFromPoolAsync(dptr, bytes, pool, stream)
              : driver.cuMemAllocAsync(dptr, bytes, stream);
}

/* Memory of a pool outlives the contexts: its entry belongs to none. */
static CUresult alloc_from_pool(CUdeviceptr *dptr, size_t bytes, CUmemoryPool asked, const struct pool *pool,
                                CUstream stream) {
  static const enum backing backings[] = {
      [POOL_PLAIN] = BACKING_PINNED_POOLS, [POOL_APP] = BACKING_APP, [POOL_MANAGED] = BACKING_CONVERTED};
  struct allocation new = {
      .origin = ORIGIN_POOL,
      .backing = backings[pool->kind],
      .backend = pool->kind == POOL_PLAIN ? &backend_pinned : &backend_managed,
      .device = pool->device,
      .pool = pool->handle,
  };
  bool stays = backing_is_pinned(new.backing);
  uint64_t reused = stays ? reserves_reuse(new.device, new.pool, bytes) : 0;
  if (stays ? pinned_reserve(new.device, new.backing, bytes - reused)
            : reserve_or_trim(new.device, new.backing, bytes)) {
    budget_release(new.device, new.backing, reused);
    reserves_look(new.device);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  struct pinned_patience patience = {0};
  CUresult result;
  do
    result = ask_driver(dptr, bytes, asked, stream);
  while (stays && pinned_again(result, new.device, bytes - reused, &patience));
  if (result != CUDA_SUCCESS || !*dptr) {
    budget_release(new.device, new.backing, bytes);
    reserves_look(new.device);
    return result;
  }
  if (stays) {
    reserves_note_used(new.pool, new.device, bytes, 0);
    reserves_look(new.device);
  }
  new.base = *dptr;
  new.span = new.bytes = bytes;
  if (new.backing == BACKING_APP)
    placement_forget(new.base, bytes);
  if (pool->kind == POOL_MANAGED && managed_is_worth_populating(bytes) && pools_grew(pool->handle))
    new.away_bytes = managed_populate(stream, new.base, bytes, new.device);
  if (account_add(&account_addresses, &new) == 0)
    return result;
  driver.cuMemFreeAsync(new.base, stream);
  account_gone(&new);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool asked, CUstream stream) {
  CUdevice device;
  CUcontext context;
  if (!dptr || !bytes || !device_current(&device, &context) || is_capturing(stream))
    return ask_driver(dptr, bytes, asked, stream);
  struct pool pool = asked ? pools_find(asked, device) : pools_current(device);
  if (pool.kind == POOL_DESTROYED)
    return CUDA_ERROR_INVALID_VALUE;
  if (pool.kind == POOL_HOST)
    return ask_driver(dptr, bytes, asked, stream);
  if (!device_valid(pool.device))
    pool.device = device;
  if (pool.kind == POOL_MANAGED)
    asked = pool.handle;
  if (pool.kind != POOL_EMULATED)
    return alloc_from_pool(dptr, bytes, asked, &pool, stream);
  if (is_driver_concern(stream))
    return ask_driver(dptr, bytes, asked, stream);
  struct allocation like = {
      .origin = ORIGIN_STREAM, .device = pool.device, .context = context, .pool = pool.handle};
  struct allocation reused;
  if (!deferred_reuse(stream, bytes, &like, &reused))
    return backend_on(like.device)->allocate(dptr, bytes, &like);
  *dptr = reused.base;
  if (account_add(&account_addresses, &reused) == 0)
    return CUDA_SUCCESS;
  deferred_free(&reused, stream);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The driver frees what comes from its pools, and device memory, in stream order; what stands in for that it
 * does not. */
static bool needs_deferral(const struct allocation *allocation) {
  return allocation_stands_in(allocation) && allocation->origin != ORIGIN_POOL;
}

static CUresult free_in_order(CUdeviceptr dptr, CUstream stream) {
  struct allocation old;
  deferred_reap();
  if (!account_take(&account_addresses, dptr, &old))
    return deferred_holds(dptr) ? CUDA_ERROR_INVALID_VALUE : driver.cuMemFreeAsync(dptr, stream);
  bool deferred = needs_deferral(&old);
  CUresult result = allocation_is_mapping(&old) ? CUDA_ERROR_INVALID_VALUE
                    : deferred                  ? deferred_free(&old, stream)
                                                : driver.cuMemFreeAsync(dptr, stream);
  if (result != CUDA_SUCCESS)
    account_put_back(&account_addresses, &old);
  else if (!deferred)
    gone(&old);
  return result;
}

static CUresult free_async(CUdeviceptr dptr, CUstream stream) {
  if (is_capturing(stream))
    return driver.cuMemFreeAsync(dptr, stream);
  bool begun = begin_free(dptr, false);
  CUresult result = free_in_order(dptr, stream);
  end_free(begun);
  return result;
}

CUresult hook_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
  return alloc_async(dptr, bytesize, NULL, hStream);
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
  return alloc_async(dptr, bytesize, NULL, PER_THREAD(hStream));
}

/* A NULL pool is an error that the driver words. */
CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  if (!pool)
    return driver.cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream);
  return alloc_async(dptr, bytesize, pool, hStream);
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                           CUstream hStream) {
  return hook_cuMemAllocFromPoolAsync(dptr, bytesize, pool, PER_THREAD(hStream));
}

CUresult hook_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) { return free_async(dptr, hStream); }

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return free_async(dptr, PER_THREAD(hStream));
}
