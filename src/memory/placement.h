/*
 * placement.h - which parts of the program's own unified memory it wants in host memory: those that it has
 * said so of last, by their preferred location or by a prefetch. They cost nothing on the card: they don't
 * count as its memory, and neither come to it nor leave it by us.
 *
 * Threading: any thread.
 */
#ifndef GS_PLACEMENT_H
#define GS_PLACEMENT_H

#include "memory/ledger.h"

/* What a call has told the driver, with success. A part that is not to be in host memory any more costs its
 * bytes again; where they are not granted, it stays free of charge. May block for a round trip to the daemon.
 */
void placement_moved(CUdeviceptr address, size_t bytes, CUdevice to);
void placement_moved_to(CUdeviceptr address, size_t bytes, CUmemLocation to);

/* A batch: place n holds from address first[n] on. */
void placement_moved_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                           const CUmemLocation *places, const size_t *first, size_t place_count);

/* A part of an allocation that lies in one piece: addresses, and where in all that is to be on the card. */
struct placement_run {
  uint64_t address, at_bytes, bytes;
};

/* The run with the byte `at_bytes` of what is to be on the card of this allocation, which is pinned. False:
 * it has no such byte. */
bool placement_run(const struct allocation *allocation, uint64_t at_bytes, struct placement_run *run);

/* New unified memory of the program's, not in the ledger yet: nothing has been said of its parts. */
void placement_forget(CUdeviceptr address, size_t bytes);

#endif
