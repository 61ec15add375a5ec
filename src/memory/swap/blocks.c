/*
 * blocks.c - a block's life: addresses and bytes of the budget at its start, physical memory and host slots
 * as they come and go, all of it given back at its end. Within it, allocations and holes stand side by side;
 * the holes of shared blocks are listed by size, so that finding and giving back takes the same time however
 * many there are.
 *
 * Like cuMemFree, a free waits for the work that may use the memory. Waiting for a context would invalidate
 * the captures in it, so while one is open in the process, the free is put off: the address stays taken and
 * the bytes stay booked.
 *
 * A block that has lost its last allocation may become a spare: on the card and booked, for an allocation of
 * the same size to come. Why: to make and to end a block costs the driver up to a dozen calls, a spare none.
 * Invariant: all of a spare is RESIDENT, and only this process has ever written to it. Spares go before
 * anything else leaves the card, waits for room or is refused; and when they have been idle for a second.
 */
#include "memory/swap/blocks.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "memory/budget.h"
#include "memory/forked.h"
#include "memory/memory_port.h"
#include "memory/pinned.h"
#include "memory/swap/copies.h"
#include "memory/swap/leases.h"
#include "memory/swap/mover.h"
#include "memory/swap/pieces.h"

#define LOOKS 16 /* at holes that may be too small, before taking a larger one */

/* Why: what stays is lost to others, as the driver's own memory of a context is, which takes some hundred
 * MiB. An allocation that takes half of a grain or more leaves half of the bound to those that are smaller,
 * because flags are, and a caching allocator takes many of 2 MiB. */
#define STAYING_BYTES (UINT64_C(64) << 20)

/* Why: others can't use what spares take. */
#define SPARES_BYTES (UINT64_C(256) << 20)
#define SPARES_PART 256 /* of the card, if that is less */
#define SPARES_IDLE_NS NS_PER_S
#define TRY_AGAIN_NS (10 * NS_PER_MS)

/* ---- extents ---- */

static unsigned class_of(uint64_t bytes) { return 63 - (unsigned)__builtin_clzll(bytes / UNIT_BYTES); }

static void list_hole(struct space *space, struct extent *hole) {
  hole->used = false;
  if (!hole->block->shared || hole->block->held)
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

static void list_spare(struct space *space, struct block *block) {
  block->spare = true;
  block->next_spare = space->spares;
  space->spares = block;
  if (block->shared)
    return;
  atomic_fetch_add(&space->spare_bytes, block->bytes);
  space->spares_since_ns = clock_now_ns();
  if (!space->spares_watched)
    memory_port.wake_timers();
  space->spares_watched = true;
}

static void unlist_spare(struct space *space, struct block *block) {
  struct block **link = &space->spares;
  while (*link != block)
    link = &(*link)->next_spare;
  *link = block->next_spare;
  block->spare = false;
  atomic_fetch_sub(&space->spare_bytes, block->shared ? 0 : block->bytes);
}

static struct extent *take(struct space *space, struct extent *hole, uint64_t bytes) {
  unlist_hole(hole);
  hole->used = true;
  hole->block->used++;
  if (hole->block->shared)
    split(space, hole, bytes);
  if (hole->block->spare)
    unlist_spare(space, hole->block);
  return hole;
}

/* Of a shared block, `bytes` (a multiple of UNIT_BYTES); NULL: no hole of a linked block is large enough. */
static struct extent *take_hole(struct space *space, uint64_t bytes) {
  unsigned class = class_of(bytes), looks = 0;
  for (struct extent *hole = space->holes[class]; hole && looks < LOOKS; hole = hole->next, looks++)
    if (hole->bytes >= bytes)
      return take(space, hole, bytes);
  while (++class < HOLE_CLASSES)
    if (space->holes[class])
      return take(space, space->holes[class], bytes);
  return NULL;
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

static void forget_all(void) { ledger_fork_child(&ranges); }
IN_FORKED_CHILD(forget_all);

void blocks_note_range(CUdeviceptr base, uint64_t bytes) {
  uint64_t low = atomic_load(&block_lowest), high = atomic_load(&block_highest);
  while (base < low && !atomic_compare_exchange_weak(&block_lowest, &low, base))
    ;
  while (base + bytes > high && !atomic_compare_exchange_weak(&block_highest, &high, base + bytes))
    ;
}

static void list(const struct block *block) {
  const struct allocation range = {.base = block->base, .span = block->bytes, .object = block->space};
  blocks_note_range(block->base, block->bytes);
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

static struct block *describe(struct space *space, uint64_t bytes, bool shared, bool by_handle) {
  size_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
  struct block *block = calloc(1, sizeof *block + pieces * sizeof block->piece[0]);
  if (!block)
    return NULL;
  block->space = space;
  block->bytes = bytes;
  block->shared = shared;
  block->by_handle = by_handle;
  block->pieces = pieces;
  if (cover(block))
    return block;
  free(block);
  return NULL;
}

/* Reserve addresses for a block and book its bytes; not yet one of the space, whose mutex is free. */
static CUresult block_new(struct space *space, uint64_t bytes, bool shared, bool by_handle,
                          struct block **block) {
  struct block *new = describe(space, bytes, shared, by_handle);
  if (!new) {
    log_warn("GPU %d: out of host memory for bookkeeping: an allocation is refused", space->device);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (reserve_or_trim(space->device, space->backing, bytes) == 0) {
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
  for (size_t i = 0; i < block->pieces; i++) {
    copies_drop(space, block, i);
    if (block->piece[i].state == PIECE_AWAY)
      piece_become(space, block, i, PIECE_FRESH);
  }
}

static void destroy(struct space *space, struct block *block) {
  bool pinned = block->held && !block->aside;
  bool kept = leases_keep_bytes(block);
  if (block->held)
    space_let_go(space, block);
  mover_finish_block(space, block);
  give_slots_back(space, block);
  unmap_all(space, block);
  space_unlink(space, block);
  space->users -= block->lent.users;
  unlist(block);
  driver.cuMemAddressFree(block->base, block->bytes);
  *(pinned ? &space->refund_held_bytes : &space->refund_bytes) += kept ? 0 : block->bytes;
  condition_wake_all(&space->changed);
  forget(block);
}

/* Memory that another process has made can't be shared again, so it is none for an allocation to come. */
static bool has_foreign(const struct block *block) {
  bool foreign = false;
  for (size_t i = 0; i < block->pieces && !foreign; i++)
    foreign = block->piece[i].foreign;
  return foreign;
}

static bool has_shared_spare(const struct space *space) {
  const struct block *spare = space->spares;
  while (spare && !spare->shared)
    spare = spare->next_spare;
  return spare != NULL;
}

static uint64_t spares_most_bytes(CUdevice device) {
  uint64_t part_bytes = device_card_bytes(device) / SPARES_PART;
  return part_bytes < SPARES_BYTES ? part_bytes : SPARES_BYTES;
}

/* Of a closed space, memory that is free must not wait for others to be in want of it. */
static bool may_become_spare(struct space *space, const struct block *block) {
  if (space->backing != BACKING_SWAP || block->held || block->lent.users || block->resident < block->pieces)
    return false;
  if (block->shared)
    return !has_shared_spare(space);
  return space->open && !block->aliases && !has_foreign(block) &&
         atomic_load(&space->spare_bytes) + block->bytes <= spares_most_bytes(space->device);
}

/* Make the allocation a hole; a block without allocations becomes a spare, or goes. */
static void block_release(struct space *space, struct extent *extent) {
  struct block *block = extent->block;
  give(space, extent);
  if (block->used)
    return;
  if (!may_become_spare(space, block)) {
    destroy(space, block);
    return;
  }
  for (size_t i = 0; i < block->pieces; i++)
    copies_drop(space, block, i);
  block->lent = (struct lent){.name = 0};
  list_spare(space, block);
}

bool blocks_drop_spares(struct space *space) {
  bool any = space->spares;
  for (struct block *spare; (spare = space->spares);) {
    unlist_spare(space, spare);
    destroy(space, spare);
  }
  return any;
}

bool blocks_lock_and_drop_spares(struct space *space) {
  space_lock(space);
  bool dropped = blocks_drop_spares(space);
  space_unlock(space);
  return dropped;
}

static bool are_idle(const struct space *space, uint64_t now_ns) {
  return space->spares_since_ns + SPARES_IDLE_NS <= now_ns;
}

static void *end_idle(void *argument) {
  struct space *space = argument;
  thread_begin("gpushare-spare");
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  if (are_idle(space, clock_now_ns()))
    blocks_drop_spares(space);
  space_unlock(space);
  capture_unrelax(mode);
  return NULL;
}

/* Why a thread: nothing that the daemon says may wait for the driver. */
static uint64_t trim_space(struct space *space, uint64_t now_ns) {
  if (!atomic_load(&space->total_bytes))
    return UINT64_MAX;
  if (!space_try_lock(space))
    return now_ns + TRY_AGAIN_NS;
  uint64_t due_ns = space->spares_since_ns + SPARES_IDLE_NS;
  bool any = atomic_load(&space->spare_bytes), idle = any && are_idle(space, now_ns);
  bool ends = idle && thread_start(NULL, end_idle, space) == 0;
  space->spares_watched = any && !ends;
  space_unlock(space);
  return !any || ends ? UINT64_MAX : idle ? now_ns + SPARES_IDLE_NS : due_ns;
}

uint64_t blocks_trim(uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  for (CUdevice device = 0; device < DEVICES; device++) {
    uint64_t look_ns = trim_space(space_of(device), now_ns);
    next_ns = look_ns < next_ns ? look_ns : next_ns;
  }
  return next_ns;
}

void extents_release_doomed(struct space *space, CUcontext context) {
  for (struct extent **link = &space->doomed, *extent; (extent = *link);)
    if (!context || extent->context == context) {
      *link = extent->next;
      extent->next = NULL;
      block_release(space, extent);
    } else {
      link = &extent->next;
    }
}

/* ---- which memory ---- */

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

static CUresult take_new(struct space *space, uint64_t block_bytes, uint64_t bytes, bool shared,
                         bool by_handle, struct extent **extent) {
  struct block *block;
  if (budget_free_bytes(space->device) < block_bytes)
    blocks_lock_and_drop_spares(space);
  CUresult result = block_new(space, block_bytes, shared, by_handle, &block);
  if (result != CUDA_SUCCESS)
    return result;
  space_lock(space);
  space_link(space, block);
  *extent = take(space, block->extents, bytes);
  space_unlock(space);
  return CUDA_SUCCESS;
}

/* Each shared block is as large as those before it together. */
static uint64_t next_shared_bytes(struct space *space) {
  space_lock(space);
  uint64_t bytes = space->shared_bytes;
  space_unlock(space);
  return bytes < GRAIN_BYTES ? GRAIN_BYTES : bytes > PIECE_BYTES ? PIECE_BYTES : bytes;
}

static CUresult take_small(struct space *space, uint64_t bytes, struct extent **extent) {
  space_lock(space);
  *extent = take_hole(space, bytes);
  space_unlock(space);
  if (*extent)
    return CUDA_SUCCESS;
  uint64_t block_bytes = next_shared_bytes(space);
  CUresult result = take_new(space, block_bytes, bytes, true, false, extent);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && block_bytes > GRAIN_BYTES)
    result = take_new(space, GRAIN_BYTES, bytes, true, false, extent);
  return result;
}

/* NULL: there is none of this size and kind. */
static struct extent *take_spare(struct space *space, uint64_t block_bytes, bool by_handle) {
  space_lock(space);
  struct block *spare = space->spares;
  while (spare && (spare->shared || spare->bytes != block_bytes || spare->by_handle != by_handle))
    spare = spare->next_spare;
  struct extent *extent = spare ? take(space, spare->extents, block_bytes) : NULL;
  if (spare)
    space_renew(space, spare);
  space_unlock(space);
  return extent;
}

static CUresult take_large(struct space *space, uint64_t bytes, bool by_handle, struct extent **extent) {
  if (bytes > UINT64_MAX - GRAIN_BYTES)
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t block_bytes = round_up(bytes, GRAIN_BYTES);
  *extent = take_spare(space, block_bytes, by_handle);
  return *extent ? CUDA_SUCCESS : take_new(space, block_bytes, bytes, false, by_handle, extent);
}

CUresult extent_take(struct space *space, uint64_t bytes, bool by_handle, struct extent **extent) {
  return bytes < SHARED_BELOW_BYTES ? take_small(space, bytes, extent)
                                    : take_large(space, bytes, by_handle, extent);
}

static size_t fresh_run(const struct block *block, size_t i) {
  size_t start = i;
  while (i < block->pieces && block->piece[i].state == PIECE_FRESH)
    i++;
  return i - start;
}

void block_hold(struct space *space, struct block *block) {
  for (struct extent *extent = block->extents; extent; extent = extent->after)
    unlist_hole(extent);
  for (size_t i = 0; i < block->pieces; i++)
    if (!piece_is_absent(block, i))
      copies_drop(space, block, i);
  space_hold(space, block);
}

void block_let_go(struct space *space, struct block *block) {
  block->aside = false;
  space_let_go(space, block);
  for (struct extent *extent = block->extents; extent; extent = extent->after)
    if (!extent->used)
      list_hole(space, extent);
}

CUresult block_map_fresh(struct space *space, struct block *block) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < block->pieces && result == CUDA_SUCCESS; i++) {
    size_t run = fresh_run(block, i), mapped = 0;
    if (run)
      result = pieces_map(space, block, i, run, &mapped);
    for (size_t k = i; k < i + mapped; k++)
      piece_become(space, block, k, PIECE_RESIDENT);
  }
  return result;
}

/* A hole, or a new block as far as the bound goes, whose pages are there before anybody else may have a hole
 * in it. */
CUresult extent_take_staying(struct space *space, uint64_t bytes, struct extent **extent) {
  uint64_t bound_bytes = bytes < SHARED_BELOW_BYTES ? STAYING_BYTES : STAYING_BYTES / 2;
  struct block *block;
  space_lock(space);
  *extent = take_hole(space, bytes);
  space_unlock(space);
  if (*extent)
    return CUDA_SUCCESS;
  if (atomic_load(&space->total_bytes) >= bound_bytes || budget_free_bytes(space->device) < GRAIN_BYTES)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = block_new(space, GRAIN_BYTES, true, false, &block);
  if (result != CUDA_SUCCESS)
    return result;
  space_lock(space);
  space_link(space, block);
  *extent = take(space, block->extents, bytes);
  result = block_map_fresh(space, block);
  if (result != CUDA_SUCCESS)
    block_release(space, *extent);
  space_unlock(space);
  return result;
}

/* ---- the end of an allocation ---- */

struct target {
  CUcontext context;
  bool found, refused;
};

/* Of the context that is current. What it waits for may be a thread that is to begin a capture. */
static bool synchronize_current(void) {
  capture_forbid();
  bool may_wait = capture_count() == 0;
  if (may_wait) {
    capture_wait_begin();
    driver.cuCtxSynchronize(); /* an error is the program's: it will see it itself */
    capture_wait_end();
  }
  capture_allow();
  return may_wait;
}

static bool synchronize_if(CUcontext context, void *argument) {
  struct target *target = argument;
  if (target->context && target->context != context)
    return true;
  target->found = true;
  target->refused = !synchronize_current();
  return !target->refused;
}

/* By way of the table of contexts, which keeps it from being destroyed meanwhile, if it is in there. False:
 * not now, as a capture is open, or the context is being destroyed. */
static bool synchronize(CUdevice device, CUcontext context) {
  struct target target = {.context = context};
  bool all = contexts_each(device, synchronize_if, &target);
  if (target.refused)
    return false;
  if (target.found && context)
    return true;
  if (!all || !context)
    return all;
  if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
    return true;
  bool finished = synchronize_current();
  driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  return finished;
}

static bool is_drained(struct space *space) {
  space_lock(space);
  bool drained = !space->open && space->drained;
  space_unlock(space);
  return drained;
}

/* Until no work of the context uses its memory. Where that is stopped, this takes until it has gone on.
 * False: it is to be tried again later. */
static bool wait_for_work(struct space *space, CUcontext context) {
  return is_drained(space) || synchronize(space->device, context);
}

static void doom(struct space *space, struct extent *extent) {
  space_lock(space);
  extent->next = space->doomed;
  space->doomed = extent;
  space_unlock(space);
}

static struct extent *take_doomed(struct space *space) {
  space_lock(space);
  struct extent *extent = space->doomed;
  if (extent)
    space->doomed = extent->next;
  space_unlock(space);
  return extent;
}

/* True unless it was put off. */
static bool free_or_doom(struct space *space, struct extent *extent, bool finished) {
  if (!finished && !wait_for_work(space, extent->context)) {
    doom(space, extent);
    return false;
  }
  extent->next = NULL;
  space_lock(space);
  block_release(space, extent);
  space_unlock(space);
  return true;
}

void extents_reap(struct space *space) {
  struct extent *extent;
  while ((extent = take_doomed(space)) && free_or_doom(space, extent, false))
    ;
}

void extent_free(struct extent *extent, bool finished) {
  struct space *space = extent->block->space;
  if (free_or_doom(space, extent, finished) && !finished) /* else a context may be going right now */
    extents_reap(space);
}
