/*
 * swap.c - swap memory as a backend (backend.h): new memory, and while the process runs, room on the card for
 * it; what a step does; the ends.
 */
#include "memory/swap/swap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"
#include "driver/driver.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/deferred.h"
#include "memory/forked.h"
#include "memory/memory_port.h"
#include "memory/pinned.h"
#include "memory/swap/blocks.h"
#include "memory/swap/copies.h"
#include "memory/swap/leases.h"
#include "memory/swap/lending.h"
#include "memory/swap/mover.h"
#include "memory/swap/passing.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

#define REFUSED_NS (10 * NS_PER_S) /* how long the card may lack what the daemon has promised */
#define FIRST_PAUSE_NS NS_PER_MS
#define LONGEST_PAUSE_NS (200 * NS_PER_MS)

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

/* Map the block, if that is to be done now. True: `result` is the outcome. */
static bool arrive(struct arrival *arrival, CUresult *result) {
  struct space *space = arrival->space;
  uint64_t room_bytes = memory_port.room_bytes(space->device);
  uint64_t unified = account_unified_bytes(space->device),
           makes_way = device_can_page(space->device) ? unified : 0;
  space_lock(space);
  uint64_t others = budget_pinned_bytes(space->device) + account_opened_bytes(space->device);
  arrival->lacks_bytes = fresh_bytes(arrival->block);
  arrival->full_bytes = others + unified + atomic_load(&space->resident_bytes) + arrival->lacks_bytes;
  arrival->need_bytes = arrival->full_bytes - makes_way;
  bool fits = arrival->need_bytes <= room_bytes || arrival->regardless;
  *result = CUDA_SUCCESS;
  if (space->open && arrival->lacks_bytes && fits)
    *result = block_map_fresh(space, arrival->block);
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
    if (blocks_lock_and_drop_spares(space))
      continue;
    else if (!arrival.refused)
      wait_for_room(&arrival);
    else if (!wait_for_card(&arrival))
      return CUDA_ERROR_OUT_OF_MEMORY;
  bool lacking = arrival.give_up_ns && !arrival.regardless && arrival.lacks_bytes;
  return lacking ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* ---- an allocation, and its end ---- */

/* Waits for the work of its context, unless it is `finished`. */
static CUresult free_swap(const struct allocation *taken, bool finished) {
  CUresult fault = finished ? CUDA_SUCCESS : device_fault();
  struct extent *extent = taken->object;
  if (fault != CUDA_SUCCESS)
    return fault;
  extent->context = taken->context;
  CUstreamCaptureMode mode = capture_relax();
  extent_free(extent, finished);
  capture_unrelax(mode);
  return CUDA_SUCCESS;
}

static uint64_t whole_units(uint64_t bytes) { return (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES; }

static CUresult alloc_once(struct space *space, uint64_t bytes, bool by_handle, struct extent **extent) {
  CUresult result = extent_take(space, bytes, by_handle, extent);
  if (result != CUDA_SUCCESS)
    return result;
  result = make_resident(space, (*extent)->block);
  if (result != CUDA_SUCCESS)
    extent_free(*extent, true);
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
  new.backend = &backend_swap;
  new.stays = backing_is_pinned(extent->block->space->backing);
  new.object = extent;
  if (account_add(&account_addresses, &new)) {
    free_swap(&new, true); /* nobody has used it */
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = new.base;
  return CUDA_SUCCESS;
}

static _Atomic bool used[DEVICES];

uint64_t swap_spare_bytes(CUdevice device) {
  return swap_is_used(device) ? atomic_load(&space_of(device)->spare_bytes) : 0;
}

uint64_t swap_drop_spares(CUdevice device) {
  uint64_t bytes = swap_spare_bytes(device);
  if (!bytes)
    return 0;
  CUstreamCaptureMode mode = capture_relax();
  bool dropped = blocks_lock_and_drop_spares(space_of(device));
  capture_unrelax(mode);
  return dropped ? bytes : 0;
}

bool swap_is_used(CUdevice device) { return atomic_load_explicit(&used[device], memory_order_relaxed); }

uint64_t swap_copies_bytes(CUdevice device) {
  return swap_is_used(device) ? atomic_load(&space_of(device)->kept_bytes) : 0;
}

CUresult swap_take(struct space *space, uint64_t bytes, bool by_handle, struct extent **extent) {
  CUstreamCaptureMode mode = capture_relax();
  extents_reap(space);
  deferred_reap_for_more();
  atomic_store(&used[space->device], true);
  reserves_set_spares(swap_drop_spares);
  CUresult result = alloc_once(space, bytes, by_handle, extent);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && deferred_reap_all())
    result = alloc_once(space, bytes, by_handle, extent);
  if (result != CUDA_SUCCESS && space_is_empty(space))
    atomic_store(&used[space->device], false);
  capture_unrelax(mode);
  return result;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  struct extent *extent;
  uint64_t span = bytes < SHARED_BELOW_BYTES ? whole_units(bytes) : bytes;
  CUresult result = device_fault();
  if (result == CUDA_SUCCESS)
    result = swap_take(space_of(like->device), span, false, &extent);
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
  can = supported_by(space->device) && driver.cuDeviceGetCount(&count) == CUDA_SUCCESS && count <= DEVICES;
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

CUresult swap_alloc_small(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  struct space *space = space_staying(like->device);
  struct extent *extent;
  if (bytes > GRAIN_BYTES || !can_stay(space))
    return CUDA_ERROR_NOT_SUPPORTED;
  CUstreamCaptureMode mode = capture_relax();
  extents_reap(space);
  deferred_reap();
  CUresult result = extent_take_staying(space, whole_units(bytes), &extent);
  capture_unrelax(mode);
  return result == CUDA_SUCCESS ? enter(address, bytes, like, extent) : result;
}

/* ---- moves ---- */

/* Spares leave before any contents, and make way for those that come. */
static enum memory_progress move(struct space *space, uint64_t room_bytes, uint64_t *short_bytes) {
  uint64_t lacking_bytes = 0;
  bool outward = atomic_load(&space->resident_bytes) > room_bytes;
  if (outward && blocks_drop_spares(space))
    return MEMORY_MOVED;
  enum memory_progress progress = mover_step(space, room_bytes, &lacking_bytes);
  if (progress == MEMORY_SHORT && blocks_drop_spares(space))
    return MEMORY_MOVED;
  *short_bytes = progress == MEMORY_SHORT ? lacking_bytes : *short_bytes;
  return progress;
}

/* What others use makes way at once, and comes for them before what this process lacks itself. */
static enum memory_progress move_shared(struct space *space, uint64_t room_bytes, uint64_t *short_bytes) {
  uint64_t lacking_bytes = 0;
  lending_take_unused(space);
  if (atomic_load(&space->resident_bytes) > room_bytes)
    lending_set_aside(space);
  struct block *wanted = atomic_load(&space->resident_bytes) > room_bytes ? NULL : lending_wanted(space);
  enum memory_progress progress = wanted ? mover_fetch(space, wanted, &lacking_bytes) : MEMORY_SETTLED;
  *short_bytes = progress == MEMORY_SHORT ? lacking_bytes : *short_bytes;
  if (progress == MEMORY_SETTLED)
    progress = move(space, room_bytes, short_bytes);
  if (atomic_load(&space->resident_bytes) <= room_bytes)
    leases_end_parted(space);
  return progress;
}

static enum memory_progress step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  struct space *space = space_of(device);
  struct mover *mover = &space->mover;
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  enum memory_progress progress =
      space->open ? MEMORY_SETTLED : move_shared(space, room_bytes, &moved->short_bytes);
  moved->out_bytes += mover->moved_out;
  moved->in_bytes += mover->moved_in;
  moved->spared_bytes += mover->spared;
  moved->clean_bytes += mover->spared_out;
  mover->moved_out = mover->moved_in = mover->spared = mover->spared_out = 0;
  space_unlock(space);
  capture_unrelax(mode);
  return progress;
}

static void prepare_stop(CUdevice device) {
  struct space *space = space_of(device);
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  copies_prepare(space);
  space_unlock(space);
  capture_unrelax(mode);
}

bool swap_is_coming(CUdevice device) { return passing_is_expected(space_of(device)); }

/* No look of ours is under way when the program's work goes on: it might be stopped together with that. */
static bool open_and_unlock(struct space *space) {
  copies_finish_looks(space, NULL);
  if (!space->open)
    lending_take_back(space);
  space->open = space->open || !space->missing_bytes || space->dead;
  space->dead = false;
  bool open = space->open;
  if (open) {
    passing_end_in(space);
    leases_end_parted(space);
  }
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
  if (waits || (!space->looks.count && !space->mover.count))
    return open_and_unlock(space);
  space_unlock(space);
  return false;
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
  extents_release_doomed(space, NULL);
  space_unlock(space);
}

static void close_space(CUdevice device, bool drained) {
  struct space *space = space_of(device);
  CUstreamCaptureMode mode = capture_relax();
  space_lock(space);
  space->dead = false;
  space->open = false;
  space->closings++;
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
    if (!block->by_handle)
      set_peer_of(block, peer, access);
  for (struct block *block = space->held; block && had != access; block = block->older)
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
      free_swap(&taken, true);
    else
      account_put_back(&account_addresses, &taken);
  }
}

static bool anything(void) {
  for (size_t i = 0; i < SPACES; i++)
    if (!space_is_empty(space_at(i)))
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
  copies_context_gone(space, context);
  mover_context_destroyed(space, context, alive);
  extents_release_doomed(space, context);
  space_unlock(space);
}

/* Without memory, too, what moves it goes with the context: another one may get the same handle. */
static void context_leaving(CUcontext context) {
  CUstreamCaptureMode mode = capture_relax();
  for (size_t i = 0; i < SPACES; i++)
    blocks_lock_and_drop_spares(space_at(i));
  bool alive = anything() && finish_work(context);
  for (size_t i = 0; i < SPACES; i++)
    forget_work(space_at(i), context, alive);
  capture_unrelax(mode);
}

static void context_left(CUcontext context) {
  if (!anything())
    return;
  CUstreamCaptureMode mode = capture_relax();
  free_listed(context);
  for (size_t i = 0; i < SPACES; i++)
    blocks_lock_and_drop_spares(space_at(i));
  capture_unrelax(mode);
}

const struct backend backend_swap = {
    .supported = supported_by,
    .leaves = true,
    .allocate = allocate,
    .set_peer = set_peer,
    .hidden = true,
    .free = free_swap,
    .resident_bytes = resident_bytes,
    .needed_bytes = needed_bytes,
    .host_bytes = needed_bytes,
    .step = step,
    .prepare_stop = prepare_stop,
    .give_up = give_up,
    .close = close_space,
    .open = open_space,
    .context_leaving = context_leaving,
    .context_left = context_left,
    .context_gone = slabs_context_gone,
};

static void forget(void) {
  for (CUdevice device = 0; device < DEVICES; device++) {
    atomic_store(&supported[device], 0);
    atomic_store(&used[device], false);
  }
}
IN_FORKED_CHILD(forget);
