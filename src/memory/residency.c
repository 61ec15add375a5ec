/*
 * residency.c - moves the process' unified memory out of a card and back, in bulk, around a hand-over.
 *
 * Contents survive any mistake here: a prefetch only says where pages should be. The moves must leave the
 * program free to allocate and free meanwhile, so one allocation at a time is pinned, for the time it takes
 * to queue a piece of it.
 */
#include <stdlib.h>

#include "common/log.h"
#include "interpose/driver.h"
#include "memory/account.h"
#include "memory/device.h"
#include "memory/memory.h"
#include "memory/pools.h"

/* Larger pieces are faster (one call for 4 GiB: 50 GB/s, in 32 MiB pieces 33 GB/s on an H200), but a free of
 * the allocation waits while one is queued, and any free may wait for what has been queued since the last
 * wait. */
#define PIECE_BYTES (UINT64_C(256) << 20)
#define QUEUED_BYTES (UINT64_C(1) << 30)
#define PAGE_BYTES (UINT64_C(2) << 20) /* the driver's unit of residency */

struct part {
  uint64_t base, sequence;
  uint64_t bytes; /* to move, at most */
  uint8_t backing;
};

struct mover {
  CUstream stream;
  CUdevice device;
  bool out;
  uint64_t left_bytes;
  uint64_t queued_bytes;
  uint64_t moved_bytes;
};

struct question {
  CUdevice device;
  bool out;
};

static uint64_t movable_bytes(const struct allocation *allocation, bool out) {
  return out ? allocation->bytes - allocation->away_bytes : allocation->away_bytes;
}

static bool is_wanted(const struct allocation *allocation, void *argument) {
  const struct question *question = argument;
  return allocation->device == question->device && allocation->backing != BACKING_PINNED &&
         movable_bytes(allocation, question->out);
}

/* The program's own unified memory last: it may well be on the host by the program's will. Then the largest,
 * for the fewest and fastest moves. */
static int compare_parts(const void *a, const void *b) {
  const struct part *x = a, *y = b;
  if (x->backing != y->backing)
    return x->backing == BACKING_APP ? 1 : -1;
  if (x->bytes != y->bytes)
    return x->bytes < y->bytes ? 1 : -1;
  return x->base < y->base ? -1 : x->base > y->base;
}

/* What there is to move, in the order to do it. 0 or -errno. */
static int plan(CUdevice device, bool out, struct part **parts, size_t *count) {
  struct question question = {.device = device, .out = out};
  struct allocation *list;
  int err = ledger_snapshot(&account_addresses, is_wanted, &question, &list, count);
  if (err)
    return err;
  *parts = malloc((*count + 1) * sizeof **parts);
  for (size_t i = 0; *parts && i < *count; i++)
    (*parts)[i] = (struct part){.base = list[i].base,
                                .sequence = list[i].sequence,
                                .bytes = movable_bytes(&list[i], out),
                                .backing = list[i].backing};
  free(list);
  if (!*parts)
    return -1;
  qsort(*parts, *count, sizeof **parts, compare_parts);
  return 0;
}

static bool wait_for_queued(struct mover *mover) {
  CUresult result = driver.cuStreamSynchronize(mover->stream);
  if (result != CUDA_SUCCESS)
    log_warn("GPU %d: moving memory failed with CUDA error %d", mover->device, result);
  mover->queued_bytes = 0;
  return result == CUDA_SUCCESS;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Whole pages, or up to the end. */
static uint64_t piece_bytes(const struct mover *mover, uint64_t rest) {
  uint64_t wanted = least(PIECE_BYTES, mover->left_bytes);
  wanted += (PAGE_BYTES - wanted % PAGE_BYTES) % PAGE_BYTES;
  return least(wanted, rest);
}

/* Queue the next piece of an allocation: what is away is always a part at its start, which grows when moving
 * out and shrinks, from its end, when moving in. Returns the bytes, 0 when there is nothing left of it to do.
 */
static uint64_t move_piece(struct mover *mover, const struct part *part) {
  struct allocation pinned;
  if (!ledger_pin(&account_addresses, part->base, part->sequence, &pinned))
    return 0;
  uint64_t away = pinned.away_bytes;
  uint64_t bytes = piece_bytes(mover, movable_bytes(&pinned, mover->out));
  uint64_t start = mover->out ? away : away - bytes;
  CUresult result = CUDA_SUCCESS;
  if (bytes)
    result = driver.cuMemPrefetchAsync(pinned.base + start, bytes, mover->out ? CU_DEVICE_CPU : mover->device,
                                       mover->stream);
  if (result != CUDA_SUCCESS)
    bytes = 0;
  account_unpin(&pinned, mover->out ? away + bytes : away - bytes);
  return bytes;
}

static bool move_part(struct mover *mover, const struct part *part) {
  uint64_t bytes;
  while (mover->left_bytes && (bytes = move_piece(mover, part))) {
    mover->left_bytes -= least(bytes, mover->left_bytes);
    mover->queued_bytes += bytes;
    mover->moved_bytes += bytes;
    if (mover->queued_bytes >= QUEUED_BYTES && !wait_for_queued(mover))
      return false;
  }
  return true;
}

static uint64_t move_parts(CUdevice device, bool out, uint64_t bytes, const struct part *parts,
                           size_t count) {
  struct mover mover = {.device = device, .out = out, .left_bytes = bytes};
  CUresult result = driver.cuStreamCreate(&mover.stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) {
    log_warn("GPU %d: no stream to move memory on: CUDA error %d", device, result);
    return 0;
  }
  for (size_t i = 0; i < count && mover.left_bytes; i++)
    if (!move_part(&mover, &parts[i]))
      break;
  wait_for_queued(&mover);
  driver.cuStreamDestroy_v2(mover.stream);
  return mover.moved_bytes;
}

static uint64_t move(CUdevice device, bool out, uint64_t bytes) {
  struct part *parts;
  size_t count;
  if (plan(device, out, &parts, &count))
    return 0;
  CUstreamCaptureMode mode = capture_relax();
  uint64_t moved = count ? move_parts(device, out, bytes, parts, count) : 0;
  capture_unrelax(mode);
  free(parts);
  return moved;
}

uint64_t memory_evict(CUdevice device, uint64_t bytes) {
  if (!device_valid(device) || !bytes || !device_converts(device))
    return 0;
  CUstreamCaptureMode mode = capture_relax();
  pools_trim(device); /* what nobody uses need not be moved */
  capture_unrelax(mode);
  return move(device, true, bytes);
}

/* No more comes in than the card holds: the rest would only push out what has just come. */
static uint64_t room_bytes(CUdevice device) {
  struct memory_usage usage = memory_usage(device);
  uint64_t total = budget_total_bytes(device), taken = usage.pinned_bytes + usage.resident_bytes;
  return taken < total ? total - taken : 0;
}

uint64_t memory_restore(CUdevice device) {
  if (!device_valid(device) || !account_away_bytes(device))
    return 0;
  uint64_t bytes = room_bytes(device);
  return bytes ? move(device, false, bytes) : 0;
}
