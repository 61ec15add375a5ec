/* costs.c - what single calls cost, and what another thread's waiting does to the rate of launches. */
#include "probe.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 200000, BARRIERS = 20000, LAUNCH_MS = 1000 };

struct waiter {
  struct probe *p;
  void (*wait)(struct waiter *w);
  CUstream watched;
  atomic_bool stop;
  uint64_t turns;
};

static void wait_ctx(struct waiter *w) {
  (void)w;
  cuCtxSynchronize();
}
static void wait_stream(struct waiter *w) { cuStreamSynchronize(w->watched); }
static void wait_query(struct waiter *w) {
  struct timespec pause = {.tv_nsec = 1000000};
  cuStreamQuery(w->watched);
  nanosleep(&pause, NULL);
}

static void *waiter_run(void *arg) {
  struct waiter *w = arg;
  cuCtxSetCurrent(w->p->context);
  while (!atomic_load(&w->stop)) {
    w->wait(w);
    w->turns++;
  }
  return NULL;
}

static double launches_per_s(const struct probe *p, CUstream stream) {
  uint64_t start = clock_now_ns(), end = start + LAUNCH_MS * NS_PER_MS, now = start, count = 0;
  while (now < end) {
    for (int i = 0; i < 64; i++)
      launch_empty(p, stream);
    count += 64;
    now = clock_now_ns();
  }
  cuStreamSynchronize(stream);
  return (double)count * 1e9 / (double)(clock_now_ns() - start);
}

static void print_launches(struct probe *p, const char *name, void (*wait)(struct waiter *)) {
  struct waiter w = {.p = p, .wait = wait, .watched = p->stream};
  pthread_t thread;
  bool started = wait && pthread_create(&thread, NULL, waiter_run, &w) == 0;
  double rate = launches_per_s(p, p->stream);
  atomic_store(&w.stop, true);
  if (started)
    pthread_join(thread, NULL);
  printf("  launches/s %s: %.0f (waiter turns %lu)\n", name, rate, (unsigned long)w.turns);
}

void probe_syncs(struct probe *p) {
  print_launches(p, "warm-up", NULL);
  for (int i = 0; i < 2; i++) {
    print_launches(p, "alone", NULL);
    print_launches(p, "+ cuCtxSynchronize loop", wait_ctx);
    print_launches(p, "+ cuStreamSynchronize loop", wait_stream);
    print_launches(p, "+ cuStreamQuery every ms", wait_query);
  }
}

#define COST(name, call)                                                                                     \
  do {                                                                                                       \
    for (int i_ = 0; i_ < 1000; i_++)                                                                        \
      call;                                                                                                  \
    uint64_t start_ = clock_now_ns();                                                                        \
    for (int i_ = 0; i_ < ROUNDS; i_++)                                                                      \
      call;                                                                                                  \
    printf("  %s: %.1f ns\n", name, (double)(clock_now_ns() - start_) / ROUNDS);                             \
  } while (0)

static atomic_bool spinners_stop;

static void *spinner_run(void *arg) {
  while (!atomic_load_explicit(&spinners_stop, memory_order_relaxed))
    ;
  return arg;
}

static void print_membarrier(int threads) {
  pthread_t spinners[8];
  atomic_store(&spinners_stop, false);
  for (int i = 1; i < threads; i++)
    pthread_create(&spinners[i], NULL, spinner_run, NULL);
  uint64_t start = clock_now_ns();
  long failed = 0;
  for (int i = 0; i < BARRIERS; i++)
    failed |= syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  printf("  membarrier PRIVATE_EXPEDITED, %d running threads: %.0f ns%s\n", threads,
         (double)(clock_now_ns() - start) / BARRIERS, failed ? " FAILED" : "");
  atomic_store(&spinners_stop, true);
  for (int i = 1; i < threads; i++)
    pthread_join(spinners[i], NULL);
}

static void print_launch_cost(struct probe *p) {
  enum { BURST = 500 };
  uint64_t sum = 0;
  for (int i = 0; i < 20; i++) { /* short bursts: the queue is never full */
    uint64_t start = clock_now_ns();
    for (int k = 0; k < BURST; k++)
      launch_empty(p, p->stream);
    sum += clock_now_ns() - start;
    cuStreamSynchronize(p->stream);
  }
  printf("  cuLaunchKernel enqueue: %.0f ns\n", (double)sum / (20 * BURST));
}

void probe_calls(struct probe *p) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static atomic_long counter;
  CUcontext context;
  CUdevice device;
  CUstreamCaptureStatus status;
  CUdeviceptr managed;
  uint64_t value;
  size_t free_bytes, total;
  struct timespec now;
  TRY(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
  COST("cuCtxGetCurrent", cuCtxGetCurrent(&context));
  COST("cuCtxGetDevice", cuCtxGetDevice(&device));
  COST("cuCtxSetCurrent (same)", cuCtxSetCurrent(p->context));
  COST("cuStreamIsCapturing", cuStreamIsCapturing(p->stream, &status));
  COST("cuStreamIsCapturing(NULL)", cuStreamIsCapturing(NULL, &status));
  COST("cuStreamGetCtx", cuStreamGetCtx(p->stream, &context));
  COST("cuStreamQuery idle", cuStreamQuery(p->stream));
  COST("cuPointerGetAttribute", cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
  COST("clock_gettime", clock_gettime(CLOCK_MONOTONIC, &now));
  COST("mutex pair", (pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex)));
  COST("atomic add pair seq_cst", (atomic_fetch_add(&counter, 1), atomic_fetch_sub(&counter, 1)));
  COST("relaxed load+store pair", (atomic_store_explicit(&counter, 1, memory_order_relaxed),
                                   atomic_store_explicit(&counter, 0, memory_order_relaxed)));
  uint64_t start = clock_now_ns();
  for (int i = 0; i < 2000; i++)
    cuMemGetInfo(&free_bytes, &total);
  printf("  cuMemGetInfo: %.0f ns\n", (double)(clock_now_ns() - start) / 2000);
  print_launch_cost(p);
  long query = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  long registered = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
  printf("  membarrier query %#lx register %ld\n", (unsigned long)query, registered);
  print_membarrier(1);
  print_membarrier(8);
}

void probe_driver(struct probe *p) {
  static const struct {
    const char *name;
    CUdevice_attribute attribute;
  } asked[] = {{"concurrentManagedAccess", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
               {"pageableMemoryAccess", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
               {"directManagedMemAccessFromHost", CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST},
               {"hostNativeAtomic", CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED},
               {"memoryPools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
               {"gpuDirectRdma", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED},
               {"asyncEngines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
               {"computePreemption", CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED}};
  int value = 0;
  size_t total = 0;
  TRY(cuDriverGetVersion(&value));
  printf("  cuDriverGetVersion %d\n", value);
  TRY(cuDeviceTotalMem(&total, p->device));
  printf("  cuDeviceTotalMem %zu\n", total);
  for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
    CUresult result = cuDeviceGetAttribute(&value, asked[i].attribute, p->device);
    printf("  %s %d%s\n", asked[i].name, value, result ? " (failed)" : "");
  }
}
