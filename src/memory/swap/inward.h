/*
 * inward.h - from the host to the card.
 *
 * Threading: as space.h; the streams' context is current.
 */
#ifndef GS_INWARD_H
#define GS_INWARD_H

#include "memory/swap/space.h"

/* Whether a piece is to come, and may. */
bool inward_may(struct space *space, uint64_t room_bytes);

/* Fill the window. CUDA_ERROR_OUT_OF_MEMORY: the card has no more. `fresh` counts pieces that needed no copy.
 */
CUresult inward_start(struct space *space, uint64_t room_bytes, unsigned *fresh);

/* Wait until the oldest piece in flight has its contents. */
CUresult inward_finish(struct space *space);

#endif
