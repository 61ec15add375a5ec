/*
 * vmm.h - memory mapped by hand, as the rest of the simulator asks about it. A reserved address is an
 * address range first (MEMORY_RESERVED); whether there is memory behind it is asked here.
 */
#ifndef SIM_VMM_H
#define SIM_VMM_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda_all.h"

struct vmm_info {
  CUdeviceptr base; /* of the mapping */
  size_t bytes;
  bool on_card;
  unsigned gpu; /* where its memory is */
  uint64_t id;  /* of its memory */
};

/* The mapping at this address; false where none is. */
bool vmm_find(CUdeviceptr at, struct vmm_info *info);
/* The range is reserved, and not all of it is mapped. */
bool vmm_lacks(CUdeviceptr at, size_t bytes);
/* The same, or not all of it is open to work of this GPU. */
bool vmm_forbids(CUdeviceptr at, size_t bytes, unsigned gpu);
/* Before all of a range is touched: whole pages of it that nobody has touched come as huge pages, where the
 * kernel can. */
void vmm_touch(CUdeviceptr at, size_t bytes);

#endif
