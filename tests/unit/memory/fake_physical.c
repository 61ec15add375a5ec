/* fake_physical.c - physical memory, its mappings, arrays and peers of the fake driver: handles are small
 * numbers that are used again, and nothing is behind them. */
#include "driver/driver.h"
#include "fake.h"

static bool handles[64];
static unsigned handle_references[64];

static CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags) {
  (void)bytes, (void)prop, (void)flags;
  if (fake.refuse_alloc)
    return fake.refuse_alloc;
  unsigned i = 1;
  while (handles[i])
    i++;
  handles[i] = true;
  handle_references[i] = 1;
  *handle = i;
  return CUDA_SUCCESS;
}

static CUresult fake_release(CUmemGenericAllocationHandle handle) {
  if (fake.refuse_free || handle >= 64 || !handles[handle])
    return CUDA_ERROR_INVALID_VALUE;
  handles[handle] = --handle_references[handle] > 0;
  return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
  (void)address, (void)offset, (void)flags;
  if (handle >= 64 || !handles[handle])
    return CUDA_ERROR_INVALID_VALUE;
  fake.mapped_bytes += bytes;
  return CUDA_SUCCESS;
}

static CUresult fake_unmap(CUdeviceptr address, size_t bytes) {
  (void)address;
  fake.mapped_bytes -= bytes;
  return CUDA_SUCCESS;
}

static CUresult fake_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
  (void)alignment, (void)wanted, (void)flags;
  *address = fake_new_range(bytes);
  fake.reserved_ranges++;
  return CUDA_SUCCESS;
}

static CUresult fake_unreserve(CUdeviceptr address, size_t bytes) {
  (void)address, (void)bytes;
  fake.reserved_ranges--;
  return CUDA_SUCCESS;
}

static CUresult fake_granularity(size_t *bytes, const CUmemAllocationProp *prop,
                                 CUmemAllocationGranularity_flags option) {
  (void)prop, (void)option;
  *bytes = FAKE_PAGE_BYTES;
  return CUDA_SUCCESS;
}

static CUresult fake_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                size_t count) {
  (void)address, (void)bytes;
  fake.last_access = access[count - 1];
  fake.access_calls++;
  return CUDA_SUCCESS;
}

static CUresult fake_copy_out(void *host, CUdeviceptr address, size_t bytes, CUstream stream) {
  (void)host, (void)address, (void)bytes, (void)stream;
  return CUDA_SUCCESS;
}

static CUresult fake_copy_in(CUdeviceptr address, const void *host, size_t bytes, CUstream stream) {
  (void)host, (void)address, (void)bytes, (void)stream;
  return CUDA_SUCCESS;
}

static CUresult fake_pin(void *host, size_t bytes, unsigned flags) {
  (void)host, (void)bytes, (void)flags;
  return CUDA_SUCCESS;
}

static CUresult fake_unpin(void *host) {
  (void)host;
  return CUDA_SUCCESS;
}

static CUresult fake_enable_peer(CUcontext context, unsigned flags) {
  (void)context, (void)flags;
  return fake.refuse_peer;
}

static CUresult fake_disable_peer(CUcontext context) {
  (void)context;
  return fake.refuse_peer;
}

static CUresult fake_retain(CUmemGenericAllocationHandle *handle, void *address) {
  unsigned i = (unsigned)((uintptr_t)address >> 32); /* the tests put the handle there */
  handles[i] = true;
  handle_references[i]++;
  *handle = i;
  return CUDA_SUCCESS;
}

static CUresult fake_array(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape) {
  static uintptr_t next = 0x600;
  (void)shape;
  *array = (CUarray)next++;
  return fake.refuse_alloc;
}

static CUresult fake_array_destroy(CUarray array) {
  (void)array;
  return fake.refuse_free;
}

void fake_install_physical(void) {
  driver.cuMemCreate = fake_create;
  driver.cuMemRelease = fake_release;
  driver.cuMemMap = fake_map;
  driver.cuMemUnmap = fake_unmap;
  driver.cuMemRetainAllocationHandle = fake_retain;
  driver.cuMemAddressReserve = fake_reserve;
  driver.cuMemAddressFree = fake_unreserve;
  driver.cuMemGetAllocationGranularity = fake_granularity;
  driver.cuMemSetAccess = fake_set_access;
  driver.cuMemcpyDtoHAsync_v2 = fake_copy_out;
  driver.cuMemcpyHtoDAsync_v2 = fake_copy_in;
  driver.cuMemHostRegister_v2 = fake_pin;
  driver.cuMemHostUnregister = fake_unpin;
  driver.cuCtxEnablePeerAccess = fake_enable_peer;
  driver.cuCtxDisablePeerAccess = fake_disable_peer;
  driver.cuArrayCreate_v2 = fake_array;
  driver.cuArrayDestroy = fake_array_destroy;
}
