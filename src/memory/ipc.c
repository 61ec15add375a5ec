/*
 * ipc.c - handles; the thread that answers those who open them; what this process has opened.
 *
 * A handle is a capability, as the driver's is: who knows it may open it, if the kernel says that it is of
 * this user. What is opened stays on the card while another process has it open, or the driver keeps it for
 * that. The process that has made it counts it as long. If that process ends, it is an orphan, which each
 * process counts that has it open. The processes learn of each other's ends by the lease (swap/leases.h), for
 * which the thread waits. What nobody has open any more may leave the card; who opens it then waits for the
 * turn of the process that has made it.
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
#include "common/condition.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/wire.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/sharing.h"
#include "memory/swap/blocks.h"
#include "memory/swap/leases.h"
#include "memory/swap/lending.h"
#include "memory/swap/passing.h"

#define HANDLE_MAGIC UINT64_C(0x6370695f75706773)
#define PATIENCE_NS (10 * NS_PER_S) /* with the process that has made the memory, for each of its packets */
#define FOREVER_NS UINT64_MAX
#define ANSWER_NS NS_PER_S          /* with one that opens it: others wait meanwhile */
#define FULL_NS NS_PER_MS           /* as many descriptors are under way as the user may have */
#define REFUSED_NS (50 * NS_PER_MS) /* by the daemon, until that is asked again */
#define TRIES 200
#define ACCEPT_AGAIN_NS (10 * NS_PER_MS)
#define ASK_AGAIN_NS (500 * NS_PER_MS) /* the daemon has refused what is there already */
#define WAITING_MOST 64                /* connections that are not accepted yet */
#define WATCHED_MOST 512 /* leases at a time: others are looked at once some of these have ended */

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

static struct lock lock = LOCK(LOCK_IPC);

/* ---- what this process has opened, and orphans among that ---- */

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
  uint64_t round;          /* the first look at what is closed that has met it; 0: none */
  bool counts;             /* the bytes of its block are booked, for all imports of the block */
};

static struct import *imports;     /* under the lock */
static _Atomic uint64_t ungranted; /* devices with orphans that the daemon does not count yet */

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
static bool count_one(void) {
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
  atomic_fetch_or(&ungranted, UINT64_C(1) << seen.device);
  pass_count(&seen);
  return true;
}

static _Atomic bool asking; /* a thread does */

/* The daemon may count the maker's bytes for a moment still. Or there is no room now, or a limit. */
static void *ask_for_orphans(void *unused) {
  thread_begin("gpushare-ask");
  for (CUdevice device = 0; device < DEVICES; device++)
    if (atomic_load(&ungranted) >> device & 1 && budget_ask(device))
      atomic_fetch_and(&ungranted, ~(UINT64_C(1) << device));
  atomic_store(&asking, false);
  return unused;
}

/* Others that open memory don't wait for the daemon's answer. */
static void ask(void) {
  if (atomic_load(&ungranted) && !atomic_exchange(&asking, true) &&
      thread_start(NULL, ask_for_orphans, NULL) < 0)
    atomic_store(&asking, false);
}

/* The maker sends nothing: what can be read is the end. What the program has closed tells nothing. */
static void look_at(struct import *import) {
  if (!descriptor_is_ours(&import->lease)) {
    import->lease = DESCRIPTOR_NONE;
  } else if (recv(import->lease.fd, &(char){0}, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
    descriptor_hang_up(&import->lease);
    import->orphan = true;
  }
}

static void look_at_leases(void) {
  lock_take(&lock);
  for (struct import *import = imports; import; import = import->next)
    look_at(import);
  lock_release(&lock);
  while (count_one())
    ;
  ask();
}

static nfds_t list_leases(struct pollfd *awaited, nfds_t most) {
  nfds_t count = 0;
  lock_take(&lock);
  for (const struct import *import = imports; import && count < most; import = import->next)
    if (import->lease.fd >= 0)
      awaited[count++] = (struct pollfd){.fd = import->lease.fd, .events = POLLIN};
  lock_release(&lock);
  return count;
}

/* ---- holding ---- */

struct sharing {
  struct extent *extent;
  struct lent_name name;
};

static struct gate_call holding; /* under the lock: of the thread that holds a block */
static struct condition held;

/* One thread at a time: the books of a block are changed once. */
static CUresult hold(void *argument) {
  struct sharing *sharing = argument;
  lock_take(&lock);
  gate_call_await(&holding, &held, &lock);
  holding = gate_call_mine();
  lock_release(&lock);
  CUresult result = lending_hold(sharing->extent, &sharing->name);
  lock_take(&lock);
  holding = (struct gate_call){NULL, 0};
  condition_wake_all(&held);
  lock_release(&lock);
  return result;
}

/* ---- the thread that answers, and waits for leases ---- */

static _Atomic uint64_t number, key;

/* Where one thread listens, until the program closes it. */
struct desk {
  struct descriptor listening;
  struct abstract_name name;
};

static struct desk desk = {.listening.fd = -1}; /* under the lock: the newest */

static struct abstract_name name_of(uint64_t of) { return (struct abstract_name){"ipc", of}; }

static int poll_ms(uint64_t patience_ns) {
  return patience_ns == FOREVER_NS ? -1 : (int)(patience_ns / NS_PER_MS);
}

/* The thread, by a connection without a request. Where so many wait that there can be none, it is awake. */
static void wake(void) {
  struct descriptor waking = abstract_connect(name_of(atomic_load(&number)));
  descriptor_close(&waking);
}

/* False: not within that time. */
static bool await(const struct descriptor *other, short events, uint64_t patience_ns) {
  struct pollfd awaited = {.fd = other->fd, .events = events};
  int ready;
  while ((ready = poll(&awaited, 1, poll_ms(patience_ns))) < 0 && errno == EINTR)
    ;
  return ready > 0;
}

/* 0, or -errno: the other side does not go on. */
static int give(const struct lent_name *name, size_t i, const struct descriptor *other) {
  uint64_t until_ns = clock_now_ns() + ANSWER_NS;
  int err;
  while ((err = lending_give(name, i, other)) == -ETOOMANYREFS && clock_now_ns() < until_ns)
    clock_sleep(FULL_NS);
  return err == -EAGAIN && await(other, POLLOUT, ANSWER_NS) ? lending_give(name, i, other) : err;
}

/* After lending_begin. Without a first piece there is no such block any more. */
static void give_all(const struct lent_name *name, struct descriptor *other) {
  size_t given = 0;
  int err;
  while ((err = give(name, given, other)) == 0)
    given++;
  lending_end(name, given && err == -ENOENT, other);
}

struct late {
  struct late *next;
  struct lent_name name;
  struct descriptor other;
};

static struct late *lates; /* under the lock: a child of a fork closes their connections */

static void list_late(struct late *late) {
  lock_take(&lock);
  late->next = lates;
  lates = late;
  lock_release(&lock);
}

static void unlist_late(const struct late *late) {
  lock_take(&lock);
  struct late **link = &lates;
  while (*link != late)
    link = &(*link)->next;
  *link = late->next;
  lock_release(&lock);
}

struct named {
  struct allocation found;
  uint64_t name; /* of its block */
};

/* Its free waits meanwhile. */
static CUresult hold_named(void *argument) {
  const struct named *named = argument;
  struct allocation pinned;
  if (!ledger_pin(&account_addresses, named->found.base, named->found.sequence, &pinned))
    return CUDA_ERROR_INVALID_HANDLE;
  struct extent *extent = pinned.backend == &backend_swap ? pinned.object : NULL;
  bool same = extent && extent->block->lent.name == named->name;
  CUresult result = same ? hold(&(struct sharing){.extent = extent}) : CUDA_ERROR_INVALID_HANDLE;
  account_unpin(&pinned, pinned.away_bytes);
  return result;
}

/* False: it is about to be destroyed. Should it be destroyed later, the driver's calls say so. */
static bool push(CUcontext context) {
  void *kept = contexts_hold(context);
  if (!kept)
    return false;
  bool pushed = driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
  contexts_let_go(kept);
  return pushed;
}

/* The block is on the card, and held, once the process has had its turn. That is awaited while its work may
 * be stopped. CUDA_ERROR_OUT_OF_MEMORY: it is refused now. */
static CUresult hold_again(CUdeviceptr at, uint64_t name) {
  struct named named = {.name = name};
  if (!ledger_find(&account_addresses, at, &named.found) || !push(named.found.context))
    return CUDA_ERROR_INVALID_HANDLE;
  gate_enter_reaching(NULL, sharing_devices(named.found.device));
  gate_leave();
  CUresult result = sharing_in_turn(named.found.device, hold_named, &named);
  driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  return result;
}

/* It may be let go again before this thread begins to lend it. Or the daemon refuses it now, because others
 * that are about to end, or to free memory, could not run beside it. */
static int begin_late(const struct lent_name *name) {
  CUdeviceptr at;
  int err;
  for (unsigned tries = 0; (err = lending_begin(name, &at)) == -EAGAIN && tries < TRIES; tries++) {
    CUresult result = hold_again(at, name->name);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      clock_sleep(REFUSED_NS);
    else if (result != CUDA_SUCCESS)
      break;
  }
  return err;
}

static void *lend_late(void *argument) {
  struct late *late = argument;
  thread_begin("gpushare-lend");
  if (begin_late(&late->name) == 0)
    give_all(&late->name, &late->other);
  unlist_late(late);
  descriptor_hang_up(&late->other);
  free(late);
  wake(); /* there may be a lease more */
  return NULL;
}

/* To those that would wait for a byte: there will be more. */
static void answer_late(const struct lent_name *name, struct descriptor *other) {
  struct late *late = malloc(sizeof *late);
  if (!late || !descriptor_is_ours(other) || send(other->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
    free(late);
    return;
  }
  *late = (struct late){.name = *name, .other = *other};
  list_late(late);
  if (thread_start(NULL, lend_late, late) == 0) {
    *other = DESCRIPTOR_NONE;
    return;
  }
  unlist_late(late);
  free(late);
}

static void answer(const struct lent_name *name, struct descriptor *other) {
  CUdeviceptr unused;
  int err = lending_begin(name, &unused);
  if (err == 0)
    give_all(name, other);
  else if (err == -EAGAIN)
    answer_late(name, other);
}

static void serve(struct descriptor *other) {
  struct request request;
  if (abstract_is_trusted(other, 0) && await(other, POLLIN, ANSWER_NS) && descriptor_is_ours(other) &&
      recv(other->fd, &request, sizeof request, MSG_DONTWAIT) == (ssize_t)sizeof request &&
      request.magic == HANDLE_MAGIC && request.key == atomic_load(&key))
    answer(&request.name, other);
  descriptor_hang_up(other);
}

/* What only time tells is looked at then. */
static int look_at_all(bool watches_all) {
  bool some_lost = leases_look();
  look_at_leases();
  uint64_t now_ns = clock_now_ns(), next_ns = lending_let_go(now_ns);
  if (atomic_load(&ungranted) || some_lost || !watches_all)
    next_ns = next_ns < now_ns + ASK_AGAIN_NS ? next_ns : now_ns + ASK_AGAIN_NS;
  return next_ns == UINT64_MAX ? -1 : (int)((next_ns - now_ns) / NS_PER_MS) + 1;
}

static void *run(void *argument) {
  struct desk own = *(struct desk *)argument;
  free(argument);
  thread_begin("gpushare-ipc");
  struct pollfd awaited[1 + WATCHED_MOST] = {{.fd = own.listening.fd, .events = POLLIN}};
  int patience_ms = -1;
  while (descriptor_is_ours(&own.listening)) {
    nfds_t leases = list_leases(awaited + 1, WATCHED_MOST);
    leases += leases_list(awaited + 1 + leases, WATCHED_MOST - leases);
    int ready = poll(awaited, 1 + leases, patience_ms);
    if (ready < 0 || !descriptor_is_ours(&own.listening))
      continue;
    patience_ms = look_at_all(leases < WATCHED_MOST);
    if (!ready || !awaited[0].revents)
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

/* The thread is to wait for another lease. */
static void watch_leases(void) {
  if (answer_from_now_on())
    wake();
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

static CUresult refuse(const char *what, const char *help) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said))
    log_warn(
        "this program shares device memory with other processes (CUDA IPC), which %s does not support: %s",
        what, help);
  return CUDA_ERROR_NOT_SUPPORTED;
}

/* Its free waits meanwhile. */
static CUresult make_handle(CUipcMemHandle *made, const struct allocation *pinned) {
  static _Atomic bool said;
  struct sharing sharing = {.extent = pinned->object};
  CUresult result = sharing_in_turn(pinned->device, hold, &sharing);
  if (result == CUDA_ERROR_NOT_PERMITTED)
    return refuse("memory that has come from another job", "let it have more descriptors open (ulimit -n)");
  if (result != CUDA_SUCCESS)
    return result;
  struct ipc_handle handle = {.magic = HANDLE_MAGIC,
                              .number = atomic_load(&number),
                              .key = atomic_load(&key),
                              .name = sharing.name,
                              .at = sharing.extent->at,
                              .bytes = pinned->span};
  memset(made, 0, sizeof *made);
  memcpy(made, &handle, sizeof handle);
  if (!atomic_exchange(&said, true))
    log_info(
        "GPU %d: memory that this program shares with other processes stays on the card as long as they have "
        "it open; they need this library, too",
        pinned->device);
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
  if (found.backend != &backend_swap)
    return refuse("unified memory", "set GPUSHARE_MEMORY=swap for it");
  if (!ipc_can_share(&found) || !answer_from_now_on())
    return refuse("this driver or sandbox", "set GPUSHARE_MEMORY=off for it");
  if (!ledger_pin(&account_addresses, found.base, found.sequence, &pinned))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = make_handle(pHandle, &pinned);
  account_unpin(&pinned, pinned.away_bytes);
  wake(); /* nobody may open it */
  return result;
}

/* ---- what this process opens ---- */

static CUdeviceptr address_of(const struct import *import) { return import->base + import->handle.at; }

/* Pieces come in the order of their addresses. */
static void end(struct import *import) {
  if (import->mapped_bytes)
    driver.cuMemUnmap(import->base, import->mapped_bytes);
  if (import->base)
    driver.cuMemAddressFree(import->base, import->block_bytes);
  if (import->counts) /* it is in no list any more */
    pass_count(import);
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
  if (await(other, POLLIN, PATIENCE_NS))
    return true;
  if (capture_count())
    return false;
  log_warn("memory of process %d is opened, and has left the card: this waits for the turn of that process",
           (int)abstract_other(other));
  return await(other, POLLIN, FOREVER_NS);
}

static CUresult take_piece(struct import *import, const struct descriptor *other) {
  struct lent_note note;
  CUmemGenericAllocationHandle piece;
  CUresult result;
  ssize_t n = 0;
  do {
    if (!(n == 1 ? await_turn(other) : await(other, POLLIN, PATIENCE_NS)))
      return CUDA_ERROR_INVALID_HANDLE;
    n = passing_borrow(other, &note, sizeof note, &piece, &result);
  } while (n == 1); /* the maker says so that it takes longer */
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

/* All pieces have come. An older library ends the connection at once. */
static void take_lease(struct import *import, struct descriptor *maker) {
  if (await(maker, POLLIN, PATIENCE_NS) && descriptor_is_ours(maker) &&
      recv(maker->fd, &(char){0}, 1, MSG_DONTWAIT) == 1 && descriptor_may_stay(maker, DESCRIPTOR_LEASE)) {
    import->lease = *maker;
    *maker = DESCRIPTOR_NONE;
  }
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
  if (result != CUDA_SUCCESS) {
    import->lease = other; /* what has come is closed */
    return result;
  }
  take_lease(import, &other);
  descriptor_hang_up(&other);
  return open_up(import, current);
}

static bool enter(const struct import *import) {
  struct allocation entry = {.base = address_of(import),
                             .span = import->handle.bytes,
                             .backing = BACKING_PINNED_SHARED,
                             .backend = &backend_opened,
                             .context = import->context,
                             .device = import->device,
                             .origin = ORIGIN_OBJECT,
                             .stays = true};
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
  while (import && (!import->references || import->context != context ||
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
  CUresult result = fetch(import, device);
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
    watch_leases();
  capture_unrelax(mode);
  return result;
}

/* ---- ends ---- */

/* Those of the context, or, without one, those that were closed before this look; out of the list and out of
 * the ledger. */
static struct import *take_all(CUcontext context, uint64_t round) {
  struct import *all = NULL;
  lock_take(&lock);
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
  if (reuse(&handle, context, address))
    return CUDA_SUCCESS;
  return open_new(address, &handle, device, context);
}

CUresult hook_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return open_handle(pdptr, &handle, Flags, driver.cuIpcOpenMemHandle);
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return open_handle(pdptr, &handle, Flags, driver.cuIpcOpenMemHandle_v2);
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr dptr) {
  CUdevice opener = 0;
  bool last = false;
  lock_take(&lock);
  struct import *import = imports;
  while (import && (!import->references || address_of(import) != dptr))
    import = import->next;
  if (import && (last = --import->references == 0)) {
    opener = import->opener;
    leave(import);
  }
  lock_release(&lock);
  if (last)
    end_closed(opener);
  return import ? CUDA_SUCCESS : driver.cuIpcCloseMemHandle(dptr);
}

void ipc_context_left(CUcontext context) { end_all(take_all(context, 0)); }

void ipc_context_inherited(CUcontext context, CUcontext heir) {
  lock_take(&lock);
  for (struct import *import = imports; import; import = import->next)
    if (import->context == context)
      import->context = heir;
  lock_release(&lock);
}

/* The leases are the parent's. */
static void forget(void) {
  lock = (struct lock)LOCK(LOCK_IPC);
  descriptor_close(&desk.listening);
  for (struct import *import = imports; import; import = import->next)
    descriptor_close(&import->lease);
  atomic_store(&number, 0);
  atomic_store(&key, 0);
  atomic_store(&ungranted, 0);
  for (struct late *late = lates; late; late = late->next)
    descriptor_close(&late->other);
  imports = NULL;
  lates = NULL;
  holding = (struct gate_call){NULL, 0};
  held = (struct condition){0};
  atomic_store(&asking, false);
  atomic_store(&ending, false);
}
IN_FORKED_CHILD(forget);
