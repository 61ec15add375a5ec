/*
 * contexts.h - the process' contexts: which device each belongs to, and how to wait for all work on one
 * device.
 *
 * Threading: any thread. No lock is held while the driver waits.
 */
#ifndef GS_CONTEXTS_H
#define GS_CONTEXTS_H

#include <stdbool.h>

#include "interpose/cuda_abi.h"

/* The device of a context we have seen made; -1 otherwise. */
CUdevice contexts_device(CUcontext context);

/* Note the calling thread's current context, should it have been made in a way that we don't hook. */
void contexts_learn_current(void);

/* Wait until all work submitted to the device's contexts has finished. */
void contexts_synchronize(CUdevice device);

/* Make one of the device's contexts current in this thread; false if there is none. Undo with contexts_leave.
 */
bool contexts_use(CUdevice device);
void contexts_leave(CUdevice device);

void contexts_fork_child(void);

#endif
