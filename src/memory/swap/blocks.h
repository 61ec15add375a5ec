/*
 * blocks.h - making blocks and getting rid of them, and who has which part of one.
 *
 * Threading: as space.h, but for block_new.
 */
#ifndef GS_BLOCKS_H
#define GS_BLOCKS_H

#include <stdatomic.h>

#include "memory/swap/space.h"

/* Reserve addresses for a block and book its bytes; not yet one of the space, whose mutex is free. */
CUresult block_new(struct space *space, uint64_t bytes, bool shared, struct block **block);

/* Hand out `bytes` (a multiple of UNIT_BYTES) of a shared block; NULL: no hole of a linked block is large
 * enough. */
struct extent *extents_take(struct space *space, uint64_t bytes);

/* Hand out the start of a block that is still one hole. */
struct extent *extents_take_first(struct space *space, struct block *block, uint64_t bytes);

/* Make the allocation a hole; a block without allocations goes, but for one that is shared and on the card.
 */
void block_release(struct space *space, struct extent *extent);

/* The same for allocations of the context whose free was put off (NULL: of all): no work uses them any more.
 */
void block_release_doomed(struct space *space, CUcontext context);

/* A range that all blocks there have ever been are in: outside of it nobody has to look. */
extern _Atomic uint64_t block_lowest __attribute__((visibility("hidden")));
extern _Atomic uint64_t block_highest __attribute__((visibility("hidden")));

static inline bool block_may_contain(CUdeviceptr address) {
  return address < atomic_load_explicit(&block_highest, memory_order_relaxed) &&
         address >= atomic_load_explicit(&block_lowest, memory_order_relaxed);
}

/* Whether the address is in a block. */
bool block_contains(CUdeviceptr address);

void blocks_fork_child(void);

/* Give up the shared block that is kept for the next small allocation. False: there is none. */
bool block_drop_spare(struct space *space);
bool block_lock_and_drop_spare(struct space *space);

#endif
