/*
 * keeper.c - works as a server does: most of its memory stays as it is, some changes at each request, and
 * some is not used at all. usage: keeper KEPT CHANGED UNUSED
 *
 * Says "serving" after the first request. At the end of its input it checks all of its memory, and says "ok".
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/parse.h"
#include "gpu.h"

#define SPIN_NS 2000000
#define SEED 5

enum { KEPT, CHANGED, UNUSED, PARTS };

static struct gpu gpu;
static CUstream stream;
static CUdeviceptr memory[PARTS];
static uint64_t words[PARTS], requests;

static void answer(void) {
  gpu_spin(&gpu, stream, SPIN_NS);
  gpu_add(&gpu, stream, memory[CHANGED], words[CHANGED], 1);
  MUST(cuStreamSynchronize(stream));
  requests++;
}

static bool is_told(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  return poll(&input, 1, 0) > 0;
}

static void verify_unused(void) {
  uint64_t *found = malloc(words[UNUSED] * sizeof *found);
  MUST(cuMemcpyDtoH(found, memory[UNUSED], words[UNUSED] * sizeof *found));
  for (uint64_t i = 0; i < words[UNUSED]; i++)
    if (found[i]) {
      gpu_say("error: what is not used has changed");
      exit(1);
    }
  free(found);
}

int main(int argc, char **argv) {
  gpu_start(&gpu, 0);
  stream = gpu_stream();
  for (int i = 0; i < PARTS; i++) {
    uint64_t bytes;
    if (argc != PARTS + 1 || parse_bytes(argv[i + 1], &bytes) != 0)
      return 2;
    words[i] = bytes / sizeof(uint64_t);
    memory[i] = gpu_alloc(words[i]);
    if (i != UNUSED)
      gpu_fill(&gpu, stream, memory[i], words[i], SEED);
  }
  answer();
  gpu_say("serving");
  while (!is_told())
    answer();
  gpu_verify(memory[KEPT], words[KEPT], SEED, 0);
  gpu_verify(memory[CHANGED], words[CHANGED], SEED, requests);
  verify_unused();
  gpu_say("ok");
  return 0;
}
