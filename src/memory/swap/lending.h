/*
 * lending.h - blocks that other processes map as well (memory/ipc.c). A piece can't leave under the others'
 * feet: so from the time on that one of its allocations is shared, a block is held on the card, and its bytes
 * count as pinned. Once it has been opened, and nobody has had it open for LENDING_IDLE_NS, it is let go. To
 * be lent again it is held again. Memory that stays anyhow (space_staying) is shared as it is.
 *
 * A process that has a large block open, and that can unmap it while it is stopped, is a *user*: it counts
 * the bytes as its own that can leave, and holds nothing. So each process says for itself when it needs the
 * memory on the card, and it leaves once none does. When the maker is to make way, a block with users is set
 * aside: it stays where it is, on the users' account. When the last user has parted from it (leases.h), it
 * leaves as other memory does. For a user that comes back the maker fetches it, whoever's turn it is: the
 * user's room on the card is room for it.
 *
 * Threading: any thread, but where it says otherwise.
 */
#ifndef GS_LENDING_H
#define GS_LENDING_H

#include "common/clock.h"
#include "common/descriptor.h"
#include "driver/cuda_abi.h"
#include "memory/swap/space.h"

/* A process that opens a block of so many bytes may be a user. With less it is not worth it: what is used by
 * several counts for each, so jobs take turns that would fit beside each other if it counted once. */
#define LENDING_USER_BYTES PIECE_BYTES

/* Why: a program that sends tensors one after the other has its last one closed before the next is opened. */
#define LENDING_IDLE_NS (2 * NS_PER_S)

/* An allocation whose block has been shared: no other block is ever called the same in this process. */
struct lent_name {
  uint64_t name;  /* struct lent */
  uint32_t space; /* of SPACES */
  uint32_t at;    /* of the allocation, in the block: units of UNIT_BYTES */
};

/* Goes with each piece. */
struct lent_note {
  uint64_t block_bytes;
  uint64_t at, bytes; /* of the piece, in the block */
};

/* Whether memory of the device can be shared so. */
bool lending_can(CUdevice device);

/* In the process' turn, by one thread at a time: the extent's block is held, and its name is *name. `named`:
 * a block that users may open is only named, and not held before another process opens it. The books are
 * changed here. CUDA_ERROR_NOT_PERMITTED: some of its memory has come from another process, and no descriptor
 * of it is left. */
CUresult lending_hold(struct extent *extent, bool named, struct lent_name *name);

/* The block is about to be lent: until lending_end it is not let go. 0; -ENOENT: it is gone; -EAGAIN: it is
 * not held, and *allocation is the address that is named, for lending_hold; -EINPROGRESS, for a user: it has
 * begun, but the block is not there yet. */
int lending_begin(const struct lent_name *name, bool user, CUdeviceptr *allocation);

/* After -EINPROGRESS: wait for a moment. 0: it is there; -EINPROGRESS; -ENOENT. */
int lending_await(const struct lent_name *name);

/* A descriptor of piece `i` of the block, with its note, to the other side. 0 or -errno: -ENOENT: there is no
 * such piece, or no block any more. */
int lending_give(const struct lent_name *name, size_t i, const struct descriptor *to);

/* After lending_begin. If all pieces are `given`, the connection becomes the other side's lease (leases.h),
 * and is forgotten in *to. The other side is told so by a byte. If the connection can't be kept, the caller
 * ends it without that byte, and the block stays on the card until its end; but not for a user, which then
 * has to begin anew as none. */
void lending_end(const struct lent_name *name, bool given, bool user, struct descriptor *to);

/* What no user has any more is the process' own again. With the mutex held. */
void lending_take_unused(struct space *space);

/* The process is to make way: blocks with users are set aside. With the mutex held. */
void lending_set_aside(struct space *space);

/* A block that users wait for; NULL: there is none. With the mutex held. */
struct block *lending_wanted(struct space *space);

/* The process is to run: what is not all there is its own again. With the mutex held. */
void lending_take_back(struct space *space);

/* Let go of what nobody has open any more. Returns when to look again (UINT64_MAX: no need). Devices where
 * memory counts as pinned from now on, as a user has lost its connection, are added to the mask: the daemon
 * is to be asked (budget_ask). */
uint64_t lending_let_go(uint64_t now_ns, uint64_t *noted);

#endif
