/*
 * carry.h - unified memory leaves the card and comes back near the speed of the bus: it is copied to a slot
 * of pinned host memory (swap/slabs.h), then it is discarded, and so takes nothing of the card. Back, it gets
 * pages on the card without contents, which a copy fills. By prefetch it leaves at a third of that.
 *
 * Why a kernel: the driver's copies of unified memory, in another context than its own, wait for work that is
 * stopped.
 *
 * Invariant: what is carried has its contents in its slot and nowhere else, and no page fault fetches them.
 * So all of it is back, on the card or in host memory, before the program's work goes on (carry_bytes is 0),
 * and no memory is carried that a thread of the program, a call of the driver, or work on another GPU, may
 * touch meanwhile. To the program it is device memory, which its threads can't touch; they may be in calls
 * that do (managed.c).
 *
 * What is carried of an allocation hangs on its entry in the ledger (`object`), the highest part first. Parts
 * are whole pages.
 *
 * Threading: the GPU's worker, with a context of the device current and the allocation pinned; the rest from
 * any thread.
 */
#ifndef GS_CARRY_H
#define GS_CARRY_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "memory/ledger.h"

/* With nothing stopped, in the context in which memory will move: the kernel is loaded, and if that has not
 * been done for this GPU, it is found out by trying whether all this works. */
void carry_prepare(CUdevice device);

/* Whether memory may leave so, as far as is known; and whether this allocation may. */
bool carry_may(CUdevice device);
bool carry_suits(const struct allocation *allocation);

/* Moves follow, all one way, up to carry_end. False: not in this context, not now, or not at all. */
bool carry_begin(CUdevice device);

/* Queue the way out of whole pages from `from` on, up to `end`: as far as there are slots. What has left by
 * carry_end is on top of what is carried of the owner, and reaches from `from` to carry_top. */
void carry_out(CUdevice device, struct allocation *owner, CUdeviceptr from, CUdeviceptr end);

enum carry_way {
  CARRY_COMES, /* to the card, by carry_end */
  CARRY_HOST,  /* its contents are in the memory again, which is in host memory */
  CARRY_STAYS, /* its context is being destroyed */
};

/* Bring the upmost part back, from `from` on, which is in it. `begun`: carry_begin was true. */
enum carry_way carry_in(CUdevice device, bool begun, struct allocation *owner, CUdeviceptr from);

/* Wait for all that is queued. */
void carry_end(CUdevice device);

/* The same without the card: into host memory, at most so many bytes. Returns how many. */
uint64_t carry_land(struct allocation *owner, uint64_t most_bytes);

/* The first and the last byte but one of the upmost part; both 0: nothing is carried. */
CUdeviceptr carry_floor(const struct allocation *owner);
CUdeviceptr carry_top(const struct allocation *owner);

/* The contents of an allocation are not needed any more, or its memory is gone. */
void carry_drop(struct allocation *owner);

/* Carried now; what is being freed may count until it is free. And what host memory may be needed. */
uint64_t carry_bytes(CUdevice device);
uint64_t carry_host_bytes(CUdevice device);

/* No moves follow for now: what they take of the card beside what is booked (128 MiB) is given back. Any
 * thread, while nothing moves. */
void carry_rest(CUdevice device);

/* What we had in the context is gone with it. */
void carry_context_gone(CUcontext context);

#endif
