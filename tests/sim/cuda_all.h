/*
 * cuda_all.h - cuda.h with every ABI version visible, and the few constants that older headers lack.
 * In the driver itself its functions are called sim_NAME (rename.h); doors.S exports them.
 */
#ifndef SIM_CUDA_ALL_H
#define SIM_CUDA_ALL_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "rename.h"

/* Values, not enumerators, because the headers before CUDA 12.2 and 13.0 do not name them. */
#define SIM_LOCATION_NONE ((CUmemLocationType)0)
#define SIM_LOCATION_DEVICE ((CUmemLocationType)1)
#define SIM_LOCATION_HOST ((CUmemLocationType)2)
#define SIM_LOCATION_HOST_NUMA_CURRENT ((CUmemLocationType)4)
#define SIM_ALLOCATION_MANAGED ((CUmemAllocationType)2)

#endif
