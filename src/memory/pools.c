/* pools.c - the table of the program's pools, and the hooks that make, name and destroy them. */
#include "memory/pools.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/lock.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/pinned.h"

static struct lock lock = LOCK(LOCK_POOLS); /* held while a default pool is made */
static struct pool *table;
static size_t table_count, table_room;
static struct {
  _Atomic bool tried; /* from then on, `pool` stays */
  CUmemoryPool pool;  /* ours, in place of the driver's; NULL: this device has no managed pools */
  CUmemoryPool _Atomic
      current; /* what the program takes for the device's current pool; NULL: ask the driver */
} defaults[DEVICES];

/* The table. With the lock held. */

static struct pool *find(CUmemoryPool handle) {
  for (size_t i = 0; i < table_count; i++)
    if (table[i].handle == handle)
      return &table[i];
  return NULL;
}

/* An unlisted pool is treated as a plain one, so a lack of memory does no harm. */
static void list(const struct pool *pool) {
  struct pool *entry = find(pool->handle);
  if (!entry) {
    if (table_count == table_room) {
      size_t room = table_room ? 2 * table_room : 8;
      struct pool *larger = realloc(table, room * sizeof *table);
      if (!larger)
        return;
      table = larger;
      table_room = room;
    }
    entry = &table[table_count++];
  }
  *entry = *pool;
}

static void unlist(CUmemoryPool handle) {
  struct pool *entry = find(handle);
  if (entry)
    *entry = table[--table_count];
}

/*
 * Pools of unified memory. They keep what they have taken from the driver, for ever: once some of a pool's
 * memory has been on the host, and the pool gives memory back and takes new, the driver loses what kernels
 * write into the new (580.159; bench/RESULTS.md). So the driver is told no threshold of the program's, trims
 * none of them, and destroys none: a destroyed one serves the next pool that is made with the same
 * properties.
 */

static bool is_unified(enum pool_kind kind) { return kind == POOL_MANAGED || kind == POOL_APP; }

static void keep_all(CUmemoryPool pool) {
  cuuint64_t all = UINT64_MAX;
  driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
}

static cuuint64_t used_bytes(CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  CUresult result = driver.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
  return result == CUDA_SUCCESS ? bytes : UINT64_MAX;
}

/* With the lock held. */
static struct pool *find_destroyed(const CUmemPoolProps *props) {
  for (size_t i = 0; i < table_count; i++)
    if (table[i].kind == POOL_DESTROYED && memcmp(&table[i].props, props, sizeof *props) == 0 &&
        used_bytes(table[i].handle) == 0)
      return &table[i];
  return NULL;
}

/* As a new one is: it follows all three ways of reuse, and its high-water marks are low. */
static void set_defaults(CUmemoryPool pool) {
  int yes = 1;
  cuuint64_t zero = 0;
  driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &yes);
  driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &yes);
  driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &yes);
  driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero);
  driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero);
}

/* With the lock held. */
static CUresult create_unified(CUmemoryPool *pool, const CUmemPoolProps *like, enum pool_kind kind) {
  CUmemPoolProps props = *like;
  props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  CUdevice device = props.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props.location.id : -1;
  struct pool *again = find_destroyed(&props);
  CUresult result = CUDA_SUCCESS;
  if (again)
    set_defaults(*pool = again->handle);
  else if ((result = driver.cuMemPoolCreate(pool, &props)) == CUDA_SUCCESS)
    keep_all(*pool);
  if (result == CUDA_SUCCESS)
    list(&(struct pool){.handle = *pool, .device = device, .kind = kind, .props = props});
  return result;
}

/* With the lock held. */
static CUmemoryPool make_default(CUdevice device) {
  CUmemPoolProps props;
  CUmemoryPool pool;
  memset(&props, 0, sizeof props);
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = device;
  if (!driver.cuMemPoolCreate || create_unified(&pool, &props, POOL_MANAGED) != CUDA_SUCCESS)
    return NULL;
  return pool;
}

/* The pool that stands in for the driver's default pool; NULL: none does. */
static CUmemoryPool default_pool(CUdevice device) {
  if (!device_valid(device) || !backend_pages(device))
    return NULL;
  if (atomic_load(&defaults[device].tried))
    return defaults[device].pool;
  lock_take(&lock);
  if (!atomic_load(&defaults[device].tried)) {
    CUstreamCaptureMode mode = capture_relax();
    defaults[device].pool = make_default(device);
    atomic_store(&defaults[device].current, defaults[device].pool);
    atomic_store(&defaults[device].tried, true);
    capture_unrelax(mode);
  }
  CUmemoryPool pool = defaults[device].pool;
  lock_release(&lock);
  return pool;
}

/* What the rest of the room asks. */

struct pool pools_find(CUmemoryPool handle, CUdevice device) {
  lock_take(&lock);
  struct pool *entry = find(handle);
  struct pool found = entry ? *entry : (struct pool){.handle = handle, .kind = POOL_PLAIN};
  lock_release(&lock);
  if (!entry)
    found.device = reserves_device(handle, device);
  return found;
}

/* What the program takes for the current pool; NULL: whatever the driver says. */
static CUmemoryPool current_pool(CUdevice device) {
  return default_pool(device) ? atomic_load(&defaults[device].current) : NULL;
}

/* Without managed pools: is the driver's default pool the current one? */
static bool is_emulated(CUdevice device, CUmemoryPool current) {
  CUmemoryPool original;
  return backend_leaves(device) && driver.cuDeviceGetDefaultMemPool(&original, device) == CUDA_SUCCESS &&
         original == current;
}

struct pool pools_current(CUdevice device) {
  CUmemoryPool current = current_pool(device);
  if (current && current == default_pool(device))
    return (struct pool){.handle = current, .device = device, .kind = POOL_MANAGED};
  if (current)
    return pools_find(current, device);
  if (!driver.cuDeviceGetMemPool || driver.cuDeviceGetMemPool(&current, device) != CUDA_SUCCESS)
    return (struct pool){.device = device, .kind = POOL_PLAIN};
  struct pool pool = pools_find(current, device);
  if (pool.kind == POOL_PLAIN && is_emulated(device, current))
    pool.kind = POOL_EMULATED;
  return pool;
}

bool pools_grew(CUmemoryPool handle) {
  cuuint64_t reserved = 0;
  if (driver.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) != CUDA_SUCCESS)
    return false;
  lock_take(&lock);
  struct pool *entry = find(handle);
  bool grew = entry && reserved > entry->reserved_bytes;
  if (entry)
    entry->reserved_bytes = reserved;
  lock_release(&lock);
  return grew;
}

/* Hooks. */

CUresult hook_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
  CUmemoryPool ours = pool_out ? default_pool(dev) : NULL;
  CUresult result = driver.cuDeviceGetDefaultMemPool(pool_out, dev);
  if (result == CUDA_SUCCESS && ours)
    *pool_out = ours;
  return result;
}

CUresult hook_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
  CUresult result = driver.cuDeviceGetMemPool(pool, dev);
  CUmemoryPool current = result == CUDA_SUCCESS ? current_pool(dev) : NULL;
  if (current)
    *pool = current;
  return result;
}

/* A converted pool is remembered by us alone; a plain one by the driver, too, so that captures draw on it. */
CUresult hook_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  struct pool known = pools_find(pool, dev);
  if (!default_pool(dev) || known.kind == POOL_APP)
    return driver.cuDeviceSetMemPool(dev, pool);
  CUresult result = CUDA_SUCCESS;
  if (known.kind != POOL_MANAGED)
    result = driver.cuDeviceSetMemPool(dev, pool);
  else if (known.device != dev)
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    atomic_store(&defaults[dev].current, pool);
  return result;
}

/* Is this question about a device's plain memory, which we stand in for? */
static bool is_device_memory(const CUmemLocation *location, CUmemAllocationType type) {
  return location && type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
         device_valid(location->id) && default_pool(location->id);
}

/* Numbers, because headers before CUDA 12.2 and 12.3 lack them: the host, one of its NUMA nodes, the nearest.
 */
static bool is_host(const CUmemLocation *location) { return location->type >= 2 && location->type <= 4; }

/* The host has pools of its own, and unified memory has. */
static CUresult note_pool(CUresult result, const CUmemoryPool *pool, const CUmemLocation *location,
                          CUmemAllocationType type) {
  if (result != CUDA_SUCCESS)
    return result;
  lock_take(&lock);
  if (type == CU_MEM_ALLOCATION_TYPE_PINNED && is_host(location)) {
    list(&(struct pool){.handle = *pool, .device = -1, .kind = POOL_HOST});
  } else if (type == CU_MEM_ALLOCATION_TYPE_MANAGED && !find(*pool)) {
    CUdevice device = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : -1;
    list(&(struct pool){.handle = *pool, .device = device, .kind = POOL_APP, .permanent = true});
    keep_all(*pool);
  }
  lock_release(&lock);
  return result;
}

CUresult hook_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                     CUmemAllocationType type) {
  if (pool_out && is_device_memory(location, type))
    return hook_cuDeviceGetDefaultMemPool(pool_out, location->id);
  return note_pool(driver.cuMemGetDefaultMemPool(pool_out, location, type), pool_out, location, type);
}

CUresult hook_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  if (is_device_memory(location, type))
    return hook_cuDeviceGetMemPool(pool, location->id);
  return note_pool(driver.cuMemGetMemPool(pool, location, type), pool, location, type);
}

CUresult hook_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
  if (is_device_memory(location, type))
    return hook_cuDeviceSetMemPool(location->id, pool);
  return driver.cuMemSetMemPool(location, type, pool);
}

/* Pools for export, or with a special use, stay what they are. The usage flags follow maxSize; headers before
 * CUDA 12.8 call both reserved. */
static bool is_convertible(const CUmemPoolProps *props) {
  uint16_t usage;
  const char *after_pointer = (const char *)(&props->win32SecurityAttributes + 1);
  memcpy(&usage, after_pointer + sizeof(size_t), sizeof usage);
  return props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && props->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
         props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && device_valid(props->location.id) && !usage &&
         backend_leaves(props->location.id);
}

/* What a pool is that the driver has made just as the program asked. */
static enum pool_kind kind_of(const CUmemPoolProps *props) {
  if (props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && is_host(&props->location))
    return POOL_HOST;
  if (props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
    return POOL_APP;
  return is_convertible(props) && !default_pool(props->location.id) ? POOL_EMULATED : POOL_PLAIN;
}

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
  if (!pool || !poolProps)
    return driver.cuMemPoolCreate(pool, poolProps);
  enum pool_kind kind = kind_of(poolProps);
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  bool converts = is_convertible(poolProps) && default_pool(poolProps->location.id);
  lock_take(&lock);
  if (converts || kind == POOL_APP)
    result = create_unified(pool, poolProps, converts ? POOL_MANAGED : POOL_APP);
  lock_release(&lock);
  if (result == CUDA_SUCCESS || kind == POOL_APP)
    return result;
  result = driver.cuMemPoolCreate(pool, poolProps);
  if (result == CUDA_SUCCESS && kind != POOL_PLAIN) {
    CUdevice device = poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? poolProps->location.id : -1;
    lock_take(&lock);
    list(&(struct pool){.handle = *pool, .device = device, .kind = kind});
    lock_release(&lock);
  }
  return result;
}

/* A pool that is destroyed while it is current makes the default pool current. */
static void reinstate_default(CUmemoryPool destroyed) {
  for (CUdevice device = 0; device < DEVICES; device++) {
    CUmemoryPool current = destroyed;
    atomic_compare_exchange_strong(&defaults[device].current, &current, defaults[device].pool);
  }
}

/* Out of the table first, once nobody uses it: the driver may hand the same handle out anew. */
static CUresult destroy(const struct pool *pool) {
  CUdevice device = pool->device;
  uint64_t used_bytes = reserves_unlist(pool->handle, &device);
  lock_take(&lock);
  unlist(pool->handle);
  lock_release(&lock);
  CUresult result = driver.cuMemPoolDestroy(pool->handle);
  if (result == CUDA_SUCCESS) {
    reinstate_default(pool->handle);
    if (pool->kind == POOL_PLAIN && device_valid(device))
      reserves_look(device);
  } else if (pool->kind == POOL_PLAIN) {
    reserves_note_used(pool->handle, device, used_bytes, 0);
  } else {
    lock_take(&lock);
    list(pool);
    lock_release(&lock);
  }
  return result;
}

CUresult hook_cuMemPoolDestroy(CUmemoryPool pool) {
  struct pool known = pools_find(pool, -1);
  CUmemoryPool original;
  if (known.kind == POOL_DESTROYED)
    return CUDA_ERROR_INVALID_VALUE;
  if (known.kind == POOL_MANAGED &&
      pool == default_pool(known.device)) { /* as the driver answers for its own */
    CUresult result = driver.cuDeviceGetDefaultMemPool(&original, known.device);
    return result == CUDA_SUCCESS ? driver.cuMemPoolDestroy(original) : result;
  }
  if (!is_unified(known.kind) || known.permanent)
    return destroy(&known);
  lock_take(&lock);
  find(pool)->kind = POOL_DESTROYED;
  lock_release(&lock);
  reinstate_default(pool);
  return CUDA_SUCCESS;
}

/* What the program wants kept is remembered, and answered: nothing of it is done. */

CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
  if (attr != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || !value || !is_unified(pools_find(pool, -1).kind))
    return driver.cuMemPoolSetAttribute(pool, attr, value);
  lock_take(&lock);
  find(pool)->threshold_bytes = *(cuuint64_t *)value;
  lock_release(&lock);
  return CUDA_SUCCESS;
}

CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
  struct pool known = pools_find(pool, -1);
  CUresult result = driver.cuMemPoolGetAttribute(pool, attr, value);
  if (result == CUDA_SUCCESS && attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && is_unified(known.kind))
    *(cuuint64_t *)value = known.threshold_bytes;
  return result;
}

CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  if (is_unified(pools_find(pool, -1).kind))
    return CUDA_SUCCESS;
  return driver.cuMemPoolTrimTo(pool, minBytesToKeep);
}

static void forget(void) {
  lock = (struct lock)LOCK(LOCK_POOLS);
  table = NULL;
  table_count = table_room = 0;
  memset(defaults, 0, sizeof defaults);
}
IN_FORKED_CHILD(forget);
