/*
 * threads.c - eight threads, each with eight streams, spread over the primary context and two others; the
 * streams of a thread depend on each other by events. Every word is verified on the host.
 * Arguments: ROUNDS (200), KIB per stream (1024).
 */
#include <pthread.h>

#include "program.h"

enum { THREADS = 8, STREAMS = 8, CONTEXTS = 3 };

struct lane { /* one stream and its memory */
  CUstream stream;
  CUevent done;
  CUdeviceptr at, scratch;
};

struct worker {
  int index;
  pthread_t thread;
  CUcontext context;
  const struct kernels *kernels;
  struct lane lanes[STREAMS];
};

static uint64_t rounds, words;
static struct kernels kernels[CONTEXTS];
static pthread_barrier_t allocated, started;

static uint64_t seed_of(const struct worker *worker, int lane) {
  return (uint64_t)(worker->index * STREAMS + lane);
}

static void open_lanes(struct worker *worker) {
  for (int i = 0; i < STREAMS; i++) {
    struct lane *lane = &worker->lanes[i];
    MUST(cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&lane->done, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAlloc(&lane->at, words * sizeof(uint64_t)));
    MUST(cuMemAlloc(&lane->scratch, words * sizeof(uint64_t)));
  }
}

/* Out to the scratch memory, which the neighbour's stream then copies back: the same words, if the order
 * holds. */
static void go_round(struct worker *worker, int i, uint64_t delta) {
  struct lane *lane = &worker->lanes[i], *neighbour = &worker->lanes[(i + 1) % STREAMS];
  size_t bytes = words * sizeof(uint64_t);
  launch_add(worker->kernels, lane->stream, lane->at, words, delta);
  MUST(cuMemcpyDtoDAsync(lane->scratch, lane->at, bytes, lane->stream));
  MUST(cuMemsetD8Async(lane->at, 0xff, bytes, lane->stream));
  MUST(cuEventRecord(lane->done, lane->stream));
  MUST(cuStreamWaitEvent(neighbour->stream, lane->done, 0));
  MUST(cuMemcpyDtoDAsync(lane->at, lane->scratch, bytes, neighbour->stream));
  MUST(cuEventRecord(neighbour->done, neighbour->stream));
  MUST(cuStreamWaitEvent(lane->stream, neighbour->done, 0));
}

static void synchronize(struct worker *worker, uint64_t round) {
  if (round % 16 == 0)
    MUST(cuCtxSynchronize());
  else if (round % 4 == 0)
    MUST(cuStreamSynchronize(worker->lanes[round % STREAMS].stream));
}

static void verify_lanes(struct worker *worker) {
  for (int i = 0; i < STREAMS; i++) {
    struct lane *lane = &worker->lanes[i];
    uint64_t wrong =
        wrong_words(lane->stream, lane->at, words, seed_of(worker, i), rounds * (rounds + 1) / 2);
    if (wrong)
      fail("thread %d stream %d: %llu wrong words", worker->index, i, (unsigned long long)wrong);
    MUST(cuMemFree(lane->at));
    MUST(cuMemFree(lane->scratch));
    MUST(cuEventDestroy(lane->done));
    MUST(cuStreamDestroy(lane->stream));
  }
}

static void *work(void *arg) {
  struct worker *worker = arg;
  MUST(cuCtxSetCurrent(worker->context));
  open_lanes(worker);
  pthread_barrier_wait(&allocated);
  pthread_barrier_wait(&started);
  for (int i = 0; i < STREAMS; i++)
    launch_fill(worker->kernels, worker->lanes[i].stream, worker->lanes[i].at, words, seed_of(worker, i));
  for (uint64_t round = 1; round <= rounds; round++) {
    for (int i = 0; i < STREAMS; i++)
      go_round(worker, i, round);
    synchronize(worker, round);
  }
  MUST(cuCtxSynchronize());
  verify_lanes(worker);
  return NULL;
}

int main(int argc, char **argv) {
  static struct worker workers[THREADS];
  CUcontext contexts[CONTEXTS];
  rounds = argument(argc, argv, 1, 200);
  words = argument(argc, argv, 2, 1024) * 1024 / sizeof(uint64_t);
  CUdevice device = program_start(&contexts[0]);
  kernels[0] = kernels_load();
  for (int c = 1; c < CONTEXTS; c++) {
    contexts[c] = context_create(device);
    kernels[c] = kernels_load();
  }
  pthread_barrier_init(&allocated, NULL, THREADS + 1);
  pthread_barrier_init(&started, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) {
    workers[i].index = i;
    workers[i].context = contexts[i % CONTEXTS];
    workers[i].kernels = &kernels[i % CONTEXTS];
    pthread_create(&workers[i].thread, NULL, work, &workers[i]);
  }
  pthread_barrier_wait(&allocated);
  program_say("ready");
  program_await_line();
  pthread_barrier_wait(&started);
  for (int i = 0; i < THREADS; i++)
    pthread_join(workers[i].thread, NULL);
  for (int c = 1; c < CONTEXTS; c++)
    MUST(cuCtxDestroy(contexts[c]));
  program_say("ok");
  return 0;
}
