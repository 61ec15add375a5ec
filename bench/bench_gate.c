/*
 * bench_gate.c - what the gate adds to a call that may pass: nanoseconds of a gate_enter/gate_leave pair,
 * beside an uncontended pthread mutex pair, with one thread and with two that share nothing.
 *
 * The gate's own sources are linked in, with a client that opens the gate at once. Each figure is the median
 * of several interleaved rounds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "arguments.h"
#include "client/client.h"
#include "common/clock.h"
#include "driver/driver.h"
#include "gate/capture.h"
#include "gate/contexts.h"
#include "gate/gate.h"
#include "gate/gate_port.h"
#include "gate/streams.h"
#include "preempt/preempt.h"
#include "quantile.h"

#define ROUNDS 15
#define CALLS 4000000u

struct driver driver;

void client_attach(CUdevice device) {
  gate_add(device);
  gate_open(device);
}
void client_await_go(CUdevice device) { (void)device; }
bool client_is_stopped(CUdevice device) { return device < 0; }
void client_want(CUdevice device) { (void)device; }
void client_submits(CUdevice device) { (void)device; }
const struct gate_port gate_port = {.attach = client_attach,
                                    .want = client_want,
                                    .submits = client_submits,
                                    .is_stopped = client_is_stopped,
                                    .await_go = client_await_go};
void contexts_learn_current(void) {}
unsigned capture_count(void) { return 0; }
void capture_forbid(void) {}
void capture_allow(void) {}
enum preempt_verdict preempt_verdict(int device) { return device ? PREEMPT_NO : PREEMPT_UNKNOWN; }
enum streams_state streams_ask(CUdevice device) { return device ? STREAMS_BUSY : STREAMS_FINISHED; }
void streams_note(CUstream stream) { (void)stream; }
CUdevice contexts_device(CUcontext context) {
  (void)context;
  return 0;
}

static CUresult current_device(CUdevice *device) {
  *device = 0;
  return CUDA_SUCCESS;
}

static double gate_pair_ns(void) {
  uint64_t start_ns = clock_now_ns();
  for (unsigned i = 0; i < CALLS; i++) {
    gate_enter(NULL);
    atomic_signal_fence(memory_order_seq_cst); /* where the driver's function would be called */
    gate_leave();
  }
  return (double)(clock_now_ns() - start_ns) / CALLS;
}

static double mutex_pair_ns(void) {
  struct {
    _Alignas(128) pthread_mutex_t mutex; /* on lines of its own */
  } own = {PTHREAD_MUTEX_INITIALIZER};
  uint64_t start_ns = clock_now_ns();
  for (unsigned i = 0; i < CALLS; i++) {
    pthread_mutex_lock(&own.mutex);
    atomic_signal_fence(memory_order_seq_cst);
    pthread_mutex_unlock(&own.mutex);
  }
  return (double)(clock_now_ns() - start_ns) / CALLS;
}

static pthread_barrier_t together;

struct run {
  double (*pair_ns)(void);
  double ns;
};

static void *timed_thread(void *argument) {
  struct run *run = argument;
  gate_enter(NULL); /* makes this thread's slot */
  gate_leave();
  pthread_barrier_wait(&together);
  run->ns = run->pair_ns();
  return NULL;
}

/* The slower of two threads that run at the same time, each on what is its own. */
static double two_threads_ns(double (*pair_ns)(void)) {
  pthread_t threads[2];
  struct run runs[2] = {{pair_ns, 0}, {pair_ns, 0}};
  pthread_barrier_init(&together, NULL, 2);
  for (int i = 0; i < 2; i++)
    pthread_create(&threads[i], NULL, timed_thread, &runs[i]);
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&together);
  return runs[0].ns > runs[1].ns ? runs[0].ns : runs[1].ns;
}

int main(int argc, char **argv) {
  double gate[ROUNDS], mutex[ROUNDS], gate_two[ROUNDS], mutex_two[ROUNDS];
  driver.cuCtxGetDevice = current_device;
  arguments_read(argc, argv, "usage: bench_gate [--json]\n", (struct argument[]){{0}});
  report_begin();
  gate_enter(NULL);
  gate_leave();
  for (int i = 0; i < ROUNDS; i++) {
    gate[i] = gate_pair_ns();
    mutex[i] = mutex_pair_ns();
    gate_two[i] = two_threads_ns(gate_pair_ns);
    mutex_two[i] = two_threads_ns(mutex_pair_ns);
  }
  double gate_ns = median(gate, ROUNDS), mutex_ns = median(mutex, ROUNDS), two_ns = median(gate_two, ROUNDS);
  report("gate_ns", gate_ns, "ns");
  report("mutex_ns", mutex_ns, "ns");
  report("gate_over_mutex", gate_ns / mutex_ns, "");
  report("gate_two_threads_ns", two_ns, "ns");
  report("gate_two_over_one", two_ns / gate_ns, "");
  /* what the machine itself does to two threads */
  report("mutex_two_over_one", median(mutex_two, ROUNDS) / mutex_ns, "");
  report("membarrier", gate_has_membarrier, "");
  report_end();
  return 0;
}
