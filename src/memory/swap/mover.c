/*
 * mover.c - pieces on their way: the window of those in flight, all of them one way; which way to move, a
 * step at a time; and what happens when the driver fails.
 *
 * They come one after the other, several in flight: each gets physical memory, then its contents. They leave
 * in parts, one at a time: a large piece in several, many small pieces in one.
 *
 * Setting access to memory, which the process does that comes in meanwhile, waits for a gap between the
 * copies out: behind copies without one it has to wait for a slice of time, 1 ms a piece, and a restore gets
 * no further than 31 GB/s. So the next part is queued once the last has arrived (H200, H100). The gaps
 * cost the way out 3 %.
 */
#include "memory/swap/mover.h"

#include <stdatomic.h>
#include <time.h>

#include "common/clock.h"
#include "common/log.h"
#include "driver/driver.h"
#include "memory/swap/copies.h"
#include "memory/swap/passing.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"

#define PART_BYTES (UINT64_C(16) << 20)
#define NAP_BYTES_PER_NS 100 /* about half of what a copy takes at the speed of the bus */

/* ---- the window: its streams and events ---- */

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

/* The streams go; `alive`: their context does not go with them. */
static void window_close(struct mover *mover, bool alive) {
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

/* Make the context of the streams current, which are created in the current one when there are none yet. */
static CUresult window_enter(struct mover *mover) {
  follow_current(mover);
  CUresult result = mover->context ? CUDA_SUCCESS : create_handles(mover);
  return result == CUDA_SUCCESS ? driver.cuCtxPushCurrent_v2(mover->context) : result;
}

static void window_leave(void) { driver.cuCtxPopCurrent_v2(&(CUcontext){NULL}); }

/* Wait for all that the streams have been given. */
static CUresult window_wait(const struct mover *mover) {
  CUresult out = driver.cuStreamSynchronize(mover->out), in = driver.cuStreamSynchronize(mover->in);
  return out == CUDA_SUCCESS ? in : out;
}

/* ---- the window: a ring of pieces in flight ---- */

static struct copy *window_at(struct mover *mover, unsigned place) {
  return &mover->copies[(mover->first + place) % WINDOW_COPIES];
}

static struct copy *window_newest(struct mover *mover) {
  return mover->count ? window_at(mover, mover->count - 1) : NULL;
}

static uint64_t copy_bytes(const struct copy *copy) { return piece_bytes(copy->block, copy->piece); }

/* A piece takes off: it has its slot, unless it needs none, and is LEAVING or COMING from now on. */
static struct copy *window_add(struct space *space, struct block *block, size_t i) {
  struct mover *mover = &space->mover;
  struct copy *copy = window_at(mover, mover->count++);
  copy->block = block;
  copy->piece = i;
  copy->queued_bytes = 0;
  copy->spared = false;
  mover->flying_bytes += copy_bytes(copy);
  piece_become(space, block, i, mover->outward ? PIECE_LEAVING : PIECE_COMING);
  return copy;
}

/* Its piece is where it was copied to (arrived), or still where it came from. */
static void remove_oldest(struct space *space, bool arrived) {
  struct mover *mover = &space->mover;
  struct copy *copy = window_at(mover, 0);
  bool away = mover->outward == arrived;
  mover->first = (mover->first + 1) % WINDOW_COPIES;
  mover->count--;
  mover->flying_bytes -= copy_bytes(copy);
  if (!away && arrived)
    copies_arrived(space, copy->block, copy->piece);
  else if (!away)
    copies_drop(space, copy->block, copy->piece);
  piece_become(space, copy->block, copy->piece, away ? PIECE_AWAY : PIECE_RESIDENT);
}

/* The oldest has arrived: its bytes count as moved, or spared. */
static void window_land(struct space *space) {
  struct mover *mover = &space->mover;
  const struct copy *copy = window_at(mover, 0);
  *(copy->spared     ? &mover->spared
    : mover->outward ? &mover->moved_out
                     : &mover->moved_in) += copy_bytes(copy);
  mover->spared_out += copy->spared && mover->outward ? copy_bytes(copy) : 0;
  remove_oldest(space, true);
  condition_wake_all(&space->changed);
}

/* The copies have come to an end, nobody knows how. Where a piece was copied from, it still is. */
static void window_undo(struct space *space) {
  struct mover *mover = &space->mover;
  while (mover->count) {
    struct copy *copy = window_at(mover, 0);
    if (!mover->outward)
      pieces_unmap(copy->block, copy->piece, 1);
    remove_oldest(space, false);
  }
}

/* ---- out ---- */

static bool is_queued(const struct copy *copy) { return copy->queued_bytes == copy_bytes(copy); }

/* What is not in flight yet, and beyond the room. */
static uint64_t leaving_bytes(const struct space *space, uint64_t room_bytes) {
  uint64_t staying_bytes = atomic_load(&space->resident_bytes) - space->mover.flying_bytes;
  return staying_bytes > room_bytes ? staying_bytes - room_bytes : 0;
}

static bool next_to_leave(struct space *space, uint64_t room_bytes, struct block **block, size_t *i) {
  return space->mover.count < WINDOW_COPIES && leaving_bytes(space, room_bytes) &&
         space_next_out(space, block, i);
}

/* The piece that is queued in part, else a new one, NULL if no more are to leave. */
static CUresult next_copy(struct space *space, uint64_t room_bytes, struct copy **copy) {
  struct copy *newest = window_newest(&space->mover);
  struct block *block;
  size_t i;
  *copy = newest && !is_queued(newest) ? newest : NULL;
  if (*copy || !next_to_leave(space, room_bytes, &block, &i))
    return CUDA_SUCCESS;
  copies_look(space, block, i, leaving_bytes(space, room_bytes));
  struct piece *piece = &block->piece[i];
  bool spared = copies_spare(space, block, i);
  if (!spared && !piece->slot && !(piece->slot = copies_get_slot(space, piece_bytes(block, i))))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *copy = window_add(space, block, i);
  (*copy)->spared = spared;
  (*copy)->queued_bytes = spared ? copy_bytes(*copy) : 0;
  return CUDA_SUCCESS;
}

static CUresult queue_out(struct space *space, struct copy *copy) {
  struct mover *mover = &space->mover;
  char *slot = copy->block->piece[copy->piece].slot;
  CUdeviceptr from;
  CUresult result = pieces_reach(space, copy->block, copy->piece, &from);
  uint64_t rest = copy_bytes(copy) - copy->queued_bytes, most = PART_BYTES - mover->part_bytes;
  uint64_t bytes = rest < most ? rest : most;
  if (result == CUDA_SUCCESS)
    result =
        driver.cuMemcpyDtoHAsync_v2(slot + copy->queued_bytes, from + copy->queued_bytes, bytes, mover->out);
  copy->queued_bytes += bytes;
  mover->part_bytes += bytes;
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_UNKNOWN : result;
}

/* CUDA_ERROR_OUT_OF_MEMORY: nothing is queued, because the host has no more slots. */
static CUresult queue_part(struct space *space, uint64_t room_bytes) {
  struct mover *mover = &space->mover;
  struct copy *copy;
  CUresult result = CUDA_SUCCESS;
  mover->part_bytes = 0;
  while (mover->part_bytes < PART_BYTES && (result = next_copy(space, room_bytes, &copy)) == CUDA_SUCCESS &&
         copy)
    if (!copy->spared && (result = queue_out(space, copy)) != CUDA_SUCCESS)
      return result;
  mover->awake_ns = clock_now_ns() + mover->part_bytes / NAP_BYTES_PER_NS;
  return mover->part_bytes ? driver.cuEventRecord(mover->part_done, mover->out) : result;
}

/* Asleep for some of it, then awake: the gap until the next part is queued must be short. */
static CUresult wait_for_part(const struct mover *mover) {
  struct timespec nap = clock_timespec(mover->awake_ns);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &nap, NULL);
  return driver.cuEventSynchronize(mover->part_done);
}

static unsigned count_queued(struct mover *mover) {
  unsigned count = 0;
  while (count < mover->count && is_queued(window_at(mover, count)))
    count++;
  return count;
}

static CUresult unmap_oldest(struct space *space) {
  struct copy *copy = window_at(&space->mover, 0);
  int packed = passing_pack(space, copy->block, copy->piece);
  CUresult result = pieces_unmap(copy->block, copy->piece, 1);
  passing_send(space, packed, result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS)
    window_land(space);
  return result;
}

/* Start to copy, unless copies are in flight. CUDA_ERROR_OUT_OF_MEMORY: the host has no more slots. */
static CUresult outward_start(struct space *space, uint64_t room_bytes) {
  return space->mover.count ? CUDA_SUCCESS : queue_part(space, room_bytes);
}

/* Wait until at least one piece in flight is in its slot; more may follow it, down to the room. The next part
 * follows at once, so that the bus is not idle while pieces are unmapped. */
static CUresult outward_finish(struct space *space, uint64_t room_bytes) {
  struct mover *mover = &space->mover;
  unsigned arrived = 0;
  while (!arrived) {
    CUresult result = wait_for_part(mover);
    arrived = count_queued(mover);
    if (result == CUDA_SUCCESS)
      result = queue_part(space, room_bytes);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
      return result;
  }
  CUresult result = CUDA_SUCCESS;
  while (arrived-- && result == CUDA_SUCCESS)
    result = unmap_oldest(space);
  return result;
}

/* ---- in ---- */

static bool next_to_come(struct space *space, uint64_t room_bytes, struct block **block, size_t *i) {
  const struct mover *mover = &space->mover;
  if (mover->count == WINDOW_COPIES || !space_next_in(space, block, i))
    return false;
  uint64_t bytes = piece_bytes(*block, *i);
  return atomic_load(&space->resident_bytes) + bytes <= room_bytes &&
         mover->flying_bytes + bytes <= WINDOW_BYTES;
}

/* Whether a piece is to come, and may. */
static bool inward_may(struct space *space, uint64_t room_bytes) {
  struct block *block;
  size_t i;
  return next_to_come(space, room_bytes, &block, &i);
}

/* The piece is mapped, and has its slot, unless its contents are all zero. */
static CUresult queue_in(struct space *space, struct block *block, size_t i) {
  struct mover *mover = &space->mover;
  struct copy *copy = window_add(space, block, i);
  CUdeviceptr to;
  CUresult result = pieces_reach(space, block, i, &to);
  copy->spared = block->piece[i].zero;
  if (result == CUDA_SUCCESS)
    result = copy->spared
                 ? driver.cuMemsetD32Async(to, 0, piece_bytes(block, i) / 4, mover->in)
                 : driver.cuMemcpyHtoDAsync_v2(to, block->piece[i].slot, piece_bytes(block, i), mover->in);
  if (result == CUDA_SUCCESS)
    result = driver.cuEventRecord(copy->done, mover->in);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_UNKNOWN : result;
}

static CUresult bring(struct space *space, struct block *block, size_t i, unsigned *fresh) {
  size_t mapped;
  CUresult result = pieces_map(space, block, i, 1, &mapped);
  if (result != CUDA_SUCCESS)
    return result;
  if (block->piece[i].state == PIECE_AWAY)
    return queue_in(space, block, i);
  piece_become(space, block, i, PIECE_RESIDENT);
  ++*fresh;
  return CUDA_SUCCESS;
}

/* Fill the window. CUDA_ERROR_OUT_OF_MEMORY: the card has no more. `fresh` counts pieces that needed no copy.
 */
static CUresult inward_start(struct space *space, uint64_t room_bytes, unsigned *fresh) {
  struct block *block;
  size_t i;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && *fresh < WINDOW_COPIES && next_to_come(space, room_bytes, &block, &i))
    result = bring(space, block, i, fresh);
  return result;
}

/* Wait until the oldest piece in flight has its contents. */
static CUresult inward_finish(struct space *space) {
  CUresult result = driver.cuEventSynchronize(window_at(&space->mover, 0)->done);
  if (result == CUDA_SUCCESS)
    window_land(space);
  return result;
}

/* ---- a step ---- */

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
 * memory_open lets the program go on without its memory, so that it meets the same error itself. */
static enum memory_progress fail(struct space *space, CUresult error) {
  struct mover *mover = &space->mover;
  if (!mover->failure_logged && error != CUDA_ERROR_DEINITIALIZED) /* the process ends */
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
  if (!has_work(space, room_bytes, outward))
    return MEMORY_SETTLED;
  CUresult result = window_enter(&space->mover);
  if (result != CUDA_SUCCESS)
    return fail(space, result);
  enum memory_progress progress = move(space, room_bytes, outward, short_bytes);
  window_leave();
  return progress;
}

static bool next_absent(const struct block *block, size_t *i) {
  while (*i < block->pieces && !piece_is_absent(block, *i))
    ++*i;
  return *i < block->pieces;
}

static enum memory_progress fetch(struct space *space, struct block *block, uint64_t *short_bytes) {
  struct mover *mover = &space->mover;
  CUresult result = CUDA_SUCCESS;
  unsigned fresh = 0;
  size_t i = 0;
  if (mover->count && mover->outward)
    return moved_or_failed(space, finish_all(space));
  mover->outward = false;
  while (result == CUDA_SUCCESS && next_absent(block, &i) && mover->count < WINDOW_COPIES &&
         fresh < WINDOW_COPIES && mover->flying_bytes + piece_bytes(block, i) <= WINDOW_BYTES)
    result = bring(space, block, i, &fresh);
  if (fresh)
    condition_wake_all(&space->changed);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
    return fail(space, result);
  if (mover->count)
    return moved_or_failed(space, inward_finish(space));
  if (!fresh && result != CUDA_SUCCESS)
    *short_bytes = piece_bytes(block, i);
  return fresh || result == CUDA_SUCCESS ? MEMORY_MOVED : MEMORY_SHORT;
}

enum memory_progress mover_fetch(struct space *space, struct block *block, uint64_t *short_bytes) {
  space->dead = false;
  CUresult result = window_enter(&space->mover);
  if (result != CUDA_SUCCESS)
    return fail(space, result);
  enum memory_progress progress = fetch(space, block, short_bytes);
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
  copies_finish_looks(space, block);
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
