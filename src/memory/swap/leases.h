/*
 * leases.h - which processes have a block open. A lease is the connection by which such a process has got the
 * memory (lending.h). It stays open until that process has closed the memory, which it says by a byte, or has
 * ended. If the connection ends otherwise, as the program has closed it, the lease stays until the process
 * has ended.
 *
 * A block that ends while there are leases stays on the card, as the driver keeps it for those processes. So
 * its bytes stay booked until the last of its leases ends.
 */
#ifndef GS_LEASES_H
#define GS_LEASES_H

#include <poll.h>

#include "common/descriptor.h"
#include "memory/swap/space.h"

/* The block of this name (struct lent), in a list of a space. NULL: it is not there. With the space's lock
 * held. */
struct block *lent_find(struct block *newest, uint64_t name);

/* Takes the connection over. False: it can't be kept, and stays the caller's. With the space's lock held. */
bool lease_begin(struct block *block, const struct descriptor *other);

/* Whether a process has the block open. With the space's lock held. */
bool leases_has(const struct block *block);

/* The block ends: true, if its bytes stay booked. With the space's lock held. */
bool leases_keep_bytes(const struct block *block);

/* Of a process that has closed the memory: tell the one that has made it. */
void lease_close(struct descriptor *maker);

/* The leases there are, for poll(2): how many. End those that are over. True: of some only the end of their
 * process is to be seen, so look again soon. No lock is held. */
nfds_t leases_list(struct pollfd *awaited, nfds_t most);
bool leases_look(void);

#endif
