/*
 * bench_turns.c - do turns end on time? Two jobs queue kernels as deep as the driver lets them, and take
 * turns: how long the drains take, and what it costs that they are short, for kernels of 1 ms and of 5 ms.
 * The same is measured with GPUSHARE_PACE=0. Where the time ends too soon, what was measured until then is
 * told and judged.
 *
 * --help tells the options. turns_cost_ratio is what the jobs get done in their own turns, drains included,
 * over what they do unpaced.
 */
#include <poll.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/parse.h"
#include "handover/pair.h"
#include "handover/play.h"

enum { WARM_UP = 5, UNPACED_WARM_UP = 1, HANDOVERS_MAX = 10000 };

#define CAPACITY_BYTES (UINT64_C(1) << 30) /* the jobs have no memory */
#define DRAIN_MS 20
#define COST 0.997
#define QUEUE_DEPTH 1024 /* kernels that a job has queued at most: handover/rush.c */

static struct {
  uint64_t kernels_ms, handovers, unpaced, quantum_ns;
} options = {.handovers = 100, .unpaced = 10, .quantum_ns = NS_PER_S};

struct plan {
  uint64_t spin_ms;
  bool paced;
  uint64_t warm_up, handovers;
};

/* Of the hand-overs that are measured: each drain; and how much of the jobs' time the GPU has worked for
 * them, 0 if that is not known. */
struct drains {
  uint64_t count, ns[HANDOVERS_MAX];
  double busy;
};

static bool start(struct pair *pair, const char *role, bool paced) {
  setenv("GPUSHARE_PACE", paced ? "1" : "0", 1);
  return pair_start(pair, role, 0, "managed", CAPACITY_BYTES, options.quantum_ns);
}

/* For a hand-over that has begun, and for each of two jobs to end what it has queued: a turn and the queue,
 * each time. */
static uint64_t time_to_stop_ns(uint64_t spin_ms) {
  return 3 * (options.quantum_ns + QUEUE_DEPTH * spin_ms * NS_PER_MS);
}

static bool count_drains(const struct pair *pair, const struct plan *plan, struct drains *drains) {
  struct status status;
  if (!daemon_ask(&status))
    return false;
  for (uint64_t i = 0; i < plan->warm_up + plan->handovers; i++) {
    if (options.unpaced && drains->count > 0 && deadline_left_ns() < time_to_stop_ns(plan->spin_ms))
      return true;
    if (!pair_await_handover(pair, &status))
      return false;
    if (i >= plan->warm_up)
      drains->ns[drains->count++] = status.handover.handover_status.drain_last_ns;
  }
  return true;
}

static uint64_t held_ns(const struct status *status, const struct child *job) {
  int place = status_find(status, job->pid);
  return place < 0 ? 0 : status->jobs[place].job_status.held_ns;
}

/* What it has done, from its first turn on, and in what time: it has nothing to do any more. */
static bool settle(const struct child *job, uint64_t *kernels, uint64_t *turns_ns) {
  struct status status;
  char text[CHILD_TEXT_SIZE];
  if (!child_hear(job, text) || !daemon_ask(&status))
    return false;
  *kernels += strtoull(text, NULL, 10);
  *turns_ns += held_ns(&status, job);
  return true;
}

static bool pair_stop(struct pair *pair, uint64_t spin_ns, struct drains *drains) {
  uint64_t kernels = 0, turns_ns = 0;
  bool ok = true;
  for (int i = 0; i < 2; i++)
    ok = ok && child_say(&pair->jobs[i], "stop");
  while (ok && !child_stirs(&pair->jobs[0]) && !child_stirs(&pair->jobs[1]))
    ok = deadline_left_ns() > 0 ? poll(NULL, 0, PAIR_POLL_MS) == 0 : complain_late("a job");
  int first = child_stirs(&pair->jobs[0]) ? 0 : 1; /* it holds the GPU; the other one has a turn after that */
  ok = ok && settle(&pair->jobs[first], &kernels, &turns_ns) &&
       settle(&pair->jobs[!first], &kernels, &turns_ns);
  drains->busy = (double)(kernels * spin_ns) / (double)turns_ns;
  for (int i = 0; i < 2; i++)
    ok = ok && child_say(&pair->jobs[i], "end") && child_wait(&pair->jobs[i]);
  return ok;
}

/* All that was planned; what is in `drains` was measured in any case. */
static bool measure_drains(const struct plan *plan, struct drains *drains) {
  struct pair pair;
  char role[32];
  drains->count = 0;
  drains->busy = 0;
  snprintf(role, sizeof role, "rush:%llums", (unsigned long long)plan->spin_ms);
  bool ok = start(&pair, role, plan->paced) && count_drains(&pair, plan, drains) &&
            (!options.unpaced || pair_stop(&pair, plan->spin_ms * NS_PER_MS, drains));
  pair_kill(&pair);
  return ok && (drains->count == plan->handovers || complain_late("hand-overs"));
}

/* ---- figures ---- */

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* The drains sorted; the smallest that `percent` of them do not exceed. */
static double percentile_ms(const struct drains *drains, uint64_t percent) {
  uint64_t rank = (drains->count * percent + 99) / 100;
  return (double)drains->ns[rank ? rank - 1 : 0] / 1e6;
}

static void judge(const char *prefix, const char *what, double value, double least) {
  report_at_least(report_name("%s%s", prefix, what), value, least, !play.simulate);
}

static void report_drains(const char *prefix, struct drains *drains) {
  report(report_name("%sdrains", prefix), (double)drains->count, "");
  if (drains->count == 0)
    return;
  qsort(drains->ns, drains->count, sizeof drains->ns[0], compare);
  report(report_name("%sdrain_p50_ms", prefix), percentile_ms(drains, 50), "ms");
  report(report_name("%sdrain_p99_ms", prefix), percentile_ms(drains, 99), "ms");
}

static bool run_paced(const char *prefix, uint64_t spin_ms, struct drains *paced) {
  struct plan plan = {.spin_ms = spin_ms, .paced = true, .warm_up = WARM_UP, .handovers = options.handovers};
  bool ok = measure_drains(&plan, paced);
  report_drains(prefix, paced);
  if (paced->count > 0)
    judge(prefix, "drain_in_time", DRAIN_MS / percentile_ms(paced, 99), 1);
  return ok;
}

static bool run_unpaced(const char *prefix, uint64_t spin_ms, double paced_busy) {
  static struct drains unpaced;
  char name[64];
  struct plan plan = {.spin_ms = spin_ms, .warm_up = UNPACED_WARM_UP, .handovers = options.unpaced};
  bool ok = measure_drains(&plan, &unpaced);
  snprintf(name, sizeof name, "%sunpaced_", prefix);
  report_drains(name, &unpaced);
  if (paced_busy > 0 && unpaced.busy > 0)
    judge(prefix, "turns_cost_ratio", paced_busy / unpaced.busy, COST);
  return ok;
}

static bool run(uint64_t spin_ms) {
  static struct drains paced;
  char prefix[32];
  snprintf(prefix, sizeof prefix, "kernels_%llums_", (unsigned long long)spin_ms);
  return run_paced(prefix, spin_ms, &paced) && (!options.unpaced || run_unpaced(prefix, spin_ms, paced.busy));
}

/* ---- options ---- */

static const char help[] =
    "usage: bench_turns [--json] [options]\n"
    "  --kernels MS          only those of so many milliseconds (1, then 5)\n"
    "  --hand-overs N        measured for each kernel length, after five that are not (100)\n"
    "  --unpaced N           the same with GPUSHARE_PACE=0, after one that is not: each takes as long as "
    "what is\n"
    "                        queued, 1 s of 1 ms kernels, 5 s of 5 ms kernels (10);\n"
    "                        0: not at all, and what is queued in the end is not waited for\n"
    "  --quantum DURATION    (1s)\n"
    "  --seconds N           for all of it (540)\n" PLAY_HELP
    "Exit status: 0; 1: something broke, or the time was too short; 2 usage; 77 no GPU here.\n";

static const struct argument known[] = {
    {"kernels", .number = &options.kernels_ms, .least = 1, .most = HANDOVERS_MAX},
    {"hand-overs", .number = &options.handovers, .least = 1, .most = HANDOVERS_MAX},
    {"unpaced", .number = &options.unpaced, .most = HANDOVERS_MAX},
    {"quantum", .parse = parse_duration_ns, .number = &options.quantum_ns},
    {0},
};

int main(int argc, char **argv) {
  play_begin(argc, argv, help, known);
  return play_end(options.kernels_ms ? run(options.kernels_ms) : run(1) && run(5));
}
