/*
 * stage.h - where the benchmark plays: what it starts lies beside it (a build folder, or a packed one), its
 * daemon and simulated card in a temporary folder. One daemon at a time.
 */
#ifndef GS_BENCH_STAGE_H
#define GS_BENCH_STAGE_H

#include "child.h"
#include "gpushare/protocol.h"

struct card {
  uint64_t free_bytes;
  char name[64];
};

/* Looks at the card, too. simulate: the simulated driver, whatever there is; it becomes true if that is what
 * there is. 0, or the exit status of a program that cannot go on: 1, or 77 if there is no GPU that works,
 * with a line that tells. */
int stage_begin(bool *simulate, struct card *card);
void stage_end(void);

/* A worker (worker.h) that sees the bare driver. bytes 0: the role takes none. */
bool stage_worker(struct child *child, const char *role, uint64_t bytes);

/* A job under gpushare; memory as in GPUSHARE_MEMORY. */
bool stage_job(struct child *child, const char *role, uint64_t bytes, const char *memory);
/* The same without a daemon. */
bool stage_lone_job(struct child *child, const char *role, uint64_t bytes, const char *memory);

/* ---- the daemon ---- */

#define STATUS_JOBS 4

struct status {
  struct gs_msg handover; /* of the first GPU */
  struct gs_msg jobs[STATUS_JOBS];
  int gpu_count, job_count;
};

/* mode: on or auto, whether turns are always taken. */
bool daemon_start(struct child *daemon, const char *mode, uint64_t capacity_bytes, uint64_t tq_ns);
void daemon_stop(struct child *daemon);
bool daemon_ask(struct status *status);
/* The place of the process's job; -1: the daemon does not know it. */
int status_find(const struct status *status, pid_t pid);
bool daemon_set_term(uint32_t job, enum gs_term term, uint64_t value);

/* ---- two jobs, or more of them, that take turns under a daemon of their own ---- */

enum { PAIR_MOST = 3 };

struct pair {
  struct child daemon, jobs[PAIR_MOST];
  int count;
};

/* Of a role (worker.h); bytes 0: the role takes none. All have filled what they have when this returns.
 * A pair that failed to start must be killed, too. */
bool pair_start(struct pair *pair, int count, const char *role, uint64_t bytes, const char *memory,
                uint64_t capacity_bytes, uint64_t tq_ns);
void pair_kill(struct pair *pair);

/* Until the next hand-over is complete. */
bool pair_await_handover(const struct pair *pair, struct status *status);

#endif
