/*
 * test_rate_trust.c - production jobs whose counters say anything at all: limits stay limits, and another
 * production job does not lose by it.
 *
 * A failure prints the seed of the scene.
 */
#include <math.h>
#include <string.h>

#include "common/splitmix.h"
#include "rate_scene.h"
#include "suite.h"

#define SCENES 60
#define LOST_MOST 0.03
#define COUNTERS 7

static struct scene scene;
static struct liar {
  struct rate_job job;
  struct rate_counters counters;
  unsigned ways[COUNTERS]; /* in which each counter grows */
  unsigned ticks;          /* for which they stay the same */
  double slows;            /* so much beside guests, by what it says */
  bool rests;
} liar;

static uint64_t below(uint64_t bound) { return splitmix_next(&scene.random) % bound; }

static void set_up(void) { memset(&liar, 0, sizeof liar); }

static uint64_t growth(unsigned way, double ns, double most) {
  switch (way) {
  case 0:
    return 0;
  case 1:
    return 1;
  case 2:
    return below(100);
  case 3:
    return (uint64_t)(0.01 * ns);
  case 4:
    return (uint64_t)(0.999 * most);
  case 5:
    return below((uint64_t)most + 1);
  case 6: /* back, or further than a machine could */
    return below(50) ? (uint64_t)ns : splitmix_next(&scene.random);
  default:
    return (uint64_t)(0.1 * ns);
  }
}

static void lie(unsigned tick, double busy_most) {
  struct rate_counters *counters = &liar.counters;
  uint64_t next_ns = scene.gpu.next_ns > scene.now_ns ? scene.gpu.next_ns : scene.now_ns + 1;
  double ns = (double)(next_ns - scene.now_ns);
  double speed = scene_limit(&scene) > 0 ? 1 - liar.slows : 1;
  for (unsigned i = 0; tick % liar.ticks == 0 && i < COUNTERS; i++)
    liar.ways[i] = below(3) ? liar.ways[i] : (unsigned)below(8);
  counters->at_ns = next_ns;
  counters->submissions += (uint64_t)((double)growth(liar.ways[0], ns / 1000, ns / 1000) * speed);
  counters->sampled_ns += growth(liar.ways[1], ns, busy_most * ns);
  counters->expected_ns += (uint64_t)((double)growth(liar.ways[2], ns, busy_most * ns) * speed);
  counters->busy_ns += growth(liar.ways[3], ns, busy_most * ns);
  counters->service_ns += growth(liar.ways[4], ns, ns);
  counters->served += growth(liar.ways[5], ns / 1000, ns / 1000);
  counters->waited_ns += growth(liar.ways[6], ns, ns);
  counters->idle = liar.rests && tick / liar.ticks % 2;
  rate_job_tell(&liar.job, counters);
}

static void begin(uint64_t seed) {
  scene_init(&scene, seed);
  memset(&liar, 0, sizeof liar);
  liar.ticks = 20 + (unsigned)below(400);
  liar.slows = 0.5 * (double)below(3);
  liar.rests = below(2);
  for (unsigned i = 0; i < COUNTERS; i++)
    liar.ways[i] = 7;
}

static void check_limits(uint64_t seed) {
  double most = scene.guest_count * 1e9;
  bool sane = isfinite(scene.gpu.limit) && scene.gpu.limit >= 0 && scene.gpu.limit <= most;
  for (unsigned i = 0; i < scene.guest_count; i++)
    sane &= scene.guests[i].job.limit <= 1000000000 || scene.guests[i].job.limit == RATE_NO_LIMIT;
  ck_assert_msg(sane, "seed %lu: limit %g", seed, scene.gpu.limit);
}

START_TEST(limits_stay_limits) {
  for (uint64_t seed = 1; seed <= SCENES; seed++) {
    begin(seed);
    for (unsigned i = 0; i < 1 + seed % 2; i++)
      scene_add_guest(&scene, 1);
    rate_job_add(&scene.gpu, &liar.job, RATE_PRODUCTION);
    for (unsigned tick = 0; tick < 1000; tick++) {
      lie(tick, 128);
      scene_tick(&scene);
      check_limits(seed);
    }
  }
}
END_TEST

static double run_beside_liar(uint64_t seed, unsigned ticks) {
  double lost = 0;
  begin(seed);
  const struct scene_producer *honest = scene_add_producer(&scene);
  scene_add_guest(&scene, 1);
  rate_job_add(&scene.gpu, &liar.job, RATE_PRODUCTION);
  uint64_t start_ns = scene.now_ns;
  for (unsigned tick = 0; tick < ticks; tick++) {
    double use = fmin(scene_limit(&scene), 1);
    uint64_t before_ns = scene.now_ns;
    lie(tick, 128);
    scene_tick(&scene);
    lost += fmax(use - honest->leftover, 0) * (double)(scene.now_ns - before_ns);
  }
  return lost / (double)(scene.now_ns - start_ns);
}

/* However often it has all be measured again, and slow start overshoot. */
START_TEST(nobody_else_loses_by_it) {
  for (uint64_t seed = 1; seed <= SCENES; seed++) {
    double lost = run_beside_liar(seed, 2000);
    ck_assert_msg(lost <= LOST_MOST, "seed %lu: lost %g", seed, lost);
  }
}
END_TEST

/* ---- why ---- */

static struct scene_producer *honest, *other;

/* The other one wanders, so it is to be found out at high limits whether it feels what its kernels lose. */
static void begin_experiment(void) {
  scene_init(&scene, 1);
  other = scene_add_producer(&scene);
  other->wander = 0.06;
  other->leftover = other->kernels_leftover = 1;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  ck_assert(signal_is_undecided(&other->job.signal));
}

START_TEST(nothing_is_tried_out_at_the_expense_of_others) {
  begin_experiment();
  honest = scene_add_producer(&scene);
  honest->leftover = 0.05;
  scene_tick(&scene);
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  for (unsigned tick = 0; tick < 200; tick++) {
    scene_tick(&scene);
    ck_assert_double_le(scene_limit(&scene), 0.35);
  }
  ck_assert_double_le(scene_limit(&scene), 0.1);
}
END_TEST

/* They are not repeated for ever. */
START_TEST(a_look_that_tells_nothing_counts) {
  begin_experiment();
  struct rate_signal *signal = &other->job.signal;
  for (unsigned look = 0; look < 5; look++) {
    ck_assert(signal_is_undecided(signal));
    gauge_restart(&signal->arrivals); /* nothing is known of just before */
    signal_look_before(signal, 4);
    signal_look(signal, 4);
  }
  ck_assert(!signal_is_undecided(signal));
}
END_TEST

/* One that seems to lose more, but by no more than chance, is not what is looked at. */
START_TEST(a_poor_signal_hides_no_loss) {
  scene_init(&scene, 1);
  honest = scene_add_producer(&scene);
  other = scene_add_producer(&scene);
  honest->leftover = other->leftover = 0.4;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  scene_run(&scene, 6);
  struct rate_gauge *gauge = &other->job.signal.arrivals;
  for (unsigned i = 0; i < GAUGE_SCALES; i++)
    gauge->scatter[i] = 10;
  other->per_s *= 0.5;
  honest->leftover = 0.2;
  scene_run(&scene, 3);
  ck_assert_double_le(scene_limit(&scene), 0.27);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {limits_stay_limits,
                                nobody_else_loses_by_it,
                                nothing_is_tried_out_at_the_expense_of_others,
                                a_look_that_tells_nothing_counts,
                                a_poor_signal_hides_no_loss,
                                NULL};
  return suite_main("rate_trust", tests, set_up, NULL);
}
