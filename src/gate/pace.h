/*
 * pace.h - near the end of a turn that others wait for, and while what is submitted is limited (limit.h),
 * submissions run ahead of the GPU by some milliseconds only (lane.h), so that nobody waits for long. At all
 * other times nothing here is called.
 *
 * What one call submits at once can't be bounded: a graph counts as a whole.
 *
 * Threading: pace_submission from any thread that is not in flight; pace_begin and pace_caught_up for one
 * device from one thread at a time; the rest from any thread.
 */
#ifndef GS_PACE_H
#define GS_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/cuda_abi.h"

/* From here on the device's submissions are counted. gate_set_pace has them come by. */
void pace_begin(CUdevice device, uint64_t now_ns);

/* A call is about to submit to this stream of the device: wait as long as too much is queued there. Not while
 * anything captures, and not for longer than a tenth of a second: it may be what the queue waits for. */
void pace_submission(CUdevice device, CUstream stream);

/* How long after pace_begin a stream was last seen to have finished what was queued by then; and whether
 * there are some that have not been seen to. */
uint64_t pace_caught_up_ns(CUdevice device);
bool pace_is_behind(CUdevice device);

/* Whether anybody has had to wait since pace_begin. */
bool pace_held_back(CUdevice device);

/* The context is gone, its events with it. */
void pace_context_gone(CUcontext context);

void pace_fork_child(void);

#endif
