/*
 * attributes.c - what the program is told: the card as its own, and memory that can leave it as the plain
 * device memory that it asked for. Only what would lead it onto a path that cannot work is said as it is:
 * that the memory is not fit for IPC, GPUDirect RDMA or hardware decompression.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>

#include "common/log.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "memory/account.h"
#include "memory/deferred.h"
#include "memory/device.h"
#include "memory/pointers.h"
#include "memory/reserves.h"
#include "memory/swap/blocks.h"

static bool find(CUdeviceptr address, enum backing backing, struct allocation *found) {
  return ledger_find(&account_addresses, address, found) && found->backing == backing;
}

static bool find_swap(CUdeviceptr address, struct allocation *found) {
  return find(address, BACKING_SWAP, found);
}

/* In a block of ours, but in no allocation: to the program there is nothing, to the driver a mapping. */
static bool is_gone(CUdeviceptr address) {
  return block_contains(address) && !ledger_find(&account_addresses, address, NULL);
}

/* Whether we have put something else in the place of device memory. */
static bool is_ours(CUdeviceptr address) {
  struct allocation found;
  return ledger_find(&account_addresses, address, &found) &&
         (found.backing == BACKING_CONVERTED || found.backing == BACKING_SWAP);
}

/* Pointer attributes. */

/* Some programs pass a bool, some an int: the driver has written 0 or 1, of which one byte can differ. */
static void write_flag(void *data, bool value) {
  const union {
    int value;
    unsigned char first_byte;
  } one = {.value = 1};
  if (one.first_byte)
    *(unsigned char *)data = value;
  else
    *(int *)data = value;
}

static bool is_flag(CUpointer_attribute attribute) {
  return attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED || attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
}

/* Plain memory is not managed, and its operations synchronize only if the program has said so; those of
 * unified memory always do. */
static bool flag_of(const struct allocation *allocation, CUpointer_attribute attribute) {
  return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && allocation->sync_memops;
}

CUresult hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  struct allocation found;
  if (find_swap(ptr, &found))
    return pointers_attribute(&found, ptr, attribute, data);
  if (is_gone(ptr))
    return CUDA_ERROR_INVALID_VALUE;
  bool differs = is_flag(attribute) || attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER;
  if (!differs || !data || !find(ptr, BACKING_CONVERTED, &found))
    return driver.cuPointerGetAttribute(data, attribute, ptr);
  if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
    void *unused;
    CUresult result = driver.cuPointerGetAttribute(&unused, attribute, ptr);
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
  }
  CUresult result = driver.cuPointerGetAttribute(data, attribute, ptr);
  if (result == CUDA_SUCCESS)
    write_flag(data, flag_of(&found, attribute));
  return result;
}

CUresult hook_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                     CUdeviceptr ptr) {
  struct allocation found;
  if (find_swap(ptr, &found))
    return pointers_attributes(&found, ptr, numAttributes, attributes, data);
  CUresult result = driver.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
  if (result != CUDA_SUCCESS || !attributes || !data || !find(ptr, BACKING_CONVERTED, &found))
    return result;
  for (unsigned int i = 0; i < numAttributes; i++) {
    if (data[i] && is_flag(attributes[i]))
      write_flag(data[i], flag_of(&found, attributes[i]));
    else if (data[i] && attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
      *(void **)data[i] = NULL;
  }
  return result;
}

/* The value is a 4-byte boolean; what the driver has accepted is not NULL. It refuses mapped memory, so for
 * that the attribute is only remembered. */
CUresult hook_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  struct allocation found;
  bool sync = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  CUresult result =
      sync && find_swap(ptr, &found) ? CUDA_SUCCESS : driver.cuPointerSetAttribute(value, attribute, ptr);
  if (result == CUDA_SUCCESS && sync && is_ours(ptr))
    ledger_set_sync_memops(&account_addresses, ptr, *(const unsigned int *)value != 0);
  return result;
}

/* Without a current context the driver says so. */
CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
  struct allocation found;
  CUdevice device;
  bool ours = find_swap(dptr, &found), gone = !ours && is_gone(dptr);
  if ((!ours && !gone) || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
    return driver.cuMemGetAddressRange_v2(pbase, psize, dptr);
  if (gone)
    return CUDA_ERROR_NOT_FOUND;
  if (pbase)
    *pbase = found.base;
  if (psize)
    *psize = found.span;
  return CUDA_SUCCESS;
}

/* Plain memory has no access flags of its own: the driver says 0. */
CUresult hook_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
  struct allocation found;
  if (!flags || !location || !find_swap(ptr, &found))
    return driver.cuMemGetAccess(flags, location, ptr);
  *flags = 0;
  return CUDA_SUCCESS;
}

/* Sharing with other processes and devices. */

static CUresult refuse_sharing(void) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said))
    log_warn(
        "this program shares device memory with other processes or devices (CUDA IPC, dma-buf), which memory "
        "that can leave the card does not support: set GPUSHARE_MEMORY=off for it");
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
  return is_ours(dptr) ? refuse_sharing() : driver.cuIpcGetMemHandle(pHandle, dptr);
}

CUresult hook_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr) {
  return is_ours(ptr) ? refuse_sharing() : driver.cuMemPoolExportPointer(shareData_out, ptr);
}

CUresult hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                            CUmemRangeHandleType handleType, unsigned long long flags) {
  return is_ours(dptr) ? refuse_sharing()
                       : driver.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
}

/* How much memory there is. */

static size_t lesser(uint64_t a, size_t b) { return a < b ? (size_t)a : b; }

/* Memory that stays on the card needs room on the card, so there the driver's own word bounds ours. */
static void describe(CUdevice device, size_t *free_bytes, size_t *total_bytes) {
  uint64_t total = budget_total_bytes(device), left = budget_free_bytes(device);
  if (!total)
    return;
  *total_bytes = lesser(total, *total_bytes);
  *free_bytes = device_converts(device) ? (size_t)left : lesser(left, *free_bytes);
}

CUresult hook_cuMemGetInfo_v2(size_t *free, size_t *total) {
  CUdevice device;
  deferred_reap();
  CUresult result = driver.cuMemGetInfo_v2(free, total);
  if (result == CUDA_SUCCESS && free && total && device_current(&device, NULL)) {
    reserves_look(device);
    describe(device, free, total);
  }
  return result;
}

static unsigned int narrow(size_t bytes) { return bytes < UINT_MAX ? (unsigned int)bytes : UINT_MAX; }

CUresult hook_cuMemGetInfo(unsigned int *free, unsigned int *total) {
  CUresult result = driver.cuMemGetInfo(free, total);
  size_t free_bytes, total_bytes;
  if (result == CUDA_SUCCESS && free && total &&
      hook_cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
    *free = narrow(free_bytes);
    *total = narrow(total_bytes);
  }
  return result;
}

CUresult hook_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
  CUresult result = driver.cuDeviceTotalMem_v2(bytes, dev);
  uint64_t total = result == CUDA_SUCCESS && device_valid(dev) ? budget_total_bytes(dev) : 0;
  if (total)
    *bytes = lesser(total, *bytes);
  return result;
}

CUresult hook_cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
  CUresult result = driver.cuDeviceTotalMem(bytes, dev);
  size_t total;
  if (result == CUDA_SUCCESS && hook_cuDeviceTotalMem_v2(&total, dev) == CUDA_SUCCESS)
    *bytes = narrow(total);
  return result;
}
