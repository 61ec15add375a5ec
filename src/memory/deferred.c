/*
 * deferred.c - a queue of allocations for each stream that they have been freed on, each with the event that
 * says when; and one for each GPU, of those whose event has come.
 *
 * Invariant: events of one stream come in the order of its queue, so only the oldest is asked about.
 */
#include "memory/deferred.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/condition.h"
#include "common/lock.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/streams.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/memory_port.h"
#include "memory/pinned.h"

#define REUSE_DEPTH 16 /* so many of a stream are looked at for one to use again */

/* More than that is not left to a GPU that is never idle. */
#define DUE_MAX_BYTES (UINT64_C(256) << 20)

struct deferred {
  struct deferred *next;
  struct allocation allocation;
  CUcontext event_context;
  CUevent event;       /* NULL: it has come */
  uint64_t generation; /* of the streams, when it was recorded */
};

struct queue {
  struct queue *next;
  CUstream stream;
  CUcontext context; /* of the stream, and so of the events */
  pthread_t thread;  /* whose default stream it is, if it is a thread's */
  struct deferred *first, **end;
  bool held; /* its holder works on the first item outside the lock: that stays, and its context alive */
};

static struct lock lock = LOCK(LOCK_DEFERRED); /* never held while the driver is called */
static struct condition released;
static struct queue *queues; /* the one that was looked at last is the last one */
static size_t queue_count;
static struct queue due[DEVICES];
static uint64_t due_bytes[DEVICES];
static _Atomic size_t waiting; /* items in all queues */
static struct ledger addresses = LEDGER(LOCK_DEFERRED_ADDRESSES);

/* With the lock held. */

static void push(struct queue *queue, struct deferred *item) {
  if (!queue->first)
    queue->end = &queue->first;
  item->next = NULL;
  *queue->end = item;
  queue->end = &item->next;
}

static struct deferred *unlink_at(struct queue *queue, struct deferred **link) {
  struct deferred *item = *link;
  *link = item->next;
  if (!*link)
    queue->end = link;
  return item;
}

static void queue_link_last(struct queue *queue) {
  struct queue **link = &queues;
  while (*link)
    link = &(*link)->next;
  queue->next = NULL;
  *link = queue;
  queue_count++;
}

static void queue_unlink(struct queue *queue) {
  struct queue **link = &queues;
  while (*link != queue)
    link = &(*link)->next;
  *link = queue->next;
  queue_count--;
}

static void queue_drop_if_empty(struct queue *queue) {
  if (queue->first || queue->held)
    return;
  queue_unlink(queue);
  free(queue);
}

static struct queue *queue_find(CUstream stream, CUcontext context) {
  struct queue *queue = queues;
  while (queue && (queue->stream != stream || queue->context != context ||
                   (stream == CU_STREAM_PER_THREAD && !pthread_equal(queue->thread, pthread_self()))))
    queue = queue->next;
  return queue;
}

/* Of a queue that is not held, so that it may be unlinked. Waits for one that is. */
static struct deferred *take_of_queue(struct queue *queue, CUcontext context, bool *again) {
  struct deferred **link = queue->first ? &queue->first : NULL;
  while (link && *link && queue->context != context && (*link)->allocation.context != context)
    link = &(*link)->next;
  if (!link || !*link)
    return NULL;
  *again = queue->held;
  if (queue->held)
    condition_wait(&released, &lock, UINT64_MAX);
  return *again ? NULL : unlink_at(queue, link);
}

static struct deferred *find_and_take(CUcontext context, bool *again) {
  struct deferred *item = NULL;
  *again = false;
  for (CUdevice device = 0; device < DEVICES && !item && !*again; device++)
    if ((item = take_of_queue(&due[device], context, again)))
      due_bytes[device] -= item->allocation.bytes;
  for (struct queue *queue = queues; queue && !item && !*again;) {
    struct queue *next = queue->next;
    item = take_of_queue(queue, context, again);
    if (item)
      queue_drop_if_empty(queue);
    queue = next;
  }
  return item;
}

/* Taking the lock. */

/* 0 or -ENOMEM. */
static int append(struct deferred *item, CUstream stream) {
  lock_take(&lock);
  struct queue *queue = queue_find(stream, item->event_context);
  if (!queue && (queue = malloc(sizeof *queue))) {
    *queue = (struct queue){.stream = stream, .context = item->event_context, .thread = pthread_self()};
    queue_link_last(queue);
  }
  if (queue) {
    push(queue, item);
    atomic_fetch_add(&waiting, 1);
  }
  lock_release(&lock);
  return queue ? 0 : -ENOMEM;
}

/* The queue that was looked at longest ago, of those that nobody looks at. */
static struct queue *hold_next(void) {
  lock_take(&lock);
  struct queue *queue = queues;
  while (queue && queue->held)
    queue = queue->next;
  if (queue) {
    queue->held = true;
    queue_unlink(queue);
    queue_link_last(queue);
  }
  lock_release(&lock);
  return queue;
}

static void release(struct queue *queue) {
  lock_take(&lock);
  queue->held = false;
  queue_drop_if_empty(queue);
  condition_wake_all(&released);
  lock_release(&lock);
}

/* Done with the first item of a held queue, whose event has come: unified memory is due. The next one. */
static struct deferred *pop(struct queue *queue, bool is_due) {
  lock_take(&lock);
  struct deferred *item = unlink_at(queue, &queue->first), *next = queue->first;
  CUdevice device = item->allocation.device;
  item->event = NULL;
  if (is_due) {
    push(&due[device], item);
    due_bytes[device] += item->allocation.bytes;
  }
  lock_release(&lock);
  if (!is_due) {
    atomic_fetch_sub(&waiting, 1);
    free(item);
  }
  return next;
}

/* Out of its queue, which nobody holds; NULL: the context has none. */
static struct deferred *take_of(CUcontext context) {
  bool again;
  struct deferred *item;
  lock_take(&lock);
  do
    item = find_and_take(context, &again);
  while (again);
  lock_release(&lock);
  return item;
}

/* What is due on the device, if anything and if nobody frees it already. */
static struct queue *hold_due(CUdevice device) {
  struct queue *queue = &due[device];
  lock_take(&lock);
  bool held = queue->first && !queue->held;
  queue->held |= held;
  lock_release(&lock);
  return held ? queue : NULL;
}

static uint64_t due_on(CUdevice device) {
  lock_take(&lock);
  uint64_t bytes = due[device].first && !due[device].held ? due_bytes[device] : 0;
  lock_release(&lock);
  return bytes;
}

bool deferred_unified(CUdevice device) {
  if (!atomic_load(&waiting))
    return false;
  lock_take(&lock);
  bool found = due[device].first;
  for (const struct queue *queue = queues; queue && !found; queue = queue->next)
    for (const struct deferred *item = queue->first; item && !found; item = item->next)
      found = item->allocation.device == device && !item->allocation.backend->hidden;
  lock_release(&lock);
  return found;
}

/* Its address may be given out again from now on. */
static void forget(const struct allocation *allocation) {
  ledger_take(&addresses, allocation->base, &(struct allocation){0});
}

/* The driver. */

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

/* The driver may refuse only if the memory went with its context: then it is gone just the same. */
static void free_memory(const struct allocation *allocation) {
  forget(allocation);
  allocation->backend->free(allocation, true);
}

/* Without memory for an entry of the list, this thread waits for the stream: a free does not fail. */
static CUresult free_after_waiting(struct allocation *allocation, CUstream stream) {
  CUstreamCaptureMode mode = capture_relax();
  allocation_drop_contents(allocation); /* else the gate would wait for it, and the stream for the gate */
  CUresult result = driver.cuStreamSynchronize(stream);
  if (result == CUDA_SUCCESS) {
    free_memory(allocation);
    account_gone(allocation);
  }
  capture_unrelax(mode);
  return result;
}

CUresult deferred_free(struct allocation *allocation, CUstream stream) {
  struct deferred *item = malloc(sizeof *item);
  if (!item)
    return free_after_waiting(allocation, stream);
  *item = (struct deferred){.generation = streams_generation()};
  CUstreamCaptureMode mode = capture_relax();
  bool entered = enter_context_of(stream);
  driver.cuCtxGetCurrent(&item->event_context);
  CUresult result = record(&item->event, stream);
  if (entered)
    driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  if (result == CUDA_SUCCESS) {
    allocation_drop_contents(allocation);
    item->allocation = *allocation;
    ledger_insert(&addresses, allocation, NULL, NULL); /* without its entry, a second free passes: no more */
    if (append(item, stream) == 0)
      item = NULL;
    else
      driver.cuEventDestroy_v2(item->event);
  }
  capture_unrelax(mode);
  bool kept = result == CUDA_SUCCESS && item;
  free(item);
  return kept ? free_after_waiting(allocation, stream) : result;
}

bool deferred_holds(CUdeviceptr address) {
  struct allocation found;
  return atomic_load(&waiting) && ledger_find(&addresses, address, &found) && found.base == address;
}

static bool suits(const struct deferred *item, uint64_t span, const struct allocation *like) {
  const struct allocation *allocation = &item->allocation;
  return allocation->origin == ORIGIN_STREAM && allocation->span == span &&
         allocation->device == like->device && allocation->context == like->context &&
         allocation->pool == like->pool && item->generation == streams_generation();
}

/* A thread's default stream has no name by which it could be told from that of a later thread. */
bool deferred_reuse(CUstream stream, uint64_t span, const struct allocation *like,
                    struct allocation *reused) {
  struct deferred *item = NULL;
  if (!atomic_load_explicit(&waiting, memory_order_relaxed) || stream == CU_STREAM_PER_THREAD)
    return false;
  CUcontext context = streams_context(stream);
  lock_take(&lock);
  struct queue *queue = queue_find(stream, context);
  struct deferred **link = queue && !queue->held ? &queue->first : NULL;
  for (int i = 0; link && *link && !suits(*link, span, like); i++)
    link = i < REUSE_DEPTH ? &(*link)->next : NULL;
  if (link && *link) {
    item = unlink_at(queue, link);
    queue_drop_if_empty(queue);
  }
  lock_release(&lock);
  if (!item)
    return false;
  CUstreamCaptureMode mode = capture_relax();
  driver.cuEventDestroy_v2(item->event);
  capture_unrelax(mode);
  forget(&item->allocation);
  *reused = item->allocation;
  atomic_fetch_sub(&waiting, 1);
  free(item);
  return true;
}

/* Of one stream, those whose event has come. */
static void look_at(struct queue *queue, bool wait) {
  for (struct deferred *item = queue->first; item;) {
    if ((wait ? driver.cuEventSynchronize(item->event) : driver.cuEventQuery(item->event)) ==
        CUDA_ERROR_NOT_READY)
      return;
    bool is_due = !item->allocation.backend->hidden;
    driver.cuEventDestroy_v2(item->event);
    account_gone(&item->allocation);
    if (!is_due)
      free_memory(&item->allocation);
    item = pop(queue, is_due);
  }
}

static void free_due(CUdevice device) {
  struct queue *queue = hold_due(device);
  for (struct deferred *item = queue ? queue->first : NULL; item;) {
    free_memory(&item->allocation);
    lock_take(&lock);
    due_bytes[device] -= item->allocation.bytes;
    lock_release(&lock);
    item = pop(queue, false);
  }
  if (!queue)
    return;
  lock_take(&lock);
  queue->held = false;
  condition_wake_all(&released);
  lock_release(&lock);
}

static bool is_idle(CUdevice device) { return streams_look(device) == STREAMS_FINISHED; }

/* `wait`: for all events, and for the GPUs. `drained`: a device that is known to be idle, or -1. Of what is
 * due on a busy GPU, `most_bytes` may stay. */
static void reap(bool wait, CUdevice drained, uint64_t most_bytes) {
  int saved = errno;
  CUstreamCaptureMode mode = capture_relax();
  lock_take(&lock);
  size_t left = queue_count;
  lock_release(&lock);
  for (struct queue *queue; left && (queue = hold_next()); left--) {
    if (wait ||
        !memory_port.is_stopped(contexts_device(queue->context))) /* events there might wait for the go */
      look_at(queue, wait);
    release(queue);
  }
  for (CUdevice device = 0; device < DEVICES; device++) {
    uint64_t bytes = due_on(device);
    if (bytes && (wait || device == drained || bytes > most_bytes || is_idle(device)))
      free_due(device);
  }
  capture_unrelax(mode);
  errno = saved;
}

void deferred_reap(void) {
  if (atomic_load_explicit(&waiting, memory_order_relaxed))
    reap(false, -1, UINT64_MAX);
}

void deferred_reap_for_more(void) {
  if (atomic_load_explicit(&waiting, memory_order_relaxed))
    reap(false, -1, DUE_MAX_BYTES);
}

void deferred_reap_drained(CUdevice device) {
  if (atomic_load(&waiting))
    reap(false, device, UINT64_MAX);
}

bool deferred_reap_all(void) {
  if (!atomic_load(&waiting))
    return false;
  reap(true, -1, 0);
  return true;
}

/* The driver waits by itself before it frees; what is hidden from it goes at once. An event of the dying
 * context is not asked: that may be dead already. */
static void wait_for_work(const struct deferred *item, CUcontext dying) {
  if (item->event_context != dying) {
    driver.cuEventSynchronize(item->event);
  } else if (driver.cuCtxPushCurrent_v2(dying) == CUDA_SUCCESS) {
    driver.cuCtxSynchronize();
    driver.cuEventDestroy_v2(item->event); /* the context is alive */
    driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  }
}

void deferred_context_destroyed(CUcontext context, bool memory_goes) {
  CUstreamCaptureMode mode = capture_relax();
  for (struct deferred *item; (item = take_of(context)); free(item)) {
    const struct allocation *allocation = &item->allocation;
    bool hidden = allocation->backend->hidden;
    if (hidden)
      wait_for_work(item, context);
    if (hidden || !memory_goes || allocation->context != context)
      free_memory(allocation);
    else
      forget(allocation);
    if (item->event && item->event_context != context)
      driver.cuEventDestroy_v2(item->event);
    if (item->event)
      account_gone(allocation);
    atomic_fetch_sub(&waiting, 1);
  }
  capture_unrelax(mode);
}

static void forget_all(void) {
  lock = (struct lock)LOCK(LOCK_DEFERRED);
  released = (struct condition){0};
  queues = NULL;
  queue_count = 0;
  for (CUdevice device = 0; device < DEVICES; device++) {
    due[device] = (struct queue){0};
    due_bytes[device] = 0;
  }
  atomic_store(&waiting, 0);
  ledger_fork_child(&addresses);
}
IN_FORKED_CHILD(forget_all);

/* ---- the hooks: calls that wait for the GPU ---- */

static CUresult waited(CUresult result) {
  deferred_reap();
  reserves_waited();
  return result;
}

CUresult hook_cuStreamSynchronize(CUstream hStream) { return waited(driver.cuStreamSynchronize(hStream)); }

CUresult hook_cuStreamSynchronize_ptsz(CUstream hStream) {
  return waited(driver.cuStreamSynchronize_ptsz(hStream));
}

CUresult hook_cuEventSynchronize(CUevent hEvent) { return waited(driver.cuEventSynchronize(hEvent)); }
CUresult hook_cuCtxSynchronize(void) { return waited(driver.cuCtxSynchronize()); }
CUresult hook_cuCtxSynchronize_v2(CUcontext ctx) { return waited(driver.cuCtxSynchronize_v2(ctx)); }
