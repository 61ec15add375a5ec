/*
 * ipc.c - handles; the thread that answers those who open them; what this process has opened.
 *
 * A handle is a capability, as the driver's is: who knows it may open it, if the kernel says that it is of
 * this user. What is opened is counted by the process that has made it, and stays while either has it.
 */
#include "memory/ipc.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/abstract_socket.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/wire.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/sharing.h"
#include "memory/swap/blocks.h"
#include "memory/swap/lending.h"
#include "memory/swap/passing.h"

#define HANDLE_MAGIC UINT64_C(0x6370695f75706773)
#define PATIENCE_NS (5 * NS_PER_S) /* with the other process, for each of its packets */
#define ACCEPT_AGAIN_NS (10 * NS_PER_MS)
#define CAPTURES_NS (5 * NS_PER_S) /* how long captures may take to end */
#define WAITING_MOST 64            /* connections that are not accepted yet */

/* What a CUipcMemHandle of ours is. The same allocation always has the same. */
struct ipc_handle {
  uint64_t magic;
  uint64_t number; /* of the socket */
  uint64_t key;
  struct lent_name name;
  uint64_t at, bytes; /* of the allocation, in the block */
};
_Static_assert(sizeof(struct ipc_handle) <= CU_IPC_HANDLE_SIZE, "it fits");

/* The first packet of who opens it. */
struct request {
  uint64_t magic, key;
  struct lent_name name;
};

/* ---- the thread that answers ---- */

static _Atomic uint64_t number, key;
static struct lock lock = LOCK(LOCK_IPC);

/* Where one thread listens, until the program closes it. */
struct desk {
  struct descriptor listening;
  struct abstract_name name;
};

static struct desk desk = {.listening.fd = -1}; /* under the lock: the newest */

static struct abstract_name name_of(uint64_t of) { return (struct abstract_name){"ipc", of}; }

/* False: not within PATIENCE_NS. */
static bool await(const struct descriptor *other, short events) {
  struct pollfd awaited = {.fd = other->fd, .events = events};
  int ready;
  while ((ready = poll(&awaited, 1, (int)(PATIENCE_NS / NS_PER_MS))) < 0 && errno == EINTR)
    ;
  return ready > 0;
}

/* A packet of its own says that there is no more. */
static void answer(const struct descriptor *other, const struct lent_name *name) {
  int err = 0;
  for (size_t i = 0; err == 0;) {
    err = lending_give(name, i, other);
    if (err == -EAGAIN && await(other, POLLOUT))
      err = 0;
    else if (err == 0)
      i++;
  }
  const struct lent_note end = {.error = err};
  if (descriptor_is_ours(other))
    send(other->fd, &end, sizeof end, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void serve(struct descriptor *other) {
  struct request request;
  if (abstract_is_trusted(other, 0) && await(other, POLLIN) && descriptor_is_ours(other) &&
      recv(other->fd, &request, sizeof request, MSG_DONTWAIT) == (ssize_t)sizeof request &&
      request.magic == HANDLE_MAGIC && request.key == atomic_load(&key))
    answer(other, &request.name);
  descriptor_close(other);
}

static void *run(void *argument) {
  struct desk own = *(struct desk *)argument;
  free(argument);
  thread_begin("gpushare-ipc");
  struct pollfd awaited = {.fd = own.listening.fd, .events = POLLIN};
  while (descriptor_is_ours(&own.listening)) {
    if (poll(&awaited, 1, -1) <= 0 || !descriptor_is_ours(&own.listening))
      continue;
    struct descriptor other = abstract_accept(&own.listening, own.name);
    if (other.fd >= 0)
      serve(&other);
    else
      clock_sleep(ACCEPT_AGAIN_NS); /* the program may have no descriptor left */
  }
  return NULL;
}

/* With the lock held. By a new name, as the thread before may have the old one still. */
static bool start(void) {
  struct desk *new = malloc(sizeof *new);
  atomic_store(&number, 0);
  if (!new || !abstract_draw(&key) || !abstract_draw(&number)) {
    free(new);
    return false;
  }
  new->name = name_of(atomic_load(&number));
  new->listening = abstract_listen(new->name, WAITING_MOST);
  desk = *new;
  if (new->listening.fd >= 0 && thread_start(NULL, run, new) == 0)
    return true;
  descriptor_close(&desk.listening);
  free(new);
  return false;
}

static bool answer_from_now_on(void) {
  lock_take(&lock);
  bool there = descriptor_is_ours(&desk.listening) || start();
  lock_release(&lock);
  return there;
}

/* ---- handles ---- */

/* Of what is opened: to be closed, not freed. */
static CUresult free_opened(const struct allocation *taken, bool finished) {
  (void)taken, (void)finished;
  return CUDA_ERROR_INVALID_VALUE;
}

static const struct backend backend_opened = {.hidden = true, .free = free_opened};

bool ipc_can_share(const struct allocation *allocation) {
  return allocation->backend == &backend_swap && allocation->origin == ORIGIN_PLAIN &&
         lending_can(allocation->device);
}

static CUresult refuse(const struct allocation *allocation) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said))
    log_warn(
        "this program shares device memory with other processes (CUDA IPC), which %s does not support: set "
        "GPUSHARE_MEMORY=%s for it",
        allocation->backend == &backend_swap ? "this driver" : "unified memory",
        allocation->backend == &backend_swap ? "off" : "swap");
  return CUDA_ERROR_NOT_SUPPORTED;
}

struct sharing {
  struct extent *extent;
  struct lent_name name;
};

struct quiet {
  struct sharing *sharing;
  CUresult result;
};

static void hold_quiet(void *argument) {
  struct quiet *quiet = argument;
  quiet->result = lending_hold(quiet->sharing->extent, true, &quiet->sharing->name);
}

static CUresult hold(void *argument) {
  struct sharing *sharing = argument;
  CUdevice device = sharing->extent->block->space->device;
  struct quiet quiet = {.sharing = sharing, .result = CUDA_ERROR_INVALID_CONTEXT};
  CUresult result = lending_hold(sharing->extent, false, &sharing->name);
  if (result != CUDA_ERROR_NOT_READY)
    return result;
  result = sharing_finish_work(device, CAPTURES_NS);
  if (result == CUDA_SUCCESS)
    contexts_any(device, hold_quiet, &quiet);
  return result == CUDA_SUCCESS ? quiet.result : result;
}

/* Its free waits meanwhile. */
static CUresult make_handle(CUipcMemHandle *made, const struct allocation *allocation) {
  static _Atomic bool said;
  struct sharing sharing = {.extent = allocation->object};
  CUresult result = sharing_in_turn(allocation->device, hold, &sharing);
  if (result != CUDA_SUCCESS)
    return result;
  struct ipc_handle handle = {.magic = HANDLE_MAGIC,
                              .number = atomic_load(&number),
                              .key = atomic_load(&key),
                              .name = sharing.name,
                              .at = sharing.extent->at,
                              .bytes = allocation->span};
  memset(made, 0, sizeof *made);
  memcpy(made, &handle, sizeof handle);
  if (!atomic_exchange(&said, true))
    log_info("GPU %d: memory that this program shares with other processes stays on the card; they need this "
             "library, too",
             allocation->device);
  return CUDA_SUCCESS;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
  struct allocation found, pinned;
  bool known = ledger_find(&account_addresses, dptr, &found);
  bool ours = known && (allocation_stands_in(&found) || found.backend == &backend_opened);
  if (!ours || !pHandle)
    return driver.cuIpcGetMemHandle(pHandle, dptr);
  if (found.origin != ORIGIN_PLAIN)
    return CUDA_ERROR_INVALID_VALUE; /* as the driver says of all that cuMemAlloc has not made */
  if (!ipc_can_share(&found) || !answer_from_now_on())
    return refuse(&found);
  if (!ledger_pin(&account_addresses, found.base, found.sequence, &pinned))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = make_handle(pHandle, &pinned);
  account_unpin(&pinned, pinned.away_bytes);
  return result;
}

/* ---- what this process has opened ---- */

struct import {
  struct import *next;
  struct ipc_handle handle;
  CUdeviceptr base; /* of the block */
  uint64_t block_bytes, mapped_bytes;
  CUdevice device;
  CUcontext context;
  unsigned references;
};

static struct import *imports; /* under the lock */

static CUdeviceptr address_of(const struct import *import) { return import->base + import->handle.at; }

/* Pieces come in the order of their addresses. */
static void end(struct import *import) {
  if (import->mapped_bytes)
    driver.cuMemUnmap(import->base, import->mapped_bytes);
  if (import->base)
    driver.cuMemAddressFree(import->base, import->block_bytes);
  free(import);
}

static CUresult find_device(struct import *import, CUmemGenericAllocationHandle piece) {
  CUmemAllocationProp properties;
  CUresult result = driver.cuMemGetAllocationPropertiesFromHandle(&properties, piece);
  if (result == CUDA_SUCCESS)
    import->device = properties.location.id;
  return result == CUDA_SUCCESS && !device_valid(import->device) ? CUDA_ERROR_INVALID_DEVICE : result;
}

static bool makes_sense(const struct import *import, const struct lent_note *note) {
  uint64_t allocation_bytes = import->handle.bytes;
  return note->block_bytes % GRAIN_BYTES == 0 && note->bytes % GRAIN_BYTES == 0 && note->bytes &&
         note->at == import->mapped_bytes && note->at < note->block_bytes &&
         note->bytes <= note->block_bytes - note->at && allocation_bytes <= note->block_bytes &&
         import->handle.at <= note->block_bytes - allocation_bytes &&
         (!import->block_bytes || import->block_bytes == note->block_bytes);
}

static CUresult map_piece(struct import *import, const struct lent_note *note,
                          CUmemGenericAllocationHandle piece) {
  CUresult result = import->base ? CUDA_SUCCESS : find_device(import, piece);
  if (result == CUDA_SUCCESS && !import->base) {
    import->block_bytes = note->block_bytes;
    result = driver.cuMemAddressReserve(&import->base, note->block_bytes, 0, 0, 0);
  }
  if (result == CUDA_SUCCESS)
    result = driver.cuMemMap(import->base + note->at, note->bytes, 0, piece, 0);
  if (result == CUDA_SUCCESS)
    import->mapped_bytes += note->bytes;
  return result;
}

static CUresult take_piece(struct import *import, const struct descriptor *other) {
  struct lent_note note;
  CUmemGenericAllocationHandle piece;
  CUresult result;
  if (!await(other, POLLIN))
    return CUDA_ERROR_INVALID_HANDLE;
  ssize_t n = passing_borrow(other, &note, sizeof note, &piece, &result);
  if (result != CUDA_SUCCESS)
    return result;
  result = n == (ssize_t)sizeof note && makes_sense(import, &note) ? map_piece(import, &note, piece)
                                                                   : CUDA_ERROR_INVALID_HANDLE;
  driver.cuMemRelease(piece);
  return result;
}

/* For its own GPU, and that of the context. */
static CUresult open_up(const struct import *import, CUdevice current) {
  CUmemAccessDesc access[2];
  int can = 0;
  for (int i = 0; i < 2; i++)
    access[i] = (CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i ? current : import->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (current != import->device &&
      (driver.cuDeviceCanAccessPeer(&can, current, import->device) != CUDA_SUCCESS || !can))
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return driver.cuMemSetAccess(import->base, import->block_bytes, access, current == import->device ? 1 : 2);
}

static void sleep_until(uint64_t then_ns) {
  uint64_t now_ns = clock_now_ns();
  if (now_ns < then_ns)
    clock_sleep(then_ns - now_ns);
}

static CUresult fetch(struct import *import, CUdevice current) {
  const struct ipc_handle *handle = &import->handle;
  const struct request request = {.magic = HANDLE_MAGIC, .key = handle->key, .name = handle->name};
  uint64_t since_ns = 0, again_ns;
  struct descriptor other;
  while ((other = abstract_connect(name_of(handle->number))).fd < 0 &&
         (again_ns = wire_connect_again_ns(-errno, &since_ns, PATIENCE_NS)))
    sleep_until(again_ns);
  if (other.fd < 0)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (abstract_is_trusted(&other, 0) &&
      send(other.fd, &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof request)
    do
      result = take_piece(import, &other);
    while (result == CUDA_SUCCESS && import->mapped_bytes < import->block_bytes);
  descriptor_close(&other);
  return result == CUDA_SUCCESS ? open_up(import, current) : result;
}

static bool enter(const struct import *import) {
  struct allocation entry = {.base = address_of(import),
                             .span = import->handle.bytes,
                             .backing = BACKING_PINNED,
                             .backend = &backend_opened,
                             .device = import->device,
                             .origin = ORIGIN_OBJECT};
  blocks_note_range(import->base, import->block_bytes);
  return account_add(&account_addresses, &entry) == 0;
}

static void leave(const struct import *import) {
  struct allocation entry;
  account_take(&account_addresses, address_of(import), &entry);
}

/* With the lock held: what the handle is open as already, in this context. */
static struct import *find(const struct ipc_handle *handle, CUcontext context) {
  struct import *import = imports;
  while (import && (import->context != context || memcmp(&import->handle, handle, sizeof *handle) != 0))
    import = import->next;
  return import;
}

static bool reuse(const struct ipc_handle *handle, CUcontext context, CUdeviceptr *address) {
  lock_take(&lock);
  struct import *known = find(handle, context);
  if (known) {
    known->references++;
    *address = address_of(known);
  }
  lock_release(&lock);
  return known != NULL;
}

/* False in *kept: another thread has come first. */
static CUresult list(struct import *import, CUdeviceptr *address, bool *kept) {
  CUresult result = CUDA_SUCCESS;
  lock_take(&lock);
  struct import *known = find(&import->handle, import->context);
  if (known) {
    known->references++;
    *address = address_of(known);
  } else if (enter(import)) {
    import->references = 1;
    import->next = imports;
    imports = import;
    *address = address_of(import);
    *kept = true;
  } else {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  lock_release(&lock);
  return result;
}

static CUresult open_new(CUdeviceptr *address, const struct ipc_handle *handle, CUdevice device,
                         CUcontext context) {
  struct import *import = calloc(1, sizeof *import);
  if (!import)
    return CUDA_ERROR_OUT_OF_MEMORY;
  import->handle = *handle;
  import->context = context;
  bool kept = false;
  CUstreamCaptureMode mode = capture_relax();
  CUresult result = fetch(import, device);
  if (result == CUDA_ERROR_INVALID_HANDLE)
    log_warn(
        "GPU %d: memory of another process can't be opened: that process has ended or freed it, or can't be "
        "reached from this container",
        device);
  if (result == CUDA_SUCCESS)
    result = list(import, address, &kept);
  if (!kept)
    end(import);
  capture_unrelax(mode);
  return result;
}

static CUresult open_handle(CUdeviceptr *address, const CUipcMemHandle *given, unsigned int flags,
                            CUresult (*native)(CUdeviceptr *, CUipcMemHandle, unsigned int)) {
  struct ipc_handle handle;
  CUdevice device;
  CUcontext context;
  memcpy(&handle, given, sizeof handle);
  if (handle.magic != HANDLE_MAGIC || !device_current(&device, &context))
    return native(address, *given, flags);
  if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  if (handle.key && handle.key == atomic_load(&key))
    return CUDA_ERROR_INVALID_CONTEXT; /* as the driver says of a process' own */
  return reuse(&handle, context, address) ? CUDA_SUCCESS : open_new(address, &handle, device, context);
}

CUresult hook_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return open_handle(pdptr, &handle, Flags, driver.cuIpcOpenMemHandle);
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return open_handle(pdptr, &handle, Flags, driver.cuIpcOpenMemHandle_v2);
}

/* ---- ends ---- */

static struct import *ended; /* under the lock: closed, and may be in use still */

static bool is_at(const struct import *import, uint64_t address) { return address_of(import) == address; }
static bool is_of(const struct import *import, uint64_t device) { return import->device == (CUdevice)device; }
static bool is_in(const struct import *import, uint64_t context) {
  return (uintptr_t)import->context == context;
}

/* The first one that fits, out of the list. With the lock held. */
static struct import *take(struct import **list, bool (*fits)(const struct import *, uint64_t),
                           uint64_t what) {
  while (*list && !fits(*list, what))
    list = &(*list)->next;
  struct import *found = *list;
  if (found)
    *list = found->next;
  return found;
}

static struct import *take_ended(CUdevice device) {
  lock_take(&lock);
  struct import *found = take(&ended, is_of, (uint64_t)device);
  lock_release(&lock);
  return found;
}

static struct import *take_in(CUcontext context) {
  lock_take(&lock);
  struct import *found = take(&imports, is_in, (uintptr_t)context);
  if (found)
    leave(found);
  else
    found = take(&ended, is_in, (uintptr_t)context);
  lock_release(&lock);
  return found;
}

/* Once no work uses it, as a free does. Not now, if that would invalidate a capture. */
static void end_all_closed(CUdevice device) {
  gate_await_work(device);
  gate_forbid_stop(device);
  if (sharing_finish_work(device, 0) == CUDA_SUCCESS) {
    CUstreamCaptureMode mode = capture_relax();
    struct import *import;
    while ((import = take_ended(device)))
      end(import);
    capture_unrelax(mode);
  }
  gate_allow_stop();
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr dptr) {
  CUdevice device = 0;
  bool last = false;
  lock_take(&lock);
  struct import *import = imports;
  while (import && !is_at(import, dptr))
    import = import->next;
  if (import && (last = --import->references == 0)) {
    device = import->device;
    leave(take(&imports, is_at, dptr));
    import->next = ended;
    ended = import;
  }
  lock_release(&lock);
  if (last)
    end_all_closed(device);
  return import ? CUDA_SUCCESS : driver.cuIpcCloseMemHandle(dptr);
}

void ipc_context_left(CUcontext context) {
  struct import *import;
  CUstreamCaptureMode mode = capture_relax();
  while ((import = take_in(context)))
    end(import);
  capture_unrelax(mode);
}

static void forget(void) {
  lock = (struct lock)LOCK(LOCK_IPC);
  descriptor_close(&desk.listening);
  atomic_store(&number, 0);
  atomic_store(&key, 0);
  imports = ended = NULL;
}
IN_FORKED_CHILD(forget);
