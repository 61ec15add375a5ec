/*
 * program.h - what the programs for a real GPU share: starting the driver, kernels, launches, checked
 * results. Each says "ready" when it has allocated, waits for a line, works, verifies, and says "ok"; or says
 * "error ..." and ends with 1.
 */
#ifndef TEST_GPU_PROGRAM_H
#define TEST_GPU_PROGRAM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB ((size_t)1 << 20)

struct kernels { /* of one context */
  CUfunction fill, check, add, spin;
};

/* Ends the program with one line when the result is an error. */
void must_(CUresult result, const char *what);
#define MUST(call) must_(call, #call)
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

void program_say(const char *text);
void program_await_line(void);

/* The first GPU, its primary context current in this thread. */
CUdevice program_start(CUcontext *context);
CUcontext context_create(CUdevice device); /* current afterwards */

/* Load the kernels into the current context. */
struct kernels kernels_load(void);
void launch_fill(const struct kernels *k, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t seed);
/* By one block: nothing queues on its way to the memory of the host. */
void launch_fill_slowly(const struct kernels *k, CUstream stream, CUdeviceptr at, uint64_t words,
                        uint64_t seed);
void launch_add(const struct kernels *k, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t delta);
void launch_check(const struct kernels *k, CUstream stream, CUdeviceptr at, uint64_t words, uint64_t seed,
                  CUdeviceptr mismatches);
void launch_spin(const struct kernels *k, CUstream stream, uint64_t ns);

/* Copy out in the stream's order, wait, and count the words that are not gs_hash(seed, i) + added. */
uint64_t wrong_words(CUstream stream, CUdeviceptr at, uint64_t words, uint64_t seed, uint64_t added);

/* An argument as a number; `otherwise` when it is not there. */
uint64_t argument(int argc, char **argv, int index, uint64_t otherwise);

#endif
