/* preempt_room.c - what src/preempt asks of the rest of the library, for a program that has only that room:
 * the driver's functions, and which library has them. */
#include "driver/driver.h"
#include "driver/libraries.h"

struct driver driver = {.cuDeviceGetUuid_v2 = cuDeviceGetUuid_v2,
                        .cuMemHostAlloc = cuMemHostAlloc,
                        .cuStreamCreate = cuStreamCreate,
                        .cuStreamDestroy_v2 = cuStreamDestroy_v2,
                        .cuStreamWaitValue32_v2 = cuStreamWaitValue32_v2,
                        .cuStreamWriteValue32_v2 = cuStreamWriteValue32_v2,
                        .cuThreadExchangeStreamCaptureMode = cuThreadExchangeStreamCaptureMode};
_Atomic bool driver_settled;

const struct library *driver_in_use(const struct libraries *libraries) {
  return libraries->count ? &libraries->list[0] : NULL;
}
