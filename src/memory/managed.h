/* managed.h - unified memory, but for what is behind backend.h. Any thread. */
#ifndef GS_MANAGED_H
#define GS_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

/* Queue the move of new memory to the card in the order of a stream, if this process holds the GPU. Returns
 * how many bytes are not on their way and should come with the next grant: 0 or `bytes`. */
uint64_t managed_populate(CUstream stream, CUdeviceptr address, uint64_t bytes, CUdevice device);

/* Whether it does anything for so many bytes. */
bool managed_is_worth_populating(uint64_t bytes);

#endif
