/*
 * free.c - the end of swap memory. Like cuMemFree, a free waits for the work that may use the memory. Waiting
 * for a context would invalidate the captures in it, so while one is open in the process, the free is put
 * off: the address stays taken and the bytes stay booked.
 */
#include "memory/swap/free.h"

#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "memory/device.h"
#include "memory/swap/blocks.h"
#include "memory/swap/swap.h"

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

void free_reap(struct space *space) {
  struct extent *extent;
  while ((extent = take_doomed(space)) && free_or_doom(space, extent, false))
    ;
}

void free_doomed(struct space *space, CUcontext context) {
  for (struct extent **link = &space->doomed, *extent; (extent = *link);)
    if (!context || extent->context == context) {
      *link = extent->next;
      extent->next = NULL;
      block_release(space, extent);
    } else {
      link = &extent->next;
    }
}

void swap_free(const struct allocation *taken, bool finished) {
  struct extent *extent = taken->object;
  struct space *space = extent->block->space;
  extent->context = taken->context;
  CUstreamCaptureMode mode = capture_relax();
  if (free_or_doom(space, extent, finished) && !finished) /* else a context may be going right now */
    free_reap(space);
  capture_unrelax(mode);
}
