/*
 * bench_turns.c - do turns end on time? Two jobs queue kernels as deep as the driver lets them, and take
 * turns: how long the drains take, and what it costs that they are short, for kernels of 1 ms and of 5 ms.
 * The same is measured with GPUSHARE_PACE=0. Where the time ends too soon, what was measured until then is
 * told and judged.
 *
 * --help tells the options. turns_cost_ratio is what the jobs get done in their own turns, drains included,
 * over what they do unpaced.
 */
#include <getopt.h>
#include <poll.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/parse.h"
#include "handover/measure.h"
#include "handover/pair.h"
#include "number.h"
#include "report.h"

enum { EXIT_USAGE = 2, WARM_UP = 5, UNPACED_WARM_UP = 1, HANDOVERS_MAX = 10000 };

#define CAPACITY_BYTES (UINT64_C(1) << 30) /* the jobs have no memory */
#define DRAIN_MS 20
#define COST 0.997
#define QUEUE_DEPTH 1024 /* kernels that a job has queued at most: handover/rush.c */

static struct {
  uint64_t kernels_ms, handovers, unpaced, quantum_ns, seconds;
  bool simulate;
  struct stage_paths paths;
} options = {.handovers = 100, .unpaced = 10, .quantum_ns = NS_PER_S, .seconds = 540};

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
    if (drains->count > 0 && deadline_left_ns() < time_to_stop_ns(plan->spin_ms))
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
            pair_stop(&pair, plan->spin_ms * NS_PER_MS, drains);
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

static void report_of(const char *prefix, const char *what, double value, const char *unit) {
  char name[64];
  snprintf(name, sizeof name, "%s%s", prefix, what);
  report(name, value, unit);
}

static void judge(const char *prefix, const char *what, double value, double least) {
  char name[64];
  snprintf(name, sizeof name, "%s%s", prefix, what);
  report_at_least(name, value, least, !options.simulate);
}

static void report_drains(const char *prefix, struct drains *drains) {
  report_of(prefix, "drains", (double)drains->count, "");
  if (drains->count == 0)
    return;
  qsort(drains->ns, drains->count, sizeof drains->ns[0], compare);
  report_of(prefix, "drain_p50_ms", percentile_ms(drains, 50), "ms");
  report_of(prefix, "drain_p99_ms", percentile_ms(drains, 99), "ms");
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
  return run_paced(prefix, spin_ms, &paced) && run_unpaced(prefix, spin_ms, paced.busy);
}

/* ---- options ---- */

static const char help[] =
    "usage: bench_turns [--json] [options]\n"
    "  --kernels MS          only those of so many milliseconds (1, then 5)\n"
    "  --hand-overs N        measured for each kernel length, after five that are not (100)\n"
    "  --unpaced N           the same with GPUSHARE_PACE=0, after one that is not: each takes as long as "
    "what is\n"
    "                        queued, 1 s of 1 ms kernels, 5 s of 5 ms kernels (10)\n"
    "  --quantum DURATION    (1s)\n"
    "  --seconds N           for all of it (540)\n"
    "  --simulate            the simulated driver, even where there is a GPU: its figures mean nothing\n"
    "  --daemon PATH, --lib PATH    instead of those beside this program\n"
    "Exit status: 0; 1: something broke, or the time was too short; 2 usage; 77 no GPU here.\n";

_Noreturn static void usage(const char *what) {
  fprintf(stderr, "bench_turns: %s: --help tells\n", what);
  exit(EXIT_USAGE);
}

_Noreturn static void print_help(void) {
  fputs(help, stdout);
  exit(EXIT_SUCCESS);
}

static uint64_t read_count(const char *text) {
  uint64_t number;
  if (!read_number(text, 1, HANDOVERS_MAX, &number))
    usage(text);
  return number;
}

static void read_options(int argc, char **argv) {
  static const struct option list[] = {
      {"json", 0, NULL, 'j'},     {"kernels", 1, NULL, 'k'}, {"hand-overs", 1, NULL, 'n'},
      {"unpaced", 1, NULL, 'u'},  {"quantum", 1, NULL, 'q'}, {"seconds", 1, NULL, 't'},
      {"simulate", 0, NULL, 'S'}, {"daemon", 1, NULL, 'd'},  {"lib", 1, NULL, 'l'},
      {"help", 0, NULL, 'h'},     {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
    if (option == 'k')
      options.kernels_ms = read_count(optarg);
    else if (option == 'n')
      options.handovers = read_count(optarg);
    else if (option == 'u')
      options.unpaced = read_count(optarg);
    else if (option == 't')
      options.seconds = read_count(optarg);
    else if (option == 'h')
      print_help();
    else if (option == 'S')
      options.simulate = true;
    else if (option == 'd')
      options.paths.daemon = optarg;
    else if (option == 'l')
      options.paths.library = optarg;
    else if (option == '?' || (option == 'q' && parse_duration_ns(optarg, &options.quantum_ns) != 0))
      usage("wrong option");
  }
}

int main(int argc, char **argv) {
  struct card card;
  read_options(argc, argv);
  deadline_set(options.seconds);
  int status = measure_begin(&options.paths, &options.simulate, &card);
  if (status != 0)
    return status;
  report_begin(argc, argv);
  bool ok = options.kernels_ms ? run(options.kernels_ms) : run(1) && run(5);
  report("simulated", options.simulate, "");
  report("failed", !ok, "");
  report_end();
  stage_end();
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
