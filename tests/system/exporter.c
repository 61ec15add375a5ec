/*
 * exporter.c - exports memory while another thread's kernels use it. usage: exporter [running]
 *
 * Maps physical memory of several sizes, one behind the other: the library exports some of it as it is,
 * and exchanges the rest. A thread adds 1 to each word of it, again
 * and again, while the main thread exports the handles. Then all of it is checked, and the program says "ok".
 */
#include <err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

#define HANDLES 4
#define SEED 5
#define PIECE_BYTES (UINT64_C(32) << 20) /* what the library exports as it is is no larger */
#define LONG_NS (UINT64_C(30) * 1000 * 1000 * 1000)
#define AHEAD 4 /* launches that are not waited for */

static const uint64_t sizes[HANDLES] = {UINT64_C(2) << 20, UINT64_C(64) << 20, UINT64_C(32) << 20,
                                        UINT64_C(48) << 20};
static struct gpu gpu;
static CUdeviceptr at;
static uint64_t words;
static _Atomic uint64_t added;
static _Atomic bool done;

static void map_all(CUmemGenericAllocationHandle *handles) {
  const CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  uint64_t bytes = 0;
  for (int i = 0; i < HANDLES; i++)
    bytes += sizes[i];
  MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
  CUdeviceptr end = at;
  for (int i = 0; i < HANDLES; end += sizes[i++]) {
    MUST(cuMemCreate(&handles[i], sizes[i], &kind, 0));
    MUST(cuMemMap(end, sizes[i], 0, handles[i], 0));
  }
  MUST(cuMemSetAccess(at, bytes, &access, 1));
  words = bytes / sizeof(uint64_t);
}

static void *add_on(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  CUstream stream = gpu_stream();
  while (!atomic_load(&done)) {
    for (int i = 0; i < AHEAD; i++)
      gpu_add(&gpu, stream, at, words, 1);
    MUST(cuStreamSynchronize(stream));
    atomic_fetch_add(&added, AHEAD);
  }
  return unused;
}

static void await_more(void) {
  for (uint64_t before = atomic_load(&added); atomic_load(&added) == before;)
    usleep(100);
}

static void export(CUmemGenericAllocationHandle handle) {
  int fd;
  MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
}

static void export_all_beside_kernels(const CUmemGenericAllocationHandle *handles) {
  pthread_t thread;
  pthread_create(&thread, NULL, add_on, NULL);
  for (int i = 0; i < HANDLES; i++) {
    await_more();
    export(handles[i]);
  }
  await_more();
  atomic_store(&done, true);
  pthread_join(thread, NULL);
  gpu_verify(at, words, SEED, atomic_load(&added));
}

/* What need not be exchanged does not wait for work. */
static void export_beside_a_long_kernel(const CUmemGenericAllocationHandle *handles) {
  CUstream stream = gpu_stream();
  gpu_spin(&gpu, stream, LONG_NS);
  for (int i = 0; i < HANDLES; i++)
    if (sizes[i] <= PIECE_BYTES)
      export(handles[i]);
  if (cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
    errx(1, "the export has waited for the kernel");
}

int main(int argc, char **argv) {
  CUmemGenericAllocationHandle handles[HANDLES];
  gpu_start(&gpu, 0);
  map_all(handles);
  gpu_fill(&gpu, NULL, at, words, SEED);
  MUST(cuCtxSynchronize());
  if (argc > 1 && strcmp(argv[1], "running") == 0)
    export_beside_a_long_kernel(handles);
  else
    export_all_beside_kernels(handles);
  gpu_say("ok");
  _exit(0);
}
