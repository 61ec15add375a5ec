/*
 * reserves.h - card memory that the driver keeps for the process though the program does not use it: what
 * plain pools have beyond what was allocated from them, and what graphs that allocate have taken. It counts
 * as the process' (BACKING_KEPT), and leaves by being given back to the driver.
 *
 * Threading: any thread.
 */
#ifndef GS_RESERVES_H
#define GS_RESERVES_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

/* Graphs that allocate are used on this device from now on. */
void reserves_watch_graphs(CUdevice device);

/* Ask the driver what it keeps, and count that. Cheap where nothing was ever kept. */
void reserves_look(CUdevice device);

/* An allocation of so many bytes is about to come out of this plain pool: what the pool keeps will be part of
 * it. Returns how much of that counts already, as what can't leave from now on. */
uint64_t reserves_reuse(CUdevice device, CUmemoryPool pool, uint64_t bytes);

/* Give back what is not in use. Returns how many bytes that was; what is left can't leave for now. */
uint64_t reserves_trim(CUdevice device);

/* While the process' work stands still nothing of it can be given back: it counts as what can't leave; or it
 * can again. Asks the driver nothing and waits for nobody: false if nothing was done. */
bool reserves_stay(CUdevice device, bool stays);

/* Moves with each trim: graphs that were launched before take their memory anew. */
uint64_t reserves_trims(CUdevice device);

void reserves_fork_child(void);

#endif
