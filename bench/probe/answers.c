/* answers.c - the driver's answers on which the library's design stands (bench/RESULTS.md): pointer
 * attributes, managed pools, captures, membarrier, and moves of unified memory. */
#include "probe.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- in which pointer attributes does unified memory differ from plain memory? ---- */

enum { ATTRIBUTES = 21, TEXT = 32 };

static void attribute_text(const struct probe *p, CUdeviceptr at, int attribute, char text[TEXT]) {
  uint64_t value[4] = {0};
  CUresult result = cuPointerGetAttribute(value, (CUpointer_attribute)attribute, at);
  if (result != CUDA_SUCCESS)
    snprintf(text, TEXT, "err%d", (int)result);
  else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
    snprintf(text, TEXT, value[0] == (uint64_t)(uintptr_t)p->context ? "ctx" : "%#lx", (long)value[0]);
  else
    snprintf(text, TEXT, value[0] == at ? "=ptr" : "%#lx", (long)value[0]);
}

void probe_attributes(struct probe *p) {
  CUdeviceptr plain = 0, managed = 0;
  TRY(cuMemAlloc(&plain, 4 * MIB));
  TRY(cuMemAllocManaged(&managed, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
  TRY(launch_fill(p, managed, 4 * MIB, p->stream));
  TRY(cuStreamSynchronize(p->stream));
  for (int attribute = 1; attribute <= ATTRIBUTES; attribute++) {
    char of_plain[TEXT], of_managed[TEXT];
    attribute_text(p, plain, attribute, of_plain);
    attribute_text(p, managed, attribute, of_managed);
    printf("  CUpointer_attribute %2d: plain %s, managed %s%s\n", attribute, of_plain, of_managed,
           strcmp(of_plain, of_managed) ? " DIFFERENT" : "");
  }
}

/* ---- what do managed pools (CUDA 13) cost? ---- */

static double alloc_cycle_us(CUmemoryPool pool, size_t bytes, CUstream stream) {
  enum { WARM_UP = 3, ROUNDS = 500 };
  uint64_t start = 0;
  for (int i = -WARM_UP; i < ROUNDS; i++) {
    CUdeviceptr at;
    if (i == 0) {
      cuStreamSynchronize(stream);
      start = clock_now_ns();
    }
    if (cuMemAllocFromPoolAsync(&at, bytes, pool, stream) != CUDA_SUCCESS)
      return -1;
    cuMemFreeAsync(at, stream);
  }
  cuStreamSynchronize(stream);
  return (double)(clock_now_ns() - start) / 1e3 / ROUNDS;
}

static void pool_print(const char *name, CUmemoryPool pool, CUstream stream) {
  uint64_t forever = UINT64_MAX;
  TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &forever));
  printf("  %s, allocation and free: 1 MiB %.2f us, 64 MiB %.2f us\n", name,
         alloc_cycle_us(pool, MIB, stream), alloc_cycle_us(pool, 64 * MIB, stream));
}

void probe_pools(struct probe *p) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = location_device(p)};
  CUmemoryPool plain = NULL, managed = NULL;
  if (!TRY(cuDeviceGetDefaultMemPool(&plain, p->device)))
    pool_print("default pool", plain, p->stream);
  if (!TRY(cuMemPoolCreate(&managed, &props)))
    pool_print("managed pool", managed, p->stream);
}

/* ---- which calls of another thread break a capture? ---- */

struct other { /* what the other thread has at hand, made before any capture */
  struct probe *p;
  CUstream stream;
  CUevent event;
  CUdeviceptr managed, spare, plain;
  char host[64];
  int call; /* that it is to make */
  bool relaxed;
  const char *name;
  CUresult result;
};

static void call_make(struct other *o) {
  CUdeviceptr at;
  CUstream stream;
  CUevent event;
  CUstreamCaptureStatus status;
  uint64_t value;
  size_t unused, total;
  int place = 0;
#define CALL(call_)                                                                                          \
  if (place++ == o->call) {                                                                                  \
    o->name = #call_;                                                                                        \
    o->result = call_;                                                                                       \
  }
  CALL(cuCtxSynchronize())
  CALL(cuStreamSynchronize(o->stream))
  CALL(cuStreamQuery(o->stream))
  CALL(cuStreamSynchronize(NULL))
  CALL(cuEventRecord(o->event, o->stream))
  CALL(cuEventSynchronize(o->event))
  CALL(cuEventQuery(o->event))
  CALL(launch_spin(o->p, 1000, o->stream))
  CALL(cuMemPrefetchAsync(o->managed, MIB, location_host(), 0, o->stream))
  CALL(cuMemAlloc(&at, MIB))
  CALL(cuMemAllocManaged(&at, MIB, CU_MEM_ATTACH_GLOBAL))
  CALL(cuMemAllocAsync(&at, MIB, o->stream))
  CALL(cuMemAdvise(o->managed, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location_device(o->p)))
  CALL(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, o->managed))
  CALL(cuMemGetInfo(&unused, &total))
  CALL(cuStreamIsCapturing(NULL, &status))
  CALL(cuMemcpyHtoD(o->plain, o->host, sizeof(o->host)))
  CALL(cuMemcpyHtoDAsync(o->plain, o->host, sizeof(o->host), o->stream))
  CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
  CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING))
  CALL(cuMemFree(o->spare))
  CALL(cuCtxSetCurrent(o->p->context))
#undef CALL
}

static void *other_run(void *arg) {
  struct other *o = arg;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  cuCtxSetCurrent(o->p->context);
  if (o->relaxed)
    cuThreadExchangeStreamCaptureMode(&mode);
  call_make(o);
  return NULL;
}

/* "ok" or the call's error, and LOST if the capture could not be ended after it. */
static void outcome(struct other *o, CUstreamCaptureMode mode, char text[64]) {
  CUgraph graph = NULL;
  CUstream capturing = o->p->stream;
  pthread_t thread;
  TRY(cuMemAlloc(&o->spare, MIB));
  if (TRY(cuStreamBeginCapture(capturing, mode)))
    return;
  launch_empty(o->p, capturing);
  if (pthread_create(&thread, NULL, other_run, o) == 0)
    pthread_join(thread, NULL);
  launch_empty(o->p, capturing);
  CUresult end = cuStreamEndCapture(capturing, &graph);
  snprintf(text, 64, "%s%s", o->result ? result_name(o->result) : "ok", end ? " LOST" : "");
  if (graph)
    cuGraphDestroy(graph);
  cuCtxSynchronize();
}

void probe_captures(struct probe *p) {
  static const CUstreamCaptureMode modes[] = {
      CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
  struct other o = {.p = p, .name = ""};
  TRY(cuStreamCreate(&o.stream, CU_STREAM_NON_BLOCKING));
  TRY(cuEventCreate(&o.event, CU_EVENT_DISABLE_TIMING));
  TRY(cuEventRecord(o.event, o.stream));
  TRY(cuMemAllocManaged(&o.managed, MIB, CU_MEM_ATTACH_GLOBAL));
  TRY(cuMemAlloc(&o.plain, MIB));
  TRY(cuCtxSynchronize());
  printf("  captures: global, thread-local, relaxed; then each with the other thread in relaxed mode\n");
  for (; o.name; o.call++) {
    char text[6][64] = {""};
    o.name = NULL; /* stays, if there is no such call */
    for (int column = 0; column < 6; column++) {
      o.relaxed = column >= 3;
      outcome(&o, modes[column % 3], text[column]);
    }
    if (o.name)
      printf("  %-40.40s | %s | %s | %s || %s | %s | %s\n", o.name, text[0], text[1], text[2], text[3],
             text[4], text[5]);
  }
}

/* ---- what does membarrier cost? ---- */

static atomic_bool spinners_stop;

static void *spinner_run(void *arg) {
  while (!atomic_load_explicit(&spinners_stop, memory_order_relaxed))
    ;
  return arg;
}

static void membarrier_print(int threads) {
  enum { BARRIERS = 20000, MOST = 8 };
  pthread_t spinners[MOST];
  atomic_store(&spinners_stop, false);
  for (int i = 1; i < threads; i++)
    pthread_create(&spinners[i], NULL, spinner_run, NULL);
  uint64_t start = clock_now_ns();
  long failed = 0;
  for (int i = 0; i < BARRIERS; i++)
    failed |= syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  printf("  membarrier, %d running threads: %.0f ns%s\n", threads,
         (double)(clock_now_ns() - start) / BARRIERS, failed ? " FAILED" : "");
  atomic_store(&spinners_stop, true);
  for (int i = 1; i < threads; i++)
    pthread_join(spinners[i], NULL);
}

void probe_calls(struct probe *p) {
  (void)p;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0)
    printf("  no membarrier here\n");
  membarrier_print(1);
  membarrier_print(8);
}

/* ---- how fast does unified memory move? ---- */

static double prefetch(const struct probe *p, CUdeviceptr at, size_t bytes, CUmemLocation to) {
  uint64_t start = clock_now_ns();
  TRY(cuMemPrefetchAsync(at, bytes, to, 0, p->stream));
  TRY(cuStreamSynchronize(p->stream));
  return (double)bytes / (double)(clock_now_ns() - start);
}

void probe_moves(struct probe *p) {
  size_t bytes = 4 * GIB;
  CUdeviceptr at = 0;
  if (TRY(cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL)) || TRY(launch_fill(p, at, bytes, p->stream)) ||
      TRY(cuStreamSynchronize(p->stream)))
    return;
  for (int round = 1; round <= 3; round++) {
    double out = prefetch(p, at, bytes, location_host());
    printf("  prefetch of 4 GiB, round %d: to the host %.1f GB/s, to the card %.1f GB/s\n", round, out,
           prefetch(p, at, bytes, location_device(p)));
  }
}
