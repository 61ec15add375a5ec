/*
 * leases.h - which processes have a block open. A lease is the connection by which such a process has got the
 * memory (lending.h). It stays open until either process has ended, or that one has closed the memory.
 *
 * A block that ends while there are leases stays on the card, as the driver keeps it for those processes. So
 * its bytes stay booked until the last of its leases ends.
 */
#ifndef GS_LEASES_H
#define GS_LEASES_H

#include <poll.h>

#include "common/descriptor.h"
#include "memory/swap/space.h"

/* Takes the connection over. False: it can't be kept, and stays the caller's. With the space's lock held. */
bool lease_begin(const struct block *block, const struct descriptor *other);

/* The block ends: true, if its bytes stay booked. With the space's lock held. */
bool leases_keep_bytes(const struct block *block);

/* The leases there are, for poll(2): how many. End those that the other side has closed. No lock is held. */
nfds_t leases_list(struct pollfd *awaited, nfds_t most);
void leases_look(void);

#endif
