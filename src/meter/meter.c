/* meter.c - the long way of what is counted. See meter.h. */
#include "meter/meter.h"

#include <errno.h>

#include "gate/limit.h"
#include "gate/streams.h"
#include "meter/samples.h"
#include "meter/service.h"
#include "meter/watch.h"

/* The call that this thread is about to make. */
static __thread struct {
  CUdevice device; /* -1: it counts for none */
  struct sample *sample;
} call __attribute__((tls_model("initial-exec")));

/* The stream that this thread has used last: most threads use the same one again. Not where a handle means
 * the current context's stream. */
static __thread struct {
  CUstream stream;
  uint64_t generation;
  CUdevice device;
} last __attribute__((tls_model("initial-exec")));

static CUdevice device_of(CUstream stream) {
  uint64_t generation = streams_generation();
  bool is_handle = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  if (is_handle && last.stream == stream && last.generation == generation)
    return last.device;
  CUdevice device = gate_device_of(stream);
  last.stream = is_handle ? stream : NULL;
  last.generation = generation;
  last.device = device < GS_GPUS_PER_CLIENT ? device : -1;
  return last.device;
}

static CUdevice find_device(uint32_t look, CUstream stream) {
  if ((look & GATE_LOOK_CAPTURES) && gate_is_recorded(stream))
    return -1;
  return look & GATE_LOOK_SEVERAL ? device_of(stream) : atomic_load(&gate_only_device);
}

static _Atomic int32_t skip; /* kernels before the one that is to be measured */

void meter_ask(uint32_t skipped) {
  if (atomic_load(&gate_look) & GATE_LOOK_SAMPLE)
    return;
  atomic_store(&skip, (int32_t)skipped);
  gate_set_look(GATE_LOOK_SAMPLE, true);
}

/* Of the threads that submit at the same time, one. */
static bool is_asked_for(uint32_t look, const struct meter_work *work) {
  return (look & GATE_LOOK_SAMPLE) && work->amount.kernels && atomic_fetch_sub(&skip, 1) <= 0 &&
         (atomic_fetch_and(&gate_look, ~(uint32_t)GATE_LOOK_SAMPLE) & GATE_LOOK_SAMPLE);
}

static bool is_limited(uint32_t look, CUdevice device, const struct meter_work *work) {
  return (look & GATE_LOOK_LIMITED) && device >= 0 && work->what && gate_is_limited(device);
}

void meter_begin_slow(CUstream stream, const struct meter_work *work) {
  int saved = errno;
  uint32_t look = atomic_load(&gate_look);
  CUdevice device = find_device(look, stream);
  call.device = device;
  call.sample = NULL;
  if (look & GATE_LOOK_ASLEEP)
    watch_wake(device);
  if (look & GATE_LOOK_RESTING)
    service_begin(device);
  bool lack = is_limited(look, device, work) && samples_lack(device, work);
  if (device >= 0 && (lack || is_asked_for(look, work)))
    call.sample = sample_begin(device, stream, work);
  errno = saved;
}

void meter_end_slow(const struct meter_work *work, CUresult result) {
  int saved = errno;
  bool submitted = result == CUDA_SUCCESS && call.device >= 0;
  if (call.sample)
    sample_end(call.sample, submitted);
  if (submitted && is_limited(atomic_load(&gate_look), call.device, work)) {
    struct samples_charge charge = samples_charge(call.device, work);
    limit_charge(call.device, charge.ns, charge.next_ns);
  }
  if (submitted)
    meter_add(call.device, work);
  errno = saved;
}
