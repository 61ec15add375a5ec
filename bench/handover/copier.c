/* copier.c - copies between the card and pinned memory, nothing else: what the bus reaches at most. */
#include "worker.h"

struct copier {
  struct probe p;
  CUstream in; /* what goes out has the probe's stream */
  CUdeviceptr card;
  char *host;
};

static bool copier_open(struct copier *c, size_t bytes) {
  return probe_open(&c->p) && !TRY(cuStreamCreate(&c->in, CU_STREAM_NON_BLOCKING)) &&
         !TRY(cuMemAlloc(&c->card, bytes)) && !TRY(cuMemAllocHost((void **)&c->host, bytes)) &&
         !TRY(launch_fill(&c->p, c->card, bytes, c->p.stream)) &&
         !TRY(cuMemcpyDtoHAsync(c->host, c->card, bytes, c->p.stream)) &&
         !TRY(cuStreamSynchronize(c->p.stream));
}

static bool copier_copy(const struct copier *c, size_t out_bytes, size_t in_bytes) {
  return (out_bytes == 0 || !TRY(cuMemcpyDtoHAsync(c->host, c->card, out_bytes, c->p.stream))) &&
         (in_bytes == 0 ||
          !TRY(cuMemcpyHtoDAsync(c->card + out_bytes, c->host + out_bytes, in_bytes, c->in))) &&
         !TRY(cuStreamSynchronize(c->p.stream)) && !TRY(cuStreamSynchronize(c->in));
}

int copier_run(size_t bytes) {
  struct copier c = {0};
  char text[WORKER_TEXT_SIZE];
  size_t out_bytes, in_bytes;
  if (!copier_open(&c, bytes) || !worker_say("ready"))
    return 1;
  while (worker_hear(text) && sscanf(text, "%zu %zu", &out_bytes, &in_bytes) == 2) {
    uint64_t start_ns = clock_now_ns();
    if (!copier_copy(&c, out_bytes, in_bytes) ||
        !worker_say("%llu %llu", (unsigned long long)start_ns, (unsigned long long)clock_now_ns()))
      return 1;
  }
  return 0;
}
