/*
 * crosser.c - a program on two GPUs. usage: crosser copies|kernels|later BYTES ROUNDS
 *
 *   copies    memory of the one is copied to the other, by each kind of call that can do so
 *   kernels   the one's kernels touch memory of the other
 *
 *   later     says "filled" when the one has memory, and copies it to the other after a line: its first use
 *
 * Says "round" after each; all that it computes must be right. Then "ok".
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define SEED 9

static struct gpu gpus[2];
static CUdeviceptr at[2];
static CUstream streams[2];
static uint64_t words, bytes;

static void use(int gpu) { MUST(cuCtxSetCurrent(gpus[gpu].context)); }

static void start(int gpu, int peer, bool kernels) {
  use(gpu);
  at[gpu] = gpu_alloc(words);
  streams[gpu] = gpu_stream();
  if (kernels)
    MUST(cuCtxEnablePeerAccess(gpus[peer].context, 0));
}

/* With `to` current. */
static void copy_by(int kind, int to, int from) {
  CUDA_MEMCPY3D_PEER box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = at[from],
                            .srcContext = gpus[from].context,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .dstDevice = at[to],
                            .dstContext = gpus[to].context,
                            .WidthInBytes = bytes,
                            .Height = 1,
                            .Depth = 1};
  switch (kind % 5) {
  case 0:
    MUST(cuMemcpyPeerAsync(at[to], gpus[to].context, at[from], gpus[from].context, bytes, streams[to]));
    break;
  case 1:
    MUST(cuMemcpyDtoDAsync(at[to], at[from], bytes, streams[to]));
    break;
  case 2:
    MUST(cuMemcpyAsync(at[to], at[from], bytes, streams[to]));
    break;
  case 3:
    MUST(cuMemcpy3DPeerAsync(&box, streams[to]));
    break;
  default:
    MUST(cuMemcpyPeer(at[to], gpus[to].context, at[from], gpus[from].context, bytes));
  }
}

static void round_trip(int round, bool kernels) {
  int from = round % 2, to = 1 - from;
  uint64_t seed = SEED + (uint64_t)round, added = kernels ? 5 : 0;
  use(from);
  gpu_fill(&gpus[from], streams[from], at[from], words, seed);
  MUST(cuStreamSynchronize(streams[from]));
  use(to);
  if (kernels)
    gpu_add(&gpus[to], streams[to], at[from], words, added);
  else
    copy_by(round, to, from);
  MUST(cuStreamSynchronize(streams[to]));
  gpu_verify(at[kernels ? from : to], words, seed, added);
}

static int begin_later(void) {
  gpu_start(&gpus[0], 0);
  start(0, 1, false);
  gpu_fill(&gpus[0], streams[0], at[0], words, SEED);
  MUST(cuStreamSynchronize(streams[0]));
  gpu_say("filled");
  gpu_await_line();
  gpu_start(&gpus[1], 1);
  start(1, 0, false);
  copy_by(1, 1, 0);
  MUST(cuStreamSynchronize(streams[1]));
  gpu_verify(at[1], words, SEED, 0);
  gpu_say("ok");
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  bool kernels = strcmp(argv[1], "kernels") == 0;
  bytes = strtoull(argv[2], NULL, 0);
  words = bytes / sizeof(uint64_t);
  if (strcmp(argv[1], "later") == 0)
    return begin_later();
  gpu_start(&gpus[0], 0);
  gpu_start(&gpus[1], 1);
  start(0, 1, kernels);
  start(1, 0, kernels);
  for (int i = 0; i < atoi(argv[3]); i++) {
    round_trip(i, kernels);
    gpu_say("round");
  }
  gpu_say("ok");
  return 0;
}
