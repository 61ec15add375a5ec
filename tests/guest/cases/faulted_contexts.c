/* faulted_contexts.c - a kernel of one of two contexts that were made by hand has a fault; both are
 * destroyed, in both orders, and made anew if that can be. */
#include "guest.h"

#include "system/kernel_image.h"

#define WORDS 1024

static CUfunction fill, spin;
static CUcontext contexts[2];
static CUdeviceptr memory[2];

static CUresult make(int which) {
  CUmodule module;
  CUresult result = cuCtxCreate(&contexts[which],
#if CUDA_VERSION >= 13000
                                NULL,
#endif
                                0, 0);
  if (result != CUDA_SUCCESS)
    return result;
  MUST(cuModuleLoadData(&module, kernel_image()));
  MUST(cuModuleGetFunction(&fill, module, "gs_fill"));
  MUST(cuModuleGetFunction(&spin, module, "gs_spin"));
  memory[which] = gpu_alloc(WORDS);
  return CUDA_SUCCESS;
}

static CUresult launch(CUdeviceptr at) {
  uint64_t words = WORDS, seed = 1;
  return cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&at, &words, &seed}, NULL);
}

/* Some quanta's worth, so that another job gets turns meanwhile. */
static void work(void) {
  uint64_t ns = 2000000;
  for (int i = 0; i < 40; i++) {
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&ns}, NULL));
    MUST(cuCtxSynchronize());
  }
}

int main(void) {
  MUST(cuInit(0));
  for (int round = 0; round < 3; round++) {
    for (int which = 0; which < 2; which++) {
      CUresult made = make(which);
      say("made %s", result_name(made));
      if (made != CUDA_SUCCESS)
        goto done;
      MUST(launch(memory[which]));
      gpu_verify(memory[which], WORDS, 1, 0);
    }
    work();
    say("launch %s", result_name(launch(4096)));
    say("wait %s", result_name(cuCtxSynchronize()));
    MUST(cuCtxSetCurrent(contexts[0]));
    say("wait in the other %s", result_name(cuCtxSynchronize()));
    say("free in the other %s", result_name(cuMemFree(memory[0])));
    for (int i = 0; i < 2; i++)
      say("destroy %s", result_name(cuCtxDestroy(contexts[i ^ (round & 1)])));
  }
done:
  say("ok");
  return 0;
}
