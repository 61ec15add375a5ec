/*
 * space.h - what the swap memory of a device consists of, and the mutex that protects it.
 *
 * A block is a reserved range of addresses, divided into pieces that are mapped and unmapped on their own. It
 * holds one allocation, or (shared) many small ones: its extents cover it without gaps. A space is all blocks
 * of a device by age. A device has two: the memory of one can leave the card; that of the other stays there,
 * so that space is always open, and booked as pinned (swap_alloc_small).
 *
 * Two rules hold whenever the mutex is free:
 *   - contents are in exactly one place: on the card (RESIDENT, LEAVING) or in a slot (AWAY, COMING); what
 *     is all zero need not be anywhere, and what is on the card may have a copy in a slot (copies.h);
 *   - while the space is open, what is not RESIDENT belongs to allocations that its backend has yet to
 * return.
 *
 * Threading: everything here is protected by space.lock, but for what is atomic. The driver is called with
 * it; of our locks, only those of slabs.h are taken under it.
 */
#ifndef GS_SPACE_H
#define GS_SPACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/condition.h"
#include "driver/cuda_abi.h"
#include "memory/device.h"
#include "memory/ledger.h"
#include "memory/swap/hash.h"

#define GRAIN_BYTES (UINT64_C(2) << 20)  /* the driver's unit of physical memory */
#define PIECE_BYTES (UINT64_C(32) << 20) /* 64 and 128 MiB are no faster, and make everybody wait longer */
#define SHARED_BELOW_BYTES (UINT64_C(1) << 20) /* smaller allocations share blocks */
#define UNIT_BYTES UINT64_C(512)               /* these are multiples of this, and aligned to it */

#define SPACES (2 * DEVICES)
#define HOLE_CLASSES 24 /* by the power of two of UNIT_BYTES */
#define WINDOW_COPIES 16
#define WINDOW_BYTES (8 * PIECE_BYTES)

enum piece_state {
  PIECE_FRESH,    /* no contents, not mapped */
  PIECE_RESIDENT, /* mapped */
  PIECE_LEAVING,  /* mapped, being copied to its slot */
  PIECE_AWAY,     /* in its slot, not mapped */
  PIECE_COMING,   /* mapped, being copied from its slot */
};

struct piece {
  void *slot; /* of slabs.h: LEAVING, AWAY, COMING; NULL: its contents are all zero. RESIDENT: a copy of what
                 it had when it came; NULL: there is none */
  int passed; /* mapped: a descriptor of its memory (passing.h); 0: none */
  bool foreign; /* mapped: another process has made its memory, which the driver does not export again */
  bool opened;  /* mapped: it may be reached at its own address */
  enum piece_state state;

  /* copies.h */
  struct hash hash;   /* `hashed`: of the contents in the slot; without one, of those that are known */
  uint64_t known;     /* the closing of the space in which its contents became known; 0: never */
  bool hashed, zero;  /* `zero`: what is known, or away, is all zero */
  bool looking;       /* it is being hashed */
  uint8_t vain_looks; /* in a row */
  uint8_t skips;      /* so many times it leaves without a look */
};

struct block;

/* A further range of addresses at which the program has mapped a block. */
struct alias {
  struct alias *next;
  CUdeviceptr at;
  uint8_t rights[DEVICES]; /* CUmemAccess_flags */
};

/* Of a block, for lending.h. All zero: it is not shared. */
struct lent {
  uint64_t name;    /* no other block of the space ever has it */
  uint64_t used_ns; /* when somebody asked for it, or closed it, the last time */
  unsigned lenders; /* threads that are about to lend it */
  unsigned users;   /* that make way (lending.h), and threads that are about to lend it to such */
  bool was_opened;
  bool stays; /* who has it open can't be known */
};

/* A part of a block: an allocation, or a hole. */
struct extent {
  struct block *block;
  uint64_t at, bytes;            /* where in the block */
  struct extent *before, *after; /* its neighbours there */
  struct extent *next, **link; /* a hole: others of its class; an allocation whose free was put off: others */
  CUcontext context;           /* in the latter case: whose work may still use it */
  bool used;
};

struct block {
  struct space *space;
  struct block *older, *newer;
  uint64_t age; /* counts up: the newest has the highest */
  CUdeviceptr base;
  uint64_t bytes; /* all but the last piece have PIECE_BYTES; a multiple of GRAIN_BYTES */
  bool shared;
  bool held;  /* shared with other processes: it stays on the card, in no sum of its space (lending.h) */
  bool aside; /* held for users only: booked as what can leave, and not all of it need be there yet */
  struct lent lent;
  bool by_handle; /* memory of cuMemCreate: the program reaches it at its aliases only */
  bool spare;     /* in the list of spares */
  struct block *next_spare;
  struct alias *aliases;
  size_t used;             /* extents that are allocations */
  struct extent *extents;  /* the first */
  size_t resident, absent; /* pieces that are RESIDENT; that are FRESH or AWAY */
  size_t pieces;
  struct piece piece[];
};

/* What is in flight: see mover.c. */
struct mover {
  CUcontext context; /* of the streams and events; NULL: there are none */
  CUstream out, in;
  CUevent part_done; /* outward */
  struct copy {
    struct block *block;
    size_t piece;
    CUevent done;          /* inward */
    uint64_t queued_bytes; /* outward: so far */
    bool spared;           /* there is nothing to copy */
  } copies[WINDOW_COPIES]; /* a ring */
  unsigned first, count;
  uint64_t flying_bytes;
  uint64_t part_bytes;               /* outward: in the part that is being copied */
  uint64_t awake_ns;                 /* who waits for it need not look before */
  bool outward;                      /* the direction of them all */
  uint64_t moved_out, moved_in;      /* since they were last told (swap.c) */
  uint64_t spared, spared_out;       /* likewise: without a copy; of these, outward */
  bool slots_missed, failure_logged; /* said once */
};

/* What is being hashed: see copies.c. */
struct looks {
  struct hasher hasher;
  struct {
    struct block *block;
    size_t piece;
  } at[HASH_MOST];
  unsigned count;
  uint64_t closing; /* in which it was begun */
};

struct space {
  struct lock turn; /* held while waiting for the lock: who comes first, has it first */
  struct lock lock;
  struct condition changed; /* it was closed, or something has left the card */
  CUdevice device;
  enum backing backing; /* of the bytes in the budget: BACKING_SWAP; BACKING_PINNED_SMALL: what stays */
  bool open;
  uint64_t closings;
  bool drained;   /* it was closed with no work unfinished that might use the memory */
  bool dead;      /* the last step has failed, as all calls of the driver will */
  bool resized;   /* total_bytes has changed since space_lock */
  uint64_t peers; /* one bit per device that may reach the memory */
  struct block *oldest, *newest;
  struct block *held;
  struct block *evict_from;   /* no newer block has RESIDENT pieces */
  struct block *restore_from; /* no older block has FRESH or AWAY ones */
  uint64_t next_age;
  unsigned users;           /* of its blocks */
  bool pins_due;            /* users have lost their connection (leases_pin_lost) */
  uint64_t missing_bytes;   /* in pieces that are not RESIDENT */
  uint64_t shared_bytes;    /* of shared blocks */
  struct block *spares;     /* without allocations, kept for the next ones; the newest first */
  uint64_t spares_since_ns; /* none has come since */
  bool spares_watched;      /* blocks_trim will look again */
  struct extent *holes[HOLE_CLASSES];
  struct extent *doomed;                    /* frees that were put off (blocks.c) */
  uint64_t refund_bytes, refund_held_bytes; /* to be given back to the budget when the mutex is free again */
  _Atomic uint64_t resident_bytes, total_bytes;
  _Atomic uint64_t held_bytes;
  _Atomic uint64_t spare_bytes; /* of spares that are not shared */
  _Atomic uint64_t kept_bytes;  /* slots of pieces that are RESIDENT */
  struct mover mover;
  struct looks looks;
};

/* That of the memory that can leave, and that of the memory that stays. */
struct space *space_of(CUdevice device);
struct space *space_staying(CUdevice device);

/* Each of SPACES. */
struct space *space_at(size_t i);
size_t space_number(const struct space *space);

/* In the order of arrival: the mover, who takes the mutex anew at once, does not starve the program. */
void space_lock(struct space *space);
bool space_try_lock(struct space *space); /* false: somebody has it, or waits for it */
void space_unlock(struct space *space);

/* In and out of the list of blocks: all pieces are FRESH. */
void space_link(struct space *space, struct block *block);
void space_unlink(struct space *space, struct block *block);

/* As if it had just been made, and mapped: all pieces are RESIDENT. */
void space_renew(struct space *space, struct block *block);

/* All pieces are RESIDENT. */
bool block_is_there(const struct block *block);

/* No lock. */
bool space_is_empty(struct space *space);

/* To the list of those that are held, and back, as the newest. */
void space_hold(struct space *space, struct block *block);
void space_let_go(struct space *space, struct block *block);

CUdeviceptr piece_at(const struct block *block, size_t i);
uint64_t piece_bytes(const struct block *block, size_t i);
bool piece_is_absent(const struct block *block, size_t i); /* FRESH or AWAY: not mapped */
void piece_become(struct space *space, struct block *block, size_t i, enum piece_state state);

/* The last RESIDENT piece of the newest block that has one; the first FRESH or AWAY one of the oldest. False:
 * there is none. */
bool space_next_out(struct space *space, struct block **block, size_t *piece);
bool space_next_in(struct space *space, struct block **block, size_t *piece);

#endif
