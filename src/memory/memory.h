/*
 * memory.h - what the rest of the library may ask of the memory room. The hooks of the groups alloc, free,
 * query and pool (hook_cuMemAlloc_v2 and so on, declared from hooks.def) live in this folder too.
 *
 * Threading: any thread, any time.
 */
#ifndef GS_MEMORY_H
#define GS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "gpushare/protocol.h"

struct memory_usage {
  uint64_t total_bytes;        /* all device memory of this process on the device that we know of */
  uint64_t pinned_bytes;       /* of these: cannot leave the card (passed through unconverted, or small) */
  uint64_t pinned_there_bytes; /* of these: on the card, not only asked for */
  uint64_t kind_bytes[GS_PINNED_COUNT]; /* of pinned_bytes: by enum gs_pinned */
  bool fixed;                           /* there is, or was, memory that page faults don't fetch */
  uint64_t paging_bytes;   /* of all: unified memory, which page faults fetch, where not all is */
  uint64_t resident_bytes; /* of all: on the card, as far as is known */
  uint64_t copies_bytes;   /* in host memory: copies of what is on the card */
  uint64_t
      yielding_bytes; /* of what is on the card: unified memory that page faults push out for other memory */
};

/* Takes no lock that anybody holds while he waits. */
struct memory_usage memory_usage(CUdevice device);

/* So many bytes that can't leave, reserved and awaited, have their room. */
void memory_pinned_arrives(CUdevice device, uint64_t bytes);

struct memory_moved {
  uint64_t out_bytes, in_bytes;
  uint64_t spared_bytes; /* that have left or come without a copy */
  uint64_t clean_bytes;  /* of these: that have left */
  uint64_t short_bytes;  /* MEMORY_SHORT: what the driver has refused */
};

enum memory_progress {
  MEMORY_SETTLED, /* nothing to do for this room */
  MEMORY_MOVED,   /* something was done; there may be more */
  MEMORY_WAITS,   /* a backend's: another process has to do something; to the caller it is MEMORY_MOVED */
  MEMORY_SHORT,   /* the card has less than the room says */
  MEMORY_FAILED,  /* the driver does not work any more (a dead context, the end of the process) */
};

/* One bounded step (about the copy of one piece) towards having at most room_bytes of this process on the
 * card, or as much of what is away as fits into them. Adds to `moved`. By the GPU's worker, which does not
 * hold the GPU, or holds it with its gate still shut; a context of the device is current. */
enum memory_progress memory_step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved);

/* To whom the physical memory of what leaves the card is passed, so that the driver need not clear it
 * (swap/passing.h). */
struct memory_heir {
  struct gs_pass pass; /* all 0: nobody */
  int32_t pid;
};

void memory_set_heir(CUdevice device, const struct memory_heir *heir);

/* The process has its turn, or is about to: memory may be passed to it. Any thread, no lock. */
void memory_expect_passed(CUdevice device, bool expects);

/* GS_ATTACH_*: how the memory of the device is kept, as far as that can be said without waiting. */
uint32_t memory_attach_flags(CUdevice device);

/* How memory is passed to this process. Neither takes a lock that anybody holds while he waits. */
struct gs_pass memory_pass(CUdevice device);

/* The process is to run with the room that memory_step has settled for: what has left the card in such a way
 * that page faults don't fetch it, and does not fit, comes into host memory where they do. One bounded step.
 * MEMORY_SHORT: not now. */
enum memory_progress memory_land(CUdevice device);

/* The process' work is about to be stopped: in the context in which memory moves then, what can be prepared
 * only while nothing stands still. */
void memory_prepare_stop(CUdevice device);

/* The process is about to submit: true if everything it needs is on the card; from then on new memory gets
 * there at once. `enough_bytes`: resident bytes that do for memory whose page faults fetch the rest. */
bool memory_open(CUdevice device, uint64_t enough_bytes);

/* The same for a thread that must not wait for a piece that moves: false where it would have to. */
bool memory_try_open(CUdevice device, uint64_t enough_bytes);

/* What is away can't come: memory_open is true the next time, so that the program meets the driver's errors;
 * but for what is just being freed, or goes with its context. In a context of the device, if there is one. */
void memory_give_up(CUdevice device);

/* Whether all memory that can leave the card could leave while the process' work stands still. */
bool memory_may_stop(CUdevice device);

/* The gate is shut: new memory stays off the card until memory_open. `drained`: no work is unfinished; else
 * it is stopped, and what the program frees is freed once it has gone on. */
void memory_close(CUdevice device, bool drained);

/* Turns are being taken (or not any more): moves may come. */
void memory_expect_moves(CUdevice device, bool expected);
bool memory_expects_moves(CUdevice device);

/* The daemon says that host memory is scarce. */
void memory_set_host_tight(bool tight);

/* Whether the daemon wants copies of what is on the card kept in host memory. */
void memory_set_host_copies(enum gs_host_copies mode);

/* What is due by time. Returns when the next is (UINT64_MAX: nothing). */
uint64_t memory_run_timers(uint64_t now_ns);

/* The context is about to be destroyed, or its device reset: our own work in it is finished. Nothing of the
 * program's is touched: the driver may refuse. */
void memory_context_leaving(CUcontext context);

/* That has happened: what was allocated in it goes with it. The context is not used any more. */
void memory_context_left(CUcontext context);

/* Both at once, where it shows only afterwards that the context was destroyed. */
void memory_context_destroyed(CUcontext context);

/* The same of a green context, whose memory is the primary one's (NULL: not known) and stays. */
void memory_green_context_destroyed(CUcontext context, CUcontext primary);

/* That has happened. */
void memory_context_gone(CUcontext context);

/* The driver has refused a stream memory operation on this address, or some of these. If what it refuses is
 * how we keep the memory, the log says so. */
void values_refused(CUdeviceptr address);
void values_refused_batch(const CUstreamBatchMemOpParams *operations, unsigned int count);

/* Around a fork, in the parent: no descriptor comes or goes meanwhile. Take and release locks. */
void memory_fork_prepare(void);
void memory_fork_parent(void);

/* In the child of a fork: forget everything; no driver state has survived. */
void memory_fork_child(void);

#endif
