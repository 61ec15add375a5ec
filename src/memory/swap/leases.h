/*
 * leases.h - how a process that has opened a block learns of the block's end. A lease is the connection by
 * which that process has got the memory. It stays open until the block ends, or this process does. The other
 * process then counts what it still has (memory/ipc.c).
 *
 * Threading: protected by the space's lock, which the caller has.
 */
#ifndef GS_LEASES_H
#define GS_LEASES_H

#include "common/descriptor.h"
#include "memory/swap/space.h"

/* Takes the connection over. False: it can't be kept, and stays the caller's. */
bool lease_begin(const struct block *block, const struct descriptor *other);

/* The block ends. */
void leases_end(const struct block *block);

#endif
