/*
 * budget.h - how much device memory this process may have, has, and says that there is. Every allocation is
 * reserved here before the driver is asked, and released when it is gone (or was refused).
 *
 * Limits, in this order:
 *   - what the program asked for as device memory may not exceed the card (its capacity for all jobs, where
 *     the daemon says), unless GPUSHARE_SINGLE_OVERSUBSCRIBE is set. Its own unified memory never had this
 *     limit;
 *   - with a daemon, the daemon decides on the sum;
 *   - without, what the program itself has asked for (GPUSHARE_MEMORY_LIMIT) bounds it, and all of it may use
 * the cards and what the host could spare when the first byte did not fit.
 *
 * Threading: any thread. the reservations may block for a round trip to the daemon, or until that admits the
 * process, and a signal handler may leave them by a jump meanwhile; nothing else blocks.
 */
#ifndef GS_BUDGET_H
#define GS_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "memory/ledger.h"

/* `awaited`: of pinned memory, not on the card yet. 0, or -ENOMEM (said once in the log). */
int budget_reserve(CUdevice device, enum backing backing, uint64_t bytes, bool awaited);

/* Of pinned memory, what is not on the card yet; that it has come. */
void budget_await(CUdevice device, uint64_t bytes);
void budget_arrived(CUdevice device, uint64_t bytes);
uint64_t budget_awaited_bytes(CUdevice device);

/* Count what is there already, whether it fits or not. */
void budget_note(CUdevice device, enum backing backing, uint64_t bytes);

/* `bytes` that are booked as something else are to be booked as pinned: asks for that as budget_reserve does.
 * If it is granted, `change` does it by budget_rebook, or not, before another thread reserves anything. 0 or
 * -ENOMEM (said once in the log). */
int budget_pin(CUdevice device, uint64_t bytes, void (*change)(void *argument), void *argument);

/* What was booked as `from` is `to` from now on. Takes only the lock of the books; the daemon is told by
 * budget_report. */
void budget_rebook(CUdevice device, enum backing from, enum backing to, uint64_t bytes);
void budget_report(CUdevice device);

/* Ask the daemon for what was noted: what it has not granted, it does not count. False: it refuses, and so it
 * does with all that the process asks for beside that; or another thread is being answered. */
bool budget_ask(CUdevice device);

void budget_release(CUdevice device, enum backing backing, uint64_t bytes);

/* The card as the program sees it; 0 if unknown. */
uint64_t budget_total_bytes(CUdevice device);

/* Of this, what the process does not use itself. Never wraps around. */
uint64_t budget_free_bytes(CUdevice device);

/* What the process could get more than it has, as the daemon says when asked now; without a daemon, as
 * budget_free_bytes. If another thread is being answered, as it said last. */
struct budget_left {
  uint64_t bytes;
  uint64_t pinned_bytes;     /* if that can never leave the card */
  uint64_t making_way_bytes; /* of others: on the card, and able to leave it */
};
struct budget_left budget_ask_left(CUdevice device);

/* What the process uses, by backing; of all that are pinned. */
uint64_t budget_used_bytes(CUdevice device, enum backing backing);
uint64_t budget_pinned_bytes(CUdevice device);

/* Used by all backings together; saturates. */
uint64_t budget_sum_bytes(CUdevice device);

#endif
