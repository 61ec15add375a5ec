/* window.c - a ring of pieces in flight. */
#include "memory/swap/window.h"

#include "driver/driver.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

/* ---- streams and events ---- */

/* Those of the way in put the waiting thread to sleep: behind another job's turn the processor is not ours.
 */
static CUresult create_events(struct mover *mover) {
  CUresult result = driver.cuEventCreate(&mover->part_done, CU_EVENT_DISABLE_TIMING);
  for (int i = 0; i < WINDOW_COPIES && result == CUDA_SUCCESS; i++)
    result = driver.cuEventCreate(&mover->copies[i].done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  return result;
}

static void destroy_event(CUevent event) {
  if (event)
    driver.cuEventDestroy_v2(event);
}

static void destroy_handles(struct mover *mover) {
  destroy_event(mover->part_done);
  for (int i = 0; i < WINDOW_COPIES; i++)
    destroy_event(mover->copies[i].done);
  if (mover->in)
    driver.cuStreamDestroy_v2(mover->in);
  if (mover->out)
    driver.cuStreamDestroy_v2(mover->out);
}

void window_close(struct mover *mover, bool alive) {
  if (alive)
    destroy_handles(mover);
  mover->context = NULL;
  mover->out = mover->in = NULL;
  mover->part_done = NULL;
  for (int i = 0; i < WINDOW_COPIES; i++)
    mover->copies[i].done = NULL;
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
    window_close(mover, true);
  return result;
}

/* Streams of a context that may be stopped are of no use once there is one of our own. They are left to the
 * end of their context: to destroy them would wait for a thread that waits there for what is stopped. */
static void follow_current(struct mover *mover) {
  CUcontext current;
  if (mover->context && !mover->count && driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
      current != mover->context)
    window_close(mover, false);
}

CUresult window_enter(struct mover *mover) {
  follow_current(mover);
  CUresult result = mover->context ? CUDA_SUCCESS : create_handles(mover);
  return result == CUDA_SUCCESS ? driver.cuCtxPushCurrent_v2(mover->context) : result;
}

void window_leave(void) { driver.cuCtxPopCurrent_v2(&(CUcontext){NULL}); }

CUresult window_wait(const struct mover *mover) {
  CUresult out = driver.cuStreamSynchronize(mover->out), in = driver.cuStreamSynchronize(mover->in);
  return out == CUDA_SUCCESS ? in : out;
}

/* ---- the ring ---- */

struct copy *window_at(struct mover *mover, unsigned place) {
  return &mover->copies[(mover->first + place) % WINDOW_COPIES];
}

struct copy *window_newest(struct mover *mover) {
  return mover->count ? window_at(mover, mover->count - 1) : NULL;
}

uint64_t copy_bytes(const struct copy *copy) { return piece_bytes(copy->block, copy->piece); }

struct copy *window_add(struct space *space, struct block *block, size_t i) {
  struct mover *mover = &space->mover;
  struct copy *copy = window_at(mover, mover->count++);
  copy->block = block;
  copy->piece = i;
  copy->queued_bytes = 0;
  mover->flying_bytes += copy_bytes(copy);
  piece_become(space, block, i, mover->outward ? PIECE_LEAVING : PIECE_COMING);
  return copy;
}

/* Its piece is where it was copied to (arrived), or still where it came from. */
static void remove_oldest(struct space *space, bool arrived) {
  struct mover *mover = &space->mover;
  struct copy *copy = window_at(mover, 0);
  struct piece *piece = &copy->block->piece[copy->piece];
  bool away = mover->outward == arrived;
  mover->first = (mover->first + 1) % WINDOW_COPIES;
  mover->count--;
  mover->flying_bytes -= copy_bytes(copy);
  if (!away) {
    slabs_put(piece->slot, copy_bytes(copy));
    piece->slot = NULL;
  }
  piece_become(space, copy->block, copy->piece, away ? PIECE_AWAY : PIECE_RESIDENT);
}

void window_land(struct space *space) {
  struct mover *mover = &space->mover;
  *(mover->outward ? &mover->moved_out : &mover->moved_in) += copy_bytes(window_at(mover, 0));
  remove_oldest(space, true);
  condition_wake_all(&space->changed);
}

void window_undo(struct space *space) {
  struct mover *mover = &space->mover;
  while (mover->count) {
    struct copy *copy = window_at(mover, 0);
    if (!mover->outward)
      pieces_unmap(copy->block, copy->piece, 1);
    remove_oldest(space, false);
  }
}
