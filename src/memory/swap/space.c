/* space.c - the list of blocks, and the one place where a piece changes its state, so that all sums agree. */
#include "memory/swap/space.h"

#include <stdatomic.h>

#include "common/lock.h"
#include "memory/budget.h"
#include "memory/forked.h"
#include "memory/swap/slabs.h"

static struct space spaces[SPACES]; /* by device: those that can leave, then those that stay */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void set_up(void) {
  for (size_t i = 0; i < SPACES; i++) {
    bool stays = i >= DEVICES;
    spaces[i] = (struct space){.turn = LOCK(LOCK_SPACE_TURN),
                               .lock = LOCK(LOCK_SPACE),
                               .device = (CUdevice)(i % DEVICES),
                               .backing = stays ? BACKING_PINNED_SMALL : BACKING_SWAP,
                               .open = stays,
                               .closings = 1,
                               .drained = true};
  }
}

struct space *space_at(size_t i) {
  pthread_once(&once, set_up);
  return &spaces[i];
}

size_t space_number(const struct space *space) { return (size_t)(space - spaces); }

struct space *space_of(CUdevice device) {
  return space_at((size_t)device);
}
struct space *space_staying(CUdevice device) {
  return space_at(DEVICES + (size_t)device);
}

void space_lock(struct space *space) {
  lock_take(&space->turn);
  lock_take(&space->lock);
  lock_release(&space->turn);
}

bool space_try_lock(struct space *space) {
  if (!lock_try(&space->turn))
    return false;
  bool locked = lock_try(&space->lock);
  lock_release(&space->turn);
  return locked;
}

void space_unlock(struct space *space) {
  uint64_t refund_bytes = space->refund_bytes, refund_held_bytes = space->refund_held_bytes;
  bool resized = space->resized && space->backing == BACKING_SWAP;
  space->refund_bytes = space->refund_held_bytes = 0;
  space->resized = false;
  lock_release(&space->lock);
  budget_release(space->device, space->backing, refund_bytes);
  budget_release(space->device, BACKING_PINNED_SHARED, refund_held_bytes);
  if (resized)
    slabs_need(space->device, BACKING_SWAP, atomic_load(&space->total_bytes));
}

static void forget(void) {
  pthread_once(&once, set_up);
  set_up();
}
IN_FORKED_CHILD(forget);

/* ---- pieces ---- */

CUdeviceptr piece_at(const struct block *block, size_t i) { return block->base + i * PIECE_BYTES; }

uint64_t piece_bytes(const struct block *block, size_t i) {
  uint64_t rest = block->bytes - i * PIECE_BYTES;
  return rest < PIECE_BYTES ? rest : PIECE_BYTES;
}

static bool is_absent(enum piece_state state) { return state == PIECE_FRESH || state == PIECE_AWAY; }

bool piece_is_absent(const struct block *block, size_t i) { return is_absent(block->piece[i].state); }

/* Add the piece to the sums as it is (sign 1), or take it out (-1). */
static void count(struct space *space, struct block *block, size_t i, int sign) {
  if (block->held)
    return;
  enum piece_state state = block->piece[i].state;
  uint64_t change = (uint64_t)sign * piece_bytes(block, i);
  block->resident += state == PIECE_RESIDENT ? (size_t)sign : 0;
  block->absent += is_absent(state) ? (size_t)sign : 0;
  space->missing_bytes += state == PIECE_RESIDENT ? 0 : change;
  if (!is_absent(state))
    atomic_fetch_add(&space->resident_bytes, change);
}

void piece_become(struct space *space, struct block *block, size_t i, enum piece_state state) {
  count(space, block, i, -1);
  block->piece[i].state = state;
  count(space, block, i, 1);
  if (block->held)
    return;
  if (state == PIECE_RESIDENT && (!space->evict_from || block->age > space->evict_from->age))
    space->evict_from = block;
  if (is_absent(state) && (!space->restore_from || block->age < space->restore_from->age))
    space->restore_from = block;
}

/* ---- blocks ---- */

static void list_newest(struct space *space, struct block *block) {
  block->age = ++space->next_age;
  block->newer = NULL;
  block->older = space->newest;
  *(space->newest ? &space->newest->newer : &space->oldest) = block;
  space->newest = block;
}

static void unlist(struct space *space, struct block *block) {
  *(block->newer ? &block->newer->older : &space->newest) = block->older;
  *(block->older ? &block->older->newer : &space->oldest) = block->newer;
  if (space->evict_from == block)
    space->evict_from = block->older;
  if (space->restore_from == block)
    space->restore_from = block->newer;
}

void space_link(struct space *space, struct block *block) {
  list_newest(space, block);
  if (!space->restore_from)
    space->restore_from = block;
  for (size_t i = 0; i < block->pieces; i++)
    count(space, block, i, 1);
  atomic_fetch_add(&space->total_bytes, block->bytes);
  space->resized = true;
  space->shared_bytes += block->shared ? block->bytes : 0;
}

void space_unlink(struct space *space, struct block *block) {
  for (size_t i = 0; i < block->pieces; i++)
    count(space, block, i, -1);
  unlist(space, block);
  atomic_fetch_sub(&space->total_bytes, block->bytes);
  space->resized = true;
  space->shared_bytes -= block->shared ? block->bytes : 0;
}

void space_renew(struct space *space, struct block *block) {
  unlist(space, block);
  list_newest(space, block);
  space->evict_from = block;
}

bool block_is_there(const struct block *block) {
  size_t i = 0;
  while (i < block->pieces && block->piece[i].state == PIECE_RESIDENT)
    i++;
  return i == block->pieces;
}

bool space_is_empty(struct space *space) {
  return !atomic_load(&space->total_bytes) && !atomic_load(&space->held_bytes);
}

void space_hold(struct space *space, struct block *block) {
  space_unlink(space, block);
  block->held = true;
  block->newer = NULL;
  block->older = space->held;
  if (block->older)
    block->older->newer = block;
  space->held = block;
  atomic_fetch_add(&space->held_bytes, block->bytes);
}

void space_let_go(struct space *space, struct block *block) {
  *(block->newer ? &block->newer->older : &space->held) = block->older;
  if (block->older)
    block->older->newer = block->newer;
  block->held = false;
  atomic_fetch_sub(&space->held_bytes, block->bytes);
  space_link(space, block);
  space->evict_from = block;
}

bool space_next_out(struct space *space, struct block **block, size_t *piece) {
  struct block *found = space->evict_from;
  while (found && !found->resident)
    found = found->older;
  space->evict_from = found;
  if (!found)
    return false;
  *block = found;
  *piece = found->pieces - 1;
  while (found->piece[*piece].state != PIECE_RESIDENT)
    --*piece;
  return true;
}

bool space_next_in(struct space *space, struct block **block, size_t *piece) {
  struct block *found = space->restore_from;
  while (found && !found->absent)
    found = found->newer;
  space->restore_from = found;
  if (!found)
    return false;
  *block = found;
  *piece = 0;
  while (!piece_is_absent(found, *piece))
    ++*piece;
  return true;
}
