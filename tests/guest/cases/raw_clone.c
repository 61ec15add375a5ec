/* raw_clone.c - children that the C library knows nothing of use the driver, and exit, while their parent
 * takes turns: each is refused, and none speaks for its parent. */
#include "guest.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHILDREN 20
#define LARGE (UINT64_C(24) << 20)

static int child(const struct gpu *gpu) {
  CUdeviceptr at;
  uint64_t words = 8, seed = 1;
  void *arguments[] = {&at, &words, &seed};
  CUresult allocated = cuMemAlloc(&at, LARGE);
  CUresult launched = cuLaunchKernel(gpu->fill, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
  return allocated == CUDA_ERROR_NOT_INITIALIZED && launched == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
}

int main(void) {
  struct gpu gpu;
  int good = 0;
  gpu_start(&gpu, 0);
  CUdeviceptr mine = gpu_alloc(LARGE / 4 / sizeof(uint64_t));
  for (int i = 0; i < CHILDREN; i++) {
    int status;
    use_gpu(&gpu);
    nanosleep(&(struct timespec){.tv_nsec = i % 5 * 10000000}, NULL); /* it has its turn, or does not */
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
      exit(child(&gpu));
    gpu_fill(&gpu, NULL, mine, 8, (uint64_t)i);
    good += waitpid(pid, &status, 0) == pid && status == 0;
    gpu_verify(mine, 8, (uint64_t)i, 0);
  }
  say("%d of %d children were refused", good, CHILDREN);
  say("ok");
  return 0;
}
