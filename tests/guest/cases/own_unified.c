/* own_unified.c - a program's own unified memory may be larger than the card, beside other memory. */
#include "guest.h"

#define MIB (UINT64_C(1) << 20)
#define WORDS(mib) ((mib)*MIB / sizeof(uint64_t))

/* What can't be unified comes as well: unified memory makes way. */
static void make_physical(void) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  MUST(cuMemCreate(&handle, 4 * MIB, &prop, 0));
  MUST(cuMemRelease(handle));
  say("physical memory came");
}

static void make_array(void) {
  CUDA_ARRAY_DESCRIPTOR descriptor = {
      .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUarray array;
  MUST(cuArrayCreate(&array, &descriptor));
  MUST(cuArrayDestroy(array));
  say("an array came");
}

int main(void) {
  CUdeviceptr own = 0, more = 0, plain, later;
  size_t left, total;
  struct gpu gpu;
  gpu_start(&gpu, 0);
  plain = gpu_alloc(WORDS(10));
  gpu_fill(&gpu, NULL, plain, WORDS(10), 1);
  CUresult result = cuMemAllocManaged(&own, 50 * MIB, CU_MEM_ATTACH_GLOBAL);
  say("50 MiB: %s", result_name(result));
  result = cuMemAllocManaged(&more, 20 * MIB, CU_MEM_ATTACH_GLOBAL);
  say("20 MiB more: %s", result_name(result));
  gpu_fill(&gpu, NULL, own, WORDS(50), 2);
  gpu_fill(&gpu, NULL, more, WORDS(20), 3);
  MUST(cuCtxSynchronize());
  later = gpu_alloc(WORDS(10));
  gpu_fill(&gpu, NULL, later, WORDS(10), 4);
  for (int round = 0; round < 3; round++) {
    gpu_add(&gpu, NULL, own, WORDS(50), 1);
    gpu_add(&gpu, NULL, plain, WORDS(10), 1);
    MUST(cuCtxSynchronize());
    make_physical();
    make_array();
  }
  gpu_verify(plain, WORDS(10), 1, 3);
  gpu_verify(own, WORDS(50), 2, 3);
  gpu_verify(more, WORDS(20), 3, 0);
  gpu_verify(later, WORDS(10), 4, 0);
  MUST(cuMemGetInfo(&left, &total));
  say("there is as much left as there can be: %d", left <= total);
  MUST(cuMemFree(own));
  MUST(cuMemFree(more));
  MUST(cuMemFree(plain));
  MUST(cuMemFree(later));
  say("ok");
  return 0;
}
