/*
 * pinned.c - makes memory to be pinned: mapped, touched by several threads at once (the kernel clears pages
 * at a few GB/s per core); then registering it is fast, as the huge pages are there.
 */
#include "memory/swap/pinned.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "common/log.h"
#include "common/thread.h"
#include "driver/driver.h"
#include "memory/device.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES 4096 /* the smallest there is */
#define TOUCHERS 8
#define TOUCHER_BYTES ((size_t)32 << 20) /* less is not worth a thread */

/* Aligned to a huge page; NULL: no address space. */
static char *map(size_t bytes) {
  char *start =
      mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED)
    return NULL;
  size_t before = (HUGE_PAGE_BYTES - (uintptr_t)start % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
  if (before)
    munmap(start, before);
  munmap(start + before + bytes, HUGE_PAGE_BYTES - before);
  return start + before;
}

/* The child of a fork has no use for it, and would make the kernel copy what is pinned; nor has a core dump.
 */
static void advise(char *memory, size_t bytes) {
  madvise(memory, bytes, MADV_HUGEPAGE);
  madvise(memory, bytes, MADV_DONTFORK);
  madvise(memory, bytes, MADV_DONTDUMP);
}

struct stripe {
  char *start;
  size_t bytes;
};

static void *touch(void *argument) {
  const struct stripe *stripe = argument;
  for (size_t at = 0; at < stripe->bytes; at += PAGE_BYTES)
    *(volatile char *)(stripe->start + at) = 0;
  return NULL;
}

static size_t toucher_count(size_t bytes) {
  cpu_set_t usable;
  size_t cpus = sched_getaffinity(0, sizeof usable, &usable) == 0 ? (size_t)CPU_COUNT(&usable) : 1;
  size_t count = bytes / TOUCHER_BYTES;
  count = count < cpus ? count : cpus;
  return count < 1 ? 1 : count < TOUCHERS ? count : TOUCHERS;
}

/* The calling thread does the last stripe, and what no thread could be made for. */
static void touch_all(char *memory, size_t bytes) {
  struct stripe stripes[TOUCHERS];
  pthread_t threads[TOUCHERS];
  bool started[TOUCHERS];
  size_t count = toucher_count(bytes), each = bytes / count / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
  for (size_t i = 0; i < count; i++) {
    bool last = i == count - 1;
    stripes[i] = (struct stripe){memory + i * each, last ? bytes - i * each : each};
    started[i] = !last && thread_start(&threads[i], touch, &stripes[i]) == 0;
    if (!started[i])
      touch(&stripes[i]);
  }
  for (size_t i = 0; i < count; i++)
    if (started[i])
      pthread_join(threads[i], NULL);
}

/* What is registered still has outlived the context that it was registered in. */
static CUresult pin(void *memory, size_t bytes, CUcontext *context) {
  CUresult result = driver.cuCtxGetCurrent(context);
  if (result == CUDA_SUCCESS)
    result = driver.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  return result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED ? CUDA_SUCCESS : result;
}

CUcontext pinned_register(void *memory, size_t bytes) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  CUcontext context = NULL;
  CUstreamCaptureMode mode = capture_relax();
  CUresult result = pin(memory, bytes, &context);
  capture_unrelax(mode);
  if (result != CUDA_SUCCESS && !atomic_flag_test_and_set(&said))
    log_warn("host memory can't be pinned (CUDA error %d): moves to it and from it are slower", result);
  return result == CUDA_SUCCESS ? context : NULL;
}

/* What died with its context is no longer registered. */
static bool unpin(char *memory) {
  CUstreamCaptureMode mode = capture_relax();
  CUresult result = driver.cuMemHostUnregister(memory);
  capture_unrelax(mode);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

void *pinned_make(size_t bytes) {
  char *memory = map(bytes);
  if (!memory)
    return NULL;
  advise(memory, bytes);
  touch_all(memory, bytes);
  return memory;
}

bool pinned_give_back(void *memory, size_t bytes, bool registered) {
  if (registered && !unpin(memory))
    return false;
  munmap(memory, bytes);
  return true;
}
