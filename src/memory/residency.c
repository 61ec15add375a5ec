/*
 * residency.c - moves the process' unified memory out of a card and back, in bulk, around a hand-over.
 *
 * Contents survive any mistake here: a prefetch only says where pages should be. The moves must leave the
 * program free to allocate and free meanwhile, so one allocation at a time is pinned, for the time it takes
 * to queue a piece of it.
 */
#include <errno.h>
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

/* One call for many pieces brings in 20 MiB pieces at 43 GB/s and 2 MiB pieces at 25 GB/s, instead of 29 and
 * 18; out it gains nothing. One piece cannot span two allocations: the driver refuses. */
#define BATCH_PIECES 128

struct part {
  uint64_t base, sequence;
  uint64_t bytes; /* to move, at most */
  uint8_t backing;
};

/* Part of an allocation that is pinned until it is queued. */
struct piece {
  struct allocation pinned;
  uint64_t start, bytes;
};

struct mover {
  CUstream stream;
  CUdevice device;
  bool out;
  uint64_t left_bytes;
  uint64_t queued_bytes;
  uint64_t moved_bytes;
  size_t most_pieces, pieces; /* of a batch: at most, and so far */
  uint64_t batch_bytes;
  struct piece batch[BATCH_PIECES];
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
    return -ENOMEM;
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

/* Pin the next piece of an allocation: what is away is always a part at its start, which grows when moving
 * out and shrinks, from its end, when moving in. False when there is nothing left of it to do. */
static bool add_piece(struct mover *mover, const struct part *part) {
  struct piece *piece = &mover->batch[mover->pieces];
  struct allocation *pinned = &piece->pinned;
  if (!mover->left_bytes || !ledger_pin(&account_addresses, part->base, part->sequence, pinned))
    return false;
  piece->bytes = piece_bytes(mover, movable_bytes(pinned, mover->out));
  piece->start = mover->out ? pinned->away_bytes : pinned->away_bytes - piece->bytes;
  if (!piece->bytes) {
    account_unpin(pinned, pinned->away_bytes);
    return false;
  }
  mover->pieces++;
  mover->batch_bytes += piece->bytes;
  mover->left_bytes -= least(piece->bytes, mover->left_bytes);
  return true;
}

static void queue_piece(struct mover *mover, struct piece *piece) {
  CUdevice to = mover->out ? CU_DEVICE_CPU : mover->device;
  CUresult result =
      driver.cuMemPrefetchAsync(piece->pinned.base + piece->start, piece->bytes, to, mover->stream);
  if (result != CUDA_SUCCESS)
    piece->bytes = 0;
}

/* All pieces of the batch by one call, into the card. */
static bool queue_together(struct mover *mover) {
  CUdeviceptr addresses[BATCH_PIECES];
  size_t sizes[BATCH_PIECES], first = 0;
  CUmemLocation to = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = mover->device};
  for (size_t i = 0; i < mover->pieces; i++) {
    addresses[i] = mover->batch[i].pinned.base + mover->batch[i].start;
    sizes[i] = mover->batch[i].bytes;
  }
  return driver.cuMemPrefetchBatchAsync(addresses, sizes, mover->pieces, &to, &first, 1, 0, mover->stream) ==
         CUDA_SUCCESS;
}

/* Queue what has been pinned, note where it will be, and let go of it. False: moving does not work any more.
 */
static bool flush(struct mover *mover) {
  if (mover->pieces < 2 || !queue_together(mover))
    for (size_t i = 0; i < mover->pieces; i++)
      queue_piece(mover, &mover->batch[i]);
  for (size_t i = 0; i < mover->pieces; i++) {
    struct piece *piece = &mover->batch[i];
    uint64_t away = piece->pinned.away_bytes;
    account_unpin(&piece->pinned, mover->out ? away + piece->bytes : away - piece->bytes);
    mover->queued_bytes += piece->bytes;
    mover->moved_bytes += piece->bytes;
  }
  mover->pieces = 0;
  mover->batch_bytes = 0;
  return mover->queued_bytes < QUEUED_BYTES || wait_for_queued(mover);
}

/* A piece that is not the last one of its allocation fills the batch, so no allocation is in it twice. */
static bool move_part(struct mover *mover, const struct part *part) {
  while (add_piece(mover, part)) {
    bool full =
        mover->pieces == mover->most_pieces || mover->batch_bytes >= PIECE_BYTES || !mover->left_bytes;
    uint64_t before = mover->moved_bytes;
    if (full && (!flush(mover) || mover->moved_bytes == before))
      return false;
    if (!full)
      return true;
  }
  return true;
}

static uint64_t move_parts(struct mover *mover, const struct part *parts, size_t count) {
  CUresult result = driver.cuStreamCreate(&mover->stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) {
    log_warn("GPU %d: no stream to move memory on: CUDA error %d", mover->device, result);
    return 0;
  }
  mover->most_pieces = mover->out || !driver.cuMemPrefetchBatchAsync ? 1 : BATCH_PIECES;
  for (size_t i = 0; i < count && mover->left_bytes; i++)
    if (!move_part(mover, &parts[i]))
      break;
  flush(mover);
  wait_for_queued(mover);
  driver.cuStreamDestroy_v2(mover->stream);
  return mover->moved_bytes;
}

static uint64_t move(CUdevice device, bool out, uint64_t bytes) {
  struct mover mover = {.device = device, .out = out, .left_bytes = bytes};
  struct part *parts;
  size_t count;
  if (plan(device, out, &parts, &count))
    return 0;
  CUstreamCaptureMode mode = capture_relax();
  uint64_t moved = count ? move_parts(&mover, parts, count) : 0;
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
