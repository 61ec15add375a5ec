/*
 * grower.c - allocates more while it runs. usage: grower BYTES. Says "grown" for each line that it reads,
 * when it has BYTES more and has used them; at the end of its input it checks all of it and says "ok".
 */
#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"

#define MOST 64
#define SEED 3

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
