/* test_rate.c - the rules by which opportunistic jobs get a level beside production jobs (docs/RATE.md). */
#include "core/rate.h"

#include <math.h>

#include "common/clock.h"
#include "suite.h"

#define TICK_NS (5 * NS_PER_MS)
#define TELLS_NS (20 * NS_PER_MS)
#define SPEED 10000.0 /* submissions per second */

/* A production job that submits at an even pace, or in steps: all of a step at its beginning. */
struct actor {
  struct rate_job job;
  struct rate_progress progress;
  double work;        /* submissions */
  double loss, speed; /* of its speed, in a trial */
  double late;        /* of its speed, while others are yet to stop */
  double drift;       /* its speed grows by so much in a second */
  double steps_s;     /* undisturbed; 0: an even pace */
  double step_work;   /* of the present step that is done */
  uint64_t told_ns;
};

static struct rate_gpu gpu;
static struct actor actors[RATE_WATCHED_MOST + 2], *const actor = &actors[0], *const other = &actors[1];
static unsigned actor_count;
static uint64_t now_ns;
static double (*loss_of_level)(double level);

static void add(struct actor *new) {
  *new = (struct actor){.speed = SPEED};
  rate_job_add(&gpu, &new->job, true, now_ns);
  actor_count++;
}

static void set_up(void) {
  now_ns = 100 * NS_PER_S;
  actor_count = 0;
  loss_of_level = NULL;
  rate_gpu_init(&gpu);
  rate_set_guests(&gpu, true, now_ns);
  add(actor);
}

static void say(struct actor *who, bool active) {
  who->progress.active = active;
  who->progress.submissions = (uint64_t)who->work;
  who->told_ns = now_ns;
  rate_progress(&gpu, &who->job, &who->progress, now_ns);
}

static void submit(struct actor *who) {
  double loss = gpu.state != RATE_TRIAL ? 0 : loss_of_level ? loss_of_level(gpu.level) : who->loss;
  if (gpu.state == RATE_CONTROL && now_ns - gpu.stretch_ns <= 2 * TICK_NS)
    loss = who->late;
  double done = who->speed * (1 - loss) * (double)TICK_NS / 1e9, step = who->speed * who->steps_s;
  who->speed *= 1 + who->drift * (double)TICK_NS / 1e9;
  who->progress.active_ns += TICK_NS;
  who->step_work += done;
  if (who->steps_s <= 0) {
    who->work += done;
  } else if (who->step_work >= step) {
    who->step_work -= step;
    who->progress.mark_submissions = (uint64_t)who->work;
    who->progress.mark_active_ns = who->progress.active_ns;
    who->work += step;
  }
}

static void check_output(void) {
  ck_assert(gpu.level >= RATE_LEVEL_LEAST && gpu.level <= 1);
  ck_assert(rate_duty(&gpu) >= 0 && rate_duty(&gpu) <= 1);
  ck_assert_uint_ge(rate_slice_us(&gpu), RATE_SLICE_LEAST_US);
  ck_assert_uint_le(rate_slice_us(&gpu), RATE_SLICE_MOST_US);
  ck_assert_uint_gt(gpu.until_ns, now_ns);
}

static void tick(void) {
  now_ns += TICK_NS;
  for (unsigned i = 0; i < actor_count; i++)
    if (actors[i].progress.active) {
      submit(&actors[i]);
      if (now_ns - actors[i].told_ns >= TELLS_NS)
        say(&actors[i], true);
    }
  rate_on_time(&gpu, now_ns);
  check_output();
}

static void pass(double s) {
  for (uint64_t end_ns = now_ns + (uint64_t)(s * 1e9); now_ns < end_ns;)
    tick();
}

/* Returns for how long it was in that state. */
static uint64_t pass_state(enum rate_state state) {
  uint64_t since_ns = now_ns;
  ck_assert_int_eq(gpu.state, state);
  while (gpu.state == state && now_ns - since_ns < 10 * NS_PER_S)
    tick();
  return now_ns - since_ns;
}

/* From the end of a control window to that of the next. */
static void pass_pair(void) {
  pass_state(RATE_TRIAL);
  pass_state(RATE_CONTROL);
}

static void begin(void) {
  say(actor, true);
  pass_state(RATE_SETTLING);
  pass_state(RATE_CONTROL);
}

/* ---- who works ---- */

START_TEST(while_nobody_works_others_have_all) {
  ck_assert_int_eq(gpu.state, RATE_FREE);
  ck_assert_uint_eq(gpu.until_ns, RATE_NEVER);
  ck_assert_double_eq(rate_duty(&gpu), 1);
  ck_assert_uint_eq(rate_slice_us(&gpu), RATE_SLICE_LEAST_US);
  rate_set_bounded(&gpu, false); /* whatever the level */
  ck_assert_double_lt(rate_level_duty(&gpu), 1);
  ck_assert_double_eq(rate_duty(&gpu), 1);
}
END_TEST

START_TEST(others_stop_at_once_when_production_works) {
  uint64_t changes = gpu.changes;
  say(actor, true);
  ck_assert_uint_gt(gpu.changes, changes);
  ck_assert_double_eq(rate_duty(&gpu), 0);
  ck_assert_uint_eq(gpu.until_ns, now_ns + RATE_SETTLE_NS);
  changes = gpu.changes;
  say(actor, false);
  ck_assert_uint_gt(gpu.changes, changes);
  ck_assert_double_eq(rate_duty(&gpu), 1);
  ck_assert_uint_eq(gpu.until_ns, RATE_NEVER);
}
END_TEST

START_TEST(short_work_is_never_disturbed) {
  for (int i = 0; i < 200; i++) {
    say(actor, true);
    for (uint64_t ns = 0; ns < RATE_SETTLE_NS - TICK_NS; ns += TICK_NS) {
      tick();
      ck_assert_double_eq(rate_duty(&gpu), 0);
    }
    say(actor, false);
    pass(0.01);
    ck_assert_double_eq(rate_duty(&gpu), 1);
  }
  ck_assert_double_eq(gpu.level, RATE_LEVEL_FIRST);
}
END_TEST

START_TEST(who_loses_its_turn_does_not_count) {
  begin();
  rate_job_holds(&gpu, &actor->job, false, now_ns);
  ck_assert_int_eq(gpu.state, RATE_FREE);
  rate_job_holds(&gpu, &actor->job, true, now_ns);
  ck_assert_int_eq(gpu.state, RATE_SETTLING);
  rate_job_remove(&gpu, &actor->job, now_ns);
  ck_assert_int_eq(gpu.state, RATE_FREE);
  ck_assert_uint_eq(gpu.active_count, 0);
}
END_TEST

START_TEST(who_falls_silent_does_not_count) {
  begin();
  actor->progress.active = false; /* it says nothing of that */
  pass((double)(RATE_SILENT_NS + RATE_WINDOW_MOST_NS) / 1e9);
  ck_assert_int_eq(gpu.state, RATE_FREE);
  say(actor, true);
  ck_assert_int_eq(gpu.state, RATE_SETTLING);
}
END_TEST

START_TEST(nobody_counts_while_there_are_no_others) {
  begin();
  rate_set_guests(&gpu, false, now_ns);
  ck_assert_int_eq(gpu.state, RATE_FREE);
  say(actor, true);
  ck_assert_int_eq(gpu.state, RATE_FREE);
  rate_set_guests(&gpu, true, now_ns);
  ck_assert_int_eq(gpu.state, RATE_FREE); /* it may be idle by now: it has not been asked */
  say(actor, true);
  ck_assert_int_eq(gpu.state, RATE_SETTLING);
}
END_TEST

START_TEST(beside_a_crowd_others_wait) {
  for (unsigned i = 1; i <= RATE_WATCHED_MOST; i++)
    add(&actors[i]);
  ck_assert_int_eq(gpu.state, RATE_FREE);
  say(actor, true);
  pass(10);
  ck_assert_int_eq(gpu.state, RATE_CROWDED);
  ck_assert_double_eq(rate_duty(&gpu), 0);
  rate_job_remove(&gpu, &actors[RATE_WATCHED_MOST].job, now_ns);
  actor_count--;
  ck_assert_int_eq(gpu.state, RATE_SETTLING);
  say(actor, false);
  ck_assert_int_eq(gpu.state, RATE_FREE);
}
END_TEST

/* ---- the experiment ---- */

START_TEST(windows_follow_each_other) {
  say(actor, true);
  ck_assert_uint_eq(pass_state(RATE_SETTLING), RATE_SETTLE_NS);
  ck_assert_double_eq(rate_duty(&gpu), 0);
  uint64_t control_ns = pass_state(RATE_CONTROL);
  ck_assert_uint_ge(control_ns, 100 * NS_PER_MS);
  ck_assert_uint_le(control_ns, 180 * NS_PER_MS);
  ck_assert_double_eq(rate_duty(&gpu), RATE_LEVEL_FIRST / RATE_LEVEL_KNEE);
  uint64_t trial_ns = pass_state(RATE_TRIAL);
  ck_assert_uint_ge(trial_ns, 400 * NS_PER_MS);
  ck_assert_uint_le(trial_ns, 630 * NS_PER_MS);
  ck_assert_int_eq(gpu.state, RATE_CONTROL);
}
END_TEST

START_TEST(windows_are_never_of_the_same_length) {
  unsigned same = 0;
  begin();
  for (int i = 0; i < 20; i++) {
    uint64_t least_ns = gpu.least_ns;
    pass_pair();
    same += gpu.least_ns == least_ns;
  }
  ck_assert_uint_eq(same, 0);
}
END_TEST

START_TEST(a_window_goes_on_after_a_rest) {
  begin();
  pass(0.2);
  ck_assert_int_eq(gpu.state, RATE_TRIAL);
  say(actor, false);
  pass(5);
  say(actor, true);
  pass_state(RATE_SETTLING);
  ck_assert_uint_le(pass_state(RATE_TRIAL), 430 * NS_PER_MS);
}
END_TEST

START_TEST(steps_are_counted_in_whole) {
  actor->steps_s = 0.06;
  say(actor, true);
  pass(30);
  ck_assert_double_eq(gpu.level, 1);
  ck_assert(gpu.found);
}
END_TEST

START_TEST(long_steps_make_long_windows) {
  actor->steps_s = 0.7;
  begin();
  pass_pair(); /* that there are steps is known now */
  ck_assert_uint_ge(pass_state(RATE_TRIAL), 700 * NS_PER_MS);
  ck_assert_uint_ge(pass_state(RATE_CONTROL), 700 * NS_PER_MS);
  pass(40);
  ck_assert_double_ge(gpu.level, RATE_LEVEL_KNEE);
}
END_TEST

START_TEST(the_first_moments_of_a_window_do_not_count) {
  say(actor, true);
  pass_state(RATE_SETTLING);
  actor_count = 0; /* it tells what the test does */
  for (int ms = 1; ms <= 30; ms++) {
    now_ns += NS_PER_MS;
    actor->progress.active_ns += NS_PER_MS;
    say(actor, true);
    ck_assert_int_eq(actor->job.reports.points > 0, ms >= 10);
  }
}
END_TEST

START_TEST(until_others_have_stopped_nothing_counts) {
  actor->loss = 0.03;
  actor->late = 1;
  begin();
  for (int i = 0; i < 5; i++)
    pass_pair();
  ck_assert_double_lt(gpu.level, RATE_LEVEL_FIRST);
}
END_TEST

START_TEST(no_window_waits_for_a_clock_that_stands) {
  say(actor, true);
  actor_count = 0;
  for (uint64_t end_ns = now_ns + 20 * NS_PER_S; now_ns < end_ns; tick())
    say(actor, true);
  ck_assert_uint_ge(gpu.pairs + (gpu.tried || gpu.trial), 1);
  ck_assert_double_eq(gpu.level, RATE_LEVEL_FIRST);
}
END_TEST

START_TEST(no_window_is_endless) {
  begin();
  actor->steps_s = 60; /* it pauses, and the end does not come */
  pass_pair();
  ck_assert_uint_le(pass_state(RATE_TRIAL), RATE_WINDOW_MOST_NS + TICK_NS);
  ck_assert_uint_le(pass_state(RATE_CONTROL), RATE_WINDOW_MOST_NS + TICK_NS);
}
END_TEST

START_TEST(a_drift_of_production_itself_is_no_loss) {
  actor->drift = -0.05;
  begin();
  pass(15);
  ck_assert_double_ge(gpu.level, RATE_LEVEL_KNEE);
}
END_TEST

START_TEST(a_drift_of_production_itself_hides_no_loss) {
  actor->drift = 0.05;
  actor->loss = 0.03;
  begin();
  pass(15);
  ck_assert_double_lt(gpu.level, RATE_LEVEL_FIRST / 2);
}
END_TEST

START_TEST(a_phase_that_changes_is_no_loss) {
  begin();
  pass_state(RATE_TRIAL);
  actor->speed /= 2;
  pass_state(RATE_CONTROL);
  ck_assert_double_eq(gpu.level, RATE_LEVEL_FIRST);
  ck_assert_uint_eq(actor->job.pairs, 0);
  pass_pair();
  ck_assert_double_gt(gpu.level, RATE_LEVEL_FIRST - 1e-9);
}
END_TEST

/* ---- the level ---- */

START_TEST(without_a_loss_the_level_doubles) {
  begin();
  ck_assert_double_eq(rate_level_duty(&gpu), 1); /* nothing is stopped for nothing */
  gpu.level = RATE_LEVEL_FIRST / 8;
  double level = gpu.level;
  for (int i = 0; i < 40 && gpu.level < RATE_LEVEL_KNEE; i++) {
    pass_pair();
    ck_assert(gpu.level == level || fabs(gpu.level - fmin(2 * level, RATE_LEVEL_KNEE)) < 1e-9);
    level = gpu.level;
  }
  ck_assert_double_eq(rate_level_duty(&gpu), 1);
  ck_assert_uint_eq(rate_slice_us(&gpu), RATE_SLICE_LEAST_US);
  while (!gpu.found) {
    double ratio = (double)rate_slice_us(&gpu) / rate_long_slice_us(&gpu);
    pass_pair();
    ck_assert_double_le((double)rate_slice_us(&gpu) / rate_long_slice_us(&gpu), 2.01 * ratio);
  }
  ck_assert_double_eq(gpu.level, 1);
}
END_TEST

START_TEST(first_their_slices_grow_then_the_others_shrink) {
  begin();
  for (gpu.level = 0.01; gpu.level < RATE_LEVEL_KNEE; gpu.level += 0.01)
    ck_assert(rate_slice_us(&gpu) == RATE_SLICE_LEAST_US && rate_long_slice_us(&gpu) == RATE_LONG_SLICE_US);
  uint32_t last_us = RATE_SLICE_LEAST_US, last_long_us = RATE_LONG_SLICE_US;
  for (gpu.level = RATE_LEVEL_KNEE + 0.01; gpu.level < 1; gpu.level += 0.01) {
    uint32_t us = rate_slice_us(&gpu), long_us = rate_long_slice_us(&gpu);
    ck_assert(us > last_us ? long_us == RATE_LONG_SLICE_US || us == RATE_SLICE_MOST_US
                           : us == RATE_SLICE_MOST_US && long_us < last_long_us);
    last_us = us;
    last_long_us = long_us;
  }
  gpu.level = 1;
  ck_assert(rate_slice_us(&gpu) == RATE_SLICE_MOST_US && rate_long_slice_us(&gpu) == RATE_SLICE_MOST_US);
}
END_TEST

/* Who has nothing to do costs nothing, and must not be given more for that. */
START_TEST(a_trial_without_their_work_says_nothing) {
  begin();
  double level = gpu.level;
  rate_guests_work(&gpu, false, now_ns);
  for (int i = 0; i < 20; i++)
    pass_pair();
  ck_assert(gpu.level == level && gpu.pairs == 0);
  pass(0.2);
  rate_guests_work(&gpu, true, now_ns); /* for more than a quarter of it */
  pass_pair();
  ck_assert_double_gt(gpu.level, level);
}
END_TEST

START_TEST(a_large_loss_is_believed_at_once) {
  actor->loss = 0.3;
  begin();
  pass_pair();
  ck_assert_double_eq_tol(gpu.level, RATE_LEVEL_FIRST / 4, 1e-9);
  ck_assert(gpu.found);
  actor->loss = 0;
  double level = gpu.level;
  for (int i = 0; i < 20; i++) { /* additive from now on */
    pass_pair();
    ck_assert_double_le(gpu.level, level * 1.25 + 1e-9);
    level = gpu.level;
  }
  ck_assert_double_gt(level, RATE_LEVEL_FIRST);
}
END_TEST

/* What is sure of the first pair is less than it lost by far. */
START_TEST(once_it_is_found_it_grows_by_little) {
  begin();
  gpu.found = true;
  gpu.level = 0.4;
  while (gpu.level == 0.4)
    pass_pair();
  ck_assert_double_eq_tol(gpu.level, 0.45, 1e-9);
}
END_TEST

START_TEST(the_first_decrease_goes_by_the_mean) {
  actor->loss = 0.06;
  begin();
  pass_pair();
  ck_assert_double_eq_tol(gpu.level, RATE_LEVEL_FIRST * RATE_AIM / 0.06, 0.01);
}
END_TEST

START_TEST(one_small_pair_is_not_enough) {
  actor->loss = 0.02;
  begin();
  pass_pair();
  ck_assert_double_eq(gpu.level, RATE_LEVEL_FIRST);
  actor->loss = 0.03;
  for (int i = 0; i < 4 && !gpu.found; i++)
    pass_pair();
  ck_assert(gpu.found);
  ck_assert_double_lt(gpu.level, RATE_LEVEL_FIRST);
  ck_assert_double_ge(gpu.level, 0.4 * RATE_LEVEL_FIRST);
}
END_TEST

START_TEST(a_shock_after_many_pairs_is_one) {
  begin();
  for (int i = 0; i < 4; i++) {
    actor->loss = i % 2 ? -0.005 : 0.035;
    pass_pair();
  }
  ck_assert_double_eq(gpu.level, RATE_LEVEL_FIRST);
  actor->loss = 0.25;
  pass_pair();
  ck_assert_double_lt(gpu.level, RATE_LEVEL_FIRST);
}
END_TEST

static double linear(double level) { return level * 0.15; }

START_TEST(the_level_goes_where_production_loses_so_much) {
  loss_of_level = linear;
  say(actor, true);
  pass(10);
  double sum = 0;
  for (int i = 0; i < 100; i++) {
    pass(0.5);
    sum += gpu.level / 100;
  }
  ck_assert_double_gt(linear(sum), 0.010);
  ck_assert_double_lt(linear(sum), 0.019);
}
END_TEST

static double wall(double level) { return level > RATE_LEVEL_KNEE ? 0.3 : 0.005; }

START_TEST(a_fall_does_not_go_past_the_knee) {
  loss_of_level = wall;
  say(actor, true);
  while (gpu.level <= RATE_LEVEL_KNEE)
    tick();
  pass_state(RATE_TRIAL);
  pass_state(RATE_CONTROL);
  ck_assert_double_eq(gpu.level, RATE_LEVEL_KNEE);
}
END_TEST

/* Pairs that differ by so much, around a mean. Returns how many there were until the level changed. */
static unsigned pass_noisy_pairs(double mean, double noise) {
  double level = gpu.level;
  unsigned count = 0;
  for (; gpu.level == level && count < 20; count++) {
    actor->loss = mean + (count % 2 ? -noise : noise);
    pass_pair();
  }
  return count;
}

START_TEST(in_the_end_the_mean_decides) {
  add(other);
  say(other, true);
  begin();
  ck_assert_uint_eq(pass_noisy_pairs(RATE_AIM + 0.0005, 0.02), 8);
  ck_assert_double_lt(gpu.level, RATE_LEVEL_FIRST);
  double level = gpu.level;
  ck_assert_uint_eq(pass_noisy_pairs(RATE_AIM - 0.0005, 0.02), 8);
  ck_assert_double_gt(gpu.level, level);
}
END_TEST

START_TEST(where_nothing_can_be_told_the_level_is_low) {
  begin();
  gpu.level = 0.4;
  actor->job.noise_freedom = 8;
  actor->job.noise = 8 * 0.15 * 0.15;
  for (int i = 0; i < 8; i++) {
    actor->loss = i % 2 ? -0.14 : 0.16;
    pass_pair();
  }
  ck_assert_double_eq(gpu.level, RATE_LEVEL_UNSURE);
}
END_TEST

START_TEST(the_level_is_kept_over_a_rest) {
  begin();
  while (gpu.level < 0.7)
    tick();
  double level = gpu.level;
  say(actor, false);
  pass(100);
  say(actor, true);
  pass_state(RATE_SETTLING);
  ck_assert_double_eq(gpu.level, level);
}
END_TEST

START_TEST(a_new_job_is_met_with_the_first_level) {
  begin();
  pass(20);
  ck_assert_double_eq(gpu.level, 1);
  pass_state(gpu.state);
  if (gpu.state == RATE_TRIAL)
    pass_state(RATE_TRIAL);
  add(other);
  ck_assert_double_eq(gpu.level, RATE_LEVEL_FIRST);
  ck_assert(!gpu.found);
  pass_state(RATE_CONTROL);
  ck_assert_uint_eq(actor->job.pairs, 0); /* of the trial before it knows nothing */
}
END_TEST

/* ---- several jobs ---- */

static void check_loser(struct actor *loser) {
  add(other);
  loser->loss = 0.1;
  say(other, true);
  say(actor, true);
  pass(10);
  ck_assert_double_lt(gpu.level, RATE_LEVEL_FIRST / 2);
}

START_TEST(who_loses_most_decides) { check_loser(other); }
END_TEST

START_TEST(who_loses_most_decides_whoever_came_first) { check_loser(actor); }
END_TEST

/* Until so many pairs have told nothing of it that they never will. */
START_TEST(of_whom_nothing_is_known_may_lose) {
  add(other);
  begin();
  double level = gpu.level;
  for (int i = 0; i < 7; i++) {
    for (enum rate_state state = RATE_TRIAL; state != RATE_FREE;
         state = state == RATE_TRIAL ? RATE_CONTROL : RATE_FREE)
      while (gpu.state == state) {
        struct rate_progress nonsense = {.submissions = now_ns % 2, .active = true, .active_ns = now_ns % 3};
        nonsense.mark_active_ns = 7;
        rate_progress(&gpu, &other->job, &nonsense, now_ns);
        tick();
      }
    ck_assert_double_eq(gpu.level, level);
  }
}
END_TEST

START_TEST(who_rests_holds_nobody_up) {
  add(other);
  begin();
  pass(15);
  ck_assert_double_gt(gpu.level, RATE_LEVEL_KNEE);
}
END_TEST

/* ---- lies ---- */

START_TEST(what_can_not_be_is_not_believed) {
  static const struct rate_progress lies[] = {
      {.submissions = 0, .active_ns = UINT64_MAX},
      {.submissions = UINT64_MAX, .active_ns = 0},
      {.submissions = UINT64_MAX,
       .active_ns = UINT64_MAX,
       .mark_submissions = 7,
       .mark_active_ns = UINT64_MAX},
      {.mark_submissions = UINT64_MAX},
      {0},
  };
  add(other);
  other->loss = 0.1;
  say(other, true);
  for (int i = 0; i < 2000; i++) {
    struct rate_progress lie = lies[i % 5];
    lie.active = i % 50 > 0;
    rate_progress(&gpu, &actor->job, &lie, now_ns);
    tick();
    ck_assert_uint_eq(actor->job.pairs, 0);
    ck_assert_double_le(gpu.level, RATE_LEVEL_FIRST + 1e-9);
  }
}
END_TEST

START_TEST(each_figure_alone_is_looked_at) {
  static const struct rate_progress leaps[] = {
      {.submissions = UINT64_MAX}, /* as of before: one less */
      {.active_ns = UINT64_MAX},
      {.submissions = 100000000},
      {.active_ns = 500000000},
      {.mark_submissions = 1000000000},
      {.mark_active_ns = UINT64_C(1000000000000)},
  };
  for (unsigned i = 0; i < sizeof leaps / sizeof *leaps; i++) {
    say(actor, true);
    pass_state(RATE_SETTLING);
    pass(0.05);
    struct rate_progress next = actor->progress;
    rate_progress(&gpu, &actor->job, &next, now_ns);
    ck_assert_msg(!actor->job.spoilt, "%u", i);
    next.submissions += leaps[i].submissions;
    next.active_ns += leaps[i].active_ns;
    next.mark_submissions += leaps[i].mark_submissions;
    next.mark_active_ns += leaps[i].mark_active_ns;
    rate_progress(&gpu, &actor->job, &next, now_ns);
    ck_assert_msg(actor->job.spoilt, "%u", i);
    set_up();
  }
}
END_TEST

/* Counters that leap forward by what one could believe of each, but not so soon. */
START_TEST(a_leap_spoils_the_window_alone) {
  begin();
  pass(0.1);
  actor->work += 1e7;
  say(actor, true);
  ck_assert(actor->job.spoilt);
  pass_pair();
  ck_assert_uint_eq(actor->job.pairs, 0);
  ck_assert_double_eq(gpu.level, RATE_LEVEL_FIRST);
  pass(10);
  ck_assert_double_gt(gpu.level, RATE_LEVEL_FIRST);
}
END_TEST

START_TEST(where_slices_do_not_hold_it_is_met_with_less) {
  begin();
  rate_set_bounded(&gpu, false);
  gpu.level = 1;
  add(other);
  ck_assert_double_eq(gpu.level, RATE_LEVEL_UNSURE);
}
END_TEST

START_TEST(whose_progress_is_not_known_is_met_with_the_first_level) {
  say(actor, true);
  for (int i = 0; i < 1000; i++) {
    actor->work = i % 2 ? 0 : 1e6;
    tick();
    say(actor, true);
  }
  ck_assert_double_eq(gpu.level, RATE_LEVEL_FIRST);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {while_nobody_works_others_have_all,
                                others_stop_at_once_when_production_works,
                                short_work_is_never_disturbed,
                                who_loses_its_turn_does_not_count,
                                who_falls_silent_does_not_count,
                                nobody_counts_while_there_are_no_others,
                                beside_a_crowd_others_wait,
                                windows_follow_each_other,
                                windows_are_never_of_the_same_length,
                                a_window_goes_on_after_a_rest,
                                steps_are_counted_in_whole,
                                long_steps_make_long_windows,
                                the_first_moments_of_a_window_do_not_count,
                                until_others_have_stopped_nothing_counts,
                                no_window_waits_for_a_clock_that_stands,
                                no_window_is_endless,
                                a_drift_of_production_itself_is_no_loss,
                                a_drift_of_production_itself_hides_no_loss,
                                a_phase_that_changes_is_no_loss,
                                without_a_loss_the_level_doubles,
                                once_it_is_found_it_grows_by_little,
                                first_their_slices_grow_then_the_others_shrink,
                                a_trial_without_their_work_says_nothing,
                                a_large_loss_is_believed_at_once,
                                the_first_decrease_goes_by_the_mean,
                                one_small_pair_is_not_enough,
                                a_shock_after_many_pairs_is_one,
                                the_level_goes_where_production_loses_so_much,
                                a_fall_does_not_go_past_the_knee,
                                in_the_end_the_mean_decides,
                                where_nothing_can_be_told_the_level_is_low,
                                the_level_is_kept_over_a_rest,
                                a_new_job_is_met_with_the_first_level,
                                where_slices_do_not_hold_it_is_met_with_less,
                                who_loses_most_decides,
                                who_loses_most_decides_whoever_came_first,
                                of_whom_nothing_is_known_may_lose,
                                who_rests_holds_nobody_up,
                                what_can_not_be_is_not_believed,
                                each_figure_alone_is_looked_at,
                                a_leap_spoils_the_window_alone,
                                whose_progress_is_not_known_is_met_with_the_first_level,
                                NULL};
  return suite_main("rate", tests, set_up, NULL);
}
