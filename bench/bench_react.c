/*
 * bench_react.c - how soon work stands still, and goes on. A job's kernels count in memory that this program
 * watches, so what is told is what the GPU does, whatever anybody says.
 *
 *   class  an opportunistic job beside a production one that rests for 100 to 150 ms and then works for 40:
 *          react_stopped: from production's first submission to the other's standstill
 *          react_back: from the end of production's work until the other goes on without a pause
 *          react_back_over_alone: its speed from then on, over that before
 *   pause  react_pause: from the daemon's order, in the middle of a kernel of 10 s, to its standstill;
 *          react_resume: likewise, until it goes on
 *
 * --help tells the options.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/splitmix.h"
#include "handover/board.h"
#include "handover/play.h"
#include "quantile.h"

enum { ROUNDS_MAX = 10000, GAPS_MAX = 256 };

#define CAPACITY_BYTES (UINT64_C(1) << 30) /* the jobs have no memory */
#define HOUR_NS (3600 * NS_PER_S)
#define GAP_NS (2 * NS_PER_MS) /* a shorter standstill is none */
#define SIMULATED_GAP_NS (20 * NS_PER_MS)
#define REST_NS (100 * NS_PER_MS) /* at least, and up to half as long again */
#define AFTER_NS (150 * NS_PER_MS)
#define BEGIN_NS (10 * NS_PER_S) /* for a job to go on at all */
#define STOPPED_MS 3
#define BACK_MS 50
#define PAUSE_MS 5
#define FULL_SPEED 0.95

static struct { uint64_t rounds, pauses, seed; } options = {.rounds = 100, .pauses = 40, .seed = 1};

static struct board *board;
static uint64_t gap_ns = GAP_NS;

static double ms_of(uint64_t ns) { return (double)ns / 1e6; }

/* ---- watching ---- */

struct gap {
  uint64_t from_ns, to_ns; /* the last tick before it, the first one after it */
  uint64_t ticks;          /* then */
};

struct watch {
  uint64_t ticks, since_ns, looked_ns;
  int gap_count;
  struct gap gaps[GAPS_MAX];
};

static struct watch watch;

/* Where this program itself was kept waiting there is no gap: between two of its looks there may have been
 * ticks. */
static void look(void) {
  uint64_t ticks = atomic_load(&board->ticks), now_ns = clock_now_ns();
  if (ticks != watch.ticks) {
    if (watch.looked_ns > watch.since_ns + gap_ns && watch.gap_count < GAPS_MAX)
      watch.gaps[watch.gap_count++] = (struct gap){watch.since_ns, now_ns, ticks};
    watch.ticks = ticks;
    watch.since_ns = now_ns;
  }
  watch.looked_ns = now_ns;
  if (play.simulate)
    clock_sleep(NS_PER_MS / 20); /* whose card needs the processors */
}

static void watch_begin(void) {
  watch.gap_count = 0;
  look();
}

static void watch_until(uint64_t end_ns) {
  do
    look();
  while (watch.looked_ns < end_ns && deadline_left_ns() > 0);
}

static bool stands_still(void) { return watch.looked_ns > watch.since_ns + gap_ns; }

/* Until it ticks, and has for as long. */
static bool await_ticks(uint64_t long_ns) {
  uint64_t end_ns = clock_now_ns() + BEGIN_NS, from_ns;
  do {
    watch_begin();
    from_ns = watch.looked_ns;
    watch_until(from_ns + long_ns);
    if (deadline_left_ns() == 0)
      return complain_late("a job to go on");
    if (watch.looked_ns > end_ns)
      return complain("the job does not go on");
  } while (watch.gap_count > 0 || stands_still() || watch.since_ns <= from_ns);
  return true;
}

/* In ticks per ns, over the time it must tick without a gap. */
static bool measure_alone(double *rate) {
  if (!await_ticks(REST_NS))
    return false;
  uint64_t ticks = watch.ticks, from_ns = watch.since_ns;
  watch_until(from_ns + 3 * REST_NS);
  *rate = (double)(watch.ticks - ticks) / (double)(watch.since_ns - from_ns);
  return *rate > 0 || complain("the job does not count");
}

/* ---- figures ---- */

struct samples {
  size_t count;
  double values[ROUNDS_MAX];
};

static void add(struct samples *samples, double value) { samples->values[samples->count++] = value; }

static void tell_ms(const char *name, struct samples *samples, double most_ms) {
  if (samples->count == 0)
    return;
  double p99 = quantile(samples->values, samples->count, 0.99);
  report(report_name("%s_count", name), (double)samples->count, "");
  report(report_name("%s_p50_ms", name), median(samples->values, samples->count), "ms");
  report(report_name("%s_p99_ms", name), p99, "ms");
  report(report_name("%s_max_ms", name), quantile(samples->values, samples->count, 1), "ms");
  if (most_ms > 0)
    report_at_least(report_name("%s_in_time", name), most_ms / p99, 1, !play.simulate);
}

/* ---- class ---- */

static struct samples stopped, back, speed;

/* What a burst has done to the other job: it is to stand still until its end, and then to go on. */
static void add_burst(double rate_alone) {
  uint64_t begun_ns = board->begun_ns, ended_ns = board->ended_ns, back_ns = ended_ns, ticks = 0;
  uint64_t still_ns = ended_ns; /* since when; its end: not at all */
  for (int i = 0; i < watch.gap_count; i++) {
    const struct gap *gap = &watch.gaps[i];
    if (gap->from_ns < ended_ns && gap->to_ns >= ended_ns)
      still_ns = gap->from_ns;
    if (gap->to_ns > back_ns)
      back_ns = gap->to_ns, ticks = gap->ticks;
  }
  add(&stopped, ms_of(still_ns > begun_ns ? still_ns - begun_ns : 0));
  add(&back, ms_of((stands_still() ? watch.looked_ns : back_ns) - ended_ns));
  if (ticks > 0 && watch.since_ns > back_ns)
    add(&speed, (double)(watch.ticks - ticks) / (double)(watch.since_ns - back_ns) / rate_alone);
}

static bool play_burst(uint64_t random, double rate_alone) {
  if (!await_ticks(REST_NS / 2))
    return false;
  watch_until(clock_now_ns() + REST_NS / 2 + random % (REST_NS / 2));
  watch_begin();
  uint64_t order = ++board->order;
  while (board->finished != order) {
    look();
    if (deadline_left_ns() == 0)
      return complain_late("production's work");
  }
  watch_until(board->ended_ns + AFTER_NS);
  add_burst(rate_alone);
  return true;
}

static bool set_classes(const struct child *production, const struct child *other) {
  struct status status;
  if (!daemon_ask(&status))
    return false;
  int first = status_find(&status, production->pid), second = status_find(&status, other->pid);
  if (first < 0 || second < 0)
    return complain("the daemon does not know the jobs");
  return daemon_set_term(status.jobs[first].job_status.job, GS_TERM_CLASS, GS_CLASS_PRODUCTION) &&
         daemon_set_term(status.jobs[second].job_status.job, GS_TERM_CLASS, GS_CLASS_OPPORTUNISTIC);
}

static bool play_bursts(struct child *production, struct child *other) {
  uint64_t random = options.seed;
  double rate_alone = 0;
  bool ok = stage_job(other, "ticks:1ms", 0, "swap") && child_expect(other, "filled") &&
            stage_job(production, "bursts", 0, "swap") && child_expect(production, "filled") &&
            set_classes(production, other) && measure_alone(&rate_alone);
  for (uint64_t i = 0; ok && i < options.rounds; i++)
    ok = play_burst(splitmix_next(&random), rate_alone);
  return ok;
}

static bool run_class(void) {
  struct child daemon, production = {0}, other = {0};
  bool ok = daemon_start(&daemon, "auto", CAPACITY_BYTES, HOUR_NS) && play_bursts(&production, &other);
  tell_ms("react_stopped", &stopped, STOPPED_MS);
  tell_ms("react_back", &back, BACK_MS);
  if (speed.count > 0)
    report_at_least("react_back_over_alone", median(speed.values, speed.count), FULL_SPEED, !play.simulate);
  child_kill(&production);
  child_kill(&other);
  daemon_stop(&daemon);
  return ok;
}

/* ---- pause ---- */

static struct samples paused, resumed;

static bool play_pause(uint32_t job, uint64_t random) {
  if (!await_ticks(REST_NS / 4))
    return false;
  watch_until(clock_now_ns() + random % (REST_NS / 4));
  uint64_t sent_ns = clock_now_ns();
  if (!daemon_set_term(job, GS_TERM_PAUSED, true))
    return false;
  watch_until(sent_ns + REST_NS / 2);
  bool still = stands_still();
  add(&paused, ms_of(!still ? REST_NS / 2 : watch.since_ns > sent_ns ? watch.since_ns - sent_ns : 0));
  uint64_t ticks = watch.ticks, resumed_ns = clock_now_ns();
  if (!daemon_set_term(job, GS_TERM_PAUSED, false))
    return false;
  if (!still)
    return true; /* and nothing can go on */
  while (watch.ticks == ticks) {
    look();
    if (watch.looked_ns > resumed_ns + BEGIN_NS || deadline_left_ns() == 0)
      return complain("the job does not go on");
  }
  add(&resumed, ms_of(watch.since_ns > resumed_ns ? watch.since_ns - resumed_ns : 0));
  return true;
}

static bool play_pauses(struct child *job) {
  uint64_t random = options.seed;
  struct status status;
  if (!stage_job(job, "ticks:10s", 0, "swap") || !child_expect(job, "filled") || !await_ticks(REST_NS) ||
      !daemon_ask(&status))
    return false;
  int place = status_find(&status, job->pid);
  if (place < 0)
    return complain("the daemon does not know the job");
  for (uint64_t i = 0; i < options.pauses; i++)
    if (!play_pause(status.jobs[place].job_status.job, splitmix_next(&random)))
      return false;
  return true;
}

static bool run_pause(void) {
  struct child daemon, job = {0};
  bool ok = daemon_start(&daemon, "auto", CAPACITY_BYTES, HOUR_NS) && play_pauses(&job);
  tell_ms("react_pause", &paused, PAUSE_MS);
  tell_ms("react_resume", &resumed, 0);
  child_kill(&job);
  daemon_stop(&daemon);
  return ok;
}

/* ---- options ---- */

static const char help[] =
    "usage: bench_react [--json] [options]\n"
    "  --rounds N            of the class scene (100; some 0.35 s each); 0: leave it out\n"
    "  --pauses N            of the pause scene (40; some 0.15 s each); 0: leave it out\n"
    "  --seed N              of the times at which production begins to work\n"
    "  --seconds N           for all of it (540)\n" PLAY_HELP
    "Exit status: 0; 1: something broke, or the time was too short; 2 usage; 77 no GPU here.\n";

static const struct argument known[] = {
    {"rounds", .number = &options.rounds, .most = ROUNDS_MAX},
    {"pauses", .number = &options.pauses, .most = ROUNDS_MAX},
    {"seed", .number = &options.seed, .most = UINT64_MAX},
    {0},
};

/* The children inherit it. */
static bool make_board(void) {
  int fd = memfd_create("board", MFD_CLOEXEC);
  bool ok = fd >= 0 && ftruncate(fd, sizeof *board) == 0 && dup2(fd, BOARD_FD) == BOARD_FD &&
            (board = board_map()) != NULL;
  if (fd >= 0)
    close(fd);
  return ok || complain("no memory to share");
}

int main(int argc, char **argv) {
  play_begin(argc, argv, help, known);
  if (play.simulate) /* by processes that others keep waiting */
    gap_ns = SIMULATED_GAP_NS;
  bool ok = make_board();
  ok = ok && (options.rounds == 0 || run_class());
  ok = ok && (options.pauses == 0 || run_pause());
  return play_end(ok);
}
