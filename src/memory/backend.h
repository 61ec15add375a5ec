/*
 * backend.h - what stands behind memory: it stays on the card (pinned.c), it is mapped by the piece
 * (swap/swap.c), or it is unified memory (managed.c). All that depends on which is behind this one table of
 * functions.
 *
 * A device has one backend for the program's plain memory (backend_on). Why all three are asked about a
 * device nevertheless: pools, arrays, the program's own unified memory and small allocations may have
 * another. An allocation says which one it has, so no file below the backends names one.
 *
 * Threading: as memory.h says of the functions that lead here. A function that is NULL has nothing to do.
 */
#ifndef GS_BACKEND_H
#define GS_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "memory/device.h"
#include "memory/ledger.h"
#include "memory/memory.h"

struct backend {
  /* ---- as a device's backend ---- */

  bool (*supported)(CUdevice device); /* whether the device can do it */
  uint32_t attach_flags;              /* GS_ATTACH_*: what the daemon is told */
  bool leaves;                        /* the memory can leave the card */

  /* New memory of `like->device`, reserved and entered into the ledger as `like` says. The driver's result,
   * or CUDA_ERROR_OUT_OF_MEMORY. */
  CUresult (*allocate)(CUdeviceptr *address, size_t bytes, const struct allocation *like);

  /* From now on `peer` may (may no longer) reach the memory. NULL: the driver sees to it, and page faults
   * fetch what is away. Else the memory must be there while `peer` runs. */
  void (*set_peer)(CUdevice device, CUdevice peer, bool access);

  /* ---- of an allocation ---- */

  /* The driver knows mappings, which come and go, and not the allocation: we say what there is to know about
   * it, see where it ends, and free it. */
  bool hidden;

  /* Free an allocation that is out of the ledger, as cuMemFree does, or at once if it is `finished`: no work
   * uses it. The books are the caller's. */
  CUresult (*free)(const struct allocation *taken, bool finished);

  /* What is kept of its contents beside its memory is not needed any more, or its memory is gone. A ledger
   * may be locked: takes no lock but that of the slabs. */
  void (*drop_contents)(struct allocation *allocation);

  /* ---- of a device ---- */

  /* On the card, as far as is known; and what must be there while the process runs. */
  uint64_t (*resident_bytes)(CUdevice device);
  uint64_t (*needed_bytes)(CUdevice device);

  /* Host memory that may be needed for what leaves the card. */
  uint64_t (*host_bytes)(CUdevice device);

  /* One bounded step towards having at most room_bytes on the card, or as much of what is away as fits into
   * them. A context of the device is current. Adds to `moved`. */
  enum memory_progress (*step)(CUdevice device, uint64_t room_bytes, struct memory_moved *moved);

  /* memory_land, memory_prepare_stop, memory_may_stop, memory_give_up and memory_close. */
  enum memory_progress (*land)(CUdevice device);
  void (*prepare_stop)(CUdevice device);
  bool (*may_stop)(CUdevice device);
  void (*give_up)(CUdevice device);
  void (*close)(CUdevice device, bool drained);

  /* Whether the process may run, so far; `enough`: what is on the card does, if page faults fetch the rest.
   * Without `waits`, false where the answer would have to be waited for. */
  bool (*open)(CUdevice device, bool enough, bool waits);
  void (*opened)(CUdevice device); /* all have said yes */

  /* ---- ends ---- */

  /* The context is about to be destroyed; that has happened, and its memory is gone; it is not used any more.
   */
  void (*context_leaving)(CUcontext context);
  void (*context_left)(CUcontext context);
  void (*context_gone)(CUcontext context);
};

extern const struct backend backend_pinned, backend_swap, backend_managed;
extern const struct backend backend_opened; /* of what other processes have made (opened.h) */

/* Whether it is a mapping of memory of cuMemCreate that can leave (physical.c): no allocation to the program.
 */
static inline bool allocation_is_mapping(const struct allocation *allocation) {
  return allocation->origin == ORIGIN_OBJECT && allocation->backend && allocation->backend->hidden;
}

static inline void allocation_drop_contents(struct allocation *allocation) {
  if (allocation->backend && allocation->backend->drop_contents)
    allocation->backend->drop_contents(allocation);
}

/* What stands behind the program's plain memory on this device. Decided when first asked, and kept: by the
 * environment, else by the daemon (may wait for its answer), and by what the device can do, which is logged
 * where it differs. */
const struct backend *backend_on(CUdevice device);

/* As far as that can be said without waiting; NULL: it can't yet. */
const struct backend *backend_on_if_decided(CUdevice device);

/* Whether the program's plain memory on this device can leave the card. */
static inline bool backend_leaves(CUdevice device) { return backend_on(device)->leaves; }

/* Whether pools of unified memory stand in for those of the device. */
static inline bool backend_pages(CUdevice device) {
  return backend_leaves(device) && device_can_page(device);
}

#endif
