/* reserves.c - what the driver keeps: asked for after each call that may have changed it. */
#include "memory/reserves.h"

#include <pthread.h>
#include <stdatomic.h>

#include "common/lock.h"
#include "driver/driver.h"
#include "memory/budget.h"
#include "memory/device.h"
#include "memory/pools.h"

static struct reserve {
  struct lock lock; /* one count at a time; taken before those of the budget */
  _Atomic bool graphs;
  _Atomic uint64_t trims;
  uint64_t kept_bytes;    /* counted as BACKING_KEPT */
  uint64_t held_bytes;    /* of staying_bytes: only while the process' work stands still */
  uint64_t staying_bytes; /* the last trim has not moved it: in use by what the program has not freed yet */
} reserves[DEVICES] = {
    [0 ... DEVICES - 1] = {.lock = LOCK(LOCK_RESERVE)},
};

void reserves_watch_graphs(CUdevice device) { atomic_store(&reserves[device].graphs, true); }

uint64_t reserves_trims(CUdevice device) { return atomic_load(&reserves[device].trims); }

static uint64_t graph_bytes(CUdevice device) {
  cuuint64_t bytes = 0;
  if (!atomic_load(&reserves[device].graphs) || !driver.cuDeviceGetGraphMemAttribute ||
      driver.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) !=
          CUDA_SUCCESS)
    return 0;
  return bytes;
}

static void count_as(CUdevice device, enum backing backing, uint64_t *counted, uint64_t bytes) {
  if (bytes > *counted)
    budget_note(device, backing, bytes - *counted);
  else
    budget_release(device, backing, *counted - bytes);
  *counted = bytes;
}

/* Lock held. */
static void count(CUdevice device, uint64_t bytes, bool trimmed) {
  struct reserve *reserve = &reserves[device];
  uint64_t staying_bytes = trimmed || bytes < reserve->staying_bytes ? bytes : reserve->staying_bytes;
  count_as(device, BACKING_PINNED, &reserve->staying_bytes, staying_bytes);
  count_as(device, BACKING_KEPT, &reserve->kept_bytes, bytes - staying_bytes);
}

static bool is_used(CUdevice device) {
  return atomic_load(&reserves[device].graphs) || pools_any_plain(device);
}

void reserves_look(CUdevice device) {
  if (!is_used(device))
    return;
  lock_take(&reserves[device].lock);
  count(device, graph_bytes(device) + pools_kept_bytes(device), false);
  lock_release(&reserves[device].lock);
}

uint64_t reserves_reuse(CUdevice device, CUmemoryPool pool, uint64_t bytes) {
  struct reserve *reserve = &reserves[device];
  lock_take(&reserve->lock);
  uint64_t kept_bytes = pools_reuse(pool, bytes);
  if (kept_bytes > reserve->kept_bytes)
    kept_bytes = reserve->kept_bytes;
  if (kept_bytes) {
    budget_note(device, BACKING_PINNED, kept_bytes);
    budget_release(device, BACKING_KEPT, kept_bytes);
    reserve->kept_bytes -= kept_bytes;
  }
  lock_release(&reserve->lock);
  return kept_bytes;
}

uint64_t reserves_trim(CUdevice device) {
  struct reserve *reserve = &reserves[device];
  if (!is_used(device))
    return 0;
  CUstreamCaptureMode mode = capture_relax();
  lock_take(&reserve->lock);
  uint64_t before_bytes = reserve->kept_bytes + reserve->staying_bytes;
  if (atomic_load(&reserve->graphs) && driver.cuDeviceGraphMemTrim)
    driver.cuDeviceGraphMemTrim(device);
  pools_trim_plain(device);
  atomic_fetch_add(&reserve->trims, 1);
  uint64_t bytes = graph_bytes(device) + pools_kept_bytes(device);
  count(device, bytes, true);
  lock_release(&reserve->lock);
  capture_unrelax(mode);
  return bytes < before_bytes ? before_bytes - bytes : 0;
}

/* A thread that waits in the driver may have the lock. */
bool reserves_stay(CUdevice device, bool stays) {
  struct reserve *reserve = &reserves[device];
  if (!lock_try(&reserve->lock))
    return false;
  uint64_t kept_bytes = reserve->kept_bytes, staying_bytes = reserve->staying_bytes;
  uint64_t back_bytes = reserve->held_bytes < staying_bytes ? reserve->held_bytes : staying_bytes;
  reserve->held_bytes = stays ? reserve->held_bytes + kept_bytes : 0;
  count_as(device, BACKING_PINNED, &reserve->staying_bytes,
           stays ? staying_bytes + kept_bytes : staying_bytes - back_bytes);
  count_as(device, BACKING_KEPT, &reserve->kept_bytes, stays ? 0 : kept_bytes + back_bytes);
  lock_release(&reserve->lock);
  return true;
}

void reserves_fork_child(void) {
  for (int i = 0; i < DEVICES; i++)
    reserves[i] = (struct reserve){.lock = LOCK(LOCK_RESERVE)};
}
