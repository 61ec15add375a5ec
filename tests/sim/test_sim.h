/* test_sim.h - what the simulator's tests share: checks that end the test, a private state, processes,
 * kernels. */
#ifndef TEST_SIM_H
#define TEST_SIM_H

#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "kernels.h"
#include "sim.h"

#define MIB (UINT64_C(1) << 20)

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                              \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

/* Both sides are evaluated once, and shown. */
#define CHECK_EQ(left, right)                                                                                \
  do {                                                                                                       \
    unsigned long long left_ = (unsigned long long)(left), right_ = (unsigned long long)(right);             \
    if (left_ != right_) {                                                                                   \
      fprintf(stderr, "%s:%d: %s is %llu, not %llu (%s)\n", __FILE__, __LINE__, #left, left_, right_,        \
              #right);                                                                                       \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)

static char state_path[64];

/* Remove the state when the process that made it ends. */
static inline void state_remove(void) { unlink(state_path); }

/* A card of its own for this test and its children. `card` may hold overrides. */
static inline void use_card(const char *card) {
  snprintf(state_path, sizeof(state_path), "/tmp/sim-test-%d", (int)getpid());
  setenv("GPUSHARE_SIM_STATE", state_path, 1);
  setenv("GPUSHARE_SIM_CARD", card, 1);
  atexit(state_remove);
}

struct gpu {
  CUcontext context;
  CUmodule module;
  CUfunction fill, check, add, spin, touch;
};

static inline void gpu_open_on(struct gpu *gpu, CUdevice device) {
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&gpu->context, device));
  OK(cuCtxSetCurrent(gpu->context));
  OK(cuModuleLoadData(&gpu->module, "any image"));
  OK(cuModuleGetFunction(&gpu->fill, gpu->module, "gs_fill"));
  OK(cuModuleGetFunction(&gpu->check, gpu->module, "gs_check"));
  OK(cuModuleGetFunction(&gpu->add, gpu->module, "gs_add"));
  OK(cuModuleGetFunction(&gpu->spin, gpu->module, "gs_spin"));
  OK(cuModuleGetFunction(&gpu->touch, gpu->module, "gs_touch"));
}

static inline void gpu_open(struct gpu *gpu) { gpu_open_on(gpu, 0); }

static inline void gpu_close(struct gpu *gpu) {
  OK(cuModuleUnload(gpu->module));
  OK(cuDevicePrimaryCtxRelease(0));
}

static inline CUresult launch(CUfunction function, CUstream stream, void **params) {
  return cuLaunchKernel(function, 64, 1, 1, 256, 1, 1, 0, stream, params, NULL);
}

static inline CUresult fill(struct gpu *gpu, CUstream stream, CUdeviceptr at, uint64_t bytes, uint64_t seed) {
  uint64_t words = bytes / 8;
  return launch(gpu->fill, stream, (void *[]){&at, &words, &seed});
}

static inline CUresult add(struct gpu *gpu, CUstream stream, CUdeviceptr at, uint64_t bytes, uint64_t delta) {
  uint64_t words = bytes / 8;
  return launch(gpu->add, stream, (void *[]){&at, &words, &delta});
}

static inline CUresult spin(struct gpu *gpu, CUstream stream, uint64_t ns) {
  return launch(gpu->spin, stream, (void *[]){&ns});
}

/* Wrong words, counted on the GPU. */
static inline uint64_t mismatches(struct gpu *gpu, CUdeviceptr at, uint64_t bytes, uint64_t seed) {
  uint64_t words = bytes / 8, found = 0;
  CUdeviceptr counter;
  OK(cuMemAlloc(&counter, 8));
  OK(cuMemsetD8(counter, 0, 8));
  OK(launch(gpu->check, NULL, (void *[]){&at, &words, &seed, &counter}));
  OK(cuMemcpyDtoH(&found, counter, 8));
  OK(cuMemFree(counter));
  return found;
}

static inline uint64_t card_counter(enum gs_sim_counter counter) {
  struct gs_sim_card card;
  CHECK_EQ(gs_sim_card_read(NULL, 0, &card), 0);
  return card.counters[counter];
}

/* A child that runs the function and ends well. */
static inline pid_t child_start(void (*run)(int fd), int fd) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody is left behind by a test that fails */
    run(fd);
    fflush(NULL);
    _exit(0);
  }
  return pid;
}

static inline int child_status(pid_t pid) {
  int status = -1;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

/* One byte over a pipe or socket: the way that processes of a test take turns. */
static inline void token_send(int fd) { CHECK_EQ(write(fd, "x", 1), 1); }
static inline void token_receive(int fd) {
  char byte;
  CHECK_EQ(read(fd, &byte, 1), 1);
}

#endif
