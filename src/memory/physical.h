/* physical.h - memory that is passed through and cannot leave the card: physical handles and arrays. */
#ifndef GS_PHYSICAL_H
#define GS_PHYSICAL_H

#include <stdint.h>

#include "interpose/cuda_abi.h"

/* What an array of this shape takes, as far as its format is known; 0 for arrays without memory of their own
 * (sparse ones, and those whose memory is mapped later). Saturates. */
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels);

/* Reserve bytes that cannot leave the card, and wait until those of others have left that must: the driver is
 * asked for them right away. 0 or -ENOMEM. Any thread. */
int physical_reserve(CUdevice device, uint64_t bytes);

void physical_fork_child(void);

#endif
