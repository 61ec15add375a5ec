/*
 * opened.c - opening, making way and coming back, ends. The processes learn of each other's ends by the lease
 * (swap/leases.h).
 */
#include "memory/opened.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/abstract_socket.h"
#include "common/clock.h"
#include "common/condition.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/wire.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "memory/account.h"
#include "memory/forked.h"
#include "memory/memory_port.h"
#include "memory/pinned.h"
#include "memory/sharing.h"
#include "memory/swap/blocks.h"
#include "memory/swap/leases.h"
#include "memory/swap/passing.h"

#define PATIENCE_NS (10 * NS_PER_S) /* with the process that has made the memory, for each of its packets */
#define FOREVER_NS UINT64_MAX
#define TURNS_MOST 20
#define MOMENT_NS NS_PER_MS /* for which the worker waits in a step */

bool ipc_await(const struct descriptor *other, short events, uint64_t patience_ns) {
  struct pollfd awaited = {.fd = other->fd, .events = events};
  int ready, patience_ms = patience_ns == FOREVER_NS ? -1 : (int)(patience_ns / NS_PER_MS);
  while ((ready = poll(&awaited, 1, patience_ms)) < 0 && errno == EINTR)
    ;
  return ready > 0;
}

static struct ipc_request request_of(const struct ipc_handle *handle, bool user) {
  return (struct ipc_request){
      .magic = user ? IPC_MAGIC_USER : IPC_MAGIC, .key = handle->key, .name = handle->name};
}

/* ---- what there is ---- */

/* Of a user's memory. */
enum where {
  HERE,
  ASKING,  /* mapped: the maker is asked whether it may leave */
  PARTING, /* unmapped: the maker has yet to say that its room is free */
  AWAY,
  COMING, /* it is being mapped again */
};

struct import {
  struct import *next;
  struct ipc_handle handle;
  CUdeviceptr base; /* of the block */
  uint64_t block_bytes, mapped_bytes;
  CUdevice device, opener; /* the memory's, and that of the context */
  CUcontext context;
  unsigned references;     /* 0: it is closed, and may be in use still */
  struct descriptor lease; /* fd is -1: there is none, or it has ended */
  bool orphan;             /* it has ended */
  bool user;               /* it makes way: its block counts as memory that can leave */
  enum where where;        /* if it does; else HERE: otherwise `lease` is the worker's */
  bool lost;               /* it is mapped nowhere */
  bool moves;              /* the worker is at it: only that changes it, or ends it */
  uint64_t round;          /* the first look at what is closed that has met it; 0: none */
  bool counts;             /* the bytes of its block are booked, for all imports of the block */
};

static struct lock lock = LOCK(LOCK_IPC);
static struct import *imports;                /* under the lock */
static struct condition moved;                /* the worker has moved one, or may again */
static unsigned enders;                       /* under the lock: threads for which it waits */
static _Atomic uint64_t users_bytes[DEVICES]; /* of those that make way; on the card: account_opened_bytes */
static bool is_open[DEVICES], is_dead[DEVICES]; /* under the lock */
static void (*_Atomic watch)(void);

void opened_set_watch(void (*by)(void)) { atomic_store(&watch, by); }

static void call_watch(void) {
  void (*by)(void) = atomic_load(&watch);
  if (by)
    by();
}

static uint64_t resident_bytes(CUdevice device) { return account_opened_bytes(device); }

static bool is_there(const struct import *import) { return import->where != AWAY; }

/* With the lock held. */
static void put(struct import *import, enum where where) {
  if (import->user && is_there(import))
    account_opened(import->device, -import->block_bytes);
  import->where = where;
  if (import->user && is_there(import))
    account_opened(import->device, import->block_bytes);
}

/* With the lock held. The caller sees to the books. */
static void stop_making_way(struct import *import) {
  put(import, AWAY);
  atomic_fetch_sub(&users_bytes[import->device], import->block_bytes);
  import->user = false;
  import->where = HERE;
}

/* Of so many bytes that are about to come, and of which no import is listed yet. */
static void count_coming(CUdevice device, uint64_t bytes) {
  atomic_fetch_add(&users_bytes[device], bytes);
  account_opened(device, bytes);
}

static bool is_same_block(const struct import *import, const struct import *other) {
  const struct ipc_handle *handle = &import->handle, *like = &other->handle;
  return handle->number == like->number && handle->name.name == like->name.name &&
         handle->name.space == like->name.space;
}

/* With the lock held: one that counts the same block, NULL: none does. */
static struct import *find_counting(const struct import *like) {
  struct import *import = imports;
  while (import && (!import->counts || !is_same_block(import, like)))
    import = import->next;
  return import;
}

/* With the lock held: an orphan whose block nobody counts, or NULL. */
static struct import *find_uncounted(void) {
  struct import *import = imports;
  while (import && (!import->orphan || find_counting(import)))
    import = import->next;
  return import;
}

/* The bytes of the block are booked: for an import of it, unless there is none any more, or one counts
 * already. */
static void pass_count(const struct import *of) {
  lock_take(&lock);
  struct import *import = imports;
  while (import && !is_same_block(import, of))
    import = import->next;
  bool counts = import && !find_counting(import);
  if (counts)
    import->counts = true;
  lock_release(&lock);
  if (!counts)
    budget_release(of->device, BACKING_PINNED_SHARED, of->block_bytes);
}

/* The bytes are booked without the lock, as the daemon may have to be told. Meanwhile the import may end. */
static bool count_one(uint64_t *noted) {
  struct import seen;
  lock_take(&lock);
  struct import *import = find_uncounted();
  if (import)
    seen = *import;
  lock_release(&lock);
  if (!import)
    return false;
  log_info(
      "GPU %d: the process that has made %llu bytes which this program has opened has ended: they count here "
      "from now on",
      seen.device, (unsigned long long)seen.block_bytes);
  budget_note(seen.device, BACKING_PINNED_SHARED, seen.block_bytes);
  *noted |= UINT64_C(1) << seen.device;
  pass_count(&seen);
  return true;
}

/* Bytes that are to be given back without the lock. */
struct refund {
  uint64_t bytes[DEVICES];
};

/* The maker sends nothing: what can be read is the end. What the program has closed tells nothing: the maker
 * counts that as pinned until this process ends. */
static void look_at(struct import *import, struct refund *refund) {
  if (import->where != HERE || import->moves)
    return;
  bool ours = descriptor_is_ours(&import->lease);
  if (ours && recv(import->lease.fd, &(char){0}, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN)
    return;
  if (ours)
    descriptor_hang_up(&import->lease);
  import->lease = DESCRIPTOR_NONE;
  import->orphan |= ours;
  refund->bytes[import->device] += import->user ? import->block_bytes : 0;
  if (import->user)
    stop_making_way(import);
}

void opened_look(uint64_t *noted) {
  struct refund refund = {{0}};
  lock_take(&lock);
  for (struct import *import = imports; import; import = import->next)
    look_at(import, &refund);
  lock_release(&lock);
  while (count_one(noted))
    ;
  for (CUdevice device = 0; device < DEVICES; device++)
    budget_release(device, BACKING_SWAP, refund.bytes[device]);
}

nfds_t opened_leases(struct pollfd *awaited, nfds_t most) {
  nfds_t count = 0;
  lock_take(&lock);
  for (const struct import *import = imports; import && count < most; import = import->next)
    if (import->where == HERE && import->lease.fd >= 0)
      awaited[count++] = (struct pollfd){.fd = import->lease.fd, .events = POLLIN};
  lock_release(&lock);
  return count;
}

/* ---- what this process opens ---- */

/* It is to be closed, not freed. */
static CUresult free_opened(const struct allocation *taken, bool finished) {
  (void)taken, (void)finished;
  return CUDA_ERROR_INVALID_VALUE;
}

static CUdeviceptr address_of(const struct import *import) { return import->base + import->handle.at; }

/* Pieces come in the order of their addresses. */
static CUresult unmap(struct import *import) {
  CUresult result =
      import->mapped_bytes ? driver.cuMemUnmap(import->base, import->mapped_bytes) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS)
    import->mapped_bytes = 0;
  return result;
}

static void end(struct import *import) {
  unmap(import);
  if (import->base)
    driver.cuMemAddressFree(import->base, import->block_bytes);
  if (import->counts) /* it is in no list any more */
    pass_count(import);
  if (import->user) {
    stop_making_way(import);
    budget_release(import->device, BACKING_SWAP, import->block_bytes);
  }
  lease_close(&import->lease);
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

/* The maker must have its turn, which may be long after. An open capture may keep it from that. */
static bool await_turn(const struct descriptor *other) {
  log_info(
      "memory of another process is opened: it may have left the card, so this waits for the turn of that "
      "process");
  if (ipc_await(other, POLLIN, PATIENCE_NS))
    return true;
  if (capture_count())
    return false;
  log_warn("memory of process %d is opened, and has left the card: this waits for the turn of that process",
           (int)abstract_other(other));
  return ipc_await(other, POLLIN, FOREVER_NS);
}

/* From the maker: *said is its byte, or -1 if a piece has come, or nothing that makes sense. */
static CUresult take_packet(struct import *import, const struct descriptor *maker, int *said) {
  struct lent_note note;
  CUmemGenericAllocationHandle piece;
  CUresult result;
  ssize_t n = passing_borrow(maker, &note, sizeof note, &piece, &result);
  *said = n == 1 ? *(const unsigned char *)&note : -1;
  if (result != CUDA_SUCCESS)
    return result;
  result = n == (ssize_t)sizeof note && makes_sense(import, &note) ? map_piece(import, &note, piece)
                                                                   : CUDA_ERROR_INVALID_HANDLE;
  driver.cuMemRelease(piece);
  return result;
}

static CUresult take_piece(struct import *import, const struct descriptor *other) {
  CUresult result;
  int said = -1;
  do {
    if (!(said >= 0 ? await_turn(other) : ipc_await(other, POLLIN, PATIENCE_NS)))
      return CUDA_ERROR_INVALID_HANDLE;
    result = take_packet(import, other, &said);
  } while (said >= 0); /* the maker says so that it takes longer */
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

/* All pieces have come. An older library ends the connection at once. */
static bool take_lease(struct import *import, struct descriptor *maker, bool user) {
  char byte;
  if (!ipc_await(maker, POLLIN, PATIENCE_NS) || !descriptor_is_ours(maker) ||
      recv(maker->fd, &byte, 1, MSG_DONTWAIT) != 1 || (byte == LEASE_OF_USER) != user ||
      !descriptor_may_stay(maker, DESCRIPTOR_LEASE))
    return false;
  import->lease = *maker;
  *maker = DESCRIPTOR_NONE;
  return true;
}

static void sleep_until(uint64_t then_ns) {
  uint64_t now_ns = clock_now_ns();
  if (now_ns < then_ns)
    clock_sleep(then_ns - now_ns);
}

static CUresult fetch(struct import *import, CUdevice current, bool user) {
  const struct ipc_handle *handle = &import->handle;
  const struct ipc_request request = request_of(handle, user);
  uint64_t since_ns = 0, again_ns;
  struct descriptor other;
  while ((other = abstract_connect(ipc_name(handle->number))).fd < 0 &&
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
  if (result != CUDA_SUCCESS) {
    import->lease = other; /* what has come is closed */
    return result;
  }
  bool leased = take_lease(import, &other, user);
  if (!leased && user) {
    import->lease = other; /* the maker may have kept it */
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  descriptor_hang_up(&other);
  return open_up(import, current);
}

/* What has come goes. */
static void begin_anew(struct import *import) {
  unmap(import);
  if (import->base)
    driver.cuMemAddressFree(import->base, import->block_bytes);
  import->base = 0;
  import->mapped_bytes = import->block_bytes = 0;
  lease_close(&import->lease);
}

/* As for new memory: in a turn, once there is room. False: turns end too soon for that. */
static bool await_room(CUdevice device, uint64_t bytes) {
  for (unsigned tries = 0; tries < TURNS_MOST; tries++) {
    uint64_t unified = device_can_page(device) ? 0 : account_unified_bytes(device);
    uint64_t there =
        budget_pinned_bytes(device) + backend_swap.resident_bytes(device) + resident_bytes(device) + unified;
    if (there + bytes <= memory_port.room_bytes(device))
      return true;
    gate_enter_reaching(NULL, sharing_devices(device));
    gate_leave();
    if (memory_port.room_wait(device, there + bytes))
      return true;
  }
  return false;
}

/* Not where all of its memory would page, or stay. */
static CUresult fetch_as_user(struct import *import, CUdevice current) {
  uint64_t bytes = (import->handle.bytes + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;
  if (bytes < LENDING_USER_BYTES || backend_on(current) != &backend_swap ||
      reserve_or_trim(current, BACKING_SWAP, bytes) < 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = await_room(current, bytes) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  count_coming(current, bytes);
  if (result == CUDA_SUCCESS)
    result = fetch(import, current, true);
  if (result == CUDA_SUCCESS && import->device == current && import->block_bytes == bytes) {
    import->user = true; /* HERE */
    return CUDA_SUCCESS;
  }
  count_coming(current, -bytes);
  begin_anew(import);
  budget_release(current, BACKING_SWAP, bytes);
  return CUDA_ERROR_NOT_SUPPORTED;
}

static bool enter(const struct import *import) {
  struct allocation entry = {.base = address_of(import),
                             .span = import->handle.bytes,
                             .backing = BACKING_PINNED_SHARED,
                             .backend = &backend_opened,
                             .context = import->context,
                             .device = import->device,
                             .origin = ORIGIN_OBJECT,
                             .stays = !import->user};
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
  while (import && (!import->references || import->lost || import->context != context ||
                    memcmp(&import->handle, handle, sizeof *handle) != 0))
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

/* False in *kept: another thread has come first. The entry is made without the lock: one in its way may have
 * to be told of to the daemon. */
static CUresult list(struct import *import, CUdeviceptr *address, bool *kept) {
  if (!enter(import))
    return CUDA_ERROR_OUT_OF_MEMORY;
  lock_take(&lock);
  struct import *known = find(&import->handle, import->context);
  *kept = !known;
  if (!known) {
    import->next = imports;
    imports = known = import;
  }
  known->references++;
  *address = address_of(known);
  lock_release(&lock);
  if (!*kept)
    leave(import);
  return CUDA_SUCCESS;
}

static CUresult open_new(CUdeviceptr *address, const struct ipc_handle *handle, CUdevice device,
                         CUcontext context) {
  struct import *import = calloc(1, sizeof *import);
  if (!import)
    return CUDA_ERROR_OUT_OF_MEMORY;
  import->handle = *handle;
  import->context = context;
  import->opener = device;
  import->lease = DESCRIPTOR_NONE;
  bool kept = false;
  CUstreamCaptureMode mode = capture_relax();
  CUresult result = fetch_as_user(import, device);
  if (result != CUDA_SUCCESS)
    result = fetch(import, device, false);
  if (result == CUDA_ERROR_INVALID_HANDLE)
    log_warn("GPU %d: memory of another process can't be opened: that process has ended or freed it, has no "
             "room for it "
             "(its log says why), or can't be reached from this container",
             device);
  if (result == CUDA_SUCCESS)
    result = list(import, address, &kept);
  if (!kept)
    end(import);
  else
    call_watch();
  if (opened_makes_way(device))
    memory_port.order_moves(device);
  capture_unrelax(mode);
  return result;
}

/* ---- making way ---- */

static bool opened_may_leave(const struct import *import) {
  return import->where == HERE && import->lease.fd >= 0;
}

/* With the lock held: what the worker is to do. NULL: nothing. */
static struct import *next_step(CUdevice device, uint64_t room_bytes) {
  uint64_t here = resident_bytes(device);
  struct import *next = NULL;
  for (struct import *import = imports; import; import = import->next) {
    if (!import->user || import->device != device)
      continue;
    if (import->where != HERE && import->where != AWAY)
      return import;
    if (here > room_bytes ? opened_may_leave(import)
                          : import->where == AWAY && here + import->block_bytes <= room_bytes)
      next = next ? next : import;
  }
  return next;
}

static void put_locked(struct import *import, enum where where) {
  lock_take(&lock);
  put(import, where);
  lock_release(&lock);
}

/* What the maker says, within a moment: 1; 0: it has ended, -1: nothing yet. */
static int hear(const struct descriptor *maker, char *byte) {
  if (!descriptor_is_ours(maker))
    return 0;
  if (!ipc_await(maker, POLLIN, MOMENT_NS))
    return -1;
  ssize_t n = recv(maker->fd, byte, 1, MSG_DONTWAIT);
  return n > 0 ? 1 : n < 0 && errno == EAGAIN ? -1 : 0;
}

/* If the maker has ended, the memory is an orphan, and stays. */
static void ask_to_part(struct import *import, bool leaves) {
  char byte;
  int heard = hear(&import->lease, &byte);
  if (heard < 0)
    return;
  bool parts = heard > 0 && byte == LEASE_MAY_PART && leaves && unmap(import) == CUDA_SUCCESS;
  if (parts)
    lease_say(&import->lease, LEASE_HAS_PARTED);
  put_locked(import, parts ? PARTING : HERE);
  call_watch();
}

static void part(struct import *import, bool leaves, struct memory_moved *moved_bytes) {
  char byte;
  if (leaves && hear(&import->lease, &byte) != 0)
    return;
  descriptor_hang_up(&import->lease);
  put_locked(import, AWAY);
  moved_bytes->spared_bytes += import->block_bytes;
  moved_bytes->clean_bytes += import->block_bytes;
}

/* Work that touches it fails, as it does where memory was freed. */
static void lose(struct import *import) {
  log_error(
      "GPU %d: %llu bytes of another process that this program has opened are gone: that process has ended, "
      "or has freed them",
      import->device, (unsigned long long)import->block_bytes);
  unmap(import);
  import->mapped_bytes = 0; /* should that fail, the driver is at its end */
  descriptor_hang_up(&import->lease);
  lock_take(&lock);
  stop_making_way(import);
  import->lost = true;
  lock_release(&lock);
  budget_release(import->device, BACKING_SWAP, import->block_bytes);
}

static void come(struct import *import) {
  const struct ipc_request request = request_of(&import->handle, true);
  struct descriptor maker = abstract_connect(ipc_name(import->handle.number));
  if (maker.fd < 0 && errno == ECONNREFUSED) {
    lose(import);
  } else if (maker.fd < 0 || !abstract_is_trusted(&maker, 0) ||
             send(maker.fd, &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL) !=
                 (ssize_t)sizeof request) {
    descriptor_hang_up(&maker);
    clock_sleep(MOMENT_NS);
  } else {
    import->lease = maker;
    put_locked(import, COMING);
  }
}

/* False: it is not to be had now. */
static bool take_next(struct import *import) {
  int said;
  CUresult result = take_packet(import, &import->lease, &said);
  if (said == LEASE_GONE)
    lose(import);
  return said >= 0 || result == CUDA_SUCCESS; /* another byte: it takes longer */
}

/* The maker sees that it need not go on. It is asked again. */
static void turn_back(struct import *import) {
  unmap(import);
  import->mapped_bytes = 0; /* should that fail, the driver is at its end */
  lease_close(&import->lease);
  put_locked(import, AWAY);
  clock_sleep(MOMENT_NS);
}

static void take_more(struct import *import, bool leaves, struct memory_moved *moved_bytes) {
  char byte;
  if (leaves) {
    turn_back(import);
    return;
  }
  if (import->mapped_bytes < import->block_bytes) {
    if (ipc_await(&import->lease, POLLIN, MOMENT_NS) && !take_next(import))
      turn_back(import);
    return;
  }
  int heard = hear(&import->lease, &byte);
  if (heard < 0)
    return;
  if (heard == 0 || byte != LEASE_OF_USER || open_up(import, import->device) != CUDA_SUCCESS) {
    turn_back(import);
    return;
  }
  put_locked(import, HERE);
  moved_bytes->spared_bytes += import->block_bytes;
  call_watch();
}

static void advance(struct import *import, bool leaves, struct memory_moved *moved_bytes) {
  switch (import->where) {
  case HERE:
    put_locked(import, ASKING);
    lease_say(&import->lease, LEASE_MAY_PART);
    break;
  case ASKING:
    ask_to_part(import, leaves);
    break;
  case PARTING:
    part(import, leaves, moved_bytes);
    break;
  case AWAY:
    come(import);
    break;
  case COMING:
    take_more(import, leaves, moved_bytes);
    break;
  }
}

/* With the lock held: nothing moves. */
static void await_steps(void) {
  struct import *import = imports;
  enders++;
  while (import)
    if (import->moves) {
      condition_wait(&moved, &lock, UINT64_MAX);
      import = imports;
    } else {
      import = import->next;
    }
  enders--;
  condition_wake_all(&moved);
}

static enum memory_progress step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved_bytes) {
  lock_take(&lock);
  if (enders) /* once: a thread may leave its wait by a jump */
    condition_wait(&moved, &lock, clock_now_ns() + MOMENT_NS);
  struct import *import = is_open[device] ? NULL : next_step(device, room_bytes);
  bool leaves = resident_bytes(device) > room_bytes;
  if (import)
    import->moves = true;
  lock_release(&lock);
  if (!import)
    return MEMORY_SETTLED;
  enum where where = import->where;
  uint64_t mapped_bytes = import->mapped_bytes;
  CUstreamCaptureMode mode = capture_relax();
  advance(import, leaves, moved_bytes);
  capture_unrelax(mode);
  lock_take(&lock);
  bool waits = import->where == where && import->mapped_bytes == mapped_bytes;
  import->moves = false;
  condition_wake_all(&moved);
  lock_release(&lock);
  call_watch(); /* nobody has looked at its lease meanwhile */
  return waits ? MEMORY_WAITS : MEMORY_MOVED;
}

static uint64_t needed_bytes(CUdevice device) { return atomic_load(&users_bytes[device]); }
bool opened_makes_way(CUdevice device) { return needed_bytes(device); }

static bool may_open(CUdevice device, bool enough, bool waits) {
  (void)enough, (void)waits;
  lock_take(&lock);
  struct import *import = imports;
  while (import && (!import->user || import->device != device || import->where == HERE))
    import = import->next;
  bool open = !import || is_dead[device];
  lock_release(&lock);
  return open;
}

static void opened(CUdevice device) {
  lock_take(&lock);
  is_open[device] = true;
  is_dead[device] = false;
  lock_release(&lock);
}

static void give_up(CUdevice device) {
  lock_take(&lock);
  is_dead[device] = true;
  lock_release(&lock);
}

static void close_device(CUdevice device, bool drained) {
  (void)drained;
  lock_take(&lock);
  is_open[device] = is_dead[device] = false;
  lock_release(&lock);
}

const struct backend backend_opened = {
    .hidden = true,
    .free = free_opened,
    .resident_bytes = resident_bytes,
    .needed_bytes = needed_bytes,
    .step = step,
    .open = may_open,
    .opened = opened,
    .close = close_device,
    .give_up = give_up,
};

/* ---- ends ---- */

/* Those of the context, or, without one, those that were closed before this look; out of the list and out of
 * the ledger. */
static struct import *take_all(CUcontext context, uint64_t round) {
  struct import *all = NULL;
  lock_take(&lock);
  await_steps();
  for (struct import **link = &imports, *import; (import = *link);)
    if (context ? import->context == context : import->round && import->round <= round) {
      *link = import->next;
      import->next = all;
      all = import;
      if (import->references)
        leave(import);
    } else {
      link = &import->next;
    }
  lock_release(&lock);
  return all;
}

static void end_all(struct import *all) {
  CUstreamCaptureMode mode = capture_relax();
  for (struct import *next; all; all = next) {
    next = all->next;
    end(all);
  }
  capture_unrelax(mode);
}

/* A look at what is closed by now: its number, 0: nothing is. And the devices, as a mask, whose work may use
 * that. */
static uint64_t look_at_closed(uint64_t *devices) {
  static uint64_t looks;
  uint64_t round = 0;
  lock_take(&lock);
  for (struct import *import = imports; import; import = import->next)
    if (!import->references) {
      round = round ? round : ++looks;
      import->round = import->round ? import->round : round;
      *devices |= sharing_devices(import->device) | sharing_devices(import->opener);
    }
  lock_release(&lock);
  return round;
}

/* What is closed ends once no work uses it, as with a free. False: not now, that would invalidate a capture.
 */
static bool try_to_end_closed(CUdevice opener) {
  uint64_t devices = 0, round = look_at_closed(&devices);
  if (!round)
    return true;
  for (CUdevice device = 0; device < DEVICES; device++)
    if (devices >> device & 1)
      gate_await_work(device);
  gate_forbid_stop(opener);
  bool ends = sharing_finish_work(devices, 0) == CUDA_SUCCESS;
  if (ends)
    end_all(take_all(NULL, round));
  gate_allow_stop();
  return ends;
}

static _Atomic bool ending; /* a thread waits for captures to end */

static void *end_later(void *opener) {
  thread_begin("gpushare-close");
  do {
    capture_wait_none(UINT64_MAX);
    atomic_store(&ending, false);
  } while (!try_to_end_closed((CUdevice)(intptr_t)opener) && !atomic_exchange(&ending, true));
  return NULL;
}

static void end_closed(CUdevice opener) {
  if (!try_to_end_closed(opener) && !atomic_exchange(&ending, true) &&
      thread_start(NULL, end_later, (void *)(intptr_t)opener) < 0)
    atomic_store(&ending, false);
}

/* ---- the calls ---- */

CUresult opened_open(CUdeviceptr *address, const struct ipc_handle *handle, CUdevice device,
                     CUcontext context) {
  return reuse(handle, context, address) ? CUDA_SUCCESS : open_new(address, handle, device, context);
}

bool opened_close(CUdeviceptr address) {
  CUdevice opener = 0;
  bool last = false;
  lock_take(&lock);
  struct import *import = imports;
  while (import && (!import->references || address_of(import) != address))
    import = import->next;
  if (import && (last = --import->references == 0)) {
    opener = import->opener;
    leave(import);
  }
  lock_release(&lock);
  if (last)
    end_closed(opener);
  return import;
}

void opened_context_left(CUcontext context) { end_all(take_all(context, 0)); }

void opened_context_inherited(CUcontext context, CUcontext heir) {
  lock_take(&lock);
  for (struct import *import = imports; import; import = import->next)
    if (import->context == context)
      import->context = heir;
  lock_release(&lock);
}

/* The leases are the parent's. */
static void forget(void) {
  lock = (struct lock)LOCK(LOCK_IPC);
  for (struct import *import = imports; import; import = import->next)
    descriptor_close(&import->lease);
  imports = NULL;
  moved = (struct condition){0};
  enders = 0;
  for (CUdevice device = 0; device < DEVICES; device++) {
    atomic_store(&users_bytes[device], 0);
    is_open[device] = is_dead[device] = false;
  }
  atomic_store(&ending, false);
}
IN_FORKED_CHILD(forget);
