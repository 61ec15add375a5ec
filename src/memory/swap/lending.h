/*
 * lending.h - blocks that other processes map as well (memory/ipc.c). A piece can't leave under the others'
 * feet: so from the first time on that one of its allocations is shared, a block is held on the card until it
 * ends, and its bytes count as pinned. Memory that stays anyhow (space_staying) is shared as it is.
 *
 * Threading: any thread, but where it says otherwise.
 */
#ifndef GS_LENDING_H
#define GS_LENDING_H

#include "common/descriptor.h"
#include "driver/cuda_abi.h"
#include "memory/swap/space.h"

/* A block that is shared, as long as it lives: no other one is ever called the same in this process. */
struct lent_name {
  uint64_t age;
  uint32_t space; /* of SPACES */
  uint32_t pad;
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

/* A descriptor of piece `i` of the block, with its note, to the other side. 0 or -errno: -ENOENT: it is gone.
 */
int lending_give(const struct lent_name *name, size_t i, const struct descriptor *to);

/* All pieces are lent. The connection becomes the other side's lease (leases.h), and is forgotten in *to. The
 * other side is told so by a byte. If the connection can't be kept, the caller ends it without that byte. */
void lending_end(const struct lent_name *name, struct descriptor *to);

#endif
