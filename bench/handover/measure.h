/*
 * measure.h - what bench_handover measures; all rates in GB/s. Each function starts the processes that it
 * needs and ends them. False: something broke, or memory had other contents than it should; a line tells.
 */
#ifndef GS_BENCH_MEASURE_H
#define GS_BENCH_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

struct card {
  uint64_t free_bytes, total_bytes;
  char name[64];
};

struct stage_paths;

/* Begin the stage and look at its card; *simulate becomes true if that is the simulated one. 0, or the exit
 * status of a program that cannot go on: 1, or 77 if there is no GPU that works, with a line that tells. */
int measure_begin(const struct stage_paths *paths, bool *simulate, struct card *card);

/* Copies between the card and pinned memory, nothing else. */
struct ceilings {
  double out, in, both_one, both_two; /* both ways at once, each way: by one process, by two */
};

bool measure_ceilings(uint64_t bytes, struct ceilings *ceilings);

/* Unified memory, moved by one call for all of it, and fetched by a kernel's page faults. */
struct paging {
  double prefetch_out, prefetch_in, faults_in;
};

bool measure_paging(uint64_t bytes, struct paging *paging);

/* ---- under gpushare ---- */

struct setup {
  const char *memory; /* GPUSHARE_MEMORY */
  uint64_t bytes;     /* of each job */
  uint64_t quantum_ns;
  unsigned handovers; /* measured, after two that are not */
};

/* Room on the card beside one job's bytes; two jobs must not fit. */
uint64_t setup_spare_bytes(uint64_t bytes);

/* Hand-overs between two jobs, by the daemon's own figures: sums. */
struct turns {
  unsigned handovers;
  uint64_t drain_ns, move_ns;
  uint64_t evicted_bytes, restored_bytes, hidden_bytes;
  double slowest; /* each way, of the slowest hand-over */
};

bool measure_turns(const struct setup *setup, struct turns *turns);
/* Each way: of two directions that differ, the one with fewer bytes counts. */
double turns_rate(const struct turns *turns);

/* One direction alone, of a job that does not run: its memory leaves because the capacity is lowered, and
 * comes back because it is raised. */
struct directions {
  double out, in;
};

bool measure_directions(const struct setup *setup, struct directions *directions);

#endif
