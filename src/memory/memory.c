/* memory.c - what the memory room says and does as a whole. */
#include "memory/memory.h"

#include "memory/account.h"
#include "memory/deferred.h"
#include "memory/device.h"
#include "memory/physical.h"
#include "memory/pools.h"
#include "memory/populate.h"
#include "memory/swap/swap.h"

struct memory_usage memory_usage(CUdevice device) {
  if (!device_valid(device))
    return (struct memory_usage){0};
  uint64_t movable = budget_used_bytes(device, BACKING_CONVERTED) + budget_used_bytes(device, BACKING_APP);
  uint64_t away = account_away_bytes(device);
  return (struct memory_usage){
      .total_bytes = budget_sum_bytes(device),
      .pinned_bytes = budget_used_bytes(device, BACKING_PINNED),
      .resident_bytes = away < movable ? movable - away : 0,
  };
}

void memory_context_destroyed(CUcontext context) {
  if (!context)
    return;
  populate_context_destroyed(context);
  deferred_context_destroyed(context);
  swap_context_destroyed(context);
  account_context_destroyed(context);
}

void memory_fork_child(void) {
  account_fork_child();
  budget_fork_child();
  deferred_fork_child();
  physical_fork_child();
  pools_fork_child();
  populate_fork_child();
  swap_fork_child();
  device_fork_child();
}
