/* account.c - keeps ledgers and budget in step. */
#include "memory/account.h"

#include <stdatomic.h>
#include <string.h>

#include "common/log.h"
#include "driver/driver.h"
#include "memory/backend.h"
#include "memory/device.h"
#include "memory/forked.h"

struct ledger account_addresses = LEDGER(LOCK_ACCOUNT);
struct ledger account_objects = LEDGER(LOCK_ACCOUNT);
static _Atomic uint64_t away[DEVICES]; /* the sum of away_bytes of the entries of account_addresses */

/* Bytes to give back once the ledger is unlocked again. Nearly always there are none, so nobody looks. */
struct refund {
  bool any;
  uint64_t bytes[DEVICES][BACKINGS]; /* if there are any */
};

static void note_refund(const struct allocation *allocation, void *argument) {
  struct refund *refund = argument;
  if (!refund->any)
    memset(refund->bytes, 0, sizeof refund->bytes);
  refund->any = true;
  refund->bytes[allocation->device][allocation->backing] += allocation->bytes;
  struct allocation gone = *allocation;
  allocation_drop_contents(&gone); /* takes no lock but that of the slabs */
  atomic_fetch_sub(&away[allocation->device], allocation->away_bytes);
}

static void pay_refund(const struct refund *refund) {
  for (CUdevice device = 0; device < DEVICES && refund->any; device++)
    for (int backing = 0; backing < BACKINGS; backing++)
      budget_release(device, backing, refund->bytes[device][backing]);
}

static int insert(struct ledger *ledger, const struct allocation *allocation) {
  struct refund refund;
  refund.any = false;
  atomic_fetch_add(&away[allocation->device], allocation->away_bytes);
  int err = ledger_insert(ledger, allocation, note_refund, &refund);
  if (err)
    atomic_fetch_sub(&away[allocation->device], allocation->away_bytes);
  pay_refund(&refund);
  return err;
}

int account_add(struct ledger *ledger, const struct allocation *allocation) {
  int err = insert(ledger, allocation);
  if (err)
    log_warn("GPU %d: out of host memory for bookkeeping: an allocation is refused", allocation->device);
  return err;
}

CUresult account_enter(CUresult result, const CUdeviceptr *address, size_t bytes,
                       const struct allocation *like, enum backing backing) {
  struct allocation new = *like;
  new.backing = backing;
  if (result != CUDA_SUCCESS) {
    budget_release(new.device, backing, bytes);
    return result;
  }
  new.base = *address;
  new.span = new.bytes = bytes;
  if (account_add(&account_addresses, &new) == 0)
    return result;
  driver.cuMemFree_v2(*address);
  account_gone(&new);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool account_take(struct ledger *ledger, uint64_t base, struct allocation *taken) {
  if (!ledger_take(ledger, base, taken))
    return false;
  atomic_fetch_sub(&away[taken->device], taken->away_bytes);
  return true;
}

void account_gone(const struct allocation *taken) {
  struct allocation gone = *taken;
  allocation_drop_contents(&gone);
  budget_release(taken->device, taken->backing, taken->bytes);
}

void account_put_back(struct ledger *ledger, const struct allocation *taken) {
  if (insert(ledger, taken))
    log_warn("GPU %d: out of host memory for bookkeeping: %lu bytes stay booked", taken->device,
             taken->bytes);
}

void account_unpin(const struct allocation *pinned, uint64_t away_bytes) {
  atomic_fetch_add(&away[pinned->device], away_bytes - pinned->away_bytes);
  ledger_set_object(&account_addresses, pinned->base, pinned->object);
  ledger_unpin(&account_addresses, pinned->base, away_bytes);
}

void account_change(const struct allocation *allocation, uint64_t reserved_bytes,
                    void (*change)(struct allocation *, void *), void *argument) {
  struct allocation before = {.bytes = 0}, after = {.bytes = 0};
  if (ledger_change(&account_addresses, allocation->base, allocation->sequence, change, argument, &before,
                    &after))
    atomic_fetch_add(&away[allocation->device], after.away_bytes - before.away_bytes);
  uint64_t had = before.bytes + reserved_bytes;
  budget_release(allocation->device, allocation->backing, had > after.bytes ? had - after.bytes : 0);
}

static _Atomic uint64_t opened[DEVICES];

uint64_t account_opened_bytes(CUdevice device) { return atomic_load(&opened[device]); }
void account_opened(CUdevice device, uint64_t more_bytes) { atomic_fetch_add(&opened[device], more_bytes); }

uint64_t account_away_bytes(CUdevice device) { return atomic_load(&away[device]); }

uint64_t account_unified_bytes(CUdevice device) {
  uint64_t movable = budget_used_bytes(device, BACKING_CONVERTED) + budget_used_bytes(device, BACKING_APP);
  uint64_t elsewhere = account_away_bytes(device);
  return elsewhere < movable ? movable - elsewhere : 0;
}

void account_context_destroyed(CUcontext context) {
  struct refund refund;
  refund.any = false;
  ledger_remove_context(&account_addresses, context, note_refund, &refund);
  ledger_remove_context(&account_objects, context, note_refund, &refund);
  pay_refund(&refund);
}

void account_context_inherited(CUcontext context, CUcontext heir) {
  ledger_change_context(&account_addresses, context, heir);
  ledger_change_context(&account_objects, context, heir);
}

static void forget(void) {
  ledger_fork_child(&account_addresses);
  ledger_fork_child(&account_objects);
  for (int i = 0; i < DEVICES; i++)
    atomic_store(&away[i], 0);
  for (int i = 0; i < DEVICES; i++)
    atomic_store(&opened[i], 0);
}
IN_FORKED_CHILD(forget);
