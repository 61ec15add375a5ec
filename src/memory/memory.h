/*
 * memory.h - what the rest of the library may ask of the memory room. The hooks of the groups alloc, free,
 * query and pool (hook_cuMemAlloc_v2 and so on, declared from hooks.def) live in this folder too.
 *
 * Threading: any thread, any time.
 */
#ifndef GS_MEMORY_H
#define GS_MEMORY_H

#include <stdint.h>

#include "interpose/cuda_abi.h"

struct memory_usage {
  uint64_t total_bytes;    /* all device memory of this process on the device that we know of */
  uint64_t pinned_bytes;   /* of these: cannot leave the card (passed through unconverted) */
  uint64_t resident_bytes; /* converted bytes believed to be on the card */
};

struct memory_usage memory_usage(CUdevice device);

/* Move up to `bytes` converted resident bytes of this process to host memory in bulk, and wait for it.
 * Called by the client's worker after the drain, gate closed; a context of the device is current.
 * Returns the bytes moved. */
uint64_t memory_evict(CUdevice device, uint64_t bytes);

/* Bring back what memory_evict moved, in bulk, and wait for it. Called with the lock held, gate still closed;
 * a context of the device is current. Returns the bytes moved; 0 at once when nothing is away. */
uint64_t memory_restore(CUdevice device);

/* The context is about to be destroyed, or its device reset: what was allocated in it goes with it. Called
 * before the driver does it where that is known by then, else right after. */
void memory_context_destroyed(CUcontext context);

/* In the child of a fork: forget everything; no driver state has survived. */
void memory_fork_child(void);

#endif
