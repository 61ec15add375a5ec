/*
 * reach.h - what a copy or set touches of the memory that we map: which GPUs' swap memory, which must be
 * there, whichever GPU does the copy; and whether it goes beyond the end of an allocation, which the driver
 * cannot know: to it all allocations of a block are one mapping.
 *
 * Threading: any thread.
 */
#ifndef GS_REACH_H
#define GS_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "gate/gate.h"

struct reach {
  uint64_t gpus; /* a mask */
  bool beyond;   /* an allocation's end, or where none is any more: the driver natively says INVALID_VALUE */
};

#define REACH_NOTHING ((struct reach){0})

struct reach reach_range(CUdeviceptr address, uint64_t bytes);
struct reach reach_pair(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);
struct reach reach_batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes, size_t count);

/* So many elements in so many rows; the pitch is in bytes. */
struct reach reach_set(CUdeviceptr to, uint64_t pitch, uint64_t element_bytes, uint64_t width,
                       uint64_t height);

/* Descriptions may be NULL: the driver will say so. */
struct reach reach_2d(const CUDA_MEMCPY2D *copy);
struct reach reach_3d(const CUDA_MEMCPY3D *copy);
struct reach reach_3d_peer(const CUDA_MEMCPY3D_PEER *copy);
struct reach reach_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count);
struct reach reach_set_node(const CUDA_MEMSET_NODE_PARAMS *set);

/* The GPUs whose gates it must pass, besides its stream's. */
static inline __attribute__((always_inline)) uint64_t reach_gates(struct reach reach) {
  return reach.gpus && __builtin_expect(gate_several != 0, 0) ? reach.gpus : 0;
}

/* Memory of `owner` that can leave is mapped with rights for `peer`, once more (1) or less (-1): work of the
 * peer needs it to be there. */
void reach_count_mapping(CUdevice owner, CUdevice peer, int change);

#endif
