/* pieces.c - device memory by the piece (reserve, create, map, set access), and host memory to hold it. */
#include "pieces.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

CUresult pieces_reserve(struct pieces *s, const struct probe *p, size_t size, size_t bytes) {
  *s = (struct pieces){.size = size, .count = bytes / size, .location = location_device(p)};
  s->piece = calloc(s->count, sizeof(*s->piece));
  return s->piece ? TRY(cuMemAddressReserve(&s->at, bytes, 0, 0, 0)) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUdeviceptr piece_at(const struct pieces *s, size_t i) { return s->at + i * s->size; }

CUresult piece_create(struct pieces *s, size_t i) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = s->location};
  CUresult result = TRY(cuMemCreate(&s->piece[i].handle, s->size, &prop, 0));
  s->piece[i].created = result == CUDA_SUCCESS;
  return result;
}

CUresult piece_map(struct pieces *s, size_t i) {
  CUresult result = TRY(cuMemMap(piece_at(s, i), s->size, 0, s->piece[i].handle, 0));
  s->piece[i].mapped = result == CUDA_SUCCESS;
  return result;
}

CUresult piece_access(struct pieces *s, size_t i, size_t run) {
  CUmemAccessDesc access = {.location = s->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return TRY(cuMemSetAccess(piece_at(s, i), run * s->size, &access, 1));
}

CUresult piece_unmap(struct pieces *s, size_t i, size_t run) {
  CUresult result = TRY(cuMemUnmap(piece_at(s, i), run * s->size));
  for (size_t k = i; k < i + run && result == CUDA_SUCCESS; k++)
    s->piece[k].mapped = false;
  return result;
}

CUresult piece_release(struct pieces *s, size_t i) {
  s->piece[i].created = false;
  return TRY(cuMemRelease(s->piece[i].handle));
}

CUresult pieces_fill(struct pieces *s) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < s->count && result == CUDA_SUCCESS; i++) {
    result = piece_create(s, i);
    result = result ? result : piece_map(s, i);
  }
  return result ? result : piece_access(s, 0, s->count);
}

void pieces_drop(struct pieces *s) {
  for (size_t i = 0; s->piece && i < s->count; i++) {
    if (s->piece[i].mapped)
      piece_unmap(s, i, 1);
    if (s->piece[i].created)
      piece_release(s, i);
  }
  if (s->at)
    TRY(cuMemAddressFree(s->at, s->size * s->count));
  free(s->piece);
  *s = (struct pieces){0};
}

bool card_fits(const char *what, size_t bytes) {
  size_t unused = 0, total = 0;
  TRY(cuMemGetInfo(&unused, &total));
  if (unused >= bytes + GIB)
    return true;
  printf("  %s: skipped, %zu MiB needed and %zu free\n", what, bytes / MIB, unused / MIB);
  return false;
}

struct share { /* of the writing, one thread's */
  char *at;
  size_t bytes;
};

static void *share_touch(void *arg) {
  struct share *share = arg;
  memset(share->at, 1, share->bytes);
  return NULL;
}

static void slab_touch(void *slab, size_t bytes, int threads) {
  pthread_t thread[threads];
  struct share share[threads];
  bool started[threads];
  for (int t = 0; t < threads; t++) {
    share[t] = (struct share){.at = (char *)slab + bytes / threads * t, .bytes = bytes / threads};
    started[t] = t > 0 && pthread_create(&thread[t], NULL, share_touch, &share[t]) == 0;
  }
  for (int t = 0; t < threads; t++)
    if (started[t])
      pthread_join(thread[t], NULL);
    else
      share_touch(&share[t]);
}

void *slab_map(size_t bytes, int threads) {
  void *slab = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slab == MAP_FAILED)
    return NULL;
  madvise(slab, bytes, MADV_HUGEPAGE);
  slab_touch(slab, bytes, threads);
  return slab;
}

pid_t child_fork(void) {
  fflush(stdout);
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
      _exit(1);
  }
  return pid;
}
