/*
 * deferred.h - frees in stream order of memory that the driver does not free so (unified memory, and swap
 * memory, which it does not know): once the stream has come to the point of the free.
 *
 * Threading: any thread.
 */
#ifndef GS_DEFERRED_H
#define GS_DEFERRED_H

#include "memory/ledger.h"

/* Free the allocation, which is out of the ledger and still reserved, when what the stream has been given so
 * far has finished. The driver's result; on failure nothing has happened. */
CUresult deferred_free(const struct allocation *allocation, CUstream stream);

/* Free what is due. Costs one comparison when nothing is waiting. */
void deferred_reap(void);

/* Wait for everything that is waiting, and free it. False if there was nothing. */
bool deferred_reap_all(void);

/* Free what waits for work of the context, or is its memory, now; but if memory goes with the context, that
 * is only forgotten. Afterwards nobody looks at an event of it any more. */
void deferred_context_destroyed(CUcontext context, bool memory_goes);
void deferred_fork_child(void);

#endif
