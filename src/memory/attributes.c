/*
 * attributes.c - what the program is told: the card as its own, and converted memory as the plain device
 * memory that it asked for. Only what would lead it onto a path that cannot work stays as the driver has it:
 * that the memory is not fit for IPC, GPUDirect RDMA or hardware decompression.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>

#include "common/log.h"
#include "interpose/driver.h"
#include "interpose/hooks.h"
#include "memory/account.h"
#include "memory/device.h"
#include "settings.h"

static bool find_converted(CUdeviceptr address, struct allocation *found) {
  return ledger_find(&account_addresses, address, found) && found->backing == BACKING_CONVERTED;
}

static bool is_converted(CUdeviceptr address) {
  struct allocation found;
  return find_converted(address, &found);
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
  bool differs = is_flag(attribute) || attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER;
  if (!differs || !data || !find_converted(ptr, &found))
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
  CUresult result = driver.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
  struct allocation found;
  if (result != CUDA_SUCCESS || !attributes || !data || !find_converted(ptr, &found))
    return result;
  for (unsigned int i = 0; i < numAttributes; i++) {
    if (data[i] && is_flag(attributes[i]))
      write_flag(data[i], flag_of(&found, attributes[i]));
    else if (data[i] && attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
      *(void **)data[i] = NULL;
  }
  return result;
}

/* The value is a 4-byte boolean; what the driver has accepted is not NULL. */
CUresult hook_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  CUresult result = driver.cuPointerSetAttribute(value, attribute, ptr);
  if (result == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && is_converted(ptr))
    ledger_set_sync_memops(&account_addresses, ptr, *(const unsigned int *)value != 0);
  return result;
}

/* Sharing with other processes. */

static CUresult refuse_sharing(void) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said))
    log_warn(
        "this program shares device memory with other processes (CUDA IPC), which memory that can leave the "
        "card does not support: set GPUSHARE_MEMORY=off for it");
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
  return is_converted(dptr) ? refuse_sharing() : driver.cuIpcGetMemHandle(pHandle, dptr);
}

CUresult hook_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr) {
  return is_converted(ptr) ? refuse_sharing() : driver.cuMemPoolExportPointer(shareData_out, ptr);
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
  CUresult result = driver.cuMemGetInfo_v2(free, total);
  if (result == CUDA_SUCCESS && free && total && device_current(&device, NULL))
    describe(device, free, total);
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
