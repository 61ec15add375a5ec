/* bounded_pool.c - a pool of plain memory with a bound refuses what is beyond it, at once, whatever the card
 * has. */
#include <string.h>

#include "guest/guest.h"

#define MIB ((size_t)1 << 20)
#define BOUND (8 * MIB)
#define SOON_NS UINT64_C(2000000000)

int main(void) {
  struct gpu gpu;
  CUmemPoolProps properties;
  CUmemoryPool pool;
  CUdeviceptr first, second;
  gpu_start(&gpu, 0);
  memset(&properties, 0, sizeof properties);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
#if CUDA_VERSION >= 12020
  properties.maxSize = BOUND;
#endif
  MUST(cuMemPoolCreate(&pool, &properties));
  MUST(cuMemAllocFromPoolAsync(&first, BOUND / 2, pool, NULL));
  uint64_t begun_ns = now_ns();
  say("beyond: %s", result_name(cuMemAllocFromPoolAsync(&second, BOUND, pool, NULL)));
  say("soon: %d", now_ns() - begun_ns < SOON_NS);
  say("within: %s", result_name(cuMemAllocFromPoolAsync(&second, BOUND / 2, pool, NULL)));
  MUST(cuMemFreeAsync(first, NULL));
  MUST(cuMemFreeAsync(second, NULL));
  MUST(cuStreamSynchronize(NULL));
  MUST(cuMemPoolDestroy(pool));
  say("ok");
  return 0;
}
