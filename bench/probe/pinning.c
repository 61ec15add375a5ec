/* pinning.c - what pinned host memory costs to make and to give back, by kind, and how fast copies into it
 * are. */
#include "pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t bytes = GIB;

struct kind {
  const char *name;
  bool driver; /* cuMemHostAlloc; else mmap and cuMemHostRegister */
  int flags, advice, threads;
};

static const struct kind kinds[] = {{"cuMemHostAlloc", .driver = true},
                                    {"huge pages, 1 thread", .advice = MADV_HUGEPAGE, .threads = 1},
                                    {"huge pages, 4 threads", .advice = MADV_HUGEPAGE, .threads = 4},
                                    {"huge pages, untouched", .advice = MADV_HUGEPAGE},
                                    {"small pages, 4 threads", .advice = MADV_NOHUGEPAGE, .threads = 4},
                                    {"small pages, untouched", .advice = MADV_NOHUGEPAGE},
                                    {"MAP_HUGETLB, 4 threads", .flags = MAP_HUGETLB, .threads = 4}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void print_file(const char *path, const char *key) {
  char line[256];
  FILE *file = fopen(path, "r");
  while (file && fgets(line, sizeof(line), file))
    if (strncmp(line, key, strlen(key)) == 0)
      printf("  %s: %s", path, line);
  if (file)
    fclose(file);
}

static size_t huge_kib(void) {
  char line[256];
  size_t kib = 0;
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  while (file && fgets(line, sizeof(line), file))
    if (strncmp(line, "AnonHugePages:", 14) == 0)
      kib = strtoul(line + 14, NULL, 10);
  if (file)
    fclose(file);
  return kib;
}

/* One step's time, since *start; the next begins. */
static void print_step(const char *what, uint64_t *start) {
  uint64_t took = clock_now_ns() - *start;
  printf(" %s %.3f s %.1f GB/s;", what, (double)took / 1e9, gb_per_s(bytes, took));
  *start = clock_now_ns();
}

static double copies_gb_per_s(const struct probe *p, CUdeviceptr card, char *host, bool out) {
  uint64_t start = 0;
  for (int round = 0; round < 2; round++) { /* the second counts */
    start = clock_now_ns();
    for (size_t at = 0; at < bytes; at += 32 * MIB)
      if (out)
        TRY(cuMemcpyDtoHAsync(host + at, card + at, 32 * MIB, p->stream));
      else
        TRY(cuMemcpyHtoDAsync(card + at, host + at, 32 * MIB, p->stream));
    TRY(cuStreamSynchronize(p->stream));
  }
  return gb_per_s(bytes, clock_now_ns() - start);
}

static void print_copies(const struct probe *p, CUdeviceptr card, void *host) {
  printf(" DtoH %.1f", copies_gb_per_s(p, card, host, true));
  printf(" HtoD %.1f GB/s;", copies_gb_per_s(p, card, host, false));
}

static void print_driver(const struct probe *p, CUdeviceptr card) {
  void *host = NULL;
  uint64_t start = clock_now_ns();
  if (TRY(cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE)) != CUDA_SUCCESS)
    return;
  print_step("alloc", &start);
  print_copies(p, card, host);
  start = clock_now_ns();
  TRY(cuMemFreeHost(host));
  print_step("free", &start);
}

static void print_registered(const struct probe *p, const struct kind *kind, CUdeviceptr card, void *host) {
  uint64_t start = clock_now_ns();
  if (kind->advice && madvise(host, bytes, kind->advice) != 0)
    printf(" madvise: %s;", strerror(errno));
  if (kind->threads) {
    slab_touch(host, bytes, kind->threads);
    print_step("touch", &start);
  }
  if (TRY(cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_PORTABLE)) != CUDA_SUCCESS)
    return;
  print_step("register", &start);
  printf(" huge %zu MiB;", huge_kib() >> 10);
  print_copies(p, card, host);
  start = clock_now_ns();
  TRY(cuMemHostUnregister(host));
  print_step("unregister", &start);
}

static void print_kind(const struct probe *p, const struct kind *kind, CUdeviceptr card) {
  printf("  %-22s:", kind->name);
  if (kind->driver) {
    print_driver(p, card);
    putchar('\n');
    return;
  }
  void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | kind->flags, -1, 0);
  if (host == MAP_FAILED) {
    printf(" mmap: %s\n", strerror(errno));
    return;
  }
  print_registered(p, kind, card, host);
  uint64_t start = clock_now_ns();
  munmap(host, bytes);
  print_step("munmap", &start);
  putchar('\n');
}

void probe_pinning(struct probe *p) {
  CUdeviceptr card = 0;
  uint64_t start = clock_now_ns();
  print_file("/sys/kernel/mm/transparent_hugepage/enabled", "");
  print_file("/sys/kernel/mm/transparent_hugepage/defrag", "");
  print_file("/proc/meminfo", "Mem");
  print_file("/proc/meminfo", "HugePages_Free");
  if (!card_fits("pinning", bytes) || TRY(cuMemAlloc(&card, bytes)) != CUDA_SUCCESS)
    return;
  for (int round = 1; round <= 2; round++) {
    printf("  round %d, 1 GiB each\n", round);
    for (size_t k = 0; k < KINDS && ms_since(start) < 30e3; k++)
      print_kind(p, &kinds[k], card);
  }
}
