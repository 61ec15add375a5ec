/*
 * residency.h - moves the process' unified memory out of a card and back, in bulk.
 *
 * Threading: residency_step is the GPU's worker's; the program may allocate and free meanwhile.
 */
#ifndef GS_RESIDENCY_H
#define GS_RESIDENCY_H

#include <stdint.h>

#include "driver/cuda_abi.h"
#include "memory/memory.h"

/* Move one step's worth towards having at most room_bytes of unified memory on the card, or as much of what
 * is away as fits into them, and wait for it. A context of the device is current. Adds to `moved`.
 * MEMORY_SETTLED: the room is reached, or what is left does not move. */
enum memory_progress residency_step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved);

/* Memory that is carried (carry.h), and does not come to the card now, comes into host memory: one step. */
enum memory_progress residency_land(CUdevice device);

/* The process goes on with what is there. */
void residency_opened(CUdevice device);

void residency_fork_child(void);

#endif
