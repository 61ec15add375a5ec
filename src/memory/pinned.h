/* pinned.h - memory that cannot leave the card. Any thread. */
#ifndef GS_PINNED_H
#define GS_PINNED_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

/* What an array of this shape takes, as far as its format is known; 0 for arrays without memory of their own
 * (sparse ones, and those whose memory is mapped later). Saturates. */
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels);

/* Reserve bytes that cannot leave the card, and wait until those of others have left that must: the driver is
 * asked for them right away. Nothing is waited for at 0 bytes. 0 or -ENOMEM. */
int pinned_reserve(CUdevice device, uint64_t bytes);

/* What has come of asking the driver for them. Begins as {0}. */
struct pinned_patience {
  uint64_t refused_ns; /* the first time; 0: it has not */
  uint64_t pause_ns;
  unsigned unexplained; /* refusals in a row though the card has enough */
};

/* The driver has answered. True: it has refused what there should be room for, and is to be asked once more;
 * this has waited for others to leave. False: the answer stands; unless it is success, the caller releases
 * what is reserved. */
bool pinned_again(CUresult result, CUdevice device, uint64_t bytes, struct pinned_patience *patience);

#endif
