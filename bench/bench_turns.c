/*
 * bench_turns.c - how soon does a turn end? Jobs keep the GPU busy with work of one kind, and take turns: the
 * time from DROP_LOCK to LOCK_RELEASED, for each kind. Where the time ends too soon, what was measured until
 * then is told and judged.
 *
 * --help tells the options.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/host.h"
#include "common/parse.h"
#include "handover/play.h"

enum { WARM_UP = 5, HANDOVERS_MAX = 10000 };

#define MIB (UINT64_C(1) << 20)
#define COPY_BYTES (4096 * MIB)
#define CAPACITY_BYTES (16384 * MIB) /* more than any of them has: no memory moves */
#define HOST_SPARE_BYTES (8192 * MIB)

/* What the jobs do (worker.h), how many there are, what each has, and the target. */
static const struct scene {
  const char *name, *role;
  int jobs;
  uint64_t bytes;
  double most_ms;
} scenes[] = {
    {"kernels_1ms", "rush:1ms", 2, 0, 3},
    {"kernels_100ms", "rush:100ms", 2, 0, 3},
    {"kernels_2000ms", "rush:2000ms", 2, 0, 3},
    {"graph", "graphs", 2, 0, 3},
    {"copies", "copies", 2, COPY_BYTES, 3},
    {"waiting", "rush:1ms", 3, 0, 3},
    {"flood", "flood", 2, 0, 100},
};

static struct {
  uint64_t handovers, quantum_ns;
  const char *scenes;
} options = {.handovers = 100, .quantum_ns = 80 * NS_PER_MS};

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
static bool measure_stops(const struct scene *scene, struct stops *stops) {
  struct pair pair;
  uint64_t bytes = play.simulate && scene->bytes ? 64 * MIB : scene->bytes;
  stops->count = 0;
  bool ok = pair_start(&pair, scene->jobs, scene->role, bytes, "swap", CAPACITY_BYTES, options.quantum_ns) &&
            count_stops(&pair, stops);
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

static bool run(const struct scene *scene) {
  static struct stops stops;
  bool ok = measure_stops(scene, &stops);
  report(report_name("%s_stops", scene->name), (double)stops.count, "");
  if (stops.count == 0)
    return ok;
  qsort(stops.ns, stops.count, sizeof stops.ns[0], compare);
  report(report_name("%s_stop_p50_ms", scene->name), percentile_ms(&stops, 50), "ms");
  report(report_name("%s_stop_p99_ms", scene->name), percentile_ms(&stops, 99), "ms");
  report_at_least(report_name("%s_stop_in_time", scene->name), scene->most_ms / percentile_ms(&stops, 99), 1,
                  !play.simulate);
  return ok;
}

/* Pinned memory, and on the simulated card also what is there. */
static bool has_memory(const struct scene *scene) {
  uint64_t need_bytes = 2 * scene->bytes * (uint64_t)scene->jobs + HOST_SPARE_BYTES;
  return scene->bytes == 0 || play.simulate || host_available_bytes() >= need_bytes ||
         complain("%s skipped: not enough host memory", scene->name);
}

static bool is_chosen(const struct scene *scene) {
  if (!options.scenes)
    return true;
  char *rest = strdupa(options.scenes);
  for (char *name; (name = strsep(&rest, ","));)
    if (strcmp(name, scene->name) == 0)
      return true;
  return false;
}

/* ---- options ---- */

static const char help[] =
    "usage: bench_turns [--json] [options]\n"
    "  --scenes LIST         (kernels_1ms,kernels_100ms,kernels_2000ms,graph,copies,waiting,flood)\n"
    "  --hand-overs N        measured for each, after five that are not (100)\n"
    "  --quantum DURATION    (80ms)\n"
    "  --seconds N           for all of it (540)\n" PLAY_HELP
    "Exit status: 0; 1: something broke, or the time was too short; 2 usage; 77 no GPU here.\n";

static const struct argument known[] = {
    {"scenes", .text = &options.scenes},
    {"hand-overs", .number = &options.handovers, .least = 1, .most = HANDOVERS_MAX},
    {"quantum", .parse = parse_duration_ns, .number = &options.quantum_ns},
    {0},
};

int main(int argc, char **argv) {
  bool ok = true, any = false;
  play_begin(argc, argv, help, known);
  for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
    if (is_chosen(&scenes[i]) && has_memory(&scenes[i])) {
      any = true;
      ok = run(&scenes[i]) && ok;
    }
  return play_end(ok && (any || complain("no such scene")));
}
