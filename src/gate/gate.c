/* gate.c - the gates of this process' GPUs: open, shut, and the waiting in between. */
#include "gate/gate.h"

#include <errno.h>
#include <pthread.h>

#include "client/client.h"
#include "common/clock.h"
#include "common/futex.h"
#include "gate/contexts.h"
#include "gate/slots.h"
#include "gate/streams.h"
#include "interpose/driver.h"

struct gate {
  _Atomic uint32_t used;
  _Atomic uint32_t open;
  _Atomic uint32_t change;  /* futex: moves with every opening and pulse */
  _Atomic uint32_t waiting; /* threads in wait_open */
  _Atomic uint64_t pulses;  /* so far */
  _Atomic uint64_t permit;  /* the number of the pulse in force; 0: none */
};

static struct gate gates[GS_GPUS_PER_CLIENT];

/* Shut until the first slow entry has found out which device it is about. */
_Atomic uint32_t gate_all_open;

/* Serializes changes of `used` and `open` with the sum of them, gate_all_open. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct gate *gate_of(CUdevice device) {
  return device >= 0 && device < GS_GPUS_PER_CLIENT ? &gates[device] : NULL;
}

static void sum_up(void) {
  uint32_t all = 1, any = 0;
  for (struct gate *g = gates; g < gates + GS_GPUS_PER_CLIENT; g++)
    if (atomic_load(&g->used)) {
      any = 1;
      all &= atomic_load(&g->open);
    }
  atomic_store(&gate_all_open, any & all);
}

static void set_open(struct gate *gate, uint32_t open) {
  pthread_mutex_lock(&lock);
  atomic_store(&gate->open, open);
  sum_up();
  pthread_mutex_unlock(&lock);
}

void gate_add(CUdevice device) {
  pthread_mutex_lock(&lock);
  atomic_store(&gate_of(device)->used, 1);
  sum_up();
  pthread_mutex_unlock(&lock);
}

bool gate_is_used(CUdevice device) {
  struct gate *gate = gate_of(device);
  return gate && atomic_load(&gate->used);
}

static void wake(struct gate *gate) {
  atomic_fetch_add(&gate->change, 1);
  futex_wake(&gate->change, INT32_MAX);
}

void gate_open(CUdevice device) {
  set_open(gate_of(device), 1);
  wake(gate_of(device));
}

bool gate_close(CUdevice device, uint64_t timeout_ns) {
  set_open(gate_of(device), 0);
  slots_barrier();
  return slots_wait_empty(timeout_ns);
}

bool gate_is_open(CUdevice device) { return atomic_load(&gate_of(device)->open); }
uint32_t gate_waiting(CUdevice device) { return atomic_load(&gate_of(device)->waiting); }
uint64_t gate_pulses(CUdevice device) { return atomic_load(&gate_of(device)->pulses); }

void gate_pulse(CUdevice device) {
  struct gate *gate = gate_of(device);
  atomic_store(&gate->permit, atomic_fetch_add(&gate->pulses, 1) + 1);
  wake(gate);
}

bool gate_revoke_pulse(CUdevice device, uint64_t timeout_ns) {
  atomic_store(&gate_of(device)->permit, 0);
  slots_barrier();
  return slots_wait_empty(timeout_ns);
}

/* The GPU that a call on this stream reaches; -1 when the driver will refuse the call anyway. */
static CUdevice device_of(CUstream stream) {
  CUcontext context;
  CUdevice device = -1;
  bool is_handle = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  if (is_handle && driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS)
    device = contexts_device(context);
  if (device < 0 && driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
    device = -1;
  return device;
}

/* Work on a capturing stream is recorded, not submitted. */
static bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus status;
  if (stream == NULL || stream == CU_STREAM_LEGACY)
    return false; /* the legacy stream can't capture; asking may fail by way of others that do */
  return driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* May a call that has come after `pulses` pulses pass now? */
static bool may_pass(struct gate *gate, uint64_t pulses) {
  return !gate || atomic_load(&gate->open) || atomic_load(&gate->permit) > pulses;
}

static void wait_open(struct gate *gate, CUdevice device, uint64_t pulses) {
  atomic_fetch_add(&gate->waiting, 1);
  for (;;) {
    uint32_t seen = atomic_load(&gate->change);
    if (may_pass(gate, pulses))
      break;
    client_want(device);
    futex_wait(&gate->change, seen, UINT64_MAX);
  }
  atomic_fetch_sub(&gate->waiting, 1);
}

/* Count the call as in flight, then look: true if it may (still) pass. */
static bool try_enter(struct gate_slot *slot, struct gate *gate, uint64_t pulses) {
  atomic_store(&slot->in_flight, 1);
  atomic_thread_fence(memory_order_seq_cst);
  if (may_pass(gate, pulses))
    return true;
  atomic_store(&slot->in_flight, 0);
  slots_notify();
  return false;
}

void gate_enter_slow(CUstream stream) {
  int saved = errno;
  struct gate_slot *slot = slots_mine();
  if (atomic_exchange(&slot->in_flight, 0))
    slots_notify();
  streams_note(stream);
  contexts_learn_current();
  CUdevice device = device_of(stream);
  struct gate *gate = gate_of(device);
  if (gate && !atomic_load(&gate->used))
    client_attach(device);
  uint64_t pulses = gate ? atomic_load(&gate->pulses) : 0;
  while (!try_enter(slot, gate, pulses))
    if (is_capturing(stream))
      gate = NULL;
    else
      wait_open(gate, device, pulses);
  errno = saved;
}

bool gate_try_enter(CUstream stream) {
  struct gate_slot *slot = slots_mine();
  struct gate *gate = gate_of(device_of(stream));
  return gate && try_enter(slot, gate, UINT64_MAX);
}

void gate_leave_slow(void) {
  int saved = errno;
  slots_notify();
  errno = saved;
}

void gate_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  for (struct gate *g = gates; g < gates + GS_GPUS_PER_CLIENT; g++)
    *g = (struct gate){0};
  atomic_store(&gate_all_open, 0);
  slots_fork_child();
}
