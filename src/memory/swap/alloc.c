/*
 * alloc.c - new swap memory: a hole or a block, and while the process runs, room on the card; and its end.
 *
 * Like cuMemFree, a free waits for the work that may use the memory. Waiting for a context would invalidate
 * the captures in it, so while one is open in the process, the free is put off: the address stays taken and
 * the bytes stay booked.
 */
#include <errno.h>
#include <stdatomic.h>

#include "common/clock.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/deferred.h"
#include "memory/memory_port.h"
#include "memory/swap/blocks.h"
#include "memory/swap/pieces.h"
#include "memory/swap/swap.h"

#define REFUSED_NS (10 * NS_PER_S) /* how long the card may lack what the daemon has promised */
#define FIRST_PAUSE_NS NS_PER_MS
#define LONGEST_PAUSE_NS (200 * NS_PER_MS)

/* Why: what stays is lost to others, as the driver's own memory of a context is, which takes some hundred
 * MiB. An allocation that takes half of a grain or more leaves half of the bound to those that are smaller,
 * because flags are, and a caching allocator takes many of 2 MiB. */
#define STAYING_BYTES (UINT64_C(64) << 20)

/* ---- the end ---- */

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

/* Do the frees that were put off, as far as that can be done. The mutex is free. */
static void reap(struct space *space) {
  struct extent *extent;
  while ((extent = take_doomed(space)) && free_or_doom(space, extent, false))
    ;
}

CUresult swap_free(const struct allocation *taken, bool finished) {
  CUresult fault = finished ? CUDA_SUCCESS : device_fault();
  struct extent *extent = taken->object;
  struct space *space = extent->block->space;
  if (fault != CUDA_SUCCESS)
    return fault;
  extent->context = taken->context;
  CUstreamCaptureMode mode = capture_relax();
  if (free_or_doom(space, extent, finished) && !finished) /* else a context may be going right now */
    reap(space);
  capture_unrelax(mode);
  return CUDA_SUCCESS;
}

/* ---- which memory ---- */

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

static CUresult take_new(struct space *space, uint64_t block_bytes, uint64_t bytes, bool shared,
                         struct extent **extent) {
  struct block *block;
  CUresult result = block_new(space, block_bytes, shared, &block);
  if (result != CUDA_SUCCESS)
    return result;
  space_lock(space);
  space_link(space, block);
  *extent = extents_take_first(space, block, bytes);
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
  *extent = extents_take(space, bytes);
  space_unlock(space);
  if (*extent)
    return CUDA_SUCCESS;
  uint64_t block_bytes = next_shared_bytes(space);
  CUresult result = take_new(space, block_bytes, bytes, true, extent);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && block_bytes > GRAIN_BYTES)
    result = take_new(space, GRAIN_BYTES, bytes, true, extent);
  return result;
}

static CUresult take_large(struct space *space, uint64_t bytes, struct extent **extent) {
  if (bytes > UINT64_MAX - GRAIN_BYTES)
    return CUDA_ERROR_OUT_OF_MEMORY;
  return take_new(space, round_up(bytes, GRAIN_BYTES), bytes, false, extent);
}

/* ---- onto the card ---- */

/* An allocation on its way to the card, while the process runs. */
struct arrival {
  struct space *space;
  struct block *block;
  uint64_t need_bytes;  /* that the process must be allowed for it */
  uint64_t full_bytes;  /* the same with unified memory that would make way for it */
  uint64_t lacks_bytes; /* of the block */
  bool regardless;      /* of the room: see wait_for_room */
  bool refused;         /* by the driver, and not for lack of room */
  uint64_t give_up_ns, pause_ns;
};

static uint64_t fresh_bytes(const struct block *block) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < block->pieces; i++)
    bytes += block->piece[i].state == PIECE_FRESH ? piece_bytes(block, i) : 0;
  return bytes;
}

static size_t fresh_run(const struct block *block, size_t i) {
  size_t start = i;
  while (i < block->pieces && block->piece[i].state == PIECE_FRESH)
    i++;
  return i - start;
}

static CUresult map_fresh(struct space *space, struct block *block) {
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

/* Map the block, if that is to be done now. True: `result` is the outcome. */
static bool arrive(struct arrival *arrival, CUresult *result) {
  struct space *space = arrival->space;
  uint64_t room_bytes = memory_port.room_bytes(space->device);
  uint64_t others = budget_used_bytes(space->device, BACKING_PINNED);
  uint64_t unified = account_unified_bytes(space->device),
           makes_way = device_can_page(space->device) ? unified : 0;
  space_lock(space);
  arrival->lacks_bytes = fresh_bytes(arrival->block);
  arrival->full_bytes = others + unified + atomic_load(&space->resident_bytes) + arrival->lacks_bytes;
  arrival->need_bytes = arrival->full_bytes - makes_way;
  bool fits = arrival->need_bytes <= room_bytes || arrival->regardless;
  *result = CUDA_SUCCESS;
  if (space->open && arrival->lacks_bytes && fits)
    *result = map_fresh(space, arrival->block);
  arrival->lacks_bytes = fresh_bytes(arrival->block);
  bool done = !space->open || !arrival->lacks_bytes || (fits && *result != CUDA_ERROR_OUT_OF_MEMORY);
  arrival->refused = fits && !done;
  space_unlock(space);
  return done;
}

/* Until something changes here. False once it is too late. */
static bool pause_until(struct space *space, uint64_t deadline_ns) {
  space_lock(space);
  bool woken = space->open && condition_wait(&space->changed, &space->lock, deadline_ns);
  bool more = woken && space->open;
  space_unlock(space);
  return more;
}

/* When the process is giving the GPU back, the gate may still be open, or let single calls pass so that the
 * drain can end. So nobody gets unmapped memory before the space is closed. But this very thread may be what
 * the drain waits for: then better a little too much on the card than a standstill. */
static void wait_for_room(struct arrival *arrival) {
  if (memory_port.room_wait(arrival->space->device, arrival->need_bytes))
    return;
  uint64_t deadline_ns = clock_now_ns() + MEMORY_ENDING_NS;
  while (pause_until(arrival->space, deadline_ns))
    ;
  arrival->regardless = true;
}

/* The card has less than the daemon believes: tell it, so that others leave, and try again for a while.
 * Unless the room is not there yet for all: then others are about to leave. False: there is no daemon, or the
 * time is up. */
static bool wait_for_card(struct arrival *arrival) {
  struct space *space = arrival->space;
  if (block_lock_and_drop_spare(space))
    return true;
  if (memory_port.room_bytes(space->device) == UINT64_MAX)
    return false;
  uint64_t now_ns = clock_now_ns();
  if (!arrival->give_up_ns) {
    if (!arrival->regardless && arrival->full_bytes <= memory_port.room_bytes(space->device))
      memory_port.falls_short(space->device, arrival->lacks_bytes);
    arrival->give_up_ns = now_ns + REFUSED_NS;
    arrival->pause_ns = FIRST_PAUSE_NS;
  }
  if (now_ns >= arrival->give_up_ns)
    return false;
  pause_until(space, now_ns + arrival->pause_ns);
  arrival->pause_ns = arrival->pause_ns * 2 < LONGEST_PAUSE_NS ? arrival->pause_ns * 2 : LONGEST_PAUSE_NS;
  return true;
}

/* In a closed space there is nothing to do: the memory comes with the next restore; unless the card has been
 * found to lack it. */
static CUresult make_resident(struct space *space, struct block *block) {
  struct arrival arrival = {.space = space, .block = block};
  CUresult result;
  while (!arrive(&arrival, &result))
    if (!arrival.refused)
      wait_for_room(&arrival);
    else if (!wait_for_card(&arrival))
      return CUDA_ERROR_OUT_OF_MEMORY;
  bool lacking = arrival.give_up_ns && !arrival.regardless && arrival.lacks_bytes;
  return lacking ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* ---- all of it ---- */

static CUresult alloc_once(struct space *space, uint64_t bytes, struct extent **extent) {
  CUresult result =
      bytes < SHARED_BELOW_BYTES ? take_small(space, bytes, extent) : take_large(space, bytes, extent);
  if (result != CUDA_SUCCESS)
    return result;
  result = make_resident(space, (*extent)->block);
  if (result != CUDA_SUCCESS) {
    space_lock(space);
    block_release(space, *extent);
    space_unlock(space);
  }
  return result;
}

/* Into the ledger. */
static CUresult enter(CUdeviceptr *address, size_t bytes, const struct allocation *like,
                      struct extent *extent) {
  struct allocation new = *like;
  new.base = extent->block->base + extent->at;
  new.span = bytes; /* what the program may ask about */
  new.bytes = new.away_bytes = 0;
  new.backing = BACKING_SWAP;
  new.stays = extent->block->space->backing == BACKING_PINNED;
  new.object = extent;
  if (account_add(&account_addresses, &new)) {
    swap_free(&new, true); /* nobody has used it */
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = new.base;
  return CUDA_SUCCESS;
}

CUresult swap_alloc(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  struct space *space = space_of(like->device);
  struct extent *extent;
  uint64_t span = bytes < SHARED_BELOW_BYTES ? round_up(bytes, UNIT_BYTES) : bytes;
  CUresult result = device_fault();
  if (result != CUDA_SUCCESS)
    return result;
  CUstreamCaptureMode mode = capture_relax();
  reap(space);
  deferred_reap_for_more();
  result = alloc_once(space, span, &extent);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && deferred_reap_all())
    result = alloc_once(space, span, &extent);
  capture_unrelax(mode);
  return result == CUDA_SUCCESS ? enter(address, bytes, like, extent) : result;
}

/* ---- small ones that stay ---- */

/* Whether the device can have such memory. Every GPU that the process sees is let in, because copies between
 * two GPUs natively need no access between them, but copies of mapped memory may. So each must be able to. */
static bool can_stay(struct space *space) {
  static _Atomic int known[DEVICES]; /* 0: unknown, 1: yes, -1: no */
  int can = atomic_load(&known[space->device]), count = 0;
  if (can)
    return can > 0;
  uint64_t peers = 0;
  can = backend_swap.supported(space->device) && driver.cuDeviceGetCount(&count) == CUDA_SUCCESS &&
        count <= DEVICES;
  for (CUdevice peer = 0; can && peer < count; peer++) {
    can = peer == space->device ||
          (driver.cuDeviceCanAccessPeer(&can, peer, space->device) == CUDA_SUCCESS && can);
    peers |= UINT64_C(1) << peer;
  }
  space_lock(space);
  space->peers = peers;
  space_unlock(space);
  atomic_store(&known[space->device], can ? 1 : -1);
  return can;
}

/* A hole, or a new block as far as the bound goes, whose pages are there before anybody else may have a hole
 * in it. */
static CUresult take_staying(struct space *space, uint64_t bytes, struct extent **extent) {
  uint64_t bound_bytes = bytes < SHARED_BELOW_BYTES ? STAYING_BYTES : STAYING_BYTES / 2;
  struct block *block;
  space_lock(space);
  *extent = extents_take(space, bytes);
  space_unlock(space);
  if (*extent)
    return CUDA_SUCCESS;
  if (atomic_load(&space->total_bytes) >= bound_bytes || budget_free_bytes(space->device) < GRAIN_BYTES)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = block_new(space, GRAIN_BYTES, true, &block);
  if (result != CUDA_SUCCESS)
    return result;
  space_lock(space);
  space_link(space, block);
  *extent = extents_take_first(space, block, bytes);
  result = map_fresh(space, block);
  if (result != CUDA_SUCCESS)
    block_release(space, *extent);
  space_unlock(space);
  return result;
}

CUresult swap_alloc_small(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  struct space *space = space_staying(like->device);
  struct extent *extent;
  if (bytes > GRAIN_BYTES || !can_stay(space))
    return CUDA_ERROR_NOT_SUPPORTED;
  CUstreamCaptureMode mode = capture_relax();
  reap(space);
  deferred_reap();
  CUresult result = take_staying(space, round_up(bytes, UNIT_BYTES), &extent);
  capture_unrelax(mode);
  return result == CUDA_SUCCESS ? enter(address, bytes, like, extent) : result;
}
