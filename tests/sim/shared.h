/*
 * shared.h - physical memory that several processes may have, as it is counted on the card: once, as one
 * process' that has it.
 *
 * A descriptor of such memory is a socket with a name, in which the memory's own descriptor lies as a message
 * to itself. So anybody can find out whether a descriptor is still open anywhere, also in flight in another
 * socket, and whoever dies: by the name, which ends with the last of them. Memory that no process has, and of
 * which there is a descriptor, is counted as nobody's (SHARED_NOBODY) until there is none.
 */
#ifndef SIM_SHARED_H
#define SIM_SHARED_H

#include "state.h"

/* A descriptor of the memory in `fd`, whose name is the id, a new one if that is 0: -errno if there can be
 * none. */
int shared_export(int fd, uint64_t *id);

/* The memory's own descriptor, a new one, and id: -errno if it is no descriptor of memory. */
int shared_import(int exported, uint64_t *id);

/* The process in the slot, which has pinned the memory, shares it from now on. Another one has it as well,
 * and it is counted as that one's. False: the table is full; there is no such memory. */
bool shared_enter(struct state *state, int32_t slot, uint64_t id, unsigned gpu, uint64_t bytes);
bool shared_join(struct state *state, int32_t slot, uint64_t id, unsigned *gpu);

/* The process has it no more. */
void shared_leave(struct state *state, int32_t slot, uint64_t id);

/* The rest is called with the state locked. A process has died, and what it had pinned is not counted any
 * more; what is nobody's may have ended; what is nobody's, of a card. */
void shared_bury(struct state *state, int32_t slot);
void shared_reap(struct state *state);
uint64_t shared_nobodys_bytes(const struct state *state, unsigned gpu);

#endif
