/*
 * board.h - what bench_react and its two jobs see of each other: memory of a file, which the jobs inherit as
 * BOARD_FD. All times are CLOCK_MONOTONIC, in ns.
 */
#ifndef GS_BENCH_BOARD_H
#define GS_BENCH_BOARD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum { BOARD_FD = 60, BURST_MS = 40 };

struct board {
  _Alignas(4096) _Atomic uint64_t ticks;         /* the GPU counts them up, for the one job */
  _Alignas(4096) _Atomic uint64_t order;         /* how many bursts the other one shall have done */
  _Atomic uint64_t begun_ns, ended_ns, finished; /* of its last one: before its first launch, after its end */
};

/* NULL: it can't be had. */
static inline struct board *board_map(void) {
  void *at = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, BOARD_FD, 0);
  return at == MAP_FAILED ? NULL : at;
}

#endif
