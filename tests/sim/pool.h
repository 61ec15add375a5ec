/* pool.h - memory pools: where stream-ordered allocations come from. */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "memory.h"

struct CUmemPoolHandle_st {
  unsigned gpu;
  bool managed;
  bool host;          /* its memory is the host's */
  uint64_t max_bytes; /* 0: no bound */
  bool permanent;     /* a default pool */
  _Atomic uint64_t threshold_bytes;
  _Atomic int reuse[4];    /* the three reuse attributes, by number */
  struct pool_usage usage; /* protected by memory's lock */
  struct CUmemPoolHandle_st *next;
};

void pool_init(CUmemoryPool pool, unsigned gpu, bool managed, bool permanent);
uint64_t pool_threshold(CUmemoryPool pool);
/* With memory's lock held. */
struct pool_usage *pool_usage_of(CUmemoryPool pool);

#endif
