/* test_sim_memory.c - allocations, attributes, pools, copies of all shapes. */
#include "test_sim.h"

static struct gpu gpu;

/* ---- attributes ---- */

static void test_attributes(void) {
  CUdeviceptr plain, unified, base;
  void *host;
  uint64_t value = 0;
  size_t bytes;
  OK(cuMemAlloc(&plain, 4 * MIB));
  OK(cuMemAllocManaged(&unified, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemAllocHost(&host, 4096));
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
  CHECK_EQ(value, 0);
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, unified + 100));
  CHECK_EQ(value, 1);
  CHECK_EQ(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, plain), CUDA_ERROR_INVALID_VALUE);
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, unified));
  CHECK_EQ(value, unified);
  value = 0;
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host));
  CHECK_EQ(value, CU_MEMORYTYPE_HOST);
  CHECK_EQ(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&value),
           CUDA_ERROR_INVALID_VALUE);
  OK(cuMemGetAddressRange(&base, &bytes, plain + 100));
  CHECK_EQ(base, plain);
  CHECK_EQ(bytes, 4 * MIB);
  CUipcMemHandle handle;
  OK(cuIpcGetMemHandle(&handle, plain));
  CHECK_EQ(cuIpcGetMemHandle(&handle, unified), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFreeHost(host));
  OK(cuMemFree(plain));
  OK(cuMemFree(unified));
}

static void test_sync_memops(void) {
  CUdeviceptr plain, unified;
  unsigned value = 0, managed = 0xffffffff;
  const unsigned one = 1;
  OK(cuMemAlloc(&plain, 4 * MIB));
  OK(cuMemAllocManaged(&unified, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, unified));
  CHECK_EQ(value, 1);
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain));
  CHECK_EQ(value, 0);
  OK(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain + 100));
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain));
  CHECK_EQ(value, 1);
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
  CHECK_EQ(managed, 0); /* all 4 bytes are written */
  OK(cuMemFree(plain));
  OK(cuMemFree(unified));
}

static void test_edges(void) {
  CUdeviceptr at = 1, small[2];
  size_t pitch;
  CHECK_EQ(cuMemAlloc(&at, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemAllocManaged(&at, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemAllocAsync(&at, 0, NULL));
  CHECK_EQ(at, 0);
  CHECK_EQ(cuMemAlloc(NULL, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemAlloc(&at, UINT64_C(1) << 40), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFree(0));
  CHECK_EQ(cuMemFree(0x1000), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemAlloc(&small[0], 1));
  OK(cuMemAlloc(&small[1], 1));
  CHECK_EQ(small[1] - small[0], 512);
  CHECK_EQ(cuMemFree(small[0] + 256), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree(small[0]));
  OK(cuMemFree(small[1]));
  OK(cuMemAllocPitch(&at, &pitch, 513, 4, 4));
  CHECK_EQ(pitch, 1024);
  OK(cuMemFree(at));
  OK(cuMemAllocManaged(&at, MIB, CU_MEM_ATTACH_GLOBAL));
  CHECK_EQ(cuMemFreeAsync(at, NULL), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuMemFree(at));
}

/* ---- pools ---- */

static uint64_t pool_value(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value;
  OK(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

static void test_pool(void) {
  CUmemoryPool pool;
  CUdeviceptr at, again;
  cuuint64_t forever = UINT64_MAX, none = 0;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &forever));
  OK(cuMemAllocAsync(&at, 64 * MIB, NULL));
  OK(fill(&gpu, NULL, at, 64 * MIB, 1));
  OK(cuMemFreeAsync(at, NULL));
  CHECK_EQ(cuMemFreeAsync(at, NULL), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamSynchronize(NULL));
  CHECK_EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
  CHECK_EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
  OK(cuMemAllocAsync(&again, 32 * MIB, NULL));
  CHECK_EQ(again, at);
  OK(cuMemFreeAsync(again, NULL));
  for (int i = 0; i < 20; i++) { /* more than the card has, if frees in the queue did not count */
    OK(cuMemAllocAsync(&at, 64 * MIB, NULL));
    OK(cuMemFreeAsync(at, NULL));
  }
  OK(cuStreamSynchronize(NULL));
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
  OK(cuMemPoolTrimTo(pool, 0));
  CHECK_EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}

static void test_managed_pool(void) {
#if CUDA_VERSION >= 13000
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUmemoryPool pool;
  CUdeviceptr at;
  uint64_t managed = 0;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemAllocFromPoolAsync(&at, 4 * MIB, pool, NULL));
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
  CHECK_EQ(managed, 1);
  CHECK_EQ(cuMemAdvise(at, 4 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, props.location),
           CUDA_ERROR_NOT_SUPPORTED);
  OK(fill(&gpu, NULL, at, 4 * MIB, 2));
  OK(cuMemPrefetchAsync(at, 4 * MIB, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}, 0, NULL));
  CHECK_EQ(mismatches(&gpu, at, 4 * MIB, 2), 0);
  CUdeviceptr gone[] = {at};
  size_t sizes[] = {4 * MIB};
  OK(cuMemDiscardBatchAsync(gone, sizes, 1, 0, CU_STREAM_PER_THREAD));
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  CHECK(mismatches(&gpu, at, 4 * MIB, 2) > 0);
  OK(cuMemFreeAsync(at, NULL));
  OK(cuStreamSynchronize(NULL));
  OK(cuMemPoolDestroy(pool));
#endif
}

/* ---- copies ---- */

static void test_small_source_may_be_reused(void) {
  CUdeviceptr at;
  CUstream stream;
  char bytes[64], back[64];
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemAlloc(&at, 64));
  memset(bytes, 1, sizeof(bytes));
  OK(spin(&gpu, stream, 10 * NS_PER_MS));
  OK(cuMemcpyHtoDAsync(at, bytes, sizeof(bytes), stream));
  memset(bytes, 2, sizeof(bytes));
  OK(cuMemcpyDtoHAsync(back, at, sizeof(back), stream));
  memset(bytes, 1, sizeof(bytes));
  CHECK(memcmp(bytes, back, sizeof(back)) == 0);
  OK(cuMemFree(at));
  OK(cuStreamDestroy(stream));
}

static void test_plane_and_array(void) {
  enum { WIDTH = 40, HEIGHT = 7 };
  unsigned char source[WIDTH * HEIGHT], target[HEIGHT][64] = {0};
  CUdeviceptr at;
  CUarray array;
  size_t pitch;
  for (size_t i = 0; i < sizeof(source); i++)
    source[i] = (unsigned char)(i * 7);
  OK(cuMemAllocPitch(&at, &pitch, WIDTH, HEIGHT, 4));
  CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = source,
                        .srcPitch = WIDTH,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = at,
                        .dstPitch = pitch,
                        .WidthInBytes = WIDTH,
                        .Height = HEIGHT};
  OK(cuMemcpy2D(&copy));
  CUDA_ARRAY_DESCRIPTOR shape = {
      .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
  OK(cuArrayCreate(&array, &shape));
  CUDA_MEMCPY2D into = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                        .srcDevice = at,
                        .srcPitch = pitch,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = array,
                        .WidthInBytes = WIDTH,
                        .Height = HEIGHT};
  OK(cuMemcpy2DAsync(&into, NULL));
  CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                       .srcArray = array,
                       .srcXInBytes = 8,
                       .srcY = 2,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = target,
                       .dstPitch = sizeof(target[0]),
                       .WidthInBytes = WIDTH - 8,
                       .Height = HEIGHT - 2};
  OK(cuMemcpy2D(&out));
  for (size_t y = 0; y < HEIGHT - 2; y++)
    CHECK(memcmp(target[y], &source[(y + 2) * WIDTH + 8], WIDTH - 8) == 0);
  OK(cuArrayDestroy(array));
  OK(cuMemFree(at));
}

static void test_sets(void) {
  uint32_t words[8];
  unsigned short halves[4];
  CUdeviceptr at;
  OK(cuMemAlloc(&at, sizeof(words)));
  OK(cuMemsetD32(at, 0x01020304, 8));
  OK(cuMemsetD16(at + 8, 0xabcd, 2));
  OK(cuMemcpyDtoH(words, at, sizeof(words)));
  CHECK_EQ(words[1], 0x01020304);
  CHECK_EQ(words[2], 0xabcdabcd);
  OK(cuMemcpyDtoH(halves, at + 8, sizeof(halves)));
  CHECK_EQ(halves[2], 0x0304);
  OK(cuMemFree(at));
}

int main(void) {
  use_card("small");
  gpu_open(&gpu);
  test_attributes();
  test_sync_memops();
  test_edges();
  test_pool();
  test_managed_pool();
  test_small_source_may_be_reused();
  test_plane_and_array();
  test_sets();
  gpu_close(&gpu);
  return 0;
}
