/*
 * bench_hash.c - how fast the library hashes memory on the card (src/memory/swap/hash.c), beside the speed of
 * the card's memory: GiB of plain memory, filled with changing words, hashed in batches as the library does;
 * beside the same bytes copied within the card, which reads and writes them.
 *
 * The hash's own source is linked in; libcuda is opened by this program, and libunified has no part in it.
 */
#include <dlfcn.h>
#include <string.h>

#include "arguments.h"
#include "common/clock.h"
#include "driver/driver.h"
#include "memory/swap/hash.h"
#include "quantile.h"

#define ROUNDS 7
#define SKIPPED 77
#define TARGET_MS_OF_16_GIB 8.0
#define GIB (UINT64_C(1) << 30)

struct driver driver;

static void find(void *libcuda, const char *name, void *field) {
  void *function = dlsym(libcuda, name);
  memcpy(field, &function, sizeof function);
}

#define FIND(name) find(libcuda, #name, &driver.name)

static bool open_driver(void) {
  void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
  CUcontext context;
  if (!libcuda)
    return false;
  FIND(cuInit);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxPushCurrent_v2);
  FIND(cuCtxGetCurrent);
  FIND(cuCtxSynchronize);
  FIND(cuMemAlloc_v2);
  FIND(cuMemsetD32_v2);
  FIND(cuMemcpyDtoDAsync_v2);
  FIND(cuMemHostAlloc);
  FIND(cuMemHostGetDevicePointer_v2);
  FIND(cuModuleLoadData);
  FIND(cuModuleGetFunction);
  FIND(cuStreamCreate);
  FIND(cuEventCreate);
  FIND(cuEventRecord);
  FIND(cuEventSynchronize);
  FIND(cuLaunchKernel);
  return driver.cuInit(0) == CUDA_SUCCESS && driver.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
         driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
}

_Noreturn static void fail(const char *what, CUresult result) {
  fprintf(stderr, "bench_hash: %s: CUDA error %d\n", what, (int)result);
  exit(EXIT_FAILURE);
}

/* Of all of it, in batches of as many pieces as are hashed at the same time. */
static double hash_ms(struct hasher *hasher, CUdeviceptr at, uint64_t bytes) {
  static struct hash hashes[HASH_MOST];
  uint64_t start_ns = clock_now_ns();
  for (uint64_t from = 0; from < bytes;) {
    unsigned count = 0;
    for (; count < HASH_MOST && from < bytes; count++, from += HASH_MOST_BYTES)
      hasher_add(hasher, at + from, bytes - from < HASH_MOST_BYTES ? bytes - from : HASH_MOST_BYTES);
    CUresult result = hasher_begin(hasher);
    if (result == CUDA_SUCCESS)
      result = hasher_finish(hasher, hashes);
    if (result != CUDA_SUCCESS)
      fail("the hash", result);
    for (unsigned i = 0; i < count; i++)
      if (!hashes[i].any)
        fail("a piece counts as zero", CUDA_ERROR_UNKNOWN);
  }
  return (double)(clock_now_ns() - start_ns) / 1e6;
}

static double copy_ms(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  uint64_t start_ns = clock_now_ns();
  CUresult result = driver.cuMemcpyDtoDAsync_v2(to, from, bytes, NULL);
  if (result == CUDA_SUCCESS)
    result = driver.cuCtxSynchronize();
  if (result != CUDA_SUCCESS)
    fail("a copy", result);
  return (double)(clock_now_ns() - start_ns) / 1e6;
}

int main(int argc, char **argv) {
  uint64_t gib = 16;
  const struct argument known[] = {{"gib", .number = &gib, .least = 1, .most = 64}, {.name = NULL}};
  arguments_read(argc, argv,
                 "usage: bench_hash [--json] [--gib N]\n"
                 "\n"
                 "How long the library's hash of N GiB (default 16) takes on the first GPU.\n"
                 "Exit status: 0; 1: something broke; 2 usage; 77 no GPU.\n",
                 known);
  if (!open_driver()) {
    fprintf(stderr, "bench_hash: no GPU here: skipped\n");
    return SKIPPED;
  }
  struct hasher hasher = {.context = NULL};
  uint64_t bytes = gib * GIB;
  double hashing[ROUNDS], copying[ROUNDS];
  CUdeviceptr at;
  CUresult result = driver.cuMemAlloc_v2(&at, bytes);
  if (result == CUDA_SUCCESS)
    result = driver.cuMemsetD32_v2(at, 0x9e3779b9, bytes / 4);
  if (result != CUDA_SUCCESS)
    fail("memory", result);
  if (!hasher_load(&hasher, 0))
    fail("the kernel does not load", CUDA_ERROR_UNKNOWN);
  hash_ms(&hasher, at, bytes);
  for (int i = 0; i < ROUNDS; i++) {
    hashing[i] = hash_ms(&hasher, at, bytes);
    copying[i] = copy_ms(at, at + bytes / 2, bytes / 2);
  }
  double ms = median(hashing, ROUNDS), copy = median(copying, ROUNDS);
  report_begin();
  report("hash_bytes", (double)gib, "GiB");
  report("hash_ms", ms, "ms");
  report("hash_gb_s", (double)bytes / ms / 1e6, "GB/s");
  report("hash_over_copy", copy / ms, ""); /* the copy reads half of the bytes and writes as many */
  report_verdict("hash_ms_of_16_gib", ms * 16 / (double)gib, TARGET_MS_OF_16_GIB,
                 ms * 16 / (double)gib <= TARGET_MS_OF_16_GIB, true);
  report_end();
  return 0;
}
