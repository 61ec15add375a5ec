/*
 * swap.h - device memory whose addresses stay while its bytes come and go: reserved ranges, with physical
 * memory mapped under them while they are on the card, and the bytes in pinned host memory while they are
 * not. Touching what is away crashes the program that does it, so the gate must let nothing through.
 *
 * A space (one per device) is open while the process may submit and everything is on the card: new memory is
 * then mapped at once. It is closed otherwise: new memory gets its pages with the next restore.
 *
 * Threading: any thread, but for swap_step, swap_open and swap_close, which are the GPU's worker's. One mutex
 * per space protects it; it is held for at most about the copy of one piece (32 MiB).
 */
#ifndef GS_SWAP_H
#define GS_SWAP_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "memory/ledger.h"
#include "memory/memory.h"

/* Whether the device and its driver can do this. */
bool swap_supported(CUdevice device);

/* New memory of `like->device`, entered into the ledger as `like` says (BACKING_SWAP; it costs the budget
 * whole blocks, so `bytes` of the entry is 0). Waits for room on the card while the process holds the GPU.
 * The driver's result, or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult swap_alloc(CUdeviceptr *address, size_t bytes, const struct allocation *like);

/* The same for at most 2 MiB that stay on the card: booked as pinned, by whole blocks, and there at once,
 * without a wait for anything. An error where the driver can't do it, or too much stays already: then other
 * memory has to do. */
CUresult swap_alloc_small(CUdeviceptr *address, size_t bytes, const struct allocation *like);

/* Free an allocation of BACKING_SWAP that has been taken out of the ledger: waits for the work of its context
 * as cuMemFree does, unless `finished` says that no work uses it any more. */
void swap_free(const struct allocation *taken, bool finished);

/* One step towards having at most room_bytes of swap memory on the card, or as much of what is away as fits
 * into them. A context of the device is current. Nothing moves while the space is open. */
enum memory_progress swap_step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved);

/* memory_pass and memory_set_heir. */
struct gs_pass swap_pass(CUdevice device);
void swap_set_heir(CUdevice device, const struct memory_heir *heir);
void swap_expect_passed(CUdevice device, bool expects);
bool swap_is_coming(CUdevice device); /* as that was told last */

/* Open the space, if everything is on the card; or if the last step has failed as everything will from now on
 * (a context that the program has broken, a driver at its end): then the program shall meet that error
 * itself. swap_try_open does not wait: false where it would have to.
 */
bool swap_open(CUdevice device);
bool swap_try_open(CUdevice device);

/* What is away can't come: swap_open is true the next time. */
void swap_give_up(CUdevice device);

/* New memory stays off the card until the space is opened again. */
void swap_close(CUdevice device, bool drained);

/* Mapped on the card now (whole pieces), and what all blocks together take when they are. */
uint64_t swap_resident_bytes(CUdevice device);
uint64_t swap_total_bytes(CUdevice device);

/* From now on `peer` may (may no longer) reach the memory of `device`. */
void swap_set_peer(CUdevice device, CUdevice peer, bool access);

/* Turns are being taken (or not any more): host memory may be needed soon, so it is made ready in the
 * background. */
void swap_expect_moves(CUdevice device, bool expected);
bool swap_expects_moves(CUdevice device);

/* The context is about to be destroyed, or that has happened: no work of ours is in it any more. */
void swap_context_leaving(CUcontext context);

/* It is destroyed, and its memory goes with it: its allocations are freed and leave the ledger. */
void swap_context_left(CUcontext context);

void swap_fork_prepare(void);
void swap_fork_parent(void);
void swap_fork_child(void);

#endif
