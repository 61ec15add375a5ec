/*
 * grower.c - allocates more while it runs. usage: grower BYTES. Says "grown" for each line that it reads,
 * when it has BYTES more and has used them; "passed" for the line "pass", when it has had BYTES in stream
 * order, used them, and freed them, without a wait. At the end of its input it checks all that it has and
 * says "ok".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define MOST 64
#define SEED 3

static void pass(const struct gpu *gpu, CUstream stream, uint64_t words) {
  CUdeviceptr at;
  MUST(cuMemAllocAsync(&at, words * sizeof(uint64_t), stream));
  gpu_fill(gpu, stream, at, words, SEED);
  MUST(cuMemFreeAsync(at, stream));
  gpu_say("passed");
}

int main(int argc, char **argv) {
  CUdeviceptr at[MOST];
  struct gpu gpu;
  char line[64];
  int count = 0;
  if (argc != 2)
    return 2;
  uint64_t words = strtoull(argv[1], NULL, 0) / sizeof(uint64_t);
  gpu_start(&gpu, 0);
  CUstream stream = gpu_stream();
  while (count < MOST && fgets(line, sizeof line, stdin)) {
    if (strcmp(line, "pass\n") == 0) {
      pass(&gpu, stream, words);
      continue;
    }
    at[count] = gpu_alloc(words);
    gpu_fill(&gpu, stream, at[count], words, SEED + (uint64_t)count);
    MUST(cuStreamSynchronize(stream));
    count++;
    gpu_say("grown");
  }
  for (int i = 0; i < count; i++)
    gpu_verify(at[i], words, SEED + (uint64_t)i, 0);
  gpu_say("ok");
  return 0;
}
