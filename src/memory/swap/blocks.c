/* blocks.c - a block's life: addresses and bytes of the budget at its start, physical memory and host slots
 * as they come and go, all of it given back at its end. */
#include "memory/swap/blocks.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/log.h"
#include "driver/driver.h"
#include "memory/budget.h"
#include "memory/swap/extents.h"
#include "memory/swap/mover.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

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
  extents_drop(block);
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
  if (extents_cover(block))
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
  extents_give(space, extent);
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
