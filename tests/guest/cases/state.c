/* state.c - using the GPU leaves descriptors, signals and the thread's own state as they were. */
#include "guest.h"

#include <errno.h>

int main(void) {
  struct gpu gpu;
  say_descriptors();
  say_thread();
  errno = 1234;
  gpu_start(&gpu, 0);
  for (int i = 0; i < 20; i++)
    use_gpu(&gpu);
  say_descriptors();
  say_thread();
  say("ok");
  return 0;
}
