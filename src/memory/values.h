/*
 * values.h - stream memory operations (cuStreamWriteValue and the like), which the driver refuses on unified
 * memory: said to the user where it is we that have put it there. Any thread.
 */
#ifndef GS_VALUES_H
#define GS_VALUES_H

#include "driver/cuda_abi.h"

/* The driver has refused an operation at this address, or one of several. */
void values_refused(CUdeviceptr address);
void values_refused_batch(const CUstreamBatchMemOpParams *operations, unsigned int count);

#endif
