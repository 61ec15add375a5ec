/* test_rate.c - each rule of the controller of opportunistic jobs. */
#include <math.h>

#include "rate_scene.h"
#include "suite.h"

static struct scene scene;
static struct scene_producer *producer;

static void set_up(void) { scene_init(&scene, 1); }

/* A production job and a hungry guest, and the limit found. */
static void settle(void) {
  producer = scene_add_producer(&scene);
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  scene_run(&scene, 6);
  ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
}

static void check_near(double value, double expected) {
  ck_assert_double_ge(value, 0.9 * expected);
  ck_assert_double_le(value, 1.1 * expected);
}

/* ---- who is there ---- */

START_TEST(without_production_there_is_no_limit) {
  struct scene_guest *guest = scene_add_guest(&scene, 1);
  scene_run(&scene, 1);
  ck_assert_uint_eq(guest->job.limit, RATE_NO_LIMIT);
  ck_assert_int_eq(scene.gpu.reason, RATE_NO_PRODUCTION);
  ck_assert(!scene.gpu.undisturbed);
}
END_TEST

START_TEST(without_guests_production_is_undisturbed) {
  scene_add_producer(&scene);
  scene_run(&scene, 1);
  ck_assert_int_eq(scene.gpu.reason, RATE_NO_OPPORTUNISTIC);
  ck_assert(scene.gpu.undisturbed);
}
END_TEST

START_TEST(new_production_is_measured_undisturbed) {
  struct scene_guest *guest = scene_add_guest(&scene, 1);
  scene_run(&scene, 1);
  producer = scene_add_producer(&scene);
  scene_tick(&scene);
  ck_assert_uint_eq(guest->job.limit, 0);
  ck_assert(!scene.gpu.undisturbed);
  scene_tick(&scene);
  scene_tick(&scene);
  ck_assert_int_eq(scene.gpu.state, RATE_MEASURING);
  ck_assert_int_eq(scene.gpu.reason, RATE_PRODUCTION_NEW);
  ck_assert_uint_eq(guest->job.limit, 0);
  ck_assert(scene.gpu.undisturbed);
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  ck_assert(!scene.gpu.undisturbed);
  check_near(producer->job.signal.arrivals.base * 1e9, 10000);
  ck_assert_int_eq(producer->job.signal.ruler, RATE_RULED_BY_ARRIVALS);
}
END_TEST

/* A training queues some iterations, and then as many as end. */
START_TEST(a_queue_that_fills_is_no_measure) {
  scene_add_guest(&scene, 1);
  scene_run(&scene, 1);
  producer = scene_add_producer(&scene);
  producer->served = 1;
  producer->per_s *= 3;
  scene_run(&scene, 0.15);
  producer->per_s /= 3;
  scene_run(&scene, 2);
  ck_assert_int_ge(scene.gpu.state, RATE_SLOW_START);
  ck_assert_double_eq_tol(producer->job.signal.arrivals.base * 1e9, 10000, 50);
}
END_TEST

START_TEST(production_that_leaves_lifts_the_limit) {
  settle();
  scene.producer_count = 0;
  rate_job_remove(&scene.gpu, &producer->job);
  scene_tick(&scene);
  ck_assert_uint_eq(scene.guests[0].job.limit, RATE_NO_LIMIT);
}
END_TEST

START_TEST(a_second_production_job_is_measured_too) {
  settle();
  double limit = scene_limit(&scene);
  struct scene_producer *second = scene_add_producer(&scene);
  second->leftover = 0.2;
  scene_tick(&scene);
  ck_assert_int_eq(scene.gpu.state, RATE_MEASURING);
  ck_assert_double_eq(scene_limit(&scene), 0);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  scene_run(&scene, 6);
  ck_assert_double_lt(scene_limit(&scene), limit);
  check_near(scene_limit(&scene), 0.2 + RATE_AIM); /* of the one that loses most */
}
END_TEST

/* Between two requests, too: the other one's room is not room for all. */
START_TEST(one_that_rests_for_a_moment_still_counts) {
  settle();
  struct scene_producer *second = scene_add_producer(&scene);
  second->leftover = 0.2;
  scene_tick(&scene);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  scene_run(&scene, 6);
  for (int i = 0; i < 200; i++) {
    second->idle = i % 10 < 4; /* for 0.16 s of 0.4 s */
    scene_tick(&scene);
    ck_assert_double_le(scene_limit(&scene), 0.3);
  }
}
END_TEST

/* ---- increase and decrease ---- */

START_TEST(slow_start_doubles) {
  producer = scene_add_producer(&scene);
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  double limit = scene_limit(&scene);
  ck_assert_double_eq_tol(limit, 0.01, 1e-6);
  while (scene.gpu.state == RATE_SLOW_START) {
    scene_tick(&scene);
    ck_assert(scene_limit(&scene) == limit || fabs(scene_limit(&scene) / limit - 2) < 1e-6 ||
              scene.gpu.state == RATE_STEADY);
    limit = scene_limit(&scene);
  }
}
END_TEST

START_TEST(the_limit_is_where_production_loses_what_it_may) {
  settle();
  check_near(scene_limit(&scene), 0.4 + RATE_AIM);
}
END_TEST

START_TEST(who_never_loses_leaves_the_whole_gpu) {
  producer = scene_add_producer(&scene);
  producer->leftover = 1;
  scene_add_guest(&scene, 1);
  scene_run(&scene, 5);
  ck_assert_double_eq(scene_limit(&scene), 1);
}
END_TEST

START_TEST(the_limit_follows_what_is_left_over) {
  settle();
  producer->leftover = 0.1;
  scene_run(&scene, 4);
  check_near(scene_limit(&scene), 0.1 + RATE_AIM);
  producer->leftover = 0.7;
  scene_run(&scene, 4);
  check_near(scene_limit(&scene), 0.7 + RATE_AIM);
}
END_TEST

START_TEST(a_decrease_is_by_half_at_most) {
  settle();
  producer->leftover = 0.1;
  double least = 1, before = scene_limit(&scene);
  for (int i = 0; i < 60; i++) {
    scene_tick(&scene);
    ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
    least = fmin(least, scene_limit(&scene) / before);
    before = scene_limit(&scene);
  }
  ck_assert_double_ge(least, 0.5 - 1e-6); /* limits are integers */
  ck_assert_double_lt(least, 0.95);
}
END_TEST

/* What guests use costs a quarter of that, but it is believed to cost all of it. */
START_TEST(decreases_that_are_not_enough_grow) {
  producer = scene_add_producer(&scene);
  producer->cost = 0.25;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  scene_run(&scene, 6);
  producer->leftover = 0.1;
  for (int i = 0; i < 24; i++)
    scene_tick(&scene);
  double expected = 0.1 + RATE_AIM / producer->cost;
  ck_assert_double_le(scene_limit(&scene), 1.2 * expected);
  scene_run(&scene, 6);
  for (int i = 0; i < 100; i++) {
    scene_tick(&scene);
    check_near(scene_limit(&scene), expected);
  }
}
END_TEST

START_TEST(an_increase_is_no_more_than_what_may_be_lost_at_first) {
  settle();
  double before = scene_limit(&scene);
  producer->leftover = 1;
  while (scene_limit(&scene) <= before)
    scene_tick(&scene);
  ck_assert_double_le(scene_limit(&scene) - before, 1.4 * RATE_AIM);
}
END_TEST

/* Nobody knows how much more production would stand that loses nothing at all. */
START_TEST(increases_grow_while_nothing_is_lost) {
  settle();
  producer->leftover = 0.05;
  scene_run(&scene, 6);
  producer->leftover = 1;
  double most = 1;
  unsigned ticks = 0;
  for (double before = scene_limit(&scene); before < 0.9; before = scene_limit(&scene), ticks++) {
    scene_tick(&scene);
    most = fmax(most, scene_limit(&scene) / before);
  }
  ck_assert_double_le(most, 1.6 + 1e-6);
  ck_assert_double_ge(most, 1.6 - 1e-6);
  ck_assert_uint_le(ticks, 75); /* 3 s */
}
END_TEST

START_TEST(a_limit_that_is_not_used_does_not_grow) {
  settle();
  scene.guests[0].demand = 0.05;
  scene_run(&scene, 1);
  double limit = scene_limit(&scene);
  producer->leftover = 1;
  scene_run(&scene, 10);
  ck_assert_double_eq(scene_limit(&scene), limit);
  ck_assert_int_eq(scene.gpu.reason, RATE_NO_DEMAND);
}
END_TEST

/* The limit is known better and better, so a window moves it less and less. */
START_TEST(steps_become_smaller) {
  settle();
  double doubt = producer->job.signal.doubt, least = 1, most = 0;
  scene_run(&scene, 20);
  ck_assert_double_lt(producer->job.signal.doubt, doubt / 1.5);
  for (int i = 0; i < 200; i++) {
    scene_tick(&scene);
    least = fmin(least, scene_limit(&scene));
    most = fmax(most, scene_limit(&scene));
  }
  ck_assert_double_gt(least, 0.98 * most);
}
END_TEST

/* Its speed alone is to be known, not only small differences: a change is a surprise whatever was known. */
START_TEST(a_change_is_believed_at_once) {
  settle();
  scene_run(&scene, 20);
  producer->leftover = 0.2;
  scene_run(&scene, 0.6);
  ck_assert_double_lt(scene_limit(&scene), 0.35);
}
END_TEST

START_TEST(what_is_not_lost_while_measured_may_be_lost_later) {
  producer = scene_add_producer(&scene);
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  ck_assert_double_lt(producer->job.signal.debt_s, -0.01);
  ck_assert_double_ge(producer->job.signal.debt_s, -0.05 - 1e-9);
}
END_TEST

START_TEST(what_happens_while_guests_pause_is_not_owed) {
  settle();
  producer->per_s /= 2;
  ck_assert(scene_run_until(&scene, RATE_CHECKING));
  double debt_s = producer->job.signal.debt_s;
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  ck_assert_double_le(producer->job.signal.debt_s,
                      debt_s + 0.03); /* the tick in which it was told to pause */
}
END_TEST

START_TEST(paying_back_takes_a_part_only) {
  settle();
  producer->leftover = 0;
  scene_run(&scene, 20);
  for (int i = 0; i < 200; i++) {
    producer->job.signal.debt_s = 0.2;
    scene_tick(&scene);
  }
  ck_assert_double_lt(scene_limit(&scene), 0.9 * RATE_AIM);
  ck_assert_double_gt(scene_limit(&scene), 0.75 * RATE_AIM);
}
END_TEST

START_TEST(earlier_losses_are_paid_back) {
  settle();
  scene_run(&scene, 60);
  double limit = scene_limit(&scene);
  producer->job.signal.debt_s = 0.2;
  scene_run(&scene, 6);
  ck_assert_double_lt(scene_limit(&scene), limit - 0.002);
  scene_run(&scene, 100);
  ck_assert_double_eq_tol(scene_limit(&scene), limit, 0.002);
}
END_TEST

/* ---- phases ---- */

START_TEST(a_little_faster_is_no_error) {
  settle();
  double limit = scene_limit(&scene);
  producer->per_s *= 1.03;
  for (int i = 0; i < 200; i++) {
    scene_tick(&scene);
    ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
    ck_assert_double_ge(scene_limit(&scene), limit - 1e-9);
  }
}
END_TEST

START_TEST(much_faster_is_another_phase) {
  settle();
  producer->per_s *= 2;
  ck_assert(scene_run_until(&scene, RATE_CHECKING));
  ck_assert_int_eq(scene.gpu.reason, RATE_FASTER);
  ck_assert(scene_run_until(&scene, RATE_MEASURING));
  ck_assert_int_eq(scene.gpu.reason, RATE_LEFT_BAND);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  check_near(producer->job.signal.arrivals.base * 1e9, 20000);
  scene_run(&scene, 6);
  check_near(scene_limit(&scene), 0.4 + RATE_AIM);
}
END_TEST

START_TEST(less_work_is_another_phase) {
  settle();
  producer->per_s /= 2;
  ck_assert(scene_run_until(&scene, RATE_CHECKING));
  ck_assert_int_eq(scene.gpu.reason, RATE_LACKS_WORK);
  ck_assert(scene_run_until(&scene, RATE_MEASURING));
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  check_near(producer->job.signal.arrivals.base * 1e9, 5000);
  scene_run(&scene, 6);
  check_near(scene_limit(&scene), 0.4 + RATE_AIM);
}
END_TEST

/* Its kernels say that it is disturbed, so first the limit falls; and it is not the limit. */
START_TEST(a_slower_phase_is_found_without_the_kernels_help) {
  settle();
  producer->per_s /= 2;
  producer->slowdown = 2;
  ck_assert(scene_run_until(&scene, RATE_CHECKING));
  ck_assert_int_eq(scene.gpu.reason, RATE_LOSES_ALWAYS);
  ck_assert(scene_run_until(&scene, RATE_MEASURING));
  ck_assert_int_eq(scene.gpu.reason, RATE_LEFT_BAND);
  scene_run(&scene, 15);
  check_near(scene_limit(&scene), 0.4 + RATE_AIM);
}
END_TEST

START_TEST(a_limit_that_always_costs_is_halved_if_production_is_as_it_was) {
  settle();
  double limit = scene_limit(&scene);
  scene.gpu.state = RATE_CHECKING;
  scene.gpu.reason = RATE_LOSES_ALWAYS;
  scene.gpu.ticks = 0;
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  ck_assert_double_eq_tol(scene_limit(&scene), limit / 2, 1e-6);
}
END_TEST

START_TEST(a_measurement_goes_on_after_a_rest) {
  producer = scene_add_producer(&scene);
  producer->irregular = 0.05;
  scene_add_guest(&scene, 1);
  for (int i = 0; i < 10 && !producer->job.signal.measured; i++) {
    producer->idle = false;
    scene_run(&scene, 1);
    producer->idle = true;
    scene_run(&scene, 2.5);
  }
  ck_assert(producer->job.signal.measured);
  ck_assert_double_eq_tol(producer->job.signal.arrivals.base * 1e9, 10000, 300);
}
END_TEST

/* Rests, and the ticks in which they begin and end, are no part of a window; what is on both sides is. */
START_TEST(windows_go_on_after_a_rest) {
  settle();
  unsigned before = producer->job.signal.arrivals.marked;
  producer->idle = true;
  scene_run(&scene, 1);
  producer->idle = false;
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  struct rate_loss loss = signal_loss(&producer->job.signal, 1000);
  ck_assert_uint_le(loss.ticks, before + 1);
  ck_assert_uint_ge(loss.ticks + 2, before);
  ck_assert_double_eq_tol(loss.loss, RATE_AIM, 0.01);
}
END_TEST

/* ---- production whose speed changes by itself ---- */

/* Its host decides how fast it is, and is now faster, now slower. Kernels take longer with guests. */
static void settle_wandering(bool felt) {
  producer = scene_add_producer(&scene);
  producer->wander = 0.06;
  producer->leftover = felt ? 0.02 : 1;
  producer->kernels_leftover = 0.02;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  ck_assert_int_eq(producer->job.signal.ruler, RATE_RULED_BY_ARRIVALS);
  ck_assert_double_gt(producer->job.signal.wander, 0.01);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
}

START_TEST(longer_kernels_that_nobody_waits_for_are_no_loss) {
  settle_wandering(false);
  ck_assert(!signal_feels(&producer->job.signal));
  for (int i = 0; i < 500; i++) {
    scene_tick(&scene);
    ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
    ck_assert_double_ge(scene_limit(&scene), 0.9);
  }
}
END_TEST

START_TEST(longer_kernels_that_are_waited_for_are_a_loss) {
  settle_wandering(true);
  ck_assert(signal_feels(&producer->job.signal));
  scene_run(&scene, 6);
  check_near(scene_limit(&scene), 0.02 + RATE_AIM / 0.75); /* the GPU works for it for so much of the time */
}
END_TEST

/* The look was taken at a limit that is far too high. */
START_TEST(who_feels_it_is_approached_from_below) {
  producer = scene_add_producer(&scene);
  producer->wander = 0.06;
  producer->leftover = 0.02;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  ck_assert(scene_run_until(&scene, RATE_CHECKING));
  ck_assert_int_eq(scene.gpu.reason, RATE_WANDERS);
  double limit = scene.gpu.limit;
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  ck_assert_double_le(scene.gpu.limit, limit / 2);
}
END_TEST

/* It changes by itself: what it did some time ago says nothing of now. */
START_TEST(a_look_compares_with_the_last_moments) {
  settle();
  producer->per_s *= 1.02;
  scene_run(&scene, 0.2); /* the limit is still the same */
  signal_look_before(&producer->job.signal, 100);
  ck_assert_double_eq_tol(producer->job.signal.before * 1e9, 10200 * (1 - RATE_AIM), 30);
}
END_TEST

/* Without a pause; and twice as fast it would be another phase, but nobody loses. */
START_TEST(who_wanders_is_taken_at_its_word) {
  settle_wandering(false);
  double base = producer->job.signal.arrivals.base;
  producer->per_s *= 2;
  for (int i = 0; i < 50; i++) {
    scene_tick(&scene);
    ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
  }
  ck_assert_double_gt(producer->job.signal.arrivals.base, 1.5 * base);
}
END_TEST

/* A measurement that holds no longer so soon: nothing is measured again, and guests go on. */
START_TEST(who_changes_soon_after_it_was_measured_wanders) {
  settle();
  double limit = scene_limit(&scene);
  producer->per_s *= 1.2;
  ck_assert(scene_run_until(&scene, RATE_CHECKING));
  ck_assert_int_eq(scene.gpu.reason, RATE_FASTER);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  ck_assert_double_eq_tol(scene_limit(&scene), limit, 0.02);
  ck_assert_double_eq_tol(producer->job.signal.wander, 0.2, 0.05);
  check_near(producer->job.signal.arrivals.base * 1e9, 12000);
}
END_TEST

START_TEST(who_changes_later_is_measured_again) {
  settle();
  scene_run(&scene, 15);
  producer->per_s *= 1.2;
  ck_assert(scene_run_until(&scene, RATE_CHECKING));
  ck_assert(scene_run_until(&scene, RATE_MEASURING));
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  ck_assert_double_eq(producer->job.signal.wander, 0);
}
END_TEST

/* It loses nothing by its arrivals, but its kernels do, and it would be slower for that: what is known of one
 * of them is wrong. A look finds nothing, so the next one is not soon. */
START_TEST(faster_than_its_kernels_allow_is_looked_at_once) {
  settle();
  producer->kernels_slowdown_with_guests = 1.3;
  ck_assert(scene_run_until(&scene, RATE_CHECKING));
  ck_assert_int_eq(scene.gpu.reason, RATE_FASTER);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  ck_assert(!signal_feels(&producer->job.signal));
  for (int i = 0; i < 500; i++) {
    scene_tick(&scene);
    ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
  }
}
END_TEST

/* Guests harm it where its kernels don't show it. It looks like less work once, not again and again. */
START_TEST(a_look_that_finds_nothing_is_not_repeated_at_once) {
  settle();
  unsigned checks = 0;
  producer->leftover = 0.1;
  producer->kernels_leftover = 1;
  for (int i = 0; i < 200; i++) {
    bool paused = scene.gpu.state == RATE_CHECKING;
    scene_tick(&scene);
    checks += scene.gpu.state == RATE_CHECKING && !paused;
  }
  ck_assert_uint_eq(checks, 1);
  check_near(scene_limit(&scene), 0.1 + RATE_AIM);
}
END_TEST

/* ---- idleness ---- */

START_TEST(idle_production_lifts_the_limit_and_gets_the_gpu_back) {
  settle();
  double limit = scene_limit(&scene);
  producer->idle = true;
  scene_run(&scene, 0.4);
  ck_assert_uint_eq(scene.guests[0].job.limit, RATE_NO_LIMIT);
  ck_assert_int_eq(scene.gpu.reason, RATE_PRODUCTION_IDLE);
  ck_assert_uint_le(scene.gpu.next_ns - scene.now_ns, RATE_PERIOD_IDLE_NS);
  double debt_s = producer->job.signal.debt_s;
  producer->idle = false;
  scene_tick(&scene);
  ck_assert_double_eq(scene_limit(&scene), 0);
  ck_assert_int_eq(scene.gpu.reason, RATE_PRODUCTION_BACK);
  ck_assert_double_gt(producer->job.signal.debt_s, debt_s + 0.005); /* what the return has cost it */
  scene_run(&scene, 0.4);
  ck_assert_double_eq_tol(scene_limit(&scene), limit, 1e-6);
}
END_TEST

/* It queues a few iterations at once, and then as many as end; or it has come back as another one. */
static void come_back(bool stays_faster) {
  settle();
  producer->idle = true;
  ck_assert(scene_run_until(&scene, RATE_FREE));
  producer->idle = false;
  producer->per_s *= 2;
  scene_run(&scene, 0.2);
  ck_assert_int_eq(scene.gpu.state, RATE_CHECKING);
  if (!stays_faster)
    producer->per_s /= 2;
  scene_run(&scene, 0.5);
  ck_assert_int_eq(scene.gpu.state, stays_faster ? RATE_MEASURING : RATE_STEADY);
}

START_TEST(who_comes_back_fills_its_queue) { come_back(false); }
END_TEST
START_TEST(who_comes_back_as_another_is_measured) { come_back(true); }
END_TEST

/* The ticks in which it stops look like a loss. */
START_TEST(who_stops_does_not_lose) {
  settle();
  for (int i = 0; i < 10; i++) {
    double limit = scene_limit(&scene);
    producer->idle = true;
    for (; scene.gpu.state != RATE_FREE; scene_tick(&scene)) {
      ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
      ck_assert_double_eq_tol(scene_limit(&scene), limit, 1e-6);
    }
    producer->idle = false;
    ck_assert(scene_run_until(&scene, RATE_STEADY));
    scene_run(&scene, 1);
  }
}
END_TEST

START_TEST(a_short_pause_changes_nothing) {
  settle();
  double limit = scene_limit(&scene);
  producer->idle = true;
  scene_run(&scene, 0.15);
  ck_assert_double_eq_tol(scene_limit(&scene), limit, 1e-6);
  producer->idle = false;
  scene_run(&scene, 0.3);
  ck_assert_double_eq_tol(scene_limit(&scene), limit, 1e-6);
  ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
}
END_TEST

/* It rests for so long, and works again: what of its credit the return has cost. */
static double return_costs_ns(double rest_s) {
  producer->idle = true;
  scene_run(&scene, rest_s);
  ck_assert_int_eq(scene.gpu.state, RATE_FREE);
  ck_assert_int_eq(scene.gpu.wide, rest_s > 10);
  double credit_ns = producer->job.signal.credit_ns;
  producer->idle = false;
  scene_tick(&scene);
  ck_assert(!scene.gpu.wide);
  double spent_ns = credit_ns - producer->job.signal.credit_ns;
  scene_run(&scene, 20);
  return spent_ns;
}

/* What was not worth the trouble counts four times. */
START_TEST(short_idle_times_are_soon_not_used) {
  settle();
  double short_ns = return_costs_ns(0.5);
  ck_assert_double_gt(short_ns, 3 * return_costs_ns(2));
}
END_TEST

/* It loses something at each return: a job that comes and goes is soon not taken for idle so fast. */
START_TEST(who_comes_back_too_often_is_idle_later) {
  settle();
  unsigned freed = 0;
  for (int i = 0; i < 40; i++) {
    producer->idle = true;
    scene_run(&scene, 0.5);
    freed += scene.gpu.state == RATE_FREE;
    producer->idle = false;
    scene_run(&scene, 0.1);
  }
  ck_assert_uint_lt(freed, 30);
  producer->idle = true;
  scene_run(&scene, 2.2);
  ck_assert_int_eq(scene.gpu.state, RATE_FREE);
}
END_TEST

/* And that may cost it a little more when it comes back. */
START_TEST(while_production_rests_for_long_more_may_be_queued) {
  settle();
  double usual_ns = return_costs_ns(9);
  ck_assert_double_gt(return_costs_ns(12), usual_ns);
}
END_TEST

/* ---- the second signal ---- */

START_TEST(kernels_decide_where_arrivals_cannot) {
  producer = scene_add_producer(&scene);
  producer->irregular = 1;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  ck_assert_int_eq(producer->job.signal.ruler, RATE_RULED_BY_KERNELS);
  scene_run(&scene, 10);
  check_near(scene_limit(&scene), 0.4 + RATE_AIM);
  producer->per_s /= 3; /* less to do: nothing to do with the limit */
  scene_run(&scene, 10);
  check_near(scene_limit(&scene), 0.4 + RATE_AIM);
  producer->leftover = 0.1;
  scene_run(&scene, 10);
  check_near(scene_limit(&scene), 0.1 + RATE_AIM);
}
END_TEST

/* Kernels of which nothing is known say nothing: they are to be learnt, and guests wait for that. */
START_TEST(other_kernels_are_another_phase) {
  producer = scene_add_producer(&scene);
  producer->irregular = 1;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  producer->sampled_part = 0;
  scene_run(&scene, 1.5);
  ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
  scene_run(&scene, 1.5);
  ck_assert_int_eq(scene.gpu.state, RATE_MEASURING);
  producer->sampled_part = 0.1;
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
}
END_TEST

/* What it loses in the end if its speed is irregular while it is measured, and never again. Guests cost it
 * something from their first share on. */
static double lose(uint64_t seed) {
  scene_init(&scene, seed);
  producer = scene_add_producer(&scene);
  producer->leftover = 0;
  producer->cost = 0.2;
  producer->sampled_part = 0;
  producer->jitter = 0.02;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  producer->jitter = 0;
  scene_run(&scene, 12);
  return scene_limit(&scene) * producer->cost;
}

START_TEST(who_is_known_worse_loses_less) {
  double lost = 0;
  for (uint64_t seed = 1; seed <= 100; seed++)
    lost += lose(seed) / 100;
  ck_assert_double_le(lost, 0.985 * RATE_AIM);
  ck_assert_double_ge(lost, 0.9 * RATE_AIM);
}
END_TEST

/* A server: its requests come as they come, but each takes as long as ever. */
START_TEST(service_time_tells_of_irregular_work) {
  producer = scene_add_producer(&scene);
  producer->irregular = 1;
  producer->sampled_part = 0;
  producer->served = 0.3;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  scene_run(&scene, 6);
  ck_assert_int_eq(producer->job.signal.ruler, RATE_RULED_BY_ARRIVALS);
  check_near(scene_limit(&scene), 0.4 + RATE_AIM);
}
END_TEST

/* Requests that differ much: it takes more of them. */
START_TEST(a_poor_signal_is_measured_for_longer) {
  producer = scene_add_producer(&scene);
  producer->irregular = 0.3;
  producer->sampled_part = 0;
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  ck_assert_uint_gt(producer->job.signal.arrivals.base_ticks, 60);
  check_near(producer->job.signal.arrivals.base * 1e9, 10000);
}
END_TEST

static void check_that_guests_wait(void) {
  scene_run(&scene, 20);
  ck_assert_double_eq(scene_limit(&scene), 0);
  ck_assert_int_eq(scene.gpu.reason, RATE_NO_SIGNAL);
}

/* So little of its work that no slice of another job's time would be seen in it. */
START_TEST(few_samples_tell_nothing) {
  producer = scene_add_producer(&scene);
  producer->irregular = 1;
  producer->sampled_part = 0.0002;
  scene_add_guest(&scene, 1);
  check_that_guests_wait();
}
END_TEST

/* A training makes itself ready, and waits for its data. */
START_TEST(what_is_before_the_first_rest_is_no_measure) {
  producer = scene_add_producer(&scene);
  producer->per_s = 30000;
  producer->irregular = 0.05;
  scene_add_guest(&scene, 1);
  scene_run(&scene, 0.6);
  producer->idle = true;
  scene_run(&scene, 3);
  producer->idle = false;
  producer->per_s = 10000;
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
  check_near(producer->job.signal.arrivals.base * 1e9, 10000);
}
END_TEST

START_TEST(without_any_signal_guests_wait) {
  producer = scene_add_producer(&scene);
  producer->irregular = 1;
  producer->sampled_part = 0;
  scene_add_guest(&scene, 1);
  check_that_guests_wait();
  producer->idle = true;
  scene_run(&scene, 3);
  ck_assert_uint_eq(scene.guests[0].job.limit, RATE_NO_LIMIT);
  producer->idle = false;
  producer->sampled_part = 0.1;
  ck_assert(scene_run_until(&scene, RATE_SLOW_START));
}
END_TEST

/* ---- time and counters ---- */

START_TEST(periods_are_short_and_never_the_same) {
  settle();
  for (int i = 0; i < 100; i++) {
    uint64_t before_ns = scene.gpu.next_ns - scene.now_ns;
    scene_tick(&scene);
    uint64_t period_ns = scene.gpu.next_ns - scene.now_ns;
    ck_assert_uint_ge(period_ns, RATE_PERIOD_LEAST_NS);
    ck_assert_uint_le(period_ns, RATE_PERIOD_MOST_NS);
    ck_assert_uint_ne(period_ns, before_ns);
  }
}
END_TEST

START_TEST(time_that_stands_still_or_goes_back_is_ignored) {
  settle();
  double limit = scene_limit(&scene);
  rate_tick(&scene.gpu, scene.now_ns);
  rate_tick(&scene.gpu, scene.now_ns - 1000);
  ck_assert_double_eq(scene_limit(&scene), limit);
  ck_assert_uint_eq(scene.gpu.last_ns, scene.now_ns);
}
END_TEST

/* Counters are some ms old, now more, now less. */
START_TEST(arrivals_are_per_time_that_they_tell_of) {
  settle();
  struct rate_counters told = producer->counters;
  uint64_t begin_ns = scene.now_ns;
  unsigned windows = 0;
  for (int i = 0; i < 100; i++) {
    scene.now_ns = scene.gpu.next_ns;
    told.at_ns = scene.now_ns - (i % 2 ? 10000000 : 0);
    told.submissions = producer->counters.submissions + (told.at_ns - begin_ns) / 102000;
    rate_job_tell(&producer->job, &told);
    rate_tick(&scene.gpu, scene.now_ns);
    struct rate_loss loss = signal_loss(&producer->job.signal, 6);
    windows += i > 50 && loss.ticks == 6; /* in shorter ones a single submission counts */
    if (i > 50 && loss.ticks == 6)
      ck_assert_double_eq_tol(loss.loss, 1 - 1 / (102000 * producer->job.signal.arrivals.base), 0.001);
  }
  ck_assert_uint_gt(windows, 10);
}
END_TEST

START_TEST(counters_that_go_back_or_leap_change_nothing) {
  settle();
  double limit = scene_limit(&scene);
  for (int i = 0; i < 3; i++) {
    struct rate_counters wild = producer->counters;
    wild.submissions = i ? UINT64_MAX - (uint64_t)i : 0;
    wild.sampled_ns = i == 2 ? 0 : UINT64_MAX / 2;
    rate_job_tell(&producer->job, &wild);
    rate_tick(&scene.gpu, ++scene.now_ns + 30000000);
    scene.now_ns += 30000000;
    ck_assert_double_eq_tol(scene_limit(&scene), limit, 1e-6);
  }
  for (int i = 0; i < 100; i++) {
    scene_tick(&scene);
    ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
  }
  check_near(scene_limit(&scene), limit);
}
END_TEST

/* For three seconds another job than the guest slows production down, and nobody looks. */
static void disturb(void) {
  rate_job_remove(&scene.gpu, &scene.guests[0].job);
  scene_tick(&scene);
  rate_disturb(&scene.gpu);
  scene.now_ns += UINT64_C(3000000000);
  producer->counters.submissions += (uint64_t)(3 * 0.7 * producer->per_s);
  rate_disturb(&scene.gpu);
  rate_job_add(&scene.gpu, &scene.guests[0].job, RATE_OPPORTUNISTIC);
}

START_TEST(what_others_have_done_is_not_held_against_guests) {
  settle();
  double limit = scene_limit(&scene), debt_s = producer->job.signal.debt_s;
  disturb();
  scene_tick(&scene);
  ck_assert_int_eq(scene.gpu.state, RATE_CHECKING);
  ck_assert_double_eq(scene_limit(&scene), 0);
  ck_assert(scene_run_until(&scene, RATE_STEADY)); /* nothing is measured anew */
  check_near(scene_limit(&scene), limit);
  ck_assert_double_le(producer->job.signal.debt_s, debt_s + 0.001);
}
END_TEST

START_TEST(what_others_do_from_now_on_is_looked_at_first) {
  settle();
  double limit = scene_limit(&scene);
  rate_disturb(&scene.gpu);
  producer->per_s *= 0.9; /* by who comes */
  scene_tick(&scene);
  ck_assert_int_eq(scene.gpu.state, RATE_CHECKING);
  ck_assert(scene_run_until(&scene, RATE_MEASURING));
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  scene_run(&scene, 6);
  check_near(scene_limit(&scene), limit);
}
END_TEST

/* As many as may be watched, and one more: of these all but the first rest. */
static struct rate_job crowd[RATE_WATCHED_MOST];

static void tick_beside_crowd(bool idle) {
  for (unsigned i = 0; i < RATE_WATCHED_MOST; i++) {
    struct rate_counters counters = {.at_ns = scene.gpu.next_ns, .idle = idle};
    counters.submissions = idle ? 0 : crowd[i].now.submissions + 1;
    rate_job_tell(&crowd[i], &counters);
  }
  scene_tick(&scene);
}

START_TEST(beside_a_crowd_of_production_jobs_guests_wait_while_one_works) {
  struct scene_producer *training = scene_add_producer(&scene);
  scene_add_guest(&scene, 1);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  for (unsigned i = 0; i < RATE_WATCHED_MOST; i++)
    rate_job_add(&scene.gpu, &crowd[i], RATE_PRODUCTION);
  for (int tick = 0; tick < 200; tick++) {
    tick_beside_crowd(true);
    ck_assert_int_eq(scene.gpu.reason, RATE_CROWD);
    ck_assert(scene_limit(&scene) == 0);
  }
  training->idle = true;
  for (int tick = 0; tick < 40; tick++)
    tick_beside_crowd(true);
  ck_assert_int_eq(scene.gpu.reason, RATE_PRODUCTION_IDLE);
  ck_assert(scene_limit(&scene) >= 1);
  tick_beside_crowd(false); /* any of them works */
  ck_assert(scene_limit(&scene) == 0);
  training->idle = false;
  for (unsigned i = 0; i < RATE_WATCHED_MOST; i++)
    rate_job_remove(&scene.gpu, &crowd[i]);
  ck_assert(scene_run_until(&scene, RATE_STEADY)); /* what was known of it is known still */
  ck_assert(scene_limit(&scene) > 0.2);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {without_production_there_is_no_limit,
                                without_guests_production_is_undisturbed,
                                new_production_is_measured_undisturbed,
                                a_queue_that_fills_is_no_measure,
                                production_that_leaves_lifts_the_limit,
                                a_second_production_job_is_measured_too,
                                one_that_rests_for_a_moment_still_counts,
                                slow_start_doubles,
                                the_limit_is_where_production_loses_what_it_may,
                                who_never_loses_leaves_the_whole_gpu,
                                the_limit_follows_what_is_left_over,
                                a_decrease_is_by_half_at_most,
                                decreases_that_are_not_enough_grow,
                                an_increase_is_no_more_than_what_may_be_lost_at_first,
                                increases_grow_while_nothing_is_lost,
                                a_limit_that_is_not_used_does_not_grow,
                                steps_become_smaller,
                                a_change_is_believed_at_once,
                                what_is_not_lost_while_measured_may_be_lost_later,
                                what_happens_while_guests_pause_is_not_owed,
                                paying_back_takes_a_part_only,
                                windows_go_on_after_a_rest,
                                short_idle_times_are_soon_not_used,
                                earlier_losses_are_paid_back,
                                a_little_faster_is_no_error,
                                much_faster_is_another_phase,
                                less_work_is_another_phase,
                                a_slower_phase_is_found_without_the_kernels_help,
                                a_limit_that_always_costs_is_halved_if_production_is_as_it_was,
                                a_measurement_goes_on_after_a_rest,
                                longer_kernels_that_nobody_waits_for_are_no_loss,
                                longer_kernels_that_are_waited_for_are_a_loss,
                                who_feels_it_is_approached_from_below,
                                a_look_compares_with_the_last_moments,
                                who_wanders_is_taken_at_its_word,
                                who_changes_soon_after_it_was_measured_wanders,
                                who_changes_later_is_measured_again,
                                faster_than_its_kernels_allow_is_looked_at_once,
                                a_look_that_finds_nothing_is_not_repeated_at_once,
                                who_comes_back_fills_its_queue,
                                who_comes_back_as_another_is_measured,
                                who_stops_does_not_lose,
                                idle_production_lifts_the_limit_and_gets_the_gpu_back,
                                a_short_pause_changes_nothing,
                                who_comes_back_too_often_is_idle_later,
                                while_production_rests_for_long_more_may_be_queued,
                                kernels_decide_where_arrivals_cannot,
                                other_kernels_are_another_phase,
                                without_any_signal_guests_wait,
                                who_is_known_worse_loses_less,
                                service_time_tells_of_irregular_work,
                                a_poor_signal_is_measured_for_longer,
                                few_samples_tell_nothing,
                                what_is_before_the_first_rest_is_no_measure,
                                periods_are_short_and_never_the_same,
                                time_that_stands_still_or_goes_back_is_ignored,
                                arrivals_are_per_time_that_they_tell_of,
                                counters_that_go_back_or_leap_change_nothing,
                                what_others_have_done_is_not_held_against_guests,
                                what_others_do_from_now_on_is_looked_at_first,
                                beside_a_crowd_of_production_jobs_guests_wait_while_one_works,
                                NULL};
  return suite_main("rate", tests, set_up, NULL);
}
