/*
 * released.c - a pool whose memory has been on the host, gives memory back and takes new: each buffer is
 * allocated, filled, checked and freed in stream order, one of those that live is moved to the host by a
 * prefetch now and then, and the pool is trimmed. Every word is checked just before it is freed.
 *
 * Of unified memory ("managed"), on driver 580.159 alone, it finds wrong words within a second: those that
 * the fill has written are lost. Of plain memory, nothing can be prefetched.
 * Arguments: ROUNDS (2000), "plain" or "managed".
 */
#include <stdlib.h>
#include <string.h>

#include "program.h"

#define BUFFERS 12
#define BUFFER_MIB_MAX 96

struct buffer {
  CUdeviceptr at;
  uint64_t words, seed;
};

static struct kernels kernels;
static CUmemoryPool pool;
static CUstream stream, other;
static CUdeviceptr mismatches;
static struct buffer live[BUFFERS];
static uint64_t count, moved, random_state = 1;

static uint64_t below(uint64_t bound) {
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (random_state >> 33) % bound;
}

static void make_pool(bool managed) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
#if CUDA_VERSION >= 13000
  if (managed)
    props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
#else
  if (managed)
    fail("pools of unified memory need CUDA 13");
#endif
  cuuint64_t keep = 256 * MIB;
  MUST(cuMemPoolCreate(&pool, &props));
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
}

static void allocate_one(uint64_t round) {
  struct buffer *new = &live[count++];
  new->words = (MIB + below(BUFFER_MIB_MAX * MIB)) / sizeof(uint64_t);
  new->seed = round;
  MUST(cuMemAllocFromPoolAsync(&new->at, new->words * sizeof(uint64_t), pool, stream));
  launch_fill(&kernels, stream, new->at, new->words, new->seed);
}

static void check_one(uint64_t which) {
  uint64_t wrong = 0;
  MUST(cuMemsetD8Async(mismatches, 0, sizeof wrong, stream));
  launch_check(&kernels, stream, live[which].at, live[which].words, live[which].seed, mismatches);
  MUST(cuMemcpyDtoHAsync(&wrong, mismatches, sizeof wrong, stream));
  MUST(cuStreamSynchronize(stream));
  if (wrong)
    fail("%llu of %llu words at %#llx are not what was written", (unsigned long long)wrong,
         (unsigned long long)live[which].words, (unsigned long long)live[which].at);
}

static void free_one(uint64_t which) {
  MUST(cuMemFreeAsync(live[which].at, stream));
  live[which] = live[--count];
}

/* Refused for memory that cannot move. */
static void move_one(uint64_t which) {
  size_t bytes = live[which].words * sizeof(uint64_t);
#if CUDA_VERSION >= 13000
  const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
  moved += cuMemPrefetchAsync(live[which].at, bytes, host, 0, other) == CUDA_SUCCESS;
#else
  moved += cuMemPrefetchAsync(live[which].at, bytes, CU_DEVICE_CPU, other) == CUDA_SUCCESS;
#endif
  MUST(cuStreamSynchronize(other));
}

static void run(uint64_t rounds) {
  for (uint64_t round = 1; round <= rounds; round++) {
    if (count < BUFFERS && below(2))
      allocate_one(round);
    else if (count > 0) {
      uint64_t which = below(count);
      check_one(which);
      if (below(2))
        free_one(which);
    }
    if (count > 0 && below(2))
      move_one(below(count));
    if (below(2))
      MUST(cuMemPoolTrimTo(pool, 0));
  }
}

int main(int argc, char **argv) {
  CUcontext context;
  program_start(&context);
  kernels = kernels_load();
  make_pool(argc > 2 && strcmp(argv[2], "managed") == 0);
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc(&mismatches, sizeof(uint64_t)));
  program_say("ready");
  program_await_line();
  run(argument(argc, argv, 1, 2000));
  program_say(moved ? "moved" : "stayed");
  program_say("ok");
  return 0;
}
