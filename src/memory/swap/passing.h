/*
 * passing.h - at a hand-over the physical memory of a piece passes from the job that leaves to the job that
 * comes. Why: the driver clears what it is given back before anybody else has it, and copies into the card
 * are slowed down by that (H100: 41 GB/s instead of 48).
 *
 * The job that comes (the heir) listens at a socket. The daemon tells the job that leaves where, if both are
 * of one user and one container. For each piece that has left, that job sends a descriptor of its memory,
 * before it tells that the piece has left; and the heir maps that memory where it would have made new one. At
 * most PASSING_MOST pieces are sent and not yet mapped. What fails anywhere is as if nothing had been passed:
 * the memory goes back to the driver, and the heir makes new one.
 *
 * A descriptor is kept as long as its memory is mapped, and sent on with it: what has come from another
 * process the driver (580) does not export again. So it has a number of the program's, from DESCRIPTOR_LEAST
 * on, and a child of a fork closes it. There are no more of them than a quarter of what the program may have
 * open; memory beyond that is not passed on.
 *
 * What is passed has the contents of the other job. So it is only for pieces whose own contents overwrite all
 * of it, and which nobody can reach before that: AWAY, of full size, with the space closed.
 *
 * Trust: the one that leaves looks whether the socket is the heir's (user and process, as the kernel says),
 * and the heir looks at user and key.
 *
 * Threading: as space.h, but for what says otherwise. Nothing waits.
 */
#ifndef GS_PASSING_H
#define GS_PASSING_H

#include <sys/types.h>

#include "common/descriptor.h"
#include "memory/memory.h"
#include "memory/swap/space.h"

#define PASSING_MOST 8

/* What the daemon is told of this process; all 0: there are no random numbers. Takes no lock. */
struct gs_pass passing_own(CUdevice device);

/* Whether memory of the device can be passed; from now on, it can't. Takes no lock. */
bool passing_can(CUdevice device);
void passing_forbid(CUdevice device);

/* ---- out ---- */

/* Takes a lock for a moment. */
void passing_set_heir(CUdevice device, const struct memory_heir *heir);

/* The piece is mapped, and has been copied: a descriptor of its memory for the heir, -1 if it is not passed.
 */
int passing_pack(const struct space *space, struct block *block, size_t i);

/* The descriptor, if any, to the heir; or, where the piece is mapped still, to nobody. */
void passing_send(const struct space *space, int packed, bool unmapped);

/* No more is to leave, for now. */
void passing_end_out(const struct space *space);

/* ---- in ---- */

/* Whether memory may be passed to this process: it has its turn, or is about to. Any thread, no lock. */
void passing_expect(CUdevice device, bool expects);
bool passing_is_expected(const struct space *space);

/* Memory may be passed to this process from now on. */
void passing_await(const struct space *space);

/* Map memory that has been passed as this piece, which is of full size. False: there is none. */
bool passing_map(const struct space *space, struct block *block, size_t i);

/* What has been passed and is not mapped yet goes back to the driver. False: there is none. */
bool passing_drop(const struct space *space);

/* The same for good: no more is to come. */
void passing_end_in(const struct space *space);

/* The piece is to be unmapped: nothing else keeps its memory. */
void passing_forget(struct block *block, size_t i);

/* ---- shared with other processes (memory/ipc.c) ---- */

/* Whether a mapped piece can be lent, as far as is known. */
bool passing_can_lend(const struct piece *piece);

/* A descriptor of the piece's memory, with a note, to the other side. 0 or -errno: -EOPNOTSUPP: the driver
 * has none to give; -EAGAIN: the other side does not read. */
int passing_lend(const struct block *block, size_t i, const struct descriptor *to, const void *note,
                 size_t bytes);

/* The other end of that, for a handle of the memory. The packet's size or -errno, as wire_recv_passed;
 * *result: the driver's, CUDA_ERROR_INVALID_HANDLE if no descriptor came along. */
ssize_t passing_borrow(const struct descriptor *from, void *note, size_t bytes,
                       CUmemGenericAllocationHandle *handle, CUresult *result);

/* Around a fork: nobody else changes which descriptors there are meanwhile. */
void passing_fork_prepare(void);
void passing_fork_parent(void);

#endif
