/* pair.h - two jobs that take turns under a daemon of their own. */
#ifndef GS_BENCH_PAIR_H
#define GS_BENCH_PAIR_H

#include "stage.h"

#define PAIR_POLL_MS 2

struct pair {
  struct child daemon, jobs[2];
};

/* Of a role each (worker.h); bytes 0: the role takes none. Both have filled what they have when this returns.
 * A pair that failed to start must be killed, too. */
bool pair_start(struct pair *pair, const char *role, uint64_t bytes, const char *memory,
                uint64_t capacity_bytes, uint64_t tq_ns);
void pair_kill(struct pair *pair);

/* Until the next hand-over is complete. */
bool pair_await_handover(const struct pair *pair, struct status *status);

#endif
