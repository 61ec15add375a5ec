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
#include "memory/budget.h"
#include "memory/forked.h"
#include "memory/opened.h"
#include "memory/sharing.h"
#include "memory/swap/blocks.h"
#include "memory/swap/leases.h"
#include "memory/swap/lending.h"
#include "memory/swap/passing.h"

#define ANSWER_NS NS_PER_S          /* with one that opens it: others wait meanwhile */
#define FULL_NS NS_PER_MS           /* as many descriptors are under way as the user may have */
#define REFUSED_NS (50 * NS_PER_MS) /* by the daemon, until that is asked again */
#define TRIES 200
#define ACCEPT_AGAIN_NS (10 * NS_PER_MS)
#define ASK_AGAIN_NS (500 * NS_PER_MS) /* the daemon has refused what is there already */
#define WAITING_MOST 64                /* connections that are not accepted yet */
#define CLOSED_MS 2000u                /* what the program closes poll(2) keeps open, and says nothing */
#define WATCHED_MOST 512 /* leases at a time: others are looked at once some of these have ended */

static struct lock lock = LOCK(LOCK_IPC);

/* ---- holding ---- */

struct sharing {
  struct extent *extent;
  bool named;
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
  CUresult result = lending_hold(sharing->extent, sharing->named, &sharing->name);
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

/* The thread, by a connection without a request. Where so many wait that there can be none, it is awake. */
static void wake(void) {
  struct descriptor waking = abstract_connect(ipc_name(atomic_load(&number)));
  descriptor_close(&waking);
}

/* 0, or -errno: the other side does not go on. */
static int give(const struct lent_name *name, size_t i, const struct descriptor *other) {
  uint64_t until_ns = clock_now_ns() + ANSWER_NS;
  int err;
  while ((err = lending_give(name, i, other)) == -ETOOMANYREFS && clock_now_ns() < until_ns)
    clock_sleep(FULL_NS);
  return err == -EAGAIN && ipc_await(other, POLLOUT, ANSWER_NS) ? lending_give(name, i, other) : err;
}

/* After lending_begin. Without a first piece there is no such block any more. */
static void give_all(const struct lent_name *name, bool user, struct descriptor *other) {
  size_t given = 0;
  int err;
  while ((err = give(name, given, other)) == 0)
    given++;
  lending_end(name, given && err == -ENOENT, user, other);
}

struct late {
  struct late *next;
  struct lent_name name;
  bool user;
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
  for (unsigned tries = 0; (err = lending_begin(name, false, &at)) == -EAGAIN && tries < TRIES; tries++) {
    CUresult result = hold_again(at, name->name);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      clock_sleep(REFUSED_NS);
    else if (result != CUDA_SUCCESS)
      break;
  }
  return err;
}

static bool has_hung_up(const struct descriptor *other) {
  return !descriptor_is_ours(other) || recv(other->fd, &(char){0}, 1, MSG_DONTWAIT) == 0;
}

/* After lending_begin, for a user. */
static void lend_fetched(struct late *late) {
  int err;
  while ((err = lending_await(&late->name)) == -EINPROGRESS && !has_hung_up(&late->other))
    ;
  if (err == 0)
    give_all(&late->name, true, &late->other);
  else
    lending_end(&late->name, false, true, &late->other);
  if (err == -ENOENT)
    lease_say(&late->other, LEASE_GONE);
}

static void *lend_late(void *argument) {
  struct late *late = argument;
  thread_begin("gpushare-lend");
  if (late->user)
    lend_fetched(late);
  else if (begin_late(&late->name) == 0)
    give_all(&late->name, false, &late->other);
  unlist_late(late);
  descriptor_hang_up(&late->other);
  free(late);
  wake(); /* there may be a lease more */
  return NULL;
}

/* To those that would wait for a byte: there will be more. */
static bool answer_late(const struct lent_name *name, bool user, struct descriptor *other) {
  struct late *late = malloc(sizeof *late);
  if (!late || !descriptor_is_ours(other) || send(other->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
    free(late);
    return false;
  }
  *late = (struct late){.name = *name, .user = user, .other = *other};
  list_late(late);
  if (thread_start(NULL, lend_late, late) == 0) {
    *other = DESCRIPTOR_NONE;
    return true;
  }
  unlist_late(late);
  free(late);
  return false;
}

static void answer(const struct lent_name *name, bool user, struct descriptor *other) {
  CUdeviceptr unused;
  int err = lending_begin(name, user, &unused);
  if (err == 0)
    give_all(name, user, other);
  else if (err == -EAGAIN)
    answer_late(name, user, other);
  else if (err == -EINPROGRESS && !answer_late(name, user, other))
    lending_end(name, false, user, other);
  else if (err == -ENOENT && user)
    lease_say(other, LEASE_GONE);
}

static void serve(struct descriptor *other) {
  struct ipc_request request;
  if (abstract_is_trusted(other, 0) && ipc_await(other, POLLIN, ANSWER_NS) && descriptor_is_ours(other) &&
      recv(other->fd, &request, sizeof request, MSG_DONTWAIT) == (ssize_t)sizeof request &&
      (request.magic == IPC_MAGIC || request.magic == IPC_MAGIC_USER) && request.key == atomic_load(&key))
    answer(&request.name, request.magic == IPC_MAGIC_USER, other);
  descriptor_hang_up(other);
}

static _Atomic uint64_t ungranted; /* devices with pinned memory that the daemon does not count yet */
static _Atomic bool asking;        /* a thread does */

/* The daemon may count the bytes of another process, which has ended, for a moment still. Or there is no room
 * now, or a limit. */
static void *ask_for_noted(void *unused) {
  thread_begin("gpushare-ask");
  for (CUdevice device = 0; device < DEVICES; device++)
    if (atomic_fetch_and(&ungranted, ~(UINT64_C(1) << device)) >> device & 1 && !budget_ask(device))
      atomic_fetch_or(&ungranted, UINT64_C(1) << device);
  atomic_store(&asking, false);
  return unused;
}

/* Others that open memory don't wait for the daemon's answer. */
static void ask(uint64_t noted) {
  atomic_fetch_or(&ungranted, noted);
  if (atomic_load(&ungranted) && !atomic_exchange(&asking, true) &&
      thread_start(NULL, ask_for_noted, NULL) < 0)
    atomic_store(&asking, false);
}

/* What only time tells is looked at then. */
static int look_at_all(bool watches_all) {
  uint64_t noted = 0;
  bool some_lost = leases_look();
  opened_look(&noted);
  uint64_t now_ns = clock_now_ns(), next_ns = lending_let_go(now_ns, &noted);
  ask(noted);
  if (atomic_load(&asking) || atomic_load(&ungranted) || some_lost || !watches_all)
    next_ns = next_ns < now_ns + ASK_AGAIN_NS ? next_ns : now_ns + ASK_AGAIN_NS;
  return next_ns == UINT64_MAX ? -1 : (int)((next_ns - now_ns) / NS_PER_MS) + 1;
}

static bool answer_from_now_on(void);

/* The thread is to wait for another lease. */
static void watch_leases(void) {
  if (answer_from_now_on())
    wake();
}

static void *run(void *argument) {
  struct desk own = *(struct desk *)argument;
  free(argument);
  thread_begin("gpushare-ipc");
  struct pollfd awaited[1 + WATCHED_MOST] = {{.fd = own.listening.fd, .events = POLLIN}};
  int patience_ms = -1;
  nfds_t leases = 0;
  while (descriptor_is_ours(&own.listening)) {
    leases = opened_leases(awaited + 1, WATCHED_MOST);
    leases += leases_list(awaited + 1 + leases, WATCHED_MOST - leases);
    if (leases && (unsigned)patience_ms > CLOSED_MS)
      patience_ms = CLOSED_MS;
    int ready = poll(awaited, 1 + leases, patience_ms);
    if (ready < 0 || !descriptor_is_ours(&own.listening))
      continue;
    patience_ms = look_at_all(leases < WATCHED_MOST);
    if (!ready || !awaited[0].revents)
      continue;
    struct descriptor other = abstract_accept(&own.listening, own.name);
    patience_ms = 0; /* there may be a lease more */
    if (other.fd >= 0)
      serve(&other);
    else
      clock_sleep(ACCEPT_AGAIN_NS); /* the program may have no descriptor left */
  }
  if (leases || patience_ms >= 0) /* there is more to look at */
    watch_leases();
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
  new->name = ipc_name(atomic_load(&number));
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
  struct sharing sharing = {.extent = pinned->object, .named = true};
  CUresult result = sharing_in_turn(pinned->device, hold, &sharing);
  if (result == CUDA_ERROR_NOT_PERMITTED)
    return refuse("memory that has come from another job", "let it have more descriptors open (ulimit -n)");
  if (result != CUDA_SUCCESS)
    return result;
  struct ipc_handle handle = {.magic = IPC_MAGIC,
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

/* ---- the calls ---- */

static CUresult open_handle(CUdeviceptr *address, const CUipcMemHandle *given, unsigned int flags,
                            CUresult (*native)(CUdeviceptr *, CUipcMemHandle, unsigned int)) {
  struct ipc_handle handle;
  CUdevice device;
  CUcontext context;
  memcpy(&handle, given, sizeof handle);
  if (handle.magic != IPC_MAGIC || !device_current(&device, &context))
    return native(address, *given, flags);
  if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  if (handle.key && handle.key == atomic_load(&key))
    return CUDA_ERROR_INVALID_CONTEXT; /* as the driver says of a process' own */
  opened_set_watch(watch_leases);
  return opened_open(address, &handle, device, context);
}

CUresult hook_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return open_handle(pdptr, &handle, Flags, driver.cuIpcOpenMemHandle);
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return open_handle(pdptr, &handle, Flags, driver.cuIpcOpenMemHandle_v2);
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr dptr) {
  return opened_close(dptr) ? CUDA_SUCCESS : driver.cuIpcCloseMemHandle(dptr);
}

static void forget(void) {
  lock = (struct lock)LOCK(LOCK_IPC);
  descriptor_close(&desk.listening);
  atomic_store(&number, 0);
  atomic_store(&key, 0);
  for (struct late *late = lates; late; late = late->next)
    descriptor_close(&late->other);
  lates = NULL;
  holding = (struct gate_call){NULL, 0};
  held = (struct condition){0};
  atomic_store(&ungranted, 0);
  atomic_store(&asking, false);
}
IN_FORKED_CHILD(forget);
