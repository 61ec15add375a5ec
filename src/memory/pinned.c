/*
 * pinned.c - memory that stays on the card: others make way for it before the driver is asked. What the
 * driver keeps of it without use can be given back, but not while the process' work stands still.
 */
#include "memory/pinned.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/condition.h"
#include "common/lock.h"
#include "driver/driver.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/memory_port.h"

#define REFUSED_NS (10 * NS_PER_S) /* how long the card may lack what the daemon has promised */
#define UNTOLD_NS (500 * NS_PER_MS)
#define UNEXPLAINED 3 /* refusals in a row, with enough on the card */
#define FIRST_PAUSE_NS NS_PER_MS
#define LONGEST_PAUSE_NS (50 * NS_PER_MS)

/* ---- plain pools: those from which something was allocated ---- */

#define POOLS_AT_ONCE 16

struct plain_pool {
  CUmemoryPool handle;
  CUdevice device;
  uint64_t used_bytes;
  unsigned users; /* calls of ours that use it now: its destruction waits */
};

static struct lock pools_lock = LOCK(LOCK_PLAIN_POOLS); /* never held while the driver is called */
static struct condition all_unused;                     /* a pool has lost its last user */
static struct plain_pool *pools;
static size_t pool_count, pool_room;
static _Atomic bool any_plain[DEVICES]; /* of this device, some plain pool is listed, or was */

/* With the lock held. */
static struct plain_pool *find(CUmemoryPool handle) {
  for (size_t i = 0; i < pool_count; i++)
    if (pools[i].handle == handle)
      return &pools[i];
  return NULL;
}

/* With the lock held. NULL: no memory; what it keeps is then not counted. */
static struct plain_pool *list(CUmemoryPool handle, CUdevice device) {
  if (pool_count == pool_room) {
    size_t room = pool_room ? 2 * pool_room : 8;
    struct plain_pool *larger = realloc(pools, room * sizeof *pools);
    if (!larger)
      return NULL;
    pools = larger;
    pool_room = room;
  }
  atomic_store(&any_plain[device], true);
  pools[pool_count] = (struct plain_pool){.handle = handle, .device = device};
  return &pools[pool_count++];
}

void reserves_note_used(CUmemoryPool handle, CUdevice device, uint64_t more_bytes, uint64_t less_bytes) {
  lock_take(&pools_lock);
  struct plain_pool *pool = find(handle);
  if (!pool && more_bytes && handle)
    pool = list(handle, device);
  if (pool)
    pool->used_bytes += more_bytes - (less_bytes < pool->used_bytes ? less_bytes : pool->used_bytes);
  lock_release(&pools_lock);
}

CUdevice reserves_device(CUmemoryPool handle, CUdevice otherwise) {
  lock_take(&pools_lock);
  const struct plain_pool *pool = find(handle);
  CUdevice device = pool ? pool->device : otherwise;
  lock_release(&pools_lock);
  return device;
}

uint64_t reserves_unlist(CUmemoryPool handle, CUdevice *device) {
  struct plain_pool *pool;
  lock_take(&pools_lock);
  while ((pool = find(handle)) && pool->users > 0)
    condition_wait(&all_unused, &pools_lock, UINT64_MAX);
  uint64_t used_bytes = pool ? pool->used_bytes : 0;
  if (pool) {
    *device = pool->device;
    *pool = pools[--pool_count];
  }
  lock_release(&pools_lock);
  return used_bytes;
}

/* A used pool stays listed, and alive: its destruction waits. */
static size_t use(CUdevice device, struct plain_pool *used) {
  size_t count = 0;
  lock_take(&pools_lock);
  for (size_t i = 0; i < pool_count && count < POOLS_AT_ONCE; i++)
    if (pools[i].device == device) {
      pools[i].users++;
      used[count++] = pools[i];
    }
  lock_release(&pools_lock);
  return count;
}

static void unuse(CUmemoryPool handle) {
  lock_take(&pools_lock);
  if (--find(handle)->users == 0)
    condition_wake_all(&all_unused);
  lock_release(&pools_lock);
}

static void trim_plain(CUdevice device) {
  struct plain_pool used[POOLS_AT_ONCE];
  size_t count = use(device, used);
  for (size_t i = 0; i < count; i++) {
    driver.cuMemPoolTrimTo(used[i].handle, 0);
    unuse(used[i].handle);
  }
}

static uint64_t kept_bytes(const struct plain_pool *pool) {
  cuuint64_t reserved = 0;
  if (driver.cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
      CUDA_SUCCESS)
    return 0;
  return reserved > pool->used_bytes ? reserved - pool->used_bytes : 0;
}

static uint64_t plain_kept_bytes(CUdevice device) {
  struct plain_pool used[POOLS_AT_ONCE];
  uint64_t bytes = 0;
  size_t count = atomic_load(&any_plain[device]) ? use(device, used) : 0;
  for (size_t i = 0; i < count; i++) {
    bytes += kept_bytes(&used[i]);
    unuse(used[i].handle);
  }
  return bytes;
}

/* Of so many bytes, what the pool keeps. */
static uint64_t kept_part_of(CUmemoryPool handle, uint64_t bytes) {
  lock_take(&pools_lock);
  struct plain_pool *listed = find(handle), pool = {0};
  if (listed) {
    listed->users++;
    pool = *listed;
  }
  lock_release(&pools_lock);
  if (!listed)
    return 0;
  uint64_t kept = kept_bytes(&pool);
  unuse(handle);
  return kept < bytes ? kept : bytes;
}

/* ---- all that the driver keeps: asked for after each call that may have changed it ---- */

struct kept {
  uint64_t kept_bytes;    /* counted as BACKING_KEPT */
  uint64_t held_bytes;    /* of staying_bytes: only while the process' work stands still */
  uint64_t staying_bytes; /* the last trim has not moved it: in use, perhaps by work that still runs */
};

enum keeper { KEPT_BY_GRAPHS, KEPT_BY_POOLS, KEEPERS };
static const enum backing stays_as[] = {
    [KEPT_BY_GRAPHS] = BACKING_PINNED_GRAPHS, [KEPT_BY_POOLS] = BACKING_PINNED_POOLS};

static struct reserve {
  struct lock lock; /* one count at a time; taken before those of the budget */
  _Atomic bool graphs;
  _Atomic uint64_t trims;
  struct kept by[KEEPERS];
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

static void count_kept(CUdevice device, enum keeper keeper, uint64_t staying_bytes, uint64_t kept_bytes) {
  struct kept *by = &reserves[device].by[keeper];
  count_as(device, stays_as[keeper], &by->staying_bytes, staying_bytes);
  count_as(device, BACKING_KEPT, &by->kept_bytes, kept_bytes);
}

/* Lock held. */
static uint64_t counted_bytes(const struct reserve *reserve) {
  uint64_t bytes = 0;
  for (int i = 0; i < KEEPERS; i++)
    bytes += reserve->by[i].kept_bytes + reserve->by[i].staying_bytes;
  return bytes;
}

/* A device's finding of a trim may be out of date after any wait for the GPU. */
static _Atomic bool any_stays;

/* What a trim has found holds until something changes: then all may be given back, as far as is known. Lock
 * held. */
static void count(CUdevice device, bool trimmed) {
  const struct kept *by = reserves[device].by;
  uint64_t bytes[] = {[KEPT_BY_GRAPHS] = graph_bytes(device), [KEPT_BY_POOLS] = plain_kept_bytes(device)};
  bool same = true;
  for (int i = 0; i < KEEPERS; i++)
    same &= bytes[i] == by[i].kept_bytes + by[i].staying_bytes;
  for (int i = 0; i < KEEPERS; i++) {
    uint64_t staying_bytes = trimmed ? bytes[i] : same ? by[i].staying_bytes : 0;
    if (staying_bytes)
      atomic_store(&any_stays, true);
    count_kept(device, (enum keeper)i, staying_bytes, bytes[i] - staying_bytes);
  }
}

static bool is_used(CUdevice device) {
  return atomic_load(&reserves[device].graphs) || atomic_load(&any_plain[device]);
}

static uint64_t needed_bytes(CUdevice device) {
  return budget_pinned_bytes(device) + budget_used_bytes(device, BACKING_KEPT);
}

/* With `anew`, what the last trim has found is forgotten. What can be given back from now on, and makes the
 * process have too much, is a reason to trim again. */
static void look(CUdevice device, bool anew) {
  struct reserve *reserve = &reserves[device];
  lock_take(&reserve->lock);
  uint64_t before_bytes = budget_used_bytes(device, BACKING_KEPT);
  for (int i = 0; anew && i < KEEPERS; i++)
    count_as(device, stays_as[i], &reserve->by[i].staying_bytes, 0);
  count(device, false);
  bool more = budget_used_bytes(device, BACKING_KEPT) > before_bytes;
  lock_release(&reserve->lock);
  if (more && needed_bytes(device) > memory_port.room_bytes(device))
    memory_port.order_moves(device);
}

void reserves_look(CUdevice device) {
  if (is_used(device))
    look(device, false);
}

/* Memory freed in stream order is given back only once its stream has come there. */
void reserves_waited(void) {
  if (!atomic_load(&any_stays))
    return;
  atomic_store(&any_stays, false);
  for (CUdevice device = 0; device < DEVICES; device++)
    if (is_used(device))
      look(device, true);
}

uint64_t reserves_reuse(CUdevice device, CUmemoryPool pool, uint64_t bytes) {
  struct reserve *reserve = &reserves[device];
  struct kept *by = &reserve->by[KEPT_BY_POOLS];
  lock_take(&reserve->lock);
  uint64_t kept_bytes = kept_part_of(pool, bytes);
  if (kept_bytes > by->kept_bytes)
    kept_bytes = by->kept_bytes;
  if (kept_bytes) {
    budget_note(device, BACKING_PINNED_POOLS, kept_bytes);
    budget_release(device, BACKING_KEPT, kept_bytes);
    by->kept_bytes -= kept_bytes;
  }
  lock_release(&reserve->lock);
  return kept_bytes;
}

/* Give back what the driver keeps without use. Returns how many bytes that was; what is left can't leave for
 * now. */
static uint64_t trim_kept(CUdevice device) {
  struct reserve *reserve = &reserves[device];
  if (!is_used(device))
    return 0;
  CUstreamCaptureMode mode = capture_relax();
  lock_take(&reserve->lock);
  uint64_t before_bytes = counted_bytes(reserve);
  if (atomic_load(&reserve->graphs) && driver.cuDeviceGraphMemTrim)
    driver.cuDeviceGraphMemTrim(device);
  trim_plain(device);
  atomic_fetch_add(&reserve->trims, 1);
  count(device, true);
  uint64_t bytes = counted_bytes(reserve);
  lock_release(&reserve->lock);
  capture_unrelax(mode);
  return bytes < before_bytes ? before_bytes - bytes : 0;
}

static _Atomic(uint64_t (*)(CUdevice)) spares_drop; /* NULL: there are none */

void reserves_set_spares(uint64_t (*drop)(CUdevice device)) { atomic_store(&spares_drop, drop); }

static uint64_t drop_spares(CUdevice device) {
  uint64_t (*drop)(CUdevice device) = atomic_load(&spares_drop);
  return drop ? drop(device) : 0;
}

/* The same, and what we keep. */
static uint64_t trim(CUdevice device) { return drop_spares(device) + trim_kept(device); }

/* While the process' work stands still nothing of it can be given back: it counts as what can't leave; or it
 * can again. Asks the driver nothing and waits for nobody: false if nothing was done, because a thread that
 * waits in the driver has the lock. */
static bool stay(CUdevice device, bool stays) {
  struct reserve *reserve = &reserves[device];
  if (!lock_try(&reserve->lock))
    return false;
  for (int i = 0; i < KEEPERS; i++) {
    struct kept *by = &reserve->by[i];
    uint64_t kept_bytes = by->kept_bytes, staying_bytes = by->staying_bytes;
    uint64_t back_bytes = by->held_bytes < staying_bytes ? by->held_bytes : staying_bytes;
    by->held_bytes = stays ? by->held_bytes + kept_bytes : 0;
    count_kept(device, (enum keeper)i, stays ? staying_bytes + kept_bytes : staying_bytes - back_bytes,
               stays ? 0 : kept_bytes + back_bytes);
  }
  lock_release(&reserve->lock);
  return true;
}

/* ---- what stays ---- */

static int reserve(CUdevice device, enum backing backing, uint64_t bytes, bool awaited) {
  int err = budget_reserve(device, backing, bytes, awaited);
  if (err && trim(device))
    err = budget_reserve(device, backing, bytes, awaited);
  return err;
}

int reserve_or_trim(CUdevice device, enum backing backing, uint64_t bytes) {
  return reserve(device, backing, bytes, false);
}

int pin_or_trim(CUdevice device, uint64_t bytes, void (*change)(void *argument), void *argument) {
  int err = budget_pin(device, bytes, change, argument);
  return err && trim(device) ? budget_pin(device, bytes, change, argument) : err;
}

int pinned_reserve(CUdevice device, enum backing backing, uint64_t bytes) {
  if (bytes == 0)
    return 0;
  if (budget_sum_bytes(device) + bytes > memory_port.room_bytes(device))
    drop_spares(device); /* before others have to leave */
  int err = reserve(device, backing, bytes, true);
  if (!err)
    memory_port.room_await(device, bytes, UINT64_MAX);
  return err;
}

/* What the card lacks for them, as the driver tells. */
static uint64_t lacking_bytes(uint64_t bytes) {
  size_t unused, total;
  if (driver.cuMemGetInfo_v2(&unused, &total) != CUDA_SUCCESS)
    return bytes;
  return unused < bytes ? bytes - unused : 0;
}

/* The card has enough, by now or for long: a pool with a bound may be full, or the host's memory spent. */
static bool is_unexplained(uint64_t lacking_bytes, struct pinned_patience *patience) {
  patience->unexplained = lacking_bytes ? 0 : patience->unexplained + 1;
  return patience->unexplained > UNEXPLAINED;
}

/* Others may be on their way: the memory of a process that has died is free some time after the daemon has
 * heard of it. If that is not all, the card has less than the daemon believes: it is told, so that more
 * leaves, and what comes of that is waited for. Nothing helps where there is no daemon, or where it has no
 * more to give. */
bool pinned_again(CUresult result, CUdevice device, uint64_t bytes, struct pinned_patience *patience) {
  uint64_t now_ns = clock_now_ns();
  if (result != CUDA_ERROR_OUT_OF_MEMORY)
    return false;
  if (trim(device))
    return true;
  if (memory_port.room_bytes(device) == UINT64_MAX)
    return false;
  if (!patience->refused_ns)
    *patience = (struct pinned_patience){.refused_ns = now_ns, .pause_ns = FIRST_PAUSE_NS};
  uint64_t waited_ns = now_ns - patience->refused_ns, lacks_bytes = lacking_bytes(bytes);
  if (waited_ns >= REFUSED_NS || is_unexplained(lacks_bytes, patience))
    return false;
  bool tells = waited_ns >= UNTOLD_NS && lacks_bytes;
  if (tells) {
    budget_await(device, bytes);
    memory_port.falls_short(device, lacks_bytes);
  }
  clock_sleep(patience->pause_ns);
  patience->pause_ns = patience->pause_ns * 2 < LONGEST_PAUSE_NS ? patience->pause_ns * 2 : LONGEST_PAUSE_NS;
  return !tells || memory_port.room_await(device, bytes, patience->refused_ns + REFUSED_NS);
}

/* ---- as a backend: see backend.h ---- */

/* The device's work was stopped, not drained, when memory was closed: the driver's own frees would wait. */
static _Atomic bool stopped[DEVICES];

static CUresult allocate(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  struct pinned_patience patience = {0};
  CUresult result;
  if (pinned_reserve(like->device, BACKING_PINNED_PLAIN, bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  do
    result = driver.cuMemAlloc_v2(address, bytes);
  while (pinned_again(result, like->device, bytes, &patience));
  struct allocation new = *like;
  new.backend = &backend_pinned;
  return account_enter(result, address, bytes, &new, BACKING_PINNED_PLAIN);
}

static CUresult free_pinned(const struct allocation *taken, bool finished) {
  (void)finished; /* the driver waits */
  return driver.cuMemFree_v2(taken->base);
}

static uint64_t resident_bytes(CUdevice device) {
  uint64_t bytes = needed_bytes(device), awaited = budget_awaited_bytes(device);
  return awaited < bytes ? bytes - awaited : 0;
}

/* What the driver keeps without use leaves, and does not come back. It makes way for what is awaited, too. */
static enum memory_progress step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  if (needed_bytes(device) <= room_bytes || !budget_used_bytes(device, BACKING_KEPT))
    return MEMORY_SETTLED;
  if (atomic_load(&stopped[device]))
    return stay(device, true) ? MEMORY_MOVED : MEMORY_SETTLED;
  uint64_t bytes = trim_kept(device);
  moved->out_bytes += bytes;
  return bytes ? MEMORY_MOVED : MEMORY_SETTLED;
}

/* What the driver keeps without use leaves by calls in the program's contexts, which might wait. */
static bool may_stop(CUdevice device) { return !budget_used_bytes(device, BACKING_KEPT); }

static void closed(CUdevice device, bool drained) {
  if (atomic_exchange(&stopped[device], !drained) && drained)
    stay(device, false);
}

static void opened(CUdevice device) {
  if (atomic_exchange(&stopped[device], false))
    stay(device, false);
}

const struct backend backend_pinned = {
    .allocate = allocate,
    .free = free_pinned,
    .resident_bytes = resident_bytes,
    .needed_bytes = needed_bytes,
    .step = step,
    .may_stop = may_stop,
    .close = closed,
    .opened = opened,
};

static void forget(void) {
  pools_lock = (struct lock)LOCK(LOCK_PLAIN_POOLS);
  pools = NULL;
  pool_count = pool_room = 0;
  for (int i = 0; i < DEVICES; i++) {
    atomic_store(&any_plain[i], false);
    atomic_store(&stopped[i], false);
    reserves[i] = (struct reserve){.lock = LOCK(LOCK_RESERVE)};
  }
}
IN_FORKED_CHILD(forget);
