/*
 * turns.c - two jobs that do not fit on the card together take turns, and the daemon tells what that cost:
 * the difference of what it says before and after some hand-overs. So the drain, the messages and whatever
 * else a hand-over takes are in the figures.
 */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "measure.h"
#include "pair.h"

enum { WARM_UP = 2 }; /* the first evictions make the host memory that later ones use again */

#define MIB (UINT64_C(1) << 20)

uint64_t setup_spare_bytes(uint64_t bytes) { return bytes < 256 * MIB ? 32 * MIB : 64 * MIB; }

static bool start(struct pair *pair, const struct setup *setup) {
  uint64_t capacity_bytes = setup->bytes + setup_spare_bytes(setup->bytes);
  return pair_start(pair, 2, "busy", setup->bytes, setup->memory, capacity_bytes, setup->quantum_ns);
}

/* Both find all their memory as it should be. */
static bool pair_finish(struct pair *pair) {
  bool ok = true;
  for (int i = 0; i < 2; i++)
    ok = child_say(&pair->jobs[i], "stop") && ok;
  for (int i = 0; i < 2; i++)
    ok = ok && child_expect(&pair->jobs[i], "0 wrong") && child_wait(&pair->jobs[i]);
  return ok;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static double last_rate(const struct status *status) {
  const struct gs_msg *msg = &status->handover;
  uint64_t bytes = least(msg->handover_status.evicted_last_bytes, msg->handover_status.restored_last_bytes);
  return (double)bytes / (double)(msg->handover_status.drain_last_ns + msg->handover_status.move_last_ns);
}

static void subtract(struct turns *turns, const struct status *before, const struct status *after) {
  const struct gs_msg *a = &before->handover, *b = &after->handover;
  turns->drain_ns = b->handover_status.drain_ns - a->handover_status.drain_ns;
  turns->move_ns = b->handover_status.move_ns - a->handover_status.move_ns;
  turns->evicted_bytes = b->handover_status.evicted_bytes - a->handover_status.evicted_bytes;
  turns->restored_bytes = b->handover_status.restored_bytes - a->handover_status.restored_bytes;
  turns->hidden_bytes = b->handover_status.hidden_bytes - a->handover_status.hidden_bytes;
}

static bool count_turns(const struct pair *pair, unsigned handovers, struct turns *turns) {
  struct status before, after;
  *turns = (struct turns){.handovers = handovers};
  if (!daemon_ask(&before))
    return false;
  for (int i = 0; i < WARM_UP; i++)
    if (!pair_await_handover(pair, &before))
      return false;
  after = before;
  for (unsigned i = 0; i < handovers; i++) {
    if (!pair_await_handover(pair, &after))
      return false;
    turns->slowest = i == 0 || last_rate(&after) < turns->slowest ? last_rate(&after) : turns->slowest;
  }
  subtract(turns, &before, &after);
  return true;
}

bool measure_turns(const struct setup *setup, struct turns *turns) {
  struct pair pair;
  bool ok = start(&pair, setup) && count_turns(&pair, setup->handovers, turns) && pair_finish(&pair);
  pair_kill(&pair);
  return ok;
}

double turns_rate(const struct turns *turns) {
  return (double)least(turns->evicted_bytes, turns->restored_bytes) /
         (double)(turns->drain_ns + turns->move_ns);
}
