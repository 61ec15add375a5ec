/* sharing.c - the gate's side of a change. */
#include "memory/sharing.h"

#include <stdbool.h>

#include "common/log.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "memory/device.h"

uint64_t sharing_devices(CUdevice device) { return gate_reached_from(device) | UINT64_C(1) << device; }

CUresult sharing_in_turn(CUdevice device, CUresult (*change)(void *argument), void *argument) {
  gate_await_work(device);
  gate_forbid_stop(device);
  gate_enter_reaching(NULL, sharing_devices(device));
  CUresult result = change(argument);
  gate_leave();
  gate_allow_stop();
  return result;
}

CUresult sharing_finish_work(uint64_t devices, uint64_t captures_ns) {
  bool free_of_captures = capture_wait_none(captures_ns);
  capture_forbid();
  free_of_captures = free_of_captures && capture_count() == 0;
  if (free_of_captures) {
    capture_wait_begin();
    for (CUdevice other = 0; other < DEVICES; other++)
      if (devices >> other & 1)
        contexts_synchronize(other);
    capture_wait_end();
  }
  capture_allow();
  if (free_of_captures)
    return CUDA_SUCCESS;
  if (captures_ns)
    log_warn("memory can't be shared while a stream capture is open");
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
