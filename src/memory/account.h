/*
 * account.h - the process' two ledgers (addresses, and handles of objects) together with its budget: who adds
 * an allocation has reserved its bytes; who removes it gives them back here.
 *
 * Threading: any thread; allocates, so never from function look-ups.
 */
#ifndef GS_ACCOUNT_H
#define GS_ACCOUNT_H

#include "memory/budget.h"
#include "memory/ledger.h"

extern struct ledger account_addresses;
extern struct ledger account_objects;

/* Enter an allocation whose bytes budget_reserve has granted. 0, or -ENOMEM after a line in the log: then the
 * caller frees the memory, and gives the bytes back (account_gone). */
int account_add(struct ledger *ledger, const struct allocation *allocation);

/* The same where the driver has made the memory, for which it answered `result`: enter what `like` says of
 * it. What goes wrong is undone. The driver's result, or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult account_enter(CUresult result, const CUdeviceptr *address, size_t bytes,
                       const struct allocation *like, enum backing backing);

/* For a free: take the allocation out before the driver is called, because its address may be handed out anew
 * the moment the driver returns; then either account_gone, or account_put_back if the driver refused. Should
 * there be no memory for that, the bytes stay booked. */
bool account_take(struct ledger *ledger, uint64_t base, struct allocation *taken);
void account_gone(const struct allocation *taken);
void account_put_back(struct ledger *ledger, const struct allocation *taken);

/* Unpin an allocation after a move; `pinned` is what ledger_pin said, but for its object, which it has from
 * now on. */
void account_unpin(const struct allocation *pinned, uint64_t away_bytes);

/* Change an allocation by ledger_change, and the books with it; `reserved_bytes` have been reserved for what
 * it costs more. */
void account_change(const struct allocation *allocation, uint64_t reserved_bytes,
                    void (*change)(struct allocation *, void *), void *argument);

/* Converted and other movable bytes believed to be in host memory. */
uint64_t account_away_bytes(CUdevice device);

/* What other processes have made and this one has open, as far as it can leave (opened.h): on the card. More
 * of it is. */
uint64_t account_opened_bytes(CUdevice device);
void account_opened(CUdevice device, uint64_t more_bytes);

/* Unified memory, converted or the program's own, that is believed to be on the card. */
uint64_t account_unified_bytes(CUdevice device);

/* Forget what died with a context. */
void account_context_destroyed(CUcontext context);

/* What is the context's is the heir's from now on; NULL: nobody's. */
void account_context_inherited(CUcontext context, CUcontext heir);

#endif
