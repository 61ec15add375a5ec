/* probe.h - a context on the first card, the test kernels, and a line for what fails. */
#ifndef GS_PROBE_H
#define GS_PROBE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/clock.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

struct probe {
  CUdevice device;
  CUcontext context;                            /* primary, current in the main thread */
  CUkernel empty, fill, check, add, spin, tick; /* of tests/sim/kernels.h */
  CUstream stream;
};

/* A context on the first card; false: a line has told why. */
bool probe_open(struct probe *p);

/* One line on failure; the result is handed on. */
CUresult probe_try(const char *what, CUresult result);
#define TRY(call) probe_try(#call, call)
const char *result_name(CUresult result);

CUresult launch_empty(const struct probe *p, CUstream stream);
/* fill (by seed) or add (delta), for all 64-bit words of the memory. */
CUresult launch_words(CUkernel kernel, CUdeviceptr at, size_t bytes, uint64_t value, CUstream stream);
CUresult launch_fill(const struct probe *p, CUdeviceptr at, size_t bytes, CUstream stream); /* seed 0 */
CUresult launch_check(const struct probe *p, CUdeviceptr at, size_t bytes, uint64_t seed,
                      CUdeviceptr mismatches, CUstream stream);
CUresult launch_spin(const struct probe *p, uint64_t ns, CUstream stream);
CUresult launch_tick(const struct probe *p, CUdeviceptr at, uint64_t ns, CUstream stream);

#endif
