/* trial.c - see trial.h. */
#include "preempt/trial.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "driver/driver.h"

#define PATIENCE_NS (NS_PER_S / 2) /* for the GPU to come to our work, beside others with slices of 0.1 s */
#define GO_ON_NS (5 * NS_PER_S)    /* the same after a go: others may be served first */
#define STANDSTILL_NS NS_PER_MS    /* at least; a GPU that is free needs microseconds */
#define POLL_NS 20000

/* Why more than once: our work may be late for another reason just then. */
enum { TIMES = 3 };

/* In pinned memory. Freeing that would wait for the program's work, so it is left to the end of the context.
 */
struct flags {
  _Atomic uint32_t reached, may_pass, passed;
};

static bool await(_Atomic uint32_t *flag, uint32_t value, uint64_t patience_ns) {
  for (uint64_t end_ns = clock_now_ns() + patience_ns; atomic_load(flag) < value; clock_sleep(POLL_NS))
    if (clock_now_ns() > end_ns)
      return atomic_load(flag) >= value;
  return true;
}

/* Round `number`, up to where the stream waits. */
static bool begin_round(CUstream stream, struct flags *flags, uint32_t number) {
  CUdeviceptr at = (uintptr_t)flags; /* as for the GPU: one address space */
  CUresult result = driver.cuStreamWriteValue32_v2(stream, at + offsetof(struct flags, reached), number, 0);
  if (result == CUDA_SUCCESS)
    result = driver.cuStreamWaitValue32_v2(stream, at + offsetof(struct flags, may_pass), number,
                                           CU_STREAM_WAIT_VALUE_GEQ);
  if (result == CUDA_SUCCESS)
    result = driver.cuStreamWriteValue32_v2(stream, at + offsetof(struct flags, passed), number, 0);
  return result == CUDA_SUCCESS && await(&flags->reached, number, PATIENCE_NS);
}

/* 0: it has not ended in time. */
static uint64_t measure(CUstream stream, struct flags *flags) {
  if (!begin_round(stream, flags, 1))
    return 0;
  uint64_t began_ns = clock_now_ns();
  atomic_store(&flags->may_pass, 1);
  return await(&flags->passed, 1, PATIENCE_NS) ? clock_now_ns() - began_ns : 0;
}

static enum trial run(CUstream stream, struct flags *flags, int (*stop)(unsigned gpu),
                      int (*go)(unsigned gpu), unsigned gpu) {
  uint64_t usual_ns = measure(stream, flags);
  if (usual_ns == 0)
    return TRIAL_UNCLEAR;
  for (uint32_t number = 2; number < 2 + TIMES; number++) {
    if (!begin_round(stream, flags, number) || stop(gpu) != 0)
      return TRIAL_UNCLEAR;
    atomic_store(&flags->may_pass, number);
    bool moved = await(&flags->passed, number, STANDSTILL_NS + 8 * usual_ns);
    go(gpu);
    if (moved)
      return TRIAL_MOVED;
    if (!await(&flags->passed, number, GO_ON_NS))
      return TRIAL_STUCK;
  }
  return TRIAL_STOOD;
}

enum trial trial_run(int (*stop)(unsigned gpu), int (*go)(unsigned gpu), unsigned gpu) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  struct flags *flags = NULL;
  CUstream stream;
  enum trial found = TRIAL_UNCLEAR;
  if (!driver.cuStreamWaitValue32_v2 || !driver.cuStreamWriteValue32_v2)
    return TRIAL_UNCLEAR;
  driver.cuThreadExchangeStreamCaptureMode(&mode); /* what another thread captures is not disturbed */
  if (driver.cuMemHostAlloc((void **)&flags, sizeof *flags, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS &&
      driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    *flags = (struct flags){0};
    found = run(stream, flags, stop, go, gpu);
    atomic_store(&flags->may_pass, UINT32_MAX / 2); /* whatever waits */
    driver.cuStreamDestroy_v2(stream);
  }
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  return found;
}
