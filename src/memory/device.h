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

#define DEVICES GS_GPUS_PER_CLIENT

/* The device, and if asked for the context, current in this thread. False if there is none, or its ordinal is
 * beyond what we keep books for: then the call is passed through untouched. */
bool device_current(CUdevice *device, CUcontext *context);

bool device_valid(CUdevice device);

/* Whether the device's page faults fetch unified memory that is not on the card. */
bool device_can_page(CUdevice device);

/* What the driver says the card has; 0 if it does not say. */
uint64_t device_card_bytes(CUdevice device);

/* The pitch of a plain 2D allocation is a multiple of this. */
uint64_t device_pitch_bytes(CUdevice device);

/* The error of a kernel that has faulted, or CUDA_SUCCESS. Why: nearly all calls fail from then on, but not
 * those that make memory by the piece. So this asks another one, which changes nothing. */
CUresult device_fault(void);

/* Around driver calls of ours that the program did not make: they must not spoil a capture of its. */
CUstreamCaptureMode capture_relax(void);
void capture_unrelax(CUstreamCaptureMode mode);

#endif
