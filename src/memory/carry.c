/*
 * carry.c - the kernel, a window of parts in flight, and the trial. The next parts are queued before the
 * oldest has arrived; out, a part is discarded only once its copy is known to be whole.
 *
 * A part goes by a stage, plain memory of ours on the card: the kernel copies between that and the unified
 * memory, and a copy engine between that and the slot. For kernels of two processes take turns, and one that
 * copies over the bus uses it one way only: two of them, one out and one in, reached 22 GB/s each way, and
 * with stages 33 to 36 (H100). What is left to gain: a discard waits for the copies that are under way out,
 * and none are queued meanwhile.
 */
#include "memory/carry.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "driver/driver.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "memory/budget.h"
#include "memory/device.h"
#include "memory/forked.h"
#include "memory/memory_port.h"
#include "memory/swap/slabs.h"
#include "settings.h"

#define GRAIN_BYTES SLABS_GRAIN_BYTES /* a page of unified memory, too */
#define PART_BYTES (UINT64_C(32) << 20)
#define WINDOW 4 /* parts, each with a stage of its own */
#define BLOCKS 128
#define THREADS 512

/* Copies 16 bytes a thread at a time, then up to 15 single ones. */
static const char image[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry gpushare_copy(.param .u64 to, .param .u64 from, .param .u64 bytes)\n"
    "{\n"
    ".reg .pred %p<3>;\n"
    ".reg .b32 %r<10>;\n"
    ".reg .b64 %d<12>;\n"
    "ld.param.u64 %d1, [to];\n"
    "ld.param.u64 %d2, [from];\n"
    "ld.param.u64 %d3, [bytes];\n"
    "cvta.to.global.u64 %d1, %d1;\n"
    "cvta.to.global.u64 %d2, %d2;\n"
    "mov.u32 %r1, %ctaid.x;\n"
    "mov.u32 %r2, %ntid.x;\n"
    "mov.u32 %r3, %tid.x;\n"
    "mov.u32 %r4, %nctaid.x;\n"
    "cvt.u64.u32 %d5, %r3;\n"
    "mad.wide.u32 %d4, %r1, %r2, %d5;\n" /* which thread of all */
    "mul.wide.u32 %d5, %r4, %r2;\n"      /* how many there are */
    "shl.b64 %d6, %d4, 4;\n"
    "shl.b64 %d7, %d5, 4;\n"
    "and.b64 %d8, %d3, -16;\n"
    "WORDS:\n"
    "setp.ge.u64 %p1, %d6, %d8;\n"
    "@%p1 bra TAIL;\n"
    "add.u64 %d9, %d2, %d6;\n"
    "add.u64 %d10, %d1, %d6;\n"
    "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%d9];\n"
    "st.global.v4.u32 [%d10], {%r5, %r6, %r7, %r8};\n"
    "add.u64 %d6, %d6, %d7;\n"
    "bra WORDS;\n"
    "TAIL:\n"
    "add.u64 %d6, %d8, %d4;\n"
    "setp.ge.u64 %p2, %d6, %d3;\n"
    "@%p2 bra END;\n"
    "add.u64 %d9, %d2, %d6;\n"
    "add.u64 %d10, %d1, %d6;\n"
    "ld.global.u8 %r9, [%d9];\n"
    "st.global.u8 [%d10], %r9;\n"
    "END:\n"
    "ret;\n"
    "}\n";

/* A part that is away; `object` of its owner is the first, the others follow by descending address. */
struct carried {
  struct carried *next;
  CUdeviceptr at;
  uint64_t bytes;
  char *slot;
};

struct flight {
  struct allocation *owner;
  struct carried *part; /* outward: to be put on the owner's */
  CUdeviceptr at;
  uint64_t bytes;
  char *slot;
  void *holds[2]; /* the contexts of the memory and of the slot's registration */
  CUevent staged, done;
};

enum verdict { UNTRIED, WORKS, FAILS };

/* Of each GPU's worker alone, but for what is atomic. Streams and events are there up to carry_end. */
static struct carrier {
  _Atomic CUcontext context; /* the kernel is loaded there; NULL: nowhere */
  CUfunction copy;
  CUdeviceptr trial; /* memory of that context, for the trial; 0: none yet */
  _Atomic int verdict;
  _Atomic CUdeviceptr stage; /* of WINDOW parts, while memory moves; 0: the card had no memory for it */
  CUstream kernels, copies, places;
  CUevent placed;
  struct flight ring[WINDOW];
  unsigned first, count;
  CUresult result; /* the first error: nothing goes out any more */
} carriers[DEVICES];

static _Atomic uint64_t carried_bytes[DEVICES];

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void note_result(struct carrier *c, CUresult result) {
  c->result = c->result == CUDA_SUCCESS ? result : c->result;
}

static void fail(CUdevice device, CUresult result) {
  if (carriers[device].verdict != FAILS)
    log_info("GPU %d: unified memory is moved by prefetches only (CUDA error %d)", device, result);
  carriers[device].verdict = FAILS;
}

/* ---- parts ---- */

CUdeviceptr carry_floor(const struct allocation *owner) {
  const struct carried *part = carry_suits(owner) ? owner->object : NULL;
  return part ? part->at : 0;
}

CUdeviceptr carry_top(const struct allocation *owner) {
  const struct carried *part = carry_suits(owner) ? owner->object : NULL;
  return part ? part->at + part->bytes : 0;
}

/* Take the upmost part from `from` on out of what is carried; its slot is the caller's. */
static char *cut_top(struct allocation *owner, CUdeviceptr from) {
  struct carried *part = owner->object;
  char *slot = part->slot + (from - part->at);
  part->bytes = from - part->at;
  if (!part->bytes) {
    owner->object = part->next;
    free(part);
  }
  return slot;
}

/* Its contents are elsewhere, or of no use any more. */
static void release_slot(CUdevice device, char *slot, uint64_t bytes) {
  slabs_put(slot, bytes);
  atomic_fetch_sub(&carried_bytes[device], bytes);
}

void carry_drop(struct allocation *owner) {
  CUdeviceptr from;
  while ((from = carry_floor(owner))) {
    uint64_t bytes = carry_top(owner) - from;
    release_slot(owner->device, cut_top(owner, from), bytes);
  }
}

uint64_t carry_bytes(CUdevice device) { return atomic_load(&carried_bytes[device]); }

uint64_t carry_host_bytes(CUdevice device) {
  return carry_may(device) ? budget_used_bytes(device, BACKING_CONVERTED) : 0;
}

/* Pool memory is left to the driver, which keeps the order of its uses. Whole pages are nobody else's. */
bool carry_suits(const struct allocation *allocation) {
  return allocation->backing == BACKING_CONVERTED && allocation->origin != ORIGIN_POOL &&
         allocation->base % GRAIN_BYTES == 0;
}

/* Work on another GPU may touch unified memory of this one without passing its gate. */
bool carry_may(CUdevice device) {
  return settings()->carry && carriers[device].verdict != FAILS && driver.cuMemDiscardBatchAsync &&
         driver.cuMemDiscardAndPrefetchBatchAsync && !atomic_load(&gate_several);
}

/* ---- streams and holds ---- */

static CUresult create_handles(struct carrier *c) {
  CUresult result = driver.cuStreamCreate(&c->kernels, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = driver.cuStreamCreate(&c->copies, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = driver.cuStreamCreate(&c->places, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    result = driver.cuEventCreate(&c->placed, CU_EVENT_DISABLE_TIMING);
  for (int i = 0; i < WINDOW && result == CUDA_SUCCESS; i++) {
    result = driver.cuEventCreate(&c->ring[i].staged, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
      result = driver.cuEventCreate(&c->ring[i].done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  }
  return result;
}

static void destroy_event(CUevent event) {
  if (event)
    driver.cuEventDestroy_v2(event);
}

static void destroy_stream(CUstream *stream) {
  if (*stream)
    driver.cuStreamDestroy_v2(*stream);
  *stream = NULL;
}

static void destroy_handles(struct carrier *c) {
  for (int i = 0; i < WINDOW; i++) {
    destroy_event(c->ring[i].staged);
    destroy_event(c->ring[i].done);
  }
  memset(c->ring, 0, sizeof c->ring);
  destroy_event(c->placed);
  c->placed = NULL;
  destroy_stream(&c->places);
  destroy_stream(&c->copies);
  destroy_stream(&c->kernels);
}

static void let_go(void *const holds[2]) {
  for (int i = 0; i < 2; i++)
    if (holds[i])
      contexts_let_go(holds[i]);
}

/* The memory dies with one context, and the registration of the slot with another. A kernel that meets either
 * would be the end of the process' work: so both wait. Memory of no context outlives them all. */
static bool hold(const struct allocation *owner, const char *slot, void *holds[2]) {
  CUcontext registered = slot ? slabs_context(slot) : NULL;
  holds[0] = owner->context ? contexts_hold(owner->context) : NULL;
  holds[1] = registered ? contexts_hold(registered) : NULL;
  bool held = (holds[0] || !owner->context) && (!slot || (holds[1] && slabs_context(slot) == registered));
  if (!held)
    let_go(holds);
  return held;
}

/* ---- into host memory ---- */

/* Nothing can be read or written in this process any more: it shall meet the error itself. */
static bool is_final(CUresult result) {
  return driver_is_fatal(result) || result == CUDA_ERROR_DEINITIALIZED;
}

/* The processor's access brings the pages there; on a card whose memory it can reach, the advice does. */
static void land(CUdevice device, CUdeviceptr at, char *slot, uint64_t bytes) {
  if (!is_final(driver.cuMemAdvise(at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU)))
    memcpy((void *)(uintptr_t)at, slot, bytes);
  driver.cuMemAdvise(at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
  release_slot(device, slot, bytes);
}

uint64_t carry_land(struct allocation *owner, uint64_t most_bytes) {
  uint64_t landed_bytes = 0;
  CUdeviceptr floor;
  void *holds[2];
  if (!carry_floor(owner) || !hold(owner, NULL, holds))
    return 0;
  while (landed_bytes < most_bytes && (floor = carry_floor(owner))) {
    uint64_t bytes = carry_top(owner) - floor;
    land(owner->device, floor, cut_top(owner, floor), bytes);
    landed_bytes += bytes;
  }
  let_go(holds);
  return landed_bytes;
}

/* ---- the window ---- */

/* With its copy made. */
static CUresult arrive_outside(CUdevice device, struct carrier *c, struct flight *flight) {
  size_t bytes = flight->bytes;
  CUresult result = c->result;
  if (result == CUDA_SUCCESS)
    result = driver.cuMemDiscardBatchAsync(&flight->at, &bytes, 1, 0, c->places);
  if (result == CUDA_SUCCESS) {
    flight->part->next = flight->owner->object;
    flight->owner->object = flight->part;
    atomic_fetch_add(&carried_bytes[device], bytes);
  } else {
    free(flight->part);
    slabs_put(flight->slot, flight->bytes);
  }
  return result;
}

/* Nothing of ours is under way any more. Either stream may wait for the other. */
static void stand_still(const struct carrier *c) {
  driver.cuStreamSynchronize(c->places);
  driver.cuStreamSynchronize(c->kernels);
  driver.cuStreamSynchronize(c->copies);
  driver.cuStreamSynchronize(c->kernels);
}

static void arrive(CUdevice device, struct carrier *c) {
  struct flight *flight = &c->ring[c->first];
  CUresult result = driver.cuEventSynchronize(flight->done);
  if (result != CUDA_SUCCESS)
    stand_still(c);
  note_result(c, result);
  if (flight->part)
    result = arrive_outside(device, c, flight);
  else if (result == CUDA_SUCCESS)
    release_slot(device, flight->slot, flight->bytes);
  else
    land(device, flight->at, flight->slot, flight->bytes);
  note_result(c, result);
  let_go(flight->holds);
  c->first = (c->first + 1) % WINDOW;
  c->count--;
}

static struct flight *next_flight(CUdevice device, struct carrier *c) {
  if (c->count == WINDOW)
    arrive(device, c);
  return &c->ring[(c->first + c->count) % WINDOW];
}

static CUdeviceptr stage_of(const struct carrier *c, const struct flight *flight) {
  return c->stage ? c->stage + (uint64_t)(flight - c->ring) * PART_BYTES : 0;
}

static CUresult queue_kernel(struct carrier *c, CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  void *arguments[] = {&to, &from, &bytes};
  return driver.cuLaunchKernel(c->copy, BLOCKS, 1, 1, THREADS, 1, 1, 0, c->kernels, arguments, NULL);
}

/* What `next` is given from now on is done after what `stream` has been given. */
static CUresult chain(CUstream stream, CUevent event, CUstream next) {
  CUresult result = driver.cuEventRecord(event, stream);
  return result == CUDA_SUCCESS ? driver.cuStreamWaitEvent(next, event, 0) : result;
}

static CUresult queue_out(struct carrier *c, struct flight *flight) {
  CUdeviceptr stage = stage_of(c, flight), to = stage;
  CUresult result = stage ? CUDA_SUCCESS : driver.cuMemHostGetDevicePointer_v2(&to, flight->slot, 0);
  if (result == CUDA_SUCCESS)
    result = queue_kernel(c, to, flight->at, flight->bytes);
  if (result == CUDA_SUCCESS)
    result = chain(c->kernels, flight->staged, c->copies);
  if (result == CUDA_SUCCESS && stage)
    result = driver.cuMemcpyDtoHAsync_v2(flight->slot, stage, flight->bytes, c->copies);
  return result == CUDA_SUCCESS ? driver.cuEventRecord(flight->done, c->copies) : result;
}

/* Pages without contents, and then the contents. */
static CUresult queue_in(CUdevice device, struct carrier *c, struct flight *flight) {
  CUmemLocation card = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  size_t bytes = flight->bytes, first = 0;
  CUdeviceptr stage = stage_of(c, flight), from = stage;
  CUresult result =
      driver.cuMemDiscardAndPrefetchBatchAsync(&flight->at, &bytes, 1, &card, &first, 1, 0, c->places);
  if (result == CUDA_SUCCESS)
    result = stage ? driver.cuMemcpyHtoDAsync_v2(stage, flight->slot, flight->bytes, c->copies)
                   : driver.cuMemHostGetDevicePointer_v2(&from, flight->slot, 0);
  if (result == CUDA_SUCCESS)
    result = chain(c->copies, flight->staged, c->kernels);
  if (result == CUDA_SUCCESS)
    result = chain(c->places, c->placed, c->kernels);
  if (result == CUDA_SUCCESS)
    result = queue_kernel(c, flight->at, from, flight->bytes);
  return result == CUDA_SUCCESS ? driver.cuEventRecord(flight->done, c->kernels) : result;
}

/* Where something is refused, the flight does not begin. */
static CUresult queue(CUdevice device, struct carrier *c, struct flight *flight) {
  CUresult result = flight->part ? queue_out(c, flight) : queue_in(device, c, flight);
  if (result != CUDA_SUCCESS)
    stand_still(c);
  return result;
}

static bool send(CUdevice device, struct carrier *c, struct allocation *owner, CUdeviceptr at,
                 uint64_t bytes) {
  struct flight *flight = next_flight(device, c);
  char *slot = slabs_get(bytes);
  struct carried *part = slot ? malloc(sizeof *part) : NULL;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  bool held = part && hold(owner, slot, flight->holds);
  if (held) {
    *part = (struct carried){.at = at, .bytes = bytes, .slot = slot};
    flight->owner = owner;
    flight->part = part;
    flight->at = at;
    flight->bytes = bytes;
    flight->slot = slot;
    result = queue(device, c, flight);
    c->count += result == CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS)
    return true;
  if (held) {
    let_go(flight->holds);
    note_result(c, result);
  }
  free(part);
  if (slot)
    slabs_put(slot, bytes);
  return false;
}

void carry_out(CUdevice device, struct allocation *owner, CUdeviceptr from, CUdeviceptr end) {
  struct carrier *c = &carriers[device];
  end -= end % GRAIN_BYTES;
  while (from < end && c->result == CUDA_SUCCESS) {
    uint64_t bytes = least(PART_BYTES, end - from);
    if (!send(device, c, owner, from, bytes))
      return;
    from += bytes;
  }
}

enum carry_way carry_in(CUdevice device, bool begun, struct allocation *owner, CUdeviceptr from) {
  struct carrier *c = &carriers[device];
  uint64_t bytes = carry_top(owner) - from;
  struct flight by_hand = {.part = NULL}, *flight = begun ? next_flight(device, c) : &by_hand;
  bool comes = begun && hold(owner, ((struct carried *)owner->object)->slot, flight->holds);
  if (!comes && !hold(owner, NULL, flight->holds))
    return CARRY_STAYS;
  flight->owner = owner;
  flight->part = NULL;
  flight->at = from;
  flight->bytes = bytes;
  flight->slot = cut_top(owner, from);
  CUresult result = comes ? queue(device, c, flight) : CUDA_SUCCESS;
  if (comes && result == CUDA_SUCCESS) {
    c->count++;
    return CARRY_COMES;
  }
  note_result(c, result);
  land(device, from, flight->slot, bytes);
  let_go(flight->holds);
  return CARRY_HOST;
}

void carry_end(CUdevice device) {
  struct carrier *c = &carriers[device];
  while (c->count)
    arrive(device, c);
  CUresult result = driver.cuStreamSynchronize(c->places);
  note_result(c, result);
  if (c->result != CUDA_SUCCESS)
    fail(device, c->result);
  destroy_handles(c);
}

static bool begin(struct carrier *c) {
  c->first = c->count = 0;
  c->result = create_handles(c);
  if (c->result != CUDA_SUCCESS)
    destroy_handles(c);
  return c->result == CUDA_SUCCESS;
}

/* ---- the trial ---- */

static uint64_t trial_word(size_t i) { return (i + 1) * UINT64_C(0x9e3779b97f4a7c15); }

static void fill(uint64_t *words) {
  for (size_t i = 0; i < GRAIN_BYTES / sizeof *words; i++)
    words[i] = trial_word(i);
}

static bool is_filled(const uint64_t *words) {
  for (size_t i = 0; i < GRAIN_BYTES / sizeof *words; i++)
    if (words[i] != trial_word(i))
      return false;
  return true;
}

/* Whether it leaves, with what the processor has written in it. */
static CUresult try_out(CUdevice device, struct carrier *c, struct allocation *ours) {
  if (!begin(c))
    return c->result;
  CUresult result = driver.cuMemPrefetchAsync(ours->base, GRAIN_BYTES, device, c->copies);
  if (result == CUDA_SUCCESS)
    carry_out(device, ours, ours->base, ours->base + GRAIN_BYTES);
  carry_end(device);
  result = result == CUDA_SUCCESS ? c->result : result;
  const struct carried *part = ours->object;
  if (result != CUDA_SUCCESS || !part)
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_READY;
  return is_filled((const uint64_t *)part->slot) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* And whether it comes back, for the processor to see. */
static CUresult try_in(CUdevice device, struct carrier *c, struct allocation *ours) {
  if (!begin(c))
    return c->result;
  carry_in(device, true, ours, ours->base);
  carry_end(device);
  if (c->result != CUDA_SUCCESS)
    return c->result;
  return is_filled((const uint64_t *)(uintptr_t)ours->base) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* The memory is kept for the next time. It is not freed: the driver would wait for all work of the GPU. */
static CUresult get_trial(struct carrier *c) {
  return c->trial ? CUDA_SUCCESS : driver.cuMemAllocManaged(&c->trial, GRAIN_BYTES, CU_MEM_ATTACH_GLOBAL);
}

/* Where the host has no slot for it, the trial is put off. */
static void try_it(CUdevice device, struct carrier *c) {
  void *slot = slabs_get(GRAIN_BYTES);
  if (!slot)
    return;
  slabs_put(slot, GRAIN_BYTES);
  CUresult result = get_trial(c);
  struct allocation ours = {.backing = BACKING_CONVERTED, .device = device, .base = c->trial};
  if (result == CUDA_SUCCESS && !carry_suits(&ours))
    result = CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS) {
    fill((uint64_t *)(uintptr_t)c->trial);
    result = try_out(device, c, &ours);
  }
  if (result == CUDA_SUCCESS)
    result = try_in(device, c, &ours);
  carry_drop(&ours);
  if (c->trial && begin(c)) { /* it takes nothing of the card from now on */
    driver.cuMemPrefetchAsync(c->trial, GRAIN_BYTES, CU_DEVICE_CPU, c->copies);
    driver.cuStreamSynchronize(c->copies);
    destroy_handles(c);
  }
  if (result == CUDA_SUCCESS)
    c->verdict = WORKS;
  else if (result != CUDA_ERROR_NOT_READY)
    fail(device, result);
}

/* ---- the kernel ---- */

/* Physical memory, mapped: it is no context's, and is there at once even while the program's work stands
 * still.
 */
static void make_stage(CUdevice device, struct carrier *c) {
  CUmemLocation card = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = card};
  CUmemAccessDesc access = {.location = card, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr stage;
  uint64_t bytes = WINDOW * PART_BYTES;
  if (driver.cuMemCreate(&handle, bytes, &prop, 0) != CUDA_SUCCESS)
    return;
  if (driver.cuMemAddressReserve(&stage, bytes, 0, 0, 0) == CUDA_SUCCESS) {
    bool mapped = driver.cuMemMap(stage, bytes, 0, handle, 0) == CUDA_SUCCESS;
    bool usable = mapped && driver.cuMemSetAccess(stage, bytes, &access, 1) == CUDA_SUCCESS;
    if (mapped && !usable)
      driver.cuMemUnmap(stage, bytes);
    if (!usable)
      driver.cuMemAddressFree(stage, bytes);
    atomic_store(&c->stage, usable ? stage : 0);
  }
  driver.cuMemRelease(handle);
}

static CUresult load(struct carrier *c) {
  CUmodule module;
  c->trial = 0; /* that of another context may go with it */
  CUresult result = driver.cuModuleLoadData(&module, image);
  return result == CUDA_SUCCESS ? driver.cuModuleGetFunction(&c->copy, module, "gpushare_copy") : result;
}

/* While the program's work stands still nothing is loaded or tried: the driver might wait for it. */
static bool is_ready(CUdevice device, struct carrier *c) {
  CUcontext current = NULL;
  if (c->verdict == FAILS || driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current)
    return false;
  bool loaded = atomic_load(&c->context) == current;
  if ((!loaded || c->verdict == UNTRIED) && memory_port.is_stopped(device))
    return false;
  CUresult result = loaded ? CUDA_SUCCESS : load(c);
  if (result != CUDA_SUCCESS) {
    fail(device, result);
    return false;
  }
  atomic_store(&c->context, current);
  if (!c->stage)
    make_stage(device, c);
  if (c->verdict == UNTRIED)
    try_it(device, c);
  return c->verdict == WORKS;
}

void carry_prepare(CUdevice device) {
  CUstreamCaptureMode mode = capture_relax();
  if (carry_host_bytes(device))
    is_ready(device, &carriers[device]);
  capture_unrelax(mode);
}

bool carry_begin(CUdevice device) {
  struct carrier *c = &carriers[device];
  return is_ready(device, c) && begin(c);
}

void carry_rest(CUdevice device) {
  CUdeviceptr stage = atomic_exchange(&carriers[device].stage, 0);
  if (!stage)
    return;
  CUstreamCaptureMode mode = capture_relax();
  driver.cuMemUnmap(stage, WINDOW * PART_BYTES);
  driver.cuMemAddressFree(stage, WINDOW * PART_BYTES);
  capture_unrelax(mode);
}

void carry_context_gone(CUcontext context) {
  for (CUdevice device = 0; device < DEVICES; device++) {
    CUcontext here = context;
    atomic_compare_exchange_strong(&carriers[device].context, &here, NULL);
  }
}

static void forget(void) {
  memset(carriers, 0, sizeof carriers);
  for (CUdevice device = 0; device < DEVICES; device++)
    atomic_store(&carried_bytes[device], 0);
}
IN_FORKED_CHILD(forget);
