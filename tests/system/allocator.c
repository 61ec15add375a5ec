/* allocator.c - allocates and frees in stream order, as fast as it can. usage: allocator BYTES TIMES. Says
 * "done", waits for a line, says "ok". */
#include <stdlib.h>

#include "gpu.h"

int main(int argc, char **argv) {
  struct gpu gpu;
  if (argc != 3)
    return 2;
  size_t bytes = strtoull(argv[1], NULL, 0);
  gpu_start(&gpu, 0);
  CUstream stream = gpu_stream();
  for (int times = atoi(argv[2]); times > 0; times--) {
    CUdeviceptr at;
    MUST(cuMemAllocAsync(&at, bytes, stream));
    MUST(cuMemFreeAsync(at, stream));
  }
  MUST(cuStreamSynchronize(stream));
  gpu_say("done");
  gpu_await_line();
  gpu_say("ok");
  return 0;
}
