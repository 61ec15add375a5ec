/*
 * toiler.c - works as a training does: iteration after iteration, the next one queued before one is done.
 * usage: toiler BYTES SPIN
 *
 * Each iteration is three kernels of SPIN and one that changes all of its memory. Says "toiling" after the
 * first one. A line "pause" stops it after the present one: it says "paused", and goes on at the next line.
 * At the end of its input it checks its memory, and says "ok".
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/parse.h"
#include "gpu.h"

#define SPINS 3
#define SEED 5

static struct gpu gpu;
static CUstream stream;
static CUdeviceptr memory;
static uint64_t words, spin_ns, rounds;

/* Returns when the one before is done: the GPU always has work, also where this thread is kept waiting. */
static void iterate(void) {
  static CUevent ends[2];
  CUevent *end = &ends[rounds % 2], *before = &ends[(rounds + 1) % 2];
  if (!*end)
    MUST(cuEventCreate(end, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < SPINS; i++)
    gpu_spin(&gpu, stream, spin_ns);
  gpu_add(&gpu, stream, memory, words, 1);
  MUST(cuEventRecord(*end, stream));
  if (*before)
    MUST(cuEventSynchronize(*before));
  rounds++;
}

static bool is_told(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  return poll(&input, 1, 0) > 0;
}

/* False: its input has ended. */
static bool obey(void) {
  char line[16];
  if (!fgets(line, sizeof line, stdin))
    return false;
  if (strcmp(line, "pause\n") != 0)
    return true;
  MUST(cuStreamSynchronize(stream));
  gpu_say("paused");
  return fgets(line, sizeof line, stdin);
}

int main(int argc, char **argv) {
  uint64_t bytes;
  if (argc != 3 || parse_bytes(argv[1], &bytes) != 0 || parse_duration_ns(argv[2], &spin_ns) != 0)
    return 2;
  setvbuf(stdin, NULL, _IONBF, 0); /* what is read is what poll has seen */
  words = bytes / sizeof(uint64_t);
  gpu_start(&gpu, 0);
  stream = gpu_stream();
  memory = gpu_alloc(words);
  gpu_fill(&gpu, stream, memory, words, SEED);
  iterate();
  MUST(cuStreamSynchronize(stream));
  gpu_say("toiling");
  while (!is_told() || obey())
    iterate();
  MUST(cuStreamSynchronize(stream));
  gpu_verify(memory, words, SEED, rounds);
  gpu_say("ok");
  return 0;
}
