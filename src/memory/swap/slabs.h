/*
 * slabs.h - pinned host memory for what is away from the card: slabs of 256 MiB on huge pages, registered
 * with the driver, divided into slots. Made as needed or ahead of need, reused, and given back when they have
 * not been used for a while, or at once where host memory is scarce.
 *
 * Threading: any thread. slabs_get makes a new slab when nothing is free, which takes some 50 ms; a context
 * is current.
 */
#ifndef GS_SLABS_H
#define GS_SLABS_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "memory/ledger.h"

#define SLABS_GRAIN_BYTES (UINT64_C(2) << 20)
#define SLABS_SLAB_BYTES (UINT64_C(256) << 20)

/* Room for `bytes` (a multiple of SLABS_GRAIN_BYTES, at most SLABS_SLAB_BYTES) in one piece; NULL: the host
 * has no more. The contents of a slot are undefined. */
void *slabs_get(uint64_t bytes);
void slabs_put(void *slot, uint64_t bytes);

/* The context that the registration of the slot dies with; NULL: it has none. */
CUcontext slabs_context(const void *slot);

/* So many bytes of this kind may have to leave the device's card. While moves of it are expected, slabs for
 * all of them are kept ready, made in the background; those that are in use count. */
void slabs_need(CUdevice device, enum backing backing, uint64_t bytes);

/* Moves of the device are expected, or not any more. True: that is new, so slabs_need is to be told. Only
 * then may the caller read the bytes: what is allocated meanwhile tells of itself. */
bool slabs_expect(CUdevice device, bool expected);
bool slabs_is_expected(CUdevice device);

/* Scarce: give back what is not in use, in the background, and keep nothing from now on. */
void slabs_set_tight(bool tight);
bool slabs_is_tight(void);

/* Give back what has not been used for 30 s, and is more than is kept ready. Returns when to
 * look again (UINT64_MAX: no need). */
uint64_t slabs_trim(uint64_t now_ns);

/* Pinned now, and of these in use. */
uint64_t slabs_pinned_bytes(void);
uint64_t slabs_used_bytes(void);

/* The context is gone, and with it the registration of what was registered in it: that is done again in
 * another context, in the background. Until then copies are slower. */
void slabs_context_gone(CUcontext context);

#endif
