/*
 * gate_port.h - what the gate needs of the rooms below it: client and memory. They define the one constant,
 * gate_port (client/ports.c); so the gate names none of their functions.
 *
 * Why a constant: calls may come before any constructor has run.
 * Threading: any thread. Nothing here is called on the hot path.
 */
#ifndef GS_GATE_PORT_H
#define GS_GATE_PORT_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

struct gate_port {
  /* A context on this device exists or is about to: attach it to the daemon. Returns at once; the device's
   * gate stays shut until the daemon grants the lock or turns out to be absent. */
  void (*attach)(CUdevice device);

  /* The program has a context on this device. Returns at once. */
  void (*context_added)(CUdevice device);

  /* A thread waits at the device's gate: ask for the lock, unless that is done. Returns at once. */
  void (*want)(CUdevice device);

  /* A call for this device has passed the gate, which was told to tell (gate_watch). Returns at once. */
  void (*submits)(CUdevice device);

  /* Work that the process has submitted to this device stands still, or is about to be stopped. */
  bool (*is_stopped)(CUdevice device);

  /* Work that rests by the job's share goes on: returns once it does. Caller must: have forbidden stops. */
  void (*await_go)(CUdevice device);

  /* What becomes of a context, told to the memory room: memory.h. */
  void (*context_leaving)(CUcontext context);
  void (*context_left)(CUcontext context);
  void (*context_destroyed)(CUcontext context);
  void (*green_context_destroyed)(CUcontext context, CUcontext primary);
  void (*context_gone)(CUcontext context);
};

extern const struct gate_port gate_port __attribute__((visibility("hidden")));

#endif
