/*
 * device.h - facts about a device that decide how its memory is treated, and small helpers for calls of ours
 * in the program's threads.
 *
 * Threading: any thread. Facts are asked for once and then kept.
 */
#ifndef GS_DEVICE_H
#define GS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "gpushare/protocol.h"
#include "settings.h"

#define DEVICES GS_GPUS_PER_CLIENT

/* The device, and if asked for the context, current in this thread. False if there is none, or its ordinal is
 * beyond what we keep books for: then the call is passed through untouched. */
bool device_current(CUdevice *device, CUcontext *context);

bool device_valid(CUdevice device);

/* What stands behind the program's plain memory on this device: MEMORY_MANAGED, MEMORY_SWAP or MEMORY_OFF.
 * Decided when first asked, and kept: by the environment, else by the daemon (may wait for its answer), and
 * by what the device can do, which is logged where it differs. */
enum memory_mode device_memory(CUdevice device);

/* As far as that can be said without waiting; MEMORY_UNSET: it can't yet. */
enum memory_mode device_memory_if_decided(CUdevice device);

/* Whether the program's plain memory on this device can leave the card. */
static inline bool device_converts(CUdevice device) { return device_memory(device) != MEMORY_OFF; }

/* Whether unified memory stands in for device memory: all of it under MEMORY_MANAGED, that of pools under
 * MEMORY_SWAP where the device can page. */
bool device_pages(CUdevice device);

/* Whether the device's page faults fetch unified memory that is not on the card. */
bool device_can_page(CUdevice device);

/* What the driver says the card has; 0 if it does not say. */
uint64_t device_card_bytes(CUdevice device);

/* The pitch of a plain 2D allocation is a multiple of this. */
uint64_t device_pitch_bytes(CUdevice device);

/* Around driver calls of ours that the program did not make: they must not spoil a capture of its. */
CUstreamCaptureMode capture_relax(void);
void capture_unrelax(CUstreamCaptureMode mode);

void device_fork_child(void);

#endif
