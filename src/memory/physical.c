/*
 * physical.c - physical memory that the program makes and maps itself (cuMemCreate and its like): passed
 * through, and counted as long as it lives, which is until its last handle is released and its last mapping
 * undone.
 */
#include <stdlib.h>

#include "common/lock.h"
#include "common/log.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/pinned.h"

struct physical {
  uint64_t bytes;
  uint64_t handles, mappings; /* references; under the lock */
  CUdevice device;
};

/* Taken before the ledgers' own locks; never held while the driver is called. */
static struct lock lock = LOCK(LOCK_PHYSICAL);
static struct ledger handles = LEDGER(LOCK_PHYSICAL_TABLE);  /* by handle; object: struct physical */
static struct ledger mappings = LEDGER(LOCK_PHYSICAL_TABLE); /* by address; object likewise */

/* With the lock held: drop the memory if nothing refers to it. The bytes to give back, on `device`. */
static uint64_t forget_unused(struct physical *physical, CUdevice *device) {
  if (physical->handles || physical->mappings)
    return 0;
  uint64_t bytes = physical->bytes;
  *device = physical->device;
  free(physical);
  return bytes;
}

static struct physical *find(struct ledger *ledger, uint64_t key) {
  struct allocation found;
  return ledger_find(ledger, key, &found) ? found.object : NULL;
}

/* With the lock held. An old entry in the way would be one that the driver dropped unheard of. */
static bool list(struct ledger *ledger, uint64_t key, uint64_t span, struct physical *physical) {
  struct allocation entry = {.base = key, .span = span, .object = physical, .origin = ORIGIN_OBJECT};
  return ledger_insert(ledger, &entry, NULL, NULL) == 0;
}

static void log_out_of_memory(void) {
  log_warn("out of host memory for bookkeeping: physical memory, or a mapping of it, is refused");
}

/* Without memory for the entry, the driver's memory goes as well. */
static CUresult list_new(CUmemGenericAllocationHandle handle, uint64_t bytes, CUdevice device) {
  struct physical *new = malloc(sizeof *new);
  bool listed = false;
  if (new) {
    *new = (struct physical){.bytes = bytes, .handles = 1, .device = device};
    lock_take(&lock);
    listed = list(&handles, handle, 1, new);
    lock_release(&lock);
  }
  if (listed)
    return CUDA_SUCCESS;
  free(new);
  driver.cuMemRelease(handle);
  budget_release(device, BACKING_PINNED, bytes);
  log_out_of_memory();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                          unsigned long long flags) {
  bool counted =
      handle && prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && device_valid(prop->location.id);
  if (!counted)
    return driver.cuMemCreate(handle, size, prop, flags);
  CUdevice device = prop->location.id;
  if (pinned_reserve(device, size))
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct pinned_patience patience = {0};
  CUresult result;
  do
    result = driver.cuMemCreate(handle, size, prop, flags);
  while (pinned_again(result, device, size, &patience));
  if (result == CUDA_SUCCESS)
    return list_new(*handle, size, device);
  budget_release(device, BACKING_PINNED, size);
  return result;
}

/* One handle less: before the driver's call, because it may give the same handle out anew at once. */
static struct physical *drop_handle(CUmemGenericAllocationHandle handle) {
  struct allocation entry;
  lock_take(&lock);
  struct physical *physical = find(&handles, handle);
  if (physical && --physical->handles == 0) {
    ledger_take(&handles, handle, &entry);
    physical->mappings++; /* ours, until the driver has answered */
  } else {
    physical = NULL; /* others remain: nothing to settle */
  }
  lock_release(&lock);
  return physical;
}

static void settle_handle(struct physical *physical, CUmemGenericAllocationHandle handle, bool released) {
  uint64_t bytes = 0;
  CUdevice device = 0;
  lock_take(&lock);
  physical->mappings--;
  if (!released && list(&handles, handle, 1, physical))
    physical->handles++;
  else
    bytes = forget_unused(physical, &device);
  lock_release(&lock);
  budget_release(device, BACKING_PINNED, bytes);
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
  struct physical *last = drop_handle(handle);
  CUresult result = driver.cuMemRelease(handle);
  if (last)
    settle_handle(last, handle, result == CUDA_SUCCESS);
  return result;
}

/* What is hidden from the driver is mapped as well, but the program must not know: plain memory has no
 * handle. */
static bool is_hidden(const void *address) {
  struct allocation found;
  return ledger_find(&account_addresses, (uintptr_t)address, &found) && found.backend->hidden;
}

/* A further handle of mapped memory; the driver gives the same number while the first one lives. */
CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  if (is_hidden(addr))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = driver.cuMemRetainAllocationHandle(handle, addr);
  if (result != CUDA_SUCCESS)
    return result;
  lock_take(&lock);
  struct physical *physical = find(&handles, *handle);
  if (physical)
    physical->handles++;
  else if ((physical = find(&mappings, (uintptr_t)addr)) && list(&handles, *handle, 1, physical))
    physical->handles++;
  else if (physical)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  lock_release(&lock);
  if (result != CUDA_SUCCESS) {
    driver.cuMemRelease(*handle);
    log_out_of_memory();
  }
  return result;
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
  CUresult result = driver.cuMemMap(ptr, size, offset, handle, flags);
  if (result != CUDA_SUCCESS || !size)
    return result;
  lock_take(&lock);
  struct physical *physical = find(&handles, handle);
  if (physical && list(&mappings, ptr, size, physical))
    physical->mappings++;
  else if (physical)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  lock_release(&lock);
  if (result != CUDA_SUCCESS) {
    driver.cuMemUnmap(ptr, size);
    log_out_of_memory();
  }
  return result;
}

/* Forget the first mapping that lies in [from, end). False if there is none. */
static bool unmap_one(uint64_t from, uint64_t end) {
  uint64_t bytes = 0;
  CUdevice device = 0;
  struct allocation entry;
  lock_take(&lock);
  bool found = ledger_find_in(&mappings, from, end, &entry) && ledger_take(&mappings, entry.base, &entry);
  if (found) {
    struct physical *physical = entry.object;
    physical->mappings--;
    bytes = forget_unused(physical, &device);
  }
  lock_release(&lock);
  budget_release(device, BACKING_PINNED, bytes);
  return found;
}

/* Afterwards, unlike a free: an unmapped range stays the program's until it gives the addresses back. */
CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size) {
  CUresult result = driver.cuMemUnmap(ptr, size);
  if (result == CUDA_SUCCESS)
    while (unmap_one(ptr, ptr + size))
      ;
  return result;
}

static void forget(void) {
  lock = (struct lock)LOCK(LOCK_PHYSICAL);
  ledger_fork_child(&handles);
  ledger_fork_child(&mappings);
}
IN_FORKED_CHILD(forget);
