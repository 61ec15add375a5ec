/*
 * pools.c - stream-ordered allocation: the device's own pool and one of the program's, memory that is freed
 * while the stream still uses it and allocated again behind that, on one stream and across two. Kernels check
 * each buffer just before it is freed; whoever gets it too early has spoiled it by then.
 * Arguments: ROUNDS (150), KIB per buffer (2048).
 */
#include "program.h"

enum { SLOTS = 6 };

struct pools {
  CUmemoryPool own, standard;
  CUstream first, second;
  CUevent ready;
  CUdeviceptr mismatches;
  struct kernels kernels;
};

static uint64_t words;

static CUdeviceptr allocate(struct pools *p, uint64_t number, uint64_t count, CUstream stream) {
  CUdeviceptr at = 0;
  size_t bytes = count * sizeof(uint64_t);
  if (number % 3 == 0)
    MUST(cuMemAllocAsync(&at, bytes, stream));
  else
    MUST(cuMemAllocFromPoolAsync(&at, bytes, number % 3 == 1 ? p->own : p->standard, stream));
  return at;
}

/* Sizes differ, so that the pools have to split and join what they have. */
static uint64_t words_of(uint64_t number) { return words / (1 + number % 4) + number % 7; }

/* Everything on one stream, nothing waited for. */
static void one_stream(struct pools *p, uint64_t round) {
  CUdeviceptr slots[SLOTS];
  for (uint64_t i = 0; i < SLOTS; i++) {
    uint64_t number = round * SLOTS + i, count = words_of(number);
    slots[i] = allocate(p, number, count, p->first);
    launch_fill(&p->kernels, p->first, slots[i], count, number);
  }
  for (uint64_t i = 0; i < SLOTS; i++) {
    uint64_t number = round * SLOTS + i;
    launch_check(&p->kernels, p->first, slots[i], words_of(number), number, p->mismatches);
    MUST(cuMemFreeAsync(slots[i], p->first));
  }
}

/* Allocated and filled on one stream, checked and freed on the other, which is late. */
static void two_streams(struct pools *p, uint64_t round) {
  uint64_t count = words_of(round), seed = ~round;
  CUdeviceptr at = allocate(p, round, count, p->first);
  launch_fill(&p->kernels, p->first, at, count, seed);
  MUST(cuEventRecord(p->ready, p->first));
  MUST(cuStreamWaitEvent(p->second, p->ready, 0));
  launch_spin(&p->kernels, p->second, 200000);
  launch_check(&p->kernels, p->second, at, count, seed, p->mismatches);
  MUST(cuMemFreeAsync(at, p->second));
}

/* What an allocation is right after cuMemAllocAsync, also for the copies that don't name a stream. */
static void freed_at_once(struct pools *p, uint64_t round) {
  CUdeviceptr at = allocate(p, round, words, p->first);
  launch_fill(&p->kernels, p->first, at, words, round);
  launch_add(&p->kernels, p->first, at, words, 5);
  uint64_t wrong = wrong_words(p->first, at, words, round, 5);
  if (wrong)
    fail("round %llu: %llu wrong words", (unsigned long long)round, (unsigned long long)wrong);
  MUST(cuMemFree(at)); /* allowed by the driver: waits for the work, then frees */
}

static void trim(struct pools *p) {
  MUST(cuMemPoolTrimTo(p->own, 0));
  MUST(cuMemPoolTrimTo(p->standard, 0));
}

static void set_threshold(CUmemoryPool pool) {
  cuuint64_t keep = 256 * MIB;
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  keep = 0;
  MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  if (keep != 256 * MIB)
    fail("the release threshold is %llu after it was set", (unsigned long long)keep);
}

static void open_pools(struct pools *p) {
  CUcontext context;
  CUdevice device = program_start(&context);
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
  p->kernels = kernels_load();
  MUST(cuMemPoolCreate(&p->own, &props));
  MUST(cuDeviceGetDefaultMemPool(&p->standard, device));
  set_threshold(p->own);
  MUST(cuStreamCreate(&p->first, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&p->second, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&p->ready, CU_EVENT_DISABLE_TIMING));
  MUST(cuMemAlloc(&p->mismatches, sizeof(uint64_t)));
}

static void run(struct pools *p, uint64_t rounds) {
  MUST(cuMemsetD8Async(p->mismatches, 0, sizeof(uint64_t), p->first));
  for (uint64_t round = 0; round < rounds; round++) {
    one_stream(p, round);
    two_streams(p, round);
    if (round % 16 == 15)
      freed_at_once(p, round);
    if (round % 32 == 31)
      trim(p);
    if (round % 8 == 7)
      MUST(cuStreamSynchronize(p->second));
  }
  MUST(cuCtxSynchronize());
}

int main(int argc, char **argv) {
  struct pools p;
  uint64_t mismatches = 1;
  words = argument(argc, argv, 2, 2048) * 1024 / sizeof(uint64_t);
  open_pools(&p);
  program_say("ready");
  program_await_line();
  run(&p, argument(argc, argv, 1, 150));
  MUST(cuMemcpyDtoH(&mismatches, p.mismatches, sizeof mismatches));
  if (mismatches)
    fail("%llu words were overwritten before they were freed", (unsigned long long)mismatches);
  MUST(cuMemPoolDestroy(p.own));
  program_say("ok");
  return 0;
}
