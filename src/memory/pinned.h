/*
 * pinned.h - memory that cannot leave the card, and what the driver keeps for the process though the program
 * does not use it: what plain pools have beyond what was allocated from them, and what graphs that allocate
 * have taken. That counts as the process' (BACKING_KEPT), and leaves by being given back to the driver.
 *
 * Threading: any thread.
 */
#ifndef GS_PINNED_H
#define GS_PINNED_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "memory/ledger.h"

/* What an array of this shape takes, as far as its format is known; 0 for arrays without memory of their own
 * (sparse ones, and those whose memory is mapped later). Saturates. */
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels);

/* budget_reserve for memory of any kind; but what we or the driver keep without use is not why something is
 * refused.
 */
int reserve_or_trim(CUdevice device, enum backing backing, uint64_t bytes);

/* budget_pin, likewise. */
int pin_or_trim(CUdevice device, uint64_t bytes, void (*change)(void *argument), void *argument);

/* Reserve bytes of a pinned backing, and wait until those of others have left that must: the driver is
 * asked for them right away. Nothing is waited for at 0 bytes. 0 or -ENOMEM. */
int pinned_reserve(CUdevice device, enum backing backing, uint64_t bytes);

/* What has come of asking the driver for them. Begins as {0}. */
struct pinned_patience {
  uint64_t refused_ns; /* the first time; 0: it has not */
  uint64_t pause_ns;
  unsigned unexplained; /* refusals in a row though the card has enough */
};

/* The driver has answered. True: it has refused what there should be room for, and is to be asked once more;
 * this has waited for others to leave. False: the answer stands; unless it is success, the caller releases
 * what is reserved. */
bool pinned_again(CUresult result, CUdevice device, uint64_t bytes, struct pinned_patience *patience);

/* What gives up the spares of a device (swap/blocks.h) before anything is refused; it returns how many bytes
 * that was. */
void reserves_set_spares(uint64_t (*drop)(CUdevice device));

/* ---- what the driver keeps ---- */

/* Ask the driver what it keeps, and count that. Cheap where nothing was ever kept. */
void reserves_look(CUdevice device);

/* The program has waited for the GPU: what a trim could not give back before may be free by now. Cheap where
 * no trim has failed. */
void reserves_waited(void);

/* So many bytes more are allocated from a plain pool, or fewer: it is listed from the first ones on. */
void reserves_note_used(CUmemoryPool pool, CUdevice device, uint64_t more_bytes, uint64_t less_bytes);

/* The device of a plain pool that is listed; else `otherwise`. */
CUdevice reserves_device(CUmemoryPool pool, CUdevice otherwise);

/* The plain pool is about to be destroyed: it is not listed any more, once no call of ours uses it. What is
 * allocated from it, and on which `device`; as it was if it is not listed. */
uint64_t reserves_unlist(CUmemoryPool pool, CUdevice *device);

/* An allocation of so many bytes is about to come out of this plain pool: what the pool keeps will be part of
 * it. Returns how much of that counts already, as what can't leave from now on. */
uint64_t reserves_reuse(CUdevice device, CUmemoryPool pool, uint64_t bytes);

/* Graphs that allocate are used on this device from now on. */
void reserves_watch_graphs(CUdevice device);

/* Moves with each trim: graphs that were launched before take their memory anew. */
uint64_t reserves_trims(CUdevice device);

#endif
