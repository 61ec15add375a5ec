/* backend.c - which backend a device has. */
#include "memory/backend.h"

#include <stdatomic.h>

#include "common/log.h"
#include "memory/forked.h"
#include "memory/memory_port.h"
#include "settings.h"

/* Where a device can't do what one needs, it has the next one instead. The log then says why, with the
 * device's number. */
static const struct choice {
  const struct backend *backend;
  const char *instead; /* of the one before */
} swap_or_less[] = {
    {&backend_swap, NULL},
    {&backend_managed, "GPU %d cannot map memory by the piece: unified memory is taken instead"},
    {&backend_pinned,
     "GPU %d cannot page unified memory (no concurrent managed access): its memory stays as it is and cannot "
     "leave the card"},
};

static const struct backend *_Atomic chosen[DEVICES]; /* NULL: not decided yet */

static const struct choice *wanted_on(CUdevice device) {
  int memory = settings()->memory;
  switch (memory == MEMORY_UNSET ? memory_port.mode(device) : memory) {
  case GS_MEMORY_SWAP:
    return &swap_or_less[0];
  case GS_MEMORY_OFF:
    return &swap_or_less[2];
  default:
    return &swap_or_less[1];
  }
}

/* Of several threads that find it undecided, the first decides. */
static const struct backend *decide(CUdevice device) {
  const struct choice *wanted = wanted_on(device), *decided = wanted;
  const struct backend *known = NULL;
  while (decided->backend->supported && !decided->backend->supported(device))
    decided++;
  if (!atomic_compare_exchange_strong(&chosen[device], &known, decided->backend))
    return known;
  if (decided != wanted)
    log_warn(decided->instead, device);
  return decided->backend;
}

const struct backend *backend_on(CUdevice device) {
  const struct backend *known = atomic_load(&chosen[device]);
  return known ? known : decide(device);
}

const struct backend *backend_on_if_decided(CUdevice device) {
  return settings()->memory == MEMORY_UNSET ? atomic_load(&chosen[device]) : backend_on(device);
}

static void forget(void) {
  for (int i = 0; i < DEVICES; i++)
    atomic_store(&chosen[i], NULL);
}
IN_FORKED_CHILD(forget);
