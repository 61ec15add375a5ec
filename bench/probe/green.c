/* green.c - does synchronizing one context wait for the work of a green context or of a second context? */
#include "probe.h"

enum { SPIN_MS = 200 };

static double sync_ms(CUcontext context) {
  CUcontext old = NULL;
  cuCtxGetCurrent(&old);
  TRY(cuCtxSetCurrent(context));
  uint64_t start = clock_now_ns();
  TRY(cuCtxSynchronize());
  double ms = (double)(clock_now_ns() - start) / 1e6;
  cuCtxSetCurrent(old);
  return ms;
}

static CUresult green_create(const struct probe *p, CUgreenCtx *green, CUstream *stream) {
  CUdevResource all, part[1];
  CUdevResourceDesc desc;
  unsigned groups = 1;
  CUresult result = TRY(cuDeviceGetDevResource(p->device, &all, CU_DEV_RESOURCE_TYPE_SM));
  result = result ? result : TRY(cuDevSmResourceSplitByCount(part, &groups, &all, NULL, 0, 16));
  result = result ? result : TRY(cuDevResourceGenerateDesc(&desc, part, 1));
  result = result ? result : TRY(cuGreenCtxCreate(green, desc, p->device, CU_GREEN_CTX_DEFAULT_STREAM));
  return result ? result : TRY(cuGreenCtxStreamCreate(stream, *green, CU_STREAM_NON_BLOCKING, 0));
}

static void print_green(struct probe *p) {
  CUgreenCtx green;
  CUcontext as_context = NULL;
  CUstream stream;
  if (green_create(p, &green, &stream) != CUDA_SUCCESS || TRY(cuCtxFromGreenCtx(&as_context, green)))
    return;
  TRY(launch_spin(p, SPIN_MS * NS_PER_MS, stream));
  double primary = sync_ms(p->context);
  double own = sync_ms(as_context);
  printf("  %d ms kernel in a green stream: primary cuCtxSynchronize waited %.1f ms, then the green one %.1f "
         "ms\n",
         SPIN_MS, primary, own);
  TRY(launch_spin(p, SPIN_MS * NS_PER_MS, p->stream));
  own = sync_ms(as_context);
  primary = sync_ms(p->context);
  printf("  kernel in the primary: green cuCtxSynchronize waited %.1f ms, then the primary %.1f ms\n", own,
         primary);
  CUcontext shown = NULL;
  CUresult result = cuStreamGetCtx(stream, &shown);
  printf("  cuStreamGetCtx(green stream): %s, %s\n", result_name(result),
         shown == as_context   ? "the converted one"
         : shown == p->context ? "the primary"
                               : "another");
}

static void print_second(struct probe *p) {
  CUcontext second = NULL;
  CUstream stream;
  if (TRY(cuCtxCreate(&second, NULL, 0, p->device)))
    return;
  TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  TRY(launch_spin(p, 1000, stream));
  TRY(cuCtxSynchronize());
  TRY(launch_spin(p, SPIN_MS * NS_PER_MS, stream));
  double primary = sync_ms(p->context), own = sync_ms(second);
  printf("  kernel in a second context: primary cuCtxSynchronize waited %.1f ms, then the second %.1f ms\n",
         primary, own);
  cuCtxSetCurrent(p->context);
}

void probe_green(struct probe *p) {
  print_second(p);
  print_green(p);
}
