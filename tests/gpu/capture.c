/*
 * capture.c - captures graphs over several streams in several threads, launches them, and verifies what they
 * did. A capture that is lost ends the program with an error: nothing here breaks one.
 * Arguments: global|thread_local|relaxed, ROUNDS (64), KIB per buffer (1024).
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "program.h"

enum { THREADS = 4, BRANCHES = 2, BUFFERS = BRANCHES + 1, LAUNCHES = 2 };
enum { LONG_EVERY = 8, LONG_NS = 30000000 }; /* a capture that is open for longer than the tests' quantum */

struct worker {
  int index;
  pthread_t thread;
  CUcontext context;
  CUstream origin, branches[BRANCHES];
  CUevent fork, joins[BRANCHES];
  CUdeviceptr buffers[BUFFERS], scratch;
  CUdeviceptr extra; /* allocated while capturing */
  uint64_t added;
};

static CUstreamCaptureMode mode;
static uint64_t rounds, words;
static struct kernels kernels;
static pthread_barrier_t allocated, started, phase;

static uint64_t seed_of(const struct worker *worker, int buffer) {
  return (uint64_t)(worker->index * BUFFERS + buffer);
}

/* While one thread captures in GLOBAL mode, the others may make none of the calls that could break a capture,
 * whose list has no end: so all capture at the same time, and do the rest at the same time. */
static void end_phase(void) {
  if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
    pthread_barrier_wait(&phase);
}

static void open_worker(struct worker *worker) {
  MUST(cuStreamCreate(&worker->origin, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&worker->fork, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < BRANCHES; i++) {
    MUST(cuStreamCreate(&worker->branches[i], CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&worker->joins[i], CU_EVENT_DISABLE_TIMING));
  }
  for (int i = 0; i < BUFFERS; i++)
    MUST(cuMemAlloc(&worker->buffers[i], words * sizeof(uint64_t)));
  MUST(cuMemAlloc(&worker->scratch, words * sizeof(uint64_t)));
}

static void submit_branch(struct worker *worker, int i, uint64_t delta) {
  CUdeviceptr buffer = worker->buffers[1 + i];
  size_t bytes = words * sizeof(uint64_t);
  MUST(cuStreamWaitEvent(worker->branches[i], worker->fork, 0));
  if (i == 0) { /* away and back: shows whether copies and sets keep their order */
    MUST(cuMemcpyDtoDAsync(worker->scratch, buffer, bytes, worker->branches[i]));
    MUST(cuMemsetD8Async(buffer, 0xff, bytes, worker->branches[i]));
    MUST(cuMemcpyDtoDAsync(buffer, worker->scratch, bytes, worker->branches[i]));
  }
  launch_add(&kernels, worker->branches[i], buffer, words, delta);
  MUST(cuEventRecord(worker->joins[i], worker->branches[i]));
}

/* One round's work, over all streams of the worker; captured, or submitted as it is. */
static void submit_round(struct worker *worker, uint64_t delta) {
  launch_add(&kernels, worker->origin, worker->buffers[0], words, delta);
  MUST(cuEventRecord(worker->fork, worker->origin));
  for (int i = 0; i < BRANCHES; i++)
    submit_branch(worker, i, delta);
  for (int i = 0; i < BRANCHES; i++)
    MUST(cuStreamWaitEvent(worker->origin, worker->joins[i], 0));
}

static void check_capturing(CUstream stream, uint64_t round) {
  CUstreamCaptureStatus status;
  MUST(cuStreamIsCapturing(stream, &status));
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    fail("round %llu: the capture is lost (status %d)", (unsigned long long)round, (int)status);
}

static CUgraph capture_round(struct worker *worker, uint64_t round) {
  CUgraph graph = NULL;
  MUST(cuStreamBeginCapture(worker->origin, mode));
  submit_round(worker, round);
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED && !worker->extra)
    MUST(cuMemAlloc(&worker->extra, MIB));
  if (round % LONG_EVERY == 0)
    nanosleep(&(struct timespec){.tv_nsec = LONG_NS}, NULL);
  check_capturing(worker->origin, round);
  MUST(cuStreamEndCapture(worker->origin, &graph));
  return graph;
}

static void launch_graph(struct worker *worker, CUgraph graph) {
  CUgraphExec executable;
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  MUST(cuGraphUpload(executable, worker->origin));
  for (int i = 0; i < LAUNCHES; i++)
    MUST(cuGraphLaunch(executable, worker->origin));
  MUST(cuStreamSynchronize(worker->origin));
  MUST(cuGraphExecDestroy(executable));
  MUST(cuGraphDestroy(graph));
}

static void verify(struct worker *worker) {
  for (int i = 0; i < BUFFERS; i++) {
    uint64_t wrong =
        wrong_words(worker->origin, worker->buffers[i], words, seed_of(worker, i), worker->added);
    if (wrong)
      fail("thread %d buffer %d: %llu wrong words", worker->index, i, (unsigned long long)wrong);
    MUST(cuMemFree(worker->buffers[i]));
  }
  MUST(cuMemFree(worker->scratch));
  if (worker->extra)
    MUST(cuMemFree(worker->extra));
}

/* Where others' captures allow it, the first thread works without any. */
static bool captures(const struct worker *worker) {
  return worker->index > 0 || mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static void run_round(struct worker *worker, uint64_t round) {
  if (captures(worker)) {
    CUgraph graph = capture_round(worker, round);
    end_phase();
    launch_graph(worker, graph);
    end_phase();
    worker->added += LAUNCHES * round;
  } else {
    submit_round(worker, round);
    MUST(cuStreamSynchronize(worker->origin));
    worker->added += round;
  }
}

static void *work(void *arg) {
  struct worker *worker = arg;
  MUST(cuCtxSetCurrent(worker->context));
  open_worker(worker);
  pthread_barrier_wait(&allocated);
  pthread_barrier_wait(&started);
  for (int i = 0; i < BUFFERS; i++)
    launch_fill(&kernels, worker->origin, worker->buffers[i], words, seed_of(worker, i));
  MUST(cuStreamSynchronize(worker->origin));
  end_phase();
  for (uint64_t round = 1; round <= rounds; round++)
    run_round(worker, round);
  verify(worker);
  return NULL;
}

static CUstreamCaptureMode parse_mode(const char *name) {
  static const char *const names[] = {
      [CU_STREAM_CAPTURE_MODE_GLOBAL] = "global",
      [CU_STREAM_CAPTURE_MODE_THREAD_LOCAL] = "thread_local",
      [CU_STREAM_CAPTURE_MODE_RELAXED] = "relaxed",
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (name && strcmp(names[i], name) == 0)
      return (CUstreamCaptureMode)i;
  fail("the first argument is none of global, thread_local, relaxed");
}

int main(int argc, char **argv) {
  static struct worker workers[THREADS];
  CUcontext context;
  mode = parse_mode(argv[1]);
  rounds = argument(argc, argv, 2, 64);
  words = argument(argc, argv, 3, 1024) * 1024 / sizeof(uint64_t);
  program_start(&context);
  kernels = kernels_load();
  pthread_barrier_init(&allocated, NULL, THREADS + 1);
  pthread_barrier_init(&started, NULL, THREADS + 1);
  pthread_barrier_init(&phase, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) {
    workers[i].index = i;
    workers[i].context = context;
    pthread_create(&workers[i].thread, NULL, work, &workers[i]);
  }
  pthread_barrier_wait(&allocated);
  program_say("ready");
  program_await_line();
  pthread_barrier_wait(&started);
  for (int i = 0; i < THREADS; i++)
    pthread_join(workers[i].thread, NULL);
  program_say("ok");
  return 0;
}
