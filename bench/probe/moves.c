/* moves.c - bandwidth of copies and prefetches, and the cost of allocating, placing and freeing managed
 * memory. */
#include "probe.h"

#include <stdlib.h>
#include <string.h>

static double gb_per_s(size_t bytes, uint64_t start_ns) {
  return (double)bytes / (double)(clock_now_ns() - start_ns);
}

static void print_copies(const char *name, CUdeviceptr card, void *pinned, void *pageable, size_t bytes) {
  void *hosts[] = {pinned, pageable};
  static const char *const kinds[] = {"pinned", "pageable"};
  for (int k = 0; k < 2; k++) {
    double in = 0, out = 0;
    for (int i = 0; i < 3; i++) { /* the last counts */
      uint64_t start = clock_now_ns();
      TRY(cuMemcpyHtoD(card, hosts[k], bytes));
      cuCtxSynchronize();
      in = gb_per_s(bytes, start);
      start = clock_now_ns();
      TRY(cuMemcpyDtoH(hosts[k], card, bytes));
      out = gb_per_s(bytes, start);
    }
    printf("  %s, %s: HtoD %.1f GB/s, DtoH %.1f GB/s\n", name, kinds[k], in, out);
  }
}

static double prefetch(const struct probe *p, CUdeviceptr at, size_t bytes, size_t piece, CUmemLocation to) {
  uint64_t start = clock_now_ns();
  for (size_t done = 0; done < bytes; done += piece)
    TRY(cuMemPrefetchAsync(at + done, piece, to, 0, p->stream));
  TRY(cuStreamSynchronize(p->stream));
  return gb_per_s(bytes, start);
}

static void print_prefetches(const struct probe *p) {
  static const size_t pieces[] = {4 * GIB, 2 * MIB, 32 * MIB, 4 * GIB};
  CUdeviceptr at = 0;
  if (TRY(cuMemAllocManaged(&at, 4 * GIB, CU_MEM_ATTACH_GLOBAL)) != CUDA_SUCCESS)
    return;
  TRY(launch_fill(p, at, 4 * GIB, p->stream));
  TRY(cuStreamSynchronize(p->stream));
  for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
    double out = prefetch(p, at, 4 * GIB, pieces[i], location_host());
    double in = prefetch(p, at, 4 * GIB, pieces[i], location_device(p));
    printf("  prefetch 4 GiB in %zu MiB pieces: to host %.1f GB/s, to card %.1f GB/s\n", pieces[i] / MIB, out,
           in);
  }
  uint64_t start = clock_now_ns();
  double again = prefetch(p, at, 4 * GIB, 4 * GIB, location_device(p));
  printf("  prefetch of resident 4 GiB: %.0f us (%.0f GB/s)\n", (double)(clock_now_ns() - start) / 1e3,
         again);
  cuMemFree(at);
}

void probe_moves(struct probe *p) {
  size_t bytes = 512 * MIB;
  CUdeviceptr plain = 0, managed = 0;
  void *pinned = NULL, *pageable = malloc(bytes);
  if (!pageable || TRY(cuMemHostAlloc(&pinned, bytes, 0)))
    return;
  memset(pageable, 1, bytes);
  memset(pinned, 1, bytes);
  TRY(cuMemAlloc(&plain, bytes));
  TRY(cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL));
  print_copies("plain", plain, pinned, pageable, bytes);
  TRY(launch_fill(p, managed, bytes, p->stream));
  TRY(cuStreamSynchronize(p->stream));
  print_copies("managed resident, no advice", managed, pinned, pageable, bytes);
  TRY(cuMemAdvise(managed, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location_device(p)));
  print_copies("managed, preferred card", managed, pinned, pageable, bytes);
  print_prefetches(p);
}

enum placement { PLAIN, BARE, PREFERRED, ACCESSED, BOTH, PREFETCHED, BOTH_PREFETCHED, PLACEMENTS };
static const char *const placement_names[PLACEMENTS] = {
    "plain",        "managed",          "managed+preferred",    "managed+accessed-by",
    "managed+both", "managed+prefetch", "managed+both+prefetch"};

static CUresult place(const struct probe *p, enum placement how, CUdeviceptr *at, size_t bytes) {
  CUmemLocation card = location_device(p);
  CUresult result = how == PLAIN ? cuMemAlloc(at, bytes) : cuMemAllocManaged(at, bytes, CU_MEM_ATTACH_GLOBAL);
  if (!result && (how == PREFERRED || how == BOTH || how == BOTH_PREFETCHED))
    result = cuMemAdvise(*at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, card);
  if (!result && (how == ACCESSED || how == BOTH || how == BOTH_PREFETCHED))
    result = cuMemAdvise(*at, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, card);
  if (!result && (how == PREFETCHED || how == BOTH_PREFETCHED))
    result = cuMemPrefetchAsync(*at, bytes, card, 0, p->stream);
  return result;
}

static double fill_us(const struct probe *p, CUdeviceptr at, size_t bytes) {
  uint64_t start = clock_now_ns();
  TRY(launch_fill(p, at, bytes, p->stream));
  TRY(cuStreamSynchronize(p->stream));
  return (double)(clock_now_ns() - start) / 1e3;
}

static void print_placement(const struct probe *p, enum placement how, size_t bytes) {
  for (int i = 0; i < 2; i++) { /* the first warms up */
    CUdeviceptr at = 0;
    uint64_t start = clock_now_ns();
    if (TRY(place(p, how, &at, bytes)) != CUDA_SUCCESS)
      return;
    double placed = (double)(clock_now_ns() - start) / 1e3;
    double first = fill_us(p, at, bytes), second = fill_us(p, at, bytes);
    start = clock_now_ns();
    cuMemFree(at);
    double freed = (double)(clock_now_ns() - start) / 1e3;
    if (i > 0)
      printf("  %4zu MiB %-22s alloc+advice %8.1f us, first fill %9.1f us, second %8.1f us, free %8.1f us\n",
             bytes / MIB, placement_names[how], placed, first, second, freed);
  }
}

void probe_placement(struct probe *p) {
  static const size_t sizes[] = {2 * MIB, 20 * MIB, 512 * MIB};
  for (size_t s = 0; s < 3; s++)
    for (enum placement how = PLAIN; how < PLACEMENTS; how++)
      print_placement(p, how, sizes[s]);
}
