/*
 * mover.h - the copies between card and host: a window of them in flight on a stream for each direction, all
 * of it one way at a time.
 *
 * Threading: as space.h.
 */
#ifndef GS_MOVER_H
#define GS_MOVER_H

#include "memory/memory.h"
#include "memory/swap/space.h"

/* Fill the window and finish the oldest copy. A context of the device is current. `short_bytes` is set with
 * MEMORY_SHORT. */
enum memory_progress mover_step(struct space *space, uint64_t room_bytes, uint64_t *short_bytes);

/* One step towards all of a block that is held being there. Likewise. */
enum memory_progress mover_fetch(struct space *space, struct block *block, uint64_t *short_bytes);

/* Finish what is in flight if some of it is of this block. Any thread, whatever context is current. */
void mover_finish_block(struct space *space, const struct block *block);

/* The context has no work left and will be destroyed right away (alive), or that has happened: undo what is
 * in flight. */
void mover_context_destroyed(struct space *space, CUcontext context, bool alive);

#endif
