/*
 * lending.h - blocks that other processes map as well (memory/ipc.c). A piece can't leave under the others'
 * feet: so from the time on that one of its allocations is shared, a block is held on the card, and its bytes
 * count as pinned. Once it has been opened, and nobody has had it open for LENDING_IDLE_NS, it is let go. To
 * be lent again it is held again. Memory that stays anyhow (space_staying) is shared as it is.
 *
 * Threading: any thread, but where it says otherwise.
 */
#ifndef GS_LENDING_H
#define GS_LENDING_H

#include "common/clock.h"
#include "common/descriptor.h"
#include "driver/cuda_abi.h"
#include "memory/swap/space.h"

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

/* In the process' turn, by one thread at a time: the extent's block is held, and its name is *name. The books
 * are changed here. CUDA_ERROR_NOT_PERMITTED: some of its memory has come from another process, and no
 * descriptor of it is left. */
CUresult lending_hold(struct extent *extent, struct lent_name *name);

/* The block is about to be lent: until lending_end it is not let go. 0; -ENOENT: it is gone; -EAGAIN: it is
 * not held, and *allocation is the address that is named, for lending_hold. */
int lending_begin(const struct lent_name *name, CUdeviceptr *allocation);

/* A descriptor of piece `i` of the block, with its note, to the other side. 0 or -errno: -ENOENT: there is no
 * such piece, or no block any more. */
int lending_give(const struct lent_name *name, size_t i, const struct descriptor *to);

/* If all pieces are `given`, the connection becomes the other side's lease (leases.h), and is forgotten in
 * *to. The other side is told so by a byte. If the connection can't be kept, the caller ends it without that
 * byte, and the block stays on the card until its end. */
void lending_end(const struct lent_name *name, bool given, struct descriptor *to);

/* Let go of what nobody has open any more. Returns when to look again (UINT64_MAX: no need). */
uint64_t lending_let_go(uint64_t now_ns);

#endif
