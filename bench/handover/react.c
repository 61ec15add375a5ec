/*
 * react.c - bench_react's jobs: one whose kernels count in memory that others see, and one that works for a
 * moment when it is told to. They know nothing of gpushare.
 */
#include "board.h"
#include "worker.h"

enum { AHEAD = 8, KERNEL_MS = 1 };

#define LOOK_NS (20 * 1000)

static bool ticks_open(struct probe *p, CUdeviceptr *at, CUevent done[AHEAD]) {
  struct board *board = board_map();
  bool ok = board && probe_open(p) &&
            !TRY(cuMemHostRegister((void *)&board->ticks, 4096,
                                   CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE)) &&
            !TRY(cuMemHostGetDevicePointer(at, (void *)&board->ticks, 0));
  for (int i = 0; i < AHEAD; i++)
    ok = ok && !TRY(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
  return ok;
}

int ticks_run(uint64_t tick_ns) {
  struct probe p = {0};
  CUdeviceptr at;
  CUevent done[AHEAD];
  if (!ticks_open(&p, &at, done) || !worker_say("filled"))
    return 1;
  for (uint64_t count = 0; !worker_has_order(); count++) {
    CUevent event = done[count % AHEAD];
    if ((count >= AHEAD && TRY(cuEventSynchronize(event))) || TRY(launch_tick(&p, at, tick_ns, p.stream)) ||
        TRY(cuEventRecord(event, p.stream)))
      return 1;
  }
  return 0;
}

static bool burst(const struct probe *p, struct board *board) {
  board->begun_ns = clock_now_ns();
  for (int i = 0; i < BURST_MS / KERNEL_MS; i++)
    if (TRY(launch_spin(p, KERNEL_MS * NS_PER_MS, p->stream)))
      return false;
  if (TRY(cuStreamSynchronize(p->stream)))
    return false;
  board->ended_ns = clock_now_ns();
  board->finished++;
  return true;
}

int bursts_run(void) {
  struct board *board = board_map();
  struct probe p = {0};
  if (!board || !probe_open(&p) || !worker_say("filled"))
    return 1;
  while (!worker_has_order())
    if (board->order == board->finished)
      clock_sleep(LOOK_NS);
    else if (!burst(&p, board))
      return 1;
  return 0;
}
