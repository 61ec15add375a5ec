/* test_sim_streams.c - order within and between streams, events, host functions, memory operations, forks. */
#include "test_sim.h"

static struct gpu gpu;

struct log {
  pthread_mutex_t lock;
  char text[64];
};

static void log_letter(void *argument) {
  static struct log log = {.lock = PTHREAD_MUTEX_INITIALIZER};
  pthread_mutex_lock(&log.lock);
  if (argument == NULL) {
    memset(log.text, 0, sizeof(log.text));
  } else if (*(char *)argument) {
    log.text[strlen(log.text)] = *(char *)argument;
  } else {
    memcpy(argument, log.text, sizeof(log.text));
  }
  pthread_mutex_unlock(&log.lock);
}

static void expect_log(const char *wanted) {
  char text[64] = "";
  log_letter(text);
  if (strcmp(text, wanted) != 0)
    fprintf(stderr, "log is '%s', not '%s'\n", text, wanted);
  CHECK(strcmp(text, wanted) == 0);
  log_letter(NULL);
}

static void test_in_order(void) {
  CUstream stream;
  CUdeviceptr at;
  uint64_t *host;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemAlloc(&at, 8 * MIB));
  OK(cuMemAllocHost((void **)&host, 8 * MIB));
  OK(fill(&gpu, stream, at, 8 * MIB, 7));
  OK(add(&gpu, stream, at, 8 * MIB, 1));
  OK(cuMemcpyDtoHAsync(host, at, 8 * MIB, stream));
  OK(cuStreamSynchronize(stream));
  for (uint64_t i = 0; i < MIB; i++)
    CHECK_EQ(host[i], gs_hash(7, i) + 1);
  OK(cuMemFreeHost(host));
  OK(cuMemFree(at));
  OK(cuStreamDestroy(stream));
}

static void test_asynchronous(void) {
  CUstream stream;
  CUevent start, end;
  float ms = 0;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  uint64_t before_ns = clock_now_ns();
  OK(cuEventRecord(start, stream));
  OK(spin(&gpu, stream, 100 * NS_PER_MS));
  OK(cuEventRecord(end, stream));
  CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  CHECK_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
  CHECK_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
  OK(cuEventSynchronize(end));
  CHECK(clock_now_ns() - before_ns >= 100 * NS_PER_MS);
  OK(cuStreamQuery(stream));
  OK(cuEventElapsedTime(&ms, start, end));
  CHECK(ms >= 99);
  OK(cuEventDestroy(start));
  OK(cuEventDestroy(end));
  OK(cuStreamDestroy(stream));
}

static void test_events_order_streams(void) {
  static char a = 'a', b = 'b';
  CUstream first, second;
  CUevent event;
  OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(spin(&gpu, first, 20 * NS_PER_MS));
  OK(cuLaunchHostFunc(first, log_letter, &a));
  OK(cuEventRecord(event, first));
  OK(cuStreamWaitEvent(second, event, 0));
  OK(cuLaunchHostFunc(second, log_letter, &b));
  OK(cuStreamSynchronize(second));
  expect_log("ab");
  OK(cuEventDestroy(event));
  OK(cuStreamDestroy(first));
  OK(cuStreamDestroy(second));
}

/* The legacy stream waits for blocking streams and they for it; non-blocking ones are left alone. */
static void test_legacy_stream(void) {
  static char a = 'a', b = 'b', c = 'c';
  CUstream blocking;
  OK(cuStreamCreate(&blocking, 0));
  OK(spin(&gpu, blocking, 20 * NS_PER_MS));
  OK(cuLaunchHostFunc(blocking, log_letter, &a));
  OK(cuLaunchHostFunc(NULL, log_letter, &b));
  OK(cuLaunchHostFunc(blocking, log_letter, &c));
  OK(cuStreamSynchronize(NULL));
  expect_log("abc");
  OK(cuStreamDestroy(blocking));
}

static void *run_on_own_stream(void *argument) {
  static char t = 't';
  OK(cuCtxSetCurrent(argument));
  OK(cuLaunchHostFunc(CU_STREAM_PER_THREAD, log_letter, &t));
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  return NULL;
}

static _Atomic bool other_thread_done;

static void wait_for_other_thread(void *unused) {
  (void)unused;
  while (!other_thread_done)
    usleep(50);
}

/* It would never end if the other thread's work went into this thread's stream. */
static void test_per_thread_stream(void) {
  pthread_t thread;
  CUcontext none = gpu.context;
  OK(cuLaunchHostFunc(CU_STREAM_PER_THREAD, wait_for_other_thread, NULL));
  CHECK_EQ(pthread_create(&thread, NULL, run_on_own_stream, gpu.context), 0);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  other_thread_done = true;
  expect_log("t");
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  OK(cuCtxGetCurrent(&none));
  CHECK(none == gpu.context);
}

static void test_memory_operations(void) {
  CUstream stream;
  uint32_t *flag;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemAllocHost((void **)&flag, 64));
  __atomic_store_n(&flag[0], 0, __ATOMIC_RELAXED);
  __atomic_store_n(&flag[1], 0, __ATOMIC_RELAXED);
  OK(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)&flag[0], 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)&flag[1], 9, 0));
  CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  CHECK_EQ(__atomic_load_n(&flag[1], __ATOMIC_ACQUIRE), 0);
  __atomic_store_n(&flag[0], 5, __ATOMIC_RELEASE);
  OK(cuStreamSynchronize(stream));
  CHECK_EQ(__atomic_load_n(&flag[1], __ATOMIC_ACQUIRE), 9);
  OK(cuMemFreeHost(flag));
  OK(cuStreamDestroy(stream));
}

/* All ways to hand over parameters. */
static void test_launch_forms(void) {
  CUdeviceptr at;
  uint64_t words = MIB / 8, seed = 3;
  OK(cuMemAlloc(&at, MIB));
  struct {
    CUdeviceptr at;
    uint64_t words, seed;
  } packed = {at, words, seed};
  size_t size = sizeof(packed);
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(gpu.fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
  CHECK_EQ(mismatches(&gpu, at, MIB, 3), 0);
  CHECK_EQ(mismatches(&gpu, at, MIB, 4), words);
  seed = 4;
  CUlaunchConfig config = {
      .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
  OK(cuLaunchKernelEx(&config, gpu.fill, (void *[]){&at, &words, &seed}, NULL));
  CHECK_EQ(mismatches(&gpu, at, MIB, 4), 0);
  CHECK_EQ(cuLaunchKernel(gpu.fill, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree(at));
}

static void test_counts_work(void) {
  struct gs_sim_process process;
  OK(spin(&gpu, NULL, 30 * NS_PER_MS));
  CHECK_EQ(gs_sim_process_read(NULL, getpid(), 0, &process), 0);
  CHECK_EQ(process.in_flight, 1);
  uint64_t kernels = process.counters[GS_SIM_kernels];
  OK(cuCtxSynchronize());
  CHECK_EQ(gs_sim_process_read(NULL, getpid(), 0, &process), 0);
  CHECK_EQ(process.in_flight, 0);
  CHECK_EQ(process.counters[GS_SIM_kernels], kernels + 1);
  CHECK_EQ(process.counters[GS_SIM_overlaps], 0);
}

static void in_forked_child(int fd) {
  int version;
  (void)fd;
  CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
  CHECK_EQ(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
  OK(cuDriverGetVersion(&version));
}

int main(void) {
  use_card("small");
  CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
  gpu_open(&gpu);
  test_in_order();
  test_asynchronous();
  test_events_order_streams();
  test_legacy_stream();
  test_per_thread_stream();
  test_memory_operations();
  test_launch_forms();
  test_counts_work();
  CHECK_EQ(child_status(child_start(in_forked_child, -1)), 0);
  gpu_close(&gpu);
  return 0;
}
