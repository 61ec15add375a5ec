/*
 * exporter.c - exports memory while another thread's kernels use it. usage: exporter
 *
 * Maps physical memory of several handles, one behind the other. A thread adds 1 to each word of it, again
 * and again, while the main thread exports the handles. Then all of it is checked, and the program says "ok".
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "gpu.h"

#define HANDLES 4
#define HANDLE_BYTES                                                                                         \
  (UINT64_C(32) << 20) /* smaller ones the simulated driver exports while nothing runs only */
#define WORDS (HANDLES * HANDLE_BYTES / sizeof(uint64_t))
#define SEED 5
#define AHEAD 4 /* launches that are not waited for */

static struct gpu gpu;
static CUdeviceptr at;
static _Atomic uint64_t added;
static _Atomic bool done;

static void map_all(CUmemGenericAllocationHandle *handles) {
  const CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemAddressReserve(&at, HANDLES * HANDLE_BYTES, 0, 0, 0));
  for (int i = 0; i < HANDLES; i++) {
    MUST(cuMemCreate(&handles[i], HANDLE_BYTES, &kind, 0));
    MUST(cuMemMap(at + (CUdeviceptr)i * HANDLE_BYTES, HANDLE_BYTES, 0, handles[i], 0));
  }
  MUST(cuMemSetAccess(at, HANDLES * HANDLE_BYTES, &access, 1));
}

static void *add_on(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  CUstream stream = gpu_stream();
  while (!atomic_load(&done)) {
    for (int i = 0; i < AHEAD; i++)
      gpu_add(&gpu, stream, at, WORDS, 1);
    MUST(cuStreamSynchronize(stream));
    atomic_fetch_add(&added, AHEAD);
  }
  return unused;
}

static void await_more(void) {
  for (uint64_t before = atomic_load(&added); atomic_load(&added) == before;)
    usleep(100);
}

int main(void) {
  CUmemGenericAllocationHandle handles[HANDLES];
  pthread_t thread;
  gpu_start(&gpu, 0);
  map_all(handles);
  gpu_fill(&gpu, NULL, at, WORDS, SEED);
  MUST(cuCtxSynchronize());
  pthread_create(&thread, NULL, add_on, NULL);
  for (int i = 0; i < HANDLES; i++) {
    int fd;
    await_more();
    MUST(cuMemExportToShareableHandle(&fd, handles[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
  }
  await_more();
  atomic_store(&done, true);
  pthread_join(thread, NULL);
  gpu_verify(at, WORDS, SEED, atomic_load(&added));
  gpu_say("ok");
  return 0;
}
