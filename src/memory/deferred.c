/* deferred.c - a list of allocations to be freed, each with the event that says when. */
#include "memory/deferred.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "interpose/driver.h"
#include "memory/account.h"
#include "memory/device.h"

struct deferred {
  struct deferred *next;
  struct allocation allocation;
  CUcontext event_context;
  CUevent event;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* never held while the driver is called */
static struct deferred *list;                            /* oldest first */
static struct deferred **tail = &list;
static _Atomic size_t waiting; /* length of the list */

static void append(struct deferred *item) {
  pthread_mutex_lock(&lock);
  item->next = NULL;
  *tail = item;
  tail = &item->next;
  atomic_fetch_add(&waiting, 1);
  pthread_mutex_unlock(&lock);
}

static struct deferred *take_first(void) {
  pthread_mutex_lock(&lock);
  struct deferred *item = list;
  if (item) {
    list = item->next;
    if (!list)
      tail = &list;
    atomic_fetch_sub(&waiting, 1);
  }
  pthread_mutex_unlock(&lock);
  return item;
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
  item->allocation = *allocation;
  CUstreamCaptureMode mode = capture_relax();
  driver.cuCtxGetCurrent(&item->event_context);
  CUresult result = record(&item->event, stream);
  capture_unrelax(mode);
  if (result == CUDA_SUCCESS)
    append(item);
  else
    free(item);
  return result;
}

/* The driver may refuse only if the memory went with its context: then it is gone just the same. */
static void free_now(struct deferred *item) {
  driver.cuEventDestroy_v2(item->event);
  driver.cuMemFree_v2(item->allocation.base);
  account_gone(&item->allocation);
  free(item);
}

/* Look at each item that waits now once; what is not due goes to the end of the list again. */
static void reap(bool wait) {
  CUstreamCaptureMode mode = capture_relax();
  for (size_t left = atomic_load(&waiting); left; left--) {
    struct deferred *item = take_first();
    if (!item)
      break;
    CUresult result = wait ? driver.cuEventSynchronize(item->event) : driver.cuEventQuery(item->event);
    if (result == CUDA_ERROR_NOT_READY)
      append(item);
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

void deferred_context_destroyed(CUcontext context) {
  for (size_t left = atomic_load(&waiting); left; left--) {
    struct deferred *item = take_first();
    if (!item)
      break;
    if (item->event_context != context && item->allocation.context != context) {
      append(item);
      continue;
    }
    if (item->allocation.context != context) /* the event dies, the memory does not */
      driver.cuMemFree_v2(item->allocation.base);
    account_gone(&item->allocation);
    free(item);
  }
}

void deferred_fork_child(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  list = NULL;
  tail = &list;
  atomic_store(&waiting, 0);
}
