/*
 * blocks.c - a block's life: addresses and bytes of the budget at its start, physical memory and host slots
 * as they come and go, all of it given back at its end. Within it, allocations and holes stand side by side;
 * the holes of shared blocks are listed by size, so that finding and giving back takes the same time however
 * many there are.
 */
#include "memory/swap/blocks.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/log.h"
#include "driver/driver.h"
#include "memory/budget.h"
#include "memory/swap/mover.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

#define LOOKS 16 /* at holes that may be too small, before taking a larger one */

/* ---- extents ---- */

static unsigned class_of(uint64_t bytes) { return 63 - (unsigned)__builtin_clzll(bytes / UNIT_BYTES); }

static void list_hole(struct space *space, struct extent *hole) {
  hole->used = false;
  if (!hole->block->shared)
    return;
  struct extent **head = &space->holes[class_of(hole->bytes)];
  hole->next = *head;
  hole->link = head;
  if (hole->next)
    hole->next->link = &hole->next;
  *head = hole;
}

static void unlist_hole(struct extent *hole) {
  if (!hole->link)
    return;
  *hole->link = hole->next;
  if (hole->next)
    hole->next->link = hole->link;
  hole->link = NULL;
  hole->next = NULL;
}

/* Make a new block one hole, unlisted. False: no memory. */
static bool cover(struct block *block) {
  struct extent *all = calloc(1, sizeof *all);
  if (!all)
    return false;
  all->block = block;
  all->bytes = block->bytes;
  block->extents = all;
  return true;
}

/* What is beyond `bytes` becomes a hole of its own; without memory for that, it stays with the extent. */
static void split(struct space *space, struct extent *extent, uint64_t bytes) {
  struct extent *rest = bytes < extent->bytes ? calloc(1, sizeof *rest) : NULL;
  if (!rest)
    return;
  *rest = (struct extent){.block = extent->block,
                          .at = extent->at + bytes,
                          .bytes = extent->bytes - bytes,
                          .before = extent,
                          .after = extent->after};
  if (rest->after)
    rest->after->before = rest;
  extent->after = rest;
  extent->bytes = bytes;
  list_hole(space, rest);
}

static struct extent *take(struct space *space, struct extent *hole, uint64_t bytes) {
  unlist_hole(hole);
  hole->used = true;
  hole->block->used++;
  if (hole->block->shared)
    split(space, hole, bytes);
  if (space->spare == hole->block)
    space->spare = NULL;
  return hole;
}

struct extent *extents_take(struct space *space, uint64_t bytes) {
  unsigned class = class_of(bytes), looks = 0;
  for (struct extent *hole = space->holes[class]; hole && looks < LOOKS; hole = hole->next, looks++)
    if (hole->bytes >= bytes)
      return take(space, hole, bytes);
  while (++class < HOLE_CLASSES)
    if (space->holes[class])
      return take(space, space->holes[class], bytes);
  return NULL;
}

struct extent *extents_take_first(struct space *space, struct block *block, uint64_t bytes) {
  return take(space, block->extents, bytes);
}

/* Add the extent after this one to it. */
static void absorb(struct extent *extent) {
  struct extent *after = extent->after;
  unlist_hole(after);
  extent->bytes += after->bytes;
  extent->after = after->after;
  if (extent->after)
    extent->after->before = extent;
  free(after);
}

/* Make an extent a hole again, together with those beside it. */
static void give(struct space *space, struct extent *extent) {
  extent->block->used--;
  if (extent->after && !extent->after->used)
    absorb(extent);
  struct extent *before = extent->before;
  if (before && !before->used) {
    unlist_hole(before);
    absorb(before);
    extent = before;
  }
  list_hole(space, extent);
}

/* Forget all extents of a block without allocations. */
static void drop_extents(struct block *block) {
  unlist_hole(block->extents);
  free(block->extents);
  block->extents = NULL;
}

/* ---- blocks ---- */

static struct ledger ranges = LEDGER(LOCK_BLOCKS); /* all blocks' addresses */
_Atomic uint64_t block_lowest = UINT64_MAX, block_highest;

bool block_contains(CUdeviceptr address) {
  return block_may_contain(address) && ledger_find(&ranges, address, NULL);
}

void blocks_fork_child(void) { ledger_fork_child(&ranges); }

static void list(const struct block *block) {
  const struct allocation range = {.base = block->base, .span = block->bytes, .object = block->space};
  uint64_t low = atomic_load(&block_lowest), high = atomic_load(&block_highest);
  while (block->base < low && !atomic_compare_exchange_weak(&block_lowest, &low, block->base))
    ;
  while (block->base + block->bytes > high &&
         !atomic_compare_exchange_weak(&block_highest, &high, block->base + block->bytes))
    ;
  ledger_insert(&ranges, &range, NULL, NULL);
}

static void unlist(const struct block *block) {
  struct allocation range;
  ledger_take(&ranges, block->base, &range);
}

static void forget(struct block *block) {
  drop_extents(block);
  free(block);
}

static CUresult reserve(struct block *block) {
  return driver.cuMemAddressReserve(&block->base, block->bytes, 0, 0, 0);
}

static struct block *describe(struct space *space, uint64_t bytes, bool shared) {
  size_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
  struct block *block = calloc(1, sizeof *block + pieces * sizeof block->piece[0]);
  if (!block)
    return NULL;
  block->space = space;
  block->bytes = bytes;
  block->shared = shared;
  block->pieces = pieces;
  if (cover(block))
    return block;
  free(block);
  return NULL;
}

CUresult block_new(struct space *space, uint64_t bytes, bool shared, struct block **block) {
  struct block *new = describe(space, bytes, shared);
  if (!new) {
    log_warn("GPU %d: out of host memory for bookkeeping: an allocation is refused", space->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (budget_reserve(space->device, space->backing, bytes) == 0) {
    result = reserve(new);
    if (result != CUDA_SUCCESS)
      budget_release(space->device, space->backing, bytes);
  }
  if (result != CUDA_SUCCESS) {
    forget(new);
    return result;
  }
  list(new);
  *block = new;
  return CUDA_SUCCESS;
}

/* The end of the run of RESIDENT pieces from `i` on. */
static size_t run_end(const struct block *block, size_t i) {
  while (i < block->pieces && block->piece[i].state == PIECE_RESIDENT)
    i++;
  return i;
}

/* Unmap all, by runs. Should the driver refuse, it is at its end, and so is the memory. */
static void unmap_all(struct space *space, struct block *block) {
  for (size_t i = 0, end; i<block->pieces; i = end> i ? end : i + 1) {
    end = run_end(block, i);
    if (end > i)
      pieces_unmap(block, i, end - i);
    for (size_t k = i; k < end; k++)
      piece_become(space, block, k, PIECE_FRESH);
  }
}

static void give_slots_back(struct space *space, struct block *block) {
  for (size_t i = 0; i < block->pieces; i++)
    if (block->piece[i].state == PIECE_AWAY) {
      slabs_put(block->piece[i].slot, piece_bytes(block, i));
      block->piece[i].slot = NULL;
      piece_become(space, block, i, PIECE_FRESH);
    }
}

static void destroy(struct space *space, struct block *block) {
  mover_finish_block(space, block);
  unmap_all(space, block);
  give_slots_back(space, block);
  space_unlink(space, block);
  unlist(block);
  driver.cuMemAddressFree(block->base, block->bytes);
  space->refund_bytes += block->bytes;
  condition_wake_all(&space->changed);
  forget(block);
}

void block_release(struct space *space, struct extent *extent) {
  struct block *block = extent->block;
  give(space, extent);
  if (block->used)
    return;
  bool keep = space->backing == BACKING_SWAP && block->resident == block->pieces;
  if (block->shared && keep && !space->spare)
    space->spare = block;
  else
    destroy(space, block);
}

bool block_drop_spare(struct space *space) {
  struct block *spare = space->spare;
  space->spare = NULL;
  if (spare)
    destroy(space, spare);
  return spare != NULL;
}

bool block_lock_and_drop_spare(struct space *space) {
  space_lock(space);
  bool dropped = block_drop_spare(space);
  space_unlock(space);
  return dropped;
}

void block_release_doomed(struct space *space, CUcontext context) {
  for (struct extent **link = &space->doomed, *extent; (extent = *link);)
    if (!context || extent->context == context) {
      *link = extent->next;
      extent->next = NULL;
      block_release(space, extent);
    } else {
      link = &extent->next;
    }
}
