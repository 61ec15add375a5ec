/* lending.c - holding, and lending piece by piece. */
#include "memory/swap/lending.h"

#include <errno.h>
#include <sys/socket.h>

#include "memory/budget.h"
#include "memory/pinned.h"
#include "memory/swap/blocks.h"
#include "memory/swap/leases.h"
#include "memory/swap/mover.h"
#include "memory/swap/passing.h"
#include "memory/swap/pieces.h"

bool lending_can(CUdevice device) { return passing_can(device); }

/* Memory that has come from another process the driver does not export again. It has the descriptor that it
 * came with, if that is kept and the program has not closed it. */
static bool can_lend_all(const struct block *block) {
  for (size_t i = 0; i < block->pieces; i++)
    if (!passing_can_lend(&block->piece[i]))
      return false;
  return true;
}

/* ---- holding ---- */

/* With the mutex held. */
static CUresult hold(struct space *space, struct block *block) {
  mover_finish_block(space, block);
  if (block->resident < block->pieces || !can_lend_all(block))
    return CUDA_ERROR_NOT_PERMITTED;
  block_hold(space, block);
  return CUDA_SUCCESS;
}

/* The books are changed while nothing moves, as they say what the process' swap memory may have. */
static CUresult hold_booked(struct space *space, struct block *block) {
  uint64_t bytes = block->bytes;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  budget_release(space->device, BACKING_SWAP, bytes);
  if (reserve_or_trim(space->device, BACKING_PINNED_SHARED, bytes) == 0) {
    CUstreamCaptureMode mode = capture_relax();
    space_lock(space);
    result = hold(space, block);
    space_unlock(space);
    capture_unrelax(mode);
    if (result != CUDA_SUCCESS)
      budget_release(space->device, BACKING_PINNED_SHARED, bytes);
  }
  if (result != CUDA_SUCCESS)
    budget_note(space->device, BACKING_SWAP, bytes);
  return result;
}

static bool is_held(struct space *space, const struct block *block) {
  space_lock(space);
  bool held = block->held || backing_is_pinned(space->backing);
  space_unlock(space);
  return held;
}

CUresult lending_hold(struct extent *extent, struct lent_name *name) {
  struct block *block = extent->block;
  struct space *space = block->space;
  CUresult result = is_held(space, block) ? CUDA_SUCCESS : hold_booked(space, block);
  *name = (struct lent_name){.age = block->age, .space = (uint32_t)space_number(space)};
  return result;
}

/* ---- lending ---- */

/* With the mutex held. NULL: it has ended. */
static struct block *find(struct space *space, uint64_t age) {
  struct block *block = backing_is_pinned(space->backing) ? space->newest : space->held;
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
  const struct block *block = find(space, name->age);
  int err = block && i < block->pieces ? 0 : -ENOENT;
  if (err == 0) {
    const struct lent_note note = {
        .block_bytes = block->bytes, .at = piece_at(block, i) - block->base, .bytes = piece_bytes(block, i)};
    err = passing_lend(block, i, to, &note, sizeof note);
  }
  space_unlock(space);
  capture_unrelax(mode);
  return err;
}

void lending_end(const struct lent_name *name, struct descriptor *to) {
  struct space *space = space_at(name->space);
  space_lock(space);
  const struct block *block = find(space, name->age);
  bool leased = block && lease_begin(block, to), counts = leased || !block;
  if (counts && descriptor_is_ours(to))
    send(to->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (leased)
    *to = DESCRIPTOR_NONE;
  space_unlock(space);
}
