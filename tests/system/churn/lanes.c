/* lanes.c - streams of every kind, their order, and the ways to wait for them. */
#include "worker.h"

void lanes_open(struct worker *worker) {
  struct lane *lanes = worker->lanes;
  lanes[LANE_LEGACY].stream = NULL;
  lanes[LANE_PER_THREAD].stream = CU_STREAM_PER_THREAD;
  MUST(cuStreamCreate(&lanes[LANE_BLOCKING].stream, CU_STREAM_DEFAULT));
  MUST(cuStreamCreate(&lanes[LANE_FIRST].stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreateWithPriority(&lanes[LANE_SECOND].stream, CU_STREAM_NON_BLOCKING, -1));
  for (int i = 0; i < LANES; i++)
    MUST(cuEventCreate(&lanes[i].event, CU_EVENT_DISABLE_TIMING));
}

void lanes_close(struct worker *worker) {
  for (int i = 0; i < LANES; i++)
    MUST(cuEventDestroy(worker->lanes[i].event));
  for (int i = LANE_BLOCKING; i < LANES; i++)
    MUST(cuStreamDestroy(worker->lanes[i].stream));
}

enum lane_name lane_random(struct worker *worker) { return (enum lane_name)random_below(worker, LANES); }

void lane_follow(struct worker *worker, enum lane_name to, enum lane_name from) {
  if (to == from)
    return;
  MUST(cuEventRecord(worker->lanes[from].event, worker->lanes[from].stream));
  MUST(cuStreamWaitEvent(worker->lanes[to].stream, worker->lanes[from].event, 0));
}

void lane_take(struct worker *worker, enum lane_name lane, struct buffer *buffer) {
  lane_follow(worker, lane, buffer->lane);
  buffer->lane = lane;
}

void lane_wait(struct worker *worker, enum lane_name lane) {
  struct lane *waited = &worker->lanes[lane];
  if (one_in(worker, 2)) {
    MUST(cuStreamSynchronize(waited->stream));
    return;
  }
  MUST(cuEventRecord(waited->event, waited->stream));
  if (one_in(worker, 2))
    MUST(cuEventSynchronize(waited->event));
  for (CUresult result; (result = cuEventQuery(waited->event)) != CUDA_SUCCESS;)
    if (result != CUDA_ERROR_NOT_READY)
      MUST(result);
}

static void context_wait(void) {
  pthread_rwlock_wrlock(&capture_lock);
  MUST(cuCtxSynchronize());
  pthread_rwlock_unlock(&capture_lock);
}

static void CUDA_CB call_back(void *worker) {
  __atomic_fetch_add(&((struct worker *)worker)->called_back, 1, __ATOMIC_RELAXED);
}

/* A host function on one lane; it has run when the lane has been waited for. */
static void call_host(struct worker *worker) {
  enum lane_name lane = lane_random(worker);
  MUST(cuLaunchHostFunc(worker->lanes[lane].stream, call_back, worker));
  worker->called++;
  lane_wait(worker, lane);
  if (__atomic_load_n(&worker->called_back, __ATOMIC_RELAXED) != worker->called)
    MUST(CUDA_ERROR_UNKNOWN);
}

static void spin(struct worker *worker) {
  uint64_t ns = random_size(worker, 1000000);
  MUST(cuLaunchKernel(worker->place->spin, 1, 1, 1, 1, 1, 1, 0, worker->lanes[lane_random(worker)].stream,
                      (void *[]){&ns}, NULL));
}

void lanes_wait_somehow(struct worker *worker) {
  switch (random_below(worker, 8)) {
  case 0:
    context_wait();
    break;
  case 1:
    call_host(worker);
    break;
  case 2:
    spin(worker);
    break;
  default:
    lane_wait(worker, lane_random(worker));
  }
}
