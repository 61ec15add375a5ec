/*
 * flagger.c - writes flags by stream memory operations, into a small allocation and into a large one, one by
 * one and as a batch. Says what the driver answered: "small RESULT RESULT", "large RESULT RESULT", ok.
 */
#include <stdio.h>

#include "gpu.h"

static void write_flags(const char *name, CUdeviceptr at) {
  CUstreamBatchMemOpParams both[2] = {0};
  char line[64];
  for (int i = 0; i < 2; i++) {
    both[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    both[i].writeValue.address = at + 4 * (unsigned)i;
  }
  CUresult one = cuStreamWriteValue32(NULL, at, 1, 0), batch = cuStreamBatchMemOp(NULL, 2, both, 0);
  snprintf(line, sizeof line, "%s %d %d", name, (int)one, (int)batch);
  gpu_say(line);
}

int main(void) {
  struct gpu gpu;
  gpu_start(&gpu, 0);
  write_flags("small", gpu_alloc(1));
  write_flags("large", gpu_alloc((2 << 20) / sizeof(uint64_t) + 1));
  MUST(cuCtxSynchronize());
  gpu_say("ok");
  return 0;
}
