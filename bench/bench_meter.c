/*
 * bench_meter.c - what the meter costs a job that is short of nothing but the host's time: a production job
 * launches empty kernels as fast as it can, beside another job that has nothing to do. While that one is
 * opportunistic, the daemon wants to know what the first one does: it is looked at every 10 ms, and one of
 * its kernels measured (page->wanted). While it is of the standard class, nobody does. One after the other,
 * in pairs, in turn the one first and the other.
 *
 * --help tells the options. meter_cost_ratio is how much the job launches while it is looked at over how much
 * it does otherwise: the median over the pairs. Whether the target is reached is told only if the error is
 * small enough for that, and the host was what is short.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/parse.h"
#include "handover/pair.h"
#include "handover/play.h"
#include "paired.h"

enum { WARM_UP = 2 };

#define CAPACITY_BYTES (UINT64_C(1) << 30)
#define IDLE_BYTES (UINT64_C(1) << 20)
#define COST 0.998
#define ERROR_MOST 0.001     /* half of what may be lost */
#define WAITS_MOST 0.01      /* for the GPU, of the times at which the job looks how far behind that is */
#define LAUNCHES_PER_LOOK 64 /* handover/rush.c */

static struct { uint64_t pairs, slice_ns; } options = {.pairs = 50, .slice_ns = 200 * NS_PER_MS};

static struct paired rates; /* launches per second: with the meter wanted, and without */

/* ---- the two jobs ---- */

struct scene {
  struct pair pair;
  const struct child *busy, *idle;
  uint32_t idle_id;
};

static bool start_job(struct child *job, const char *role, uint64_t bytes, const char *class) {
  setenv("GPUSHARE_CLASS", class, 1);
  return stage_job(job, role, bytes, "managed") && child_expect(job, "filled");
}

static bool find_idle(struct scene *scene) {
  struct status status;
  if (!daemon_ask(&status))
    return false;
  int place = status_find(&status, scene->idle->pid);
  if (place < 0)
    return complain("the daemon does not know the idle job");
  scene->idle_id = status.jobs[place].job_status.job;
  return true;
}

/* The idle one first: nobody listens to the other one until both are there. */
static bool start(struct scene *scene) {
  struct child *jobs = scene->pair.jobs;
  scene->busy = &jobs[0];
  scene->idle = &jobs[1];
  return daemon_start(&scene->pair.daemon, "auto", CAPACITY_BYTES, NS_PER_S) &&
         start_job(&jobs[1], "idle", IDLE_BYTES, "standard") &&
         start_job(&jobs[0], "launches", 0, "production") && find_idle(scene);
}

static bool stop(struct scene *scene) {
  struct child *jobs = scene->pair.jobs;
  return child_say(&jobs[0], "stop") && child_wait(&jobs[0]) && child_say(&jobs[1], "stop") &&
         child_expect(&jobs[1], "0 wrong") && child_wait(&jobs[1]);
}

/* ---- a half of a pair ---- */

/* While the daemon looks, it says why the opportunistic job may use so much; and that it is because
 * production rests, unless it reads in the busy job's page that it works. */
static bool is_as_wanted(const struct status *status, const struct scene *scene, bool wanted) {
  int place = status_find(status, scene->idle->pid);
  uint32_t limited = place < 0 ? GS_LIMITED_IDLE : status->waits[place].wait_status.limited;
  return limited != GS_LIMITED_IDLE && (limited != GS_LIMITED_NOT) == wanted;
}

/* It is so from *since_ns on. */
static bool set_wanted(const struct scene *scene, bool wanted, uint64_t *since_ns) {
  struct status status;
  if (!daemon_set_class(scene->idle_id, wanted ? GS_CLASS_OPPORTUNISTIC : GS_CLASS_STANDARD))
    return false;
  for (;;) {
    if (deadline_left_ns() == 0)
      return complain_late("the meter");
    if (!daemon_ask(&status))
      return false;
    if (is_as_wanted(&status, scene, wanted))
      break;
    poll(NULL, 0, PAIR_POLL_MS); /* nothing tells when the daemon's figures change */
  }
  *since_ns = clock_now_ns();
  return true;
}

struct slice {
  uint64_t launches, begin_ns, end_ns, waits;
};

static bool hear_slice(const struct child *job, struct slice *slice) {
  char text[CHILD_TEXT_SIZE];
  if (!child_hear(job, text))
    return false;
  return sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &slice->launches, &slice->begin_ns,
                &slice->end_ns, &slice->waits) == 4 ||
         complain("%s says: %s", job->name, text);
}

struct half {
  uint64_t launches, ns, waits;
};

/* Slices that have begun since, until they are long enough together. */
static bool measure_half(const struct scene *scene, bool wanted, struct half *half) {
  uint64_t since_ns;
  struct slice slice;
  *half = (struct half){0};
  if (!set_wanted(scene, wanted, &since_ns))
    return false;
  while (half->ns < options.slice_ns) {
    if (!hear_slice(scene->busy, &slice))
      return false;
    if (slice.begin_ns < since_ns)
      continue;
    half->launches += slice.launches;
    half->ns += slice.end_ns - slice.begin_ns;
    half->waits += slice.waits;
  }
  return true;
}

/* ---- pairs ---- */

/* Of all that is counted. */
static struct { uint64_t launches, waits; } total;

static double rate(const struct half *half) { return (double)half->launches * 1e9 / (double)half->ns; }

static bool measure_pair(const struct scene *scene, bool wanted_first, bool counts) {
  struct half halves[2]; /* not wanted, wanted */
  if (!measure_half(scene, wanted_first, &halves[wanted_first]) ||
      !measure_half(scene, !wanted_first, &halves[!wanted_first]))
    return false;
  if (!counts)
    return true;
  for (int i = 0; i < 2; i++) {
    total.launches += halves[i].launches;
    total.waits += halves[i].waits;
  }
  rates.without[rates.count] = rate(&halves[0]);
  rates.with[rates.count++] = rate(&halves[1]);
  return true;
}

/* What was measured until something broke is in `rates` in any case. */
static bool measure(void) {
  struct scene scene = {.pair.daemon.name = "daemon"};
  bool ok = start(&scene);
  for (uint64_t i = 0; ok && i < WARM_UP + options.pairs; i++)
    ok = measure_pair(&scene, i % 2, i >= WARM_UP);
  ok = ok && stop(&scene);
  pair_kill(&scene.pair);
  return ok;
}

/* ---- figures ---- */

static void report_launches(const char *what, const double *per_s) {
  double typical_per_s = paired_spread(per_s, rates.count).median;
  report(report_name("meter_%s_launches_per_s", what), typical_per_s, "");
  report(report_name("meter_%s_launch_ns", what), 1e9 / typical_per_s, "ns");
}

static void report_rates(void) {
  report("meter_pairs", rates.count, "");
  if (rates.count == 0)
    return;
  struct paired_spread ratio = paired_ratio(&rates);
  double error = paired_error(&ratio, rates.count);
  double waits = (double)total.waits * LAUNCHES_PER_LOOK / (double)total.launches;
  report_launches("wanted", rates.with);
  report_launches("unwanted", rates.without);
  report("meter_gpu_behind", waits, "");
  report("meter_cost_quartile_low", ratio.low, "");
  report("meter_cost_quartile_high", ratio.high, "");
  if (isfinite(error))
    report("meter_cost_error", error, "");
  report_at_least("meter_cost_ratio", ratio.median, COST,
                  !play.simulate && error <= ERROR_MOST && waits <= WAITS_MOST);
}

/* ---- options ---- */

static const char help[] =
    "usage: bench_meter [--json] [options]\n"
    "  --pairs N             measured, after two that are not (50)\n"
    "  --slice DURATION      of each half of a pair (200ms)\n"
    "  --seconds N           for all of it (540)\n" PLAY_HELP
    "Exit status: 0; 1: something broke, or the time was too short; 2 usage; 77 no GPU here.\n";

static const struct argument known[] = {
    {"pairs", .number = &options.pairs, .least = 1, .most = PAIRED_MAX},
    {"slice", .parse = parse_duration_ns, .number = &options.slice_ns},
    {0},
};

int main(int argc, char **argv) {
  play_begin(argc, argv, help, known);
  bool ok = measure();
  report_rates();
  return play_end(ok);
}
