/* managed.h - device memory out of unified memory. Any thread. */
#ifndef GS_MANAGED_H
#define GS_MANAGED_H

#include "memory/account.h"

/* Reserve the bytes, get unified memory of the size from the driver, place it on `like->device` and enter it
 * into the ledger as `like` says. The driver's result, or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult managed_alloc(CUdeviceptr *address, size_t bytes, const struct allocation *like);

#endif
