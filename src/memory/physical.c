/*
 * physical.c - physical memory that the program makes and maps itself (cuMemCreate and its like). Device
 * memory is a block that leaves and comes back (swap/handles.h), and its handle is a number of ours. What is
 * exported, or goes where the driver must know a handle, becomes the driver's own at that moment and stays on
 * the card from then on (settle_down). Other kinds are the driver's from the start: passed through, and
 * counted as long as they live, which is until the last handle is released and the last mapping undone.
 *
 * What the driver checks is checked here, as it can't see memory that is away: the addresses are reserved and
 * free, and only whole mappings are changed.
 */
#include "memory/physical.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/condition.h"
#include "common/lock.h"
#include "common/log.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/forked.h"
#include "memory/pinned.h"
#include "memory/reach.h"
#include "memory/sharing.h"
#include "memory/swap/blocks.h"
#include "memory/swap/handles.h"
#include "memory/swap/swap.h"

#define CAPTURES_NS (5 * NS_PER_S)      /* how long an export waits for captures to end */
#define ALONE_FIRST_NS (20 * NS_PER_MS) /* how long other threads wait for an export, at first */
#define ALONE_LAST_NS (10 * NS_PER_S)

/* Handles of ours count up from here: no address, and no small number. */
#define FIRST_HANDLE (UINT64_C(0x6770) << 48)

struct physical {
  uint64_t bytes;
  uint64_t handles, mappings;                /* references; under the lock */
  struct block *block;                       /* NULL: the driver's own */
  CUmemGenericAllocationHandle number, real; /* the program's; without a block, the driver's */
  CUmemAllocationProp kind;
  CUdevice device;
  enum backing backing; /* without a block: of its bytes in the budget */
  bool mapped;          /* it is, or was: work may use it */
};

struct mapping {
  struct alias alias; /* of a block */
  uint64_t bytes;
  struct physical *physical;
};

/* Held for whole changes, also while the driver is called, but never while anything is waited for that may
 * take longer than a piece moves, or, for an export, than the block. */
static struct lock lock = LOCK(LOCK_PHYSICAL);
static struct ledger handles = LEDGER(LOCK_PHYSICAL_TABLE);      /* by number; object: struct physical */
static struct ledger mappings = LEDGER(LOCK_PHYSICAL_TABLE);     /* by address; object: struct mapping */
static struct ledger reservations = LEDGER(LOCK_PHYSICAL_TABLE); /* by address */
static uint64_t next_handle = FIRST_HANDLE;
static struct condition settled; /* under the lock */

/* ---- tables; with the lock held ---- */

static void *find(struct ledger *ledger, uint64_t key) {
  struct allocation found;
  return ledger_find(ledger, key, &found) ? found.object : NULL;
}

/* An old entry in the way would be one that the driver dropped unheard of. */
static bool list(struct ledger *ledger, uint64_t key, uint64_t span, void *object) {
  struct allocation entry = {.base = key, .span = span, .object = object, .origin = ORIGIN_OBJECT};
  return ledger_insert(ledger, &entry, NULL, NULL) == 0;
}

static void unlist(struct ledger *ledger, uint64_t key) {
  struct allocation entry;
  ledger_take(ledger, key, &entry);
}

static void log_out_of_memory(void) {
  log_warn("out of host memory for bookkeeping: physical memory, or a mapping of it, is refused");
}

/* Drop the memory if nothing refers to it. */
static void forget_unused(struct physical *physical) {
  if (physical->handles || physical->mappings)
    return;
  if (physical->block)
    handle_block_end(physical->block);
  else
    budget_release(physical->device, physical->backing, physical->bytes);
  free(physical);
}

/* ---- new memory ---- */

static CUresult list_new(const struct physical *like, CUmemGenericAllocationHandle *handle) {
  struct physical *new = malloc(sizeof *new);
  lock_take(&lock);
  bool listed = false;
  if (new) {
    *new = *like;
    new->handles = 1;
    new->number = new->block ? next_handle++ : new->real;
    listed = list(&handles, new->number, 1, new);
    *handle = new->number;
  }
  lock_release(&lock);
  if (listed)
    return CUDA_SUCCESS;
  free(new);
  log_out_of_memory();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Without memory for the entry, the driver's memory goes as well. */
static CUresult make_pinned(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *kind, unsigned long long flags) {
  struct physical new = {.bytes = bytes, .kind = *kind, .device = kind->location.id};
  new.backing = backend_leaves(new.device) ? BACKING_PINNED_OTHER : BACKING_PINNED_PLAIN;
  struct pinned_patience patience = {0};
  CUresult result;
  if (pinned_reserve(new.device, new.backing, bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  do
    result = driver.cuMemCreate(&new.real, bytes, kind, flags);
  while (pinned_again(result, new.device, bytes, &patience));
  if (result == CUDA_SUCCESS) {
    result = list_new(&new, handle);
    if (result != CUDA_SUCCESS)
      driver.cuMemRelease(new.real);
  }
  if (result != CUDA_SUCCESS)
    budget_release(new.device, new.backing, bytes);
  return result;
}

static CUresult make_block(CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *kind) {
  struct physical new = {.bytes = bytes, .kind = *kind, .device = kind->location.id};
  uint64_t there_bytes = budget_used_bytes(new.device, BACKING_SWAP) + budget_pinned_bytes(new.device);
  uint64_t total_bytes = budget_total_bytes(new.device);
  uint64_t spare_bytes = swap_spare_bytes(new.device);
  there_bytes -= spare_bytes < there_bytes ? spare_bytes : there_bytes;
  if (total_bytes && (there_bytes > total_bytes || bytes > total_bytes - there_bytes))
    return CUDA_ERROR_OUT_OF_MEMORY; /* all of it must be there while the process runs */
  CUresult result = handle_block_make(new.device, bytes, &new.block);
  if (result != CUDA_SUCCESS)
    return result;
  result = list_new(&new, handle);
  if (result != CUDA_SUCCESS)
    handle_block_end(new.block);
  return result;
}

static bool exports_descriptors(CUdevice device) {
  int can = 0;
  return driver.cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                     device) == CUDA_SUCCESS &&
         can;
}

/* By this module of the kernel a network adapter pins memory, and no call tells us. */
static bool has_peermem(void) {
  static _Atomic int known; /* 0: unknown, 1: yes, -1: no */
  if (!atomic_load(&known))
    atomic_store(&known, access("/sys/module/nvidia_peermem", F_OK) == 0 ? 1 : -1);
  return atomic_load(&known) > 0;
}

/* Device memory as any program takes it; the driver answers for all else, and for what is wrong. RDMA is a
 * hint that frameworks give always. */
static bool can_leave(size_t bytes, const CUmemAllocationProp *kind, unsigned long long flags) {
  CUdevice device = kind->location.id;
  bool exportable = kind->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return kind->type == CU_MEM_ALLOCATION_TYPE_PINNED && bytes && bytes % GRAIN_BYTES == 0 && !flags &&
         !kind->allocFlags.usage && !kind->allocFlags.compressionType &&
         !(kind->allocFlags.gpuDirectRDMACapable && has_peermem()) && backend_leaves(device) &&
         handle_blocks_supported(device) &&
         (exportable ? exports_descriptors(device) : kind->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                          unsigned long long flags) {
  bool counted =
      handle && prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && device_valid(prop->location.id);
  if (!counted)
    return driver.cuMemCreate(handle, size, prop, flags);
  return can_leave(size, prop, flags) ? make_block(handle, size, prop)
                                      : make_pinned(handle, size, prop, flags);
}

/* ---- handles ---- */

/* One handle less: before the driver's call, because it may give the same handle out anew at once. Returns
 * the memory if that was the last one; then it has a mapping more, of ours. */
static struct physical *drop_handle(struct physical *physical) {
  if (--physical->handles)
    return NULL;
  unlist(&handles, physical->number);
  physical->mappings++;
  return physical;
}

/* Of what has become the driver's, the program's handles are one to it. */
static bool has_settled(const struct physical *physical) {
  return !physical->block && physical->number != physical->real;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUresult result = CUDA_SUCCESS;
  lock_take(&lock);
  struct physical *physical = find(&handles, handle), *last = physical ? drop_handle(physical) : NULL;
  if (!physical || (!physical->block && (last || !has_settled(physical))))
    result = driver.cuMemRelease(physical ? physical->real : handle);
  if (last) {
    last->mappings--;
    if (result != CUDA_SUCCESS && list(&handles, last->number, 1, last))
      last->handles++;
    else
      forget_unused(last);
  }
  lock_release(&lock);
  return result;
}

/* What is hidden from the driver is mapped as well, but the program must not know: plain memory has no
 * handle. */
static bool is_plain_memory(const void *address, const struct mapping *mapping) {
  struct allocation found;
  return !mapping && ledger_find(&account_addresses, (uintptr_t)address, &found) && found.backend->hidden;
}

/* With the lock held: one handle more. */
static CUresult retain(struct physical *physical, CUmemGenericAllocationHandle *handle) {
  if (!physical->handles && !list(&handles, physical->number, 1, physical)) {
    if (!physical->block)
      driver.cuMemRelease(physical->real);
    log_out_of_memory();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  physical->handles++;
  *handle = physical->number;
  return CUDA_SUCCESS;
}

/* The driver's part of that. The number that it gives is the same while there is a handle. */
static CUresult retain_real(struct physical *physical, void *address) {
  CUmemGenericAllocationHandle real;
  if (physical->block || (has_settled(physical) && physical->handles))
    return CUDA_SUCCESS;
  CUresult result = driver.cuMemRetainAllocationHandle(&real, address);
  if (result != CUDA_SUCCESS)
    return result;
  if (!has_settled(physical))
    physical->number = real;
  physical->real = real;
  return CUDA_SUCCESS;
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  lock_take(&lock);
  struct mapping *mapping = find(&mappings, (uintptr_t)addr);
  CUresult result = handle && !is_plain_memory(addr, mapping) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && !mapping)
    result = driver.cuMemRetainAllocationHandle(handle, addr);
  else if (result == CUDA_SUCCESS && (result = retain_real(mapping->physical, addr)) == CUDA_SUCCESS)
    result = retain(mapping->physical, handle);
  lock_release(&lock);
  return result;
}

CUresult hook_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                     CUmemGenericAllocationHandle handle) {
  lock_take(&lock);
  const struct physical *physical = find(&handles, handle);
  bool ours = physical && prop && physical->block;
  CUmemGenericAllocationHandle real = physical ? physical->real : handle;
  if (ours)
    *prop = physical->kind;
  lock_release(&lock);
  return ours ? CUDA_SUCCESS : driver.cuMemGetAllocationPropertiesFromHandle(prop, real);
}

/* ---- mappings ---- */

/* The driver knows what is mapped, in pieces, and not the mapping; it can't be freed like an allocation. */
static CUresult free_mapping(const struct allocation *taken, bool finished) {
  (void)taken, (void)finished;
  return CUDA_ERROR_INVALID_VALUE;
}

static const struct backend backend_mapping = {.hidden = true, .free = free_mapping};

/* Of a block: what the program may ask about the addresses. */
static bool enter(const struct mapping *mapping) {
  struct allocation entry = {.base = mapping->alias.at,
                             .span = mapping->bytes,
                             .backing = BACKING_SWAP,
                             .backend = &backend_mapping,
                             .device = mapping->physical->device,
                             .origin = ORIGIN_OBJECT};
  return account_add(&account_addresses, &entry) == 0;
}

static void leave(const struct mapping *mapping) {
  struct allocation entry;
  account_take(&account_addresses, mapping->alias.at, &entry);
}

/* Whether all of it is reserved, and nothing of ours is mapped there. */
static bool is_free(CUdeviceptr at, uint64_t bytes) {
  struct allocation found, other;
  return ledger_find(&reservations, at, &found) && found.base + found.span - at >= bytes &&
         !ledger_find(&mappings, at, NULL) && !ledger_find_in(&mappings, at, at + bytes, &other);
}

/* The driver (580) maps only all of a handle. */
static CUresult map_block(struct mapping *mapping, uint64_t offset, unsigned long long flags) {
  struct physical *physical = mapping->physical;
  if (flags || (mapping->bytes | offset) % GRAIN_BYTES)
    return CUDA_ERROR_INVALID_VALUE;
  if (offset || mapping->bytes != physical->bytes)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (mapping->alias.at % GRAIN_BYTES || !is_free(mapping->alias.at, mapping->bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (!enter(mapping))
    return CUDA_ERROR_OUT_OF_MEMORY;
  blocks_note_range(mapping->alias.at, mapping->bytes);
  CUresult result = alias_add(physical->block, &mapping->alias);
  if (result != CUDA_SUCCESS)
    leave(mapping);
  return result;
}

/* Its rights are at an end. */
static void count_down(struct mapping *mapping) {
  for (CUdevice peer = 0; peer < DEVICES; peer++) {
    if (mapping->alias.rights[peer] && peer != mapping->physical->device)
      reach_count_mapping(mapping->physical->device, peer, -1);
    mapping->alias.rights[peer] = 0;
  }
}

static CUresult unmap_block(struct mapping *mapping) {
  CUresult result = alias_remove(mapping->physical->block, &mapping->alias);
  leave(mapping);
  count_down(mapping);
  return result;
}

/* The next mapping of a block in [*at, end); what is before it is a gap. False: the rest is a gap. */
static bool next_of_block(CUdeviceptr *at, CUdeviceptr end, CUdeviceptr *gap_end, struct mapping **mapping) {
  struct allocation found;
  CUdeviceptr from = *at;
  *gap_end = end;
  while (ledger_find_in(&mappings, from, end, &found)) {
    *mapping = found.object;
    if ((*mapping)->physical->block) {
      *gap_end = found.base;
      return true;
    }
    from = found.base + found.span;
  }
  return false;
}

/* Whether mappings of a block begin in it. False in *whole: one is in it in part. */
static bool has_blocks(CUdeviceptr at, uint64_t bytes, bool *whole) {
  struct mapping *mapping = find(&mappings, at);
  CUdeviceptr end = at + bytes, gap_end;
  bool any = mapping && mapping->physical->block;
  *whole = !any || mapping->alias.at == at;
  for (CUdeviceptr from = at; *whole && next_of_block(&from, end, &gap_end, &mapping);
       from = gap_end + mapping->bytes) {
    any = true;
    *whole = gap_end + mapping->bytes <= end;
  }
  return any;
}

/* With the lock held. */
static CUresult map(struct physical *physical, CUdeviceptr at, uint64_t bytes, uint64_t offset,
                    unsigned long long flags) {
  struct mapping *mapping = calloc(1, sizeof *mapping);
  if (!mapping) {
    log_out_of_memory();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *mapping = (struct mapping){.alias = {.at = at}, .bytes = bytes, .physical = physical};
  CUresult result = physical->block ? map_block(mapping, offset, flags)
                                    : driver.cuMemMap(at, bytes, offset, physical->real, flags);
  if (result == CUDA_SUCCESS && !list(&mappings, at, bytes, mapping)) {
    if (physical->block)
      unmap_block(mapping);
    else
      driver.cuMemUnmap(at, bytes);
    log_out_of_memory();
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS) {
    physical->mappings++;
    physical->mapped = true;
  } else {
    free(mapping);
  }
  return result;
}

/* Where a block is mapped that is away, the driver sees nothing. */
CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
  bool whole;
  lock_take(&lock);
  struct physical *physical = size ? find(&handles, handle) : NULL;
  bool blind = !physical || (!physical->block && size == physical->bytes && !offset);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (!blind || ptr > UINT64_MAX - size || !has_blocks(ptr, size, &whole))
    result = physical ? map(physical, ptr, size, offset, flags)
                      : driver.cuMemMap(ptr, size, offset, handle, flags);
  lock_release(&lock);
  return result;
}

/* ---- ranges of mappings: whole ones, as the driver wants it ---- */

/* Call `ours` for each mapping of a block, `gap` for each range between them, which the driver knows. */
static CUresult each_in(CUdeviceptr at, uint64_t bytes, CUresult (*ours)(struct mapping *, const void *),
                        CUresult (*gap)(CUdeviceptr, uint64_t, const void *), const void *argument) {
  CUdeviceptr end = at + bytes, gap_end;
  struct mapping *mapping;
  CUresult result = CUDA_SUCCESS;
  for (bool more = true; more && result == CUDA_SUCCESS;) {
    more = next_of_block(&at, end, &gap_end, &mapping);
    if (gap && gap_end > at)
      result = gap(at, gap_end - at, argument);
    at = gap_end;
    if (!more || result != CUDA_SUCCESS)
      break;
    at += mapping->bytes;
    if (ours)
      result = ours(mapping, argument);
  }
  return result;
}

static CUresult unmap_gap(CUdeviceptr at, uint64_t bytes, const void *unused) {
  (void)unused;
  return driver.cuMemUnmap(at, bytes);
}

/* Should the driver refuse, it is at its end. */
static CUresult unmap_ours(struct mapping *mapping, const void *unused) {
  (void)unused;
  unmap_block(mapping);
  return CUDA_SUCCESS;
}

/* Forget the first mapping that lies in the range. False if there is none. */
static bool forget_one(CUdeviceptr at, uint64_t bytes) {
  struct allocation entry;
  if (!ledger_find_in(&mappings, at, at + bytes, &entry) || !ledger_take(&mappings, entry.base, &entry))
    return false;
  struct mapping *mapping = entry.object;
  mapping->physical->mappings--;
  forget_unused(mapping->physical);
  free(mapping);
  return true;
}

/* Afterwards, unlike a free: an unmapped range stays the program's until it gives the addresses back. The
 * driver's part first, as it may refuse. */
CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size) {
  bool whole = true;
  lock_take(&lock);
  bool ours = size && ptr <= UINT64_MAX - size && has_blocks(ptr, size, &whole);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (!ours)
    result = driver.cuMemUnmap(ptr, size);
  else if (whole && (result = each_in(ptr, size, NULL, unmap_gap, NULL)) == CUDA_SUCCESS)
    result = each_in(ptr, size, unmap_ours, NULL, NULL);
  if (result == CUDA_SUCCESS)
    while (forget_one(ptr, size))
      ;
  lock_release(&lock);
  return result;
}

struct rights {
  const CUmemAccessDesc *access;
  size_t users;
};

/* What the driver would refuse while the memory is there. */
static CUresult check_rights(CUdevice device, const struct rights *rights) {
  for (size_t i = 0; i < rights->users; i++) {
    const CUmemAccessDesc *access = &rights->access[i];
    int count = 0, can = 0;
    bool known = access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                 access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                 access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!known || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        driver.cuDeviceGetCount(&count) != CUDA_SUCCESS || access->location.id < 0 ||
        access->location.id >= count || !device_valid(access->location.id))
      return CUDA_ERROR_INVALID_VALUE;
    if (access->location.id != device &&
        (driver.cuDeviceCanAccessPeer(&can, access->location.id, device) != CUDA_SUCCESS || !can))
      return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

/* Work of a device that may reach the memory needs it to be there. */
static CUresult set_ours(struct mapping *mapping, const void *argument) {
  const struct rights *rights = argument;
  CUdevice owner = mapping->physical->device;
  uint8_t before[DEVICES];
  memcpy(before, mapping->alias.rights, sizeof before);
  CUresult result = check_rights(owner, rights);
  if (result == CUDA_SUCCESS)
    result = alias_set_access(mapping->physical->block, &mapping->alias, rights->access, rights->users);
  for (CUdevice peer = 0; peer < DEVICES; peer++)
    if (peer != owner && !before[peer] != !mapping->alias.rights[peer])
      reach_count_mapping(owner, peer, mapping->alias.rights[peer] ? 1 : -1);
  return result;
}

static CUresult set_gap(CUdeviceptr at, uint64_t bytes, const void *argument) {
  const struct rights *rights = argument;
  return driver.cuMemSetAccess(at, bytes, rights->access, rights->users);
}

CUresult hook_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
  struct rights rights = {desc, count};
  bool whole = true;
  lock_take(&lock);
  bool ours = size && desc && count && ptr <= UINT64_MAX - size && has_blocks(ptr, size, &whole);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (!ours)
    result = driver.cuMemSetAccess(ptr, size, desc, count);
  else if (whole && (result = each_in(ptr, size, NULL, set_gap, &rights)) == CUDA_SUCCESS)
    result = each_in(ptr, size, set_ours, NULL, &rights);
  lock_release(&lock);
  return result;
}

bool physical_access(CUdeviceptr address, const CUmemLocation *location, unsigned long long *flags,
                     CUresult *result) {
  lock_take(&lock);
  const struct mapping *mapping = find(&mappings, address);
  bool ours = mapping && mapping->physical->block;
  bool known = ours && location->type == CU_MEM_LOCATION_TYPE_DEVICE && device_valid(location->id);
  if (known)
    *flags = mapping->alias.rights[location->id];
  *result = known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  lock_release(&lock);
  return ours;
}

bool physical_describe(CUdeviceptr address, struct physical_view *view) {
  struct allocation range;
  CUdevice device;
  lock_take(&lock);
  const struct mapping *mapping = find(&mappings, address);
  if (mapping && !ledger_find(&reservations, address, &range))
    range = (struct allocation){.base = mapping->alias.at, .span = mapping->bytes};
  if (mapping)
    *view =
        (struct physical_view){.base = range.base,
                               .bytes = range.span,
                               .types = mapping->physical->kind.requestedHandleTypes,
                               .rights = device_current(&device, NULL) ? mapping->alias.rights[device] : 0};
  lock_release(&lock);
  return mapping != NULL;
}

/* ---- addresses ---- */

CUresult hook_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                  unsigned long long flags) {
  CUresult result = driver.cuMemAddressReserve(ptr, size, alignment, addr, flags);
  if (result != CUDA_SUCCESS)
    return result;
  lock_take(&lock);
  bool listed = list(&reservations, *ptr, size, NULL);
  lock_release(&lock);
  if (listed)
    return CUDA_SUCCESS;
  driver.cuMemAddressFree(*ptr, size);
  log_out_of_memory();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  bool whole;
  lock_take(&lock);
  bool mapped = size && ptr <= UINT64_MAX - size && has_blocks(ptr, size, &whole);
  CUresult result = mapped ? CUDA_ERROR_INVALID_VALUE : driver.cuMemAddressFree(ptr, size);
  if (result == CUDA_SUCCESS)
    unlist(&reservations, ptr);
  lock_release(&lock);
  return result;
}

/* ---- what the driver must know ---- */

/* A block becomes the driver's own memory. */
struct exchange {
  struct physical *physical;
  CUmemGenericAllocationHandle real;
  CUresult result;
  bool made;
  bool given;   /* its memory stays where it is. Else: */
  bool awaited; /* what was submitted before has finished */
  bool alone;   /* no work uses it */
  bool again;   /* not now: another thread is at it, or */
  bool busy;    /* there was work all the time */
  uint64_t patience_ns;
};

static CUresult make_real(void *argument) {
  struct exchange *exchange = argument;
  const struct physical *physical = exchange->physical;
  return driver.cuMemCreate(&exchange->real, physical->bytes, &physical->kind, 0);
}

/* As a program asks for it that exports, but for RDMA. */
static bool is_made_alike(const CUmemAllocationProp *kind) {
  return kind->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
         !kind->allocFlags.gpuDirectRDMACapable;
}

static CUresult give_or_exchange(struct exchange *exchange) {
  struct block *block = exchange->physical->block;
  return exchange->given ? handle_block_give(block, &exchange->real)
                         : handle_block_exchange(block, make_real, exchange, &exchange->real);
}

/* From now on the driver knows all about its mappings, and no work needs it to be brought. */
static void drop_entries(const struct physical *physical) {
  struct allocation found;
  for (uint64_t from = 0; ledger_find_in(&mappings, from, UINT64_MAX, &found); from = found.base + 1) {
    struct mapping *mapping = found.object;
    if (mapping->physical != physical)
      continue;
    leave(mapping);
    count_down(mapping);
  }
}

/* Memory and books change together, as these say what the process' swap memory may have. */
static void exchange_block(void *argument) {
  struct exchange *exchange = argument;
  struct physical *physical = exchange->physical;
  lock_take(&lock);
  exchange->result = CUDA_SUCCESS;
  exchange->again = physical->mapped && !exchange->alone && !exchange->given; /* mapped meanwhile */
  if (physical->block && !exchange->again) {
    exchange->result = give_or_exchange(exchange);
    exchange->made = exchange->result == CUDA_SUCCESS;
  }
  if (exchange->made) {
    drop_entries(physical);
    budget_note(physical->device, BACKING_PINNED_SHARED, physical->bytes);
    handle_block_end(physical->block);
    physical->block = NULL;
    physical->backing = BACKING_PINNED_SHARED;
    physical->real = exchange->real;
    if (!physical->handles)
      driver.cuMemRelease(physical->real);
  }
  lock_release(&lock);
}

/* Referred to by a mapping more, so that it stays. NULL: it is not a block, or no longer one. */
static struct physical *hold(struct physical *physical) {
  if (!physical || !physical->block)
    return NULL;
  physical->mappings++;
  return physical;
}

static void let_go(struct physical *physical) {
  lock_take(&lock);
  physical->mappings--;
  forget_unused(physical);
  lock_release(&lock);
}

static bool is_exportable(const struct physical *held) {
  lock_take(&lock);
  bool exportable = held->block && is_made_alike(&held->kind) && handle_block_is_exportable(held->block);
  lock_release(&lock);
  return exportable;
}

static bool is_mapped(const struct physical *held) {
  lock_take(&lock);
  bool mapped = held->mapped;
  lock_release(&lock);
  return mapped;
}

static bool is_in_use(const struct exchange *exchange) {
  return !exchange->given && is_mapped(exchange->physical);
}

/* Work that uses the memory would find nothing there, unless it stays where it is. */
static void exchange_alone(void *argument) {
  struct exchange *exchange = argument;
  const struct physical *held = exchange->physical;
  struct alone alone;
  bool used = is_in_use(exchange);
  exchange->busy = used && !sharing_alone(&alone, sharing_devices(held->device), exchange->patience_ns);
  exchange->again = exchange->busy;
  if (exchange->again)
    return;
  exchange->alone = used;
  exchange->result = CUDA_ERROR_INVALID_CONTEXT; /* where there is none to do it in */
  contexts_any(held->device, exchange_block, exchange);
  if (used)
    sharing_together(&alone);
}

static struct gate_call settling; /* under the lock: of the thread that makes a block the driver's own */

/* One thread at a time. Why another one does not wait here: its call is in flight, for whose end the first
 * one waits. */
static bool begin_settling(struct exchange *exchange) {
  lock_take(&lock);
  bool needed = exchange->physical->block != NULL;
  exchange->again = needed && gate_call_goes_on(&settling);
  bool mine = needed && !exchange->again;
  if (mine)
    settling = gate_call_mine();
  lock_release(&lock);
  return mine;
}

static void end_settling(void) {
  lock_take(&lock);
  settling = (struct gate_call){NULL, 0};
  condition_wake_all(&settled);
  lock_release(&lock);
}

static void await_settling(void) {
  lock_take(&lock);
  gate_call_await(&settling, &settled, &lock);
  lock_release(&lock);
}

/* Work that may use the memory is waited for, unless that stays where it is: an export does not wait by
 * itself, but comes when memory is set up. */
static CUresult settle_in_turn(void *argument) {
  struct exchange *exchange = argument;
  const struct physical *held = exchange->physical;
  exchange->given = is_exportable(held);
  exchange->again = is_in_use(exchange) && !exchange->awaited;
  if (exchange->again || !begin_settling(exchange))
    return CUDA_SUCCESS;
  exchange->result =
      is_in_use(exchange) ? sharing_finish_work(sharing_devices(held->device), CAPTURES_NS) : CUDA_SUCCESS;
  if (exchange->result == CUDA_SUCCESS && pin_or_trim(held->device, held->bytes, exchange_alone, exchange))
    exchange->result = CUDA_ERROR_OUT_OF_MEMORY;
  end_settling();
  return exchange->result;
}

static void give_way(struct exchange *exchange) {
  clock_sleep(exchange->patience_ns);
  exchange->busy = false;
  exchange->patience_ns =
      2 * exchange->patience_ns < ALONE_LAST_NS ? 2 * exchange->patience_ns : ALONE_LAST_NS;
}

static CUresult settle_down(struct physical *held) {
  static _Atomic bool said;
  struct exchange exchange = {.physical = held, .patience_ns = ALONE_FIRST_NS};
  CUresult result = sharing_in_turn(held->device, settle_in_turn, &exchange);
  while (exchange.again) {
    await_settling();
    if (exchange.busy) /* other threads go on for as long as they have waited */
      give_way(&exchange);
    if (!exchange.given)
      gate_await_work(held->device);
    exchange.awaited = true;
    result = sharing_in_turn(held->device, settle_in_turn, &exchange);
  }
  if (exchange.made && !atomic_exchange(&said, true))
    log_info("GPU %d: memory that this program shares with other processes or devices stays on the card",
             held->device);
  return result;
}

static CUresult settle_held(struct physical *held) {
  CUresult result = CUDA_SUCCESS;
  if (held) {
    result = settle_down(held);
    let_go(held);
  }
  return result;
}

CUresult physical_give(CUmemGenericAllocationHandle *handle) {
  lock_take(&lock);
  struct physical *held = hold(find(&handles, *handle));
  lock_release(&lock);
  CUresult result = settle_held(held);
  lock_take(&lock);
  const struct physical *physical = find(&handles, *handle);
  if (physical && result == CUDA_SUCCESS)
    *handle = physical->real;
  lock_release(&lock);
  return result;
}

CUresult physical_give_range(CUdeviceptr address, uint64_t bytes) {
  CUresult result = CUDA_SUCCESS;
  bool more = true;
  while (more && result == CUDA_SUCCESS) {
    CUdeviceptr from = address, gap_end;
    lock_take(&lock);
    struct mapping *mapping = find(&mappings, address);
    more = (mapping && mapping->physical->block) ||
           (bytes && next_of_block(&from, address + bytes, &gap_end, &mapping));
    struct physical *held = more ? hold(mapping->physical) : NULL;
    lock_release(&lock);
    result = settle_held(held);
  }
  return result;
}

CUresult hook_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType handleType, unsigned long long flags) {
  lock_take(&lock);
  const struct physical *physical = find(&handles, handle);
  bool refused = physical && physical->block &&
                 (!shareableHandle || flags || !(physical->kind.requestedHandleTypes & handleType));
  lock_release(&lock);
  CUresult result = refused ? CUDA_ERROR_INVALID_VALUE : physical_give(&handle);
  return result == CUDA_SUCCESS
             ? driver.cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags)
             : result;
}

CUresult hook_cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                 CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                                 unsigned long long flags) {
  CUresult result = physical_give(&memHandle);
  return result == CUDA_SUCCESS
             ? driver.cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size, flags)
             : result;
}

CUresult hook_cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr,
                                  size_t size, unsigned long long flags) {
  CUresult result = physical_give_range(memptr, size);
  return result == CUDA_SUCCESS ? driver.cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags)
                                : result;
}

CUresult hook_cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                                    CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                                    unsigned long long flags) {
  CUresult result = physical_give(&memHandle);
  return result == CUDA_SUCCESS
             ? driver.cuMulticastBindMem_v2(mcHandle, dev, mcOffset, memHandle, memOffset, size, flags)
             : result;
}

CUresult hook_cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                                     CUdeviceptr memptr, size_t size, unsigned long long flags) {
  CUresult result = physical_give_range(memptr, size);
  return result == CUDA_SUCCESS ? driver.cuMulticastBindAddr_v2(mcHandle, dev, mcOffset, memptr, size, flags)
                                : result;
}

/* A copy of the list, as it is the program's. */
static CUresult map_arrays(CUarrayMapInfo *list, unsigned int count, CUstream stream,
                           CUresult (*call)(CUarrayMapInfo *, unsigned int, CUstream)) {
  CUarrayMapInfo *given = list && count ? malloc(count * sizeof *given) : NULL;
  CUresult result = list && count && !given ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  if (given)
    memcpy(given, list, count * sizeof *given);
  for (unsigned int i = 0; given && i < count && result == CUDA_SUCCESS; i++)
    if (given[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
      result = physical_give(&given[i].memHandle.memHandle);
  if (result == CUDA_SUCCESS) {
    gate_enter(stream);
    result = call(given ? given : list, count, stream);
    gate_leave();
  }
  free(given);
  return result;
}

CUresult hook_cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
  return map_arrays(mapInfoList, count, hStream, driver.cuMemMapArrayAsync);
}

CUresult hook_cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
  return map_arrays(mapInfoList, count, PER_THREAD(hStream), driver.cuMemMapArrayAsync_ptsz);
}

static void forget(void) {
  lock = (struct lock)LOCK(LOCK_PHYSICAL);
  settled = (struct condition){0};
  settling = (struct gate_call){NULL, 0};
  ledger_fork_child(&handles);
  ledger_fork_child(&mappings);
  ledger_fork_child(&reservations);
}
IN_FORKED_CHILD(forget);
