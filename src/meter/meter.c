/* meter.c - the long way of what is counted. See meter.h. */
#include "meter/meter.h"

#include <errno.h>

#include "meter/watch.h"

/* Of the call that this thread is about to make; -1: it counts for no device. */
static __thread CUdevice device_of_call __attribute__((tls_model("initial-exec")));

static CUdevice find_device(uint32_t look, CUstream stream) {
  if ((look & GATE_LOOK_CAPTURES) && gate_is_recorded(stream))
    return -1;
  if (!(look & GATE_LOOK_SEVERAL))
    return atomic_load(&gate_only_device);
  CUdevice device = gate_device_of(stream);
  return device < GS_GPUS_PER_CLIENT ? device : -1;
}

void meter_begin_slow(CUstream stream) {
  int saved = errno;
  uint32_t look = atomic_load(&gate_look);
  device_of_call = find_device(look, stream);
  if (look & GATE_LOOK_ASLEEP)
    watch_wake(device_of_call);
  errno = saved;
}

void meter_end_slow(const struct meter_work *work, CUresult result) {
  if (result == CUDA_SUCCESS && device_of_call >= 0)
    meter_add(device_of_call, work);
}
