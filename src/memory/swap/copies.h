/*
 * copies.h - what need not be copied when pieces leave: those that are all zero, and those that have not
 * changed since they were last in host memory. The latter keep their slots while they are on the card, as
 * long as host memory is plentiful.
 *
 * A piece is looked at (hash.h) while the program's work has ended or stands still: what is found holds until
 * the space opens. Some pieces are looked at while those before them are copied. If looks at a piece find in
 * vain what they look for, the piece leaves a number of times without a look, each time more.
 *
 * Threading: as space.h, but where it says otherwise.
 */
#ifndef GS_COPIES_H
#define GS_COPIES_H

#include "gpushare/protocol.h"
#include "memory/swap/space.h"

/* Any thread, no lock. */
void copies_set_mode(enum gs_host_copies mode);

/* Load what looks, in the current context, in which memory will move; not while work stands still. */
void copies_prepare(struct space *space);

/* ---- out ---- */

/* The piece is the next one to leave, of so many bytes that are to: look at it if that pays, and begin to
 * look at those after it. In the mover's context, which is current. */
void copies_look(struct space *space, struct block *block, size_t i, uint64_t leaving_bytes);

/* The piece leaves, and is still RESIDENT. True: it needs no copy, nor a slot if it has none. */
bool copies_spare(struct space *space, struct block *block, size_t i);

/* Wait for looks at pieces of this block; for all (NULL). */
void copies_finish_looks(struct space *space, const struct block *block);

/* ---- in ---- */

/* The piece has its contents, and is still COMING: its slot is kept, or given back. */
void copies_arrived(struct space *space, struct block *block, size_t i);

/* ---- host memory ---- */

/* slabs_get, if need be of what is only kept for later. */
void *copies_get_slot(struct space *space, uint64_t bytes);

/* The slot of a piece is not needed any more. */
void copies_drop(struct space *space, struct block *block, size_t i);

/* Give back the slots of all that is on the card. False: there is none. */
bool copies_give_up(struct space *space);

/* Do so where host memory has become scarce. Returns when to look again (UINT64_MAX: no need). Any thread;
 * the lock of no space is held. */
uint64_t copies_trim(uint64_t now_ns);

/* The context is gone, or will be right away: so are looks in it. */
void copies_context_gone(struct space *space, CUcontext context);

#endif
