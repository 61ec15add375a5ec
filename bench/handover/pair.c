/* pair.c - two jobs that take turns under a daemon of their own. */
#include "pair.h"

#include <poll.h>

bool pair_start(struct pair *pair, const char *role, uint64_t bytes, const char *memory,
                uint64_t capacity_bytes, uint64_t tq_ns) {
  *pair = (struct pair){.daemon.name = "daemon"};
  bool ok = daemon_start(&pair->daemon, "on", capacity_bytes, tq_ns);
  for (int i = 0; i < 2; i++)
    ok = ok && stage_job(&pair->jobs[i], role, bytes, memory);
  for (int i = 0; i < 2; i++)
    ok = ok && child_expect(&pair->jobs[i], "filled");
  return ok;
}

void pair_kill(struct pair *pair) {
  child_kill(&pair->jobs[0]);
  child_kill(&pair->jobs[1]);
  daemon_stop(&pair->daemon);
}

static uint64_t cost_ns(const struct status *status) {
  return status->handover.handover_status.drain_ns + status->handover.handover_status.move_ns;
}

bool pair_await_handover(const struct pair *pair, struct status *status) {
  uint64_t before_ns = cost_ns(status);
  do {
    if (deadline_left_ns() == 0)
      return complain_late("a hand-over");
    if (child_stirs(&pair->jobs[0]) || child_stirs(&pair->jobs[1]))
      return complain("a job has stopped");
    poll(NULL, 0, PAIR_POLL_MS); /* nothing tells when the daemon's figures change */
    if (!daemon_ask(status))
      return false;
  } while (cost_ns(status) == before_ns);
  return true;
}
