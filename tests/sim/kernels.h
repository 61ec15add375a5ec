/*
 * kernels.h - what the test kernels compute, so that the simulated driver, tests/gpu/kernels.cu and the tests
 * agree on it word for word.
 *
 *   gs_fill(p, words, seed)               p[i] = gs_hash(seed, i)
 *   gs_check(p, words, seed, mismatches)  adds to *mismatches how many words are not gs_hash(seed, i)
 *   gs_add(p, words, delta)               p[i] += delta
 *   gs_spin(ns)                           keeps the GPU busy
 *   gs_tick(p, ns)                        p[0] += 1, again and again for so long; of one thread
 *   gs_touch(p, bytes)                    reads one word of every 4 KiB
 *   gs_empty()
 *
 * p and mismatches are device pointers to 64-bit words; every parameter is 64 bits wide.
 */
#ifndef GS_KERNELS_H
#define GS_KERNELS_H

#include <stdint.h>

#ifdef __CUDACC__
#define GS_KERNEL_BOTH __host__ __device__
#else
#define GS_KERNEL_BOTH
#endif

enum { GS_TOUCH_STRIDE = 4096 };

static inline GS_KERNEL_BOTH uint64_t gs_hash(uint64_t seed, uint64_t index) {
  uint64_t x = (seed + 1) * UINT64_C(0x9E3779B97F4A7C15) + index;
  x ^= x >> 32;
  x *= UINT64_C(0xD6E8FEB86659FD93);
  x ^= x >> 29;
  return x;
}

#endif
