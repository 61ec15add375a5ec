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

struct holding {
  struct space *space;
  struct block *block;
  CUresult result;
};

/* Block and books change together, as these say what the process' swap memory may have. */
static void hold_booked(void *argument) {
  struct holding *holding = argument;
  struct space *space = holding->space;
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  holding->result = hold(space, holding->block);
  if (holding->result == CUDA_SUCCESS)
    budget_rebook(space->device, BACKING_SWAP, BACKING_PINNED_SHARED, holding->block->bytes);
  space_unlock(space);
  capture_unrelax(mode);
}

static CUresult hold_if_granted(struct space *space, struct block *block) {
  struct holding holding = {.space = space, .block = block, .result = CUDA_ERROR_OUT_OF_MEMORY};
  pin_or_trim(space->device, block->bytes, hold_booked, &holding);
  return holding.result;
}

static bool is_held(struct space *space, const struct block *block) {
  space_lock(space);
  bool held = block->held || backing_is_pinned(space->backing);
  space_unlock(space);
  return held;
}

/* The name of a block is its age as it is shared for the first time, which no block has ever again. */
static void note_use(struct block *block) {
  block->lent.name = block->lent.name ? block->lent.name : block->age;
  block->lent.used_ns = clock_now_ns();
}

CUresult lending_hold(struct extent *extent, struct lent_name *name) {
  struct block *block = extent->block;
  struct space *space = block->space;
  CUresult result = is_held(space, block) ? CUDA_SUCCESS : hold_if_granted(space, block);
  space_lock(space);
  if (result == CUDA_SUCCESS)
    note_use(block);
  *name = (struct lent_name){.name = block->lent.name,
                             .space = (uint32_t)space_number(space),
                             .at = (uint32_t)(extent->at / UNIT_BYTES)};
  space_unlock(space);
  return result;
}

/* ---- letting go ---- */

static bool is_lent(const struct block *block) {
  const struct lent *lent = &block->lent;
  return !lent->was_opened || lent->stays || lent->lenders || leases_has(block);
}

static uint64_t let_go_in(struct space *space, uint64_t now_ns, bool *any) {
  uint64_t next_ns = UINT64_MAX;
  space_lock(space);
  for (struct block *block = space->held, *older; block; block = older) {
    older = block->older;
    uint64_t due_ns = block->lent.used_ns + LENDING_IDLE_NS;
    if (is_lent(block))
      continue;
    if (due_ns > now_ns) {
      next_ns = due_ns < next_ns ? due_ns : next_ns;
      continue;
    }
    block_let_go(space, block);
    budget_rebook(space->device, BACKING_PINNED_SHARED, BACKING_SWAP, block->bytes);
    *any = true;
  }
  space_unlock(space);
  return next_ns;
}

uint64_t lending_let_go(uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  for (CUdevice device = 0; device < DEVICES; device++) {
    bool any = false;
    uint64_t look_ns = let_go_in(space_of(device), now_ns, &any);
    next_ns = look_ns < next_ns ? look_ns : next_ns;
    if (any)
      budget_report(device);
  }
  return next_ns;
}

/* ---- lending ---- */

/* With the mutex held. NULL: it has ended. */
static struct block *find(struct space *space, uint64_t name) {
  struct block *block = lent_find(space->held, name);
  return block ? block : lent_find(space->newest, name);
}

int lending_begin(const struct lent_name *name, CUdeviceptr *allocation) {
  if (name->space >= SPACES || !name->name)
    return -ENOENT;
  struct space *space = space_at(name->space);
  space_lock(space);
  struct block *block = find(space, name->name);
  int err = !block ? -ENOENT : block->held || backing_is_pinned(space->backing) ? 0 : -EAGAIN;
  if (err == 0)
    block->lent.lenders++;
  *allocation = block ? block->base + name->at * UNIT_BYTES : 0;
  space_unlock(space);
  return err;
}

int lending_give(const struct lent_name *name, size_t i, const struct descriptor *to) {
  struct space *space = space_at(name->space);
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  const struct block *block = find(space, name->name);
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

void lending_end(const struct lent_name *name, bool given, struct descriptor *to) {
  struct space *space = space_at(name->space);
  space_lock(space);
  struct block *block = find(space, name->name);
  bool leased = given && block && lease_begin(block, to);
  if (given && (leased || !block) && descriptor_is_ours(to))
    send(to->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (leased)
    *to = DESCRIPTOR_NONE;
  if (block) {
    block->lent.lenders--;
    block->lent.used_ns = clock_now_ns();
    block->lent.was_opened |= given;
    block->lent.stays |= given && !leased;
  }
  space_unlock(space);
}
