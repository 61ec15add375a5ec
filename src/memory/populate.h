/* populate.h - bring fresh unified memory to the card before its first use, which saves the page faults. */
#ifndef GS_POPULATE_H
#define GS_POPULATE_H

#include <stdint.h>

#include "driver/cuda_abi.h"

/* Queue the move of new memory to the card, if this process holds the GPU. Returns how many bytes are not on
 * their way and should come with the next grant: 0 or `bytes`. Any thread; `context` is current. */
uint64_t populate(CUdeviceptr address, uint64_t bytes, CUdevice device, CUcontext context);

/* The same for stream-ordered memory, which may only be touched in the order of its stream. */
uint64_t populate_on(CUstream stream, CUdeviceptr address, uint64_t bytes, CUdevice device);

void populate_context_destroyed(CUcontext context);
void populate_fork_child(void);

#endif
