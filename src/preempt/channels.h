/*
 * channels.h - the channels of the process: what libcuda has allocated from the resource manager and not
 * freed, by GPU. A GPU is the resource manager's device instance here, 0 .. CHANNELS_GPUS-1.
 *
 * Threading: any thread. One lock, held for the time of a look through the table only, and never over a call:
 * the threads of the program take it within calls of libcuda that allocate or free. A signal handler that has
 * interrupted its own thread within one of our locks takes none, and may see an entry that is half written: a
 * control for that is refused.
 */
#ifndef GS_CHANNELS_H
#define GS_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preempt/rm.h"

#define CHANNELS_GPUS 32

/* An object, and the descriptor by which its client is reached. */
struct channels_object {
  int fd;
  uint32_t client, handle;
};

/* libcuda has allocated an object. Of no interest unless its class is one of rm.h's. `value`: a device's
 * instance, a group's engine. */
void channels_add(int fd, const struct rm_alloc_short *made, uint32_t value);

/* What the calling thread has libcuda allocate from now on, until false, is ours: it belongs to the context
 * that moves memory while all else stands still. Nothing below knows it, but for channels_remove. */
void channels_own(bool begins);

/* libcuda is about to free something: a number for channels_remove. What is allocated from then on may have
 * the same handle. */
uint64_t channels_now(void);

/* It has been freed, with all beneath it; the client's own handle: with all of the client. */
void channels_remove(uint32_t client, uint32_t handle, uint64_t now);

/* Something has passed that we don't understand: what is here may not be all. For good. */
void channels_doubt(void);

/* Every channel that the process has is here. False also once there were more than there is room for, or some
 * without a known GPU. */
bool channels_are_known(void);

/* The GPU of a group or channel, or -1 (also if it is ours), and the group: the channel's own, or the object
 * itself. */
int channels_gpu_of(uint32_t client, uint32_t handle, struct channels_object *group);

/* Some subdevice of the GPU; false: there is none. */
bool channels_subdevice(unsigned gpu, struct channels_object *subdevice);

/* Up to RM_CHANNELS_MAX channels of one client, and the subdevice that takes a control for them. */
struct channels_batch {
  struct channels_object subdevice;
  uint32_t count;
  uint32_t channels[RM_CHANNELS_MAX];
};
struct channels_cursor { /* all zero: at the beginning */
  size_t subdevice, next;
};

/* The next ones of the GPU: to be stopped, those that are not, each once; to be let on, all. With `group`,
 * only of that. False: no more. */
bool channels_next(unsigned gpu, const struct channels_object *group, bool stop,
                   struct channels_cursor *cursor, struct channels_batch *batch);

/* They count as stopped from now on, or as let on. */
void channels_mark(const struct channels_batch *batch, bool stopped);

/* libcuda has scheduled the group, which may have let on what had been stopped of it. */
void channels_scheduled(const struct channels_object *group);

/* Leave only those that have not been freed. */
void channels_refresh(struct channels_batch *batch);

/* Likewise: the next group of the GPU. */
bool channels_next_group(unsigned gpu, const struct channels_object *group, size_t *cursor,
                         struct channels_object *found);

/* How many there are on the GPU. */
struct channels_count {
  unsigned compute_groups, other_groups, compute_channels, other_channels;
};
struct channels_count channels_count(unsigned gpu);

void channels_fork_child(void);

#endif
