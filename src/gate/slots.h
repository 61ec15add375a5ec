/* slots.h - the per-thread slots of the gate. Internal to the gate. */
#ifndef GS_SLOTS_H
#define GS_SLOTS_H

#include "gate/gate.h"

/* This thread's slot, made on first use; never NULL. */
struct gate_slot *slots_mine(void);

/* Wait until every call in flight now has left, but for that of one slot, if any. False after timeout_ns.
 * Call after the gate is shut and slots_barrier() has run. */
bool slots_wait_empty(const struct gate_slot *but, uint64_t timeout_ns);

/* A call has left while a gate was shut: wake the waiter. */
void slots_notify(void);

/* Order the closer's stores before, and its loads after, all other threads' code around the gate. */
void slots_barrier(void);

/* The device's gate is open: no thread waits for its turn any more, nor for room that was to come with it. */
void slots_forget_waits(CUdevice device);

void slots_fork_child(void);

#endif
