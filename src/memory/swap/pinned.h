/*
 * pinned.h - host memory that copies to and from the card run at full speed with: huge pages, registered with
 * the driver. Any thread; a context is current.
 */
#ifndef GS_PINNED_H
#define GS_PINNED_H

#include <stdbool.h>
#include <stddef.h>

/* Aligned to a huge page, as `bytes` must be. Registered where the driver does it (`registered`): else it
 * works just the same, only slower. NULL: no memory. Does not ask whether the host can spare it. */
void *pinned_make(size_t bytes, bool *registered);

/* False: the driver does not let go of it, so it must stay. */
bool pinned_give_back(void *memory, size_t bytes, bool registered);

#endif
