/*
 * window.h - the pieces in flight between card and host, oldest first, all of them one way; and the streams
 * and events that they need.
 *
 * Threading: as space.h.
 */
#ifndef GS_WINDOW_H
#define GS_WINDOW_H

#include "memory/swap/space.h"

/* Make the context of the streams current, which are created in the current one when there are none yet. */
CUresult window_enter(struct mover *mover);
void window_leave(void);

/* Wait for all that the streams have been given. */
CUresult window_wait(const struct mover *mover);

/* The streams go; `alive`: their context does not go with them. */
void window_close(struct mover *mover, bool alive);

/* A piece takes off: it has its slot, and is LEAVING or COMING from now on. */
struct copy *window_add(struct space *space, struct block *block, size_t i);

/* The last that took off and the one at `place`; how large a copy is. */
struct copy *window_newest(struct mover *mover);
struct copy *window_at(struct mover *mover, unsigned place);
uint64_t copy_bytes(const struct copy *copy);

/* The oldest has arrived: its bytes count as moved. */
void window_land(struct space *space);

/* The copies have come to an end, nobody knows how. Where a piece was copied from, it still is. */
void window_undo(struct space *space);

#endif
