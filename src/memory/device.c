/* device.c - facts about a device, asked for once. */
#include "memory/device.h"

#include <stdatomic.h>
#include <stddef.h>

#include "driver/driver.h"
#include "memory/forked.h"

/* Written by any thread that finds them unknown; all write the same. */
static struct {
  _Atomic uint64_t card_bytes;
  _Atomic uint64_t pitch_bytes;
  _Atomic int pages; /* 0: unknown, 1: yes, -1: no */
} facts[DEVICES];

bool device_valid(CUdevice device) { return device >= 0 && device < DEVICES; }

bool device_current(CUdevice *device, CUcontext *context) {
  if (driver.cuCtxGetDevice(device) != CUDA_SUCCESS || !device_valid(*device))
    return false;
  return !context || driver.cuCtxGetCurrent(context) == CUDA_SUCCESS;
}

static bool has_attribute(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value;
}

bool device_can_page(CUdevice device) {
  int known = atomic_load_explicit(&facts[device].pages, memory_order_relaxed);
  if (!known) {
    known = has_attribute(device, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) ? 1 : -1;
    atomic_store_explicit(&facts[device].pages, known, memory_order_relaxed);
  }
  return known > 0;
}

uint64_t device_card_bytes(CUdevice device) {
  uint64_t bytes = atomic_load_explicit(&facts[device].card_bytes, memory_order_relaxed);
  size_t total;
  if (!bytes && driver.cuDeviceTotalMem_v2(&total, device) == CUDA_SUCCESS) {
    bytes = total;
    atomic_store_explicit(&facts[device].card_bytes, bytes, memory_order_relaxed);
  }
  return bytes;
}

uint64_t device_pitch_bytes(CUdevice device) {
  uint64_t bytes = atomic_load_explicit(&facts[device].pitch_bytes, memory_order_relaxed);
  if (!bytes) {
    int alignment = 0;
    CUresult result = driver.cuDeviceGetAttribute(&alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device);
    bytes = result == CUDA_SUCCESS && alignment > 0 ? (uint64_t)alignment : 512;
    atomic_store_explicit(&facts[device].pitch_bytes, bytes, memory_order_relaxed);
  }
  return bytes;
}

CUresult device_fault(void) {
  CUresult result = driver.cuCtxGetStreamPriorityRange(NULL, NULL);
  return driver_is_fatal(result) ? result : CUDA_SUCCESS;
}

CUstreamCaptureMode capture_relax(void) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  return mode;
}

void capture_unrelax(CUstreamCaptureMode mode) { driver.cuThreadExchangeStreamCaptureMode(&mode); }

static void forget(void) {
  for (int i = 0; i < DEVICES; i++)
    atomic_store(&facts[i].pages, 0);
}
IN_FORKED_CHILD(forget);
