/*
 * pinned.c - memory that stays on the card: others make way for it before the driver is asked. What the
 * driver keeps of it without use can be given back, but not while the process' work stands still.
 */
#include "memory/pinned.h"

#include <stdatomic.h>

#include "common/clock.h"
#include "driver/driver.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/memory_port.h"
#include "memory/reserves.h"

#define REFUSED_NS (10 * NS_PER_S) /* how long the card may lack what the daemon has promised */
#define UNTOLD_NS (500 * NS_PER_MS)
#define UNEXPLAINED 3 /* refusals in a row, with enough on the card */
#define FIRST_PAUSE_NS NS_PER_MS
#define LONGEST_PAUSE_NS (50 * NS_PER_MS)

/* The device's work was stopped, not drained, when memory was closed: the driver's own frees would wait. */
static _Atomic bool stopped[DEVICES];

int pinned_reserve(CUdevice device, uint64_t bytes) {
  if (bytes == 0)
    return 0;
  int err = budget_reserve_awaited(device, bytes);
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
  if (reserves_trim(device))
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

static CUresult allocate(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  struct pinned_patience patience = {0};
  CUresult result;
  if (pinned_reserve(like->device, bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  do
    result = driver.cuMemAlloc_v2(address, bytes);
  while (pinned_again(result, like->device, bytes, &patience));
  return account_enter(result, address, bytes, like, BACKING_PINNED);
}

static CUresult free_pinned(const struct allocation *taken, bool finished) {
  (void)finished; /* the driver waits */
  return driver.cuMemFree_v2(taken->base);
}

static uint64_t needed_bytes(CUdevice device) {
  return budget_used_bytes(device, BACKING_PINNED) + budget_used_bytes(device, BACKING_KEPT);
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
    return reserves_stay(device, true) ? MEMORY_MOVED : MEMORY_SETTLED;
  uint64_t bytes = reserves_trim(device);
  moved->out_bytes += bytes;
  return bytes ? MEMORY_MOVED : MEMORY_SETTLED;
}

/* What the driver keeps without use leaves by calls in the program's contexts, which might wait. */
static bool may_stop(CUdevice device) { return !budget_used_bytes(device, BACKING_KEPT); }

static void closed(CUdevice device, bool drained) {
  if (atomic_exchange(&stopped[device], !drained) && drained)
    reserves_stay(device, false);
}

static void opened(CUdevice device) {
  if (atomic_exchange(&stopped[device], false))
    reserves_stay(device, false);
}

const struct backend backend_pinned = {
    .as_otherwise =
        "GPU %d cannot page unified memory (no concurrent managed access): its memory stays as it "
        "is and cannot leave the card",
    .allocate = allocate,
    .free = free_pinned,
    .resident_bytes = resident_bytes,
    .needed_bytes = needed_bytes,
    .step = step,
    .may_stop = may_stop,
    .close = closed,
    .opened = opened,
    .fork_child = reserves_fork_child,
};
