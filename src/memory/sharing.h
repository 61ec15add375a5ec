/*
 * sharing.h - changes of memory that is about to be shared with other processes or devices: made in the
 * process' turn, where all of its memory is on the card.
 *
 * Threading: any thread; waits for the turn. No lock of the memory room is held.
 */
#ifndef GS_SHARING_H
#define GS_SHARING_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

/* Call `change` where the process may submit to the device, and no work of it is stopped meanwhile. */
CUresult sharing_in_turn(CUdevice device, CUresult (*change)(void *argument), void *argument);

/* Devices, as a mask, whose work may use memory of this one. */
uint64_t sharing_devices(CUdevice device);

/* Where no work is stopped: wait for all work of these devices. To wait would invalidate a capture:
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if one stays open for longer than that. */
CUresult sharing_finish_work(uint64_t devices, uint64_t captures_ns);

struct alone {
  uint64_t devices;
  sigset_t before;
};

/* Within a change: from here on no work of these devices is under way, and no other thread submits any, until
 * sharing_together. One thread at a time. False, with everything as before: for so long there was work all
 * the time. It may need what another thread would submit. */
bool sharing_alone(struct alone *alone, uint64_t devices, uint64_t patience_ns);
void sharing_together(const struct alone *alone);

#endif
