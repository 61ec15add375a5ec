/* mover.c - keeps copies in flight, and turns their ends into states. */
#include "memory/swap/mover.h"

#include <stdatomic.h>

#include "common/log.h"
#include "interpose/driver.h"
#include "memory/swap/blocks.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

/* ---- streams and events ---- */

/* Events put the waiting thread to sleep: behind another job's turn the processor is not ours. */
static CUresult create_events(struct mover *mover) {
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < WINDOW_COPIES && result == CUDA_SUCCESS; i++)
    result = driver.cuEventCreate(&mover->done[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  return result;
}

static void forget_handles(struct mover *mover) {
  mover->context = NULL;
  mover->out = mover->in = NULL;
  for (int i = 0; i < WINDOW_COPIES; i++)
    mover->done[i] = NULL;
}

static void destroy_handles(struct mover *mover) {
  for (int i = 0; i < WINDOW_COPIES && mover->done[i]; i++)
    driver.cuEventDestroy_v2(mover->done[i]);
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

static bool window_takes(const struct mover *mover, uint64_t bytes) {
  return mover->count < WINDOW_COPIES && mover->flying_bytes + bytes <= WINDOW_BYTES;
}

/* The piece has its slot. Whatever the result: it is in flight from now on. */
static CUresult launch(struct space *space, struct block *block, size_t i) {
  struct mover *mover = &space->mover;
  unsigned at = (mover->first + mover->count++) % WINDOW_COPIES;
  uint64_t bytes = piece_bytes(block, i);
  void *slot = block->piece[i].slot;
  mover->copies[at] = (struct copy){.block = block, .piece = i};
  mover->flying_bytes += bytes;
  piece_become(space, block, i, mover->outward ? PIECE_LEAVING : PIECE_COMING);
  CUresult result = mover->outward ? driver.cuMemcpyDtoHAsync_v2(slot, piece_at(block, i), bytes, mover->out)
                                   : driver.cuMemcpyHtoDAsync_v2(piece_at(block, i), slot, bytes, mover->in);
  if (result != CUDA_SUCCESS)
    return result;
  return driver.cuEventRecord(mover->done[at], mover->outward ? mover->out : mover->in);
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

/* Wait for the oldest copy and do what comes after it. On failure it stays in flight. */
static CUresult finish_oldest(struct space *space) {
  struct mover *mover = &space->mover;
  struct copy copy = mover->copies[mover->first];
  CUresult result = driver.cuEventSynchronize(mover->done[mover->first]);
  if (result == CUDA_SUCCESS && mover->outward)
    result = pieces_unmap(copy.block, copy.piece, 1);
  if (result != CUDA_SUCCESS)
    return result;
  land(mover);
  *(mover->outward ? &mover->moved_out : &mover->moved_in) += piece_bytes(copy.block, copy.piece);
  if (!mover->outward)
    put_slot(&copy);
  piece_become(space, copy.block, copy.piece, mover->outward ? PIECE_AWAY : PIECE_RESIDENT);
  condition_wake_all(&space->changed);
  return CUDA_SUCCESS;
}

static CUresult finish_all(struct space *space) {
  CUresult result = CUDA_SUCCESS;
  while (space->mover.count && result == CUDA_SUCCESS)
    result = finish_oldest(space);
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

/* After an error: the next step starts anew, maybe in another context. Where not even waiting works any more,
 * the context is broken by the program, or the driver has shut down because the process ends: no step will
 * ever succeed, and swap_open lets the program go on, so that it meets the same error itself. */
static enum memory_progress fail(struct space *space, CUresult error) {
  struct mover *mover = &space->mover;
  if (!mover->failure_logged)
    log_warn("GPU %d: moving memory failed with CUDA error %d", space->device, error);
  mover->failure_logged = true;
  if (mover->context) {
    error = driver.cuStreamSynchronize(mover->out);
    CUresult other = driver.cuStreamSynchronize(mover->in);
    error = error == CUDA_SUCCESS ? other : error;
  }
  space->dead = error != CUDA_SUCCESS && error != CUDA_ERROR_OUT_OF_MEMORY;
  undo_all(space);
  destroy_handles(mover);
  return MEMORY_FAILED;
}

/* ---- filling the window ---- */

/* All that is in flight leaves. CUDA_ERROR_OUT_OF_MEMORY: the host has no more slots. */
static CUresult fill_out(struct space *space, uint64_t room_bytes) {
  struct mover *mover = &space->mover;
  struct block *block;
  size_t i;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && atomic_load(&space->resident_bytes) - mover->flying_bytes > room_bytes &&
         space_next_out(space, &block, &i) && window_takes(mover, piece_bytes(block, i))) {
    block->piece[i].slot = slabs_get(piece_bytes(block, i));
    if (!block->piece[i].slot)
      return CUDA_ERROR_OUT_OF_MEMORY;
    result = launch(space, block, i);
  }
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_UNKNOWN : result;
}

/* How many pieces from `i` on may be mapped by one step now. */
static size_t run_in(const struct space *space, uint64_t room_bytes, const struct block *block, size_t i,
                     unsigned fresh) {
  const struct mover *mover = &space->mover;
  uint64_t resident_bytes = atomic_load(&space->resident_bytes), run_bytes = 0;
  size_t run = 0;
  while (i + run < block->pieces && piece_is_absent(block, i + run) &&
         mover->count + fresh + run < WINDOW_COPIES) {
    run_bytes += piece_bytes(block, i + run);
    if (resident_bytes + run_bytes > room_bytes || mover->flying_bytes + run_bytes > WINDOW_BYTES)
      break;
    run++;
  }
  return run;
}

/* Pieces [i, i + count) have just been mapped. Those behind a copy that fails are unmapped again. */
static CUresult start_in(struct space *space, struct block *block, size_t i, size_t count, unsigned *fresh) {
  CUresult result = CUDA_SUCCESS;
  size_t end = i + count;
  for (; i < end && result == CUDA_SUCCESS; i++)
    if (block->piece[i].state == PIECE_FRESH) {
      piece_become(space, block, i, PIECE_RESIDENT);
      ++*fresh;
    } else {
      result = launch(space, block, i);
    }
  if (i < end)
    pieces_unmap(block, i, end - i);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_UNKNOWN : result;
}

/* CUDA_ERROR_OUT_OF_MEMORY: the card has no more. `fresh`: pieces that needed no copy. Setting access can
 * take longer than a copy when the card is busy, whatever the number of pieces: so several are mapped at a
 * time, once half of the window is free. */
static CUresult fill_in(struct space *space, uint64_t room_bytes, unsigned *fresh) {
  struct block *block;
  size_t i, run, mapped;
  CUresult result = CUDA_SUCCESS;
  if (space->mover.flying_bytes > WINDOW_BYTES / 2)
    return CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && space_next_in(space, &block, &i) &&
         (run = run_in(space, room_bytes, block, i, *fresh))) {
    result = pieces_map(space, block, i, run, &mapped);
    CUresult started = start_in(space, block, i, mapped, fresh);
    result = started == CUDA_SUCCESS ? result : started;
  }
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
  CUresult result = outward ? fill_out(space, room_bytes) : fill_in(space, room_bytes, &fresh);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
    return fail(space, result);
  if (mover->count)
    return moved_or_failed(space, finish_oldest(space));
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
  return space_next_in(space, &block, &i) && run_in(space, room_bytes, block, i, 0);
}

enum memory_progress mover_step(struct space *space, uint64_t room_bytes, uint64_t *short_bytes) {
  bool outward = atomic_load(&space->resident_bytes) > room_bytes;
  if (outward && block_drop_spare(space))
    return MEMORY_MOVED;
  if (!has_work(space, room_bytes, outward))
    return MEMORY_SETTLED;
  CUresult result = enter(&space->mover);
  if (result != CUDA_SUCCESS)
    return fail(space, result);
  enum memory_progress progress = work(space, room_bytes, outward, short_bytes);
  leave();
  if (progress == MEMORY_MOVED)
    space->dead = false;
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

void mover_context_destroyed(struct space *space, CUcontext context) {
  if (space->mover.context != context)
    return;
  undo_all(space);
  forget_handles(&space->mover);
  space->dead = false;
}
