/* captures.c - which calls of another thread break a capture, per capture mode and that thread's own mode. */
#include "probe.h"

#include <pthread.h>

struct other { /* what the other thread has at hand, made before any capture */
  struct probe *p;
  CUstream stream;
  CUevent event;
  CUdeviceptr managed, spare, plain;
  char host[64];
};

static CUresult do_ctx_sync(struct other *o) {
  (void)o;
  return cuCtxSynchronize();
}
static CUresult do_stream_sync(struct other *o) { return cuStreamSynchronize(o->stream); }
static CUresult do_stream_query(struct other *o) { return cuStreamQuery(o->stream); }
static CUresult do_null_sync(struct other *o) {
  (void)o;
  return cuStreamSynchronize(NULL);
}
static CUresult do_event(struct other *o) {
  CUresult result = cuEventRecord(o->event, o->stream);
  return result ? result : cuEventSynchronize(o->event);
}
static CUresult do_event_query(struct other *o) { return cuEventQuery(o->event); }
static CUresult do_launch(struct other *o) { return launch_spin(o->p, 1000, o->stream); }
static CUresult do_prefetch(struct other *o) {
  return cuMemPrefetchAsync(o->managed, MIB, location_host(), 0, o->stream);
}
static CUresult do_alloc(struct other *o) {
  (void)o;
  CUdeviceptr at;
  return cuMemAlloc(&at, MIB);
}
static CUresult do_alloc_managed(struct other *o) {
  (void)o;
  CUdeviceptr at;
  return cuMemAllocManaged(&at, MIB, CU_MEM_ATTACH_GLOBAL);
}
static CUresult do_alloc_async(struct other *o) {
  CUdeviceptr at;
  return cuMemAllocAsync(&at, MIB, o->stream);
}
static CUresult do_advise(struct other *o) {
  return cuMemAdvise(o->managed, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location_device(o->p));
}
static CUresult do_pointer(struct other *o) {
  uint64_t value;
  return cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, o->managed);
}
static CUresult do_info(struct other *o) {
  (void)o;
  size_t f, t;
  return cuMemGetInfo(&f, &t);
}
static CUresult do_capturing_null(struct other *o) {
  (void)o;
  CUstreamCaptureStatus status;
  return cuStreamIsCapturing(NULL, &status);
}
static CUresult do_copy(struct other *o) { return cuMemcpyHtoD(o->plain, o->host, sizeof(o->host)); }
static CUresult do_copy_async(struct other *o) {
  return cuMemcpyHtoDAsync(o->plain, o->host, sizeof(o->host), o->stream);
}
static CUresult do_create_stream(struct other *o) {
  (void)o;
  CUstream stream;
  return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}
static CUresult do_create_event(struct other *o) {
  (void)o;
  CUevent e;
  return cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
}
static CUresult do_free(struct other *o) {
  CUresult result = cuMemFree(o->spare);
  o->spare = 0;
  return result;
}
static CUresult do_ctx_current(struct other *o) { return cuCtxSetCurrent(o->p->context); }

static const struct {
  const char *name;
  CUresult (*call)(struct other *o);
} calls[] = {{"cuCtxSynchronize", do_ctx_sync},
             {"cuStreamSynchronize(own)", do_stream_sync},
             {"cuStreamQuery(own)", do_stream_query},
             {"cuStreamSynchronize(NULL)", do_null_sync},
             {"cuEventRecord+Synchronize", do_event},
             {"cuEventQuery", do_event_query},
             {"cuLaunchKernel(own)", do_launch},
             {"cuMemPrefetchAsync(own)", do_prefetch},
             {"cuMemAlloc", do_alloc},
             {"cuMemAllocManaged", do_alloc_managed},
             {"cuMemAllocAsync(own)", do_alloc_async},
             {"cuMemAdvise", do_advise},
             {"cuPointerGetAttribute", do_pointer},
             {"cuMemGetInfo", do_info},
             {"cuStreamIsCapturing(NULL)", do_capturing_null},
             {"cuMemcpyHtoD", do_copy},
             {"cuMemcpyHtoDAsync(own)", do_copy_async},
             {"cuStreamCreate", do_create_stream},
             {"cuEventCreate", do_create_event},
             {"cuMemFree", do_free},
             {"cuCtxSetCurrent", do_ctx_current}};

struct order {
  struct other *other;
  size_t call;
  bool relaxed;
  CUresult result;
};

static void *order_run(void *arg) {
  struct order *order = arg;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  cuCtxSetCurrent(order->other->p->context);
  if (order->relaxed)
    cuThreadExchangeStreamCaptureMode(&mode);
  order->result = calls[order->call].call(order->other);
  return NULL;
}

/* "ok", "ok!" (the capture was lost though the call succeeded), or the error, with ! if the capture was lost.
 */
static void outcome(struct other *o, size_t call, CUstreamCaptureMode mode, bool relaxed) {
  struct order order = {.other = o, .call = call, .relaxed = relaxed};
  CUgraph graph = NULL;
  CUstream capturing = o->p->stream;
  pthread_t thread;
  if (o->spare == 0)
    cuMemAlloc(&o->spare, MIB);
  if (TRY(cuStreamBeginCapture(capturing, mode)) != CUDA_SUCCESS)
    return;
  launch_empty(o->p, capturing);
  if (pthread_create(&thread, NULL, order_run, &order) == 0)
    pthread_join(thread, NULL);
  launch_empty(o->p, capturing);
  CUresult end = cuStreamEndCapture(capturing, &graph);
  char text[64];
  snprintf(text, sizeof(text), "%s%s", order.result ? result_name(order.result) : "ok", end ? " LOST" : "");
  printf(" | %-34s", text);
  if (graph)
    cuGraphDestroy(graph);
  cuCtxSynchronize();
}

void probe_captures(struct probe *p) {
  static const CUstreamCaptureMode modes[] = {
      CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
  struct other o = {.p = p};
  TRY(cuStreamCreate(&o.stream, CU_STREAM_NON_BLOCKING));
  TRY(cuEventCreate(&o.event, CU_EVENT_DISABLE_TIMING));
  TRY(cuEventRecord(o.event, o.stream));
  TRY(cuMemAllocManaged(&o.managed, MIB, CU_MEM_ATTACH_GLOBAL));
  TRY(cuMemAlloc(&o.plain, MIB));
  TRY(cuCtxSynchronize());
  printf("  columns: capture GLOBAL | GLOBAL, other RELAXED | THREAD_LOCAL | THREAD_LOCAL, other RELAXED | "
         "RELAXED | RELAXED, other RELAXED; LOST = cuStreamEndCapture failed\n");
  for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
    printf("  %-26s", calls[c].name);
    for (size_t m = 0; m < 3; m++)
      for (int relaxed = 0; relaxed < 2; relaxed++)
        outcome(&o, c, modes[m], relaxed);
    putchar('\n');
  }
}
