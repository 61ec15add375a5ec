/* pools.c - managed memory pools (CUDA 13): what they can do and what they cost beside the default pool. */
#include "probe.h"

static double alloc_cycle_us(CUmemoryPool pool, size_t bytes, CUstream stream, int rounds) {
  CUdeviceptr at;
  for (int i = 0; i < 3; i++) {
    if (cuMemAllocFromPoolAsync(&at, bytes, pool, stream) != CUDA_SUCCESS)
      return -1;
    cuMemFreeAsync(at, stream);
  }
  cuStreamSynchronize(stream);
  uint64_t start = clock_now_ns();
  for (int i = 0; i < rounds; i++) {
    if (cuMemAllocFromPoolAsync(&at, bytes, pool, stream) != CUDA_SUCCESS)
      return -1;
    cuMemFreeAsync(at, stream);
  }
  cuStreamSynchronize(stream);
  return (double)(clock_now_ns() - start) / 1e3 / rounds;
}

static void print_costs(const char *name, CUmemoryPool pool, CUstream stream) {
  uint64_t forever = UINT64_MAX, none = 0;
  TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &forever));
  printf("  %s alloc+free async, threshold max: 1 MiB %.2f us, 64 MiB %.2f us\n", name,
         alloc_cycle_us(pool, MIB, stream, 500), alloc_cycle_us(pool, 64 * MIB, stream, 500));
  cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none);
  cuMemPoolTrimTo(pool, 0);
  printf("  %s the same, threshold 0: 1 MiB %.2f us, 64 MiB %.2f us\n", name,
         alloc_cycle_us(pool, MIB, stream, 50), alloc_cycle_us(pool, 64 * MIB, stream, 50));
  cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &forever);
}

static void print_pool_attributes(const char *name, CUmemoryPool pool) {
  printf("  %s attributes:", name);
  for (int a = 1; a <= 8; a++) {
    uint64_t value = 0;
    CUresult result = cuMemPoolGetAttribute(pool, (CUmemPool_attribute)a, &value);
    printf(" %d=%s/%#lx", a, result == CUDA_SUCCESS ? "ok" : result_name(result), (long)value);
  }
  putchar('\n');
}

static void print_hints(const struct probe *p, CUdeviceptr at, size_t bytes) {
  CUmemLocation card = location_device(p), host = location_host();
  printf("  pool pointer: advise preferred %s",
         result_name(cuMemAdvise(at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, card)));
  printf(", accessed-by %s", result_name(cuMemAdvise(at, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, card)));
  printf(", prefetch to host %s", result_name(cuMemPrefetchAsync(at, bytes, host, 0, p->stream)));
  printf(", to card %s", result_name(cuMemPrefetchAsync(at, bytes, card, 0, p->stream)));
  printf(", sync %s", result_name(cuStreamSynchronize(p->stream)));
  printf(", cuMemFree %s\n", result_name(cuMemFree(at)));
}

static void print_capture(CUmemoryPool pool, const char *name, CUstream stream) {
  CUdeviceptr at = 0;
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  TRY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUresult alloc = pool ? cuMemAllocFromPoolAsync(&at, MIB, pool, stream) : cuMemAllocAsync(&at, MIB, stream);
  CUresult set = alloc ? alloc : cuMemsetD8Async(at, 1, MIB, stream);
  CUresult freed = alloc ? alloc : cuMemFreeAsync(at, stream);
  CUresult end = cuStreamEndCapture(stream, &graph);
  CUresult made = end ? end : cuGraphInstantiate(&exec, graph, 0);
  CUresult run = made ? made : cuGraphLaunch(exec, stream);
  printf("  capture, %s: alloc %s, memset %s, free %s, end %s, instantiate %s, launch %s, sync %s\n", name,
         result_name(alloc), result_name(set), result_name(freed), result_name(end), result_name(made),
         result_name(run), result_name(cuStreamSynchronize(stream)));
}

static void print_set_pool(const struct probe *p, CUmemoryPool pool) {
  CUmemLocation card = location_device(p);
  CUmemoryPool shown = NULL;
  printf("  cuDeviceSetMemPool(managed pool): %s\n", result_name(cuDeviceSetMemPool(p->device, pool)));
  CUresult result = cuMemGetDefaultMemPool(&shown, &card, CU_MEM_ALLOCATION_TYPE_MANAGED);
  printf("  cuMemGetDefaultMemPool(device, MANAGED): %s\n", result_name(result));
  CUmemPoolProps roaming = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_NONE}};
  printf("  cuMemPoolCreate(MANAGED, no location): %s\n", result_name(cuMemPoolCreate(&shown, &roaming)));
}

void probe_pools(struct probe *p) {
  CUmemoryPool pool = NULL, plain = NULL;
  CUdeviceptr at = 0;
  CUdevice device = p->device;
  CUresult result = managed_pool(p, &pool);
  printf("  cuMemPoolCreate(MANAGED, device): %s\n", result_name(result));
  TRY(cuDeviceGetDefaultMemPool(&plain, device));
  print_costs("default pool", plain, p->stream);
  print_capture(NULL, "default pool", p->stream);
  if (result != CUDA_SUCCESS)
    return;
  print_costs("managed pool", pool, p->stream);
  print_pool_attributes("default pool", plain);
  print_pool_attributes("managed pool", pool);
  if (TRY(cuMemAllocFromPoolAsync(&at, 64 * MIB, pool, p->stream)) == CUDA_SUCCESS)
    print_hints(p, at, 64 * MIB);
  print_capture(pool, "managed pool", p->stream);
  print_set_pool(p, pool);
  uint64_t start = clock_now_ns();
  printf("  cuMemAllocManaged+cuMemFree 64 MiB:");
  for (int i = 0; i < 200; i++) {
    TRY(cuMemAllocManaged(&at, 64 * MIB, CU_MEM_ATTACH_GLOBAL));
    cuMemFree(at);
  }
  printf(" %.2f us\n", (double)(clock_now_ns() - start) / 1e3 / 200);
}
