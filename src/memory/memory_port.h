/*
 * memory_port.h - what the memory room needs of the client, which stands below it. The client defines the one
 * constant, memory_port (client/ports.c); so memory names none of its functions.
 *
 * Why a constant: calls may come before any constructor has run.
 * Threading: any thread, but where it says otherwise.
 */
#ifndef GS_MEMORY_PORT_H
#define GS_MEMORY_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "gpushare/protocol.h"

/* What the daemon has said beside the capacity. */
struct memory_bounds {
  uint32_t job;                           /* the process' number there */
  bool limited;                           /* the capacity is its memory limit */
  enum gs_refusal why;                    /* its last request was refused */
  bool knows_most;                        /* as it was answered, the process could have: */
  uint64_t most_bytes, most_pinned_bytes; /* in all; of that, what can never leave the card */
  uint64_t making_way_bytes;              /* of others: on the card, and able to leave it */
};

/* If the GPU is being given back: how long a thread that needs memory then waits for that, where it can take
 * a little more than there is room for. What the process has submitted may end only after something that this
 * thread does next. */
#define MEMORY_ENDING_NS (UINT64_C(2) * 1000 * 1000 * 1000)

struct memory_port {
  /* How this device's memory shall be kept, for a program that does not say: enum gs_memory. Waits like
   * `capacity`. */
  int (*mode)(CUdevice device);

  /* How much all jobs together may use of this device, as the daemon says; 0: there is no daemon. Attaches
   * the device, and waits for the daemon's answer. */
  uint64_t (*capacity)(CUdevice device);

  /* Asks nobody. */
  struct memory_bounds (*bounds)(CUdevice device);

  /* The process' device memory on this device shall become total_bytes, pinned_bytes of which can never leave
   * the card. 0: granted. -ENOMEM: the daemon refuses (`bounds` says why). -ENOTCONN: there is no daemon; the
   * caller applies its own limit. -EINTR: another request or report has come meanwhile. Asks the daemon only
   * when the total passes what it last granted, or with `anew`, so that `bounds` is true; may block for a
   * round trip, never longer than two seconds unless the daemon says that the process has to wait for others.
   * Meanwhile *seen_ns is the time, some times a second. Call it before allocating; one thread at a time, but
   * for those that have left the call by a jump. */
  int (*request)(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes, bool anew,
                 _Atomic uint64_t *seen_ns);

  /* The process' device memory has shrunk to total_bytes. Returns at once. */
  void (*report)(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes);

  /* What the process may have on the card; UINT64_MAX without a daemon. */
  uint64_t (*room_bytes)(CUdevice device);

  /* For an allocation: wait until the process, which holds the GPU, may have so many bytes on the card.
   * False, at once, if it does not hold it or is giving it back. May block as long as others take to leave.
   * No lock of the memory room is held. */
  bool (*room_wait)(CUdevice device, uint64_t bytes);

  /* For memory that can't leave the card again, which is reserved and awaited (budget.h): wait until the
   * process may have so many bytes there beside what it has, also through the ends of turns; asks for the
   * lock. They count as being there from then on. Returns in any case where waiting does not help: there is
   * no daemon, or the GPU is being given back for so long that this may be waiting for the calling thread, or
   * there never will be so much: then false. No lock of the memory room is held. */
  bool (*room_await)(CUdevice device, uint64_t bytes, uint64_t deadline_ns);

  /* The device's worker is to look at its memory anew (memory_step). Returns at once. */
  void (*order_moves)(CUdevice device);

  /* memory_run_timers is due. Returns at once, and takes no lock. */
  void (*wake_timers)(void);

  /* The driver has refused so many bytes that are within the room. Returns at once. */
  void (*falls_short)(CUdevice device, uint64_t bytes);

  /* Work that the process has submitted to this device stands still, or is about to be stopped. */
  bool (*is_stopped)(CUdevice device);
};

extern const struct memory_port memory_port __attribute__((visibility("hidden")));

#endif
