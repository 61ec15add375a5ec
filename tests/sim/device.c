/* device.c - cuInit, the driver's version, its error texts, and what can be asked about a device. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_version.h"
#include "frames.h"
#include "objects.h"

struct device devices[STATE_GPUS];

static _Atomic uint64_t claimed_version;

static uint64_t version_of_card(void) {
  struct card card;
  if (atomic_load(&sim.ready))
    return sim.card.driver_version;
  return card_load(&card, getenv("GPUSHARE_SIM_CARD")) == 0 ? card.driver_version : 0;
}

uint64_t driver_version(void) {
  uint64_t version = atomic_load(&claimed_version);
  if (version == 0) {
    version = version_of_card();
    if (version == 0 || version > CUDA_VERSION)
      version = CUDA_VERSION;
    atomic_store(&claimed_version, version);
  }
  return version;
}

CUresult cuInit(unsigned int Flags) { return Flags ? CUDA_ERROR_INVALID_VALUE : process_init(); }

CUresult cuDriverGetVersion(int *driverVersion) {
  if (driverVersion == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = (int)driver_version();
  return CUDA_SUCCESS;
}

/* ---- errors ---- */

static const struct {
  CUresult value;
  const char *name;
} errors[] = {
#define ERROR(name) {name, #name},
#include "errors.inc"
#undef ERROR
};

static const char *error_name(CUresult error) {
  for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
    if (errors[i].value == error)
      return errors[i].name;
  return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **pStr) {
  if (pStr == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  *pStr = error_name(error);
  return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The name without its prefix has to do as the text. */
CUresult cuGetErrorString(CUresult error, const char **pStr) {
  if (pStr == NULL)
    return CUDA_ERROR_INVALID_VALUE;
  const char *name = error_name(error);
  *pStr = name == NULL ? NULL : strncmp(name, "CUDA_ERROR_", 11) == 0 ? name + 11 : "no error";
  return name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices ---- */

void devices_init(void) {
  for (int d = 0; d < sim.device_count; d++) {
    struct device *device = &devices[d];
    device->gpu = sim.gpu_of[d];
    device->primary.device = (unsigned)d;
    device->primary.gpu = device->gpu;
    device->primary.primary = true;
    pool_init(&device->plain_pool, device->gpu, false, true);
    pool_init(&device->managed_pool, device->gpu, true, true);
    device->current_pool = &device->plain_pool;
    device->current_managed_pool = &device->managed_pool;
  }
}

CUresult device_check(CUdevice device) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS && (device < 0 || device >= sim.device_count))
    result = CUDA_ERROR_INVALID_DEVICE;
  return result;
}

CUresult cuDeviceGetCount(int *count) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS && count == NULL)
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    *count = sim.device_count;
  return result;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  CUresult result = device_check(ordinal);
  if (result == CUDA_SUCCESS)
    *device = ordinal;
  return result;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
  CUresult result = device_check(dev);
  if (result == CUDA_SUCCESS)
    snprintf(name, (size_t)len, "%s", sim.card.name);
  return result;
}

/* Derived from the card's name and its number, so that every process sees the same. */
void device_uuid_bytes(unsigned gpu, unsigned char bytes[16]) {
  uint64_t hash = UINT64_C(14695981039346656037) + gpu;
  for (const char *c = sim.card.name; *c; c++)
    hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
  for (int i = 0; i < 16; i++) {
    hash = (hash ^ (hash >> 31)) * UINT64_C(0x9E3779B97F4A7C15);
    bytes[i] = (unsigned char)(hash >> 56);
  }
  bytes[15] = (unsigned char)gpu;
}

void device_uuid_text(unsigned gpu, char text[GPU_UUID_TEXT_SIZE]) {
  unsigned char b[16];
  device_uuid_bytes(gpu, b);
  snprintf(text, GPU_UUID_TEXT_SIZE,
           "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
           b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
  CUresult result = device_check(dev);
  if (result == CUDA_SUCCESS)
    device_uuid_bytes(devices[dev].gpu, (unsigned char *)uuid->bytes);
  return result;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) { return cuDeviceGetUuid_v2(uuid, dev); }

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
  CUresult result = device_check(dev);
  if (result == CUDA_SUCCESS)
    *bytes = sim.card.capacity_bytes;
  return result;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
  CUresult result = device_check(dev);
  if (result == CUDA_SUCCESS)
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", devices[dev].gpu + 1);
  return result;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId) {
  char name[32];
  if (process_check() != CUDA_SUCCESS)
    return process_check();
  for (int d = 0; d < sim.device_count; d++)
    if (cuDeviceGetPCIBusId(name, sizeof(name), d) == CUDA_SUCCESS && strcasecmp(name, pciBusId) == 0) {
      *dev = d;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
  CUresult result = device_check(dev);
  if (result == CUDA_SUCCESS) {
    *major = (int)(sim.card.compute_capability / 10);
    *minor = (int)(sim.card.compute_capability % 10);
  }
  return result;
}

static int attribute_of_card(CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    return (int)sim.card.multiprocessors;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    return (int)(sim.card.compute_capability / 10);
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    return (int)(sim.card.compute_capability % 10);
  case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    return (int)sim.card.concurrent_managed_access;
  case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
    return (int)devices[device].gpu + 1;
  default:
    return 0; /* what the card does not say, it does not have */
  }
}

static const struct {
  CUdevice_attribute attribute;
  int value;
} fixed_attributes[] = {{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
                        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
                        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
                        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
                        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
                        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
                        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
                        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
                        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
                        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
                        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
                        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
                        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
                        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
                        {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
                        {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
                        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
                        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
                        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
                        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
                        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
                        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
                        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
                        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
                        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
                        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
                        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
                        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
                        {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
                        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
                        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
                        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
                        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
                        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
                        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
                        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
                        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
                        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1}};

/* Of CUDA 12 and later: by number, for the headers that do not name it. */
enum { ATTRIBUTE_64_BIT_MEM_OPS = 122, ATTRIBUTE_WAIT_VALUE_NOR = 123 };

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
  CUresult result = device_check(dev);
  if (result != CUDA_SUCCESS)
    return result;
  if (pi == NULL || (int)attrib <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  *pi = attribute_of_card(attrib, dev);
  for (size_t i = 0; i < sizeof(fixed_attributes) / sizeof(fixed_attributes[0]); i++)
    if (fixed_attributes[i].attribute == attrib)
      *pi = fixed_attributes[i].value;
  if ((int)attrib == ATTRIBUTE_64_BIT_MEM_OPS || (int)attrib == ATTRIBUTE_WAIT_VALUE_NOR)
    *pi = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
  CUresult result = device_check(dev);
  if (result == CUDA_SUCCESS)
    result = device_check(peerDev);
  if (result == CUDA_SUCCESS)
    *canAccessPeer = dev != peerDev;
  return result;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  CUcontext context;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS)
    return result;
  *free = frames_free_bytes(context->gpu);
  *total = sim.card.capacity_bytes;
  return CUDA_SUCCESS;
}
