/* plain.h - cuMemAlloc, cuMemFree and their like. Any thread. */
#ifndef GS_PLAIN_H
#define GS_PLAIN_H

#include "memory/account.h"

/* The driver has freed an allocation that was taken out of account_addresses, or will in stream order. */
void plain_gone(const struct allocation *taken);

/* Around a free of an allocation that the driver frees: meanwhile the memory is in no ledger by which it
 * could leave. So no work is stopped then, and what stands still goes on first. `waits`: the driver waits for
 * the device's work, so that is waited for before. Returns what the end needs. */
bool plain_free_begin(CUdeviceptr dptr, bool waits);
void plain_free_end(bool begun);

#endif
