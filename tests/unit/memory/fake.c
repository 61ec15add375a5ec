/* fake.c - the fake driver: allocations are rows of a table, addresses only count up. */
#include "fake.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "memory/memory.h"
#include "settings.h"

struct fake fake;
struct driver driver;

/* The rest of the library. */

static struct settings set = {.memory = GS_MEMORY_MANAGED, .carry = true};
bool fake_gate_open = true;

const struct settings *settings(void) { return &set; }
void fake_set_memory(int mode) { set.memory = mode; }
void gate_enter_slow(CUstream stream, uint64_t reach, uintptr_t frame) {
  (void)stream, (void)reach, (void)frame;
}
bool gate_try_enter(CUstream stream) {
  (void)stream;
  return fake_gate_open;
}
void gate_link(CUdevice device, CUdevice other, bool linked) {
  if (device == 1 && other == 0)
    fake.linked = linked;
}
bool gate_is_open(CUdevice device) { return device == 0 && fake_gate_open; }
bool gate_in_flight(void) { return false; }
bool contexts_any(CUdevice device, void (*action)(void *argument), void *argument) {
  if (device || fake.no_context)
    return false;
  action(argument);
  return true;
}

bool contexts_each(CUdevice device, bool (*visit)(CUcontext context, void *argument), void *argument) {
  return device || fake.no_context || visit(FAKE_CONTEXT, argument);
}

void contexts_synchronize(CUdevice device) { (void)device; }
void *contexts_hold(CUcontext context) { return context; }
void contexts_let_go(void *held) { (void)held; }

CUdevice contexts_device(CUcontext context) {
  return context == FAKE_CONTEXT || context == FAKE_OTHER_CONTEXT ? 0 : context == FAKE_PEER_CONTEXT ? 1 : -1;
}

unsigned capture_count(void) { return fake.capturing; }
void capture_forbid(void) {}
void capture_allow(void) {}
void capture_wait_begin(void) {}
void capture_wait_end(void) {}
enum streams_state streams_ask(CUdevice device) {
  return device == 0 && (fake.events_pending || fake.streams_busy) ? STREAMS_BUSY : STREAMS_FINISHED;
}
uint64_t streams_generation(void) { return fake.streams_gone; }

struct memory_bounds client_bounds(CUdevice device) {
  (void)device;
  return (struct memory_bounds){.why = GS_REFUSAL_SPENT};
}

static void client_wake(void) {}
void client_order_moves(CUdevice device) { fake.move_orders += device == 0; }
uint64_t client_capacity(CUdevice device) { return device ? 1 : 0; }
bool fake_stopped; /* what the process has submitted to device 0 stands still */
unsigned fake_stops_forbidden;
bool client_is_stopped(CUdevice device) { return device == 0 && fake_stopped; }
uint64_t gate_reached_from(CUdevice device) { return 0 * (uint64_t)device; }
bool capture_wait_none(uint64_t timeout_ns) { return timeout_ns > 0; }
void gate_forbid_stop(CUdevice device) { fake_stops_forbidden += device >= 0; }
void gate_allow_stop(void) { fake_stops_forbidden--; }
uint64_t client_room_bytes(CUdevice device) { return device ? 0 : fake.over_room ? 0 : UINT64_MAX; }
bool client_room_wait(CUdevice device, uint64_t bytes) { return bytes <= client_room_bytes(device); }
bool client_room_await(CUdevice device, uint64_t bytes, uint64_t deadline_ns) {
  fake.room_waits++;
  memory_pinned_arrives(device, bytes);
  return deadline_ns > 0;
}
void client_memory_short(CUdevice device, uint64_t bytes) { (void)device, (void)bytes; }

int client_memory_mode(CUdevice device) {
  fake.mode_questions += device == 0;
  return fake.daemon_memory;
}

int client_memory_request(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes, bool anew,
                          _Atomic uint64_t *seen_ns) {
  (void)device, (void)total_bytes, (void)pinned_bytes, (void)anew, (void)seen_ns;
  return -ENOTCONN;
}

void client_memory_report(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes) {
  (void)device, (void)total_bytes, (void)pinned_bytes;
}

const struct memory_port memory_port = {.mode = client_memory_mode,
                                        .capacity = client_capacity,
                                        .bounds = client_bounds,
                                        .request = client_memory_request,
                                        .report = client_memory_report,
                                        .room_bytes = client_room_bytes,
                                        .room_wait = client_room_wait,
                                        .room_await = client_room_await,
                                        .order_moves = client_order_moves,
                                        .wake_timers = client_wake,
                                        .falls_short = client_memory_short,
                                        .is_stopped = client_is_stopped};

/* Allocations. */

#define ROWS 4096
#define PAGE FAKE_PAGE_BYTES
#define FAKE_EVENT 0x1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  uint64_t base, bytes;
  enum fake_kind kind;
  bool *away; /* per page */
} rows[ROWS];
static uint64_t next_base = UINT64_C(0x700000000000);

static CUresult alloc(CUdeviceptr *address, size_t bytes, enum fake_kind kind) {
  if (!address || !bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (fake.refuse_alloc)
    return fake.refuse_alloc;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < ROWS && result; i++)
    if (!rows[i].kind) {
      rows[i].base = *address = next_base;
      rows[i].bytes = bytes;
      rows[i].kind = kind;
      rows[i].away = calloc(bytes / PAGE + 1, sizeof(bool));
      next_base += (bytes + 511) / 512 * 512;
      result = CUDA_SUCCESS;
    }
  pthread_mutex_unlock(&lock);
  return result;
}

uint64_t fake_new_range(uint64_t bytes) {
  uint64_t base = (next_base + PAGE - 1) / PAGE * PAGE;
  next_base = base + bytes;
  return base;
}

static int find(CUdeviceptr address) {
  for (int i = 0; i < ROWS; i++)
    if (rows[i].kind && address >= rows[i].base && address - rows[i].base < rows[i].bytes)
      return i;
  return -1;
}

enum fake_kind fake_kind(CUdeviceptr address) {
  pthread_mutex_lock(&lock);
  int i = find(address);
  enum fake_kind kind = i < 0 ? FAKE_NONE : rows[i].kind;
  pthread_mutex_unlock(&lock);
  return kind;
}

/* Move a range, if it is all one living allocation of unified memory. */
static CUresult move(CUdeviceptr address, size_t bytes, bool away) {
  pthread_mutex_lock(&lock);
  int i = find(address);
  bool one = i >= 0 && i == find(address + bytes - 1) &&
             (rows[i].kind == FAKE_MANAGED || rows[i].kind == FAKE_MANAGED_POOL);
  if (one)
    for (uint64_t at = address - rows[i].base; at < address - rows[i].base + bytes; at += PAGE)
      rows[i].away[at / PAGE] = away;
  pthread_mutex_unlock(&lock);
  return one ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

unsigned fake_live(void) {
  unsigned live = 0;
  for (int i = 0; i < ROWS; i++)
    live += rows[i].kind != FAKE_NONE;
  return live;
}

static void drop(int i) {
  rows[i].kind = FAKE_NONE;
  free(rows[i].away);
  rows[i].away = NULL;
}

bool fake_is_away(CUdeviceptr address) {
  int i = find(address);
  return i >= 0 && rows[i].away[(address - rows[i].base) / PAGE];
}

uint64_t fake_away_bytes(void) {
  uint64_t bytes = 0;
  for (int i = 0; i < ROWS; i++)
    for (uint64_t at = 0; rows[i].kind && at < rows[i].bytes; at += PAGE)
      if (rows[i].away[at / PAGE])
        bytes += rows[i].bytes - at < PAGE ? rows[i].bytes - at : PAGE;
  return bytes;
}

static CUresult release(CUdeviceptr address) {
  if (fake.refuse_free)
    return fake.refuse_free;
  pthread_mutex_lock(&lock);
  int i = find(address);
  CUresult result = i >= 0 && rows[i].base == address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    drop(i);
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult fake_alloc(CUdeviceptr *dptr, size_t bytes) {
  fake.plain_allocs++;
  return alloc(dptr, bytes, FAKE_DEVICE);
}

static CUresult fake_alloc_pitch(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                                 unsigned element) {
  fake.plain_allocs++;
  if (!dptr || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
    return CUDA_ERROR_INVALID_VALUE;
  *pitch = (width + 511) / 512 * 512;
  return alloc(dptr, *pitch * height, FAKE_DEVICE);
}

static CUresult fake_alloc_managed(CUdeviceptr *dptr, size_t bytes, unsigned flags) {
  fake.managed_allocs++;
  return flags == CU_MEM_ATTACH_GLOBAL ? alloc(dptr, bytes, FAKE_MANAGED) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_free(CUdeviceptr address) {
  __atomic_fetch_add(&fake.frees, 1, __ATOMIC_RELAXED);
  return address ? release(address) : CUDA_SUCCESS;
}

static __thread CUstreamCaptureMode mode;

CUstreamCaptureMode fake_mode(void) { return mode; }

/* Calls of the library's own must leave captures alone. */
static void note_own_call(void) { fake.strict_calls += mode != CU_STREAM_CAPTURE_MODE_RELAXED; }

static CUresult fake_advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
  (void)bytes, (void)device;
  note_own_call();
  fake.advices += advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
  return fake_kind(address) == FAKE_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult fake_prefetch(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
  if (fake.on_prefetch)
    fake.on_prefetch();
  if (fake.refuse_prefetch)
    return fake.refuse_prefetch;
  if (move(address, bytes, device == CU_DEVICE_CPU) != CUDA_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  fake.last_stream = stream;
  *(device == CU_DEVICE_CPU ? &fake.prefetches_out : &fake.prefetches_in) += 1;
  *(device == CU_DEVICE_CPU ? &fake.bytes_out : &fake.bytes_in) += bytes;
  return CUDA_SUCCESS;
}

static CUresult fake_prefetch_batch(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *to,
                                    size_t *first, size_t locations, unsigned long long flags,
                                    CUstream stream) {
  if (locations != 1 || *first || flags || to->type != CU_MEM_LOCATION_TYPE_DEVICE || fake.refuse_batch)
    return CUDA_ERROR_INVALID_VALUE;
  fake.batches++;
  for (size_t i = 0; i < count; i++)
    if (fake_prefetch(addresses[i], sizes[i], to->id, stream) != CUDA_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* Pools. */

static struct {
  CUmemoryPool handle;
  bool managed, destroyed;
  cuuint64_t threshold;
  int follows;
} pools[16];
static CUmemoryPool current_pool = FAKE_DEFAULT_POOL;

static bool is_managed(CUmemoryPool pool) {
  for (int i = 0; i < 16; i++)
    if (pools[i].handle == pool)
      return pools[i].managed;
  return false;
}

static CUresult fake_pool_create(CUmemoryPool *pool, const CUmemPoolProps *props) {
  bool managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (managed && fake.no_managed_pools)
    return CUDA_ERROR_INVALID_VALUE;
  fake.created_type = props->allocType;
  unsigned i = fake.pool_creates++;
  pools[i].handle = *pool = (CUmemoryPool)(uintptr_t)(0x300 + i);
  pools[i].managed = managed;
  return CUDA_SUCCESS;
}

static CUresult fake_pool_destroy(CUmemoryPool pool) {
  if (pool == FAKE_DEFAULT_POOL || pool == FAKE_UNIFIED_POOL)
    return CUDA_ERROR_INVALID_VALUE;
  if (pool == current_pool)
    current_pool = FAKE_DEFAULT_POOL;
  for (int i = 0; i < 16; i++)
    if (pools[i].handle == pool)
      pools[i].destroyed = true;
  return CUDA_SUCCESS;
}

static CUresult fake_default_pool(CUmemoryPool *pool, CUdevice device) {
  *pool = FAKE_DEFAULT_POOL;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_get_pool(CUmemoryPool *pool, CUdevice device) {
  *pool = current_pool;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* A managed pool becomes the current one for unified memory, which is another. */
static CUresult fake_set_pool(CUdevice device, CUmemoryPool pool) {
  if (!is_managed(pool))
    current_pool = pool;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

cuuint64_t fake_threshold(CUmemoryPool pool) {
  for (int i = 0; i < 16; i++)
    if (pools[i].handle == pool)
      return pools[i].threshold;
  return 0;
}

int fake_follows(CUmemoryPool pool) {
  for (int i = 0; i < 16; i++)
    if (pools[i].handle == pool)
      return pools[i].follows;
  return -1;
}

bool fake_pool_destroyed(CUmemoryPool pool) {
  for (int i = 0; i < 16; i++)
    if (pools[i].handle == pool)
      return pools[i].destroyed;
  return false;
}

static CUresult fake_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  switch (attribute) {
  case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    *(cuuint64_t *)value = fake.reserved_bytes;
    return CUDA_SUCCESS;
  case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    *(cuuint64_t *)value = fake.used_bytes;
    return CUDA_SUCCESS;
  case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    *(cuuint64_t *)value = fake_threshold(pool);
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

static CUresult fake_set_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  for (int i = 0; i < 16; i++)
    if (pools[i].handle == pool && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
      pools[i].threshold = *(cuuint64_t *)value;
    else if (pools[i].handle == pool && attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)
      pools[i].follows = *(int *)value;
  return CUDA_SUCCESS;
}

static CUresult fake_default_pool_of(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
  *pool = type == CU_MEM_ALLOCATION_TYPE_MANAGED ? FAKE_UNIFIED_POOL : FAKE_DEFAULT_POOL;
  return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_trim(CUmemoryPool pool, size_t keep) {
  (void)keep;
  fake.trims++;
  if (fake.on_trim)
    fake.on_trim(pool);
  for (int i = 0; i < 16; i++)
    fake.uses_of_dead += pools[i].handle == pool && pools[i].destroyed;
  return CUDA_SUCCESS;
}

static CUresult fake_alloc_from_pool(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  fake.pool_allocs++;
  fake.last_pool = pool;
  fake.last_stream = stream;
  if (!bytes) {
    *dptr = 0;
    return CUDA_SUCCESS;
  }
  return alloc(dptr, bytes, is_managed(pool) ? FAKE_MANAGED_POOL : FAKE_POOL);
}

static CUresult fake_alloc_async(CUdeviceptr *dptr, size_t bytes, CUstream stream) {
  return fake_alloc_from_pool(dptr, bytes, current_pool, stream);
}

static CUresult fake_free_async(CUdeviceptr address, CUstream stream) {
  fake.stream_frees++;
  fake.last_stream = stream;
  return fake_kind(address) == FAKE_MANAGED ? CUDA_ERROR_NOT_SUPPORTED : release(address);
}

/* Streams, events, context, device. An event tells its context by its handle. */

static __thread CUcontext pushed; /* one level deep */

static CUcontext current_context(void) { return pushed ? pushed : FAKE_CONTEXT; }

static CUcontext context_of(CUstream stream) {
  if (stream == FAKE_OTHER_STREAM)
    return FAKE_OTHER_CONTEXT;
  bool is_handle = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  return is_handle ? FAKE_CONTEXT : current_context();
}

static CUresult fake_stream_context(CUstream stream, CUcontext *context) {
  *context = context_of(stream);
  return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext context) {
  pushed = context;
  return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *context) {
  *context = pushed;
  pushed = NULL;
  return CUDA_SUCCESS;
}

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *status) {
  (void)stream;
  *status = fake.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

static CUresult fake_exchange_mode(CUstreamCaptureMode *other) {
  CUstreamCaptureMode old = mode;
  mode = *other;
  *other = old;
  return CUDA_SUCCESS;
}

static CUresult fake_stream_create(CUstream *stream, unsigned flags) {
  *stream = (CUstream)0x400;
  return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_stream_destroy(CUstream stream) {
  return stream == (CUstream)0x400 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_stream_synchronize(CUstream stream) {
  (void)stream;
  note_own_call();
  fake.synchronizations++;
  return CUDA_SUCCESS;
}

static CUresult fake_event_create(CUevent *event, unsigned flags) {
  (void)flags;
  fake.events++;
  *event = (CUevent)((uintptr_t)current_context() + FAKE_EVENT);
  return CUDA_SUCCESS;
}

static CUcontext context_of_event(CUevent event) { return (CUcontext)((uintptr_t)event - FAKE_EVENT); }

static CUresult fake_event_record(CUevent event, CUstream stream) {
  fake.last_stream = stream;
  return context_of_event(event) == context_of(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_event_query(CUevent event) {
  CUcontext context = context_of_event(event);
  note_own_call();
  if (fake.on_query)
    fake.on_query();
  fake.uses_of_dead += context == FAKE_OTHER_CONTEXT && fake.other_context_dead;
  return fake.events_pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fake_event_done(CUevent event) {
  (void)event;
  return CUDA_SUCCESS;
}

static CUresult fake_priorities(int *least, int *greatest) {
  (void)least, (void)greatest;
  return CUDA_SUCCESS;
}

static CUresult fake_get_device(CUdevice *device) {
  *device = fake.current_device;
  return fake.no_context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult fake_get_current(CUcontext *context) {
  *context = current_context();
  return CUDA_SUCCESS;
}

static CUresult fake_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  (void)device;
  *value = attribute == CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT ? 512
           : attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
               ? !fake.no_mapping
               : !fake.no_concurrent_access;
  return CUDA_SUCCESS;
}

/* Without GPUs that can be counted, nothing small is mapped in place of unified memory. */
static CUresult fake_count(int *count) {
  *count = fake.gpus;
  return fake.gpus ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult fake_can_access(int *can, CUdevice device, CUdevice peer) {
  (void)device, (void)peer;
  *can = !fake.no_peers;
  return CUDA_SUCCESS;
}

static CUresult fake_total(size_t *bytes, CUdevice device) {
  *bytes = FAKE_CARD_BYTES;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_info(size_t *left, size_t *total) {
  *left = FAKE_CARD_BYTES / 2; /* others use the rest */
  *total = FAKE_CARD_BYTES;
  return CUDA_SUCCESS;
}

static CUresult fake_info_old(unsigned *left, unsigned *total) {
  *left = *total = 0;
  return CUDA_SUCCESS;
}

static CUresult fake_pointer(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
  fake.pointer_questions++;
  enum fake_kind kind = fake_kind(address);
  bool managed = kind == FAKE_MANAGED || kind == FAKE_MANAGED_POOL;
  if (!kind)
    return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED || attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    *(unsigned *)data = managed;
  else if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && managed)
    *(CUdeviceptr *)data = address;
  else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
    *(CUdeviceptr *)data = address;
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult fake_pointers(unsigned count, CUpointer_attribute *attributes, void **data,
                              CUdeviceptr address) {
  for (unsigned i = 0; i < count; i++)
    if (fake_pointer(data[i], attributes[i], address) != CUDA_SUCCESS)
      *(void **)data[i] = NULL;
  return CUDA_SUCCESS;
}

static CUresult fake_set_pointer(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  bool settable = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && fake_kind(address);
  return settable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  (void)base, (void)bytes, (void)address;
  return CUDA_ERROR_NOT_FOUND; /* pieces that are away */
}

static CUresult fake_access(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
  (void)flags, (void)location, (void)address;
  return CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_share_range(void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                                 unsigned long long flags) {
  (void)handle, (void)bytes, (void)type, (void)flags;
  return fake_kind(address) == FAKE_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_ipc(CUipcMemHandle *handle, CUdeviceptr address) {
  (void)handle;
  return fake_kind(address) == FAKE_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_synchronize(void) {
  note_own_call();
  fake.context_synchronizations++;
  return CUDA_SUCCESS;
}

void fake_install(void) {
  driver = (struct driver){
      .cuMemAlloc_v2 = fake_alloc,
      .cuMemAllocPitch_v2 = fake_alloc_pitch,
      .cuMemAllocManaged = fake_alloc_managed,
      .cuMemFree_v2 = fake_free,
      .cuMemAdvise = fake_advise,
      .cuMemPrefetchAsync = fake_prefetch,
      .cuMemPrefetchBatchAsync = fake_prefetch_batch,
      .cuMemPoolCreate = fake_pool_create,
      .cuMemPoolDestroy = fake_pool_destroy,
      .cuDeviceGetDefaultMemPool = fake_default_pool,
      .cuDeviceGetMemPool = fake_get_pool,
      .cuDeviceSetMemPool = fake_set_pool,
      .cuMemPoolGetAttribute = fake_pool_attribute,
      .cuMemPoolSetAttribute = fake_set_pool_attribute,
      .cuMemGetDefaultMemPool = fake_default_pool_of,
      .cuMemPoolTrimTo = fake_trim,
      .cuMemAllocAsync = fake_alloc_async,
      .cuMemAllocFromPoolAsync = fake_alloc_from_pool,
      .cuMemFreeAsync = fake_free_async,
      .cuStreamGetCtx = fake_stream_context,
      .cuStreamIsCapturing = fake_is_capturing,
      .cuThreadExchangeStreamCaptureMode = fake_exchange_mode,
      .cuStreamCreate = fake_stream_create,
      .cuStreamDestroy_v2 = fake_stream_destroy,
      .cuStreamSynchronize = fake_stream_synchronize,
      .cuEventCreate = fake_event_create,
      .cuEventRecord = fake_event_record,
      .cuEventQuery = fake_event_query,
      .cuEventSynchronize = fake_event_done,
      .cuEventDestroy_v2 = fake_event_done,
      .cuCtxGetDevice = fake_get_device,
      .cuCtxGetStreamPriorityRange = fake_priorities,
      .cuCtxGetCurrent = fake_get_current,
      .cuCtxPushCurrent_v2 = fake_push,
      .cuCtxPopCurrent_v2 = fake_pop,
      .cuDeviceGetAttribute = fake_attribute,
      .cuDeviceGetCount = fake_count,
      .cuDeviceCanAccessPeer = fake_can_access,
      .cuDeviceTotalMem_v2 = fake_total,
      .cuMemGetInfo_v2 = fake_info,
      .cuMemGetInfo = fake_info_old,
      .cuPointerGetAttribute = fake_pointer,
      .cuPointerGetAttributes = fake_pointers,
      .cuPointerSetAttribute = fake_set_pointer,
      .cuIpcGetMemHandle = fake_ipc,
      .cuCtxSynchronize = fake_synchronize,
      .cuMemGetAddressRange_v2 = fake_range,
      .cuMemGetAccess = fake_access,
      .cuMemGetHandleForAddressRange = fake_share_range,
  };
  fake_install_physical();
}
