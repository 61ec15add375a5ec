/*
 * ledger.h - what one process has allocated, and where it is. A ledger maps disjoint ranges of keys to
 * allocations: addresses of device memory, or (with ranges of one) handles.
 *
 * Threading: every function may be called from any thread; one mutex per ledger, held for O(log n) steps and
 * never while the driver is called. A mover that works on an allocation pins it, which keeps ledger_take (and
 * so the free of that very allocation, nothing else) waiting until it is unpinned.
 */
#ifndef GS_LEDGER_H
#define GS_LEDGER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/condition.h"
#include "driver/cuda_abi.h"
#include "gpushare/protocol.h"

/* What stands behind an allocation, and so what may be done with it. */
enum backing {
  BACKING_CONVERTED, /* the program asked for device memory and has got unified memory from us */
  BACKING_APP,       /* the program's own unified memory */
  BACKING_SWAP,      /* mapped while on the card, in host memory while away: see swap/swap.h */
  BACKING_KEPT,      /* no allocation: what the driver keeps of freed ones. See pinned.h */
  BACKING_PINNED,    /* from here on: device memory that cannot leave the card, by enum gs_pinned */
#define X(name, value, word) BACKING_PINNED_##name = BACKING_PINNED + (value),
  GS_PINNED_KINDS(X)
#undef X
      BACKINGS = BACKING_PINNED + GS_PINNED_COUNT,
};

static inline bool backing_is_pinned(enum backing backing) { return backing >= BACKING_PINNED; }

enum origin {
  ORIGIN_PLAIN,  /* cuMemAlloc and its like */
  ORIGIN_POOL,   /* a pool of the driver: stream-ordered */
  ORIGIN_STREAM, /* stream-ordered for the program, plain unified memory underneath: drivers without managed
                    pools */
  ORIGIN_OBJECT, /* a physical handle or an array: the key is a handle, not an address; or a mapping */
};

struct backend;

struct allocation {
  uint64_t base;       /* first key */
  uint64_t span;       /* number of keys, at least 1 */
  uint64_t bytes;      /* what it costs */
  uint64_t away_bytes; /* the first so many bytes are believed to be in host memory */
  uint64_t sequence;   /* unique in the ledger's life: tells a later allocation at the same base apart */
  CUcontext context;   /* it dies with this context; NULL: belongs to none */
  CUmemoryPool pool;   /* ORIGIN_POOL, ORIGIN_STREAM: where the program believes it comes from, or NULL */
  void *object;        /* what the owner of the ledger keeps with it; of unified memory see carry.h */
  const struct backend *backend; /* what stands behind it; NULL: an object */
  CUdevice device;
  uint8_t backing;  /* enum backing */
  uint8_t origin;   /* enum origin */
  bool sync_memops; /* the program has set this attribute of it (cuPointerSetAttribute) */
  bool stays;       /* BACKING_SWAP: it never leaves the card (swap_alloc_small) */
};

/* Whether it stands in for the device memory that the program has asked for. */
static inline bool allocation_stands_in(const struct allocation *allocation) {
  return allocation->backing == BACKING_CONVERTED || allocation->backing == BACKING_SWAP;
}

struct ledger_node;

struct ledger {
  struct lock lock;
  struct condition unpinned;
  struct ledger_node *root;   /* a treap by base */
  struct ledger_node *spares; /* of those taken: the last one can be put back whatever memory there is */
  unsigned spare_count;
  uint64_t next_sequence;
  uint64_t random;
  size_t count;
};

/* An initializer: an empty one. */
#define LEDGER(rank)                                                                                         \
  { .lock = LOCK(rank), .random = 0x9e3779b97f4a7c15u }

/* Add an allocation (its sequence is set here). Ranges that overlap it must have died without our hearing of
 * it: they are removed first and handed to `stale` (ledger locked: it must not call back). 0 or -ENOMEM. */
int ledger_insert(struct ledger *ledger, const struct allocation *allocation,
                  void (*stale)(const struct allocation *, void *), void *argument);

/* The allocation that contains `key`. `found` may be NULL. */
bool ledger_find(struct ledger *ledger, uint64_t key, struct allocation *found);

/* The first allocation that starts in [from, end). */
bool ledger_find_in(struct ledger *ledger, uint64_t from, uint64_t end, struct allocation *found);

/* The first wanted one that starts at `from` or later. */
bool ledger_find_wanted(struct ledger *ledger, uint64_t from,
                        bool (*wanted)(const struct allocation *, void *), void *argument,
                        struct allocation *found);

/* Remove the allocation that starts at `base`. False if there is none, or if another thread is taking it. */
bool ledger_take(struct ledger *ledger, uint64_t base, struct allocation *taken);

/* Remove all allocations of a context; each is handed to `gone` (ledger locked: it must not call back). */
void ledger_remove_context(struct ledger *ledger, CUcontext context,
                           void (*gone)(const struct allocation *, void *), void *argument);

/* All allocations of the context `from` are those of `to` from now on. */
void ledger_change_context(struct ledger *ledger, CUcontext from, CUcontext to);

/* Keep the allocation from being taken. False if it (with this sequence) is gone or going. */
bool ledger_pin(struct ledger *ledger, uint64_t base, uint64_t sequence, struct allocation *pinned);

/* Undo ledger_pin, noting how many bytes are away now. */
void ledger_unpin(struct ledger *ledger, uint64_t base, uint64_t away_bytes);

/* Change what is kept with an allocation, which the caller has pinned. */
void ledger_set_object(struct ledger *ledger, uint64_t base, void *object);

/* Change what an allocation costs, or how much of it is away, while nobody has it pinned. `change` is called
 * with the ledger locked: it must not call back. `before`, `after`: the allocation. False if it (with this
 * sequence) is gone or going. */
bool ledger_change(struct ledger *ledger, uint64_t base, uint64_t sequence,
                   void (*change)(struct allocation *, void *), void *argument, struct allocation *before,
                   struct allocation *after);

/* Note the attribute of the allocation that contains `key`, if there is one. */
void ledger_set_sync_memops(struct ledger *ledger, uint64_t key, bool value);

/* A copy of all wanted allocations, by ascending base, to be freed by the caller. 0 or -ENOMEM. */
int ledger_snapshot(struct ledger *ledger, bool (*wanted)(const struct allocation *, void *), void *argument,
                    struct allocation **copy, size_t *count);

size_t ledger_count(struct ledger *ledger);

/* In the child of a fork: empty and unlocked. What was in it is not freed: another thread may have been
 * changing it. */
void ledger_fork_child(struct ledger *ledger);

#endif
