/* looker.c - looks at all GPUs, as frameworks do at their start, and computes on one of them. usage: looker
 * GPU BYTES ROUNDS (0: until its stdin ends). Says "computing" after the first round, then "ok". */
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>

#include "gpu.h"

#define SPIN_NS 100000

static void look_at_all(void) {
  int count;
  MUST(cuInit(0));
  MUST(cuDeviceGetCount(&count));
  for (int i = 0; i < count; i++) {
    size_t total;
    CUdevice device;
    MUST(cuDeviceGet(&device, i));
    MUST(cuDeviceTotalMem(&total, device));
  }
}

static bool goes_on(int round, int rounds) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  return rounds > 0 ? round < rounds : poll(&input, 1, 0) == 0;
}

int main(int argc, char **argv) {
  struct gpu gpu;
  int round = 0;
  if (argc != 4)
    return 2;
  uint64_t words = strtoull(argv[2], NULL, 0) / sizeof(uint64_t);
  look_at_all();
  gpu_start(&gpu, atoi(argv[1]));
  CUdeviceptr at = gpu_alloc(words);
  CUstream stream = gpu_stream();
  gpu_fill(&gpu, stream, at, words, 9);
  for (; goes_on(round, atoi(argv[3])); round++) {
    gpu_add(&gpu, stream, at, words, 1);
    gpu_spin(&gpu, stream, SPIN_NS);
    MUST(cuStreamSynchronize(stream));
    if (round == 0)
      gpu_say("computing");
  }
  gpu_verify(at, words, 9, (uint64_t)round);
  gpu_say("ok");
  return 0;
}
