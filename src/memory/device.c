/* device.c - facts about a device, asked for once. */
#include "memory/device.h"

#include <stdatomic.h>
#include <stddef.h>

#include "common/log.h"
#include "interpose/driver.h"
#include "settings.h"

/* Written by any thread that finds them unknown; all write the same. */
static struct {
  _Atomic uint64_t card_bytes;
  _Atomic uint64_t pitch_bytes;
  _Atomic int managed; /* 0: unknown, 1: yes, -1: no */
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

static int ask_managed(CUdevice device) {
  bool managed = has_attribute(device, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
  int known = 0;
  if (atomic_compare_exchange_strong(&facts[device].managed, &known, managed ? 1 : -1) && !managed)
    log_warn(
        "GPU %d cannot page unified memory (no concurrent managed access): its memory stays as it is and "
        "cannot leave the card",
        device);
  return managed ? 1 : -1;
}

bool device_converts(CUdevice device) {
  if (settings()->memory != MEMORY_MANAGED)
    return false;
  int managed = atomic_load_explicit(&facts[device].managed, memory_order_relaxed);
  return (managed ? managed : ask_managed(device)) > 0;
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

CUstreamCaptureMode capture_relax(void) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  return mode;
}

void capture_unrelax(CUstreamCaptureMode mode) { driver.cuThreadExchangeStreamCaptureMode(&mode); }

void device_fork_child(void) {
  for (int i = 0; i < DEVICES; i++)
    atomic_store(&facts[i].managed, 0);
}
