/*
 * inward.c - pieces come one after the other, several in flight: each gets physical memory, then its
 * contents. Neighbours get theirs by one call: setting access takes 0.2 ms while the memory of another
 * process leaves, and copies seem to stand still meanwhile (H100).
 */
#include "memory/swap/inward.h"

#include <stdatomic.h>

#include "interpose/driver.h"
#include "memory/swap/pieces.h"
#include "memory/swap/window.h"

#define RUN_PIECES 4

/* So many more, of so many bytes. */
static bool fit(const struct space *space, size_t count, uint64_t bytes, uint64_t room_bytes) {
  const struct mover *mover = &space->mover;
  return mover->count + count <= WINDOW_COPIES && mover->flying_bytes + bytes <= WINDOW_BYTES &&
         atomic_load(&space->resident_bytes) + bytes <= room_bytes;
}

static bool next_to_come(struct space *space, uint64_t room_bytes, struct block **block, size_t *i) {
  return space_next_in(space, block, i) && fit(space, 1, piece_bytes(*block, *i), room_bytes);
}

bool inward_may(struct space *space, uint64_t room_bytes) {
  struct block *block;
  size_t i;
  return next_to_come(space, room_bytes, &block, &i);
}

/* The piece is mapped, and has its slot. */
static CUresult queue(struct space *space, struct block *block, size_t i) {
  struct mover *mover = &space->mover;
  const struct copy *copy = window_add(space, block, i);
  CUresult result =
      driver.cuMemcpyHtoDAsync_v2(piece_at(block, i), block->piece[i].slot, piece_bytes(block, i), mover->in);
  if (result == CUDA_SUCCESS)
    result = driver.cuEventRecord(copy->done, mover->in);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_UNKNOWN : result;
}

/* From the i-th on, which may come. None yet, where more of them may soon, and enough is in flight. */
static size_t count_run(const struct space *space, const struct block *block, size_t i, uint64_t room_bytes) {
  uint64_t bytes = 0;
  size_t count = 0;
  while (i + count < block->pieces && piece_is_absent(block, i + count) && count < RUN_PIECES) {
    bytes += piece_bytes(block, i + count);
    if (!fit(space, count + 1, bytes, room_bytes))
      return space->mover.flying_bytes >= WINDOW_BYTES / 4 ? 0 : count;
    count++;
  }
  return count;
}

/* The piece is mapped. */
static CUresult fill(struct space *space, struct block *block, size_t i, unsigned *fresh) {
  if (block->piece[i].state == PIECE_AWAY)
    return queue(space, block, i);
  piece_become(space, block, i, PIECE_RESIDENT);
  ++*fresh;
  return CUDA_SUCCESS;
}

static CUresult bring(struct space *space, struct block *block, size_t i, size_t count, unsigned *fresh) {
  size_t mapped;
  CUresult result = pieces_map(space, block, i, count, &mapped);
  for (size_t k = 0; k < mapped; k++) {
    CUresult filled = fill(space, block, i + k, fresh);
    if (filled == CUDA_SUCCESS)
      continue;
    if (k + 1 < mapped)
      pieces_unmap(block, i + k + 1, mapped - k - 1);
    return filled;
  }
  return result;
}

CUresult inward_start(struct space *space, uint64_t room_bytes, unsigned *fresh) {
  struct block *block;
  size_t i;
  CUresult result = CUDA_SUCCESS;
  size_t count;
  while (result == CUDA_SUCCESS && *fresh < WINDOW_COPIES && next_to_come(space, room_bytes, &block, &i) &&
         (count = count_run(space, block, i, room_bytes)) > 0)
    result = bring(space, block, i, count, fresh);
  return result;
}

CUresult inward_finish(struct space *space) {
  CUresult result = driver.cuEventSynchronize(window_at(&space->mover, 0)->done);
  if (result == CUDA_SUCCESS)
    window_land(space);
  return result;
}
