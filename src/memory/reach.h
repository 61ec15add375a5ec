/*
 * reach.h - which GPUs' swap memory a copy touches, as a mask: it must be there, whichever GPU does the copy.
 *
 * Threading: any thread.
 */
#ifndef GS_REACH_H
#define GS_REACH_H

#include <stddef.h>
#include <stdint.h>

#include "interpose/cuda_abi.h"

uint64_t reach_of(CUdeviceptr address);
uint64_t reach_pair(CUdeviceptr to, CUdeviceptr from);
uint64_t reach_batch(const CUdeviceptr *to, const CUdeviceptr *from, size_t count);

/* Descriptions may be NULL: the driver will say so. */
uint64_t reach_2d(const CUDA_MEMCPY2D *copy);
uint64_t reach_3d(const CUDA_MEMCPY3D *copy);
uint64_t reach_3d_peer(const CUDA_MEMCPY3D_PEER *copy);
uint64_t reach_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count);

#endif
