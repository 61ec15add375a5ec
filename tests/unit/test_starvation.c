/*
 * test_starvation.c - for how long somebody waits at most who always wants to run, policy by policy: random
 * sets of jobs, of which one is replaced by another one halfway. In half of them memory moves no faster than
 * on a real card.
 *
 * With N jobs and T for a quantum with its hand-over, at most:
 *
 * rr: N turns.
 *
 * fair: of each job, itself included, 2 turns, and 3 for each time that its weight goes into the other's.
 *
 * srtf: 32 times its remaining time, and of each other job what that has left, or as much as it has itself.
 *
 * priority: a minute for each level that another one is above it, and 2 N turns.
 *
 * pack: 33 N turns.
 *
 * fifo lets others wait for as long as it takes.
 *
 * GPUSHARE_SEED and GPUSHARE_RUNS choose others.
 */
#include <string.h>

#include "actors.h"
#include "suite.h"

#define CARD (16 * GIB)
#define TQ_NS NS_PER_S
#define FAST (UINT64_C(2000) * GIB) /* of the bus: memory is no matter */
#define SLOW (UINT64_C(40) * GIB)   /* as it is: the next one comes while the last one leaves */
#define LEVELS 2
#define RUN_NS (150 * NS_PER_S)

static struct actors them;
static uint64_t seed, longest_ns, bounds_ns[ACTORS];
static enum gs_policy policy;

static void blame(const char *what, int i) { ck_abort_msg("seed %lu: job %d %s", seed, i + 1, what); }

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- bounds ---- */

/* A quantum with its hand-over, if all that the card has leaves and comes. */
static uint64_t turn_ns(void) { return TQ_NS + 100 * NS_PER_MS + CARD * 1000 / (them.bytes_per_s / 1000000); }

static uint64_t fair_bound_ns(const struct sched_job *job) {
  uint64_t sum_ns = 0;
  for (int i = 0; i < ACTORS; i++) {
    if (them.actors[i].attached)
      sum_ns += 2 * turn_ns() + 3 * turn_ns() * them.jobs[i].terms.weight / job->terms.weight;
  }
  return sum_ns;
}

static uint64_t srtf_bound_ns(const struct sched_job *job) {
  uint64_t own_ns = sched_job_remaining_ns(job, them.now_ns), sum_ns = 32 * own_ns + ACTORS * turn_ns();
  for (int i = 0; i < ACTORS; i++)
    sum_ns += most(own_ns, sched_job_remaining_ns(&them.jobs[i], them.now_ns));
  return sum_ns;
}

static uint64_t priority_bound_ns(const struct sched_job *job) {
  int32_t above = 0;
  for (int i = 0; i < ACTORS; i++)
    if (them.jobs[i].terms.priority - job->terms.priority > above)
      above = them.jobs[i].terms.priority - job->terms.priority;
  return (uint64_t)above * 60 * NS_PER_S + 2 * ACTORS * turn_ns();
}

static uint64_t bound_ns(const struct sched_job *job) {
  switch (policy) {
  case GS_POLICY_FAIR:
    return fair_bound_ns(job);
  case GS_POLICY_SRTF:
    return srtf_bound_ns(job);
  case GS_POLICY_PRIORITY:
    return priority_bound_ns(job);
  case GS_POLICY_PACK:
    return 33 * ACTORS * turn_ns();
  default:
    return ACTORS * turn_ns();
  }
}

static void check_waiting(void) {
  for (int i = 0; i < ACTORS; i++) {
    const struct sched_job *job = &them.jobs[i];
    if (!them.actors[i].attached || job->state != GS_JOB_WAITING)
      continue;
    uint64_t waited_ns = them.now_ns - job->since_ns;
    if (waited_ns == 0) /* what is ahead of it may get more by others that come */
      bounds_ns[i] = 0;
    bounds_ns[i] = most(bounds_ns[i], bound_ns(job));
    longest_ns = most(longest_ns, waited_ns);
    if (waited_ns > bounds_ns[i])
      ck_abort_msg("seed %lu, policy %d: job %d has waited for %.1f s, which is more than %.1f s", seed,
                   policy, i + 1, (double)waited_ns / NS_PER_S, (double)bounds_ns[i] / NS_PER_S);
  }
}

/* ---- a run ---- */

/* Alike, or worlds apart. */
static uint32_t draw_weight(void) {
  static const uint32_t powers[] = {1, 10, 1000, 10000};
  uint64_t which = actors_random_below(&them, 4);
  return seed % 2 ? 50u << which : powers[which];
}

static void come(int i) {
  uint64_t bytes = CARD / 8 + actors_random_below(&them, CARD * 7 / 8);
  struct sched_terms terms = {.weight = draw_weight(),
                              .priority = (int32_t)actors_random_below(&them, LEVELS + 1),
                              .expected_ns = actors_random_below(&them, 4) * 3 * NS_PER_S};
  actors_attach(&them, i, bytes, 0, actors_chance(&them, 50) ? GS_ATTACH_MANAGED : 0);
  scheduler_set_terms(&them.jobs[i], &terms, them.now_ns, &them.change);
  actors_execute(&them);
  actors_request(&them, i);
}

static void begin(void) {
  actors_init(&them, seed, CARD);
  them.fail = blame;
  them.on_event = check_waiting;
  them.letter_ns = them.drain_ns = NS_PER_MS;
  them.bytes_per_s = seed & 2 ? SLOW : FAST;
  them.piece_bytes = GIB;
  them.busy_percent = 100;
  them.gpu.handover.bytes_per_s = them.bytes_per_s;
  them.gpu.settings.tq_ns = TQ_NS;
  them.gpu.settings.mode = actors_chance(&them, 50) ? GS_MODE_ON : GS_MODE_AUTO;
  them.gpu.settings.policy = policy;
  memset(bounds_ns, 0, sizeof bounds_ns);
}

static void run(void) {
  begin();
  for (int i = 0; i < ACTORS; i++) {
    come(i);
    actors_pass(&them, actors_random_below(&them, 3 * NS_PER_S));
  }
  actors_pass(&them, RUN_NS);
  int i = (int)actors_random_below(&them, ACTORS);
  actors_detach(&them, i);
  actors_pass(&them, actors_random_below(&them, NS_PER_S));
  come(i);
  actors_pass(&them, RUN_NS);
}

/* Nor is the bound so far away that it says nothing: some wait for at least so long. */
static void check_policy(enum gs_policy which, uint64_t runs, double least_s) {
  uint64_t first = suite_number("GPUSHARE_SEED", 1);
  runs = suite_number("GPUSHARE_RUNS", runs);
  policy = which;
  longest_ns = 0;
  for (seed = first; seed < first + runs; seed++)
    run();
  ck_assert_double_ge((double)longest_ns / NS_PER_S, least_s);
}

START_TEST(rr) { check_policy(GS_POLICY_RR, 250, 4); }
END_TEST

START_TEST(fair) { check_policy(GS_POLICY_FAIR, 250, 60); }
END_TEST

START_TEST(srtf) { check_policy(GS_POLICY_SRTF, 250, 20); }
END_TEST

START_TEST(priority) { check_policy(GS_POLICY_PRIORITY, 250, 60); }
END_TEST

START_TEST(pack) { check_policy(GS_POLICY_PACK, 250, 100); }
END_TEST

int main(void) {
  const TTest *const tests[] = {rr, fair, srtf, priority, pack, NULL};
  return suite_main("starvation", tests, NULL, NULL);
}
