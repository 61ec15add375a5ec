/* lending.c - holding, and lending piece by piece. */
#include "memory/swap/lending.h"

#include <errno.h>

#include "driver/driver.h"
#include "memory/budget.h"
#include "memory/pinned.h"
#include "memory/swap/blocks.h"
#include "memory/swap/copies.h"
#include "memory/swap/mover.h"
#include "memory/swap/passing.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

bool lending_can(CUdevice device) { return passing_can(device); }

/* ---- pieces whose memory the driver does not export: it has come from another process ---- */

static bool can_lend_all(const struct block *block) {
  for (size_t i = 0; i < block->pieces; i++)
    if (!passing_can_lend(&block->piece[i]))
      return false;
  return true;
}

/* Its contents are in the slot, and nowhere else if this fails. */
static CUresult map_anew(struct space *space, struct block *block, size_t i, const void *slot) {
  size_t mapped;
  CUresult result = pieces_unmap(block, i, 1);
  if (result != CUDA_SUCCESS)
    return result;
  piece_become(space, block, i, PIECE_FRESH);
  result = pieces_map(space, block, i, 1, &mapped);
  if (result == CUDA_SUCCESS)
    result = driver.cuMemcpyHtoD_v2(piece_at(block, i), slot, piece_bytes(block, i));
  if (result == CUDA_SUCCESS)
    piece_become(space, block, i, PIECE_RESIDENT);
  return result;
}

/* New memory of the driver's under the piece, with the same contents. Should the driver have none, although
 * it has just been given as much back, the piece is away. */
static CUresult renew(struct space *space, struct block *block, size_t i) {
  copies_drop(space, block, i);
  void *slot = copies_get_slot(space, piece_bytes(block, i));
  CUresult result = slot ? driver.cuMemcpyDtoH_v2(slot, piece_at(block, i), piece_bytes(block, i))
                         : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS)
    result = map_anew(space, block, i, slot);
  if (block->piece[i].state != PIECE_FRESH) {
    if (slot)
      slabs_put(slot, piece_bytes(block, i));
    return result;
  }
  block->piece[i].slot = slot;
  piece_become(space, block, i, PIECE_AWAY);
  return result;
}

static CUresult renew_all(struct space *space, struct block *block) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < block->pieces && result == CUDA_SUCCESS; i++)
    if (!passing_can_lend(&block->piece[i]))
      result = renew(space, block, i);
  return result;
}

/* ---- holding ---- */

/* With the mutex held. */
static CUresult hold(struct space *space, struct block *block, bool quiet) {
  mover_finish_block(space, block);
  if (block->resident < block->pieces)
    return CUDA_ERROR_NOT_PERMITTED; /* its allocation goes on */
  CUresult result = CUDA_SUCCESS;
  if (!can_lend_all(block))
    result = quiet ? renew_all(space, block) : CUDA_ERROR_NOT_READY;
  if (result == CUDA_SUCCESS)
    block_hold(space, block);
  return result;
}

/* The books are changed while nothing moves, as they say what the process' swap memory may have. */
static CUresult hold_booked(struct space *space, struct block *block, bool quiet) {
  uint64_t bytes = block->bytes;
  bool held = false;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  budget_release(space->device, BACKING_SWAP, bytes);
  bool booked = reserve_or_trim(space->device, BACKING_PINNED, bytes) == 0;
  if (booked) {
    CUstreamCaptureMode mode = capture_relax();
    space_lock(space);
    bool other = block->held; /* another thread has come first */
    result = other ? CUDA_SUCCESS : hold(space, block, quiet);
    held = !other && result == CUDA_SUCCESS;
    space_unlock(space);
    capture_unrelax(mode);
  }
  if (!held) {
    if (booked)
      budget_release(space->device, BACKING_PINNED, bytes);
    budget_note(space->device, BACKING_SWAP, bytes);
  }
  return result;
}

static bool is_held(struct space *space, const struct block *block) {
  space_lock(space);
  bool held = block->held || space->backing == BACKING_PINNED;
  space_unlock(space);
  return held;
}

static uint32_t number_of(const struct space *space) {
  uint32_t number = 0;
  while (space_at(number) != space)
    number++;
  return number;
}

CUresult lending_hold(struct extent *extent, bool quiet, struct lent_name *name) {
  struct block *block = extent->block;
  struct space *space = block->space;
  CUresult result = is_held(space, block) ? CUDA_SUCCESS : hold_booked(space, block, quiet);
  *name = (struct lent_name){.age = block->age, .space = number_of(space)};
  return result;
}

/* ---- lending ---- */

static struct block *find_in(struct block *block, uint64_t age) {
  while (block && block->age != age)
    block = block->older;
  return block;
}

int lending_give(const struct lent_name *name, size_t i, const struct descriptor *to) {
  if (name->space >= SPACES)
    return -ENOENT;
  struct space *space = space_at(name->space);
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  struct block *block = find_in(space->backing == BACKING_PINNED ? space->newest : space->held, name->age);
  int err = block && i < block->pieces ? 0 : -ENOENT;
  if (err == 0) {
    const struct lent_note note = {.block_bytes = block->bytes,
                                   .at = piece_at(block, i) - block->base,
                                   .bytes = piece_bytes(block, i),
                                   .pieces = (uint32_t)block->pieces};
    err = passing_lend(block, i, to, &note, sizeof note);
  }
  space_unlock(space);
  capture_unrelax(mode);
  return err;
}
