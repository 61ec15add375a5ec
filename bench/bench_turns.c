/*
 * bench_turns.c - how soon does a turn end? Two jobs queue kernels as deep as the driver lets them, and take
 * turns: the time from DROP_LOCK to LOCK_RELEASED, for kernels of 1 ms, 100 ms and 2 s. Where the time ends
 * too soon, what was measured until then is told and judged.
 *
 * --help tells the options.
 */
#include <poll.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/parse.h"
#include "handover/pair.h"
#include "handover/play.h"

enum { WARM_UP = 5, HANDOVERS_MAX = 10000 };

#define CAPACITY_BYTES (UINT64_C(1) << 30) /* the jobs have no memory */
#define STOP_MS 3

static struct {
  uint64_t kernels_ms, handovers, quantum_ns;
} options = {.handovers = 100, .quantum_ns = NS_PER_S};

/* Of the hand-overs that are measured. */
struct stops {
  uint64_t count, ns[HANDOVERS_MAX];
};

static bool count_stops(const struct pair *pair, struct stops *stops) {
  struct status status;
  if (!daemon_ask(&status))
    return false;
  for (uint64_t i = 0; i < WARM_UP + options.handovers; i++) {
    if (!pair_await_handover(pair, &status))
      return false;
    if (i >= WARM_UP)
      stops->ns[stops->count++] = status.handover.handover_status.drain_last_ns;
  }
  return true;
}

/* All that was planned; what is in `stops` was measured in any case. */
static bool measure_stops(uint64_t spin_ms, struct stops *stops) {
  struct pair pair;
  char role[32];
  stops->count = 0;
  snprintf(role, sizeof role, "rush:%llums", (unsigned long long)spin_ms);
  bool ok =
      pair_start(&pair, role, 0, "managed", CAPACITY_BYTES, options.quantum_ns) && count_stops(&pair, stops);
  pair_kill(&pair);
  return ok && (stops->count == options.handovers || complain_late("hand-overs"));
}

/* ---- figures ---- */

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* The stops sorted; the smallest that `percent` of them do not exceed. */
static double percentile_ms(const struct stops *stops, uint64_t percent) {
  uint64_t rank = (stops->count * percent + 99) / 100;
  return (double)stops->ns[rank ? rank - 1 : 0] / 1e6;
}

static bool run(uint64_t spin_ms) {
  static struct stops stops;
  char prefix[32];
  snprintf(prefix, sizeof prefix, "kernels_%llums_", (unsigned long long)spin_ms);
  bool ok = measure_stops(spin_ms, &stops);
  report(report_name("%sstops", prefix), (double)stops.count, "");
  if (stops.count == 0)
    return ok;
  qsort(stops.ns, stops.count, sizeof stops.ns[0], compare);
  report(report_name("%sstop_p50_ms", prefix), percentile_ms(&stops, 50), "ms");
  report(report_name("%sstop_p99_ms", prefix), percentile_ms(&stops, 99), "ms");
  report_at_least(report_name("%sstop_in_time", prefix), STOP_MS / percentile_ms(&stops, 99), 1,
                  !play.simulate);
  return ok;
}

/* ---- options ---- */

static const char help[] =
    "usage: bench_turns [--json] [options]\n"
    "  --kernels MS          only those of so many milliseconds (1, then 100, then 2000)\n"
    "  --hand-overs N        measured for each kernel length, after five that are not (100)\n"
    "  --quantum DURATION    (1s)\n"
    "  --seconds N           for all of it (540)\n" PLAY_HELP
    "Exit status: 0; 1: something broke, or the time was too short; 2 usage; 77 no GPU here.\n";

static const struct argument known[] = {
    {"kernels", .number = &options.kernels_ms, .least = 1, .most = HANDOVERS_MAX},
    {"hand-overs", .number = &options.handovers, .least = 1, .most = HANDOVERS_MAX},
    {"quantum", .parse = parse_duration_ns, .number = &options.quantum_ns},
    {0},
};

int main(int argc, char **argv) {
  play_begin(argc, argv, help, known);
  return play_end(options.kernels_ms ? run(options.kernels_ms) : run(1) && run(100) && run(2000));
}
