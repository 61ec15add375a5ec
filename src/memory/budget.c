/* budget.c - reserve before allocating; the arithmetic of what fits, and the daemon's word on it. */
#include "memory/budget.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/condition.h"
#include "common/host.h"
#include "common/lock.h"
#include "common/log.h"
#include "memory/device.h"
#include "memory/forked.h"
#include "memory/memory_port.h"
#include "settings.h"

_Static_assert(DEVICES <= 64, "a bit for each device");

#define SILENCE_NS NS_PER_S       /* the owner of a turn is not there any more */
#define LOOK_NS (100 * NS_PER_MS) /* between two looks at that */

/* One reservation at a time, the daemon's answer included. No mutex: that answer may take long, and a signal
 * handler may leave the wait for it by a jump, or the thread may end there. So a turn is void once its thread
 * begins another one, or has been silent for long; and what it had booked is given back. A thread that was
 * only slow finds its turn lost, and starts over. */
struct turn {
  const void *thread; /* NULL: nobody's */
  uint64_t number;    /* of turns so far */
  enum backing backing;
  uint64_t bytes; /* booked in it */
  bool awaits;    /* they are awaited, too */
  _Atomic uint64_t seen_ns;
  struct condition over;
};

struct account {
  struct turn turn;                      /* under books_lock, but for seen_ns */
  _Atomic uint64_t used_bytes[BACKINGS]; /* changed under books_lock */
  _Atomic uint64_t awaited_bytes;        /* of pinned memory: not on the card yet */
  bool unreported;                       /* under books_lock; it has shrunk since the daemon was told */
};

static struct account accounts[DEVICES];
static struct lock books_lock = LOCK(LOCK_BUDGET); /* held for a few instructions */
static uint64_t booked;                            /* under books_lock; devices that have had anything */
static uint64_t host_bytes;                        /* under books_lock; 0: not asked for yet */
static _Atomic unsigned refusals_logged;           /* a bit for each reason */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t less(uint64_t a, uint64_t b) { return a < b ? 0 : a - b; }
static uint64_t add_saturated(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

static uint64_t sum_from(const struct account *account, enum backing first) {
  uint64_t total = 0;
  for (int i = (int)first; i < BACKINGS; i++)
    total = add_saturated(total, account->used_bytes[i]);
  return total;
}

static uint64_t sum(const struct account *account) { return sum_from(account, 0); }
static uint64_t pinned(const struct account *account) { return sum_from(account, BACKING_PINNED); }

/* How far all devices together are above their cards. */
static uint64_t excess_bytes(void) {
  uint64_t excess = 0;
  for (uint64_t rest = booked; rest; rest &= rest - 1) {
    CUdevice device = __builtin_ctzll(rest);
    uint64_t used = sum(&accounts[device]);
    uint64_t card = used ? device_card_bytes(device) : 0;
    excess = add_saturated(excess, used > card ? used - card : 0);
  }
  return excess;
}

/* Without a daemon the program's own limit holds. */
uint64_t budget_total_bytes(CUdevice device) {
  uint64_t card = device_card_bytes(device), capacity = memory_port.capacity(device);
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

/* With the lock held. */
static void unbook(struct account *account, enum backing backing, uint64_t bytes) {
  _Atomic uint64_t *used = &account->used_bytes[backing];
  *used -= bytes < *used ? bytes : *used;
}

/* ---- turns ---- */

/* With the lock held. */
static void turn_give_back(struct account *account) {
  struct turn *turn = &account->turn;
  unbook(account, turn->backing, turn->bytes);
  if (turn->awaits)
    atomic_fetch_sub(&account->awaited_bytes, turn->bytes);
  turn->bytes = 0;
}

/* With the lock held, which it lets go of while it waits. Its number; 0: another thread has it, and that is
 * not to be waited for. */
static uint64_t turn_begin(struct account *account, bool wait) {
  struct turn *turn = &account->turn;
  const void *thread = &lock_held; /* of this thread */
  uint64_t now_ns = clock_now_ns();
  while (turn->thread && turn->thread != thread && now_ns < atomic_load(&turn->seen_ns) + SILENCE_NS) {
    if (!wait)
      return 0;
    condition_wait(&turn->over, &books_lock, now_ns + LOOK_NS);
    now_ns = clock_now_ns();
  }
  if (turn->thread) {
    turn_give_back(account);
    account->unreported = true;
  }
  turn->thread = thread;
  atomic_store(&turn->seen_ns, now_ns);
  return ++turn->number;
}

/* With the lock held. What it had booked stays if `keep`. False: the turn had been lost. */
static bool turn_end(struct account *account, uint64_t number, bool keep) {
  struct turn *turn = &account->turn;
  if (turn->number != number) {
    account->unreported = true; /* what it has told came too late */
    return false;
  }
  if (!keep)
    turn_give_back(account);
  turn->bytes = 0;
  turn->thread = NULL;
  condition_wake_all(&turn->over);
  return true;
}

/* What there is of all backings, and of what can't leave. */
struct sums {
  uint64_t total_bytes, pinned_bytes;
};

/* With the lock held. */
static struct sums sums_of(const struct account *account) {
  return (struct sums){sum(account), pinned(account)};
}

/* With the lock held, in a turn. Enter the bytes into the books, unless they can never fit. `total_bytes`:
 * the card as the program sees it. */
static int book(CUdevice device, enum backing backing, uint64_t bytes, bool awaits, uint64_t total_bytes) {
  struct account *account = &accounts[device];
  struct turn *turn = &account->turn;
  if (exceeds_card(account, backing, bytes, total_bytes) || bytes > UINT64_MAX - sum(account))
    return -ENOMEM;
  if (awaits)
    atomic_fetch_add(&account->awaited_bytes, bytes);
  account->used_bytes[backing] += bytes;
  booked |= UINT64_C(1) << device;
  turn->backing = backing;
  turn->bytes = bytes;
  turn->awaits = awaits;
  return 0;
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

/* With the lock held, which it lets go of. Tell the daemon what is used now, unless a reservation is under
 * way: that one does it when it is done. */
static void report_and_unlock(CUdevice device) {
  struct account *account = &accounts[device];
  uint64_t number;
  while (account->unreported && (number = turn_begin(account, false))) {
    struct sums sums = sums_of(account);
    account->unreported = false;
    lock_release(&books_lock);
    memory_port.report(device, sums.total_bytes, sums.pinned_bytes);
    lock_take(&books_lock);
    turn_end(account, number, true);
  }
  lock_release(&books_lock);
}

/* Once for each reason. */
static void log_refusal(CUdevice device, uint64_t bytes, enum gs_refusal why, bool asked) {
  struct memory_bounds bounds = memory_port.bounds(device);
  char text[256];
  if (atomic_fetch_or(&refusals_logged, 1u << why) & 1u << why)
    return;
  switch (why) {
  case GS_REFUSAL_LIMIT:
    if (memory_port.capacity(device))
      snprintf(text, sizeof text, "its memory limit is %llu ('gpusharectl set-limit %u 0' lifts it)",
               (unsigned long long)budget_total_bytes(device), bounds.job);
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
  case GS_REFUSAL_OTHERS:
    snprintf(
        text, sizeof text,
        "it can't leave the card, and a job that has memory there could not run beside it: of such memory "
        "there is room for %llu more (gpusharectl status)",
        (unsigned long long)less(bounds.most_pinned_bytes, budget_pinned_bytes(device)));
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
  if (*why == GS_REFUSAL_LIMIT)
    return -ENOMEM;
  lock_enter(); /* a thread of ours looks at the host for this one, which must not be cancelled meanwhile */
  int err = check_host(bytes);
  lock_leave();
  return err;
}

static void refuse_at_once(CUdevice device, uint64_t bytes) {
  bool alone = !memory_port.capacity(device);
  uint64_t limit = settings()->limit_bytes;
  bool limited = alone ? limit && limit < device_card_bytes(device) : memory_port.bounds(device).limited;
  log_refusal(device, bytes, limited ? GS_REFUSAL_LIMIT : GS_REFUSAL_CAPACITY, false);
}

/* What is booked in a turn. 0 or -ENOMEM; -EINTR: the turn has been lost. */
static int ask(CUdevice device, uint64_t number, uint64_t bytes, struct sums sums) {
  int err =
      memory_port.request(device, sums.total_bytes, sums.pinned_bytes, false, &accounts[device].turn.seen_ns);
  bool asked = err != -ENOTCONN;
  enum gs_refusal why = GS_REFUSAL_SPENT;
  if (!asked)
    err = check_alone(bytes, sums.total_bytes, &why);
  if (err == -ENOMEM) {
    if (asked)
      why = memory_port.bounds(device).why;
    lock_take(&books_lock);
    if (accounts[device].turn.number == number)
      turn_give_back(&accounts[device]); /* before the log tells what is in use */
    lock_release(&books_lock);
    log_refusal(device, bytes, why, asked);
  }
  return err == -ENOMEM || err == -EINTR ? err : 0;
}

int budget_reserve(CUdevice device, enum backing backing, uint64_t bytes, bool awaited) {
  struct account *account = &accounts[device];
  bool kept;
  int err;
  do {
    uint64_t total_bytes = budget_total_bytes(device);
    lock_take(&books_lock);
    uint64_t number = turn_begin(account, true);
    err = book(device, backing, bytes, awaited, total_bytes);
    struct sums sums = sums_of(account);
    lock_release(&books_lock);
    if (err)
      refuse_at_once(device, bytes);
    else
      err = ask(device, number, bytes, sums);
    lock_take(&books_lock);
    kept = turn_end(account, number, !err);
    if (err == -EINTR || !kept)
      lock_release(&books_lock);
  } while (err == -EINTR || !kept);
  report_and_unlock(device);
  return err;
}

void budget_note(CUdevice device, enum backing backing, uint64_t bytes) {
  struct account *account = &accounts[device];
  lock_take(&books_lock);
  account->used_bytes[backing] = add_saturated(account->used_bytes[backing], bytes);
  booked |= UINT64_C(1) << device;
  account->unreported = true;
  report_and_unlock(device);
}

int budget_pin(CUdevice device, uint64_t bytes, void (*change)(void *argument), void *argument) {
  struct account *account = &accounts[device];
  int err;
  do {
    lock_take(&books_lock);
    uint64_t number = turn_begin(account, true);
    struct sums sums = sums_of(account);
    lock_release(&books_lock);
    err = memory_port.request(device, sums.total_bytes, sums.pinned_bytes + bytes, false,
                              &account->turn.seen_ns);
    if (err == -ENOMEM)
      log_refusal(device, bytes, memory_port.bounds(device).why, true);
    else if (err != -EINTR)
      change(argument);
    lock_take(&books_lock);
    turn_end(account, number, true);
    account->unreported = true; /* `change` may not have done it */
    report_and_unlock(device);
  } while (err == -EINTR);
  return err == -ENOMEM ? err : 0;
}

void budget_rebook(CUdevice device, enum backing from, enum backing to, uint64_t bytes) {
  struct account *account = &accounts[device];
  lock_take(&books_lock);
  unbook(account, from, bytes);
  account->used_bytes[to] = add_saturated(account->used_bytes[to], bytes);
  account->unreported = true;
  lock_release(&books_lock);
}

void budget_report(CUdevice device) {
  lock_take(&books_lock);
  report_and_unlock(device);
}

void budget_release(CUdevice device, enum backing backing, uint64_t bytes) {
  if (!bytes)
    return;
  lock_take(&books_lock);
  unbook(&accounts[device], backing, bytes);
  accounts[device].unreported = true;
  report_and_unlock(device);
}

void budget_await(CUdevice device, uint64_t bytes) {
  atomic_fetch_add(&accounts[device].awaited_bytes, bytes);
}

void budget_arrived(CUdevice device, uint64_t bytes) {
  atomic_fetch_sub(&accounts[device].awaited_bytes, bytes);
}

uint64_t budget_awaited_bytes(CUdevice device) { return atomic_load(&accounts[device].awaited_bytes); }

uint64_t budget_sum_bytes(CUdevice device) { return sum(&accounts[device]); }

uint64_t budget_free_bytes(CUdevice device) {
  uint64_t total = budget_total_bytes(device), used = budget_sum_bytes(device);
  return used < total ? total - used : 0;
}

/* For what is in use, unless another thread asks. As memory_port.request answers. */
static int ask_anew(CUdevice device) {
  struct account *account = &accounts[device];
  int err = -EINTR;
  lock_take(&books_lock);
  uint64_t number = turn_begin(account, false);
  struct sums sums = sums_of(account);
  lock_release(&books_lock);
  if (!number)
    return err;
  err = memory_port.request(device, sums.total_bytes, sums.pinned_bytes, true, &account->turn.seen_ns);
  lock_take(&books_lock);
  turn_end(account, number, true);
  report_and_unlock(device);
  return err;
}

bool budget_ask(CUdevice device) {
  int err = ask_anew(device);
  return err == 0 || err == -ENOTCONN;
}

struct budget_left budget_ask_left(CUdevice device) {
  uint64_t total_bytes = budget_total_bytes(device);
  ask_anew(device);
  lock_take(&books_lock);
  struct sums sums = sums_of(&accounts[device]);
  lock_release(&books_lock);
  struct memory_bounds bounds = memory_port.bounds(device);
  uint64_t left = less(total_bytes, sums.total_bytes);
  if (!bounds.knows_most)
    return (struct budget_left){.bytes = left, .pinned_bytes = left};
  left = least(left, less(bounds.most_bytes, sums.total_bytes));
  return (struct budget_left){.bytes = left,
                              .pinned_bytes = least(left, less(bounds.most_pinned_bytes, sums.pinned_bytes)),
                              .making_way_bytes = bounds.making_way_bytes};
}

uint64_t budget_used_bytes(CUdevice device, enum backing backing) {
  return accounts[device].used_bytes[backing];
}

uint64_t budget_pinned_bytes(CUdevice device) { return pinned(&accounts[device]); }

static void forget(void) {
  for (int i = 0; i < DEVICES; i++)
    accounts[i] = (struct account){.turn = {.thread = NULL}};
  books_lock = (struct lock)LOCK(LOCK_BUDGET);
  booked = host_bytes = 0;
}
IN_FORKED_CHILD(forget);
