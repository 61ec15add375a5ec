/*
 * pinned.h - host memory that copies to and from the card run at full speed with: huge pages, registered with
 * the driver. Any thread; a context is current.
 */
#ifndef GS_PINNED_H
#define GS_PINNED_H

#include <stdbool.h>
#include <stddef.h>

#include "driver/cuda_abi.h"

/* Aligned to a huge page, as `bytes` must be. NULL: no memory. Does not ask whether the host can spare it. */
void *pinned_make(size_t bytes);

/* Register it, for all contexts. The registration dies with the one that is returned; NULL: the driver does
 * not do it, and copies are slower. */
CUcontext pinned_register(void *memory, size_t bytes);

/* False: the driver does not let go of it, so it must stay. */
bool pinned_give_back(void *memory, size_t bytes, bool registered);

#endif
