/* memory.c - what the memory room says and does as a whole. */
#include "memory/memory.h"

#include <stdatomic.h>

#include "gate/gate.h"
#include "memory/account.h"
#include "memory/carry.h"
#include "memory/deferred.h"
#include "memory/device.h"
#include "memory/memory_port.h"
#include "memory/peer_access.h"
#include "memory/physical.h"
#include "memory/placement.h"
#include "memory/pools.h"
#include "memory/populate.h"
#include "memory/reserves.h"
#include "memory/residency.h"
#include "memory/swap/slabs.h"
#include "memory/swap/swap.h"

/* The device's work was stopped, not drained, when memory was closed: the driver's own frees would wait. */
static _Atomic bool stopped[DEVICES];

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Where all memory is unified, the daemon knows that it pages. */
static bool needs_told(CUdevice device) {
  return device_memory_if_decided(device) != MEMORY_MANAGED && device_can_page(device);
}

struct memory_usage memory_usage(CUdevice device) {
  if (!device_valid(device))
    return (struct memory_usage){0};
  uint64_t pinned = budget_used_bytes(device, BACKING_PINNED);
  uint64_t there = less(pinned, budget_awaited_bytes(device));
  uint64_t kept = budget_used_bytes(device, BACKING_KEPT);
  uint64_t unified = budget_used_bytes(device, BACKING_CONVERTED) + budget_used_bytes(device, BACKING_APP);
  uint64_t unified_there = account_unified_bytes(device);
  return (struct memory_usage){
      .total_bytes = budget_sum_bytes(device),
      .pinned_bytes = pinned,
      .pinned_there_bytes = there,
      .paging_bytes = unified && needs_told(device) ? unified : 0,
      .resident_bytes = there + kept + unified_there + swap_resident_bytes(device),
      .yielding_bytes = unified_there && device_can_page(device) ? unified_there : 0,
  };
}

void memory_pinned_arrives(CUdevice device, uint64_t bytes) { budget_arrived(device, bytes); }

/* What the driver keeps without use leaves first, and does not come back. False: there is none, or none needs
 * to leave. */
static bool give_back_kept(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  uint64_t bytes = memory_usage(device).resident_bytes + budget_awaited_bytes(device);
  if (bytes <= room_bytes || !budget_used_bytes(device, BACKING_KEPT))
    return false;
  if (atomic_load(&stopped[device]))
    return reserves_stay(device, true);
  bytes = reserves_trim(device);
  moved->out_bytes += bytes;
  return bytes > 0;
}

/* Work on one GPU may touch unified memory of another, past its gate. So nothing is carried of a process with
 * several, and what was, lands before the next gate opens. */
static bool is_carried_elsewhere(CUdevice device) {
  bool any = false;
  for (CUdevice other = 0; other < DEVICES; other++)
    if (other != device && carry_bytes(other)) {
      memory_port.order_moves(other);
      any = true;
    }
  return any;
}

/* Swap memory must be on the card before the process runs, unified memory need not: so it comes first at what
 * room there is, and unified memory leaves for it. Both leave for what can't leave, also while that is still
 * to come: so it comes wherever there is room for all that can't leave, whoever runs. */
enum memory_progress memory_step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  if (!device_valid(device))
    return MEMORY_SETTLED;
  if (!memory_port.is_stopped(device))
    deferred_reap_drained(device); /* what is being freed is in no ledger, so it could not leave */
  enum memory_progress progress = MEMORY_SETTLED;
  if (give_back_kept(device, room_bytes, moved))
    return MEMORY_MOVED;
  uint64_t room =
      less(room_bytes, budget_used_bytes(device, BACKING_PINNED) + budget_used_bytes(device, BACKING_KEPT));
  uint64_t unified_room = less(room, swap_total_bytes(device));
  if (atomic_load(&gate_several) && carry_bytes(device))
    return residency_land(device);
  if (account_unified_bytes(device) > unified_room)
    progress = residency_step(device, unified_room, moved);
  if (progress != MEMORY_MOVED)
    progress = swap_step(device, less(room, account_unified_bytes(device)), moved);
  if (progress == MEMORY_SETTLED)
    progress = residency_step(device, unified_room, moved);
  return progress == MEMORY_SETTLED && is_carried_elsewhere(device) ? MEMORY_SHORT : progress;
}

struct gs_pass memory_pass(CUdevice device) {
  return device_valid(device) ? swap_pass(device) : (struct gs_pass){.name = 0};
}

void memory_set_heir(CUdevice device, const struct memory_heir *heir) {
  if (device_valid(device))
    swap_set_heir(device, heir);
}

void memory_expect_passed(CUdevice device, bool expects) {
  if (device_valid(device))
    swap_expect_passed(device, expects);
}

enum memory_progress memory_land(CUdevice device) {
  return device_valid(device) ? residency_land(device) : MEMORY_SETTLED;
}

void memory_prepare_stop(CUdevice device) {
  if (device_valid(device))
    carry_prepare(device);
}

/* Page faults fetch what is away, unless it is carried. */
static bool has_enough(CUdevice device, uint64_t enough_bytes) {
  return !carry_bytes(device) && !is_carried_elsewhere(device) &&
         (!account_away_bytes(device) || memory_usage(device).resident_bytes >= enough_bytes);
}

static bool opened(CUdevice device, bool open) {
  if (open)
    residency_opened(device);
  if (open && atomic_exchange(&stopped[device], false))
    reserves_stay(device, false);
  return open;
}

bool memory_open(CUdevice device, uint64_t enough_bytes) {
  return !device_valid(device) || opened(device, has_enough(device, enough_bytes) && swap_open(device));
}

bool memory_try_open(CUdevice device, uint64_t enough_bytes) {
  return !device_valid(device) || opened(device, has_enough(device, enough_bytes) && swap_try_open(device));
}

/* What can't even land is lost: nothing of the process can be read or written any more. */
void memory_give_up(CUdevice device) {
  if (!device_valid(device))
    return;
  swap_give_up(device);
  while (residency_land(device) == MEMORY_MOVED)
    ;
}

/* What the driver keeps without use leaves by calls in the program's contexts, which might wait. */
bool memory_may_stop(CUdevice device) {
  return !device_valid(device) || (!deferred_unified(device) && !budget_used_bytes(device, BACKING_KEPT));
}

void memory_close(CUdevice device, bool drained) {
  if (!device_valid(device))
    return;
  if (atomic_exchange(&stopped[device], !drained) && drained)
    reserves_stay(device, false);
  swap_close(device, drained);
}

void memory_expect_moves(CUdevice device, bool expected) {
  if (device_valid(device))
    swap_expect_moves(device, expected);
}

bool memory_expects_moves(CUdevice device) { return device_valid(device) && swap_expects_moves(device); }

void memory_set_host_tight(bool tight) { slabs_set_tight(tight); }

uint64_t memory_run_timers(uint64_t now_ns) { return slabs_trim(now_ns); }

void memory_context_leaving(CUcontext context) {
  populate_context_destroyed(context);
  deferred_context_destroyed(context, true);
  swap_context_leaving(context);
}

void memory_context_left(CUcontext context) {
  swap_context_left(context);
  account_context_destroyed(context);
}

void memory_context_destroyed(CUcontext context) {
  if (!context)
    return;
  memory_context_leaving(context);
  memory_context_left(context);
}

void memory_green_context_destroyed(CUcontext context, CUcontext primary) {
  populate_context_destroyed(context);
  deferred_context_destroyed(context, false);
  swap_context_leaving(context);
  account_context_inherited(context, primary);
}

void memory_context_gone(CUcontext context) {
  carry_context_gone(context);
  slabs_context_gone(context);
}

void memory_fork_prepare(void) { swap_fork_prepare(); }
void memory_fork_parent(void) { swap_fork_parent(); }

void memory_fork_child(void) {
  account_fork_child();
  budget_fork_child();
  carry_fork_child();
  deferred_fork_child();
  peer_access_fork_child();
  physical_fork_child();
  placement_fork_child();
  pools_fork_child();
  populate_fork_child();
  reserves_fork_child();
  residency_fork_child();
  swap_fork_child();
  device_fork_child();
}
