/* pool.c - memory pools and stream-ordered allocation. */
#include "pool.h"

#include <stdlib.h>

#include "capture.h"
#include "graph.h"
#include "objects.h"

void pool_init(CUmemoryPool pool, unsigned gpu, bool managed, bool permanent) {
  pool->gpu = gpu;
  pool->managed = managed;
  pool->permanent = permanent;
  for (int i = 1; i < 4; i++)
    pool->reuse[i] = 1;
}

uint64_t pool_threshold(CUmemoryPool pool) { return atomic_load(&pool->threshold_bytes); }
struct pool_usage *pool_usage_of(CUmemoryPool pool) {
  return &pool->usage;
}

/* ---- pools ---- */

static bool location_gpu(const CUmemLocation *location, unsigned *device) {
  if (location->type != SIM_LOCATION_DEVICE || location->id < 0 || location->id >= sim.device_count)
    return false;
  *device = (unsigned)location->id;
  return true;
}

static bool is_host(const CUmemLocation *location) {
  return sim.card.driver_version >= 12020 && location->type >= SIM_LOCATION_HOST &&
         location->type <= SIM_LOCATION_HOST_NUMA_CURRENT;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
  unsigned device = 0;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  bool managed = poolProps->allocType == SIM_ALLOCATION_MANAGED;
  bool anywhere = managed && poolProps->location.type == SIM_LOCATION_NONE;
  bool host = !managed && is_host(&poolProps->location);
  if (pool == NULL || (!managed && poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED))
    return CUDA_ERROR_INVALID_VALUE;
  if (managed && sim.card.driver_version < 13000)
    return CUDA_ERROR_INVALID_VALUE;
  if (!anywhere && !host && !location_gpu(&poolProps->location, &device))
    return CUDA_ERROR_INVALID_VALUE;
  CUmemoryPool made = calloc(1, sizeof(*made));
  if (made == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  pool_init(made, devices[device].gpu, managed, false);
  made->host = host;
#if CUDA_VERSION >= 12020
  made->max_bytes = poolProps->maxSize;
#endif
  *pool = made;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (pool == NULL || pool->permanent)
    return CUDA_ERROR_INVALID_VALUE;
  gpu_drain(pool->gpu);
  pthread_mutex_lock(&objects_lock);
  for (int d = 0; d < sim.device_count; d++) {
    if (devices[d].current_pool == pool)
      devices[d].current_pool = &devices[d].plain_pool;
    if (devices[d].current_managed_pool == pool)
      devices[d].current_managed_pool = &devices[d].managed_pool;
  }
  pthread_mutex_unlock(&objects_lock);
  memory_free_pool(pool);
  free(pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
  CUresult result = device_check(dev);
  if (result == CUDA_SUCCESS)
    *pool_out = &devices[dev].plain_pool;
  return result;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
  CUresult result = device_check(dev);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  *pool = devices[dev].current_pool;
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  CUresult result = device_check(dev);
  if (result != CUDA_SUCCESS || pool == NULL || pool->gpu != devices[dev].gpu)
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  devices[dev].current_pool = pool;
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13000
static CUresult device_of(CUmemLocation *location, CUmemAllocationType type, struct device **device) {
  unsigned ordinal;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (location == NULL || !location_gpu(location, &ordinal) ||
      (type != SIM_ALLOCATION_MANAGED && type != CU_MEM_ALLOCATION_TYPE_PINNED))
    return CUDA_ERROR_INVALID_VALUE;
  *device = &devices[ordinal];
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type) {
  struct device *device;
  CUresult result = device_of(location, type, &device);
  if (result == CUDA_SUCCESS)
    *pool_out = type == SIM_ALLOCATION_MANAGED ? &device->managed_pool : &device->plain_pool;
  return result;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  struct device *device;
  CUresult result = device_of(location, type, &device);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  *pool = type == SIM_ALLOCATION_MANAGED ? device->current_managed_pool : device->current_pool;
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
  struct device *device;
  CUresult result = device_of(location, type, &device);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  *(type == SIM_ALLOCATION_MANAGED ? &device->current_managed_pool : &device->current_pool) = pool;
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}
#endif

static uint64_t usage_value(const struct pool_usage *usage, CUmemPool_attribute attribute) {
  switch (attribute) {
  case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    return usage->reserved;
  case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    return usage->reserved_high;
  case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    return usage->used;
  default:
    return usage->used_high;
  }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
  struct pool_usage usage;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (pool == NULL || value == NULL || attr < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
      attr > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    return CUDA_ERROR_INVALID_VALUE;
  if (attr < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    *(int *)value = atomic_load(&pool->reuse[attr]);
    return CUDA_SUCCESS;
  }
  memory_pool_usage(pool, &usage, false, false);
  *(cuuint64_t *)value =
      attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? pool_threshold(pool) : usage_value(&usage, attr);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
  struct pool_usage usage;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  if (pool == NULL || value == NULL || attr < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)
    return CUDA_ERROR_INVALID_VALUE;
  if (attr < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    atomic_store(&pool->reuse[attr], *(int *)value != 0);
  else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    atomic_store(&pool->threshold_bytes, *(cuuint64_t *)value);
  else if (*(cuuint64_t *)value != 0) /* the high marks can only be reset */
    return CUDA_ERROR_INVALID_VALUE;
  else
    memory_pool_usage(pool, &usage, attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
                      attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS)
    memory_pool_trim(pool, minBytesToKeep);
  return result;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
  (void)pool, (void)map, (void)count;
  return process_check();
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location) {
  unsigned device;
  CUresult result = process_check();
  if (result != CUDA_SUCCESS)
    return result;
  bool own = location_gpu(location, &device) && devices[device].gpu == memPool->gpu;
  *flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

/* ---- allocation in stream order ---- */

static CUresult allocate_now(CUmemoryPool pool, size_t bytes, CUdeviceptr *address) {
  struct pool_usage usage;
  memory_pool_usage(pool, &usage, false, false);
  if (pool->max_bytes && usage.used + bytes > pool->max_bytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  enum memory_kind kind = pool->managed ? MEMORY_MANAGED : pool->host ? MEMORY_HOST : MEMORY_PLAIN;
  const struct memory_request request = {.kind = kind, .gpu = pool->gpu, .pool = pool, .bytes = bytes};
  CUresult result = memory_allocate(&request, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY)
    return result;
  gpu_drain(pool->gpu); /* frees that are still queued */
  memory_pool_trim(pool, 0);
  return memory_allocate(&request, address);
}

/* In a capture the memory has its address from now on. It belongs to the graph if the capture frees it too.
 */
static CUresult allocate_in_capture(CUstream stream, CUmemoryPool pool, size_t bytes, CUdeviceptr *address) {
  CUresult result =
      pool->managed ? allocate_now(pool, bytes, address) : graph_memory_allocate(pool->gpu, bytes, address);
  if (result != CUDA_SUCCESS)
    return result;
  const struct work node = {
      .kind = WORK_ALLOC, .gpu = pool->gpu, .range = {.at = *address, .bytes = bytes, .to = pool->gpu}};
  return stream_submit(stream, &node);
}

static bool stream_captures(CUstream stream) {
  pthread_mutex_lock(&objects_lock);
  bool captures = stream->capture != NULL;
  pthread_mutex_unlock(&objects_lock);
  return captures;
}

static CUmemoryPool pool_of(CUstream stream) {
  pthread_mutex_lock(&objects_lock);
  CUmemoryPool pool = devices[stream->context->device].current_pool;
  pthread_mutex_unlock(&objects_lock);
  return pool;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream handle) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || address == NULL)
    return address ? result : CUDA_ERROR_INVALID_VALUE;
  if (pool == NULL)
    pool = pool_of(stream);
  if (stream_captures(stream))
    return allocate_in_capture(stream, pool, bytes, address);
  result = capture_check_unsafe();
  if (result != CUDA_SUCCESS)
    return result;
  *address = 0;
  return bytes ? allocate_now(pool, bytes, address) : CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, NULL, hStream);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, NULL, PER_THREAD(hStream));
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  return pool ? allocate(dptr, bytesize, pool, hStream) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  return pool ? allocate(dptr, bytesize, pool, PER_THREAD(hStream)) : CUDA_ERROR_INVALID_VALUE;
}

/* A managed allocation that is no pool's cannot be freed so; a plain one can. */
static CUresult free_check(CUdeviceptr address) {
  struct memory_info info;
  if (!memory_find(address, &info) || info.base != address)
    return CUDA_ERROR_INVALID_VALUE;
  if (info.kind == MEMORY_MANAGED && info.pool == NULL)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (info.kind == MEMORY_HOST && info.pool != NULL)
    return CUDA_SUCCESS;
  return info.kind == MEMORY_MANAGED || info.kind == MEMORY_PLAIN ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_async(CUdeviceptr address, CUstream handle) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || address == 0)
    return result;
  struct work work = {.kind = WORK_FREE, .gpu = stream->context->gpu, .free = {.at = address}};
  result = free_check(address);
  if (result != CUDA_SUCCESS || stream_captures(stream)) /* what a graph frees, each launch of it frees */
    return result == CUDA_SUCCESS ? stream_submit(stream, &work) : result;
  if (!memory_set_leaving(address, true))
    return CUDA_ERROR_INVALID_VALUE;
  result = stream_submit(stream, &work);
  if (result != CUDA_SUCCESS)
    memory_set_leaving(address, false);
  return result;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) { return free_async(dptr, hStream); }
CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return free_async(dptr, PER_THREAD(hStream));
}
