/*
 * tabler.c - has a table in unified memory that it wants in host memory, and computes with other memory.
 * usage: tabler HOW BYTES; HOW names the call that says so. Says "round N"; at the end of its input it checks
 * all of it and says "ok".
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "sim/kernels.h"

#define OWN_WORDS (UINT64_C(16) << 17) /* 16 MiB */
#define PART_WORDS 512
#define SEED 5

static uint64_t words;
static CUdeviceptr table, own;

static void *call_of(const char *name, int version, cuuint64_t flags) {
  void *call = NULL;
  MUST(cuGetProcAddress(name, &call, version, flags, NULL));
  return call;
}

/* Each version of the calls, whatever this program is built with. */
static void want_in_host_memory(const char *how) {
  size_t bytes = words * sizeof(uint64_t), first = 0;
  CUmemLocation host = {.type = (CUmemLocationType)2}; /* not all headers have it */
  if (strcmp(how, "advised") == 0) {
    CUresult (*call)(CUdeviceptr, size_t, CUmem_advise, CUdevice) = call_of("cuMemAdvise", 8000, 0);
    MUST(call(table, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
  } else if (strcmp(how, "advised_at") == 0) {
    CUresult (*call)(CUdeviceptr, size_t, CUmem_advise, CUmemLocation) = call_of("cuMemAdvise", 12020, 0);
    MUST(call(table, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
  } else if (strncmp(how, "moved", 5) == 0 && !strstr(how, "_at")) {
    CUresult (*call)(CUdeviceptr, size_t, CUdevice, CUstream) =
        call_of("cuMemPrefetchAsync", 8000, strstr(how, "_thread") ? 2 : 0);
    MUST(call(table, bytes, CU_DEVICE_CPU, NULL));
  } else if (strncmp(how, "moved_at", 8) == 0) {
    CUresult (*call)(CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream) =
        call_of("cuMemPrefetchAsync", 12020, strstr(how, "_thread") ? 2 : 0);
    MUST(call(table, bytes, host, 0, NULL));
  } else {
    CUresult (*call)(CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, unsigned long long,
                     CUstream) = call_of("cuMemPrefetchBatchAsync", 13000, 0);
    MUST(call(&table, &bytes, 1, &host, &first, 1, 0, gpu_stream()));
  }
  MUST(cuCtxSynchronize());
}

static int goes_on(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  return poll(&input, 1, 0) == 0;
}

int main(int argc, char **argv) {
  struct gpu gpu;
  uint64_t rounds = 0;
  if (argc != 3)
    return 2;
  words = strtoull(argv[2], NULL, 0) / sizeof(uint64_t);
  gpu_start(&gpu, 0);
  CUstream stream = gpu_stream();
  MUST(cuMemAllocManaged(&table, words * sizeof(uint64_t), CU_MEM_ATTACH_GLOBAL));
  uint64_t *entries = (uint64_t *)(uintptr_t)table;
  want_in_host_memory(argv[1]);
  for (uint64_t i = 0; i < words; i++)
    entries[i] = gs_hash(SEED, i);
  own = gpu_alloc(OWN_WORDS);
  gpu_fill(&gpu, stream, own, OWN_WORDS, SEED);
  for (; goes_on(); rounds++) {
    char line[32];
    gpu_add(&gpu, stream, own, OWN_WORDS, 1);
    gpu_add(&gpu, stream, table, PART_WORDS, 1);
    MUST(cuStreamSynchronize(stream));
    snprintf(line, sizeof line, "round %llu", (unsigned long long)rounds + 1);
    gpu_say(line);
  }
  gpu_verify(own, OWN_WORDS, SEED, rounds);
  gpu_verify(table, PART_WORDS, SEED, rounds);
  for (uint64_t i = PART_WORDS; i < words; i++)
    if (entries[i] != gs_hash(SEED, i))
      gpu_must(CUDA_ERROR_UNKNOWN, "the table is not what it should be");
  gpu_say("ok");
  return 0;
}
