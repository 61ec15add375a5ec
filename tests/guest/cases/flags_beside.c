/* flags_beside.c - flags while the GPU is taken in turns: what is in them stays, and waits come to their end.
 */
#include "guest.h"

int main(void) {
  struct gpu gpu;
  CUdeviceptr flag, large;
  unsigned seen = 0, wrong = 0;
  gpu_start(&gpu, 0);
  MUST(cuMemAlloc(&flag, 64));
  MUST(cuMemAlloc(&large, 20 << 20));
  MUST(cuMemsetD32(flag, 0, 16));
  CUstream writer = gpu_stream(), waiter = gpu_stream();
  gpu_fill(&gpu, NULL, large, 20 << 17, 1);
  MUST(cuCtxSynchronize());
  for (unsigned round = 1; round <= 200; round++) {
    gpu_spin(&gpu, writer, 1000000);
    MUST(cuStreamWriteValue32(writer, flag, round, 0));
    MUST(cuStreamWaitValue32(waiter, flag, round, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(cuMemcpyDtoHAsync(&seen, flag, sizeof seen, waiter));
    MUST(cuStreamSynchronize(waiter));
    wrong += seen != round;
  }
  gpu_verify(large, 20 << 17, 1, 0);
  say("wrong %u", wrong);
  say("ok");
  return 0;
}
