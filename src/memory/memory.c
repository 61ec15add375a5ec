/* memory.c - what the memory room says and does as a whole. */
#include "memory/memory.h"

#include <stdatomic.h>

#include "gate/gate.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/deferred.h"
#include "memory/forked.h"
#include "memory/memory_port.h"
#include "memory/opened.h"
#include "memory/swap/blocks.h"
#include "memory/swap/copies.h"
#include "memory/swap/passing.h"
#include "memory/swap/slabs.h"
#include "memory/swap/swap.h"

/* By precedence: each has the room on the card that is left by what those before it need. */
static const struct backend *const backends[] = {&backend_pinned, &backend_swap, &backend_opened,
                                                 &backend_managed};
enum { KINDS = sizeof backends / sizeof backends[0] };

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* From the one of this precedence on. */
static uint64_t resident_bytes(CUdevice device, int from) {
  uint64_t bytes = 0;
  for (int i = from; i < KINDS; i++)
    bytes += backends[i]->resident_bytes(device);
  return bytes;
}

uint32_t memory_attach_flags(CUdevice device) {
  if (!device_valid(device))
    return 0;
  const struct backend *backend = backend_on_if_decided(device);
  if (!backend)
    return GS_ATTACH_DEFAULT;
  return swap_is_used(device) ? backend->attach_flags & ~GS_ATTACH_MANAGED : backend->attach_flags;
}

/* Where all memory is unified, the daemon knows that it pages. */
static bool needs_told(CUdevice device) {
  return !(memory_attach_flags(device) & GS_ATTACH_MANAGED) && device_can_page(device);
}

struct memory_usage memory_usage(CUdevice device) {
  if (!device_valid(device))
    return (struct memory_usage){0};
  uint64_t pinned = budget_pinned_bytes(device);
  uint64_t unified = budget_used_bytes(device, BACKING_CONVERTED) + budget_used_bytes(device, BACKING_APP);
  uint64_t unified_there = account_unified_bytes(device);
  struct memory_usage usage = {
      .total_bytes = budget_sum_bytes(device),
      .pinned_bytes = pinned,
      .pinned_there_bytes = less(pinned, budget_awaited_bytes(device)),
      .paging_bytes = unified && needs_told(device) ? unified : 0,
      .fixed = swap_is_used(device) || opened_makes_way(device),
      .resident_bytes = resident_bytes(device, 0),
      .copies_bytes = swap_copies_bytes(device),
      .yielding_bytes = unified_there && device_can_page(device) ? unified_there : 0,
  };
  for (int kind = 0; kind < GS_PINNED_COUNT; kind++)
    usage.kind_bytes[kind] = budget_used_bytes(device, BACKING_PINNED + kind);
  return usage;
}

void memory_pinned_arrives(CUdevice device, uint64_t bytes) { budget_arrived(device, bytes); }

/* ---- one step ---- */

/* What the one of precedence i may have once those after it have made way. */
static uint64_t own_room(CUdevice device, int i, uint64_t room_bytes) {
  for (int k = 0; k < i; k++)
    room_bytes = less(room_bytes, backends[k]->needed_bytes ? backends[k]->needed_bytes(device) : 0);
  return room_bytes;
}

/* Towards what it may have now. Where the program's memory stays on the card, only its own unified memory
 * could leave, and stays as well. */
static enum memory_progress step(CUdevice device, int i, uint64_t room_bytes, struct memory_moved *moved) {
  uint64_t room = less(own_room(device, i, room_bytes), resident_bytes(device, i + 1));
  uint64_t there = backends[i]->resident_bytes(device);
  bool stays = i > 0 && there > room && !backend_leaves(device);
  return backends[i]->step(device, stays ? UINT64_MAX : room, moved); /* more may be there by now */
}

/* What the driver keeps of pinned memory leaves before all else. Then each backend makes way for those before
 * it, the last one first; also for what can't leave and is still to come: so that comes wherever there is
 * room for all that can't leave, whoever runs. At last each takes its room, and what page faults don't fetch
 * comes first. What lands does so before anything moves to the card. */
enum memory_progress memory_step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  if (!device_valid(device))
    return MEMORY_SETTLED;
  if (!memory_port.is_stopped(device))
    deferred_reap_drained(device); /* what is being freed is in no ledger, so it could not leave */
  if (step(device, 0, room_bytes, moved) == MEMORY_MOVED)
    return MEMORY_MOVED;
  enum memory_progress progress = atomic_load(&gate_several) ? memory_land(device) : MEMORY_SETTLED;
  if (progress != MEMORY_SETTLED)
    return progress;
  struct {
    bool made; /* here, and nothing has moved: it comes to the same below */
    enum memory_progress progress;
  } way[KINDS] = {{false, MEMORY_SETTLED}};
  for (int i = KINDS - 1; i > 0; i--) {
    way[i].made = backends[i]->resident_bytes(device) > own_room(device, i, room_bytes);
    if (way[i].made && (way[i].progress = step(device, i, room_bytes, moved)) == MEMORY_MOVED)
      return MEMORY_MOVED;
  }
  bool waits = false;
  for (int i = 1; i < KINDS && progress == MEMORY_SETTLED; i++) {
    progress = way[i].made ? way[i].progress : step(device, i, room_bytes, moved);
    waits |= progress == MEMORY_WAITS;
    progress = progress == MEMORY_WAITS ? MEMORY_SETTLED : progress;
  }
  return waits && progress == MEMORY_SETTLED ? MEMORY_MOVED : progress;
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

/* The last first: one whose memory must be there opens with its answer. */
static bool open_all(CUdevice device, uint64_t enough_bytes, bool waits) {
  bool open = true, enough = device_valid(device) && resident_bytes(device, 0) >= enough_bytes;
  for (int i = KINDS - 1; device_valid(device) && i >= 0 && open; i--)
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
  if (!device_valid(device) || !slabs_expect(device, expected))
    return;
  slabs_need(device, BACKING_SWAP, backend_swap.host_bytes(device));
  slabs_need(device, BACKING_CONVERTED, backend_managed.host_bytes(device));
}

bool memory_expects_moves(CUdevice device) { return device_valid(device) && slabs_is_expected(device); }

void memory_set_host_tight(bool tight) { slabs_set_tight(tight); }

void memory_set_host_copies(enum gs_host_copies mode) { copies_set_mode(mode); }

uint64_t memory_run_timers(uint64_t now_ns) {
  uint64_t copies_ns = copies_trim(now_ns), slabs_ns = slabs_trim(now_ns), blocks_ns = blocks_trim(now_ns);
  uint64_t next_ns = copies_ns < slabs_ns ? copies_ns : slabs_ns;
  return next_ns < blocks_ns ? next_ns : blocks_ns;
}

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
  opened_context_left(context);
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
  opened_context_inherited(context, primary);
}

void memory_context_gone(CUcontext context) {
  for (int i = 0; i < KINDS; i++)
    if (backends[i]->context_gone)
      backends[i]->context_gone(context);
}

void memory_fork_prepare(void) { passing_fork_prepare(); }
void memory_fork_parent(void) { passing_fork_parent(); }

void memory_fork_child(void) { forked_forget_all(); }
