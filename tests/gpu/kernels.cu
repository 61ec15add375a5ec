/*
 * kernels.cu - the test kernels of tests/sim/kernels.h for real GPUs. Every parameter is 64 bits wide, so
 * that the same launch code serves both.
 *
 *   nvcc -arch=sm_90 -fatbin -I tests tests/gpu/kernels.cu
 */
#include "sim/kernels.h"

typedef unsigned long long word;

static __device__ word thread_index() { return (word)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ word thread_count() { return (word)gridDim.x * blockDim.x; }

extern "C" __global__ void gs_fill(word *p, word words, word seed) {
  for (word i = thread_index(); i < words; i += thread_count())
    p[i] = gs_hash(seed, i);
}

extern "C" __global__ void gs_check(const word *p, word words, word seed, word *mismatches) {
  word found = 0;
  for (word i = thread_index(); i < words; i += thread_count())
    found += p[i] != gs_hash(seed, i);
  if (found)
    atomicAdd(mismatches, found);
}

extern "C" __global__ void gs_add(word *p, word words, word delta) {
  for (word i = thread_index(); i < words; i += thread_count())
    p[i] += delta;
}

static __device__ word now_ns() {
  word now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void gs_spin(word ns) {
  word start = now_ns();
  while (now_ns() - start < ns)
    ;
}

extern "C" __global__ void gs_touch(const volatile char *p, word bytes) {
  for (word at = thread_index() * GS_TOUCH_STRIDE; at < bytes; at += thread_count() * GS_TOUCH_STRIDE)
    (void)p[at];
}

extern "C" __global__ void gs_empty() {}
