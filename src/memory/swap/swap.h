/*
 * swap.h - device memory whose addresses stay while its bytes come and go: reserved ranges, with physical
 * memory mapped under them while they are on the card, and the bytes in pinned host memory while they are
 * not. Touching what is away crashes the program that does it, so the gate must let nothing through.
 *
 * A space (one per device) is open while the process may submit and everything is on the card: new memory is
 * then mapped at once. It is closed otherwise: new memory gets its pages with the next restore.
 *
 * Threading: any thread. One mutex per space protects it; it is held for at most about the copy of one piece
 * (32 MiB).
 */
#ifndef GS_SWAP_H
#define GS_SWAP_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "memory/ledger.h"

/* As `allocate` of backend.h, for at most 2 MiB that stay on the card: booked as pinned, by whole blocks, and
 * there at once, without a wait for anything. An error where the driver can't do it, or too much stays
 * already: then other memory has to do. */
CUresult swap_alloc_small(CUdeviceptr *address, size_t bytes, const struct allocation *like);

/* There is, or was, memory in the device's space. Any thread, no lock. */
bool swap_is_used(CUdevice device);

/* Of what is on the card, so much has a copy in host memory. Any thread, no lock. */
uint64_t swap_copies_bytes(CUdevice device);

/* Of what is booked, so much is kept for allocations to come and can be given up at once: the program may
 * have it. Any thread, no lock. */
uint64_t swap_spare_bytes(CUdevice device);

/* Give it up. Returns how many bytes that was. Takes the space's mutex. */
uint64_t swap_drop_spares(CUdevice device);

struct space;
struct extent;

/* Memory that is in no ledger yet, and on the card if the process runs. `by_handle`: see handles.h. */
CUresult swap_take(struct space *space, uint64_t bytes, bool by_handle, struct extent **extent);

/* Whether memory may be passed to this process: see passing.h. */
bool swap_is_coming(CUdevice device);

#endif
