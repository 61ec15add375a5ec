/*
 * client.h - the connection to the daemon: registers this process, asks for the lock, obeys DROP_LOCK.
 *
 * Devices are CUdevice ordinals (as the process sees them), 0 .. GS_GPUS_PER_CLIENT-1.
 * Threading: every function here may be called from any thread. Nothing here is called on the hot path.
 */
#ifndef GS_CLIENT_H
#define GS_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "gpushare/protocol.h"

/* A context on this device exists or is about to: attach it to the daemon. Returns at once; the device's gate
 * stays shut until the daemon grants the lock or turns out to be absent. */
void client_attach(CUdevice device);

/* A thread waits at the device's gate: ask for the lock, unless that is done. Returns at once. */
void client_want(CUdevice device);

/* The process' device memory on this device shall become total_bytes, pinned_bytes of which can never leave
 * the card. 0: granted. -ENOMEM: the daemon refuses (client_bounds says why). -ENOTCONN: there is no
 * daemon; the caller applies its own limit. -EINTR: another request or report has come meanwhile. Asks the
 * daemon only when the total passes what it last granted; may block for a round trip, never longer than two
 * seconds unless the daemon says that the process has to wait for others. Meanwhile *seen_ns is the time,
 * some times a second. Call it before allocating; one thread at a time, but for those that have left the call
 * by a jump. */
int client_memory_request(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes,
                          _Atomic uint64_t *seen_ns);

/* The process' device memory has shrunk to total_bytes. Returns at once. */
void client_memory_report(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes);

/* How much all jobs together may use of this device, as the daemon says; 0: there is no daemon. Attaches the
 * device, and waits for the daemon's answer. */
uint64_t client_capacity(CUdevice device);

/* What the daemon has said beside that. Asks nobody. */
struct client_bounds {
  uint32_t job;        /* the process' number there */
  bool limited;        /* client_capacity is its memory limit */
  enum gs_refusal why; /* its last request was refused */
};
struct client_bounds client_bounds(CUdevice device);

/* What the process may have on the card; UINT64_MAX without a daemon. */
uint64_t client_room_bytes(CUdevice device);

/* For an allocation: wait until the process, which holds the GPU, may have so many bytes on the card. False,
 * at once, if it does not hold it or is giving it back. May block as long as others take to leave. No lock
 * of the memory room is held. */
bool client_room_wait(CUdevice device, uint64_t bytes);

/* If it is giving it back: how long a thread that needs memory then waits for that, where it can take a
 * little more than there is room for. What the process has submitted may end only after something that this
 * thread does next. */
#define CLIENT_ENDING_NS (UINT64_C(2) * 1000 * 1000 * 1000)

/* For memory that can't leave the card again, which is reserved and awaited (budget.h): wait until the
 * process may have so many bytes there beside what it has, also through the ends of turns; asks for the lock.
 * They count as being there from then on. Returns in any case where waiting does not help: there is no
 * daemon, or the GPU is being given back for so long that this may be waiting for the calling thread, or
 * there never will be so much: then false. No lock of the memory room is held. */
bool client_room_await(CUdevice device, uint64_t bytes, uint64_t deadline_ns);

/* The device's worker is to look at its memory anew (memory_step). Returns at once. */
void client_order_moves(CUdevice device);

/* The driver has refused so many bytes that are within the room. Returns at once. */
void client_memory_short(CUdevice device, uint64_t bytes);

/* How this device's memory shall be kept, for a program that does not say: enum gs_memory. Waits like
 * client_capacity. */
int client_memory_mode(CUdevice device);

/* A call for this device has passed the gate, which was told to tell (gate_watch). Returns at once. */
void client_submits(CUdevice device);

/* The program has a context on this device. Returns at once. */
void client_context_added(CUdevice device);

/* Work that the process has submitted to this device stands still, or is about to be stopped. */
bool client_is_stopped(CUdevice device);

/* Work that rests by the job's share goes on: returns once it does. Caller must: have forbidden stops. */
void client_await_go(CUdevice device);

/* Around a fork, in the parent. */
void client_fork_prepare(void);
void client_fork_parent(void);

/* In the child of a fork: close the parent's connection and start as a fresh process. */
void client_fork_child(void);

#endif
