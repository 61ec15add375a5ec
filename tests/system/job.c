/*
 * job.c - a program that uses a GPU as others do, through the driver API: allocates, fills, transforms in
 * rounds, and verifies every byte on the host at the end. It knows nothing of gpushare. For the tests and for
 * scripts/demo. Each round transforms a quarter of the memory, and touches all of it: the simulated GPU
 * computes on the processor.
 *
 * usage: job [options]
 *   --bytes SIZE     memory per worker (64M)          --buffers N   in so many allocations (2)
 *   --rounds N       0: until stdin says "stop" (10)  --spin DURATION  a kernel of that length per round (0)
 *   --workers N      threads, each with a stream (1)  --contexts N  spread over so many contexts (1)
 *   --gpus N         and over so many GPUs (1)        --async       allocate in stream order
 *   --capture        capture each round in a graph    --managed     allocate unified memory
 *   --wait           after "ready", wait for a line   --progress    say "round N"
 *   --scratch SIZE   memory that each round allocates and frees in stream order (0)
 *   --retain         two more threads retain and release the primary context all the while
 *
 * Says on stdout: ready, filled, round N, verified BYTES, ok; or "error ..." and exits with 1.
 */
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#include "common/parse.h"
#include "kernel_image.h"
#include "sim/kernels.h"

#define WORKERS_MAX 16
#define BUFFERS_MAX 64
#define BLOCK_THREADS 256
#define QUARTERS 4

static struct {
  uint64_t bytes, spin_ns, scratch_bytes;
  int buffers, rounds, workers, contexts, gpus;
  int async, capture, managed, wait, progress, retain;
} options = {.bytes = 64 << 20, .buffers = 2, .rounds = 10, .workers = 1, .contexts = 1, .gpus = 1};

struct worker {
  int index;
  pthread_t thread;
  CUcontext context;
  CUstream stream;
  CUfunction fill, add, touch, spin;
  CUdeviceptr buffers[BUFFERS_MAX];
  uint64_t words; /* per buffer */
  uint64_t rounds_done;
};

#define RETAINERS 2

static struct worker workers[WORKERS_MAX];
static pthread_barrier_t allocated, started;
static atomic_bool stopped, finished;

static void must(CUresult result, const char *what) {
  const char *name = "?";
  if (result == CUDA_SUCCESS)
    return;
  cuGetErrorName(result, &name);
  printf("error %s: %s (%d)\n", what, name, (int)result);
  fflush(stdout);
  exit(1);
}

/* Dropped when nobody reads: whoever watches must not be able to hold up the work. */
static void say_progress(uint64_t round) {
  struct pollfd output = {.fd = 1, .events = POLLOUT};
  if (poll(&output, 1, 0) <= 0 || !(output.revents & POLLOUT))
    return;
  printf("round %llu\n", (unsigned long long)round);
  fflush(stdout);
}

static void say(const char *text) {
  printf("%s\n", text);
  fflush(stdout);
}

static uint64_t seed_of(const struct worker *worker, int buffer) {
  return (uint64_t)getpid() << 16 | (uint64_t)(worker->index * BUFFERS_MAX + buffer);
}

static uint64_t round_delta(uint64_t round) { return round * UINT64_C(0x9e3779b97f4a7c15) + 1; }

static void launch(struct worker *worker, CUfunction function, uint64_t words, void **parameters) {
  uint64_t blocks = (words + BLOCK_THREADS - 1) / BLOCK_THREADS;
  unsigned grid = blocks > 65536 ? 65536 : (unsigned)blocks;
  must(cuLaunchKernel(function, grid, 1, 1, BLOCK_THREADS, 1, 1, 0, worker->stream, parameters, NULL),
       "cuLaunchKernel");
}

static void launch_fill(struct worker *worker, int buffer) {
  uint64_t seed = seed_of(worker, buffer);
  launch(worker, worker->fill, worker->words, (void *[]){&worker->buffers[buffer], &worker->words, &seed});
}

/* Of a buffer: the words from which on its quarters are. */
static uint64_t quarter_start(const struct worker *worker, uint64_t quarter) {
  return worker->words * quarter / QUARTERS;
}

static void launch_add(struct worker *worker, int buffer, uint64_t round) {
  uint64_t first = quarter_start(worker, round % QUARTERS), delta = round_delta(round);
  uint64_t words = quarter_start(worker, round % QUARTERS + 1) - first;
  CUdeviceptr at = worker->buffers[buffer] + first * sizeof(uint64_t);
  launch(worker, worker->add, words, (void *[]){&at, &words, &delta});
}

static void launch_touch(struct worker *worker, int buffer) {
  uint64_t bytes = worker->words * sizeof(uint64_t);
  launch(worker, worker->touch, bytes / GS_TOUCH_STRIDE + 1, (void *[]){&worker->buffers[buffer], &bytes});
}

static void launch_spin(struct worker *worker) {
  uint64_t ns = options.spin_ns;
  must(cuLaunchKernel(worker->spin, 1, 1, 1, 1, 1, 1, 0, worker->stream, (void *[]){&ns}, NULL),
       "cuLaunchKernel(spin)");
}

static void use_scratch(struct worker *worker, uint64_t round) {
  CUdeviceptr at;
  uint64_t words = options.scratch_bytes / sizeof(uint64_t);
  must(cuMemAllocAsync(&at, options.scratch_bytes, worker->stream), "cuMemAllocAsync");
  launch(worker, worker->fill, words, (void *[]){&at, &words, &round});
  must(cuMemFreeAsync(at, worker->stream), "cuMemFreeAsync");
}

static void submit_round(struct worker *worker, uint64_t round) {
  if (options.scratch_bytes)
    use_scratch(worker, round);
  for (int b = 0; b < options.buffers; b++) {
    launch_add(worker, b, round);
    launch_touch(worker, b);
  }
  if (options.spin_ns)
    launch_spin(worker);
}

/* The round as a graph: captured, instantiated, launched, thrown away. */
static void capture_round(struct worker *worker, uint64_t round) {
  CUgraph graph;
  CUgraphExec executable;
  must(cuStreamBeginCapture(worker->stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL); /* recording takes its time in Python, too */
  submit_round(worker, round);
  must(cuStreamEndCapture(worker->stream, &graph), "cuStreamEndCapture");
  must(cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
  must(cuGraphLaunch(executable, worker->stream), "cuGraphLaunch");
  must(cuStreamSynchronize(worker->stream), "cuStreamSynchronize");
  must(cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  must(cuGraphDestroy(graph), "cuGraphDestroy");
}

static bool goes_on(uint64_t round) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  if (options.rounds > 0)
    return round < (uint64_t)options.rounds;
  if (poll(&input, 1, 0) > 0)
    atomic_store(&stopped, true);
  return !atomic_load(&stopped);
}

static void work(struct worker *worker) {
  uint64_t round = 0;
  for (; goes_on(round); round++) {
    if (options.capture)
      capture_round(worker, round);
    else
      submit_round(worker, round);
    must(cuStreamSynchronize(worker->stream), "cuStreamSynchronize");
    if (options.progress && worker->index == 0)
      say_progress(round + 1);
  }
  worker->rounds_done = round;
}

/* What the rounds have added to a quarter. */
static uint64_t sum_of_deltas(uint64_t quarter, uint64_t rounds) {
  uint64_t sum = 0;
  for (uint64_t round = quarter; round < rounds; round += QUARTERS)
    sum += round_delta(round);
  return sum;
}

/* Of the quarter, which is copied to the host. */
static uint64_t wrong_words(struct worker *worker, int buffer, uint64_t quarter, uint64_t *host) {
  uint64_t first = quarter_start(worker, quarter), words = quarter_start(worker, quarter + 1) - first;
  uint64_t seed = seed_of(worker, buffer), added = sum_of_deltas(quarter, worker->rounds_done), wrong = 0;
  CUdeviceptr at = worker->buffers[buffer] + first * sizeof(uint64_t);
  must(cuMemcpyDtoHAsync(host, at, words * sizeof(uint64_t), worker->stream), "cuMemcpyDtoHAsync");
  must(cuStreamSynchronize(worker->stream), "cuStreamSynchronize");
  for (uint64_t i = 0; i < words; i++)
    wrong += host[i] != gs_hash(seed, first + i) + added;
  return wrong;
}

static void verify(struct worker *worker) {
  uint64_t *host = malloc((worker->words / QUARTERS + 1) * sizeof(uint64_t));
  if (!host)
    must(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
  for (int b = 0; b < options.buffers; b++) {
    uint64_t wrong = 0;
    for (uint64_t quarter = 0; quarter < QUARTERS; quarter++)
      wrong += wrong_words(worker, b, quarter, host);
    if (wrong == 0)
      continue;
    printf("error worker %d buffer %d: %llu wrong words\n", worker->index, b, (unsigned long long)wrong);
    fflush(stdout);
    exit(1);
  }
  free(host);
}

static void allocate(struct worker *worker) {
  uint64_t bytes = options.bytes / (uint64_t)options.buffers & ~(uint64_t)7;
  worker->words = bytes / sizeof(uint64_t);
  for (int b = 0; b < options.buffers; b++)
    if (options.async)
      must(cuMemAllocAsync(&worker->buffers[b], bytes, worker->stream), "cuMemAllocAsync");
    else if (options.managed)
      must(cuMemAllocManaged(&worker->buffers[b], bytes, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
    else
      must(cuMemAlloc(&worker->buffers[b], bytes), "cuMemAlloc");
}

static void release(struct worker *worker) {
  for (int b = 0; b < options.buffers; b++)
    if (options.async)
      must(cuMemFreeAsync(worker->buffers[b], worker->stream), "cuMemFreeAsync");
    else
      must(cuMemFree(worker->buffers[b]), "cuMemFree");
  must(cuStreamSynchronize(worker->stream), "cuStreamSynchronize");
  must(cuStreamDestroy(worker->stream), "cuStreamDestroy");
}

static void *run_worker(void *argument) {
  struct worker *worker = argument;
  must(cuCtxSetCurrent(worker->context), "cuCtxSetCurrent");
  must(cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  allocate(worker);
  pthread_barrier_wait(&allocated);
  pthread_barrier_wait(&started);
  for (int b = 0; b < options.buffers; b++)
    launch_fill(worker, b);
  must(cuStreamSynchronize(worker->stream), "cuStreamSynchronize");
  if (worker->index == 0)
    say("filled");
  work(worker);
  verify(worker);
  release(worker);
  return NULL;
}

static void make_context(CUcontext *context, CUdevice device) {
  if (options.contexts == 1) {
    must(cuDevicePrimaryCtxRetain(context, device), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(*context), "cuCtxSetCurrent");
    return;
  }
#if CUDA_VERSION >= 13000
  must(cuCtxCreate(context, NULL, 0, device), "cuCtxCreate");
#else
  must(cuCtxCreate(context, 0, device), "cuCtxCreate");
#endif
}

/* Workers go round robin over the GPUs, then over the contexts of each. */
static void make_contexts(void) {
  for (int g = 0; g < options.gpus; g++)
    for (int c = 0; c < options.contexts; c++) {
      CUdevice device;
      CUcontext context;
      CUmodule module;
      must(cuDeviceGet(&device, g), "cuDeviceGet");
      make_context(&context, device);
      must(cuModuleLoadData(&module, kernel_image()), "cuModuleLoadData");
      for (int w = 0; w < options.workers; w++) {
        if (w % options.gpus != g || w / options.gpus % options.contexts != c)
          continue;
        workers[w].context = context;
        must(cuModuleGetFunction(&workers[w].fill, module, "gs_fill"), "gs_fill");
        must(cuModuleGetFunction(&workers[w].add, module, "gs_add"), "gs_add");
        must(cuModuleGetFunction(&workers[w].touch, module, "gs_touch"), "gs_touch");
        must(cuModuleGetFunction(&workers[w].spin, module, "gs_spin"), "gs_spin");
      }
    }
}

static void *retain_and_release(void *unused) {
  CUcontext context;
  while (!atomic_load(&finished)) {
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
    usleep(50);
  }
  return unused;
}

static void run_workers(void) {
  pthread_t retainers[RETAINERS];
  for (int i = 0; i < RETAINERS && options.retain; i++)
    pthread_create(&retainers[i], NULL, retain_and_release, NULL);
  pthread_barrier_wait(&started);
  for (int w = 0; w < options.workers; w++)
    pthread_join(workers[w].thread, NULL);
  atomic_store(&finished, true);
  for (int i = 0; i < RETAINERS && options.retain; i++)
    pthread_join(retainers[i], NULL);
}

static void wait_for_line(void) {
  char line[64];
  if (!fgets(line, sizeof line, stdin))
    exit(3);
}

static int number_within(const char *text, int most) {
  int number = atoi(text);
  if (number < 0 || number > most) {
    fprintf(stderr, "job: %s is not within 0..%d\n", text, most);
    exit(2);
  }
  return number;
}

static void parse_options(int argc, char **argv) {
  static const struct option list[] = {{"bytes", 1, NULL, 'b'},
                                       {"buffers", 1, NULL, 'n'},
                                       {"rounds", 1, NULL, 'r'},
                                       {"spin", 1, NULL, 's'},
                                       {"workers", 1, NULL, 'w'},
                                       {"contexts", 1, NULL, 'c'},
                                       {"gpus", 1, NULL, 'g'},
                                       {"scratch", 1, NULL, 'm'},
                                       {"async", 0, &options.async, 1},
                                       {"capture", 0, &options.capture, 1},
                                       {"managed", 0, &options.managed, 1},
                                       {"wait", 0, &options.wait, 1},
                                       {"progress", 0, &options.progress, 1},
                                       {"retain", 0, &options.retain, 1},
                                       {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
    bool wrong = option == '?' || (option == 'b' && parse_bytes(optarg, &options.bytes) != 0) ||
                 (option == 'm' && parse_bytes(optarg, &options.scratch_bytes) != 0) ||
                 (option == 's' && parse_duration_ns(optarg, &options.spin_ns) != 0);
    if (wrong)
      exit(2);
    if (option == 'n')
      options.buffers = number_within(optarg, BUFFERS_MAX);
    else if (option == 'r')
      options.rounds = number_within(optarg, 1 << 30);
    else if (option == 'w')
      options.workers = number_within(optarg, WORKERS_MAX);
    else if (option == 'c')
      options.contexts = number_within(optarg, WORKERS_MAX);
    else if (option == 'g')
      options.gpus = number_within(optarg, WORKERS_MAX);
  }
}

int main(int argc, char **argv) {
  parse_options(argc, argv);
  must(cuInit(0), "cuInit");
  make_contexts();
  pthread_barrier_init(&allocated, NULL, (unsigned)options.workers + 1);
  pthread_barrier_init(&started, NULL, (unsigned)options.workers + 1);
  for (int w = 0; w < options.workers; w++) {
    workers[w].index = w;
    pthread_create(&workers[w].thread, NULL, run_worker, &workers[w]);
  }
  pthread_barrier_wait(&allocated);
  say("ready");
  if (options.wait)
    wait_for_line();
  run_workers();
  printf("verified %llu\n", (unsigned long long)options.bytes * (unsigned)options.workers);
  say("ok");
  return 0;
}
