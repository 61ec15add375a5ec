/*
 * deferred.h - frees in stream order of memory that the driver does not free so (unified memory, and swap
 * memory, which it does not know): once the stream has come to the point of the free.
 *
 * Such memory waits in two stages. Until its stream has come to the free it is reserved, and may be handed
 * out again on the same stream. From then on it is nobody's: the books are without it. Swap memory is freed
 * at that moment; unified memory once the GPU is idle, because the driver waits for all of its work before it
 * frees, and a call of the program that natively waits for one stream must not wait for others.
 *
 * Threading: any thread.
 */
#ifndef GS_DEFERRED_H
#define GS_DEFERRED_H

#include "memory/ledger.h"

/* Free the allocation, which is out of the ledger and still reserved, when what the stream has been given so
 * far has finished. What is carried of it (carry.h) is not needed any more: it is away only where all work
 * has finished, or where the free has waited for the work to go on. The driver's result; on failure nothing
 * has happened. */
CUresult deferred_free(struct allocation *allocation, CUstream stream);

/* Whether the allocation that starts here is being freed: to the program it is gone. */
bool deferred_holds(CUdeviceptr address);

/* Take memory of `span` bytes back that has been freed on this stream, for the owner that `like` says. It is
 * out of the ledger and still reserved, as it was when it was freed. False if there is none. */
bool deferred_reuse(CUstream stream, uint64_t span, const struct allocation *like, struct allocation *reused);

/* Free what is due, without waiting for the GPU. Costs one comparison when nothing is waiting; else it asks
 * about the oldest of each stream, and those behind it only once that has come. */
void deferred_reap(void);

/* The same before an allocation: where much is due on a GPU that is never idle, it waits for the GPU. */
void deferred_reap_for_more(void);

/* The same for a GPU that has finished all its work. */
void deferred_reap_drained(CUdevice device);

/* Whether unified memory of the device is being freed: until its work has finished, it is in no ledger by
 * which it could leave. */
bool deferred_unified(CUdevice device);

/* Wait for everything that is waiting, and free it. False if there was nothing. */
bool deferred_reap_all(void);

/* Free what waits for work of the context, or is its memory, now; but if memory goes with the context, that
 * is only forgotten. Afterwards nobody looks at an event of it any more. */
void deferred_context_destroyed(CUcontext context, bool memory_goes);

#endif
