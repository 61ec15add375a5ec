/* mover.c - keeps copies in flight, and turns their ends into states. */
#include "memory/swap/mover.h"

#include <stdatomic.h>
#include <time.h>

#include "common/log.h"
#include "interpose/driver.h"
#include "memory/swap/blocks.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

/* Pieces leave in parts, one at a time. Setting access to memory, which the process does that comes in
 * meanwhile, needs the copy engine that copies out: behind copies that follow each other without a gap it
 * waits for its slice of time, 1 ms a piece, and a restore gets no further than 31 GB/s; with a gap every 16
 * MiB it gets to 47 (H200; bench/probe: mapping). The gaps cost the way out 3 %. */
#define PART_BYTES (UINT64_C(16) << 20)
#define PART_NAP_BYTES_PER_NS 100 /* about half of what a copy takes at the speed of the bus */

/* ---- streams and events ---- */

/* Those of the window put the waiting thread to sleep: behind another job's turn the processor is not ours.
 */
static CUresult create_events(struct mover *mover) {
  CUresult result = driver.cuEventCreate(&mover->part_done, CU_EVENT_DISABLE_TIMING);
  for (int i = 0; i < WINDOW_COPIES && result == CUDA_SUCCESS; i++)
    result = driver.cuEventCreate(&mover->done[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  return result;
}

static void forget_handles(struct mover *mover) {
  mover->context = NULL;
  mover->out = mover->in = NULL;
  mover->part_done = NULL;
  for (int i = 0; i < WINDOW_COPIES; i++)
    mover->done[i] = NULL;
}

static void destroy_handles(struct mover *mover) {
  for (int i = 0; i < WINDOW_COPIES && mover->done[i]; i++)
    driver.cuEventDestroy_v2(mover->done[i]);
  if (mover->part_done)
    driver.cuEventDestroy_v2(mover->part_done);
  if (mover->in)
    driver.cuStreamDestroy_v2(mover->in);
  if (mover->out)
    driver.cuStreamDestroy_v2(mover->out);
  forget_handles(mover);
}

static CUresult create_handles(struct mover *mover) {
  CUresult result = driver.cuCtxGetCurrent(&mover->context);
  if (result == CUDA_SUCCESS && !mover->context)
    result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS)
    result = driver.cuStreamCreate(&mover->out, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = driver.cuStreamCreate(&mover->in, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = create_events(mover);
  if (result != CUDA_SUCCESS)
    destroy_handles(mover);
  return result;
}

/* Make the streams' context the current one. */
static CUresult enter(struct mover *mover) {
  CUresult result = mover->context ? CUDA_SUCCESS : create_handles(mover);
  return result == CUDA_SUCCESS ? driver.cuCtxPushCurrent_v2(mover->context) : result;
}

static void leave(void) { driver.cuCtxPopCurrent_v2(&(CUcontext){NULL}); }

/* ---- one copy ---- */

static CUresult queue_in(struct mover *mover, unsigned at) {
  const struct copy *copy = &mover->copies[at];
  CUresult result =
      driver.cuMemcpyHtoDAsync_v2(piece_at(copy->block, copy->piece), copy->block->piece[copy->piece].slot,
                                  piece_bytes(copy->block, copy->piece), mover->in);
  return result == CUDA_SUCCESS ? driver.cuEventRecord(mover->done[at], mover->in) : result;
}

/* The next part of a piece that leaves. */
static CUresult queue_part(struct mover *mover, struct copy *copy) {
  uint64_t rest = piece_bytes(copy->block, copy->piece) - copy->queued_bytes;
  uint64_t bytes = rest < PART_BYTES ? rest : PART_BYTES;
  char *slot = copy->block->piece[copy->piece].slot;
  CUresult result = driver.cuMemcpyDtoHAsync_v2(
      slot + copy->queued_bytes, piece_at(copy->block, copy->piece) + copy->queued_bytes, bytes, mover->out);
  copy->queued_bytes += bytes;
  return result == CUDA_SUCCESS ? driver.cuEventRecord(mover->part_done, mover->out) : result;
}

/* The piece has its slot. Whatever the result: it is in flight from now on. */
static CUresult launch(struct space *space, struct block *block, size_t i) {
  struct mover *mover = &space->mover;
  unsigned at = (mover->first + mover->count++) % WINDOW_COPIES;
  mover->copies[at] = (struct copy){.block = block, .piece = i};
  mover->flying_bytes += piece_bytes(block, i);
  piece_become(space, block, i, mover->outward ? PIECE_LEAVING : PIECE_COMING);
  return mover->outward ? queue_part(mover, &mover->copies[at]) : queue_in(mover, at);
}

static struct copy land(struct mover *mover) {
  struct copy copy = mover->copies[mover->first];
  mover->first = (mover->first + 1) % WINDOW_COPIES;
  mover->count--;
  mover->flying_bytes -= piece_bytes(copy.block, copy.piece);
  return copy;
}

static void put_slot(const struct copy *copy) {
  struct piece *piece = &copy->block->piece[copy->piece];
  slabs_put(piece->slot, piece_bytes(copy->block, copy->piece));
  piece->slot = NULL;
}

/* Asleep for most of it, then awake: the gap until the next part is queued must be short. */
static CUresult wait_for_part(const struct mover *mover, uint64_t bytes) {
  uint64_t nap_ns = bytes / PART_NAP_BYTES_PER_NS;
  nanosleep(&(struct timespec){.tv_nsec = (long)nap_ns}, NULL);
  return driver.cuEventSynchronize(mover->part_done);
}

static CUresult wait_for_parts(struct mover *mover, struct copy *copy) {
  uint64_t bytes = piece_bytes(copy->block, copy->piece);
  CUresult result = wait_for_part(mover, copy->queued_bytes);
  while (result == CUDA_SUCCESS && copy->queued_bytes < bytes) {
    uint64_t before_bytes = copy->queued_bytes;
    result = queue_part(mover, copy);
    if (result == CUDA_SUCCESS)
      result = wait_for_part(mover, copy->queued_bytes - before_bytes);
  }
  return result;
}

static CUresult fill_out(struct space *space, uint64_t room_bytes, unsigned most);

/* The piece is in its slot: the next one follows at once, so that the bus is not idle while this one is
 * unmapped. */
static CUresult finish_out(struct space *space, struct copy *copy, uint64_t room_bytes) {
  CUresult result = wait_for_parts(&space->mover, copy);
  if (result == CUDA_SUCCESS)
    result = fill_out(space, room_bytes, 2);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY
             ? pieces_unmap(copy->block, copy->piece, 1)
             : result;
}

/* Wait for the oldest copy and do what comes after it. On failure it stays in flight. */
static CUresult finish_oldest(struct space *space, uint64_t room_bytes) {
  struct mover *mover = &space->mover;
  struct copy *oldest = &mover->copies[mover->first];
  CUresult result = mover->outward ? finish_out(space, oldest, room_bytes)
                                   : driver.cuEventSynchronize(mover->done[mover->first]);
  if (result != CUDA_SUCCESS)
    return result;
  struct copy copy = land(mover);
  *(mover->outward ? &mover->moved_out : &mover->moved_in) += piece_bytes(copy.block, copy.piece);
  if (!mover->outward)
    put_slot(&copy);
  piece_become(space, copy.block, copy.piece, mover->outward ? PIECE_AWAY : PIECE_RESIDENT);
  condition_wake_all(&space->changed);
  return CUDA_SUCCESS;
}

/* Nothing new follows. */
static CUresult finish_all(struct space *space) {
  CUresult result = CUDA_SUCCESS;
  while (space->mover.count && result == CUDA_SUCCESS)
    result = finish_oldest(space, UINT64_MAX);
  return result;
}

/* The copies have come to an end, nobody knows how. Where a piece was copied from, it still is. */
static void undo_all(struct space *space) {
  struct mover *mover = &space->mover;
  while (mover->count) {
    struct copy copy = land(mover);
    if (mover->outward)
      put_slot(&copy);
    else
      pieces_unmap(copy.block, copy.piece, 1);
    piece_become(space, copy.block, copy.piece, mover->outward ? PIECE_RESIDENT : PIECE_AWAY);
  }
}

static CUresult wait_for_streams(const struct mover *mover) {
  CUresult out = driver.cuStreamSynchronize(mover->out), in = driver.cuStreamSynchronize(mover->in);
  return out == CUDA_SUCCESS ? in : out;
}

/* Whether all calls of the driver will fail like this: the context is broken by the program, or the driver
 * has shut down because the process ends. Lack of memory may pass, and another context may do better. */
static bool is_final(CUresult error) {
  return error != CUDA_SUCCESS && error != CUDA_ERROR_OUT_OF_MEMORY && error != CUDA_ERROR_INVALID_HANDLE &&
         error != CUDA_ERROR_INVALID_CONTEXT && error != CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* After an error: the next step starts anew, maybe in another context. Where not even waiting works any more,
 * swap_open lets the program go on without its memory, so that it meets the same error itself. */
static enum memory_progress fail(struct space *space, CUresult error) {
  struct mover *mover = &space->mover;
  if (!mover->failure_logged)
    log_warn("GPU %d: moving memory failed with CUDA error %d", space->device, error);
  mover->failure_logged = true;
  space->dead = is_final(mover->context ? wait_for_streams(mover) : error);
  undo_all(space);
  destroy_handles(mover);
  return MEMORY_FAILED;
}

/* ---- filling the window ---- */

/* Up to `most` pieces in flight. CUDA_ERROR_OUT_OF_MEMORY: the host has no more slots. */
static CUresult fill_out(struct space *space, uint64_t room_bytes, unsigned most) {
  struct mover *mover = &space->mover;
  struct block *block;
  size_t i;
  if (mover->count >= most || atomic_load(&space->resident_bytes) <= room_bytes ||
      atomic_load(&space->resident_bytes) - mover->flying_bytes <= room_bytes ||
      !space_next_out(space, &block, &i))
    return CUDA_SUCCESS;
  block->piece[i].slot = slabs_get(piece_bytes(block, i));
  if (!block->piece[i].slot)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = launch(space, block, i);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_UNKNOWN : result;
}

static bool window_takes(const struct mover *mover, uint64_t bytes) {
  return mover->count < WINDOW_COPIES && mover->flying_bytes + bytes <= WINDOW_BYTES;
}

/* `fresh`: pieces that needed no copy, in this step. */
static bool may_come(const struct space *space, uint64_t room_bytes, const struct block *block, size_t i,
                     unsigned fresh) {
  uint64_t bytes = piece_bytes(block, i);
  return atomic_load(&space->resident_bytes) + bytes <= room_bytes && window_takes(&space->mover, bytes) &&
         fresh < WINDOW_COPIES;
}

/* Onto the card, with its contents if it has any. */
static CUresult bring(struct space *space, struct block *block, size_t i, unsigned *fresh) {
  size_t mapped;
  CUresult result = pieces_map(space, block, i, 1, &mapped);
  if (result != CUDA_SUCCESS)
    return result;
  if (block->piece[i].state == PIECE_FRESH) {
    piece_become(space, block, i, PIECE_RESIDENT);
    ++*fresh;
    return result;
  }
  result = launch(space, block, i);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_UNKNOWN : result;
}

/* CUDA_ERROR_OUT_OF_MEMORY: the card has no more. */
static CUresult fill_in(struct space *space, uint64_t room_bytes, unsigned *fresh) {
  struct block *block;
  size_t i;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && space_next_in(space, &block, &i) &&
         may_come(space, room_bytes, block, i, *fresh))
    result = bring(space, block, i, fresh);
  return result;
}

/* ---- a step ---- */

static enum memory_progress no_slots(struct space *space) {
  if (!space->mover.slots_missed)
    log_warn("GPU %d: no host memory for %llu bytes that should leave the card", space->device,
             (unsigned long long)atomic_load(&space->resident_bytes));
  space->mover.slots_missed = true;
  return MEMORY_SETTLED;
}

static enum memory_progress no_card_memory(struct space *space, uint64_t *short_bytes) {
  struct block *block;
  size_t i;
  if (block_drop_spare(space))
    return MEMORY_MOVED;
  if (space_next_in(space, &block, &i))
    *short_bytes = piece_bytes(block, i);
  return MEMORY_SHORT;
}

static enum memory_progress moved_or_failed(struct space *space, CUresult result) {
  return result == CUDA_SUCCESS ? MEMORY_MOVED : fail(space, result);
}

static enum memory_progress work(struct space *space, uint64_t room_bytes, bool outward,
                                 uint64_t *short_bytes) {
  struct mover *mover = &space->mover;
  unsigned fresh = 0;
  if (mover->count && mover->outward != outward)
    return moved_or_failed(space, finish_all(space));
  mover->outward = outward;
  CUresult result = outward ? fill_out(space, room_bytes, 1) : fill_in(space, room_bytes, &fresh);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
    return fail(space, result);
  if (mover->count)
    return moved_or_failed(space, finish_oldest(space, room_bytes));
  if (fresh || result == CUDA_SUCCESS)
    return MEMORY_MOVED;
  return outward ? no_slots(space) : no_card_memory(space, short_bytes);
}

static bool has_work(struct space *space, uint64_t room_bytes, bool outward) {
  struct block *block;
  size_t i;
  if (space->mover.count)
    return true;
  if (outward)
    return space_next_out(space, &block, &i);
  return space_next_in(space, &block, &i) && may_come(space, room_bytes, block, i, 0);
}

enum memory_progress mover_step(struct space *space, uint64_t room_bytes, uint64_t *short_bytes) {
  bool outward = atomic_load(&space->resident_bytes) > room_bytes;
  space->dead = false;
  if (outward && block_drop_spare(space))
    return MEMORY_MOVED;
  if (!has_work(space, room_bytes, outward))
    return MEMORY_SETTLED;
  CUresult result = enter(&space->mover);
  if (result != CUDA_SUCCESS)
    return fail(space, result);
  enum memory_progress progress = work(space, room_bytes, outward, short_bytes);
  leave();
  return progress;
}

void mover_finish_block(struct space *space, const struct block *block) {
  struct mover *mover = &space->mover;
  bool found = false;
  for (unsigned i = 0; i < mover->count; i++)
    found |= mover->copies[(mover->first + i) % WINDOW_COPIES].block == block;
  if (!found)
    return;
  CUresult result = enter(mover);
  if (result == CUDA_SUCCESS) {
    result = finish_all(space);
    leave();
  }
  if (result != CUDA_SUCCESS)
    fail(space, result);
}

void mover_context_destroyed(struct space *space, CUcontext context, bool alive) {
  struct mover *mover = &space->mover;
  if (mover->context != context)
    return;
  undo_all(space);
  if (alive)
    destroy_handles(mover);
  else
    forget_handles(mover);
}
