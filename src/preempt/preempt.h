/*
 * preempt.h - this process' work on a GPU stops, in the middle of anything, and goes on: by the resource
 * manager's controls for the process' own channels. And the slices of time that its channels have there while
 * others run beside them.
 *
 * Whether that works here is not known but by trying: preempt_try finds a GPU's verdict, once. From then on
 * any surprise (a stop or go refused, a channel that we don't know) makes the verdict
 * "no", for good. So a caller needs no more than: did it stop? If not, do without.
 *
 * Nothing stays stopped. Whoever stops lets on. The driver frees the channels of a process that exits, is
 * killed, or becomes another program, also while they are stopped and their memory is away (tried on driver
 * 580). The child of a fork has no channels, and can't touch its parent's.
 *
 * What the process makes meanwhile is stopped as well: a context that is made while its GPU is stopped has
 * its channels stopped before anything of the program's is submitted to them: when it is there
 * (preempt_making), or, in a thread that has not said that it makes one, as soon as they could run; then that
 * thread waits in the driver for the GPU to go on. A context that is destroyed while stopped waits likewise,
 * and holds up calls of other threads that concern all contexts: the caller prevents that.
 *
 * Memory is the caller's affair: who has taken memory away while stopped brings it back before the go. What
 * moves it meanwhile is a context of our own (preempt_own).
 *
 * Devices are CUdevice ordinals, 0 .. GS_GPUS_PER_CLIENT-1.
 * Threading: any thread but those that hold the socket (client/post.h), which don't have the driver's
 * descriptors. preempt_stop, preempt_go and preempt_slice call nothing but the resource manager, and hold no
 * lock of the driver's while they do, as they call no function of libcuda: a thread of the program that is
 * blocked there is no obstacle. They wait for each other, and for a thread in which libcuda has just made
 * channels that are to be stopped.
 * Errors: 0 or -errno. Keeps errno.
 */
#ifndef GS_PREEMPT_H
#define GS_PREEMPT_H

#include <stdbool.h>
#include <stdint.h>

enum preempt_verdict { PREEMPT_UNKNOWN, PREEMPT_YES, PREEMPT_NO };

/* Before the driver is initialized: watch what it allocates. Called by cuInit; does nothing with
 * GPUSHARE_PREEMPT=off, after the first initialization, or where anything is other than expected. */
void preempt_begin(void);

/* Costs nothing. */
enum preempt_verdict preempt_verdict(int device);

/* Find the verdict, unless it is known: a stream of our own in the current context, which must be one of the
 * device's, waits for a flag; that is set while the GPU is stopped; what follows must not happen before the
 * go. Three times, for about 3 ms each (a stop and a go of 1 ms, and 1 ms to see nothing move), all of the
 * process' work on the GPU stands still. Best while the process has the GPU to itself. Calls the driver, and
 * may wait there for earlier work of the program, like any submission; but not while anything is stopped. 0:
 * there is a verdict. -EAGAIN: it can't be told now, as the GPU does not come to our work within 100 ms. */
int preempt_try(int device);

/* Stop all channels of the process on this GPU: when it returns 0, they stand still, usually after 0.5 to 1.5
 * ms; after 60 ms where much is under way on the bus. What is stopped already stays so. -EAGAIN: there is no
 * verdict. -ENOTSUP: the verdict is "no", maybe since this call. Whatever the error, nothing is stopped. */
int preempt_stop(int device);

/* Let everything on; 0 also where nothing is stopped. An error: some channel may still be stopped, which is
 * logged; the verdict is "no". */
int preempt_go(int device);

/* What the calling thread has libcuda make from now on, until false, is never stopped. */
void preempt_own(bool begins);

/* The calling thread is about to have libcuda make a context, and has. */
void preempt_making(bool begins);

/* How long the process' channels run on this GPU before those of others do, in microseconds, 1 .. 1000000: of
 * what there is and what will be. 0: as libcuda has it. The ratio to the others' is the ratio of shares where
 * all of them have always something to do. -ERANGE; -ENOTSUP also where a slice has been refused: that ends
 * slices only; else as preempt_stop, but works also while stopped. */
int preempt_slice(int device, uint64_t us);

/* Slices hold, as far as is known. Costs nothing. */
bool preempt_slices(int device);

/* What libcuda has on the GPU, for people. */
struct preempt_channels {
  unsigned groups, compute, other; /* channel groups; channels for kernels, and others (copies) */
  bool stopped;
  int error; /* why the verdict is "no": a status of the resource manager, or -errno */
};
struct preempt_channels preempt_channels(int device);

void preempt_fork_child(void);

#endif
