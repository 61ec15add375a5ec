/* lending.c - holding, and lending piece by piece. */
#include "memory/swap/lending.h"

#include <errno.h>

#include "memory/budget.h"
#include "memory/memory_port.h"
#include "memory/pinned.h"
#include "memory/swap/blocks.h"
#include "memory/swap/leases.h"
#include "memory/swap/mover.h"
#include "memory/swap/passing.h"
#include "memory/swap/pieces.h"

#define LOOK_NS (100 * NS_PER_MS) /* whether the one that waits is still there */

bool lending_can(CUdevice device) { return passing_can(device); }

/* Memory that has come from another process the driver does not export again. It has the descriptor that it
 * came with, if that is kept and the program has not closed it. */
static bool can_lend_all(const struct block *block) {
  for (size_t i = 0; i < block->pieces; i++)
    if (!passing_can_lend(&block->piece[i]))
      return false;
  return true;
}

static bool is_pinned(const struct block *block) {
  return (block->held && !block->aside) || backing_is_pinned(block->space->backing);
}

static bool can_be_lent(const struct block *block) { return block_is_there(block) && can_lend_all(block); }

/* ---- holding ---- */

/* With the mutex held. Block and books change together, as these say what the process' swap memory may have.
 */
static void hold(struct space *space, struct block *block) {
  if (is_pinned(block))
    return;
  if (!block->held)
    block_hold(space, block);
  block->aside = false;
  budget_rebook(space->device, BACKING_SWAP, BACKING_PINNED_SHARED, block->bytes);
}

struct holding {
  struct space *space;
  struct block *block;
  CUresult result;
};

static void hold_granted(void *argument) {
  struct holding *holding = argument;
  CUstreamCaptureMode mode = capture_relax();
  space_lock(holding->space);
  mover_finish_block(holding->space, holding->block);
  holding->result = can_be_lent(holding->block) ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
  if (holding->result == CUDA_SUCCESS)
    hold(holding->space, holding->block);
  space_unlock(holding->space);
  capture_unrelax(mode);
}

static CUresult hold_if_granted(struct space *space, struct block *block) {
  struct holding holding = {.space = space, .block = block, .result = CUDA_ERROR_OUT_OF_MEMORY};
  pin_or_trim(space->device, block->bytes, hold_granted, &holding);
  return holding.result;
}

static bool is_held(struct space *space, const struct block *block) {
  space_lock(space);
  bool held = is_pinned(block);
  space_unlock(space);
  return held;
}

/* The name of a block is its age as it is shared for the first time, which no block has ever again. */
static void note_use(struct block *block) {
  block->lent.name = block->lent.name ? block->lent.name : block->age;
  block->lent.used_ns = clock_now_ns();
}

static CUresult look_at(struct space *space, struct block *block) {
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  mover_finish_block(space, block);
  bool can = can_be_lent(block);
  space_unlock(space);
  capture_unrelax(mode);
  return can ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

CUresult lending_hold(struct extent *extent, bool named, struct lent_name *name) {
  struct block *block = extent->block;
  struct space *space = block->space;
  CUresult result = CUDA_SUCCESS;
  if (named && block->bytes >= LENDING_USER_BYTES)
    result = look_at(space, block);
  else if (!is_held(space, block))
    result = hold_if_granted(space, block);
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
  return !lent->was_opened || lent->stays || lent->lenders || leases_pin(block);
}

/* True: it was aside, and is the process' own again. */
static bool take_back(struct space *space, struct block *block) {
  if (!block->aside || block->lent.users)
    return false;
  mover_finish_block(space, block);
  block_let_go(space, block);
  return true;
}

struct changes {
  bool pinned, less; /* bytes that count as pinned */
  bool back;         /* the worker has something to do */
};

/* True: there was one. They are on the card already. */
static bool hold_lost(struct space *space, struct block *newest, uint64_t now_ns) {
  bool any = false;
  for (struct block *block = newest, *older; block; block = older) {
    older = block->older;
    if (!leases_pin_lost(space, block, now_ns))
      continue;
    mover_finish_block(space, block);
    hold(space, block);
    any = true;
  }
  return any;
}

static uint64_t let_go_in(struct space *space, uint64_t now_ns, struct changes *changes) {
  uint64_t next_ns = UINT64_MAX;
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  if (space->pins_due) {
    space->pins_due = false;
    changes->pinned = hold_lost(space, space->held, now_ns);
    changes->pinned |= hold_lost(space, space->newest, now_ns);
  }
  for (struct block *block = space->held, *older; block; block = older) {
    older = block->older;
    uint64_t due_ns = block->lent.used_ns + LENDING_IDLE_NS;
    changes->back |= take_back(space, block);
    if (!block->held || block->aside || is_lent(block))
      continue;
    if (due_ns > now_ns) {
      next_ns = due_ns < next_ns ? due_ns : next_ns;
      continue;
    }
    block_let_go(space, block);
    budget_rebook(space->device, BACKING_PINNED_SHARED, BACKING_SWAP, block->bytes);
    changes->less = true;
  }
  if (space->open)
    leases_end_parted(space);
  changes->back |= leases_have_parted(space);
  space_unlock(space);
  capture_unrelax(mode);
  return next_ns;
}

uint64_t lending_let_go(uint64_t now_ns, uint64_t *noted) {
  uint64_t next_ns = UINT64_MAX;
  for (CUdevice device = 0; device < DEVICES; device++) {
    struct changes changes = {false, false, false};
    uint64_t look_ns = let_go_in(space_of(device), now_ns, &changes);
    next_ns = look_ns < next_ns ? look_ns : next_ns;
    *noted |= (uint64_t)changes.pinned << device;
    if (changes.less)
      budget_report(device);
    if (changes.back)
      memory_port.order_moves(device);
  }
  return next_ns;
}

/* ---- lending ---- */

/* With the mutex held. Nobody looks at it any more (copies.h). */
static void add_user(struct space *space, struct block *block) {
  mover_finish_block(space, block);
  block->lent.users++;
  space->users++;
}

static void set_aside(struct space *space, struct block *block) {
  mover_finish_block(space, block);
  block_hold(space, block);
  block->aside = true;
}

/* With the mutex held. Not there: it is to be fetched. */
static int begin_for_user(struct space *space, struct block *block) {
  add_user(space, block);
  if (block_is_there(block))
    return 0;
  if (!space->open && !block->held)
    set_aside(space, block);
  return -EINPROGRESS;
}

int lending_begin(const struct lent_name *name, bool user, CUdeviceptr *allocation) {
  if (name->space >= SPACES || !name->name)
    return -ENOENT;
  struct space *space = space_at(name->space);
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  struct block *block = lent_find(space, name->name);
  int err = !block ? -ENOENT : user ? begin_for_user(space, block) : is_pinned(block) ? 0 : -EAGAIN;
  if (err == 0 || err == -EINPROGRESS)
    block->lent.lenders++;
  *allocation = block ? block->base + name->at * UNIT_BYTES : 0;
  space_unlock(space);
  capture_unrelax(mode);
  return err;
}

int lending_give(const struct lent_name *name, size_t i, const struct descriptor *to) {
  struct space *space = space_at(name->space);
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  const struct block *block = lent_find(space, name->name);
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

int lending_await(const struct lent_name *name) {
  struct space *space = space_at(name->space);
  memory_port.order_moves(space->device);
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  struct block *block = lent_find(space, name->name);
  if (block && !block_is_there(block)) {
    if (!space->open && !block->held)
      set_aside(space, block);
    condition_wait(&space->changed, &space->lock, clock_now_ns() + LOOK_NS);
    block = lent_find(space, name->name);
  }
  int err = !block ? -ENOENT : block_is_there(block) ? 0 : -EINPROGRESS;
  space_unlock(space);
  capture_unrelax(mode);
  return err;
}

void lending_end(const struct lent_name *name, bool given, bool user, struct descriptor *to) {
  struct space *space = space_at(name->space);
  space_lock(space);
  struct block *block = lent_find(space, name->name);
  bool leased = given && block && lease_begin(block, to, user);
  if (given && (leased || (!block && !user)))
    lease_say(to, user ? LEASE_OF_USER : LEASE_CLOSED);
  if (leased)
    *to = DESCRIPTOR_NONE;
  if (block) {
    block->lent.lenders--;
    block->lent.used_ns = user && leased ? 0 : clock_now_ns();
    block->lent.was_opened |= given && (leased || !user);
    block->lent.stays |= given && !leased && !user;
    if (user && !leased)
      lease_drop_user(space, block);
  }
  space_unlock(space);
}

/* ---- users ---- */

void lending_take_unused(struct space *space) {
  for (struct block *block = space->held, *older; block; block = older) {
    older = block->older;
    take_back(space, block);
  }
}

void lending_set_aside(struct space *space) {
  for (struct block *block = space->users ? space->newest : NULL, *older; block; block = older) {
    older = block->older;
    if (block->lent.users)
      set_aside(space, block);
  }
}

struct block *lending_wanted(struct space *space) {
  struct block *block = space->users ? space->held : NULL;
  while (block && (!block->aside || !block->lent.users || block_is_there(block)))
    block = block->older;
  return block;
}

void lending_take_back(struct space *space) {
  for (struct block *block = space->held, *older; block; block = older) {
    older = block->older;
    if (block->aside && !block_is_there(block)) {
      mover_finish_block(space, block);
      block_let_go(space, block);
    }
  }
}
