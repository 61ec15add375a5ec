/* kernels.cu - the test kernels for a real GPU; what each computes is told in tests/sim/kernels.h. Any grid
 * will do. */
#include <stdint.h>

#include "sim/kernels.h"

static __device__ uint64_t first_index() { return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ uint64_t index_step() { return (uint64_t)gridDim.x * blockDim.x; }

extern "C" __global__ void gs_fill(uint64_t *p, uint64_t words, uint64_t seed) {
  for (uint64_t i = first_index(); i < words; i += index_step())
    p[i] = gs_hash(seed, i);
}

extern "C" __global__ void gs_check(const uint64_t *p, uint64_t words, uint64_t seed, uint64_t *mismatches) {
  unsigned long long found = 0;
  for (uint64_t i = first_index(); i < words; i += index_step())
    found += p[i] != gs_hash(seed, i);
  if (found)
    atomicAdd((unsigned long long *)mismatches, found);
}

extern "C" __global__ void gs_add(uint64_t *p, uint64_t words, uint64_t delta) {
  for (uint64_t i = first_index(); i < words; i += index_step())
    p[i] += delta;
}

/* In nanoseconds of the GPU's own clock, so that its frequency does not matter. */
extern "C" __global__ void gs_spin(uint64_t ns) {
  uint64_t start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - start < ns);
}

/* Of one thread. In host memory each step takes a way there and back, which somebody can watch. */
extern "C" __global__ void gs_tick(volatile uint64_t *p, uint64_t ns) {
  uint64_t start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    *p = *p + 1;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < ns);
}

/* volatile: a read whose value nobody uses stays a read. */
extern "C" __global__ void gs_touch(const uint64_t *p, uint64_t bytes) {
  const uint64_t stride = GS_TOUCH_STRIDE / sizeof(uint64_t), words = bytes / sizeof(uint64_t);
  for (uint64_t i = first_index() * stride; i < words; i += index_step() * stride)
    (void)*(const volatile uint64_t *)(p + i);
}

extern "C" __global__ void gs_empty() {}
