/*
 * channels.h - libcuda's side of channels: what it allocates for a context, and in which channel a stream's
 * work runs. It calls ioctl, as the real one does, by the slot that the dynamic linker has filled in; at the
 * other end is rm.c.
 */
#ifndef SIM_CHANNELS_H
#define SIM_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "rm.h"
#include "state.h"

enum { COMPUTE_CHANNELS = 8, COPY_GROUPS = 3, COPY_CHANNELS = 4 };

/* Of a context: a group for kernels, and three for copies. */
struct channel_set {
  uint32_t groups[1 + COPY_GROUPS]; /* handles; all 0: there are none */
  struct rm_channel compute[COMPUTE_CHANNELS], copy[COPY_GROUPS][COPY_CHANNELS];
};

/* cuInit's part, for the cards of the process. */
void channels_init(void);
/* Of a new context on a card, and of one that goes. */
void channels_make(struct channel_set *set, unsigned gpu);
void channels_free(struct channel_set *set);

/* The calling thread does the work of a stream of this number, in this context. */
void channels_use(const struct channel_set *set, uint64_t stream_number);
/* The channel for work on this engine, in the calling thread; none where it does no stream's. */
struct rm_channel channel_for(enum engine_kind kind);

#endif
