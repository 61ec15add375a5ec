/*
 * preempt.c - src/preempt on a driver, in this process alone: no other part of the library is there. Its
 * lines are a table for people; the last is "ok".
 *
 * Arguments: CASE [NUMBER [SEED]].
 *
 * verdict: says "verdict yes CHANNELS" or "verdict no ERROR".
 *
 * standstill: kernels and copies in their middle, which write NUMBER words (32 Mi) that the host sees: none
 * changes while stopped, all are right in the end; and what is submitted while stopped.
 *
 * latency: NUMBER stops and gos (200) beside a kernel that runs.
 *
 * contents: NUMBER random stops (1000) under kernels, graphs, copies, sets, host functions, waits for events
 * and for the context, by several threads; every word is verified.
 *
 * contexts: made, used and destroyed while stopped. fork, exit: while stopped. slices: set, and set back.
 *
 * shares: NUMBER (1000) stops as contents has them, beside another process that uses the GPU, while slices
 * change: a fourth argument of 1, while it runs; of 2, while stopped (3: both, the default); of 4, at any
 * time.
 */
#include "preempt/preempt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../bench/quantile.h"
#include "common/clock.h"
#include "common/splitmix.h"
#include "program.h"
#include "sim/kernels.h"

enum { HANGS_S = 25, LOOK_MS = 20 };

static CUdevice device;
static CUcontext context;
static struct kernels kernels;

static void require(bool condition, const char *what) {
  if (!condition)
    fail("%s", what);
}

/* A call of the driver that waits for work which is stopped. */
static void tell_hang(int signal_number) {
  static const char text[] = "error it hangs\n";
  (void)signal_number;
  _exit(write(STDOUT_FILENO, text, sizeof text - 1) > 0 ? 1 : 2);
}

static CUstream stream_make(void) {
  CUstream stream;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

static CUevent event_after(CUstream stream) {
  CUevent event;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventRecord(event, stream));
  return event;
}

static bool is_done(CUevent event) {
  CUresult result = cuEventQuery(event);
  if (result != CUDA_ERROR_NOT_READY)
    MUST(result);
  return result == CUDA_SUCCESS;
}

static void pause_ms(unsigned ms) { clock_sleep(ms * NS_PER_MS); }

static void start_driver(void) {
  preempt_begin();
  device = program_start(&context);
  kernels = kernels_load();
}

static void try_to_stop(void) {
  for (int tries = 0; preempt_try(device) == -EAGAIN && tries < 20; tries++)
    pause_ms(LOOK_MS);
}

static void require_able(void) {
  if (preempt_verdict(device) != PREEMPT_YES)
    fail("verdict no: error %#x", (unsigned)preempt_channels(device).error);
}

static void begin_able(void) {
  start_driver();
  try_to_stop();
  require_able();
}

static void stop(void) {
  int err = preempt_stop(device);
  if (err)
    fail("stop: %d, error %#x", err, (unsigned)preempt_channels(device).error);
}

static void go(void) {
  int err = preempt_go(device);
  if (err)
    fail("go on: %d, error %#x", err, (unsigned)preempt_channels(device).error);
}

/* ---- verdict ---- */

static void say_verdict(void) {
  static const char *const names[] = {"unknown", "yes", "no"};
  start_driver();
  try_to_stop();
  struct preempt_channels have = preempt_channels(device);
  enum preempt_verdict verdict = preempt_verdict(device);
  printf("verdict %s", names[verdict]);
  if (verdict == PREEMPT_YES)
    printf(" %u groups %u compute %u other\n", have.groups, have.compute, have.other);
  else if (have.error)
    printf(" %#x\n", (unsigned)have.error);
  else
    printf(" untried\n");
  /* Whatever it is, work is done. */
  CUstream stream = stream_make();
  int err = preempt_stop(device);
  require((err == 0) == (verdict == PREEMPT_YES), "stops against the verdict");
  launch_spin(&kernels, stream, NS_PER_MS);
  CUevent after = event_after(stream);
  pause_ms(LOOK_MS);
  require(err != 0 || !is_done(after), "work ends while it is stopped");
  go();
  MUST(cuEventSynchronize(after));
}

/* ---- standstill ---- */

enum { STILL_ROUNDS = 8, STILL_MOST = 200 }; /* the latter: until one was in the middle, on a busy machine */
static uint64_t still_words;

struct picture {  /* what a kernel fills or a copy brings, word by word, for the host to see */
  uint64_t *host; /* pinned */
  uint64_t *seen;
  CUdeviceptr on_card; /* filled with seed 0 */
};

static struct picture picture_make(CUstream stream) {
  struct picture picture = {.seen = malloc(still_words * sizeof(uint64_t))};
  require(picture.seen != NULL, "no memory");
  MUST(cuMemHostAlloc((void **)&picture.host, still_words * sizeof(uint64_t),
                      CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
  MUST(cuMemAlloc(&picture.on_card, still_words * sizeof(uint64_t)));
  launch_fill(&kernels, stream, picture.on_card, still_words, 0);
  MUST(cuStreamSynchronize(stream));
  return picture;
}

/* A kernel that writes to the host as fast as the bus takes it is stopped once all is written, on an H200. */
static void fill_picture(struct picture *picture, CUstream stream) {
  launch_fill_slowly(&kernels, stream, (uintptr_t)picture->host, still_words, 0);
}

static void copy_picture(struct picture *picture, CUstream stream) {
  MUST(cuMemcpyDtoHAsync(picture->host, picture->on_card, still_words * sizeof(uint64_t), stream));
}

static uint64_t right_words(const uint64_t *words) {
  uint64_t right = 0;
  for (uint64_t i = 0; i < still_words; i++)
    right += words[i] == gs_hash(0, i);
  return right;
}

/* Until the first words are there. */
static void await_beginning(const struct picture *picture) {
  for (uint64_t end_ns = clock_now_ns() + NS_PER_S; clock_now_ns() < end_ns;)
    for (uint64_t i = 0; i < still_words; i += still_words / 64)
      if (__atomic_load_n(&picture->host[i], __ATOMIC_RELAXED))
        return;
}

static void stand_still_in(struct picture *picture, CUstream stream, const char *name,
                           void (*submit)(struct picture *picture, CUstream stream)) {
  size_t bytes = still_words * sizeof(uint64_t);
  unsigned middles = 0;
  int round = 0;
  for (; round < STILL_ROUNDS || (middles == 0 && round < STILL_MOST); round++) {
    memset(picture->host, 0, bytes);
    submit(picture, stream);
    CUevent after = event_after(stream);
    await_beginning(picture);
    stop();
    memcpy(picture->seen, picture->host, bytes);
    pause_ms(LOOK_MS);
    require(memcmp(picture->seen, picture->host, bytes) == 0, "words change while stopped");
    uint64_t right = right_words(picture->seen);
    middles += right > 0 && right < still_words;
    require(right == still_words || !is_done(after), "its end is told before it is there");
    go();
    MUST(cuEventSynchronize(after));
    MUST(cuEventDestroy(after));
    require(right_words(picture->host) == still_words, "wrong words after going on");
  }
  printf("%-8s stood still %d times, %u of them in the middle\n", name, round, middles);
  require(middles > 0, "none was stopped in its middle");
}

static void set_flag(void *flag) { *(_Atomic bool *)flag = true; }

/* What is submitted while stopped: none of it begins, or is told to have ended.
 *
 * Why each kind has memory of its own: the streams run beside each other after the go. If they shared it,
 * thread sanitizer would find a race in each word. For each race, it searches all races before. */
static void hold_all(void) {
  enum { KINDS = 6 };
  static _Atomic bool called;
  CUstream streams[KINDS];
  CUevent after[KINDS];
  CUgraph graph;
  CUgraphExec exec;
  CUdeviceptr at[KINDS];
  uint64_t *out, *in;
  MUST(cuMemHostAlloc((void **)&out, MIB, CU_MEMHOSTALLOC_PORTABLE));
  MUST(cuMemHostAlloc((void **)&in, MIB, CU_MEMHOSTALLOC_PORTABLE));
  for (int i = 0; i < KINDS; i++) {
    streams[i] = stream_make();
    MUST(cuMemAlloc(&at[i], MIB));
  }
  MUST(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (int i = 0; i < 10; i++)
    launch_add(&kernels, streams[0], at[0], MIB / 8, 1);
  MUST(cuStreamEndCapture(streams[0], &graph));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  MUST(cuGraphUpload(exec, streams[0]));
  MUST(cuCtxSynchronize());
  stop();
  MUST(cuGraphLaunch(exec, streams[0]));
  launch_add(&kernels, streams[1], at[1], MIB / 8, 1);
  MUST(cuMemcpyDtoHAsync(out, at[2], MIB, streams[2]));
  MUST(cuMemcpyHtoDAsync(at[3], in, MIB, streams[3]));
  MUST(cuMemsetD8Async(at[4], 0, MIB, streams[4]));
  launch_add(&kernels, streams[5], at[5], MIB / 8, 1); /* on an idle stream a host function needs no GPU */
  MUST(cuLaunchHostFunc(streams[5], set_flag, &called));
  for (int i = 0; i < KINDS; i++)
    after[i] = event_after(streams[i]);
  pause_ms(LOOK_MS);
  for (int i = 0; i < KINDS; i++)
    if (is_done(after[i]))
      fail("work of kind %d ends while stopped", i);
  require(!called, "a host function is called while stopped");
  go();
  MUST(cuCtxSynchronize());
  require(called, "the host function is not called");
}

static void stand_still(uint64_t words) {
  still_words = words;
  begin_able();
  CUstream stream = stream_make();
  struct picture picture = picture_make(stream);
  stand_still_in(&picture, stream, "kernels", fill_picture);
  stand_still_in(&picture, stream, "copies", copy_picture);
  hold_all();
  free(picture.seen);
}

/* ---- latency ---- */

static void latency(uint64_t count) {
  double *stops = calloc(count, sizeof *stops), *gos = calloc(count, sizeof *gos);
  begin_able();
  require(stops && gos, "no memory");
  CUstream stream = stream_make();
  CUevent after = NULL;
  for (uint64_t i = 0; i < count; i++) {
    if (!after || is_done(after)) {
      launch_spin(&kernels, stream, NS_PER_S / 2);
      after = event_after(stream);
    }
    uint64_t began_ns = clock_now_ns();
    stop();
    stops[i] = (double)(clock_now_ns() - began_ns) / 1e3;
    pause_ms(1);
    began_ns = clock_now_ns();
    go();
    gos[i] = (double)(clock_now_ns() - began_ns) / 1e3;
    pause_ms(1);
  }
  printf("%-8s %8s %8s %8s\n", "us", "p50", "p99", "max");
  printf("%-8s %8.0f %8.0f %8.0f\n", "stop", median(stops, count), quantile(stops, count, 0.99),
         quantile(stops, count, 1));
  printf("%-8s %8.0f %8.0f %8.0f\n", "go", median(gos, count), quantile(gos, count, 0.99),
         quantile(gos, count, 1));
  MUST(cuCtxSynchronize());
  free(stops);
  free(gos);
}

/* ---- contents ---- */

enum { LANE_KINDS = 6, LANE_WORDS = 256 << 10 };
/* The driver refuses to wait for a context in which a stream captures. */
static pthread_mutex_t capture_or_wait = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool ending;
static _Atomic uint64_t rounds_done[LANE_KINDS];

struct lane {
  CUstream stream;
  CUdeviceptr at, other;
  uint64_t *in, *out; /* pinned */
  uint64_t seed, added;
};

static struct lane lane_make(uint64_t seed) {
  struct lane lane = {.stream = stream_make(), .seed = seed};
  size_t bytes = LANE_WORDS * sizeof(uint64_t);
  MUST(cuCtxSetCurrent(context));
  MUST(cuMemAlloc(&lane.at, bytes));
  MUST(cuMemAlloc(&lane.other, bytes));
  MUST(cuMemHostAlloc((void **)&lane.in, bytes, CU_MEMHOSTALLOC_PORTABLE));
  MUST(cuMemHostAlloc((void **)&lane.out, bytes, CU_MEMHOSTALLOC_PORTABLE));
  launch_fill(&kernels, lane.stream, lane.at, LANE_WORDS, seed);
  return lane;
}

static void lane_verify(struct lane *lane, CUdeviceptr at, const char *what) {
  if (wrong_words(lane->stream, at, LANE_WORDS, lane->seed, lane->added) != 0)
    fail("%s: wrong words", what);
}

static void do_kernels(struct lane *lane) {
  for (int i = 0; i < 20; i++)
    launch_add(&kernels, lane->stream, lane->at, LANE_WORDS, 3);
  lane->added += 60;
  MUST(cuStreamSynchronize(lane->stream));
}

static void do_graph(struct lane *lane) {
  CUgraph graph;
  CUgraphExec exec;
  pthread_mutex_lock(&capture_or_wait);
  MUST(cuStreamBeginCapture(lane->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (int i = 0; i < 10; i++)
    launch_add(&kernels, lane->stream, lane->at, LANE_WORDS, 5);
  MUST(cuMemsetD8Async(lane->other, 0x5A, LANE_WORDS * sizeof(uint64_t), lane->stream));
  MUST(cuMemcpyDtoDAsync(lane->other, lane->at, LANE_WORDS * sizeof(uint64_t), lane->stream));
  MUST(cuStreamEndCapture(lane->stream, &graph));
  pthread_mutex_unlock(&capture_or_wait);
  MUST(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 4; i++)
    MUST(cuGraphLaunch(exec, lane->stream));
  lane->added += 200;
  lane_verify(lane, lane->other, "graph");
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
}

static void do_copies(struct lane *lane) {
  size_t bytes = LANE_WORDS * sizeof(uint64_t);
  MUST(cuMemcpyDtoHAsync(lane->out, lane->at, bytes, lane->stream));
  MUST(cuMemsetD8Async(lane->other, 0, bytes, lane->stream));
  MUST(cuMemcpyHtoDAsync(lane->other, lane->out, bytes, lane->stream));
  MUST(cuMemsetD8Async(lane->at, 0xFF, bytes, lane->stream));
  MUST(cuMemcpyDtoDAsync(lane->at, lane->other, bytes, lane->stream));
  lane_verify(lane, lane->at, "copies"); /* to pageable memory */
}

static void add_here(void *argument) {
  struct lane *lane = argument;
  for (uint64_t i = 0; i < LANE_WORDS; i += 1024)
    lane->in[i] = lane->out[i] + 1;
}

/* The host's function takes what was copied out, and what it makes is copied in. */
static void do_host_function(struct lane *lane) {
  size_t bytes = LANE_WORDS * sizeof(uint64_t);
  for (uint64_t i = 0; i < LANE_WORDS; i++)
    lane->in[i] = gs_hash(lane->seed, i) + lane->added + 1;
  MUST(cuMemcpyDtoHAsync(lane->out, lane->at, bytes, lane->stream));
  MUST(cuLaunchHostFunc(lane->stream, add_here, lane));
  MUST(cuMemcpyHtoDAsync(lane->at, lane->in, bytes, lane->stream));
  lane->added++;
  lane_verify(lane, lane->at, "host function");
}

/* Two streams in turns, and the context as a whole waited for. */
static void do_waits(struct lane *lane) {
  static _Thread_local CUstream second;
  if (!second)
    second = stream_make();
  for (int i = 0; i < 6; i++) {
    CUstream from = i % 2 ? second : lane->stream, to = i % 2 ? lane->stream : second;
    launch_add(&kernels, from, lane->at, LANE_WORDS, 7);
    CUevent event = event_after(from);
    MUST(cuStreamWaitEvent(to, event, 0));
    MUST(cuEventDestroy(event));
  }
  lane->added += 42;
  pthread_mutex_lock(&capture_or_wait);
  MUST(cuCtxSynchronize());
  pthread_mutex_unlock(&capture_or_wait);
  lane_verify(lane, lane->at, "events");
}

/* As libraries do that load what they launch when they first need it, each with a runtime of its own, which
 * retains the context. */
static void do_modules(struct lane *lane) {
  preempt_making(true);
  preempt_making(false);
  struct kernels fresh = kernels_load();
  int blocks;
  MUST(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fresh.add, 256, 0));
  launch_add(&fresh, lane->stream, lane->at, LANE_WORDS, 11);
  lane->added += 11;
  MUST(cuStreamSynchronize(lane->stream));
  CUmodule module;
  MUST(cuFuncGetModule(&module, fresh.add));
  MUST(cuModuleUnload(module));
}

static void *work(void *argument) {
  static void (*const kinds[LANE_KINDS])(struct lane *) = {do_kernels,       do_graph, do_copies,
                                                           do_host_function, do_waits, do_modules};
  uintptr_t kind = (uintptr_t)argument;
  MUST(cuCtxSetCurrent(context));
  struct lane lane = lane_make(kind);
  do {
    kinds[kind](&lane);
    atomic_fetch_add(&rounds_done[kind], 1);
  } while (!ending);
  lane_verify(&lane, lane.at, "end");
  return NULL;
}

static void random_pause(uint64_t *random) { clock_sleep(splitmix_next(random) % (4 * NS_PER_MS)); }

enum { SLICE_RUNNING = 1, SLICE_STOPPED = 2, SLICE_ANY_TIME = 4 };

static void random_slice(uint64_t *random) {
  static const uint64_t list[] = {200, 2048, 100000};
  require(preempt_slice(device, list[splitmix_next(random) % 3]) == 0, "a slice is refused");
}

static void *slice_at_any_time(void *argument) {
  uint64_t random = *(uint64_t *)argument;
  while (!ending) {
    random_pause(&random);
    random_slice(&random);
  }
  return NULL;
}

static void contents(uint64_t count, uint64_t seed, unsigned when) {
  pthread_t threads[LANE_KINDS], slicer;
  uint64_t random = seed;
  begin_able();
  printf("seed %llu\n", (unsigned long long)seed);
  for (uintptr_t i = 0; i < LANE_KINDS; i++)
    require(pthread_create(&threads[i], NULL, work, (void *)i) == 0, "no thread");
  if (when & SLICE_ANY_TIME)
    require(pthread_create(&slicer, NULL, slice_at_any_time, &seed) == 0, "no thread");
  for (uint64_t i = 0; i < count; i++) {
    random_pause(&random);
    if (when & SLICE_RUNNING)
      random_slice(&random);
    stop();
    if (when & SLICE_STOPPED)
      random_slice(&random);
    random_pause(&random);
    go();
  }
  atomic_store(&ending, true);
  for (int i = 0; i < LANE_KINDS; i++)
    pthread_join(threads[i], NULL);
  if (when & SLICE_ANY_TIME)
    pthread_join(slicer, NULL);
  printf("contents right after %llu stops; rounds", (unsigned long long)count);
  for (int i = 0; i < LANE_KINDS; i++)
    printf(" %llu", (unsigned long long)rounds_done[i]);
  printf("\n");
}

/* ---- shares ---- */

/* Keeps the GPU busy, in long slices, until its parent ends. */
static void be_neighbour(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  begin_able();
  CUstream stream = stream_make();
  require(preempt_slice(device, 100000) == 0, "a slice is refused");
  while (getppid() == parent) {
    for (int i = 0; i < 20; i++)
      launch_spin(&kernels, stream, NS_PER_MS / 2);
    MUST(cuStreamSynchronize(stream));
  }
  _exit(0);
}

static void shares(uint64_t count, uint64_t seed, unsigned when) {
  pid_t parent = getpid(), pid = fork();
  require(pid >= 0, "no process");
  if (pid == 0)
    be_neighbour(parent);
  contents(count, seed, when);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

/* ---- contexts ---- */

struct second {
  _Atomic bool made, used, gone;
  CUcontext context;
  CUevent after;
  CUstream stream;
  CUdeviceptr at;
};

static void *make_second(void *argument) {
  struct second *second = argument;
  second->context = context_create(device);
  second->made = true;
  struct kernels own = kernels_load();
  second->stream = stream_make();
  MUST(cuMemAlloc(&second->at, LANE_WORDS * sizeof(uint64_t)));
  launch_fill(&own, second->stream, second->at, LANE_WORDS, 9);
  second->after = event_after(second->stream);
  second->used = true;
  return NULL;
}

static void *destroy_second(void *argument) {
  struct second *second = argument;
  MUST(cuCtxDestroy(second->context));
  second->gone = true;
  return NULL;
}

static void contexts(void) {
  begin_able();
  unsigned before = preempt_channels(device).compute + preempt_channels(device).other;
  for (int round = 0; round < 3; round++) {
    struct second second = {0};
    pthread_t thread;
    stop();
    require(pthread_create(&thread, NULL, make_second, &second) == 0, "no thread");
    pause_ms(300);
    printf("a second context, while stopped: %s, work %s\n", second.made ? "made" : "not made before the go",
           second.used ? "submitted" : "not submitted");
    require(!second.used || !is_done(second.after), "a context made while stopped runs work");
    go();
    pthread_join(thread, NULL);
    MUST(cuCtxSetCurrent(second.context));
    require(wrong_words(second.stream, second.at, LANE_WORDS, 9, 0) == 0,
            "wrong words in the second context");
    MUST(cuCtxSetCurrent(context));
    unsigned with = preempt_channels(device).compute + preempt_channels(device).other;
    require(with > before, "no channels of the second context are known");
    stop();
    require(pthread_create(&thread, NULL, destroy_second, &second) == 0, "no thread");
    pause_ms(LOOK_MS);
    printf("it is destroyed while stopped: %s\n", second.gone ? "at once" : "not before the go");
    go();
    pthread_join(thread, NULL);
    require(preempt_channels(device).compute + preempt_channels(device).other == before,
            "channels of a context that has gone are still known");
    stop();
    go();
  }
  MUST(cuCtxSynchronize());
}

/* ---- fork, exit ---- */

static void expect_child(pid_t pid) {
  int status = -1;
  require(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the child has failed");
}

/* Neither child may let its parent's work on. */
static void fork_stopped(void) {
  begin_able();
  CUstream stream = stream_make();
  stop();
  launch_spin(&kernels, stream, NS_PER_MS);
  CUevent after = event_after(stream);
  pid_t pid = fork();
  if (pid == 0) {
    bool right =
        preempt_verdict(device) == PREEMPT_NO && preempt_stop(device) != 0 && preempt_go(device) == 0;
    exit(!right);
  }
  expect_child(pid);
  pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (pid == 0)
    _exit(preempt_stop(device) == 0 || preempt_go(device) != 0);
  expect_child(pid);
  pause_ms(LOOK_MS);
  require(!is_done(after), "a child has let its parent's work on");
  go();
  MUST(cuEventSynchronize(after));
}

/* The driver takes a process apart whose work stands still. */
static void exit_stopped(void) {
  begin_able();
  CUstream stream = stream_make();
  launch_spin(&kernels, stream, 50 * NS_PER_MS);
  stop();
  launch_spin(&kernels, stream, NS_PER_MS);
  program_say("ok");
  exit(0);
}

/* ---- slices ---- */

static void slices(void) {
  begin_able();
  CUstream stream = stream_make();
  launch_spin(&kernels, stream, 100 * NS_PER_MS);
  static const uint64_t list[] = {1, 200, 100000, 0};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    require(preempt_slice(device, list[i]) == 0, "a slice is refused");
  require(preempt_slice(device, 2000000) == -ERANGE, "a slice of two seconds is taken");
  MUST(cuStreamSynchronize(stream));
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "verdict";
  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGALRM, tell_hang);
  const char *scale = getenv("GS_TEST_SCALE"); /* under a sanitizer */
  alarm(HANGS_S * (scale ? (unsigned)atoi(scale) : 1));
  if (strcmp(what, "verdict") == 0)
    say_verdict();
  else if (strcmp(what, "standstill") == 0)
    stand_still(argument(argc, argv, 2, 32 * MIB));
  else if (strcmp(what, "latency") == 0)
    latency(argument(argc, argv, 2, 200));
  else if (strcmp(what, "contents") == 0)
    contents(argument(argc, argv, 2, 1000), argument(argc, argv, 3, clock_now_ns()), 0);
  else if (strcmp(what, "shares") == 0)
    shares(argument(argc, argv, 2, 1000), argument(argc, argv, 3, clock_now_ns()),
           (unsigned)argument(argc, argv, 4, SLICE_RUNNING | SLICE_STOPPED));
  else if (strcmp(what, "contexts") == 0)
    contexts();
  else if (strcmp(what, "fork") == 0)
    fork_stopped();
  else if (strcmp(what, "exit") == 0)
    exit_stopped();
  else if (strcmp(what, "slices") == 0)
    slices();
  else
    fail("no case %s", what);
  program_say("ok");
  return 0;
}
