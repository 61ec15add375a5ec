/* device.c - facts about a device, asked for once. */
#include "memory/device.h"

#include <stdatomic.h>
#include <stddef.h>

#include "common/log.h"
#include "driver/driver.h"
#include "memory/memory_port.h"
#include "memory/swap/swap.h"

/* Written by any thread that finds them unknown; all write the same. */
static struct {
  _Atomic uint64_t card_bytes;
  _Atomic uint64_t pitch_bytes;
  _Atomic int memory; /* enum memory_mode; MEMORY_UNSET: not decided yet */
  _Atomic int pages;  /* 0: unknown, 1: yes, -1: no */
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

static enum memory_mode told_by_daemon(CUdevice device) {
  switch (memory_port.mode(device)) {
  case GS_MEMORY_SWAP:
    return MEMORY_SWAP;
  case GS_MEMORY_OFF:
    return MEMORY_OFF;
  default:
    return MEMORY_MANAGED;
  }
}

bool device_can_page(CUdevice device) {
  int known = atomic_load_explicit(&facts[device].pages, memory_order_relaxed);
  if (!known) {
    known = has_attribute(device, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) ? 1 : -1;
    atomic_store_explicit(&facts[device].pages, known, memory_order_relaxed);
  }
  return known > 0;
}

/* The best that the device can do of what is wanted. */
static enum memory_mode possible(CUdevice device, enum memory_mode wanted) {
  if (wanted == MEMORY_SWAP && !swap_supported(device))
    wanted = MEMORY_MANAGED;
  if (wanted == MEMORY_MANAGED && !device_can_page(device))
    wanted = MEMORY_OFF;
  return wanted;
}

static void log_difference(CUdevice device, enum memory_mode wanted, enum memory_mode decided) {
  if (decided == MEMORY_OFF)
    log_warn(
        "GPU %d cannot page unified memory (no concurrent managed access): its memory stays as it is and "
        "cannot leave the card",
        device);
  else if (wanted == MEMORY_SWAP)
    log_warn("GPU %d cannot map memory by the piece: unified memory is taken instead", device);
}

/* Of several threads that find it undecided, the first decides. */
static enum memory_mode decide(CUdevice device) {
  enum memory_mode wanted = settings()->memory == MEMORY_UNSET ? told_by_daemon(device) : settings()->memory;
  enum memory_mode decided = possible(device, wanted);
  int known = MEMORY_UNSET;
  if (!atomic_compare_exchange_strong(&facts[device].memory, &known, decided))
    return known;
  if (decided != wanted)
    log_difference(device, wanted, decided);
  return decided;
}

enum memory_mode device_memory(CUdevice device) {
  enum memory_mode known = atomic_load_explicit(&facts[device].memory, memory_order_relaxed);
  return known == MEMORY_UNSET ? decide(device) : known;
}

enum memory_mode device_memory_if_decided(CUdevice device) {
  return settings()->memory == MEMORY_UNSET
             ? (enum memory_mode)atomic_load_explicit(&facts[device].memory, memory_order_relaxed)
             : device_memory(device);
}

bool device_pages(CUdevice device) {
  enum memory_mode mode = device_memory(device);
  return mode == MEMORY_MANAGED || (mode == MEMORY_SWAP && device_can_page(device));
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
  for (int i = 0; i < DEVICES; i++) {
    atomic_store(&facts[i].memory, MEMORY_UNSET);
    atomic_store(&facts[i].pages, 0);
  }
}
