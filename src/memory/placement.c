/*
 * placement.c - a table of the ranges that the program wants in host memory, and what each change of it means
 * for the books.
 *
 * Invariant: of each allocation of the program's unified memory, `bytes` is its span without these ranges.
 */
#include "memory/placement.h"

#include <pthread.h>
#include <stdatomic.h>

#include "common/lock.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "memory/account.h"
#include "memory/device.h"
#include "memory/forked.h"
#include "memory/pinned.h"

/* Makes several steps on the table one. Taken under the lock of the ledger of addresses, and before that of
 * the table itself, which is a ledger, too: of disjoint ranges, none adjacent. */
static struct lock lock = LOCK(LOCK_PLACEMENT);
static struct ledger table = LEDGER(LOCK_PLACEMENTS);
static atomic_bool used;

/* ---- the table. With the lock held. ---- */

static bool next_range(uint64_t from, uint64_t end, struct allocation *range) {
  return ledger_find(&table, from, range) || ledger_find_in(&table, from, end, range);
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Bytes of [from, end) that are to be in host memory. */
static uint64_t host_bytes(uint64_t from, uint64_t end) {
  struct allocation range;
  uint64_t bytes = 0;
  for (; from < end && next_range(from, end, &range); from = range.base + range.span)
    bytes += earlier(range.base + range.span, end) - later(range.base, from);
  return bytes;
}

/* A range for which there is no memory is one that is to be on the card. */
static void add_range(uint64_t from, uint64_t end) {
  if (from < end)
    ledger_insert(&table, &(struct allocation){.base = from, .span = end - from}, NULL, NULL);
}

/* All ranges that overlap it are taken out, and those that a new one would touch; then what is left of them
 * is put back. */
static void mark(uint64_t from, uint64_t end, bool on_host) {
  struct allocation range;
  uint64_t low = from, high = end;
  uint64_t first = on_host && from ? from - 1 : from, last = on_host && end < UINT64_MAX ? end + 1 : end;
  while (next_range(first, last, &range) && ledger_take(&table, range.base, &range)) {
    low = earlier(low, range.base);
    high = later(high, range.base + range.span);
  }
  add_range(low, on_host ? high : from);
  add_range(on_host ? high : end, high);
}

/* ---- the books ---- */

struct change {
  uint64_t from, end;
  bool on_host;
};

/* How much of the first `card_bytes` that are to be on the card lies below the address. */
static uint64_t card_bytes_below(const struct allocation *allocation, uint64_t address) {
  return address - allocation->base - host_bytes(allocation->base, address);
}

/* What is away is the beginning of what is to be on the card, so it changes with what is taken out before its
 * end, or put in. With the ledger locked, and nobody moving the allocation. */
static void apply(struct allocation *allocation, void *argument) {
  const struct change *change = argument;
  lock_take(&lock);
  uint64_t below = card_bytes_below(allocation, change->from);
  uint64_t before = change->end - change->from - host_bytes(change->from, change->end);
  mark(change->from, change->end, change->on_host);
  uint64_t after = change->end - change->from - host_bytes(change->from, change->end);
  lock_release(&lock);
  allocation->bytes += after - before;
  if (allocation->away_bytes <= below)
    return;
  uint64_t away_in_it = earlier(allocation->away_bytes - below, before);
  if (after < before)
    allocation->away_bytes -= away_in_it;
  else if (away_in_it == before)
    allocation->away_bytes += after - before;
}

static uint64_t host_bytes_now(const struct change *change) {
  lock_take(&lock);
  uint64_t bytes = host_bytes(change->from, change->end);
  lock_release(&lock);
  return bytes;
}

/* Bytes that come back are reserved first. */
static void change_part(const struct allocation *allocation, struct change *change) {
  uint64_t reserved = change->on_host ? 0 : host_bytes_now(change);
  if ((!change->on_host && !reserved) ||
      (reserved && reserve_or_trim(allocation->device, allocation->backing, reserved)))
    return;
  account_change(allocation, reserved, apply, change);
}

static void note(CUdeviceptr address, size_t bytes, bool on_host) {
  struct allocation found;
  uint64_t end = address + bytes;
  if (!on_host && !atomic_load_explicit(&used, memory_order_relaxed))
    return;
  atomic_store_explicit(&used, true, memory_order_relaxed);
  for (uint64_t at = address; at < end; at = found.base + found.span) {
    if (!ledger_find(&account_addresses, at, &found) && !ledger_find_in(&account_addresses, at, end, &found))
      return;
    struct change change = {later(at, found.base), earlier(end, found.base + found.span), on_host};
    if (found.backing == BACKING_APP)
      change_part(&found, &change);
  }
}

/* ---- what the program says ---- */

static bool is_host(CUmemLocation location) {
  enum { HOST = 2, HOST_NUMA_CURRENT = 4 }; /* not all headers have them */
  return (int)location.type >= HOST && (int)location.type <= HOST_NUMA_CURRENT;
}

static void advised(CUdeviceptr address, size_t bytes, CUmem_advise advice, bool host) {
  if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
    note(address, bytes, advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION && host);
}

void placement_moved(CUdeviceptr address, size_t bytes, CUdevice to) {
  note(address, bytes, to == CU_DEVICE_CPU);
}

void placement_moved_to(CUdeviceptr address, size_t bytes, CUmemLocation to) {
  note(address, bytes, is_host(to));
}

void placement_moved_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                           const CUmemLocation *places, const size_t *first, size_t place_count) {
  for (size_t i = 0, place = 0; i < count; i++) {
    while (place + 1 < place_count && first[place + 1] <= i)
      place++;
    placement_moved_to(addresses[i], sizes[i], places[place]);
  }
}

CUresult hook_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  CUresult result = driver.cuMemAdvise(devPtr, count, advice, device);
  if (result == CUDA_SUCCESS)
    advised(devPtr, count, advice, device == CU_DEVICE_CPU);
  return result;
}

CUresult hook_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
  CUresult result = driver.cuMemAdvise_v2(devPtr, count, advice, location);
  if (result == CUDA_SUCCESS)
    advised(devPtr, count, advice, is_host(location));
  return result;
}

/* ---- what the movers ask ---- */

bool placement_run(const struct allocation *allocation, uint64_t at_bytes, struct placement_run *run) {
  uint64_t at = allocation->base, end = allocation->base + allocation->span;
  struct allocation range;
  *run = (struct placement_run){.address = at, .bytes = allocation->span};
  if (allocation->bytes == allocation->span)
    return at_bytes < allocation->span;
  *run = (struct placement_run){.address = at};
  lock_take(&lock);
  for (; at < end; at = range.base + range.span) {
    uint64_t stop = next_range(at, end, &range) ? later(range.base, at) : end;
    *run = (struct placement_run){.address = at, .at_bytes = run->at_bytes + run->bytes, .bytes = stop - at};
    if (at_bytes < run->at_bytes + run->bytes || stop == end)
      break;
  }
  lock_release(&lock);
  return at_bytes >= run->at_bytes && at_bytes < run->at_bytes + run->bytes;
}

void placement_forget(CUdeviceptr address, size_t bytes) {
  if (!atomic_load_explicit(&used, memory_order_relaxed))
    return;
  lock_take(&lock);
  mark(address, address + bytes, false);
  lock_release(&lock);
}

static void forget(void) {
  lock = (struct lock)LOCK(LOCK_PLACEMENT);
  ledger_fork_child(&table);
  atomic_store(&used, false);
}
IN_FORKED_CHILD(forget);
