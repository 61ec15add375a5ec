/*
 * pools.h - which memory pools are whose. Where the driver has managed pools, the program gets one in place
 * of each device's default pool, and its own pools are made managed; all else about them is the driver's.
 * Where it has none (before CUDA 13), stream-ordered allocation is emulated.
 *
 * Threading: any thread.
 */
#ifndef GS_POOLS_H
#define GS_POOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

enum pool_kind {
  POOL_PLAIN,    /* memory that cannot leave the card */
  POOL_APP,      /* unified memory by the program's own wish */
  POOL_MANAGED,  /* converted */
  POOL_EMULATED, /* converted, by allocating and freeing ourselves */
  POOL_HOST,     /* memory of the host: none of our business */
  POOL_DESTROYED /* of unified memory: to the program it is gone */
};

struct pool {
  CUmemoryPool handle;
  CUdevice device;
  enum pool_kind kind;
  uint64_t reserved_bytes;  /* when last looked at */
  uint64_t threshold_bytes; /* of unified memory: what the program wants kept */
  CUmemPoolProps props;     /* of unified memory: it was made with these */
  bool permanent;           /* the driver's own, which cannot be destroyed */
};

/* What is known about a pool of the program; a plain one of the given device if nothing. */
struct pool pools_find(CUmemoryPool handle, CUdevice device);

/* The pool that plain cuMemAllocAsync draws on; handle NULL: the driver knows. A device can have a current
 * pool of device memory and one of unified memory, so a converted pool can never be the driver's own current
 * one: who allocates must name it. */
struct pool pools_current(CUdevice device);

/* Has the pool taken more memory from the driver since the last call? New memory has no pages yet. */
bool pools_grew(CUmemoryPool handle);

#endif
