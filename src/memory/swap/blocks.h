/*
 * blocks.h - allocations in blocks: which part of which block they have, and how they end.
 *
 * Threading: as space.h. The mutex is free, but where it says otherwise.
 */
#ifndef GS_BLOCKS_H
#define GS_BLOCKS_H

#include <stdatomic.h>

#include "memory/swap/space.h"

/* A hole in a shared block, a spare of the same size, or a new block, whose addresses and bytes of the budget
 * are reserved. The memory of a new block is not there yet. `by_handle`: see handles.h. */
CUresult extent_take(struct space *space, uint64_t bytes, bool by_handle, struct extent **extent);

/* The same of memory that stays: `bytes` is a multiple of UNIT_BYTES, and the memory is there before anybody
 * else may have a hole in it. An error where too much stays already. */
CUresult extent_take_staying(struct space *space, uint64_t bytes, struct extent **extent);

/* Map what is FRESH of a block. With the mutex held, a context of the device is current. */
CUresult block_map_fresh(struct space *space, struct block *block);

/* What is RESIDENT of the block stays so until its end, or until it is let go; no allocation is made in it
 * meanwhile. Whoever holds it says how its bytes are booked. With the mutex held. */
void block_hold(struct space *space, struct block *block);
void block_let_go(struct space *space, struct block *block);

/* The end of an allocation: waits for the work of its context, unless it is `finished`. A block without
 * allocations goes, unless it becomes a spare. */
void extent_free(struct extent *extent, bool finished);

/* Do the frees that were put off, as far as that can be done. */
void extents_reap(struct space *space);

/* Do those of the context (NULL: all): no work uses the memory any more. With the mutex held. */
void extents_release_doomed(struct space *space, CUcontext context);

/* Give up all spares. False: there is none. With the mutex held, and without. */
bool blocks_drop_spares(struct space *space);
bool blocks_lock_and_drop_spares(struct space *space);

/* Where spares have been idle for a while, start a thread that gives them up. Returns when to look again
 * (UINT64_MAX: no need). Any thread; the lock of no space is held. */
uint64_t blocks_trim(uint64_t now_ns);

/* A range that all blocks there have ever been are in, and all their aliases: outside of it nobody has to
 * look. */
extern _Atomic uint64_t block_lowest __attribute__((visibility("hidden")));
extern _Atomic uint64_t block_highest __attribute__((visibility("hidden")));

void blocks_note_range(CUdeviceptr base, uint64_t bytes);

static inline bool block_may_contain(CUdeviceptr address) {
  return address < atomic_load_explicit(&block_highest, memory_order_relaxed) &&
         address >= atomic_load_explicit(&block_lowest, memory_order_relaxed);
}

/* Whether the address is in a block. */
bool block_contains(CUdeviceptr address);

#endif
