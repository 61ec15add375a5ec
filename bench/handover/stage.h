/*
 * stage.h - where the benchmark plays: what it starts lies beside it (a build folder, or a packed one), its
 * daemon and simulated card in a temporary folder. One daemon at a time.
 */
#ifndef GS_BENCH_STAGE_H
#define GS_BENCH_STAGE_H

#include "child.h"
#include "gpushare/protocol.h"

/* NULL: what lies beside this program. */
struct stage_paths {
  const char *daemon, *library;
};

/* simulate: the simulated driver, whatever there is. */
bool stage_begin(const struct stage_paths *paths, bool simulate);
void stage_end(void);

/* A worker (worker.h) that sees the bare driver. bytes 0: the role takes none. */
bool stage_worker(struct child *child, const char *role, uint64_t bytes);

/* A job under gpushare; memory as in GPUSHARE_MEMORY. */
bool stage_job(struct child *child, const char *role, uint64_t bytes, const char *memory);

/* ---- the daemon: turns are always taken ---- */

#define STATUS_JOBS 4

struct status {
  struct gs_msg gpu, handover; /* of the first GPU */
  struct gs_msg jobs[STATUS_JOBS];
  int gpu_count, job_count;
};

bool daemon_start(struct child *daemon, uint64_t capacity_bytes, uint64_t tq_ns);
void daemon_stop(struct child *daemon);
bool daemon_ask(struct status *status);
bool daemon_set_capacity(uint64_t bytes);

#endif
