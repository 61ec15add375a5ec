/*
 * contexts.h - the process' contexts: which device each belongs to, and how to reach all of one device's
 * work.
 *
 * Threading: any thread. No lock is held while the driver waits. A context that is being destroyed waits for
 * its visitors. For the outcome of a destruction that has begun, contexts_synchronize and contexts_any wait.
 */
#ifndef GS_CONTEXTS_H
#define GS_CONTEXTS_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

/* The device of a context we have seen; -1 otherwise. */
CUdevice contexts_device(CUcontext context);

/* Note the calling thread's current context, should it have been made in a way that we don't hook. */
void contexts_learn_current(void);

/* Call `visit` for each context of the device, current in this thread, until one call returns false.
 * False if one did, or if some were passed over as they are being destroyed: that may wait for this thread.
 */
bool contexts_each(CUdevice device, bool (*visit)(CUcontext context, void *argument), void *argument);

/* Wait until all work submitted to the device's contexts has finished. */
void contexts_synchronize(CUdevice device);

/* Whether a context of our own is there, in which memory moves from then on, also while the program's
 * contexts are stopped. Makes it where work can be stopped: that takes 0.1 to 0.2 s, and 260 MiB of the card.
 */
bool contexts_make_own(CUdevice device);
bool contexts_has_own(CUdevice device);

/* Call `action` with our own context current, or one of the device's; false if there is none. While the
 * device is stopped, without one of our own, nothing is called. */
bool contexts_any(CUdevice device, void (*action)(void *argument), void *argument);

/* Let nobody destroy the context until contexts_let_go of what is returned, which may be another thread's
 * call. NULL: it is not known, or being destroyed. Does not wait. */
void *contexts_hold(CUcontext context);
void contexts_let_go(void *held);

void contexts_fork_child(void);

#endif
