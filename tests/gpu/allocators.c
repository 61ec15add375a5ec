/*
 * allocators.c - the ways in which engines take memory from the driver, each without its engine: buffers
 * whose contents the program knows, taken as that engine's allocator does it, changed round by round, and
 * checked.
 *
 * usage: allocators PATTERN BYTES. Says "ready" with its memory allocated; for each line "round" it does what
 * the allocator does between two requests, adds 1 to every word and says "done"; at the end of its input it
 * checks all words and says "ok".
 */
#include <stdio.h>
#include <string.h>

#include "program.h"

enum { PARTS = 16, SPARE = 4 };
#define RANGE ((size_t)32 << 30) /* addresses that a pool reserves before it has memory */

static CUdevice device;
static CUstream stream;
static struct kernels kernels;
static size_t part_bytes; /* a multiple of the granularity of virtual memory */
static CUdeviceptr at[PARTS];
static CUmemGenericAllocationHandle handles[PARTS];
static CUmemoryPool pool;
static CUdeviceptr range;
static size_t mapped; /* bytes at the start of the range, or in all places that were ever used in it */

static CUmemAllocationProp on_device(void) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static CUmemGenericAllocationHandle create(void) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp properties = on_device();
  MUST(cuMemCreate(&handle, part_bytes, &properties, 0));
  return handle;
}

static void map(CUdeviceptr place, CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access = {.location = on_device().location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemMap(place, part_bytes, 0, handle, 0));
  MUST(cuMemSetAccess(place, part_bytes, &access, 1));
}

/* RAPIDS' pool: one allocation, whose parts are given away again and again. */
static void arena_take(void) {
  MUST(cuMemAlloc(&range, (PARTS + 1) * part_bytes));
  for (int i = 0; i < PARTS; i++)
    at[i] = range + i * part_bytes;
}

/* A buffer moves into the free part, and leaves its own part free. */
static void arena_turn(void) {
  static int next;
  static CUdeviceptr unused;
  CUdeviceptr target = unused ? unused : range + PARTS * part_bytes;
  MUST(cuMemcpyDtoDAsync(target, at[next], part_bytes, stream));
  unused = at[next];
  at[next] = target;
  next = (next + 1) % PARTS;
}

/* RAPIDS' asynchronous resource: a pool of the program's that keeps what is freed. */
static void pool_take(void) {
  CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_device().location};
  cuuint64_t keep = UINT64_MAX;
  MUST(cuMemPoolCreate(&pool, &properties));
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  for (int i = 0; i < PARTS; i++)
    MUST(cuMemAllocFromPoolAsync(&at[i], part_bytes, pool, stream));
}

static void pool_turn(void) {
  static int next;
  CUdeviceptr target;
  MUST(cuMemAllocFromPoolAsync(&target, part_bytes, pool, stream));
  MUST(cuMemcpyDtoDAsync(target, at[next], part_bytes, stream));
  MUST(cuMemFreeAsync(at[next], stream));
  at[next] = target;
  next = (next + 1) % PARTS;
}

/* vLLM's sleep mode, and SGLang's memory saver: a handle and a range of addresses for each tensor. */
static void sleep_take(void) {
  for (int i = 0; i < PARTS; i++) {
    MUST(cuMemAddressReserve(&at[i], part_bytes, 0, 0, 0));
    handles[i] = create();
    map(at[i], handles[i]);
  }
}

/* Asleep, the contents are in host memory and the handles are gone; awake, they are at the same addresses. */
static void sleep_turn(void) {
  char *copy;
  MUST(cuMemAllocHost((void **)&copy, PARTS * part_bytes));
  MUST(cuCtxSynchronize());
  for (int i = 0; i < PARTS; i++) {
    MUST(cuMemcpyDtoH(copy + i * part_bytes, at[i], part_bytes));
    MUST(cuMemUnmap(at[i], part_bytes));
    MUST(cuMemRelease(handles[i]));
  }
  for (int i = 0; i < PARTS; i++) {
    handles[i] = create();
    map(at[i], handles[i]);
    MUST(cuMemcpyHtoD(at[i], copy + i * part_bytes, part_bytes));
  }
  MUST(cuMemFreeHost(copy));
}

/* kvcached: pages appear in a large range when they are needed. */
static void pages_take(void) {
  MUST(cuMemAddressReserve(&range, RANGE, 0, 0, 0));
  for (int i = 0; i < PARTS; i++, mapped += part_bytes) {
    handles[i] = create();
    at[i] = range + mapped;
    map(at[i], handles[i]);
  }
}

/* A page leaves its place; the memory, with what is in it, appears at a place that has had none for some
 * time. */
static void pages_turn(void) {
  static size_t first;
  MUST(cuCtxSynchronize());
  for (int n = 0; n < SPARE; n++) {
    int i = (int)((first + n) % PARTS);
    MUST(cuMemUnmap(at[i], part_bytes));
    at[i] = range + mapped % (2 * PARTS * part_bytes);
    map(at[i], handles[i]);
    mapped += part_bytes;
  }
  first += SPARE;
}

/* ggml's pool: it grows at the end of a large range, and keeps no handle. */
static void grow(void) {
  CUmemGenericAllocationHandle handle = create();
  map(range + mapped, handle);
  MUST(cuMemRelease(handle));
  mapped += part_bytes;
}

static void growing_take(void) {
  MUST(cuMemAddressReserve(&range, RANGE, 0, 0, 0));
  for (int i = 0; i < PARTS; i++) {
    at[i] = range + mapped;
    grow();
  }
}

/* A longer request needs one part more, of which nothing is kept. */
static void growing_turn(void) {
  if (mapped < (PARTS + 2) * part_bytes)
    grow();
  MUST(cuMemsetD8Async(range + mapped - part_bytes, 7, part_bytes, stream));
}

static const struct pattern {
  const char *name;
  void (*take)(void); /* all buffers */
  void (*turn)(void); /* what the allocator does before a round; buffers may move, with what is in them */
} patterns[] = {
    {"arena", arena_take, arena_turn},       {"pool", pool_take, pool_turn},
    {"sleep", sleep_take, sleep_turn},       {"pages", pages_take, pages_turn},
    {"growing", growing_take, growing_turn},
};

static const struct pattern *pattern_named(const char *name) {
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    if (!strcmp(patterns[i].name, name))
      return &patterns[i];
  fail("%s: no such pattern; there are arena, pool, sleep, pages and growing", name);
}

static void add_one(void) {
  for (int i = 0; i < PARTS; i++)
    launch_add(&kernels, stream, at[i], part_bytes / sizeof(uint64_t), 1);
  MUST(cuStreamSynchronize(stream));
}

int main(int argc, char **argv) {
  CUcontext context;
  char line[64];
  uint64_t rounds = 0;
  const struct pattern *pattern = pattern_named(argc > 1 ? argv[1] : "");
  device = program_start(&context);
  kernels = kernels_load();
  size_t granularity;
  CUmemAllocationProp properties = on_device();
  MUST(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  part_bytes = (argument(argc, argv, 2, 256 * MIB) / PARTS + granularity - 1) / granularity * granularity;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  pattern->take();
  for (int i = 0; i < PARTS; i++)
    launch_fill(&kernels, stream, at[i], part_bytes / sizeof(uint64_t), (uint64_t)i);
  MUST(cuStreamSynchronize(stream));
  program_say("ready");
  for (; fgets(line, sizeof line, stdin); rounds++) {
    pattern->turn();
    add_one();
    program_say("done");
  }
  for (int i = 0; i < PARTS; i++) {
    uint64_t wrong = wrong_words(stream, at[i], part_bytes / sizeof(uint64_t), (uint64_t)i, rounds);
    if (wrong)
      fail("buffer %d has %llu wrong words", i, (unsigned long long)wrong);
  }
  program_say("ok");
  return 0;
}
