/*
 * attributes.c - what the program is told: the card as its own, and memory that can leave it as the plain
 * device memory that it asked for. Only what would lead it onto a path that cannot work is said as it is:
 * that the memory is not fit for GPUDirect RDMA or hardware decompression, nor always for IPC.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "common/log.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/deferred.h"
#include "memory/ipc.h"
#include "memory/physical.h"
#include "memory/pinned.h"
#include "memory/swap/blocks.h"
#include "memory/swap/swap.h"

static bool find(CUdeviceptr address, struct allocation *found) {
  return ledger_find(&account_addresses, address, found);
}

static bool find_hidden(CUdeviceptr address, struct allocation *found) {
  return find(address, found) && found->backend->hidden;
}

/* In a block of ours, but in no allocation: to the program there is nothing, to the driver a mapping. */
static bool is_gone(CUdeviceptr address) { return block_contains(address) && !find(address, NULL); }

/* Whether we have put something else in the place of device memory. */
static bool is_ours(CUdeviceptr address) {
  struct allocation found;
  return find(address, &found) && allocation_stands_in(&found);
}

/* ---- a pointer to memory that is hidden from the driver: with the widths that driver 580 writes ---- */

#define HW_DECOMPRESS_CAPABLE 21 /* an attribute that came with CUDA 12.8 */
#define PAGE_BYTES (UINT64_C(2) << 20)

/* The driver counts its own from 1: ours must differ from them. */
#define FIRST_ID (UINT64_C(1) << 62)

struct answer {
  uint64_t value;
  size_t bytes; /* 0: this attribute is not known here */
};

static struct answer whole(uint64_t value) { return (struct answer){value, sizeof(uint64_t)}; }
static struct answer word(unsigned int value) { return (struct answer){value, sizeof(unsigned int)}; }

/* Of a mapping of cuMemCreate: where that is not as for plain memory. */
static bool answer_mapping(const struct allocation *allocation, CUdeviceptr address, int attribute,
                           struct answer *answer) {
  struct physical_view view;
  if (!allocation_is_mapping(allocation) || !physical_describe(address, &view))
    return false;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *answer = whole(view.base);
    return true;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *answer = whole(view.bytes);
    return true;
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    *answer = whole((uint64_t)view.types);
    return true;
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    *answer = word(view.rights);
    return true;
  default:
    return false;
  }
}

static struct answer answer(const struct allocation *allocation, CUdeviceptr address, int attribute) {
  struct answer special;
  if (answer_mapping(allocation, address, attribute, &special))
    return special;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    return whole((uintptr_t)allocation->context);
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    return word(CU_MEMORYTYPE_DEVICE);
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    return whole(address);
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    return whole(0);
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    return word(allocation->sync_memops);
  case CU_POINTER_ATTRIBUTE_BUFFER_ID:
  case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    return whole(FIRST_ID + allocation->sequence);
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    return word((unsigned int)allocation->device);
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
  case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    return whole(allocation->base);
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    return whole(allocation->span);
  case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    return whole((allocation->span + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
  case CU_POINTER_ATTRIBUTE_MAPPED:
    return word(1);
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    return word(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    return whole((uintptr_t)allocation->pool);
  case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    return word(ipc_can_share(allocation));
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
  case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
  case HW_DECOMPRESS_CAPABLE:
    return word(0);
  default:
    return (struct answer){0};
  }
}

/* Peer-to-peer tokens are for devices that reach the memory behind the driver's back. */
static bool is_refused(CUpointer_attribute attribute) { return attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS; }

/* Little-endian, as all of CUDA's platforms are. */
static void store(const struct answer *answer, void *data) { memcpy(data, &answer->value, answer->bytes); }

static CUresult tell_one(const struct allocation *allocation, CUdeviceptr address,
                         CUpointer_attribute attribute, void *data) {
  struct answer found = answer(allocation, address, attribute);
  if (!data || is_refused(attribute))
    return CUDA_ERROR_INVALID_VALUE;
  if (!found.bytes)
    return driver.cuPointerGetAttribute(data, attribute, address);
  store(&found, data);
  return attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult one_of_many(const struct allocation *allocation, CUdeviceptr address,
                            CUpointer_attribute attribute, void *data) {
  struct answer found = answer(allocation, address, attribute);
  if (!data || is_refused(attribute))
    return CUDA_ERROR_INVALID_VALUE;
  if (!found.bytes)
    return driver.cuPointerGetAttributes(1, &attribute, &data, address);
  store(&found, data);
  return CUDA_SUCCESS;
}

static CUresult tell_all(const struct allocation *allocation, CUdeviceptr address, unsigned int count,
                         const CUpointer_attribute *attributes, void *const *data) {
  CUresult result = count && attributes && data ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = one_of_many(allocation, address, attributes[i], data[i]);
  return result;
}

/* ---- the attributes of any pointer ---- */

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
  if (find_hidden(ptr, &found))
    return tell_one(&found, ptr, attribute, data);
  if (is_gone(ptr))
    return CUDA_ERROR_INVALID_VALUE;
  bool differs = is_flag(attribute) || attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER;
  if (!differs || !data || !find(ptr, &found) || !allocation_stands_in(&found))
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
  if (find_hidden(ptr, &found))
    return tell_all(&found, ptr, numAttributes, attributes, data);
  CUresult result = driver.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
  if (result != CUDA_SUCCESS || !attributes || !data || !find(ptr, &found) || !allocation_stands_in(&found))
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
      sync && find_hidden(ptr, &found) ? CUDA_SUCCESS : driver.cuPointerSetAttribute(value, attribute, ptr);
  if (result == CUDA_SUCCESS && sync && is_ours(ptr))
    ledger_set_sync_memops(&account_addresses, ptr, *(const unsigned int *)value != 0);
  return result;
}

/* Without a current context the driver says so. */
CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
  struct allocation found;
  CUdevice device;
  bool ours = find_hidden(dptr, &found), gone = !ours && is_gone(dptr);
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
  CUresult result;
  if (!flags || !location || !find_hidden(ptr, &found))
    return driver.cuMemGetAccess(flags, location, ptr);
  if (physical_access(ptr, location, flags, &result))
    return result;
  *flags = 0;
  return CUDA_SUCCESS;
}

/* ---- sharing with other processes and devices ---- */

static CUresult refuse_sharing(void) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said))
    log_warn(
        "this program shares device memory with other processes or devices (a pool, dma-buf), which memory "
        "that can leave the card does not support: set GPUSHARE_MEMORY=off for it");
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult hook_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr) {
  return is_ours(ptr) ? refuse_sharing() : driver.cuMemPoolExportPointer(shareData_out, ptr);
}

CUresult hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                            CUmemRangeHandleType handleType, unsigned long long flags) {
  CUresult result = physical_give_range(dptr, size);
  if (result != CUDA_SUCCESS)
    return result;
  return is_ours(dptr) ? refuse_sharing()
                       : driver.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
}

/* ---- how much memory there is ---- */

static size_t lesser(uint64_t a, size_t b) { return a < b ? (size_t)a : b; }

/* The program is likely to allocate what can't leave: its plain memory is so, or most of what it has is. */
static bool pins(CUdevice device) {
  uint64_t pinned = budget_pinned_bytes(device);
  return !backend_leaves(device) || pinned > budget_sum_bytes(device) - pinned;
}

/* Memory that stays on the card needs room there, so the driver's own word bounds ours, but for what makes
 * way. */
static void describe(CUdevice device, size_t *free_bytes, size_t *total_bytes) {
  uint64_t total = budget_total_bytes(device);
  if (!total)
    return;
  struct budget_left left = budget_ask_left(device);
  uint64_t spare_bytes = swap_spare_bytes(device);
  *total_bytes = lesser(total, *total_bytes);
  *free_bytes = pins(device) ? lesser(left.pinned_bytes + spare_bytes,
                                      *free_bytes + spare_bytes + left.making_way_bytes)
                             : (size_t)lesser(left.bytes + spare_bytes, total);
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

/* ---- why a stream memory operation was refused ---- */

static bool is_converted(CUdeviceptr address) {
  struct allocation found;
  return find(address, &found) && allocation_stands_in(&found) && !found.backend->hidden;
}

static void say_once(void) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said))
    log_warn("the driver refuses stream memory operations (cuStreamWriteValue, cuStreamWaitValue) on unified "
             "memory, which large allocations are here: set GPUSHARE_MEMORY=swap for this program");
}

void values_refused(CUdeviceptr address) {
  if (is_converted(address))
    say_once();
}

void values_refused_batch(const CUstreamBatchMemOpParams *operations, unsigned int count) {
  for (unsigned int i = 0; operations && i < count; i++)
    switch (operations[i].operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      values_refused(operations[i].waitValue.address);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      values_refused(operations[i].writeValue.address);
      break;
    default:
      break;
    }
}
