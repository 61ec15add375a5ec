/*
 * bench_turns.c - do turns end on time? Two jobs queue kernels as deep as the driver lets them, and take
 * turns: how long the drains take, and what it costs that they are short, for kernels of 1 ms and of 5 ms.
 * The same is measured with GPUSHARE_PACE=0.
 *
 * usage: bench_turns [--json] [options]
 *   --kernels MS          only those of so many milliseconds
 *   --hand-overs N        measured for each kernel length, after five that are not (100)
 *   --unpaced N           the same with GPUSHARE_PACE=0, where each takes as long as what is queued (10)
 *   --quantum DURATION    (1s)
 *   --seconds N           for all of it (540)
 *   --simulate            the simulated driver, even where there is a GPU: its figures mean nothing
 *   --daemon PATH, --lib PATH    instead of those beside this program
 *
 * turns_cost_ratio: what the jobs get done in their own turns, drains included, over what they do unpaced.
 * Exit status: 0; 1: something broke; 2 usage; 77 no GPU here.
 */
#include <getopt.h>
#include <poll.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/parse.h"
#include "handover/measure.h"
#include "handover/pair.h"
#include "report.h"

enum { EXIT_USAGE = 2, EXIT_NO_GPU = 77, WARM_UP = 5, HANDOVERS_MAX = 10000 };

#define CAPACITY_BYTES (UINT64_C(1) << 30) /* the jobs have no memory */
#define DRAIN_MS 20
#define COST 0.997

static struct {
  uint64_t kernels_ms, handovers, unpaced, quantum_ns, seconds;
  bool simulate;
  struct stage_paths paths;
} options = {.handovers = 100, .unpaced = 10, .quantum_ns = NS_PER_S, .seconds = 540};

/* Of the hand-overs that are measured: each drain; and how much of the jobs' time the GPU has worked for
 * them. */
struct drains {
  uint64_t count, ns[HANDOVERS_MAX];
  double busy;
};

static bool start(struct pair *pair, const char *role, bool paced) {
  setenv("GPUSHARE_PACE", paced ? "1" : "0", 1);
  return pair_start(pair, role, 0, "managed", CAPACITY_BYTES, options.quantum_ns);
}

static bool count_drains(const struct pair *pair, uint64_t handovers, struct drains *drains) {
  struct status status;
  drains->count = 0;
  if (!daemon_ask(&status))
    return false;
  for (uint64_t i = 0; i < WARM_UP + handovers; i++) {
    if (!pair_await_handover(pair, &status))
      return false;
    if (i >= WARM_UP)
      drains->ns[drains->count++] = status.handover.handover_status.drain_last_ns;
  }
  return true;
}

static uint64_t held_ns(const struct status *status, const struct child *job) {
  for (int i = 0; i < status->job_count; i++)
    if (status->jobs[i].job_status.pid == job->pid)
      return status->jobs[i].job_status.held_ns;
  return 0;
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

static bool measure_drains(uint64_t spin_ms, bool paced, uint64_t handovers, struct drains *drains) {
  struct pair pair;
  char role[32];
  snprintf(role, sizeof role, "rush:%llums", (unsigned long long)spin_ms);
  bool ok = start(&pair, role, paced) && count_drains(&pair, handovers, drains) &&
            pair_stop(&pair, spin_ms * NS_PER_MS, drains);
  pair_kill(&pair);
  return ok;
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

static void report_drains(const char *prefix, struct drains *drains) {
  char name[64];
  qsort(drains->ns, drains->count, sizeof drains->ns[0], compare);
  snprintf(name, sizeof name, "%sdrain_p50_ms", prefix);
  report(name, percentile_ms(drains, 50), "ms");
  snprintf(name, sizeof name, "%sdrain_p99_ms", prefix);
  report(name, percentile_ms(drains, 99), "ms");
}

static bool run(uint64_t spin_ms) {
  static struct drains paced, unpaced;
  char prefix[32], name[64];
  if (!measure_drains(spin_ms, true, options.handovers, &paced) ||
      !measure_drains(spin_ms, false, options.unpaced, &unpaced))
    return false;
  snprintf(prefix, sizeof prefix, "kernels_%llums_", (unsigned long long)spin_ms);
  report_drains(prefix, &paced);
  snprintf(name, sizeof name, "%sdrain_in_time", prefix);
  report_at_least(name, DRAIN_MS / percentile_ms(&paced, 99), 1, !options.simulate);
  snprintf(name, sizeof name, "%sunpaced_", prefix);
  report_drains(name, &unpaced);
  snprintf(name, sizeof name, "%sturns_cost_ratio", prefix);
  report_at_least(name, paced.busy / unpaced.busy, COST, !options.simulate);
  return true;
}

/* ---- options ---- */

_Noreturn static void usage(const char *what) {
  fprintf(stderr, "bench_turns: %s: see the head of bench_turns.c\n", what);
  exit(EXIT_USAGE);
}

static uint64_t read_count(const char *text) {
  char *end;
  unsigned long number = strtoul(text, &end, 10);
  if (*end || number == 0 || number > HANDOVERS_MAX)
    usage(text);
  return number;
}

static void read_options(int argc, char **argv) {
  static const struct option list[] = {{"json", 0, NULL, 'j'},       {"kernels", 1, NULL, 'k'},
                                       {"hand-overs", 1, NULL, 'n'}, {"unpaced", 1, NULL, 'u'},
                                       {"quantum", 1, NULL, 'q'},    {"seconds", 1, NULL, 't'},
                                       {"simulate", 0, NULL, 'S'},   {"daemon", 1, NULL, 'd'},
                                       {"lib", 1, NULL, 'l'},        {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
    if (option == 'k')
      options.kernels_ms = read_count(optarg);
    else if (option == 'n')
      options.handovers = read_count(optarg);
    else if (option == 'u')
      options.unpaced = read_count(optarg);
    else if (option == 't')
      options.seconds = read_count(optarg);
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
  if (!stage_begin(&options.paths, options.simulate))
    return EXIT_FAILURE;
  if (!measure_card(&card)) {
    stage_end();
    complain("no NVIDIA GPU that works here (--simulate takes the simulated driver)");
    return EXIT_NO_GPU;
  }
  options.simulate |= strncmp(card.name, "Simulated", 9) == 0;
  report_begin(argc, argv);
  bool ok = options.kernels_ms ? run(options.kernels_ms) : run(1) && run(5);
  report("simulated", options.simulate, "");
  report("failed", !ok, "");
  report_end();
  stage_end();
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
