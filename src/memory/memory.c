/* memory.c - what the memory room says and does as a whole. */
#include "memory/memory.h"

#include <stdatomic.h>

#include "gate/gate.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/deferred.h"
#include "memory/graphs.h"
#include "memory/memory_port.h"
#include "memory/physical.h"
#include "memory/placement.h"
#include "memory/pools.h"
#include "memory/reach.h"
#include "memory/swap/passing.h"
#include "memory/swap/slabs.h"

/* In the order in which they are asked. */
static const struct backend *const backends[] = {&backend_pinned, &backend_managed, &backend_swap};
enum { KINDS = sizeof backends / sizeof backends[0] };

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static uint64_t resident_bytes(CUdevice device) {
  uint64_t bytes = 0;
  for (int i = 0; i < KINDS; i++)
    bytes += backends[i]->resident_bytes(device);
  return bytes;
}

uint32_t memory_attach_flags(CUdevice device) {
  const struct backend *backend = device_valid(device) ? backend_on_if_decided(device) : &backend_pinned;
  return backend ? backend->attach_flags : GS_ATTACH_DEFAULT;
}

/* Where all memory is unified, the daemon knows that it pages. */
static bool needs_told(CUdevice device) {
  return !(memory_attach_flags(device) & GS_ATTACH_MANAGED) && device_can_page(device);
}

struct memory_usage memory_usage(CUdevice device) {
  if (!device_valid(device))
    return (struct memory_usage){0};
  uint64_t pinned = budget_used_bytes(device, BACKING_PINNED);
  uint64_t unified = budget_used_bytes(device, BACKING_CONVERTED) + budget_used_bytes(device, BACKING_APP);
  uint64_t unified_there = backend_managed.resident_bytes(device);
  return (struct memory_usage){
      .total_bytes = budget_sum_bytes(device),
      .pinned_bytes = pinned,
      .pinned_there_bytes = less(pinned, budget_awaited_bytes(device)),
      .paging_bytes = unified && needs_told(device) ? unified : 0,
      .resident_bytes = resident_bytes(device),
      .yielding_bytes = unified_there && device_can_page(device) ? unified_there : 0,
  };
}

void memory_pinned_arrives(CUdevice device, uint64_t bytes) { budget_arrived(device, bytes); }

/* Swap memory must be on the card before the process runs, unified memory need not: so it comes first at what
 * room there is, and unified memory leaves for it. Both leave for what can't leave, also while that is still
 * to come: so it comes wherever there is room for all that can't leave, whoever runs. What lands does so
 * before anything moves to the card. */
enum memory_progress memory_step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  if (!device_valid(device))
    return MEMORY_SETTLED;
  if (!memory_port.is_stopped(device))
    deferred_reap_drained(device); /* what is being freed is in no ledger, so it could not leave */
  uint64_t movable = backend_managed.resident_bytes(device) + backend_swap.resident_bytes(device);
  if (backend_pinned.step(device, less(room_bytes, movable), moved) == MEMORY_MOVED)
    return MEMORY_MOVED;
  uint64_t room = less(room_bytes, backend_pinned.needed_bytes(device));
  uint64_t unified_room = less(room, backend_swap.needed_bytes(device));
  enum memory_progress progress = atomic_load(&gate_several) ? memory_land(device) : MEMORY_SETTLED;
  if (progress != MEMORY_SETTLED)
    return progress;
  if (backend_managed.resident_bytes(device) > unified_room)
    progress = backend_managed.step(device, unified_room, moved);
  if (progress != MEMORY_MOVED)
    progress = backend_swap.step(device, less(room, backend_managed.resident_bytes(device)), moved);
  return progress == MEMORY_SETTLED ? backend_managed.step(device, unified_room, moved) : progress;
}

struct gs_pass memory_pass(CUdevice device) {
  return device_valid(device) ? passing_own(device) : (struct gs_pass){.name = 0};
}

void memory_set_heir(CUdevice device, const struct memory_heir *heir) {
  if (device_valid(device))
    passing_set_heir(device, heir);
}

void memory_expect_passed(CUdevice device, bool expects) {
  if (device_valid(device))
    passing_expect(device, expects);
}

enum memory_progress memory_land(CUdevice device) {
  enum memory_progress progress = MEMORY_SETTLED;
  for (int i = 0; device_valid(device) && i < KINDS && progress == MEMORY_SETTLED; i++)
    if (backends[i]->land)
      progress = backends[i]->land(device);
  return progress;
}

void memory_prepare_stop(CUdevice device) {
  for (int i = 0; device_valid(device) && i < KINDS; i++)
    if (backends[i]->prepare_stop)
      backends[i]->prepare_stop(device);
}

static bool open_all(CUdevice device, uint64_t enough_bytes, bool waits) {
  bool open = true, enough = device_valid(device) && resident_bytes(device) >= enough_bytes;
  for (int i = 0; device_valid(device) && i < KINDS && open; i++)
    open = !backends[i]->open || backends[i]->open(device, enough, waits);
  for (int i = 0; device_valid(device) && i < KINDS && open; i++)
    if (backends[i]->opened)
      backends[i]->opened(device);
  return open;
}

bool memory_open(CUdevice device, uint64_t enough_bytes) { return open_all(device, enough_bytes, true); }
bool memory_try_open(CUdevice device, uint64_t enough_bytes) { return open_all(device, enough_bytes, false); }

void memory_give_up(CUdevice device) {
  for (int i = 0; device_valid(device) && i < KINDS; i++)
    if (backends[i]->give_up)
      backends[i]->give_up(device);
}

bool memory_may_stop(CUdevice device) {
  bool may = true;
  for (int i = 0; device_valid(device) && i < KINDS && may; i++)
    may = !backends[i]->may_stop || backends[i]->may_stop(device);
  return may;
}

void memory_close(CUdevice device, bool drained) {
  for (int i = 0; device_valid(device) && i < KINDS; i++)
    if (backends[i]->close)
      backends[i]->close(device, drained);
}

void memory_expect_moves(CUdevice device, bool expected) {
  if (device_valid(device))
    backend_expect_moves(device, expected);
}

bool memory_expects_moves(CUdevice device) { return device_valid(device) && backend_expects_moves(device); }

void memory_set_host_tight(bool tight) { slabs_set_tight(tight); }

uint64_t memory_run_timers(uint64_t now_ns) { return slabs_trim(now_ns); }

static void context_leaving(CUcontext context, bool memory_goes) {
  deferred_context_destroyed(context, memory_goes);
  for (int i = 0; i < KINDS; i++)
    if (backends[i]->context_leaving)
      backends[i]->context_leaving(context);
}

void memory_context_leaving(CUcontext context) { context_leaving(context, true); }

void memory_context_left(CUcontext context) {
  for (int i = 0; i < KINDS; i++)
    if (backends[i]->context_left)
      backends[i]->context_left(context);
  account_context_destroyed(context);
}

void memory_context_destroyed(CUcontext context) {
  if (!context)
    return;
  memory_context_leaving(context);
  memory_context_left(context);
}

void memory_green_context_destroyed(CUcontext context, CUcontext primary) {
  context_leaving(context, false);
  account_context_inherited(context, primary);
}

void memory_context_gone(CUcontext context) {
  for (int i = 0; i < KINDS; i++)
    if (backends[i]->context_gone)
      backends[i]->context_gone(context);
}

void memory_fork_prepare(void) { passing_fork_prepare(); }
void memory_fork_parent(void) { passing_fork_parent(); }

void memory_fork_child(void) {
  account_fork_child();
  budget_fork_child();
  deferred_fork_child();
  graphs_fork_child();
  physical_fork_child();
  placement_fork_child();
  pools_fork_child();
  reach_fork_child();
  for (int i = 0; i < KINDS; i++)
    backends[i]->fork_child();
  backend_fork_child();
  device_fork_child();
}
