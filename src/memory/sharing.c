/* sharing.c - the gate's side of a change. */
#include "memory/sharing.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "memory/device.h"

uint64_t sharing_devices(CUdevice device) { return gate_reached_from(device) | UINT64_C(1) << device; }

#define LOOK_NS (NS_PER_MS / 10)

CUresult sharing_in_turn(CUdevice device, CUresult (*change)(void *argument), void *argument) {
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

static bool finishes(CUdevice device, uint64_t since_ns, uint64_t deadline_ns) {
  uint64_t now_ns = since_ns;
  while (!streams_have_finished(device, now_ns - since_ns)) {
    if (now_ns >= deadline_ns)
      return false;
    clock_sleep(LOOK_NS);
    now_ns = clock_now_ns();
  }
  return true;
}

bool sharing_alone(struct alone *alone, uint64_t devices, uint64_t patience_ns) {
  alone->devices = devices;
  thread_block_signals(&alone->before);
  bool is_alone = gate_alone(devices, patience_ns), finished = is_alone;
  uint64_t since_ns = clock_now_ns();
  for (CUdevice device = 0; device < DEVICES && finished; device++)
    finished = !(devices >> device & 1) || finishes(device, since_ns, since_ns + patience_ns);
  if (finished)
    return true;
  if (is_alone)
    gate_together(devices);
  thread_restore_signals(&alone->before);
  return false;
}

void sharing_together(const struct alone *alone) {
  gate_together(alone->devices);
  thread_restore_signals(&alone->before);
}
