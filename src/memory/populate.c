/* populate.c - prefetch of fresh memory, on a stream of ours per context. */
#include "memory/populate.h"

#include <pthread.h>
#include <stddef.h>

#include "common/lock.h"
#include "driver/driver.h"
#include "gate/gate.h"
#include "memory/device.h"

/* Less shares its page with others, whose moves would repeat each other's work (60 us each, measured); more
 * is a program that takes the whole card in advance, much of which it may never touch. */
#define POPULATE_MIN_BYTES (UINT64_C(2) << 20)
#define POPULATE_MAX_BYTES (UINT64_C(2) << 30)
#define CONTEXTS 16 /* further contexts do without */

static struct lock lock = LOCK(LOCK_POPULATE); /* held while a stream is made */
static struct {
  CUcontext context;
  CUstream stream;
} streams[CONTEXTS];

/* With the lock held. */
static CUstream find_stream(CUcontext context) {
  for (size_t i = 0; i < CONTEXTS; i++)
    if (streams[i].context == context && streams[i].stream)
      return streams[i].stream;
  for (size_t i = 0; i < CONTEXTS; i++) {
    if (streams[i].stream)
      continue;
    CUstream new;
    if (driver.cuStreamCreate(&new, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
      return NULL;
    streams[i].context = context;
    return streams[i].stream = new;
  }
  return NULL;
}

static CUstream stream_of(CUcontext context) {
  lock_take(&lock);
  CUstream stream = find_stream(context);
  lock_release(&lock);
  return stream;
}

static bool worth_it(uint64_t bytes) { return bytes >= POPULATE_MIN_BYTES && bytes <= POPULATE_MAX_BYTES; }

uint64_t populate_on(CUstream stream, CUdeviceptr address, uint64_t bytes, CUdevice device) {
  if (!worth_it(bytes))
    return 0;
  if (!gate_is_open(device) || !gate_try_enter(stream))
    return bytes;
  driver.cuMemPrefetchAsync(address, bytes, device, stream);
  gate_leave();
  return 0;
}

uint64_t populate(CUdeviceptr address, uint64_t bytes, CUdevice device, CUcontext context) {
  if (!worth_it(bytes))
    return 0;
  if (!gate_is_open(device))
    return bytes;
  CUstreamCaptureMode mode = capture_relax();
  CUstream stream = stream_of(context);
  uint64_t left = stream ? populate_on(stream, address, bytes, device) : 0;
  capture_unrelax(mode);
  return left;
}

void populate_context_destroyed(CUcontext context) {
  lock_take(&lock);
  for (size_t i = 0; i < CONTEXTS; i++) /* the stream dies with its context */
    if (streams[i].context == context) {
      streams[i].context = NULL;
      streams[i].stream = NULL;
    }
  lock_release(&lock);
}

void populate_fork_child(void) {
  lock = (struct lock)LOCK(LOCK_POPULATE);
  for (size_t i = 0; i < CONTEXTS; i++) {
    streams[i].context = NULL;
    streams[i].stream = NULL;
  }
}
