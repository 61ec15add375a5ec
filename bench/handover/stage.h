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

/* ---- the daemon ---- */

#define STATUS_JOBS 4

struct status {
  struct gs_msg gpu, handover;                         /* of the first GPU */
  struct gs_msg jobs[STATUS_JOBS], waits[STATUS_JOBS]; /* of the same job in the same place */
  int gpu_count, job_count;
};

/* mode: on or auto, whether turns are always taken. */
bool daemon_start(struct child *daemon, const char *mode, uint64_t capacity_bytes, uint64_t tq_ns);
void daemon_stop(struct child *daemon);
bool daemon_ask(struct status *status);
/* The place of the process's job; -1: the daemon does not know it. */
int status_find(const struct status *status, pid_t pid);
bool daemon_set_capacity(uint64_t bytes);
bool daemon_set_term(uint32_t job, enum gs_term term, uint64_t value);

#endif
