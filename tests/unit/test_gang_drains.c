/*
 * test_gang_drains.c - two gangs of two on two GPUs, whose work can't be stopped. Each iteration ends with a
 * collective. The ranks submit iterations ahead of the GPU, so one that is told to stop may wait for a
 * collective of which the other has not submitted its part.
 *
 * GPUSHARE_SEED and GPUSHARE_RUNS choose others. A failure tells the seed of the run that failed.
 */
#include <stddef.h>
#include <string.h>

#include "common/clock.h"
#include "common/splitmix.h"
#include "core/scheduler.h"
#include "played_clock.h"
#include "suite.h"

#define CARD (UINT64_C(16) << 30)
#define TQ_NS (200 * NS_PER_MS)
#define GRACE_NS (2500 * NS_PER_MS)
#define TICK_NS NS_PER_MS
#define ITERATION_TICKS 5
#define RESTORE_TICKS 20 /* at most */
#define RUN_NS (60 * NS_PER_S)
#define REST_NS (5 * GRACE_NS) /* of a gang, at most: each rank of both may once not stop in time */
#define GANGS 2
#define RANKS 2

struct rank {
  struct sched_job job;
  bool runs, steps, stops; /* stops: it has been told to, and drains */
  bool asks;               /* it does at the next tick */
  uint64_t runs_ns;        /* when its memory is there; 0: it is, or there is no grant */
  uint64_t submitted;      /* iterations */
};

struct gang {
  struct sched_gang gang;
  struct rank ranks[RANKS];
  uint64_t done, done_ns; /* iterations; the last one's time */
};

static struct scheduler scheduler;
static struct sched_gpu gpus[RANKS];
static struct gang gangs[GANGS];
static struct sched_change change;
static uint64_t now_ns, ticks, seed, random_state, ahead;
static bool declared; /* the scheduler knows of the gangs */

static uint64_t below(uint64_t bound) { return splitmix_next(&random_state) % bound; }

static void hear(void) {
  struct sched_action action;
  while (change_next(&change, &action)) {
    struct rank *rank = (struct rank *)(void *)((char *)action.job - offsetof(struct rank, job));
    if (action.type == SCHED_TELL_LOCK_OK) {
      rank->runs_ns = now_ns + below(RESTORE_TICKS) * TICK_NS;
      rank->steps = action.steps;
    } else if (action.type == SCHED_TELL_DROP_LOCK) {
      rank->stops = true;
      rank->runs_ns = 0;
    }
  }
}

static void come(struct gang *gang, int gpu, uint32_t flags) {
  struct sched_job *job = &gang->ranks[gpu].job;
  struct sched_attach attach = {.id = (uint32_t)(gang - gangs) + 1, .flags = flags};
  scheduler_attach(&gpus[gpu], job, &attach, now_ns, &change);
  ck_assert(!declared || scheduler_join(job, &gang->gang, now_ns, &change));
  gang->ranks[gpu].asks = true;
  hear();
}

static void begin(uint32_t flags) {
  memset(gangs, 0, sizeof gangs);
  now_ns = 10 * NS_PER_S;
  ticks = 0;
  random_state = seed;
  ahead = UINT64_C(1) << below(9);
  scheduler_init(&scheduler);
  scheduler.defaults.mode = GS_MODE_ON;
  scheduler.defaults.policy = seed % 2 ? GS_POLICY_FAIR : GS_POLICY_RR;
  scheduler.defaults.tq_ns = TQ_NS;
  scheduler.grace_ns = GRACE_NS;
  change_init(&change);
  for (int g = 0; g < RANKS; g++)
    scheduler_add_gpu(&scheduler, &gpus[g], (const uint8_t[GS_UUID_SIZE]){1, (uint8_t)g}, "card", CARD);
  for (struct gang *gang = gangs; gang < gangs + GANGS; gang++) {
    gang_init(&gang->gang);
    gang->done_ns = now_ns;
    for (int g = 0; g < RANKS; g++)
      come(gang, g, flags);
  }
}

/* One that steps submits only what follows finished work. */
static void submit(struct rank *rank, uint64_t done) {
  bool may = rank->steps ? done == rank->submitted : rank->submitted < done + ahead;
  if (rank->runs && !rank->stops && may && below(3))
    rank->submitted++;
}

static void answer(struct rank *rank, uint64_t done) {
  struct sched_job *job = &rank->job;
  if (rank->runs_ns && now_ns >= rank->runs_ns) {
    rank->runs = true;
    rank->runs_ns = 0;
    scheduler_active(job, &(struct sched_active){.epoch = job->epoch}, now_ns, &change);
  } else if (rank->stops && done == rank->submitted) {
    rank->runs = rank->stops = false;
    rank->asks = true;
    scheduler_release(job, &(struct sched_release){.epoch = job->epoch}, now_ns, &change);
  } else if (rank->asks) {
    rank->asks = false;
    scheduler_request(job, now_ns, &change);
  }
  hear();
}

static void compute(struct gang *gang) {
  bool common = gang->done < gang->ranks[0].submitted && gang->done < gang->ranks[1].submitted;
  if (!common || ticks % ITERATION_TICKS)
    return;
  gang->done++;
  gang->done_ns = now_ns;
}

static void tick(void) {
  for (uint64_t end_ns = now_ns + TICK_NS; clock_goes_on(&scheduler, &now_ns, end_ns, &change);)
    hear();
  ticks++;
  for (struct gang *gang = gangs; gang < gangs + GANGS; gang++) {
    compute(gang);
    for (int g = 0; g < RANKS; g++) {
      submit(&gang->ranks[g], gang->done);
      answer(&gang->ranks[g], gang->done);
    }
  }
}

/* NULL: none. */
static const struct gang *that_stands_still(void) {
  for (const struct gang *gang = gangs; gang < gangs + GANGS; gang++)
    if (now_ns - gang->done_ns > REST_NS)
      return gang;
  return NULL;
}

/* How many times a gang has stood still. */
static uint64_t run(uint32_t flags) {
  uint64_t stood = 0;
  uint64_t first = suite_number("GPUSHARE_SEED", 1), runs = suite_number("GPUSHARE_RUNS", 20);
  for (seed = first; seed < first + runs; seed++) {
    const struct gang *still = NULL;
    begin(flags);
    for (uint64_t end_ns = now_ns + RUN_NS; now_ns < end_ns && !still; still = that_stands_still())
      tick();
    ck_assert_msg(!declared || !still, "seed %lu, %lu ahead: gang %td stands still after %lu", seed, ahead,
                  still - gangs, still->done);
    stood += still != NULL;
  }
  return stood;
}

START_TEST(both_go_on) {
  declared = true;
  run(GS_ATTACH_MANAGED);
}
END_TEST

/* Nobody has the GPU of one that has not stopped: both of the other gang wait. */
START_TEST(both_go_on_if_their_memory_has_no_page_faults) {
  declared = true;
  run(0);
}
END_TEST

/* Without gangs the same jobs stand still: each GPU drains a collective whose other part waits for a turn. */
START_TEST(what_is_no_gang_stands_still) {
  declared = false;
  uint64_t runs = suite_number("GPUSHARE_RUNS", 20), stood = run(0);
  ck_assert_uint_ge(stood, runs / 2);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {both_go_on, both_go_on_if_their_memory_has_no_page_faults,
                                what_is_no_gang_stands_still, NULL};
  return suite_main("gang_drains", tests, NULL, NULL);
}
