/*
 * limit.h - how much GPU time the process may submit, as the daemon says in the meter page: who would submit
 * more waits before it counts as in flight, so that nobody else waits for it. While nothing is limited
 * nothing here is called.
 *
 * Who waits here waits for the page to change or for time to go by, but goes on to the gate when that shuts:
 * a drain knows about threads there. And it passes while a drain waits for captures to end, as it may be
 * needed for that.
 *
 * Threading: any thread; limit_obey for one device from one thread at a time.
 */
#ifndef GS_LIMIT_H
#define GS_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/cuda_abi.h"

/* This is the limit now, in ns of GPU time per s (GS_LIMIT_NONE, or from the page). */
void limit_obey(CUdevice device, uint64_t limit);

/* The calling thread, which is not in flight, is about to submit about so much: wait until it may. */
void limit_submission(CUdevice device);

/* What it has submitted costs so much, and the next one probably; 0: who knows. */
void limit_charge(CUdevice device, uint64_t cost_ns, uint64_t next_ns);

/* A submission turned out to cost so much more than was charged for it. */
void limit_correct(CUdevice device, int64_t more_ns);

/* The gate has been shut, or a drain waits for captures to end: all who wait look again. */
void limit_wake(CUdevice device);
void limit_wake_all(void);

/* It has a limit, but may queue as much as at the end of a turn. */
bool limit_is_wide(CUdevice device);

/* Threads that wait, and how long they have waited, all together. */
unsigned limit_waiting(CUdevice device);
uint64_t limit_throttled_ns(CUdevice device);

void limit_fork_child(void);

#endif
