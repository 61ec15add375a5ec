/*
 * managed.c - unified memory in place of device memory: the card is its preferred location, and its pages can
 * leave. The program's own unified memory moves with it.
 *
 * What can is carried (carry.h), the rest is prefetched. The moves must leave the program free to allocate
 * and free meanwhile, so only what one call moves is pinned, until it has been moved.
 */
#include "memory/managed.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/lock.h"
#include "common/log.h"
#include "driver/driver.h"
#include "gate/gate.h"
#include "memory/account.h"
#include "memory/backend.h"
#include "memory/carry.h"
#include "memory/deferred.h"
#include "memory/forked.h"
#include "memory/memory_port.h"
#include "memory/pinned.h"
#include "memory/placement.h"
#include "memory/swap/slabs.h"
#include "memory/swap/swap.h"

/* How much a step moves: a call takes some 0.3 ms besides, so larger pieces are faster (one call for 4 GiB:
 * 50 GB/s, in 32 MiB pieces 33 GB/s on an H200); but orders wait for a step to end, any free of the program
 * may do so too, and what leaves makes room for others only then. Out is half as fast as in. What lands is
 * copied by the processor. */
#define STEP_OUT_BYTES (UINT64_C(512) << 20)
#define STEP_IN_BYTES (UINT64_C(1) << 30)
#define STEP_LAND_BYTES (UINT64_C(128) << 20)
#define PAGE_BYTES (UINT64_C(2) << 20) /* the driver's unit of residency */

/* One call for many pieces brings in 20 MiB pieces at 43 GB/s and 2 MiB pieces at 25 GB/s, instead of 29 and
 * 18; out it gains nothing. One piece cannot span two allocations: the driver refuses. */
#define BATCH_PIECES 128

/* Less shares its page with others, whose moves would repeat each other's work (60 us each, measured); more
 * is a program that takes the whole card in advance, much of which it may never touch. */
#define POPULATE_MIN_BYTES (UINT64_C(2) << 20)
#define POPULATE_MAX_BYTES (UINT64_C(2) << 30)
#define CONTEXTS 16 /* further contexts do without */

/* ---- new memory comes to the card before its first use, which saves the page faults ---- */

static struct lock streams_lock = LOCK(LOCK_POPULATE); /* held while a stream is made */
static struct {
  CUcontext context;
  CUstream stream;
} streams[CONTEXTS]; /* ours, one per context */

/* With the lock held. */
static CUstream find_stream(CUcontext context) {
  for (size_t i = 0; i < CONTEXTS; i++)
    if (streams[i].context == context && streams[i].stream)
      return streams[i].stream;
  for (size_t i = 0; i < CONTEXTS; i++) {
    if (streams[i].stream)
      continue;
    CUstream new;
    if (driver.cuStreamCreate(&new, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
      return NULL;
    streams[i].context = context;
    return streams[i].stream = new;
  }
  return NULL;
}

static CUstream stream_of(CUcontext context) {
  lock_take(&streams_lock);
  CUstream stream = find_stream(context);
  lock_release(&streams_lock);
  return stream;
}

bool managed_is_worth_populating(uint64_t bytes) {
  return bytes >= POPULATE_MIN_BYTES && bytes <= POPULATE_MAX_BYTES;
}

uint64_t managed_populate(CUstream stream, CUdeviceptr address, uint64_t bytes, CUdevice device) {
  if (!managed_is_worth_populating(bytes))
    return 0;
  if (!gate_is_open(device) || !gate_try_enter(stream))
    return bytes;
  driver.cuMemPrefetchAsync(address, bytes, device, stream);
  gate_leave();
  return 0;
}

/* Queue the move of new memory in its context, which is current. Returns what managed_populate does. */
static uint64_t populate(CUdeviceptr address, uint64_t bytes, CUdevice device, CUcontext context) {
  if (!managed_is_worth_populating(bytes))
    return 0;
  if (!gate_is_open(device))
    return bytes;
  CUstreamCaptureMode mode = capture_relax();
  CUstream stream = stream_of(context);
  uint64_t left = stream ? managed_populate(stream, address, bytes, device) : 0;
  capture_unrelax(mode);
  return left;
}

static void context_leaving(CUcontext context) {
  lock_take(&streams_lock);
  for (size_t i = 0; i < CONTEXTS; i++) /* the stream dies with its context */
    if (streams[i].context == context) {
      streams[i].context = NULL;
      streams[i].stream = NULL;
    }
  lock_release(&streams_lock);
}

/* The advice is a hint: without it the memory works just as well, only slower at first. */
static void advise(CUdeviceptr address, size_t bytes, CUdevice device) {
  CUstreamCaptureMode mode = capture_relax();
  driver.cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
  capture_unrelax(mode);
}

/* Memory of ours, which may be carried, stands in for the program's plain memory on the device. */
static _Atomic bool stands_in[DEVICES];

static CUresult alloc_once(CUdeviceptr *address, size_t bytes, CUdevice device) {
  if (reserve_or_trim(device, BACKING_CONVERTED, bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = driver.cuMemAllocManaged(address, bytes, CU_MEM_ATTACH_GLOBAL);
  if (result != CUDA_SUCCESS)
    budget_release(device, BACKING_CONVERTED, bytes);
  return result;
}

static CUresult allocate_unified(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  CUdeviceptr base;
  deferred_reap_for_more();
  CUresult result = alloc_once(&base, bytes, like->device);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && deferred_reap_all())
    result = alloc_once(&base, bytes, like->device);
  if (result != CUDA_SUCCESS)
    return result;
  advise(base, bytes, like->device);
  atomic_store(&stands_in[like->device], true);
  struct allocation new = *like;
  new.backend = &backend_managed;
  new.away_bytes = populate(base, bytes, like->device, like->context);
  result = account_enter(CUDA_SUCCESS, &base, bytes, &new, BACKING_CONVERTED);
  *address = result == CUDA_SUCCESS ? base : *address;
  return result;
}

/* Why small allocations are mapped: the driver refuses stream memory operations on unified memory. */
static CUresult allocate(CUdeviceptr *address, size_t bytes, const struct allocation *like) {
  CUresult fault = device_fault();
  if (fault != CUDA_SUCCESS)
    return fault;
  return swap_alloc_small(address, bytes, like) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                : allocate_unified(address, bytes, like);
}

static CUresult free_unified(const struct allocation *taken, bool finished) {
  (void)finished; /* the driver waits */
  return driver.cuMemFree_v2(taken->base);
}

/* ---- moves ---- */

struct part {
  uint64_t base, sequence;
  uint64_t bytes; /* to move, at most */
  uint8_t backing;
};

/* What there was to move when it was made, in the order to do it. Kept from step to step until it is done
 * with, for there may be many thousands of allocations. */
struct plan {
  bool out;
  struct part *parts;
  size_t count, next;
};

static struct plan plans[DEVICES]; /* each of its GPU's worker alone */
static bool failure_logged[DEVICES];

/* The program has run with something away: page faults have brought that, and pushed out other memory that is
 * believed to be there. The kernel that carries it would have to fault it in first. */
static _Atomic bool astray[DEVICES];

/* Part of an allocation that is pinned until it has been moved. */
struct piece {
  struct allocation pinned;
  uint64_t start, bytes; /* an address */
  bool last;             /* nothing of the allocation is left to move */
  bool cut;              /* at the end of a run: more may move in the same step */
};

/* What is prefetched of a piece. */
struct range {
  struct piece *piece;
  CUdeviceptr start;
  uint64_t bytes;
};

struct mover {
  CUstream stream;
  CUdevice device;
  struct plan *plan;
  uint64_t left_bytes;
  uint64_t queued_bytes;
  CUresult result;            /* the last error of a move */
  size_t most_pieces, pieces; /* of a batch: at most, and so far */
  struct piece batch[BATCH_PIECES];
  bool carries; /* outward */
  size_t ranges;
  struct range range[BATCH_PIECES];
};

/* ---- the plan ---- */

struct question {
  CUdevice device;
  bool out;
};

static uint64_t movable_bytes(const struct allocation *allocation, bool out) {
  return out ? allocation->bytes - allocation->away_bytes : allocation->away_bytes;
}

static bool is_unified(const struct allocation *allocation) {
  return allocation->backend == &backend_managed;
}

static bool is_wanted(const struct allocation *allocation, void *argument) {
  const struct question *question = argument;
  return allocation->device == question->device && is_unified(allocation) &&
         movable_bytes(allocation, question->out);
}

/* The program's own unified memory last: it may well be on the host by the program's will. */
static int compare_backings(const struct part *a, const struct part *b) {
  return (a->backing == BACKING_APP) - (b->backing == BACKING_APP);
}

/* Out: the largest first, for the fewest and fastest moves. */
static int compare_leaving(const void *a, const void *b) {
  const struct part *x = a, *y = b;
  int order = compare_backings(x, y);
  if (order)
    return order;
  if (x->bytes != y->bytes)
    return x->bytes < y->bytes ? 1 : -1;
  return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* In: by age, for programs use first what they have made first. */
static int compare_coming(const void *a, const void *b) {
  const struct part *x = a, *y = b;
  int order = compare_backings(x, y);
  return order ? order : x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

static void plan_drop(struct plan *plan) {
  free(plan->parts);
  *plan = (struct plan){.parts = NULL};
}

static void plan_fill(struct plan *plan, const struct allocation *list, size_t count) {
  for (size_t i = 0; i < count; i++)
    plan->parts[i] = (struct part){.base = list[i].base,
                                   .sequence = list[i].sequence,
                                   .bytes = movable_bytes(&list[i], plan->out),
                                   .backing = list[i].backing};
  plan->count = count;
  qsort(plan->parts, count, sizeof *plan->parts, plan->out ? compare_leaving : compare_coming);
}

/* 0 or -errno. */
static int plan_make(struct plan *plan, CUdevice device, bool out) {
  struct question question = {.device = device, .out = out};
  struct allocation *list;
  size_t count;
  plan_drop(plan);
  int err = ledger_snapshot(&account_addresses, is_wanted, &question, &list, &count);
  if (err)
    return err;
  plan->out = out;
  plan->parts = malloc((count + 1) * sizeof *plan->parts);
  if (plan->parts)
    plan_fill(plan, list, count);
  free(list);
  return plan->parts ? 0 : -ENOMEM;
}

static bool plan_is_over(const struct plan *plan, bool out) {
  return plan->next >= plan->count || plan->out != out;
}

/* ---- one step ---- */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* What is away is always a part at the start of an allocation (of what is to be on the card at all), which
 * grows when moving out and shrinks, from its end, when moving in: by whole pages, a little more out or a
 * little less in than is asked for. */
static void choose_range(struct piece *piece, bool out, uint64_t wanted) {
  uint64_t away = piece->pinned.away_bytes, bytes = piece->pinned.bytes;
  struct placement_run run = {.address = 0};
  uint64_t from = out || wanted >= away ? 0 : away - wanted, to = away;
  if (out) {
    from = away;
    to = wanted >= bytes - away ? bytes : away + wanted;
    to = least((to + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, bytes);
  } else {
    from = least((from + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, away);
  }
  if (to > from && !placement_run(&piece->pinned, out ? from : to - 1, &run)) {
    *piece = (struct piece){.pinned = piece->pinned, .last = true};
    return;
  }
  uint64_t run_end = run.at_bytes + run.bytes;
  piece->cut = to > from && (out ? to > run_end : from < run.at_bytes);
  if (piece->cut)
    *(out ? &to : &from) = out ? run_end : run.at_bytes;
  piece->start = run.address + (from - run.at_bytes);
  piece->bytes = to - from;
  piece->last = out ? to == bytes : from == 0;
}

enum added { PIECE_LAST, PIECE_CUT, PIECE_ENOUGH };

/* Pin the plan's next allocation for the batch. */
static enum added add_piece(struct mover *mover) {
  const struct part *part = &mover->plan->parts[mover->plan->next];
  struct piece *piece = &mover->batch[mover->pieces];
  if (!ledger_pin(&account_addresses, part->base, part->sequence, &piece->pinned))
    return PIECE_LAST;
  choose_range(piece, mover->plan->out, mover->left_bytes);
  if (piece->bytes)
    mover->pieces++;
  else
    account_unpin(&piece->pinned, piece->pinned.away_bytes);
  bool enough = !piece->last && !piece->cut;
  mover->left_bytes = enough ? 0 : mover->left_bytes - least(piece->bytes, mover->left_bytes);
  return piece->last ? PIECE_LAST : piece->cut ? PIECE_CUT : PIECE_ENOUGH;
}

/* ---- prefetches ---- */

/* What is refused stays where it is. Outward it is the end of its piece, whose beginning may be carried;
 * inward all of the piece still counts as away. */
static void queue_range(struct mover *mover, const struct range *range) {
  CUdevice to = mover->plan->out ? CU_DEVICE_CPU : mover->device;
  struct piece *piece = range->piece;
  if (!piece->bytes ||
      driver.cuMemPrefetchAsync(range->start, range->bytes, to, mover->stream) == CUDA_SUCCESS)
    return;
  uint64_t refused = mover->plan->out ? range->bytes : piece->bytes;
  mover->left_bytes += refused;
  piece->bytes -= refused;
}

/* All by one call, into the card. */
static bool queue_together(struct mover *mover) {
  CUdeviceptr addresses[BATCH_PIECES];
  size_t sizes[BATCH_PIECES], first = 0;
  CUmemLocation to = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = mover->device};
  if (mover->plan->out || mover->ranges < 2 || !driver.cuMemPrefetchBatchAsync)
    return false;
  for (size_t i = 0; i < mover->ranges; i++) {
    addresses[i] = mover->range[i].start;
    sizes[i] = mover->range[i].bytes;
  }
  return driver.cuMemPrefetchBatchAsync(addresses, sizes, mover->ranges, &to, &first, 1, 0, mover->stream) ==
         CUDA_SUCCESS;
}

static void queue_ranges(struct mover *mover) {
  if (!queue_together(mover))
    for (size_t i = 0; i < mover->ranges; i++)
      queue_range(mover, &mover->range[i]);
  mover->ranges = 0;
}

static void add_range(struct mover *mover, struct piece *piece, CUdeviceptr start, CUdeviceptr end) {
  if (start >= end)
    return;
  if (mover->ranges == BATCH_PIECES)
    queue_ranges(mover);
  mover->range[mover->ranges++] = (struct range){piece, start, end - start};
}

/* ---- what is carried ---- */

/* Where the kernel stops, the rest of the piece is prefetched. */
static void move_out(struct mover *mover) {
  bool carries = mover->carries && carry_begin(mover->device);
  for (size_t i = 0; carries && i < mover->pieces; i++) {
    struct piece *piece = &mover->batch[i];
    if (carry_suits(&piece->pinned))
      carry_out(mover->device, &piece->pinned, piece->start, piece->start + piece->bytes);
  }
  if (carries)
    carry_end(mover->device);
  for (size_t i = 0; i < mover->pieces; i++) {
    struct piece *piece = &mover->batch[i];
    CUdeviceptr carried = carry_top(&piece->pinned);
    add_range(mover, piece, carried > piece->start ? carried : piece->start, piece->start + piece->bytes);
  }
  queue_ranges(mover);
}

/* From its end on, for what is carried hangs on its allocation in that order. False: nothing of the rest of
 * it can be touched. */
static bool bring(struct mover *mover, struct piece *piece, bool begun) {
  CUdeviceptr top, end = piece->start + piece->bytes;
  while ((top = carry_top(&piece->pinned)) > piece->start) {
    CUdeviceptr floor = carry_floor(&piece->pinned), from = floor > piece->start ? floor : piece->start;
    add_range(mover, piece, top, end);
    enum carry_way way = carry_in(mover->device, begun, &piece->pinned, from);
    if (way == CARRY_STAYS)
      return false;
    if (way == CARRY_HOST)
      add_range(mover, piece, from, top);
    end = from;
  }
  add_range(mover, piece, piece->start, end);
  return true;
}

static bool is_any_carried(const struct mover *mover) {
  bool any = false;
  for (size_t i = 0; i < mover->pieces && !any; i++)
    any = carry_top(&mover->batch[i].pinned) > mover->batch[i].start;
  return any;
}

static void move_in(struct mover *mover) {
  bool begun = is_any_carried(mover) && carry_begin(mover->device);
  for (size_t i = 0; i < mover->pieces; i++) {
    struct piece *piece = &mover->batch[i];
    if (bring(mover, piece, begun))
      continue;
    mover->left_bytes += piece->bytes;
    piece->bytes = 0;
  }
  queue_ranges(mover);
  if (begun)
    carry_end(mover->device);
}

/* Move what has been pinned, note where it is, and let go of it. What the driver refuses stays where it is
 * until the next plan. Why the wait: the addresses of a range that is freed may be another allocation's while
 * the prefetch is still on its way. */
static void flush(struct mover *mover) {
  CUresult result = CUDA_SUCCESS;
  if (mover->pieces) {
    (mover->plan->out ? move_out : move_in)(mover);
    result = driver.cuStreamSynchronize(mover->stream);
  }
  if (result != CUDA_SUCCESS)
    mover->result = result;
  for (size_t i = 0; i < mover->pieces; i++) {
    struct piece *piece = &mover->batch[i];
    uint64_t away = piece->pinned.away_bytes;
    account_unpin(&piece->pinned, mover->plan->out ? away + piece->bytes : away - piece->bytes);
    mover->queued_bytes += piece->bytes;
    mover->plan->next += !piece->bytes && !piece->last;
  }
  mover->pieces = 0;
}

static bool has_more(const struct mover *mover) {
  return mover->left_bytes && mover->plan->next < mover->plan->count;
}

/* A piece that is not the last of its allocation is the last of its batch, so no allocation is in it twice.
 */
static void queue_step(struct mover *mover) {
  do {
    enum added added = PIECE_LAST;
    while (has_more(mover) && mover->pieces < mover->most_pieces && added == PIECE_LAST) {
      added = add_piece(mover);
      mover->plan->next += added == PIECE_LAST;
    }
    flush(mover);
  } while (has_more(mover));
}

static CUresult move_queued(struct mover *mover) {
  CUresult result = driver.cuStreamCreate(&mover->stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS)
    return result;
  bool one_by_one = mover->plan->out ? !mover->carries : !driver.cuMemPrefetchBatchAsync;
  mover->most_pieces = one_by_one ? 1 : BATCH_PIECES;
  queue_step(mover);
  driver.cuStreamDestroy_v2(mover->stream);
  return mover->result;
}

static CUresult move_by_plan(struct mover *mover, uint64_t bytes) {
  mover->left_bytes = least(bytes, mover->plan->out ? STEP_OUT_BYTES : STEP_IN_BYTES);
  return has_more(mover) ? move_queued(mover) : CUDA_SUCCESS;
}

/* No more comes in than the card holds: the rest would only push out what has just come. */
static uint64_t card_room_bytes(CUdevice device) {
  uint64_t card = device_card_bytes(device);
  uint64_t taken =
      budget_pinned_bytes(device) + backend_swap.resident_bytes(device) + account_opened_bytes(device);
  return taken < card ? card - taken : 0;
}

/* A call of the program that was in flight when its work was stopped may read or write the memory by the
 * processor, and would not find the contents. Once there is none, none comes before the gate opens. */
static bool is_undisturbed(CUdevice device) { return !gate_is_open(device) && !gate_in_flight(); }

static bool may_carry(CUdevice device) {
  return atomic_load(&stands_in[device]) && carry_may(device) && is_undisturbed(device) &&
         !atomic_load(&astray[device]) && account_unified_bytes(device) <= card_room_bytes(device);
}

/* By the plan, and by a new one when that is over, or of no use any more: all of it may be gone by now. */
static CUresult move(CUdevice device, bool out, uint64_t bytes, uint64_t *moved_bytes) {
  struct mover mover = {.device = device, .plan = &plans[device], .carries = out && may_carry(device)};
  bool fresh = plan_is_over(mover.plan, out);
  if (fresh && plan_make(mover.plan, device, out))
    return CUDA_SUCCESS;
  CUresult result = move_by_plan(&mover, bytes);
  if (result == CUDA_SUCCESS && !mover.queued_bytes && !fresh && plan_make(mover.plan, device, out) == 0)
    result = move_by_plan(&mover, bytes);
  *moved_bytes = mover.queued_bytes;
  return result;
}

static enum memory_progress progress_of(CUdevice device, CUresult result, bool any) {
  bool exiting = result == CUDA_ERROR_DEINITIALIZED;
  if (result != CUDA_SUCCESS && !exiting && !failure_logged[device])
    log_warn("GPU %d: moving memory failed with CUDA error %d", device, result);
  failure_logged[device] = result != CUDA_SUCCESS;
  return result != CUDA_SUCCESS ? MEMORY_FAILED : any ? MEMORY_MOVED : MEMORY_SETTLED;
}

static uint64_t coming_bytes(CUdevice device, uint64_t resident_bytes, uint64_t room_bytes) {
  uint64_t room = least(room_bytes, card_room_bytes(device)), away = account_away_bytes(device);
  uint64_t bytes = resident_bytes < room ? least(away, room - resident_bytes) : 0;
  return bytes < away && bytes < PAGE_BYTES ? 0 : bytes;
}

/* To move now, out or in. */
static uint64_t bytes_to_move(CUdevice device, uint64_t room_bytes, bool *out) {
  uint64_t resident_bytes = account_unified_bytes(device);
  *out = resident_bytes > room_bytes;
  return *out ? resident_bytes - room_bytes : coming_bytes(device, resident_bytes, room_bytes);
}

/* Before others hear that all has been moved. A process whose turn has been granted expects more room soon.
 */
static void rest(CUdevice device, uint64_t room_bytes) {
  bool out;
  if (!swap_is_coming(device) && !bytes_to_move(device, room_bytes, &out))
    carry_rest(device);
}

/* Work on one GPU may touch unified memory of another, past its gate. So nothing is carried of a process with
 * several, and what was, lands before the next gate opens. */
static bool is_carried_elsewhere(CUdevice device) {
  bool any = false;
  for (CUdevice other = 0; other < DEVICES; other++)
    if (other != device && carry_bytes(other)) {
      memory_port.order_moves(other);
      any = true;
    }
  return any;
}

static enum memory_progress move_step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  uint64_t moved_bytes = 0;
  bool out;
  uint64_t bytes = bytes_to_move(device, room_bytes, &out);
  if (!bytes) {
    plan_drop(&plans[device]);
    rest(device, room_bytes);
    return MEMORY_SETTLED;
  }
  CUstreamCaptureMode mode = capture_relax();
  CUresult result = move(device, out, bytes, &moved_bytes);
  capture_unrelax(mode);
  rest(device, room_bytes);
  *(out ? &moved->out_bytes : &moved->in_bytes) += moved_bytes;
  return progress_of(device, result, moved_bytes > 0);
}

static enum memory_progress step(CUdevice device, uint64_t room_bytes, struct memory_moved *moved) {
  enum memory_progress progress = move_step(device, room_bytes, moved);
  return progress == MEMORY_SETTLED && is_carried_elsewhere(device) ? MEMORY_SHORT : progress;
}

/* ---- landing ---- */

static bool is_carried(const struct allocation *allocation, void *argument) {
  return allocation->device == *(const CUdevice *)argument && carry_top(allocation);
}

/* What is being freed counts until it is. */
static enum memory_progress land(CUdevice device) {
  struct allocation found, pinned;
  uint64_t left = STEP_LAND_BYTES;
  if (!carry_bytes(device))
    return MEMORY_SETTLED;
  CUstreamCaptureMode mode = capture_relax();
  for (uint64_t from = 0; left && ledger_find_wanted(&account_addresses, from, is_carried, &device, &found);
       from = found.base + 1) {
    if (!ledger_pin(&account_addresses, found.base, found.sequence, &pinned))
      continue;
    left -= least(carry_land(&pinned, left), left);
    account_unpin(&pinned, pinned.away_bytes);
  }
  capture_unrelax(mode);
  return left < STEP_LAND_BYTES ? MEMORY_MOVED : MEMORY_SHORT;
}

/* ---- the process runs ---- */

/* Page faults fetch what is away, unless it is carried. */
static bool may_open(CUdevice device, bool enough, bool waits) {
  (void)waits;
  return !carry_bytes(device) && !is_carried_elsewhere(device) && (enough || !account_away_bytes(device));
}

static uint64_t host_bytes(CUdevice device) {
  return atomic_load(&stands_in[device]) ? carry_host_bytes(device) : 0;
}

static void prepare_stop(CUdevice device) {
  if (atomic_load(&stands_in[device]))
    carry_prepare(device);
}

/* More may have been allocated since; or nothing is carried any more. */
static void closed(CUdevice device, bool drained) {
  (void)drained;
  if (atomic_load(&stands_in[device]))
    slabs_need(device, BACKING_CONVERTED, host_bytes(device));
}

static void opened(CUdevice device) {
  atomic_store(&astray[device], account_away_bytes(device) > 0);
  carry_rest(device);
}

/* What is being freed is in no ledger by which it could leave. */
static bool may_stop(CUdevice device) { return !deferred_unified(device); }

/* What can't even land is lost: nothing of the process can be read or written any more. */
static void give_up(CUdevice device) {
  while (land(device) == MEMORY_MOVED)
    ;
}

const struct backend backend_managed = {
    .supported = device_can_page,
    .attach_flags = GS_ATTACH_MANAGED,
    .leaves = true,
    .allocate = allocate,
    .free = free_unified,
    .drop_contents = carry_drop,
    .resident_bytes = account_unified_bytes,
    .host_bytes = host_bytes,
    .step = step,
    .land = land,
    .prepare_stop = prepare_stop,
    .may_stop = may_stop,
    .give_up = give_up,
    .close = closed,
    .open = may_open,
    .opened = opened,
    .context_leaving = context_leaving,
    .context_gone = carry_context_gone,
};

/* Another thread may have been changing the plans. */
static void forget(void) {
  streams_lock = (struct lock)LOCK(LOCK_POPULATE);
  for (size_t i = 0; i < CONTEXTS; i++) {
    streams[i].context = NULL;
    streams[i].stream = NULL;
  }
  for (int i = 0; i < DEVICES; i++) {
    plans[i] = (struct plan){.parts = NULL};
    atomic_store(&astray[i], false);
    atomic_store(&stands_in[i], false);
  }
}
IN_FORKED_CHILD(forget);
