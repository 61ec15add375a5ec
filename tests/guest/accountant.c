/*
 * accountant.c - allocates in each way that there is, and gives all of it back. What it asks for may be
 * refused for want of memory; what it has got must be usable, and a free must succeed.
 *
 * Says "holds BYTES" (no less than that it has), waits for a line, frees, some by the end of a context, says
 * "freed", waits for a line, finds nothing left on the card, and says "ok".
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim/sim.h"
#include "system/gpu.h"

#define MIB ((size_t)1 << 20)
#define PLAIN 6
#define ORDERED 4
#define ARRAYS 2
#define PHYSICAL 2
#define PHYSICAL_BYTES (2 * MIB)
#define SEED 3

static uint64_t held_bytes;
static CUcontext context, second;
static CUstream stream;
static struct gpu gpu;

static CUdeviceptr plain[PLAIN], ordered[ORDERED], left;
static CUarray arrays[ARRAYS];
static CUmipmappedArray levels;
static CUmemoryPool pool;
static uint64_t kept_bytes;
static struct {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  bool mapped;
} physical[PHYSICAL];

/* Refused for want of memory, it has got nothing. */
static bool got(CUresult result, const char *call, uint64_t bytes) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return false;
  gpu_must(result, call);
  held_bytes += bytes;
  return true;
}
#define GOT(call, bytes) got(call, #call, bytes)

static void use(CUdeviceptr at, size_t bytes) {
  gpu_fill(&gpu, stream, at, bytes / 8, SEED);
  MUST(cuStreamSynchronize(stream));
  gpu_verify(at, bytes / 8, SEED, 0);
}

static void take_plain(void) {
  static const size_t sizes[PLAIN] = {4096, 300, 3 * MIB, 9 * MIB};
  size_t pitch;
  for (int i = 0; i < 4; i++)
    if (GOT(cuMemAlloc(&plain[i], sizes[i]), sizes[i]))
      use(plain[i], sizes[i]);
    else
      plain[i] = 0;
  if (!GOT(cuMemAllocPitch(&plain[4], &pitch, 1000, 100, 4), 100000))
    plain[4] = 0;
  if (!GOT(cuMemAllocManaged(&plain[5], MIB, CU_MEM_ATTACH_GLOBAL), MIB))
    plain[5] = 0;
}

static void take_ordered(void) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  if (!GOT(cuMemPoolCreate(&pool, &props), 0))
    pool = NULL;
  for (int i = 0; i < ORDERED; i++) {
    bool from_pool = pool && i % 2;
    CUresult result = from_pool ? cuMemAllocFromPoolAsync(&ordered[i], MIB, pool, stream)
                                : cuMemAllocAsync(&ordered[i], MIB, stream);
    if (got(result, "cuMemAllocAsync", MIB))
      use(ordered[i], MIB);
    else
      ordered[i] = 0;
  }
}

static void take_arrays(void) {
  CUDA_ARRAY_DESCRIPTOR plane = {.Width = 262144, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUDA_ARRAY3D_DESCRIPTOR box = {.Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  for (int i = 0; i < ARRAYS; i++)
    if (!GOT(cuArrayCreate(&arrays[i], &plane), MIB))
      arrays[i] = NULL;
  if (!GOT(cuMipmappedArrayCreate(&levels, &box, 1), MIB))
    levels = NULL;
}

static void map(int i) {
  CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemAddressReserve(&physical[i].at, PHYSICAL_BYTES, 0, 0, 0));
  physical[i].mapped = GOT(cuMemMap(physical[i].at, PHYSICAL_BYTES, 0, physical[i].handle, 0), 0);
  if (!physical[i].mapped)
    return;
  MUST(cuMemSetAccess(physical[i].at, PHYSICAL_BYTES, &access, 1));
  use(physical[i].at, PHYSICAL_BYTES);
}

/* The first one's handle goes before its mapping; of the other one another handle is asked for. */
static void take_physical(void) {
  CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  for (int i = 0; i < PHYSICAL; i++) {
    if (!GOT(cuMemCreate(&physical[i].handle, PHYSICAL_BYTES, &kind, 0), PHYSICAL_BYTES)) {
      physical[i].handle = 0;
      continue;
    }
    map(i);
    if (i == 0 && physical[i].mapped) {
      MUST(cuMemRelease(physical[i].handle));
      physical[i].handle = 0;
      if (GOT(cuMemRetainAllocationHandle(&physical[i].handle, (void *)(uintptr_t)physical[i].at), 0))
        MUST(cuMemRelease(physical[i].handle));
      physical[i].handle = 0;
    }
  }
}

static void make_second(void) {
  MUST(cuCtxGetCurrent(&context));
#if CUDA_VERSION >= 13000
  MUST(cuCtxCreate(&second, NULL, 0, 0));
#else
  MUST(cuCtxCreate(&second, 0, 0));
#endif
  if (!GOT(cuMemAlloc(&left, 5 * MIB), 5 * MIB))
    left = 0;
  MUST(cuCtxPopCurrent(NULL));
}

/* Pools of unified memory keep what they have (src/memory/pools.c). Others have given it back by now. */
static uint64_t kept_bytes_of(CUmemoryPool of) {
  cuuint64_t bytes = 0;
  return of && cuMemPoolGetAttribute(of, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS ? bytes
                                                                                                       : 0;
}

static void give_back(void) {
  MUST(cuCtxDestroy(second));
  for (int i = 0; i < PLAIN; i++)
    if (plain[i])
      MUST(i == 2 ? cuMemFreeAsync(plain[i], stream) : cuMemFree(plain[i]));
  for (int i = 0; i < ORDERED; i++)
    if (ordered[i])
      MUST(i == 2 ? cuMemFree(ordered[i]) : cuMemFreeAsync(ordered[i], stream));
  MUST(cuStreamSynchronize(stream));
  CUmemoryPool standard;
  MUST(cuDeviceGetDefaultMemPool(&standard, 0));
  kept_bytes = kept_bytes_of(pool) + kept_bytes_of(standard);
  if (pool)
    MUST(cuMemPoolDestroy(pool));
  for (int i = 0; i < ARRAYS; i++)
    if (arrays[i])
      MUST(cuArrayDestroy(arrays[i]));
  if (levels)
    MUST(cuMipmappedArrayDestroy(levels));
  for (int i = 0; i < PHYSICAL; i++) {
    if (physical[i].mapped)
      MUST(cuMemUnmap(physical[i].at, PHYSICAL_BYTES));
    if (physical[i].handle)
      MUST(cuMemRelease(physical[i].handle));
    if (physical[i].at)
      MUST(cuMemAddressFree(physical[i].at, PHYSICAL_BYTES));
  }
}

static void check_nothing_is_left(void) {
  struct gs_sim_process seen;
  if (gs_sim_process_read(NULL, getpid(), 0, &seen) != 0 ||
      seen.pinned_bytes + seen.resident_bytes <= kept_bytes)
    return;
  printf("error wrong: %llu bytes are left\n", (unsigned long long)(seen.pinned_bytes + seen.resident_bytes));
  exit(1);
}

int main(void) {
  char line[64];
  gpu_start(&gpu, 0);
  stream = gpu_stream();
  make_second();
  take_plain();
  take_ordered();
  take_arrays();
  take_physical();
  snprintf(line, sizeof line, "holds %llu", (unsigned long long)held_bytes);
  gpu_say(line);
  gpu_await_line();
  give_back();
  MUST(cuStreamDestroy(stream));
  MUST(cuDevicePrimaryCtxReset(0));
  check_nothing_is_left();
  gpu_say("freed");
  gpu_await_line();
  gpu_say("ok");
  return 0;
}
