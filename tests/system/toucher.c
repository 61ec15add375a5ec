/*
 * toucher.c - allocates memory and uses as much of it as it is told. usage: toucher BYTES. For each line with
 * a number it fills so many bytes from the start on, and says "touched". At the end of its input it checks
 * what it has filled last and says "ok".
 */
#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"

int main(int argc, char **argv) {
  struct gpu gpu;
  char line[64];
  uint64_t words = 0, seed = 3;
  if (argc != 2)
    return 2;
  gpu_start(&gpu, 0);
  CUstream stream = gpu_stream();
  CUdeviceptr at = gpu_alloc(strtoull(argv[1], NULL, 0) / sizeof(uint64_t));
  gpu_say("allocated");
  while (fgets(line, sizeof line, stdin)) {
    words = strtoull(line, NULL, 0) / sizeof(uint64_t);
    gpu_fill(&gpu, stream, at, words, ++seed);
    MUST(cuStreamSynchronize(stream));
    gpu_say("touched");
  }
  gpu_verify(at, words, seed, 0);
  gpu_say("ok");
  return 0;
}
