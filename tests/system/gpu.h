/*
 * gpu.h - what the programs that play one situation each have in common: calls of the driver that must
 * succeed, a GPU with the test kernels, and the lines that they exchange with the test.
 */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include <stdint.h>

#include <cuda.h>

/* Says "error CALL: RESULT" and ends the program with 1 unless the call succeeded. Any thread. */
#define MUST(call) gpu_must(call, #call)
void gpu_must(CUresult result, const char *call);

struct gpu {
  CUcontext context;
  CUfunction fill, add, spin;
};

/* Initialize the driver, make the GPU's primary context current, and load the kernels. */
void gpu_start(struct gpu *gpu, int device);

CUdeviceptr gpu_alloc(uint64_t words);
CUstream gpu_stream(void);

/* Launches; they don't wait. */
void gpu_fill(const struct gpu *gpu, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t seed);
void gpu_add(const struct gpu *gpu, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t delta);
void gpu_spin(const struct gpu *gpu, CUstream stream, uint64_t ns);

/* Every word must be what a fill with this seed and additions of `added` in all have made it. Waits. */
void gpu_verify(CUdeviceptr at, uint64_t words, uint64_t seed, uint64_t added);

/* Physical memory that can be exported; and any such memory, mapped at an address of its own. */
CUresult gpu_create(CUmemGenericAllocationHandle *handle, uint64_t bytes);
CUdeviceptr gpu_map(CUmemGenericAllocationHandle handle, uint64_t bytes);

/* The same for all of what is exported, which is imported and mapped once more for that. */
void gpu_verify_exported(CUmemGenericAllocationHandle handle, uint64_t words, uint64_t seed, uint64_t added);

/* To and from the test. */
void gpu_say(const char *line);
void gpu_await_line(void);

#endif
