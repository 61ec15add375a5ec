/*
 * leases.h - which processes have a block open. A lease is the connection by which such a process has got the
 * memory (lending.h). It stays open until that process has closed the memory, which it says by a byte, or has
 * ended. If the connection ends otherwise, as the program has closed it, the lease stays until the process
 * has ended; and it is a user's no longer.
 *
 * A block that ends while there are leases stays on the card, as the driver keeps it for those processes. So
 * its bytes stay booked until the last of its leases ends. A user's lease ends with the block: the user
 * counts the bytes already.
 *
 * A user (lending.h) may part from the memory for a while: it asks (LEASE_MAY_PART), is answered by the same
 * byte if the block is there, unmaps the memory, and says so (LEASE_HAS_PARTED). Once the memory has left the
 * card, or the maker's own room has it, the maker ends the connection.
 */
#ifndef GS_LEASES_H
#define GS_LEASES_H

#include <poll.h>

#include "common/descriptor.h"
#include "memory/swap/space.h"

/* What an opener says, and the maker when all pieces are given. */
enum lease_byte {
  LEASE_CLOSED = 0, /* the maker: it is a lease */
  LEASE_MAY_PART = 1,
  LEASE_HAS_PARTED = 2,
  LEASE_OF_USER = 3, /* the maker: it is a user's lease */
  LEASE_GONE = 4,    /* the maker, to a user: there is no such block any more */
};

/* The block of this name (struct lent). NULL: it has ended. With the space's lock held. */
struct block *lent_find(const struct space *space, uint64_t name);

/* Takes the connection over. False: it can't be kept, and stays the caller's. With the space's lock held. */
bool lease_begin(struct block *block, const struct descriptor *other, bool user);

/* Whether a process has the block open that is no user. With the space's lock held. */
bool leases_pin(const struct block *block);

/* A user whose connection is lost, and whose process has not ended some time after that, is none any more.
 * True: one of these had the block, which is to be held. pins_due: look again. With the space's lock held. */
bool leases_pin_lost(struct space *space, struct block *block, uint64_t now_ns);

/* One user less. With the space's lock held. */
void lease_drop_user(struct space *space, struct block *block);

/* Users have parted, and wait for the memory to leave. With the space's lock held. */
bool leases_have_parted(const struct space *space);

/* It has left. With the space's lock held. */
void leases_end_parted(struct space *space);

/* The block ends: true, if its bytes stay booked. With the space's lock held. */
bool leases_keep_bytes(const struct block *block);

/* Of a process that has the memory open: tell the one that has made it. */
void lease_say(const struct descriptor *maker, enum lease_byte byte);
void lease_close(struct descriptor *maker);

/* The leases there are, for poll(2): how many. Do what openers say, and end the leases that are over. True:
 * of some only the end of their process is to be seen, so look again soon. No lock is held. */
nfds_t leases_list(struct pollfd *awaited, nfds_t most);
bool leases_look(void);

#endif
