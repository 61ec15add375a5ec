/*
 * extents.h - who has which part of a block. Holes of shared blocks are kept by size, so that finding and
 * giving back takes the same time however many there are.
 *
 * Threading: as space.h.
 */
#ifndef GS_EXTENTS_H
#define GS_EXTENTS_H

#include "memory/swap/space.h"

/* Make a new block one hole, unlisted. False: no memory. */
bool extents_cover(struct block *block);

/* Hand out `bytes` (a multiple of UNIT_BYTES) of a shared block; NULL: no hole of a linked block is large
 * enough. */
struct extent *extents_take(struct space *space, uint64_t bytes);

/* Hand out the start of a block that is still one hole. */
struct extent *extents_take_first(struct space *space, struct block *block, uint64_t bytes);

/* Make an extent a hole again, together with those beside it. */
void extents_give(struct space *space, struct extent *extent);

/* Forget all extents of a block without allocations. */
void extents_drop(struct block *block);

#endif
