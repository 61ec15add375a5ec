/* deferred.c - a list of allocations to be freed, each with the event that says when. */
#include "memory/deferred.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/condition.h"
#include "common/lock.h"
#include "interpose/driver.h"
#include "memory/account.h"
#include "memory/device.h"
#include "memory/swap/swap.h"

struct deferred {
  struct deferred *next;
  struct allocation allocation;
  CUcontext event_context;
  CUevent event;
  bool held; /* its holder looks at it outside the lock: it stays in the list, and the context alive */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* never held while the driver is called */
static struct condition released;
static struct deferred *list; /* oldest first */
static struct deferred **tail = &list;
static _Atomic size_t waiting; /* length of the list */

/* With the lock held. */

static void link_last(struct deferred *item) {
  item->next = NULL;
  *tail = item;
  tail = &item->next;
  atomic_fetch_add(&waiting, 1);
}

static void unlink_at(struct deferred **link) {
  *link = (*link)->next;
  if (!*link)
    tail = link;
  atomic_fetch_sub(&waiting, 1);
}

static struct deferred **find_of(CUcontext context) {
  struct deferred **link = &list;
  while (*link && (*link)->event_context != context && (*link)->allocation.context != context)
    link = &(*link)->next;
  return link;
}

/* Taking the lock. */

static void append(struct deferred *item) {
  lock_take(&lock);
  link_last(item);
  lock_release(&lock);
}

static struct deferred *hold_first(void) {
  lock_take(&lock);
  struct deferred *item = list;
  while (item && item->held)
    item = item->next;
  if (item)
    item->held = true;
  lock_release(&lock);
  return item;
}

/* A held item goes to the end of the list if it is to be looked at again, else out of it. */
static void release(struct deferred *item, bool again) {
  struct deferred **link = &list;
  lock_take(&lock);
  while (*link != item)
    link = &(*link)->next;
  unlink_at(link);
  item->held = false;
  if (again)
    link_last(item);
  condition_wake_all(&released);
  lock_release(&lock);
}

/* Out of the list, and held by nobody; NULL: the context has none. */
static struct deferred *take_of(CUcontext context) {
  struct deferred **link;
  lock_take(&lock);
  while (*(link = find_of(context)) && (*link)->held)
    condition_wait(&released, &lock, UINT64_MAX);
  struct deferred *item = *link;
  if (item)
    unlink_at(link);
  lock_release(&lock);
  return item;
}

/* An event belongs to the context it is made in, which must be its stream's. */
static bool enter_context_of(CUstream stream) {
  CUcontext context;
  bool is_handle = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  return is_handle && driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS &&
         driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
}

static CUresult record(CUevent *event, CUstream stream) {
  CUresult result = driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS)
    return result;
  result = driver.cuEventRecord(*event, stream);
  if (result != CUDA_SUCCESS)
    driver.cuEventDestroy_v2(*event);
  return result;
}

CUresult deferred_free(const struct allocation *allocation, CUstream stream) {
  struct deferred *item = malloc(sizeof *item);
  if (!item)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *item = (struct deferred){.allocation = *allocation};
  CUstreamCaptureMode mode = capture_relax();
  bool entered = enter_context_of(stream);
  driver.cuCtxGetCurrent(&item->event_context);
  CUresult result = record(&item->event, stream);
  if (entered)
    driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  capture_unrelax(mode);
  if (result == CUDA_SUCCESS)
    append(item);
  else
    free(item);
  return result;
}

/* The driver may refuse only if the memory went with its context: then it is gone just the same. */
static void free_memory(const struct allocation *allocation) {
  if (allocation->backing == BACKING_SWAP)
    swap_free(allocation, true);
  else
    driver.cuMemFree_v2(allocation->base);
}

static void free_now(struct deferred *item) {
  driver.cuEventDestroy_v2(item->event);
  free_memory(&item->allocation);
  account_gone(&item->allocation);
  release(item, false);
  free(item);
}

/* Look at each item that waits now once, but for those that others look at. */
static void reap(bool wait) {
  CUstreamCaptureMode mode = capture_relax();
  for (size_t left = atomic_load(&waiting); left; left--) {
    struct deferred *item = hold_first();
    if (!item)
      break;
    CUresult result = wait ? driver.cuEventSynchronize(item->event) : driver.cuEventQuery(item->event);
    if (result == CUDA_ERROR_NOT_READY)
      release(item, true);
    else
      free_now(item);
  }
  capture_unrelax(mode);
}

void deferred_reap(void) {
  if (atomic_load_explicit(&waiting, memory_order_relaxed))
    reap(false);
}

bool deferred_reap_all(void) {
  if (!atomic_load(&waiting))
    return false;
  reap(true);
  return true;
}

/* The driver waits by itself before it frees; swap memory goes at once. An event of the dying context is not
 * asked: that may be dead already. */
static void wait_for_work(const struct deferred *item, CUcontext dying) {
  if (item->event_context != dying) {
    driver.cuEventSynchronize(item->event);
  } else if (driver.cuCtxPushCurrent_v2(dying) == CUDA_SUCCESS) {
    driver.cuCtxSynchronize();
    driver.cuEventDestroy_v2(item->event); /* the context is alive */
    driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  }
}

static void free_at_end(const struct deferred *item, CUcontext dying, bool memory_goes) {
  bool swap = item->allocation.backing == BACKING_SWAP;
  if (swap)
    wait_for_work(item, dying);
  if (swap || !memory_goes || item->allocation.context != dying)
    free_memory(&item->allocation);
}

void deferred_context_destroyed(CUcontext context, bool memory_goes) {
  CUstreamCaptureMode mode = capture_relax();
  for (struct deferred *item; (item = take_of(context));) {
    free_at_end(item, context, memory_goes);
    if (item->event_context != context)
      driver.cuEventDestroy_v2(item->event);
    account_gone(&item->allocation);
    free(item);
  }
  capture_unrelax(mode);
}

void deferred_fork_child(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  list = NULL;
  tail = &list;
  atomic_store(&waiting, 0);
}
