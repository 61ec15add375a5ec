/*
 * test_instant.c - clients that answer in no time, and whose hand-overs cost nothing: what one instant brings
 * comes to an end. Random histories, of all policies and classes; times and lengths are multiples of a few,
 * so that ranks are often equal; with gangs on two GPUs, by policies that do not interrupt turns.
 *
 * GPUSHARE_SEED is the first one's seed, GPUSHARE_RUNS how many there are.
 */
#include <string.h>

#include "common/clock.h"
#include "common/splitmix.h"
#include "core/scheduler.h"
#include "played_clock.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define CARD (16 * GIB)
#define GPUS 2
#define GANGS 3
#define JOBS 20
#define STEPS 100
#define TQ_NS (100 * NS_PER_MS)
#define ACTIONS_MAX (10 * JOBS) /* that follow from one event, or are due at one instant */

static struct scheduler scheduler;
static struct sched_gpu gpus[GPUS];
static struct sched_gang gangs[GANGS];
static struct sched_job jobs[JOBS];
static bool here[JOBS], wants[JOBS];
static struct sched_change change;
static uint64_t now_ns, seed, state;
static enum gs_policy policy;
static unsigned actions; /* at this instant */

static uint64_t random_below(uint64_t bound) { return splitmix_next(&state) % bound; }

static void count_action(void) {
  if (++actions > ACTIONS_MAX)
    ck_abort_msg("seed %lu, policy %d: no end of decisions at %lu ns", seed, policy, now_ns);
}

static void stop(struct sched_job *job) {
  scheduler_release(job, &(struct sched_release){.epoch = job->epoch}, now_ns, &change);
  if (wants[job->id - 1])
    scheduler_request(job, now_ns, &change);
}

/* Who is told to stop does so at once, and asks again if it wants to; who is granted runs. */
static void execute(void) {
  struct sched_action action;
  while (change_next(&change, &action)) {
    count_action();
    if (action.type == SCHED_TELL_LOCK_OK)
      scheduler_active(action.job, &(struct sched_active){.epoch = action.epoch}, now_ns, &change);
    else if (action.type == SCHED_TELL_DROP_LOCK)
      stop(action.job);
  }
}

static void pass(uint64_t ns) {
  uint64_t before_ns = now_ns;
  for (uint64_t end_ns = now_ns + ns; clock_goes_on(&scheduler, &now_ns, end_ns, &change);) {
    actions = now_ns == before_ns ? actions : 0;
    before_ns = now_ns;
    count_action(); /* also if nothing follows from it */
    execute();
  }
}

/* ---- what happens ---- */

/* With policies that interrupt turns it need not come to an end: a gang, another one and a single job may go
 * before each other in a circle, over two GPUs. */
static bool has_gangs(void) { return policy == GS_POLICY_RR || policy == GS_POLICY_PACK; }

/* Of this GPU; a gang has one member there. */
static bool has_member(const struct sched_gang *gang, const struct sched_gpu *gpu) {
  for (int i = 0; i < JOBS; i++)
    if (here[i] && jobs[i].gang == gang && jobs[i].gpu == gpu)
      return true;
  return false;
}

static void join(struct sched_job *job) {
  uint64_t which = random_below(2 * GANGS);
  struct sched_gang *gang = which < GANGS && !has_member(&gangs[which], job->gpu) ? &gangs[which] : NULL;
  scheduler_join(job, gang, now_ns, &change);
}

/* A gang's members are of one class: of different ones two gangs could go before each other, on two GPUs. */
static enum gs_class draw_class(const struct sched_job *job) {
  uint64_t which = job->gang ? (uint64_t)(job->gang - gangs) : random_below(GS_CLASS_OPPORTUNISTIC + 1);
  return (enum gs_class)(which % (GS_CLASS_OPPORTUNISTIC + 1));
}

static void set_terms(struct sched_job *job) {
  static const uint32_t weights[] = {1, SCHED_WEIGHT, SCHED_WEIGHT, SCHED_WEIGHT_MAX};
  struct sched_terms terms = {.weight = weights[random_below(4)],
                              .priority = (int32_t)random_below(3),
                              .expected_ns = random_below(4) * NS_PER_S,
                              .class = draw_class(job),
                              .expected_bytes = (1 + random_below(16)) * GIB,
                              .paused = random_below(16) == 0};
  scheduler_set_terms(job, &terms, now_ns, &change);
}

static void come(int i) {
  struct sched_attach attach = {
      .id = (uint32_t)i + 1, .used_bytes = 1, .flags = random_below(2) ? GS_ATTACH_MANAGED : 0};
  here[i] = wants[i] = true;
  scheduler_attach(&gpus[random_below(GPUS)], &jobs[i], &attach, now_ns, &change);
  execute();
  if (has_gangs()) {
    join(&jobs[i]);
    execute();
  }
  set_terms(&jobs[i]);
  execute();
  scheduler_request(&jobs[i], now_ns, &change);
}

static void leave(int i) {
  here[i] = false;
  scheduler_detach(&jobs[i], now_ns, &change);
}

/* It has nothing more to do for now; or again. */
static void rest(int i) {
  wants[i] = !wants[i];
  if (wants[i])
    scheduler_request(&jobs[i], now_ns, &change);
  else
    stop(&jobs[i]);
}

static void act(int i) {
  uint64_t which = random_below(8);
  actions = 0;
  if (!here[i])
    come(i);
  else if (which == 0)
    leave(i);
  else if (which < 3)
    set_terms(&jobs[i]);
  else
    rest(i);
  execute();
}

static void run_history(void) {
  now_ns = 10 * NS_PER_S;
  state = seed;
  memset(here, 0, sizeof here);
  scheduler_init(&scheduler);
  scheduler.settle_ns = 0;
  scheduler.defaults.tq_ns = TQ_NS;
  scheduler.defaults.policy = policy;
  scheduler.defaults.mode = random_below(4) ? GS_MODE_AUTO : GS_MODE_ON;
  change_init(&change);
  for (int g = 0; g < GPUS; g++)
    scheduler_add_gpu(&scheduler, &gpus[g], (const uint8_t[GS_UUID_SIZE]){1, (uint8_t)g}, "card", CARD);
  for (int g = 0; g < GANGS; g++)
    gang_init(&gangs[g]);
  for (int step = 0; step < STEPS; step++) {
    act((int)random_below(JOBS));
    if (random_below(2))
      pass(random_below(8) * TQ_NS / 4);
  }
}

START_TEST(an_instant_comes_to_an_end) {
  uint64_t first = suite_number("GPUSHARE_SEED", 1), runs = suite_number("GPUSHARE_RUNS", 500);
  policy = (enum gs_policy)_i;
  for (seed = first; seed < first + runs; seed++)
    run_history();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("instant");
  TCase *cases = tcase_create("instant");
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  tcase_add_loop_test(cases, an_instant_comes_to_an_end, GS_POLICY_RR, GS_POLICY_PACK + 1);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
