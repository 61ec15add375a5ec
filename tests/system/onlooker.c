/* onlooker.c - has a context on every GPU and does nothing with it, as launchers may. Says "looking" and
 * waits for a line; then "ok". */
#include "gpu.h"

int main(void) {
  int count;
  CUcontext context;
  MUST(cuInit(0));
  MUST(cuDeviceGetCount(&count));
  for (int i = 0; i < count; i++)
    MUST(cuDevicePrimaryCtxRetain(&context, i));
  gpu_say("looking");
  gpu_await_line();
  gpu_say("ok");
  return 0;
}
