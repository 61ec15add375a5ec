/* iteration.c - see iteration.h. */
#include "gate/iteration.h"

#define SEEN_MIN 8 /* periods before any of it is believed */
#define PARTS 8    /* the newest counts for an eighth; the spread may be an eighth; so late may an end be */

static uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

static uint64_t average(uint64_t average, uint64_t newest) {
  return newest > average ? average + (newest - average) / PARTS : average - (average - newest) / PARTS;
}

static void learn(uint64_t *mean, uint64_t *spread, uint64_t newest, bool first) {
  *spread = first ? 0 : average(*spread, distance(*mean, newest));
  *mean = first ? newest : average(*mean, newest);
}

void iteration_end(struct iteration *it, uint64_t now_ns, uint64_t calls) {
  if (it->last_ns && calls == it->last_calls)
    return;
  if (it->last_ns) {
    learn(&it->period_ns, &it->spread_ns, now_ns - it->last_ns, it->seen == 0);
    learn(&it->calls, &it->calls_spread, calls - it->last_calls, it->seen == 0);
    it->seen += it->seen < SEEN_MIN;
  }
  it->last_ns = now_ns;
  it->last_calls = calls;
}

void iteration_pause(struct iteration *it) { it->last_ns = 0; }

bool iteration_is_known(const struct iteration *it) {
  return it->seen == SEEN_MIN && it->spread_ns <= it->period_ns / PARTS &&
         it->calls_spread <= it->calls / PARTS;
}

uint64_t iteration_next_ns(const struct iteration *it, uint64_t now_ns) {
  uint64_t next_ns = it->last_ns + it->period_ns, late_ns = it->period_ns / PARTS;
  if (!it->last_ns || !iteration_is_known(it) || next_ns + late_ns < now_ns)
    return UINT64_MAX;
  return next_ns > now_ns ? next_ns : now_ns;
}
