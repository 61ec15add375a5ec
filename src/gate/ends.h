/*
 * ends.h - where the iterations of a program end: at calls that wait for the GPU, small copies to the host,
 * or further launches of the same graph. Looked at only while somebody waits for the device.
 *
 * Threading: any thread. Each end that a turn may end with is told to client_iteration_ended().
 */
#ifndef GS_ENDS_H
#define GS_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/cuda_abi.h"

/* Look at the device's ends, or don't. What was learnt stays. */
void ends_watch(CUdevice device, bool watch);

/* When the next end is expected; UINT64_MAX: that can't be told. */
uint64_t ends_next_ns(CUdevice device, uint64_t now_ns);

void ends_fork_child(void);

#endif
