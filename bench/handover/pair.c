/* pair.c - see pair.h. */
#include "pair.h"

#include <poll.h>

bool pair_start(struct pair *pair, int count, const char *role, uint64_t bytes, const char *memory,
                uint64_t capacity_bytes, uint64_t tq_ns) {
  *pair = (struct pair){.daemon.name = "daemon", .count = count};
  bool ok = daemon_start(&pair->daemon, "on", capacity_bytes, tq_ns);
  for (int i = 0; i < count; i++)
    ok = ok && stage_job(&pair->jobs[i], role, bytes, memory);
  for (int i = 0; i < count; i++)
    ok = ok && child_expect(&pair->jobs[i], "filled");
  return ok;
}

void pair_kill(struct pair *pair) {
  for (int i = 0; i < pair->count; i++)
    child_kill(&pair->jobs[i]);
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
    for (int i = 0; i < pair->count; i++)
      if (child_stirs(&pair->jobs[i]))
        return complain("a job has stopped");
    poll(NULL, 0, PAIR_POLL_MS); /* nothing tells when the daemon's figures change */
    if (!daemon_ask(status))
      return false;
  } while (cost_ns(status) == before_ns);
  return true;
}
