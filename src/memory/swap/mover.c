/* mover.c - which way to move, a step at a time, and what happens when the driver fails. */
#include "memory/swap/mover.h"

#include <stdatomic.h>

#include "common/log.h"
#include "memory/swap/blocks.h"
#include "memory/swap/inward.h"
#include "memory/swap/outward.h"
#include "memory/swap/passing.h"
#include "memory/swap/window.h"

static CUresult finish_some(struct space *space, uint64_t room_bytes) {
  return space->mover.outward ? outward_finish(space, room_bytes) : inward_finish(space);
}

/* Nothing new follows. */
static CUresult finish_all(struct space *space) {
  CUresult result = CUDA_SUCCESS;
  while (space->mover.count && result == CUDA_SUCCESS)
    result = finish_some(space, UINT64_MAX);
  return result;
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
  space->dead = is_final(mover->context ? window_wait(mover) : error);
  window_undo(space);
  window_close(mover, true);
  passing_end_in(space);
  return MEMORY_FAILED;
}

static enum memory_progress moved_or_failed(struct space *space, CUresult result) {
  return result == CUDA_SUCCESS ? MEMORY_MOVED : fail(space, result);
}

static enum memory_progress no_slots(struct space *space) {
  if (!space->mover.slots_missed)
    log_warn("GPU %d: no host memory for %llu bytes that should leave the card", space->device,
             (unsigned long long)atomic_load(&space->resident_bytes));
  space->mover.slots_missed = true;
  return MEMORY_SETTLED;
}

static enum memory_progress move_out(struct space *space, uint64_t room_bytes) {
  CUresult result = outward_start(space, room_bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return no_slots(space);
  if (result == CUDA_SUCCESS && space->mover.count)
    result = outward_finish(space, room_bytes);
  return moved_or_failed(space, result);
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

static enum memory_progress move_in(struct space *space, uint64_t room_bytes, uint64_t *short_bytes) {
  unsigned fresh = 0;
  CUresult result = inward_start(space, room_bytes, &fresh);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
    return fail(space, result);
  if (space->mover.count)
    return moved_or_failed(space, inward_finish(space));
  return fresh || result == CUDA_SUCCESS ? MEMORY_MOVED : no_card_memory(space, short_bytes);
}

static enum memory_progress move(struct space *space, uint64_t room_bytes, bool outward,
                                 uint64_t *short_bytes) {
  struct mover *mover = &space->mover;
  if (mover->count && mover->outward != outward)
    return moved_or_failed(space, finish_all(space));
  mover->outward = outward;
  return outward ? move_out(space, room_bytes) : move_in(space, room_bytes, short_bytes);
}

static bool has_work(struct space *space, uint64_t room_bytes, bool outward) {
  struct block *block;
  size_t i;
  if (space->mover.count)
    return true;
  return outward ? space_next_out(space, &block, &i) : inward_may(space, room_bytes);
}

/* What is passed goes one way at a time, as copies do. */
static void expect_passing(const struct space *space, bool outward) {
  if (!outward)
    passing_end_out(space);
  if (!outward && space->missing_bytes && passing_is_expected(space))
    passing_await(space);
  else
    passing_end_in(space);
}

enum memory_progress mover_step(struct space *space, uint64_t room_bytes, uint64_t *short_bytes) {
  bool outward = atomic_load(&space->resident_bytes) > room_bytes;
  space->dead = false;
  expect_passing(space, outward);
  if (outward && block_drop_spare(space))
    return MEMORY_MOVED;
  if (!has_work(space, room_bytes, outward))
    return MEMORY_SETTLED;
  CUresult result = window_enter(&space->mover);
  if (result != CUDA_SUCCESS)
    return fail(space, result);
  enum memory_progress progress = move(space, room_bytes, outward, short_bytes);
  window_leave();
  return progress;
}

static bool has_in_flight(struct mover *mover, const struct block *block) {
  for (unsigned i = 0; i < mover->count; i++)
    if (window_at(mover, i)->block == block)
      return true;
  return false;
}

void mover_finish_block(struct space *space, const struct block *block) {
  struct mover *mover = &space->mover;
  if (!has_in_flight(mover, block))
    return;
  CUresult result = window_enter(mover);
  if (result == CUDA_SUCCESS) {
    result = finish_all(space);
    window_leave();
  }
  if (result != CUDA_SUCCESS)
    fail(space, result);
}

void mover_context_destroyed(struct space *space, CUcontext context, bool alive) {
  struct mover *mover = &space->mover;
  if (mover->context != context)
    return;
  window_undo(space);
  window_close(mover, alive);
}
