/* streams.c - a table of streams, from the calls that make and destroy them. */
#include "gate/streams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/lock.h"
#include "common/log.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/capture.h"
#include "gate/contexts.h"

struct entry {
  CUstream stream;
  CUcontext context;
};

/* Protects the table; held over cuStreamQuery, which does not wait, so that no stream is destroyed meanwhile.
 */
static struct lock lock = LOCK(LOCK_STREAMS);
static struct entry *table;
static size_t count, room;
static _Atomic bool per_thread_seen;
static _Atomic uint64_t generation;
static _Atomic bool incomplete; /* memory was out: not every stream is known */

static void add(CUstream stream, CUcontext context) {
  lock_take(&lock);
  if (count == room) {
    size_t larger = room ? 2 * room : 64;
    struct entry *grown = realloc(table, larger * sizeof *table);
    if (grown) {
      table = grown;
      room = larger;
    }
  }
  if (count < room)
    table[count++] = (struct entry){stream, context};
  else
    atomic_store(&incomplete, true);
  lock_release(&lock);
}

uint64_t streams_generation(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }

static bool remove_stream(CUstream stream, CUcontext *context) {
  bool found = false;
  lock_take(&lock);
  atomic_fetch_add(&generation, 1);
  for (size_t i = count; i-- > 0 && !found;) /* those that are made and destroyed in a loop are the last */
    if (table[i].stream == stream) {
      *context = table[i].context;
      table[i] = table[--count];
      found = true;
    }
  lock_release(&lock);
  return found;
}

void streams_context_gone(CUcontext context) {
  lock_take(&lock);
  atomic_fetch_add(&generation, 1);
  for (size_t i = 0; i < count;)
    if (table[i].context == context)
      table[i] = table[--count];
    else
      i++;
  lock_release(&lock);
}

void streams_note(CUstream stream) {
  if (stream == CU_STREAM_PER_THREAD)
    atomic_store(&per_thread_seen, true);
}

/* With the context current. Whoever asks again and again asks the one that was busy first. */
static bool context_idle(CUcontext context, void *argument) {
  (void)argument;
  bool busy = driver.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY;
  lock_take(&lock);
  for (size_t i = 0; i < count && !busy; i++) {
    struct entry asked = table[i];
    busy = asked.context == context && driver.cuStreamQuery(asked.stream) == CUDA_ERROR_NOT_READY;
    if (busy) {
      table[i] = table[0];
      table[0] = asked;
    }
  }
  lock_release(&lock);
  return !busy;
}

enum streams_state streams_ask(CUdevice device) {
  if (!contexts_each(device, context_idle, NULL))
    return STREAMS_BUSY;
  return atomic_load(&per_thread_seen) || atomic_load(&incomplete) ? STREAMS_UNKNOWN : STREAMS_FINISHED;
}

void streams_fork_child(void) {
  lock = (struct lock)LOCK(LOCK_STREAMS);
  table = NULL; /* not freed: another thread may have been about to let it grow */
  count = room = 0;
  atomic_store(&per_thread_seen, false);
  atomic_store(&incomplete, false);
}

/* ---- the hooks ---- */

static CUresult created(CUresult result, const CUstream *stream) {
  CUcontext context;
  if (result == CUDA_SUCCESS && driver.cuStreamGetCtx(*stream, &context) == CUDA_SUCCESS)
    add(*stream, context);
  return result;
}

CUresult hook_cuStreamCreate(CUstream *phStream, unsigned int Flags) {
  return created(driver.cuStreamCreate(phStream, Flags), phStream);
}

CUresult hook_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
  return created(driver.cuStreamCreateWithPriority(phStream, flags, priority), phStream);
}

CUresult hook_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
                                     int priority) {
  return created(driver.cuGreenCtxStreamCreate(phStream, greenCtx, flags, priority), phStream);
}

/* It leaves the tables before the driver may give its handle to a new stream. Its capture ends with it. */
static CUresult destroy(CUresult (*real)(CUstream), CUstream stream) {
  CUcontext context = NULL;
  bool known = remove_stream(stream, &context);
  bool captured = capture_stream_leaves(stream);
  CUresult result = real(stream);
  if (result != CUDA_SUCCESS && known)
    add(stream, context);
  if (result != CUDA_SUCCESS && captured)
    capture_stream_stays(stream);
  return result;
}

CUresult hook_cuStreamDestroy(CUstream hStream) { return destroy(driver.cuStreamDestroy, hStream); }
CUresult hook_cuStreamDestroy_v2(CUstream hStream) { return destroy(driver.cuStreamDestroy_v2, hStream); }
