/*
 * stream_order.c - memory that is freed in stream order is gone when the program has waited for the stream,
 * wrong frees are errors at once, and a wait for one stream waits for no other.
 */
#include "guest.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "sim/sim.h"

#define MIB (UINT64_C(1) << 20)
#define MANY 4000

static struct gpu gpu;
static CUstream stream, other;
static atomic_int open_gate;

/* Holds its stream up until the program says. */
static void CUDA_CB hold(void *argument) {
  (void)argument;
  while (!atomic_load(&open_gate))
    usleep(100);
}

static void hold_up(CUstream which) {
  atomic_store(&open_gate, 0);
  MUST(cuLaunchHostFunc(which, hold, NULL));
}

static size_t left(void) {
  size_t free_bytes, total_bytes;
  MUST(cuMemGetInfo(&free_bytes, &total_bytes));
  return free_bytes;
}

static CUdeviceptr get(size_t bytes) {
  CUdeviceptr at;
  MUST(cuMemAllocAsync(&at, bytes, stream));
  return at;
}

static CUresult wait_for_stream(void) { return cuStreamSynchronize(stream); }
static CUresult wait_for_context(void) { return cuCtxSynchronize(); }
static CUresult wait_for_event(void) {
  CUevent event;
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventRecord(event, stream));
  MUST(cuEventSynchronize(event));
  return cuEventDestroy(event);
}

static void come_and_go(const char *how, CUresult (*wait)(void)) {
  size_t before = left();
  for (int i = 0; i < 4; i++) {
    CUdeviceptr at = get(8 * MIB);
    gpu_fill(&gpu, stream, at, MIB, 1);
    MUST(cuMemFreeAsync(at, stream));
  }
  MUST(wait());
  say("%s: %s", how, left() == before ? "all of it is back" : "some of it is not back");
}

static void free_wrongly(const char *when, CUdeviceptr at) {
  say("%s: in stream order %s, else %s", when, result_name(cuMemFreeAsync(at, stream)),
      result_name(cuMemFree(at)));
}

static void free_twice(void) {
  uint64_t on_stack;
  CUdeviceptr at = get(4 * MIB), plain = gpu_alloc(MIB);
  hold_up(stream);
  MUST(cuMemFreeAsync(at, stream));
  MUST(cuMemFreeAsync(plain, stream));
  free_wrongly("freed, not yet", at);
  free_wrongly("plain memory, likewise", plain);
  atomic_store(&open_gate, 1);
  MUST(cuStreamSynchronize(stream));
  free_wrongly("freed", at);
  free_wrongly("plain memory, freed", plain);
  free_wrongly("never allocated", 0x1000);
  free_wrongly("the program's stack", (CUdeviceptr)(uintptr_t)&on_stack);
  at = get(4 * MIB);
  free_wrongly("in the middle", at + MIB);
  MUST(cuMemFree(at)); /* allowed */
  free_wrongly("freed otherwise", at);
}

/* What has been freed on this stream may be used again on it at once, and on no other one. */
static void use_again(void) {
  enum { LANES = 3 };
  CUdeviceptr lanes[LANES], elsewhere, spare = get(4 * MIB);
  hold_up(stream);
  gpu_fill(&gpu, stream, spare, MIB / 2, 66);
  for (int i = 0; i < LANES; i++) {
    lanes[i] = get(4 * MIB);
    gpu_fill(&gpu, stream, lanes[i], MIB / 2, (uint64_t)i);
    if (i == LANES - 1)
      break;
    MUST(cuMemFreeAsync(lanes[i], stream));
  }
  MUST(cuMemFreeAsync(spare, stream));
  MUST(cuMemAllocAsync(&elsewhere, 4 * MIB, other));
  gpu_fill(&gpu, other, elsewhere, MIB / 2, 77);
  MUST(cuStreamSynchronize(other));
  atomic_store(&open_gate, 1);
  MUST(cuStreamSynchronize(stream));
  gpu_verify(lanes[LANES - 1], MIB / 2, LANES - 1, 0);
  gpu_verify(elsewhere, MIB / 2, 77, 0);
  MUST(cuMemFreeAsync(lanes[LANES - 1], stream));
  MUST(cuMemFreeAsync(elsewhere, other));
  MUST(cuCtxSynchronize());
}

/* Events that the library records are asked about once or twice each, however many wait. */
static void free_many(void) {
  static CUdeviceptr all[MANY];
  struct gs_sim_process before, after;
  MUST(cuMemFreeAsync(get(4096), stream)); /* what the library keeps for small memory it has now */
  MUST(cuStreamSynchronize(stream));
  size_t room = left();
  for (int i = 0; i < MANY; i++)
    all[i] = get(4096);
  hold_up(stream);
  gs_sim_process_read(NULL, getpid(), 0, &before);
  for (int i = 0; i < MANY; i++)
    MUST(cuMemFreeAsync(all[i], stream));
  atomic_store(&open_gate, 1);
  MUST(cuStreamSynchronize(stream));
  gs_sim_process_read(NULL, getpid(), 0, &after);
  uint64_t asked = after.counters[GS_SIM_event_queries] - before.counters[GS_SIM_event_queries];
  say("many: asked %s; %s", asked <= 3 * MANY ? "little" : "much",
      left() == room ? "all back" : "not all back");
}

int main(void) {
  gpu_start(&gpu, 0);
  stream = gpu_stream();
  other = gpu_stream();
  MUST(cuMemFreeAsync(get(4 * MIB), stream)); /* the pool has been used */
  MUST(cuStreamSynchronize(stream));
  come_and_go("stream", wait_for_stream);
  come_and_go("context", wait_for_context);
  come_and_go("event", wait_for_event);
  hold_up(other);
  come_and_go("while another stream is held up", wait_for_stream);
  atomic_store(&open_gate, 1);
  MUST(cuStreamSynchronize(other));
  free_twice();
  use_again();
  free_many();
  say("ok");
  return 0;
}
