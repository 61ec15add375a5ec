/* copies.c - looks at pieces that are to leave, and host copies of those that have come back. */
#include "memory/swap/copies.h"

#include <stdatomic.h>
#include <string.h>

#include "common/clock.h"
#include "common/host.h"
#include "common/log.h"
#include "driver/driver.h"
#include "memory/memory_port.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

/* So many looks in vain in a row: the piece leaves without a look so many times, twice as many the next time.
 */
#define VAIN_LOOKS 3
#define LEAST_SKIPS 8
#define MOST_SKIPS 64

#define HOST_LOOK_NS NS_PER_S         /* between two looks at the host's memory */
#define TRY_AGAIN_NS (10 * NS_PER_MS) /* where somebody else has the space */

static _Atomic int mode = GS_HOST_COPIES_OFF;
static _Atomic uint64_t host_seen_ns;
static _Atomic bool host_plentiful;

void copies_set_mode(enum gs_host_copies wanted) { atomic_store(&mode, (int)wanted); }

static bool is_plentiful(void) {
  uint64_t now_ns = clock_now_ns();
  if (slabs_is_tight())
    return false;
  if (!atomic_load(&host_seen_ns) || now_ns - atomic_load(&host_seen_ns) >= HOST_LOOK_NS) {
    atomic_store(&host_plentiful, host_is_plentiful());
    atomic_store(&host_seen_ns, now_ns);
  }
  return atomic_load(&host_plentiful);
}

static bool may_keep(void) {
  int now = atomic_load(&mode);
  return now == GS_HOST_COPIES_ON || (now == GS_HOST_COPIES_AUTO && is_plentiful());
}

/* ---- looks ---- */

static bool is_known(const struct space *space, const struct piece *piece) {
  return piece->known == space->closings;
}

static bool wants_look(const struct space *space, const struct piece *piece) {
  return !is_known(space, piece) && !piece->skips && !piece->looking;
}

void copies_prepare(struct space *space) {
  if (atomic_load(&mode) == GS_HOST_COPIES_OFF || !atomic_load(&space->total_bytes))
    return;
  copies_finish_looks(space, NULL);
  hasher_load(&space->looks.hasher, space->device);
}

static bool is_ready(struct space *space) {
  const struct hasher *hasher = &space->looks.hasher;
  if (atomic_load(&mode) == GS_HOST_COPIES_OFF)
    return false;
  if (hasher->context != space->mover.context && !memory_port.is_stopped(space->device))
    copies_prepare(space);
  return hasher->context && hasher->context == space->mover.context;
}

/* No look is of use any more, nor under way. The copies that follow meet the same error, if it stays. */
static void fail(struct space *space, CUresult error) {
  log_info("GPU %d: memory is moved whether it has changed or not (CUDA error %d)", space->device, error);
  for (unsigned i = 0; i < space->looks.count; i++)
    space->looks.at[i].block->piece[space->looks.at[i].piece].looking = false;
  space->looks.count = 0;
  space->looks.hasher.fails = true;
  hasher_forget(&space->looks.hasher);
}

/* As many as can be hashed at a time, in the order in which they leave. */
static void begin(struct space *space, uint64_t leaving_bytes) {
  struct looks *looks = &space->looks;
  looks->closing = space->closings;
  for (struct block *block = space->evict_from; block && leaving_bytes; block = block->older)
    for (size_t i = block->pieces; i-- > 0 && leaving_bytes && looks->count < HASH_MOST;) {
      struct piece *piece = &block->piece[i];
      uint64_t bytes = piece_bytes(block, i);
      if (piece->state != PIECE_RESIDENT)
        continue;
      leaving_bytes -= bytes < leaving_bytes ? bytes : leaving_bytes;
      if (!wants_look(space, piece))
        continue;
      CUdeviceptr at;
      if (pieces_reach(space, block, i, &at) != CUDA_SUCCESS)
        continue;
      piece->looking = true;
      hasher_add(&looks->hasher, at, bytes);
      looks->at[looks->count].block = block;
      looks->at[looks->count++].piece = i;
    }
  CUresult result = looks->count ? hasher_begin(&looks->hasher) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS)
    fail(space, result);
}

/* The piece has contents with this hash. If there was nothing to compare it with, only zeros could be found:
 * that is no look in vain, unless it will be the same the next time. */
static void note(struct space *space, struct block *block, size_t i, const struct hash *hash) {
  struct piece *piece = &block->piece[i];
  bool zero = !hash->any, compared = piece->slot || !may_keep();
  bool same = piece->slot && !zero && memcmp(&piece->hash, hash, sizeof *hash) == 0;
  if (zero || same)
    piece->vain_looks = 0;
  else if (compared && ++piece->vain_looks >= VAIN_LOOKS) {
    unsigned doublings = piece->vain_looks - VAIN_LOOKS, skips = LEAST_SKIPS << doublings;
    piece->skips = skips < MOST_SKIPS ? skips : MOST_SKIPS;
    piece->vain_looks -= skips >= MOST_SKIPS;
  }
  if (!same)
    copies_drop(space, block, i);
  piece->hash = *hash;
  piece->zero = zero;
  piece->hashed = true;
  piece->known = space->closings;
}

/* What has been begun before the space was open says nothing any more. */
static void finish(struct space *space) {
  struct looks *looks = &space->looks;
  struct hash hashes[HASH_MOST];
  CUresult result = looks->count ? hasher_finish(&looks->hasher, hashes) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) {
    fail(space, result);
    return;
  }
  for (unsigned k = 0; k < looks->count; k++) {
    struct block *block = looks->at[k].block;
    size_t i = looks->at[k].piece;
    block->piece[i].looking = false;
    if (looks->closing == space->closings)
      note(space, block, i, &hashes[k]);
  }
  looks->count = 0;
}

void copies_look(struct space *space, struct block *block, size_t i, uint64_t leaving_bytes) {
  struct piece *piece = &block->piece[i];
  if (piece->looking)
    finish(space);
  if (!is_ready(space))
    return;
  if (wants_look(space, piece)) {
    finish(space); /* what is under way is about others */
    begin(space, leaving_bytes);
    finish(space);
  }
  if (!space->looks.count && is_ready(space))
    begin(space, leaving_bytes);
}

void copies_finish_looks(struct space *space, const struct block *block) {
  bool any = !block && space->looks.count;
  for (size_t i = 0; block && i < block->pieces && !any; i++)
    any = block->piece[i].looking;
  if (!any)
    return;
  CUresult result = driver.cuCtxPushCurrent_v2(space->looks.hasher.context);
  if (result != CUDA_SUCCESS) {
    fail(space, result);
    return;
  }
  finish(space);
  driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
}

void copies_context_gone(struct space *space, CUcontext context) {
  struct looks *looks = &space->looks;
  if (!context || looks->hasher.context != context)
    return;
  for (unsigned i = 0; i < looks->count; i++)
    looks->at[i].block->piece[looks->at[i].piece].looking = false;
  looks->count = 0;
  hasher_forget(&looks->hasher);
}

/* ---- out and in ---- */

static void keep(struct space *space, struct block *block, size_t i) {
  atomic_fetch_add(&space->kept_bytes, block->piece[i].slot ? piece_bytes(block, i) : 0);
}

static void keep_no_more(struct space *space, struct block *block, size_t i) {
  atomic_fetch_sub(&space->kept_bytes, block->piece[i].slot ? piece_bytes(block, i) : 0);
}

bool copies_spare(struct space *space, struct block *block, size_t i) {
  struct piece *piece = &block->piece[i];
  keep_no_more(space, block, i);
  if (is_known(space, piece))
    return piece->zero || piece->slot;
  piece->zero = piece->hashed = false;
  piece->skips -= piece->skips > 0;
  return false;
}

void copies_arrived(struct space *space, struct block *block, size_t i) {
  struct piece *piece = &block->piece[i];
  if (piece->hashed)
    piece->known = space->closings;
  if (piece->hashed && may_keep()) {
    keep(space, block, i);
    return;
  }
  if (piece->slot)
    slabs_put(piece->slot, piece_bytes(block, i));
  piece->slot = NULL;
}

/* ---- host memory ---- */

void copies_drop(struct space *space, struct block *block, size_t i) {
  struct piece *piece = &block->piece[i];
  if (!piece->slot)
    return;
  if (piece->state == PIECE_RESIDENT)
    keep_no_more(space, block, i);
  slabs_put(piece->slot, piece_bytes(block, i));
  piece->slot = NULL;
}

static void drop_all(struct space *space, struct block *block) {
  for (size_t i = 0; i < block->pieces; i++)
    if (block->piece[i].state == PIECE_RESIDENT)
      copies_drop(space, block, i);
}

bool copies_give_up(struct space *space) {
  if (!atomic_load(&space->kept_bytes))
    return false;
  for (struct block *block = space->oldest; block; block = block->newer)
    drop_all(space, block);
  for (struct block *block = space->held; block; block = block->older)
    drop_all(space, block);
  return true;
}

void *copies_get_slot(struct space *space, uint64_t bytes) {
  void *slot = slabs_get(bytes);
  return slot || !copies_give_up(space) ? slot : slabs_get(bytes);
}

uint64_t copies_trim(uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  for (size_t i = 0; i < SPACES; i++) {
    struct space *space = space_at(i);
    if (!atomic_load(&space->kept_bytes))
      continue;
    if (may_keep()) {
      next_ns = now_ns + HOST_LOOK_NS;
    } else if (space_try_lock(space)) {
      copies_give_up(space);
      space_unlock(space);
    } else {
      next_ns = now_ns + TRY_AGAIN_NS;
    }
  }
  return next_ns;
}
