/* inward.c - pieces come one after the other, several in flight: each gets physical memory, then its
 * contents.
 */
#include "memory/swap/inward.h"

#include <stdatomic.h>

#include "driver/driver.h"
#include "memory/swap/pieces.h"
#include "memory/swap/window.h"

static bool next_to_come(struct space *space, uint64_t room_bytes, struct block **block, size_t *i) {
  const struct mover *mover = &space->mover;
  if (mover->count == WINDOW_COPIES || !space_next_in(space, block, i))
    return false;
  uint64_t bytes = piece_bytes(*block, *i);
  return atomic_load(&space->resident_bytes) + bytes <= room_bytes &&
         mover->flying_bytes + bytes <= WINDOW_BYTES;
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

static CUresult bring(struct space *space, struct block *block, size_t i, unsigned *fresh) {
  size_t mapped;
  CUresult result = pieces_map(space, block, i, 1, &mapped);
  if (result != CUDA_SUCCESS)
    return result;
  if (block->piece[i].state == PIECE_AWAY)
    return queue(space, block, i);
  piece_become(space, block, i, PIECE_RESIDENT);
  ++*fresh;
  return CUDA_SUCCESS;
}

CUresult inward_start(struct space *space, uint64_t room_bytes, unsigned *fresh) {
  struct block *block;
  size_t i;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && *fresh < WINDOW_COPIES && next_to_come(space, room_bytes, &block, &i))
    result = bring(space, block, i, fresh);
  return result;
}

CUresult inward_finish(struct space *space) {
  CUresult result = driver.cuEventSynchronize(window_at(&space->mover, 0)->done);
  if (result == CUDA_SUCCESS)
    window_land(space);
  return result;
}
