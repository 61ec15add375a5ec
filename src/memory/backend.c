/* backend.c - which backend a device has, and which one an allocation is of. */
#include "memory/backend.h"

#include <stdatomic.h>

#include "common/log.h"
#include "memory/memory_port.h"
#include "memory/swap/slabs.h"
#include "settings.h"

static const struct backend *_Atomic chosen[DEVICES]; /* NULL: not decided yet */
static _Atomic bool expecting[DEVICES];               /* moves: host memory is made ready */

const struct backend *backend_of(const struct allocation *allocation) {
  static const struct backend *const backends[BACKINGS] = {
      [BACKING_CONVERTED] = &backend_managed, [BACKING_APP] = &backend_managed,
      [BACKING_PINNED] = &backend_pinned,     [BACKING_SWAP] = &backend_swap,
      [BACKING_KEPT] = &backend_pinned,
  };
  return backends[allocation->backing];
}

static const struct backend *wanted_on(CUdevice device) {
  int memory = settings()->memory;
  switch (memory == MEMORY_UNSET ? memory_port.mode(device) : memory) {
  case GS_MEMORY_SWAP:
    return &backend_swap;
  case GS_MEMORY_OFF:
    return &backend_pinned;
  default:
    return &backend_managed;
  }
}

/* Of several threads that find it undecided, the first decides. */
static const struct backend *decide(CUdevice device) {
  const struct backend *wanted = wanted_on(device), *decided = wanted, *known = NULL;
  while (decided->supported && !decided->supported(device))
    decided = decided->otherwise;
  if (!atomic_compare_exchange_strong(&chosen[device], &known, decided))
    return known;
  if (decided != wanted)
    log_warn(decided->as_otherwise, device);
  return decided;
}

const struct backend *backend_on(CUdevice device) {
  const struct backend *known = atomic_load(&chosen[device]);
  return known ? known : decide(device);
}

const struct backend *backend_on_if_decided(CUdevice device) {
  return settings()->memory == MEMORY_UNSET ? atomic_load(&chosen[device]) : backend_on(device);
}

/* All devices share it. */
static void prepare_host(void) {
  uint64_t bytes = 0;
  for (CUdevice device = 0; device < DEVICES; device++)
    if (atomic_load(&expecting[device]))
      bytes += backend_managed.host_bytes(device) + backend_swap.host_bytes(device);
  slabs_prepare(bytes);
}

void backend_expect_moves(CUdevice device, bool expected) {
  if (atomic_exchange(&expecting[device], expected) != expected)
    prepare_host();
}

bool backend_expects_moves(CUdevice device) { return atomic_load(&expecting[device]); }

void backend_prepare_host(CUdevice device) {
  if (backend_expects_moves(device))
    prepare_host();
}

void backend_fork_child(void) {
  for (int i = 0; i < DEVICES; i++) {
    atomic_store(&chosen[i], NULL);
    atomic_store(&expecting[i], false);
  }
}
