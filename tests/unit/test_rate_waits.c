/*
 * test_rate_waits.c - production whose host's pace changes by itself, and that tells for how long it waits
 * for the GPU.
 */
#include <math.h>

#include "rate_scene.h"
#include "suite.h"

static struct scene scene;
static struct scene_producer *producer;

static void set_up(void) { scene_init(&scene, 1); }

static void check_near(double value, double expected) {
  ck_assert_double_ge(value, 0.9 * expected);
  ck_assert_double_le(value, 1.1 * expected);
}

/* It works all the time, and waits for so much of it. No kernel of it is sampled. */
static void add_waiting(double wander, double waits) {
  producer = scene_add_producer(&scene);
  producer->sampled_part = 0;
  producer->served = 1;
  producer->wander = wander;
  producer->waits = waits;
  scene_add_guest(&scene, 1);
}

static void settle_waiting(double wander, double waits) {
  add_waiting(wander, waits);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  scene_run(&scene, 10);
  ck_assert_int_eq(scene.gpu.state, RATE_STEADY);
  ck_assert_double_gt(producer->job.signal.host_ns, 0);
}

static void check_that_waits_tell(double waits) {
  settle_waiting(0.15, waits);
  check_near(scene_limit(&scene), 0.4 + RATE_AIM);
  producer->leftover = 0.1;
  scene_run(&scene, 6);
  check_near(scene_limit(&scene), 0.1 + RATE_AIM);
}

START_TEST(waits_tell_the_loss_where_the_host_wanders) { check_that_waits_tell(0.4); }
END_TEST

/* Its host does nearly all of a request, so all of the GPU costs it little, and that is still too much. After
 * some seconds the limit is on average where it should be. */
static void check_that_little_is_found(double cost) {
  double sum = 0, best = RATE_AIM / cost;
  add_waiting(0.15, 0.02);
  producer->served = 0.25;
  producer->irregular = 1;
  producer->leftover = 0;
  producer->cost = cost;
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  ck_assert_int_eq(producer->job.signal.ruler, RATE_RULED_BY_WAITS);
  scene_run(&scene, 3);
  for (int i = 0; i < 100; i++, scene_tick(&scene))
    sum += scene_limit(&scene) / 100;
  ck_assert_double_ge(sum, 0.7 * best);
  ck_assert_double_le(sum, 1.3 * best);
}

START_TEST(requests_meet_guests_by_chance) { check_that_little_is_found(0.08); }
END_TEST

/* Slow start ends without having seen it. */
START_TEST(what_nobody_has_seen_yet_is_not_known) { check_that_little_is_found(0.033); }
END_TEST

START_TEST(that_they_are_short_matters_not) { check_that_waits_tell(0.01); }
END_TEST

/* As a server that is tried out once it is there, and then has to wait for its first request: it compiles,
 * and waits for each piece. */
START_TEST(what_was_before_the_first_requests_is_no_measure) {
  add_waiting(0.15, 0.9);
  producer->served = 0.3;
  producer->jitter = 0.3;
  for (int i = 0; i < 2; i++) {
    producer->idle = false;
    scene_run(&scene, 0.9);
    ck_assert_int_eq(scene.gpu.state, RATE_MEASURING);
    producer->idle = true;
    scene_run(&scene, 5);
    ck_assert_int_eq(scene.gpu.state, RATE_FREE);
  }
  producer->idle = false;
  producer->waits = 0.01;
  scene_run(&scene, 2.5);
  ck_assert_int_ne(scene.gpu.state, RATE_MEASURING);
  ck_assert_double_gt(producer->job.signal.host_ns, 0);
}
END_TEST

/* As of a library that does not tell them. */
START_TEST(without_waits_a_host_that_wanders_hides_the_loss) {
  double most = 0;
  add_waiting(0.05, 0);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  for (int i = 0; i < 500; i++) {
    scene_tick(&scene);
    most = fmax(most, scene_limit(&scene));
  }
  ck_assert_double_eq(producer->job.signal.host_ns, 0);
  ck_assert_double_ge(most, 0.48);
}
END_TEST

/* A steady one needs them not. */
START_TEST(waits_are_not_needed_where_arrivals_are_steady) {
  add_waiting(0.01, 0.1);
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  ck_assert_double_eq(producer->job.signal.host_ns, 0);
  scene_run(&scene, 6);
  check_near(scene_limit(&scene), 0.4 + RATE_AIM);
}
END_TEST

/* Guests could have it wait for as long as before, and nobody would see that. */
START_TEST(who_waits_for_less_is_measured_again) {
  settle_waiting(0.08, 0.4);
  producer->waits = 0.2;
  ck_assert(scene_run_until(&scene, RATE_CHECKING));
  ck_assert_int_eq(scene.gpu.reason, RATE_FASTER);
  ck_assert(scene_run_until(&scene, RATE_MEASURING));
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  check_near(producer->job.signal.host_ns, 80000);
}
END_TEST

/* True: others have paused for it. */
static bool become_faster(double waits) {
  bool looked = false;
  settle_waiting(0.05, waits);
  double host_ns = producer->job.signal.host_ns;
  producer->host = 0.7;
  for (int i = 0; i < 200; i++) {
    scene_tick(&scene);
    looked |= scene.gpu.state == RATE_CHECKING;
    ck_assert_int_ne(scene.gpu.state, RATE_MEASURING);
    ck_assert_double_ge(scene.gpu.limit / 1e9, 0.38);
  }
  ck_assert_double_le(producer->job.signal.host_ns, 0.9 * host_ns);
  return looked;
}

/* It waits for as long as ever. */
START_TEST(a_faster_host_is_no_other_phase) { ck_assert(become_faster(0.1)); }
END_TEST

START_TEST(nobody_pauses_for_a_faster_host_that_waits_for_next_to_nothing) {
  ck_assert(!become_faster(0.01));
}
END_TEST

/* While others pause it submits nothing, as if one kernel took all the time: that tells of no pace. */
START_TEST(a_look_at_nothing_blinds_nobody) {
  settle_waiting(0.08, 0.1);
  double per_s = producer->per_s;
  rate_disturb(&scene.gpu);
  producer->per_s = 0;
  while (scene.gpu.state == RATE_CHECKING)
    scene_tick(&scene);
  producer->per_s = per_s;
  producer->leftover = 0.1;
  ck_assert(scene_run_until(&scene, RATE_STEADY));
  scene_run(&scene, 10);
  check_near(scene_limit(&scene), 0.1 + RATE_AIM);
}
END_TEST

/* How often that signal rules of a server whose requests differ by themselves. */
static unsigned times_ruled_by(enum rate_ruler ruler, double waits, double sampled_part) {
  unsigned times = 0;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    scene_init(&scene, seed);
    add_waiting(0.05, waits);
    producer->served = 0.3;
    producer->jitter = 0.2;
    producer->sampled_part = sampled_part;
    ck_assert(scene_run_until(&scene, RATE_SLOW_START));
    times += producer->job.signal.ruler == ruler;
  }
  return times;
}

/* For a second requests may look as steady as a training's iterations. */
START_TEST(a_server_is_no_training_by_chance) {
  ck_assert_uint_ge(times_ruled_by(RATE_RULED_BY_WAITS, 0.02, 0), 297);
  ck_assert_uint_ge(times_ruled_by(RATE_RULED_BY_KERNELS, 0.9, 0.1), 297);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {waits_tell_the_loss_where_the_host_wanders,
                                that_they_are_short_matters_not,
                                requests_meet_guests_by_chance,
                                what_nobody_has_seen_yet_is_not_known,
                                what_was_before_the_first_requests_is_no_measure,
                                without_waits_a_host_that_wanders_hides_the_loss,
                                waits_are_not_needed_where_arrivals_are_steady,
                                who_waits_for_less_is_measured_again,
                                a_faster_host_is_no_other_phase,
                                nobody_pauses_for_a_faster_host_that_waits_for_next_to_nothing,
                                a_look_at_nothing_blinds_nobody,
                                a_server_is_no_training_by_chance,
                                NULL};
  return suite_main("rate_waits", tests, set_up, NULL);
}
