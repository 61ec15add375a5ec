/* physical.c - what creating, mapping, opening, unmapping and releasing memory costs, idle and under load. */
#include "pieces.h"

enum call { CREATE, MAP, ACCESS, ACCESS_RUN, UNMAP, UNMAP_RUN, RELEASE, CALLS };
enum { RUN = 8, TRIES = 3, SPIN_MS = 60 };

static const char *const call_names[CALLS] = {"create", "map",      "access", "access x8",
                                              "unmap",  "unmap x8", "release"};

static CUresult call_make(struct pieces *s, enum call call, size_t i) {
  switch (call) {
  case CREATE:
    return piece_create(s, i);
  case MAP:
    return piece_map(s, i);
  case ACCESS:
    return piece_access(s, i, 1);
  case ACCESS_RUN:
    return piece_access(s, i, RUN);
  case UNMAP:
    return piece_unmap(s, i, 1);
  case UNMAP_RUN:
    return piece_unmap(s, i, RUN);
  default:
    return piece_release(s, i);
  }
}

static size_t call_step(enum call call) { return call == ACCESS_RUN || call == UNMAP_RUN ? RUN : 1; }

/* One kind of call over the whole range: the mean and the longest, in us. */
static void pass_print(struct pieces *s, enum call call) {
  uint64_t longest = 0, start = clock_now_ns();
  for (size_t i = 0; i < s->count; i += call_step(call)) {
    uint64_t before = clock_now_ns();
    if (call_make(s, call, i) != CUDA_SUCCESS)
      return;
    uint64_t took = clock_now_ns() - before;
    longest = took > longest ? took : longest;
  }
  double calls = (double)(s->count / call_step(call));
  printf(" %s %.1f (%.1f)", call_names[call], ms_since(start) * 1e3 / calls, (double)longest / 1e3);
}

static void passes_print(const struct probe *p, size_t size, const enum call *calls, int count) {
  struct pieces s = {0};
  if (pieces_reserve(&s, p, size, 4 * GIB) == CUDA_SUCCESS)
    for (int c = 0; c < count; c++)
      pass_print(&s, calls[c]);
  pieces_drop(&s);
}

static void print_costs(const struct probe *p) {
  static const enum call single[] = {CREATE, MAP, ACCESS, UNMAP, RELEASE};
  static const enum call runs[] = {CREATE, MAP, ACCESS_RUN, UNMAP_RUN, RELEASE};
  static const size_t sizes[] = {2 * MIB, 32 * MIB, 64 * MIB, 128 * MIB};
  printf("  4 GiB by the piece, nothing else running: us per call, mean (longest)\n");
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
    for (int round = 1; round <= 2; round++) {
      printf("  %3zu MiB round %d:", sizes[i] / MIB, round);
      passes_print(p, sizes[i], single, 5);
      printf("\n  %3zu MiB round %d:", sizes[i] / MIB, round);
      passes_print(p, sizes[i], runs, 5);
      putchar('\n');
    }
}

/* What keeps the card busy on a stream of its own. */
enum kind { IDLE, SPINNING, COPYING_OUT, COPYING_IN, KINDS };
static const char *const kind_names[KINDS] = {"idle", "kernel of 60 ms", "4 GiB DtoH", "4 GiB HtoD"};

struct load {
  const struct probe *p;
  CUstream stream;
  CUevent begun;
  CUdeviceptr card;
  void *host;
  size_t bytes;
};

static bool load_open(struct load *l, const struct probe *p) {
  *l = (struct load){.p = p, .bytes = 4 * GIB};
  return !TRY(cuStreamCreate(&l->stream, CU_STREAM_NON_BLOCKING)) &&
         !TRY(cuEventCreate(&l->begun, CU_EVENT_DISABLE_TIMING)) && !TRY(cuMemAlloc(&l->card, l->bytes)) &&
         !TRY(cuMemHostAlloc(&l->host, l->bytes, CU_MEMHOSTALLOC_PORTABLE));
}

/* Returns when the stream has reached the load. */
static void load_start(struct load *l, enum kind kind) {
  if (kind == IDLE)
    return;
  TRY(cuEventRecord(l->begun, l->stream));
  if (kind == SPINNING)
    TRY(launch_spin(l->p, SPIN_MS * NS_PER_MS, l->stream));
  else if (kind == COPYING_OUT)
    TRY(cuMemcpyDtoHAsync(l->host, l->card, l->bytes, l->stream));
  else
    TRY(cuMemcpyHtoDAsync(l->card, l->host, l->bytes, l->stream));
  TRY(cuEventSynchronize(l->begun));
}

/* Eight pieces, as they are just before the call. */
static CUresult pieces_ready(struct pieces *s, enum call call) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < s->count && !result; i++) {
    if (call > CREATE)
      result = piece_create(s, i);
    if (call > MAP && !result)
      result = piece_map(s, i);
  }
  if (call > ACCESS_RUN && !result)
    result = piece_access(s, 0, s->count);
  if (call > UNMAP_RUN && !result)
    result = piece_unmap(s, 0, s->count);
  return result;
}

struct timing {
  double mean_us, longest_us;
  int outlasted; /* how many times the load was over when the call was */
};

static struct timing call_time(struct load *l, enum kind kind, enum call call, size_t size) {
  struct timing t = {0};
  for (int i = 0; i < TRIES; i++) {
    struct pieces s;
    if (pieces_reserve(&s, l->p, size, RUN * size) == CUDA_SUCCESS &&
        pieces_ready(&s, call) == CUDA_SUCCESS) {
      TRY(cuCtxSynchronize());
      load_start(l, kind);
      uint64_t start = clock_now_ns();
      call_make(&s, call, 0);
      double us = ms_since(start) * 1e3;
      t.outlasted += cuStreamQuery(l->stream) == CUDA_SUCCESS;
      t.mean_us += us / TRIES;
      t.longest_us = us > t.longest_us ? us : t.longest_us;
      TRY(cuStreamSynchronize(l->stream));
    }
    pieces_drop(&s);
  }
  return t;
}

static void print_blocking(struct load *l, enum kind kind, size_t size) {
  uint64_t start = clock_now_ns();
  load_start(l, kind);
  TRY(cuStreamSynchronize(l->stream));
  printf("  %3zu MiB, %s (%.0f ms):", size / MIB, kind_names[kind], ms_since(start));
  for (enum call call = CREATE; call < CALLS; call++) {
    struct timing t = call_time(l, kind, call, size);
    printf(" %s %.0f (%.0f)", call_names[call], t.mean_us, t.longest_us);
    if (kind != IDLE && t.outlasted)
      printf(" WAITED %d/%d", t.outlasted, TRIES);
  }
  putchar('\n');
}

void probe_physical(struct probe *p) {
  static const size_t sizes[] = {2 * MIB, 32 * MIB, 128 * MIB};
  struct load load;
  if (!card_fits("physical", 6 * GIB))
    return;
  print_costs(p);
  if (!load_open(&load, p))
    return;
  printf(
      "  one call under load: us, mean (longest) of %d; WAITED: the load was over when the call returned\n",
      TRIES);
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
    for (enum kind kind = IDLE; kind < KINDS; kind++)
      print_blocking(&load, kind, sizes[i]);
}
