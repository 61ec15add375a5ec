/*
 * outward.h - from the card to the host.
 *
 * Threading: as space.h; the streams' context is current.
 */
#ifndef GS_OUTWARD_H
#define GS_OUTWARD_H

#include "memory/swap/space.h"

/* Start to copy, unless copies are in flight. CUDA_ERROR_OUT_OF_MEMORY: the host has no more slots. */
CUresult outward_start(struct space *space, uint64_t room_bytes);

/* Wait until at least one piece in flight is in its slot; more may follow it, down to the room. */
CUresult outward_finish(struct space *space, uint64_t room_bytes);

#endif
