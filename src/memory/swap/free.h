/*
 * free.h - frees that were put off because a capture was open.
 *
 * Threading: any thread; the space's mutex is free, but where it says otherwise.
 */
#ifndef GS_FREE_H
#define GS_FREE_H

#include "memory/swap/space.h"

/* Do those that can be done. */
void free_reap(struct space *space);

/* Do those of the context (NULL: all of them): no work uses them any more. With the space's mutex held. */
void free_doomed(struct space *space, CUcontext context);

#endif
