/* host_pool.c - pools of host memory take nothing of the card, however much comes out of them. */
#include <stdlib.h>
#include <string.h>

#include "guest/guest.h"
#include "sim/kernels.h"

#define MIB ((size_t)1 << 20)
#define PART (48 * MIB) /* three quarters of the card */
#define PARTS 3

/* Numbers, because the headers before CUDA 12.3 lack some. */
#define HOST ((CUmemLocationType)2)
#define HOST_NUMA ((CUmemLocationType)3)

static size_t unused_bytes(void) {
  size_t unused, total;
  MUST(cuMemGetInfo(&unused, &total));
  return unused;
}

static void use(const struct gpu *gpu, CUdeviceptr at, uint64_t seed) {
  uint64_t words = MIB / sizeof(uint64_t);
  unsigned type = 0;
  MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
  say("memory type %u", type);
  gpu_fill(gpu, NULL, at, words, seed);
  MUST(cuCtxSynchronize());
  uint64_t *host = malloc(MIB), wrong = 0;
  MUST(cuMemcpy((CUdeviceptr)(uintptr_t)host, at, MIB));
  for (uint64_t i = 0; i < words; i++)
    wrong += host[i] != gs_hash(seed, i);
  say("%llu words are wrong", (unsigned long long)wrong);
  free(host);
}

static void try_pool(const struct gpu *gpu, CUmemLocationType type) {
  CUmemPoolProps properties;
  CUmemoryPool pool;
  CUdeviceptr at[PARTS];
  memset(&properties, 0, sizeof properties);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = type;
  MUST(cuMemPoolCreate(&pool, &properties));
  CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemPoolSetAccess(pool, &access, 1));
  size_t before = unused_bytes();
  for (int i = 0; i < PARTS; i++) {
    CUresult result = cuMemAllocFromPoolAsync(&at[i], PART, pool, NULL);
    say("part %d: %s", i, result_name(result));
    if (result != CUDA_SUCCESS)
      exit(1);
    use(gpu, at[i], (uint64_t)i);
  }
  say("the card has %zu bytes less", before - unused_bytes());
  CUdeviceptr card = gpu_alloc(PART / sizeof(uint64_t));
  MUST(cuMemFree(card));
  for (int i = 0; i < PARTS; i++)
    MUST(cuMemFreeAsync(at[i], NULL));
  MUST(cuStreamSynchronize(NULL));
  MUST(cuMemPoolDestroy(pool));
}

static void try_physical(void) {
  CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = HOST_NUMA}};
  CUmemGenericAllocationHandle handles[PARTS];
  size_t before = unused_bytes();
  for (int i = 0; i < PARTS; i++)
    MUST(cuMemCreate(&handles[i], PART, &properties, 0));
  say("the card has %zu bytes less", before - unused_bytes());
  for (int i = 0; i < PARTS; i++)
    MUST(cuMemRelease(handles[i]));
}

int main(void) {
  struct gpu gpu;
  gpu_start(&gpu, 0);
  try_pool(&gpu, HOST);
  try_pool(&gpu, HOST_NUMA);
  try_physical();
  say("ok");
  return 0;
}
