/*
 * outward.c - pieces leave in parts, one at a time: a large piece in several, many small pieces in one.
 *
 * Setting access to memory, which the process does that comes in meanwhile, waits for a gap between the
 * copies out: behind copies without one it has to wait for a slice of time, 1 ms a piece, and a restore gets
 * no further than 31 GB/s. So the next part is queued once the last has arrived (H200, H100; bench/probe:
 * mapping). The gaps cost the way out 3 %.
 */
#include "memory/swap/outward.h"

#include <stdatomic.h>
#include <time.h>

#include "common/clock.h"
#include "driver/driver.h"
#include "memory/swap/passing.h"
#include "memory/swap/pieces.h"
#include "memory/swap/slabs.h"
#include "memory/swap/window.h"

#define PART_BYTES (UINT64_C(16) << 20)
#define NAP_BYTES_PER_NS 100 /* about half of what a copy takes at the speed of the bus */

static bool is_queued(const struct copy *copy) { return copy->queued_bytes == copy_bytes(copy); }

static bool next_to_leave(struct space *space, uint64_t room_bytes, struct block **block, size_t *i) {
  const struct mover *mover = &space->mover;
  uint64_t staying_bytes = atomic_load(&space->resident_bytes) - mover->flying_bytes;
  return mover->count < WINDOW_COPIES && staying_bytes > room_bytes && space_next_out(space, block, i);
}

/* The piece that is queued in part, else a new one, NULL if no more are to leave. */
static CUresult next_copy(struct space *space, uint64_t room_bytes, struct copy **copy) {
  struct copy *newest = window_newest(&space->mover);
  struct block *block;
  size_t i;
  *copy = newest && !is_queued(newest) ? newest : NULL;
  if (*copy || !next_to_leave(space, room_bytes, &block, &i))
    return CUDA_SUCCESS;
  block->piece[i].slot = slabs_get(piece_bytes(block, i));
  if (!block->piece[i].slot)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *copy = window_add(space, block, i);
  return CUDA_SUCCESS;
}

static CUresult queue(struct mover *mover, struct copy *copy) {
  char *slot = copy->block->piece[copy->piece].slot;
  CUdeviceptr from = piece_at(copy->block, copy->piece);
  uint64_t rest = copy_bytes(copy) - copy->queued_bytes, most = PART_BYTES - mover->part_bytes;
  uint64_t bytes = rest < most ? rest : most;
  CUresult result =
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
    if ((result = queue(mover, copy)) != CUDA_SUCCESS)
      return result;
  mover->awake_ns = clock_now_ns() + mover->part_bytes / NAP_BYTES_PER_NS;
  return mover->part_bytes ? driver.cuEventRecord(mover->part_done, mover->out) : result;
}

/* Asleep for some of it, then awake: the gap until the next part is queued must be short. */
static CUresult wait_for_part(const struct mover *mover) {
  struct timespec nap = {.tv_sec = (time_t)(mover->awake_ns / NS_PER_S),
                         .tv_nsec = (long)(mover->awake_ns % NS_PER_S)};
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

CUresult outward_start(struct space *space, uint64_t room_bytes) {
  return space->mover.count ? CUDA_SUCCESS : queue_part(space, room_bytes);
}

/* The next part follows at once, so that the bus is not idle while pieces are unmapped. */
CUresult outward_finish(struct space *space, uint64_t room_bytes) {
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
