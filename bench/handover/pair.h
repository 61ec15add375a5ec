/* pair.h - two jobs, or more of them, that take turns under a daemon of their own. */
#ifndef GS_BENCH_PAIR_H
#define GS_BENCH_PAIR_H

#include "stage.h"

#define PAIR_POLL_MS 2

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
