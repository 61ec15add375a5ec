/*
 * exporter.c - exports memory while kernels use it. usage: exporter [running]
 *
 * Maps physical memory of several sizes: the library exports some of it as it is, and exchanges the rest. A
 * thread adds 1 to each word of it, again and again, while the main thread exports the handles. Then all of
 * it is checked, and the program says "ok". running: a long kernel runs meanwhile, and is not waited for.
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
static struct {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  uint64_t words;
} all[HANDLES];
static _Atomic uint64_t added;
static _Atomic bool done;

static void make_all(void) {
  for (int i = 0; i < HANDLES; i++) {
    MUST(gpu_create(&all[i].handle, sizes[i]));
    all[i].at = gpu_map(all[i].handle, sizes[i]);
    all[i].words = sizes[i] / sizeof(uint64_t);
    gpu_fill(&gpu, NULL, all[i].at, all[i].words, SEED);
  }
  MUST(cuCtxSynchronize());
}

static void *add_on(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  CUstream stream = gpu_stream();
  while (!atomic_load(&done)) {
    for (int i = 0; i < AHEAD * HANDLES; i++)
      gpu_add(&gpu, stream, all[i % HANDLES].at, all[i % HANDLES].words, 1);
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

static void export_beside_kernels(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, add_on, NULL);
  for (int i = 0; i < HANDLES; i++) {
    await_more();
    export(all[i].handle);
  }
  await_more();
  atomic_store(&done, true);
  pthread_join(thread, NULL);
  for (int i = 0; i < HANDLES; i++) {
    gpu_verify(all[i].at, all[i].words, SEED, atomic_load(&added));
    gpu_verify_exported(all[i].handle, all[i].words, SEED, atomic_load(&added));
  }
}

/* What need not be exchanged waits for no work. */
static void export_beside_a_long_kernel(void) {
  CUstream stream = gpu_stream();
  gpu_spin(&gpu, stream, LONG_NS);
  for (int i = 0; i < HANDLES; i++)
    if (sizes[i] <= PIECE_BYTES)
      export(all[i].handle);
  if (cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
    errx(1, "the export has waited for the kernel");
}

int main(int argc, char **argv) {
  gpu_start(&gpu, 0);
  make_all();
  if (argc > 1 && strcmp(argv[1], "running") == 0)
    export_beside_a_long_kernel();
  else
    export_beside_kernels();
  gpu_say("ok");
  _exit(0);
}
