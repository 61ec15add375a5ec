/* budget.c - reserve before allocating; the arithmetic of what fits, and the daemon's word on it. */
#include "memory/budget.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "client/client.h"
#include "common/host.h"
#include "common/lock.h"
#include "common/log.h"
#include "memory/device.h"
#include "memory/reserves.h"
#include "settings.h"

struct account {
  pthread_mutex_t
      order; /* one reservation at a time, the daemon's answer included. Taken before books_lock */
  uint64_t used_bytes[BACKINGS];  /* under books_lock */
  _Atomic uint64_t awaited_bytes; /* of BACKING_PINNED: not on the card yet */
  _Atomic bool unreported;        /* it has shrunk since the daemon was told */
};

static struct account accounts[DEVICES] = {
    [0 ... DEVICES - 1] = {.order = PTHREAD_MUTEX_INITIALIZER},
};
static pthread_mutex_t books_lock = PTHREAD_MUTEX_INITIALIZER; /* held for a few instructions */
static uint64_t host_bytes;                                    /* under books_lock; 0: not asked for yet */
static _Atomic unsigned refusals_logged;                       /* a bit for each reason */

static uint64_t add_saturated(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

static uint64_t sum(const struct account *account) {
  uint64_t total = 0;
  for (int i = 0; i < BACKINGS; i++)
    total = add_saturated(total, account->used_bytes[i]);
  return total;
}

/* How far all devices together are above their cards. */
static uint64_t excess_bytes(void) {
  uint64_t excess = 0;
  for (CUdevice device = 0; device < DEVICES; device++) {
    uint64_t used = sum(&accounts[device]);
    uint64_t card = used ? device_card_bytes(device) : 0;
    excess = add_saturated(excess, used > card ? used - card : 0);
  }
  return excess;
}

/* Without a daemon the program's own limit holds. */
uint64_t budget_total_bytes(CUdevice device) {
  uint64_t card = device_card_bytes(device), capacity = client_capacity(device);
  capacity = capacity ? capacity : settings()->limit_bytes;
  return capacity && capacity < card ? capacity : card;
}

/* Would the program have more device memory than the card? */
static bool exceeds_card(const struct account *account, enum backing backing, uint64_t bytes,
                         uint64_t total) {
  if (backing == BACKING_APP || settings()->single_oversubscribe || !total)
    return false;
  uint64_t used = sum(account) - account->used_bytes[BACKING_APP];
  return bytes > total || used > total - bytes;
}

/* Enter the bytes into the books, unless they can never fit. */
static int book(CUdevice device, enum backing backing, uint64_t bytes) {
  struct account *account = &accounts[device];
  uint64_t total = budget_total_bytes(device);
  lock_take(&books_lock);
  int err = exceeds_card(account, backing, bytes, total) || bytes > UINT64_MAX - sum(account) ? -ENOMEM : 0;
  if (!err)
    account->used_bytes[backing] += bytes;
  lock_release(&books_lock);
  return err;
}

static void unbook(CUdevice device, enum backing backing, uint64_t bytes) {
  uint64_t *used = &accounts[device].used_bytes[backing];
  lock_take(&books_lock);
  *used -= bytes < *used ? bytes : *used;
  lock_release(&books_lock);
}

static void read_books(CUdevice device, uint64_t *total, uint64_t *pinned) {
  lock_take(&books_lock);
  *total = sum(&accounts[device]);
  *pinned = accounts[device].used_bytes[BACKING_PINNED];
  lock_release(&books_lock);
}

/* Without a daemon: what the cards don't hold, the host must. */
static int check_host(uint64_t bytes) {
  lock_take(&books_lock);
  uint64_t excess = excess_bytes();
  uint64_t bound = host_bytes;
  lock_release(&books_lock);
  if (!excess)
    return 0;
  uint64_t available = host_available_bytes();
  if (!bound) {
    bound = available;
    lock_take(&books_lock);
    host_bytes = bound;
    lock_release(&books_lock);
  }
  uint64_t new_excess = bytes < excess ? bytes : excess;
  return excess > bound || new_excess > available ? -ENOMEM : 0;
}

/* Tell the daemon what is used now, unless a reservation is under way: that one does it when it is done. */
static void report(CUdevice device) {
  struct account *account = &accounts[device];
  while (atomic_load(&account->unreported) && lock_try(&account->order)) {
    uint64_t total, pinned;
    atomic_store(&account->unreported, false);
    read_books(device, &total, &pinned);
    client_memory_report(device, total, pinned);
    lock_release(&account->order);
  }
}

/* Once for each reason. */
static void log_refusal(CUdevice device, uint64_t bytes, enum gs_refusal why, bool asked) {
  uint32_t job = client_bounds(device).job;
  char text[160];
  if (atomic_fetch_or(&refusals_logged, 1u << why) & 1u << why)
    return;
  switch (why) {
  case GS_REFUSAL_LIMIT:
    if (client_capacity(device))
      snprintf(text, sizeof text, "its memory limit is %llu ('gpusharectl set-limit %u 0' lifts it)",
               (unsigned long long)budget_total_bytes(device), job);
    else
      snprintf(text, sizeof text, "its memory limit is %llu (GPUSHARE_MEMORY_LIMIT)",
               (unsigned long long)settings()->limit_bytes);
    break;
  case GS_REFUSAL_CAPACITY:
    snprintf(text, sizeof text, "%s",
             asked
                 ? "without page faults all of it must fit on the card beside what others have pinned there "
                   "(gpusharectl status)"
                 : "one program may not exceed the card (GPUSHARE_SINGLE_OVERSUBSCRIBE=1 lets it)");
    break;
  case GS_REFUSAL_PINNED:
    snprintf(text, sizeof text,
             "it can't leave the card, and others' pinned memory there neither "
             "(gpusharectl status)");
    break;
  case GS_REFUSAL_SPENT:
    snprintf(text, sizeof text, "%s",
             asked ? "the memory of card and host is spent (setting host_memory; 'gpusharectl run "
                     "--expected-memory' waits instead)"
                   : "the host has no memory for what the card does not hold");
    break;
  default:
    snprintf(text, sizeof text, "the daemon refuses it");
  }
  log_warn("GPU %d: no room for %llu more bytes beside the %llu in use: %s", device,
           (unsigned long long)bytes, (unsigned long long)budget_sum_bytes(device), text);
}

/* What the program has asked for itself holds without a daemon, too. */
static int check_alone(uint64_t bytes, uint64_t total, enum gs_refusal *why) {
  uint64_t limit = settings()->limit_bytes;
  *why = limit && total > limit ? GS_REFUSAL_LIMIT : GS_REFUSAL_SPENT;
  return *why == GS_REFUSAL_LIMIT ? -ENOMEM : check_host(bytes);
}

/* With the order lock held. */
static int reserve(CUdevice device, enum backing backing, uint64_t bytes) {
  int err = book(device, backing, bytes);
  if (err) {
    bool alone = !client_capacity(device);
    uint64_t limit = settings()->limit_bytes;
    bool limited = alone ? limit && limit < device_card_bytes(device) : client_bounds(device).limited;
    log_refusal(device, bytes, limited ? GS_REFUSAL_LIMIT : GS_REFUSAL_CAPACITY, false);
    return err;
  }
  uint64_t total, pinned;
  read_books(device, &total, &pinned);
  err = client_memory_request(device, total, pinned);
  bool asked = err != -ENOTCONN;
  enum gs_refusal why = client_bounds(device).why;
  if (!asked)
    err = check_alone(bytes, total, &why);
  if (err == -ENOMEM) {
    unbook(device, backing, bytes);
    log_refusal(device, bytes, why, asked);
  }
  return err == -ENOMEM ? err : 0;
}

static int reserve_in_order(CUdevice device, enum backing backing, uint64_t bytes) {
  struct account *account = &accounts[device];
  lock_take(&account->order);
  int err = reserve(device, backing, bytes);
  lock_release(&account->order);
  report(device);
  return err;
}

/* What the driver keeps without use must not be why something is refused. */
int budget_reserve(CUdevice device, enum backing backing, uint64_t bytes) {
  int err = reserve_in_order(device, backing, bytes);
  if (err && reserves_trim(device))
    err = reserve_in_order(device, backing, bytes);
  return err;
}

void budget_note(CUdevice device, enum backing backing, uint64_t bytes) {
  lock_take(&books_lock);
  accounts[device].used_bytes[backing] = add_saturated(accounts[device].used_bytes[backing], bytes);
  lock_release(&books_lock);
  atomic_store(&accounts[device].unreported, true);
  report(device);
}

void budget_release(CUdevice device, enum backing backing, uint64_t bytes) {
  if (!bytes)
    return;
  unbook(device, backing, bytes);
  atomic_store(&accounts[device].unreported, true);
  report(device);
}

void budget_await(CUdevice device, uint64_t bytes) {
  atomic_fetch_add(&accounts[device].awaited_bytes, bytes);
}

void budget_arrived(CUdevice device, uint64_t bytes) {
  atomic_fetch_sub(&accounts[device].awaited_bytes, bytes);
}

uint64_t budget_awaited_bytes(CUdevice device) { return atomic_load(&accounts[device].awaited_bytes); }

uint64_t budget_sum_bytes(CUdevice device) {
  uint64_t total, pinned;
  read_books(device, &total, &pinned);
  return total;
}

uint64_t budget_free_bytes(CUdevice device) {
  uint64_t total = budget_total_bytes(device), used = budget_sum_bytes(device);
  return used < total ? total - used : 0;
}

uint64_t budget_used_bytes(CUdevice device, enum backing backing) {
  lock_take(&books_lock);
  uint64_t used = accounts[device].used_bytes[backing];
  lock_release(&books_lock);
  return used;
}

void budget_fork_child(void) {
  for (int i = 0; i < DEVICES; i++)
    accounts[i] = (struct account){.order = PTHREAD_MUTEX_INITIALIZER};
  books_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  host_bytes = 0;
}
