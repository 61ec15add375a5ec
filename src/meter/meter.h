/*
 * meter.h - counts what the process submits, where it submits it: in the calling thread's slot of the gate,
 * from which watch.c brings it to the page that is shared with the daemon (page.h). It costs the calling
 * thread some additions; no cache line is written by two threads. Only for a reason (enum gate_look) does a
 * call take the long way.
 *
 * Threading: meter_begin and meter_end from any thread, in pairs, between gate_enter and gate_leave.
 */
#ifndef GS_METER_H
#define GS_METER_H

#include "gate/gate.h"
#include "meter/amount.h"

/* What a call submits. */
struct meter_work {
  const void *what; /* the kernel, the graph, or the function that copies; NULL: it submits nothing */
  struct amount amount;
};

static inline struct meter_work meter_kernel(const void *function, uint64_t blocks) {
  return (struct meter_work){.what = function, .amount = {.kernels = 1, .blocks = blocks}};
}

/* A copy of nothing submits nothing. */
static inline struct meter_work meter_copy(const void *function, uint64_t bytes) {
  return (struct meter_work){.what = bytes ? function : NULL, .amount = {.bytes = bytes}};
}

/* One kernel is to be measured, after so many others; unless one is waited for already. */
void meter_ask(uint32_t skipped);

void meter_begin_slow(CUstream stream, const struct meter_work *work);
void meter_end_slow(const struct meter_work *work, CUresult result);

/* Other threads read the counts, none writes them. */
static inline void meter_count(struct gate_slot *slot, enum gate_count what, CUdevice device, uint64_t more) {
  _Atomic uint64_t *count = &slot->counts[device][what];
  atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + more,
                        memory_order_relaxed);
}

static inline void meter_add(CUdevice device, const struct meter_work *work) {
  struct gate_slot *slot = gate_slot;
  const struct amount *amount = &work->amount;
  if (!work->what)
    return;
  if (amount->kernels) {
    meter_count(slot, GATE_KERNELS, device, amount->kernels);
    meter_count(slot, GATE_BLOCKS, device, amount->blocks);
  }
  if (amount->bytes)
    meter_count(slot, GATE_BYTES, device, amount->bytes);
  meter_count(slot, GATE_SUBMISSIONS, device, 1);
}

/* The call is about to be made: whether it takes the long way, for meter_end. */
static inline bool meter_begin(CUstream stream, const struct meter_work *work) {
  bool look = atomic_load_explicit(&gate_look, memory_order_relaxed) != 0;
  if (__builtin_expect(look, 0))
    meter_begin_slow(stream, work);
  return look;
}

/* It has been made; passes its result on. Only what the driver has accepted counts. */
static inline CUresult meter_end(bool look, const struct meter_work *work, CUresult result) {
  if (__builtin_expect(look, 0))
    meter_end_slow(work, result);
  else if (result == CUDA_SUCCESS)
    meter_add(atomic_load_explicit(&gate_only_device, memory_order_relaxed), work);
  return result;
}

#endif
