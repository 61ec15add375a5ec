/*
 * progress.h - what a watched job tells the daemon of itself (PROGRESS): whether it has work on a GPU, and a
 * production job also how far it has come. Others stand still while that is active, so both its first
 * submission after an idle time and the end of its last work are told at once.
 *
 * Threading: with client.lock held, but for client_submits (client.h), which any thread calls.
 */
#ifndef GS_PROGRESS_H
#define GS_PROGRESS_H

#include <stdbool.h>

#include "client/client_state.h"

/* The daemon wants to know, or does not any more. */
void progress_watch(struct gpu *gpu, enum gs_watch watch);

/* What its thread does: look at the jobs that are active. Returns when to look again (UINT64_MAX: there is
 * none). Lets go of the lock meanwhile. */
uint64_t progress_look(void);

/* Caller must: be the child of a fork. */
void progress_fork_child(void);

#endif
