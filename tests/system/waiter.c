/*
 * waiter.c - holds the GPU with work that does not end soon, and meanwhile other threads of it want to
 * submit.
 *
 * usage: waiter SITUATION. Says "busy", waits for a line, plays the situation, says "ok".
 *
 *   capture   a long kernel; another thread records a graph meanwhile, and for longer than the kernel runs
 *   released  the stream waits, in a host function, for another thread, which records graphs first
 *   locked    the stream waits, in a host function, for another thread, which launches first; a third thread,
 *             which launches as well, gets to run late
 *   allocated the stream waits, in a host function, for another thread, which allocates first
 *   between   a long kernel; another thread allocates meanwhile, says "allocated", and uses that after
 *             another line
 *   recorded  the stream waits, in a host function, for another thread, which records and launches a graph
 *             first
 *   recorded_beside  the same, and it is a per-thread stream that waits
 *   freed     the same, and meanwhile a third thread frees memory, which waits for that stream
 *   let_go    a per-thread stream waits, in a host function, for another thread, which first gives up one
 *             of two holds on the primary context
 *   called    a launch is called back by the driver, and launches there, once there has been the line; says
 *             "inner", and the outer launch ends after another line
 *   quiet     a per-thread stream has been used, and nothing is done for some seconds
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "gpu.h"
#include "sim/sim.h"

#define WORDS (UINT64_C(1) << 17)
#define LONG_NS (7 * NS_PER_S / 2) /* longer than a drain waits before it lets calls pass */
#define SEED 5

static struct gpu gpu;
static CUstream busy_stream, other_stream, late_stream;
static CUdeviceptr other_words, late_words;

/* What has happened so far. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int step;

static void reach_step(int next) {
  pthread_mutex_lock(&lock);
  step = next;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static void await_step(int wanted) {
  pthread_mutex_lock(&lock);
  while (step < wanted)
    pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

static void happen(void *unused) {
  (void)unused;
  reach_step(1);
}

static void await_happened(void *unused) {
  (void)unused;
  await_step(1);
}

static void take_time(uint64_t ns) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)}, NULL);
}

/* ---- capture ---- */

static void *record(void *unused) {
  CUgraph graph;
  CUgraphExec executable;
  MUST(cuCtxSetCurrent(gpu.context));
  MUST(cuStreamBeginCapture(other_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  gpu_add(&gpu, other_stream, other_words, WORDS, 1);
  await_happened(NULL);
  take_time(NS_PER_S / 5); /* so that whoever waits for the kernel would wait again within the capture */
  gpu_add(&gpu, other_stream, other_words, WORDS, 2);
  MUST(cuStreamEndCapture(other_stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  MUST(cuGraphLaunch(executable, other_stream));
  MUST(cuStreamSynchronize(other_stream));
  gpu_verify(other_words, WORDS, SEED, 3);
  return unused;
}

static void be_busy_long(void) {
  gpu_spin(&gpu, busy_stream, LONG_NS);
  MUST(cuLaunchHostFunc(busy_stream, happen, NULL));
}

/* ---- released ---- */

static void be_busy_until_happened(void) { MUST(cuLaunchHostFunc(busy_stream, await_happened, NULL)); }

static void *record_often(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  for (int i = 0; i < 10; i++) {
    CUgraph graph;
    MUST(cuStreamBeginCapture(other_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuStreamEndCapture(other_stream, &graph));
    MUST(cuGraphDestroy(graph));
    take_time(NS_PER_S / 10); /* long enough to look idle */
  }
  happen(NULL);
  return unused;
}

/* ---- locked ---- */

static atomic_bool late_has_run;

static int first_processor(cpu_set_t *one) {
  cpu_set_t allowed;
  CPU_ZERO(one);
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &allowed)) {
      CPU_SET(i, one);
      return i;
    }
  return -1;
}

static void stay_on_first_processor(void) {
  cpu_set_t one;
  if (first_processor(&one) >= 0)
    sched_setaffinity(0, sizeof one, &one);
}

/* It shares a processor with one that never rests, and gives way to it: it runs some milliseconds after it
 * has been woken. */
static void *launch_late(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  stay_on_first_processor();
  sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){.sched_priority = 0});
  gpu_add(&gpu, late_stream, late_words, WORDS, 1);
  atomic_store(&late_has_run, true);
  return unused;
}

static void *never_rest(void *unused) {
  stay_on_first_processor();
  for (uint64_t end_ns = clock_now_ns() + LONG_NS; !atomic_load(&late_has_run) && clock_now_ns() < end_ns;)
    ;
  return unused;
}

static void *launch_and_go_on(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  gpu_add(&gpu, other_stream, other_words, WORDS, 1);
  happen(NULL);
  return unused;
}

static void *launch_all(void *unused) {
  void *(*const bodies[])(void *) = {never_rest, launch_late, launch_and_go_on};
  pthread_t threads[3];
  for (int i = 0; i < 3; i++)
    pthread_create(&threads[i], NULL, bodies[i], NULL);
  for (int i = 0; i < 3; i++)
    pthread_join(threads[i], NULL);
  MUST(cuCtxSetCurrent(gpu.context));
  MUST(cuStreamSynchronize(other_stream)); /* a copy does not wait for these streams */
  MUST(cuStreamSynchronize(late_stream));
  gpu_verify(other_words, WORDS, SEED, 1);
  gpu_verify(late_words, WORDS, SEED, 1);
  return unused;
}

/* ---- allocated ---- */

static void use(CUdeviceptr words) {
  gpu_fill(&gpu, other_stream, words, 32 * WORDS, SEED);
  MUST(cuStreamSynchronize(other_stream));
  gpu_verify(words, 32 * WORDS, SEED, 0);
}

static void *allocate_and_go_on(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  CUdeviceptr words = gpu_alloc(32 * WORDS);
  happen(NULL);
  use(words);
  return unused;
}

static void *allocate_and_wait(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  CUdeviceptr words = gpu_alloc(32 * WORDS);
  gpu_say("allocated");
  gpu_await_line();
  use(words);
  return unused;
}

/* ---- recorded ---- */

static void *record_and_go_on(void *unused) {
  CUgraph graph;
  CUgraphExec executable;
  MUST(cuCtxSetCurrent(gpu.context));
  MUST(cuStreamBeginCapture(other_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  take_time(NS_PER_S / 5); /* so that a drain that looked meanwhile would break it */
  gpu_add(&gpu, other_stream, other_words, WORDS, 1);
  MUST(cuStreamEndCapture(other_stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
  MUST(cuGraphLaunch(executable, other_stream));
  happen(NULL);
  MUST(cuStreamSynchronize(other_stream));
  gpu_verify(other_words, WORDS, SEED, 1);
  return unused;
}

/* ---- recorded_beside ---- */

static void be_busy_beside(void) { MUST(cuLaunchHostFunc(CU_STREAM_PER_THREAD, await_happened, NULL)); }

static void *rest_and_record(void *unused) {
  take_time(NS_PER_S / 2); /* long enough to look idle */
  return record_and_go_on(unused);
}

/* ---- freed ---- */

static void *free_some(void *words) {
  MUST(cuCtxSetCurrent(gpu.context));
  MUST(cuMemFree(*(CUdeviceptr *)words));
  return NULL;
}

static void *free_and_record(void *unused) {
  pthread_t thread;
  MUST(cuCtxSetCurrent(gpu.context));
  CUdeviceptr words = gpu_alloc(8 * WORDS);
  pthread_create(&thread, NULL, free_some, &words);
  take_time(NS_PER_S / 5); /* it waits by now */
  record_and_go_on(NULL);
  pthread_join(thread, NULL);
  return unused;
}

/* ---- quiet ---- */

static void use_per_thread_stream(void) {
  MUST(cuLaunchHostFunc(CU_STREAM_PER_THREAD, happen, NULL));
  MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

static void *await_line(void *unused) {
  gpu_await_line();
  return unused;
}

/* ---- let_go ---- */

static void be_busy_and_hold_twice(void) {
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuLaunchHostFunc(CU_STREAM_PER_THREAD, await_happened, NULL));
}

static void *let_go_and_go_on(void *unused) {
  MUST(cuDevicePrimaryCtxRelease(0));
  happen(NULL);
  return unused;
}

/* ---- called ---- */

enum { IN_CALLBACK = 1, MAY_LAUNCH, HAS_LAUNCHED, MAY_RETURN };

static void call_back(void) {
  gs_sim_set_callback(NULL);
  reach_step(IN_CALLBACK);
  await_step(MAY_LAUNCH);
  gpu_add(&gpu, other_stream, other_words, WORDS, 1);
  reach_step(HAS_LAUNCHED);
  await_step(MAY_RETURN);
}

static pthread_t caller;
static void *launch_and_be_called(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  gs_sim_set_callback(call_back);
  gpu_add(&gpu, other_stream, other_words, WORDS, 2);
  return unused;
}

static void be_busy_in_a_call(void) {
  pthread_create(&caller, NULL, launch_and_be_called, NULL);
  await_step(IN_CALLBACK);
}

static void *lead_the_callback(void *unused) {
  MUST(cuCtxSetCurrent(gpu.context));
  reach_step(MAY_LAUNCH);
  await_step(HAS_LAUNCHED);
  gpu_say("inner");
  gpu_await_line();
  reach_step(MAY_RETURN);
  pthread_join(caller, NULL);
  MUST(cuStreamSynchronize(other_stream));
  gpu_verify(other_words, WORDS, SEED, 3);
  return unused;
}

static const struct situation {
  const char *name;
  void (*be_busy)(void);
  void *(*meanwhile)(void *);
} situations[] = {{"capture", be_busy_long, record},
                  {"released", be_busy_until_happened, record_often},
                  {"locked", be_busy_until_happened, launch_all},
                  {"allocated", be_busy_until_happened, allocate_and_go_on},
                  {"between", be_busy_long, allocate_and_wait},
                  {"recorded", be_busy_until_happened, record_and_go_on},
                  {"recorded_beside", be_busy_beside, rest_and_record},
                  {"freed", be_busy_until_happened, free_and_record},
                  {"quiet", use_per_thread_stream, await_line},
                  {"let_go", be_busy_and_hold_twice, let_go_and_go_on},
                  {"called", be_busy_in_a_call, lead_the_callback}};

static void play(const struct situation *situation) {
  pthread_t thread;
  situation->be_busy();
  gpu_say("busy");
  gpu_await_line();
  pthread_create(&thread, NULL, situation->meanwhile, NULL);
  pthread_join(thread, NULL);
  MUST(cuCtxSynchronize());
  gpu_say("ok");
}

int main(int argc, char **argv) {
  gpu_start(&gpu, 0);
  busy_stream = gpu_stream();
  other_stream = gpu_stream();
  late_stream = gpu_stream();
  other_words = gpu_alloc(WORDS);
  late_words = gpu_alloc(WORDS);
  gpu_fill(&gpu, other_stream, other_words, WORDS, SEED);
  gpu_fill(&gpu, late_stream, late_words, WORDS, SEED);
  MUST(cuCtxSynchronize());
  for (size_t i = 0; i < sizeof situations / sizeof situations[0]; i++)
    if (argc == 2 && strcmp(argv[1], situations[i].name) == 0) {
      play(&situations[i]);
      return 0;
    }
  return 2;
}
