/* paging.c - unified memory without anybody's help: how fast one call for all of it moves it out and in, and
 * how fast a kernel that touches everything fetches it by page faults. */
#include "worker.h"

#include "quantile.h"

enum { ROUNDS = 3, WARM_UP = 1 }; /* the first round makes the pages in host memory */

enum figure { OUT, FAULTS, OUT_AGAIN, IN, FIGURES };

struct paging {
  struct probe p;
  CUdeviceptr at, counter;
  size_t bytes;
  double rates[FIGURES][ROUNDS];
};

static CUresult prefetch(struct paging *g, bool to_card) {
#if CUDA_VERSION >= 13000
  CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
  return cuMemPrefetchAsync(g->at, g->bytes, to_card ? location_device(&g->p) : host, 0, g->p.stream);
#else
  return cuMemPrefetchAsync(g->at, g->bytes, to_card ? g->p.device : CU_DEVICE_CPU, g->p.stream);
#endif
}

static bool step_do(struct paging *g, enum figure figure) {
  bool submitted = figure == FAULTS ? !TRY(launch_check(&g->p, g->at, g->bytes, 0, g->counter, g->p.stream))
                                    : !TRY(prefetch(g, figure == IN));
  return submitted && !TRY(cuStreamSynchronize(g->p.stream));
}

static bool round_do(struct paging *g, int round) {
  for (enum figure figure = 0; figure < FIGURES; figure++) {
    uint64_t start = clock_now_ns();
    if (!step_do(g, figure))
      return false;
    if (round >= 0)
      g->rates[figure][round] = (double)g->bytes / (double)(clock_now_ns() - start);
  }
  return true;
}

int paging_run(size_t bytes) {
  struct paging g = {.bytes = bytes};
  const uint64_t none = 0;
  uint64_t wrong = 0;
  if (!probe_open(&g.p) || TRY(cuMemAllocManaged(&g.at, bytes, CU_MEM_ATTACH_GLOBAL)) ||
      TRY(cuMemAlloc(&g.counter, 8)) || TRY(cuMemcpyHtoD(g.counter, &none, 8)) ||
      TRY(launch_fill(&g.p, g.at, bytes, g.p.stream)) || TRY(cuStreamSynchronize(g.p.stream)))
    return 1;
  for (int round = -WARM_UP; round < ROUNDS; round++)
    if (!round_do(&g, round))
      return 1;
  if (TRY(cuMemcpyDtoH(&wrong, g.counter, 8)) || wrong > 0)
    return 1;
  return !worker_say("%.6g %.6g %.6g", median(g.rates[OUT_AGAIN], ROUNDS), median(g.rates[IN], ROUNDS),
                     median(g.rates[FAULTS], ROUNDS));
}
