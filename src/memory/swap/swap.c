/* swap.c - swap memory as a backend: see backend.h. */
#include "memory/swap/swap.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/log.h"
#include "driver/driver.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/swap/blocks.h"
#include "memory/swap/mover.h"
#include "memory/swap/passing.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

static _Atomic int supported[DEVICES]; /* 0: unknown, 1: yes, -1: no */

static int ask_supported(CUdevice device) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
  size_t grain = 0;
  int can = 0;
  CUresult result =
      driver.cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  if (result == CUDA_SUCCESS && can)
    result = driver.cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  return result == CUDA_SUCCESS && grain && GRAIN_BYTES % grain == 0 ? 1 : -1;
}

static bool supported_by(CUdevice device) {
  int known = atomic_load_explicit(&supported[device], memory_order_relaxed);
  if (!known) {
    known = ask_supported(device);
    atomic_store_explicit(&supported[device], known, memory_order_relaxed);
  }
  return known > 0;
}

static enum memory_progress step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  struct space *space = space_of(device);
  struct mover *mover = &space->mover;
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  enum memory_progress progress =
      space->open ? MEMORY_SETTLED : mover_step(space, room_bytes, &moved->short_bytes);
  moved->out_bytes += mover->moved_out;
  moved->in_bytes += mover->moved_in;
  mover->moved_out = mover->moved_in = 0;
  space_unlock(space);
  capture_unrelax(mode);
  return progress;
}

bool swap_is_coming(CUdevice device) { return passing_is_expected(space_of(device)); }

static bool open_and_unlock(struct space *space) {
  space->open = space->open || !space->missing_bytes || space->dead;
  space->dead = false;
  bool open = space->open;
  if (open)
    passing_end_in(space);
  space_unlock(space);
  return open;
}

/* All that page faults don't fetch must be there. */
static bool open_space(CUdevice device, bool enough, bool waits) {
  struct space *space = space_of(device);
  (void)enough;
  if (waits)
    space_lock(space);
  else if (!space_try_lock(space))
    return false;
  return open_and_unlock(space);
}

/* The space opens the next time. */
static void give_up(CUdevice device) {
  struct space *space = space_of(device);
  space_lock(space);
  space->dead = true;
  space_unlock(space);
}

static void free_what_is_finished(struct space *space) {
  space_lock(space);
  block_release_doomed(space, NULL);
  space_unlock(space);
}

static void close_space(CUdevice device, bool drained) {
  struct space *space = space_of(device);
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  space->dead = false;
  space->open = false;
  space->drained = drained;
  condition_wake_all(&space->changed);
  passing_end_in(space); /* it has held, and all that was passed to it with that */
  space_unlock(space);
  if (drained) {
    free_what_is_finished(space);
    free_what_is_finished(space_staying(device));
  }
  capture_unrelax(mode);
}

static uint64_t resident_bytes(CUdevice device) { return atomic_load(&space_of(device)->resident_bytes); }
static uint64_t needed_bytes(CUdevice device) { return atomic_load(&space_of(device)->total_bytes); }

static void set_peer_of(const struct block *block, CUdevice peer, bool access) {
  for (size_t i = 0, end; i < block->pieces; i = end + 1) {
    for (end = i; end < block->pieces && !piece_is_absent(block, end);)
      end++;
    if (end > i && pieces_set_peer(block, i, end - i, peer, access) != CUDA_SUCCESS)
      log_warn("memory at 0x%llx: the access of GPU %d could not be changed", (unsigned long long)block->base,
               peer);
  }
}

static void set_peer(CUdevice device, CUdevice peer, bool access) {
  struct space *space = space_of(device);
  uint64_t bit = UINT64_C(1) << peer;
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  bool had = space->peers & bit;
  space->peers = access ? space->peers | bit : space->peers & ~bit;
  for (struct block *block = space->oldest; block && had != access; block = block->newer)
    set_peer_of(block, peer, access);
  space_unlock(space);
  capture_unrelax(mode);
}

/* ---- the end of a context ---- */

static bool is_of_context(const struct allocation *allocation, void *argument) {
  return allocation->backing == BACKING_SWAP && allocation->context == argument;
}

/* Out of the ledger one by one: whoever takes an allocation frees it, this thread or another. */
static void free_listed(CUcontext context) {
  struct allocation found, taken;
  for (uint64_t from = 0; ledger_find_wanted(&account_addresses, from, is_of_context, context, &found);
       from = found.base + 1) {
    if (!account_take(&account_addresses, found.base, &taken))
      continue;
    if (is_of_context(&taken, context))
      swap_free(&taken, true);
    else
      account_put_back(&account_addresses, &taken);
  }
}

static bool anything(void) {
  for (size_t i = 0; i < SPACES; i++)
    if (atomic_load(&space_at(i)->total_bytes))
      return true;
  return false;
}

/* False: it is destroyed already, or broken. */
static bool finish_work(CUcontext context) {
  if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
    return false;
  CUresult result = driver.cuCtxSynchronize();
  driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  return result == CUDA_SUCCESS;
}

static void forget_work(struct space *space, CUcontext context, bool alive) {
  space_lock(space);
  space->dead = false;
  mover_context_destroyed(space, context, alive);
  block_release_doomed(space, context);
  space_unlock(space);
}

static void context_leaving(CUcontext context) {
  if (!anything())
    return;
  CUstreamCaptureMode mode = capture_relax();
  bool alive = finish_work(context);
  for (size_t i = 0; i < SPACES; i++)
    forget_work(space_at(i), context, alive);
  for (size_t i = 0; i < SPACES; i++)
    block_lock_and_drop_spare(space_at(i));
  capture_unrelax(mode);
}

static void context_left(CUcontext context) {
  if (!anything())
    return;
  CUstreamCaptureMode mode = capture_relax();
  free_listed(context);
  for (size_t i = 0; i < SPACES; i++)
    block_lock_and_drop_spare(space_at(i));
  capture_unrelax(mode);
}

static void fork_child(void) {
  space_fork_child();
  passing_fork_child();
  blocks_fork_child();
  slabs_fork_child();
  for (CUdevice device = 0; device < DEVICES; device++)
    atomic_store(&supported[device], 0);
}

const struct backend backend_swap = {
    .supported = supported_by,
    .otherwise = &backend_managed,
    .leaves = true,
    .allocate = swap_alloc,
    .set_peer = set_peer,
    .hidden = true,
    .free = swap_free,
    .resident_bytes = resident_bytes,
    .needed_bytes = needed_bytes,
    .host_bytes = needed_bytes,
    .step = step,
    .give_up = give_up,
    .close = close_space,
    .open = open_space,
    .context_leaving = context_leaving,
    .context_left = context_left,
    .context_gone = slabs_context_gone,
    .fork_child = fork_child,
};
