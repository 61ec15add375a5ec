/* test_preemption.c - what preemptions cost, and are charged: however many make way, and whatever clients
 * say. */
#include "core/internal.h"
#include "suite.h"
#include "world.h"

#define JOBS 4

static struct world world;

static void set_up(void) {
  world_init(&world, GS_MODE_AUTO);
  world_set_policy(&world, GS_POLICY_SRTF);
}

/* It has so much to do, and asks. */
static void come(int job, double gib, uint64_t expected_ns) {
  world_attach(&world, job, gib, GS_ATTACH_MANAGED);
  world_set_terms(&world, job, &(struct sched_terms){.weight = SCHED_WEIGHT, .expected_ns = expected_ns});
  world_request(&world, job);
}

static bool holds(int job) { return world.jobs[job].state == GS_JOB_HOLDING; }

static int64_t saved_ns(void) {
  uint64_t since_ns = world.now_ns - world.gpus[0].preempt_saved_at_ns;
  return world.gpus[0].preempt_saved_ns + (int64_t)since_ns / 20;
}

/* Long jobs that fill the card run; then a short one comes that needs all of it. */
static void preempt_all(double gib) {
  for (int job = 1; job <= JOBS; job++)
    come(job, 4, 1000 * NS_PER_S);
  world_attach(&world, JOBS + 2, 4, GS_ATTACH_MANAGED); /* so that turns are taken; it does nothing */
  for (int job = 1; job <= JOBS; job++)
    ck_assert(holds(job));
  world_pass(&world, NS_PER_S);
  come(JOBS + 1, gib, NS_PER_S);
  for (int job = 1; job <= JOBS; job++)
    world_release(&world, job);
  ck_assert(holds(JOBS + 1));
}

/* One way to the card is paid for. */
START_TEST(whoever_makes_way_it_is_charged_once) {
  uint64_t cost_ns = handover_cost_ns(&world.gpus[0], 16 * GIB);
  preempt_all(16);
  ck_assert_int_ge(saved_ns(), SCHED_PREEMPT_SAVED_NS - (int64_t)(cost_ns + cost_ns / 10));
}
END_TEST

/* GiB. The small one is asked first, and keeps its seat: the large one's stop is charged. */
START_TEST(who_stops_is_charged_and_not_who_stays) {
  uint64_t cost_ns = handover_cost_ns(&world.gpus[0], 12 * GIB);
  come(1, 3, 2000 * NS_PER_S);
  come(2, 10, 1000 * NS_PER_S);
  world_attach(&world, 3, 4, GS_ATTACH_MANAGED); /* so that turns are taken; it does nothing */
  world_pass(&world, NS_PER_S);
  come(4, 12, NS_PER_S);
  ck_assert(holds(1));
  ck_assert(!holds(2));
  ck_assert_int_le(saved_ns(), SCHED_PREEMPT_SAVED_NS - (int64_t)cost_ns);
  ck_assert_int_ge(saved_ns(), SCHED_PREEMPT_SAVED_NS - (int64_t)(cost_ns + cost_ns / 10));
}
END_TEST

START_TEST(no_more_than_a_second_is_saved_up) {
  uint64_t cost_ns = handover_cost_ns(&world.gpus[0], 16 * GIB);
  world_pass(&world, 100 * NS_PER_S);
  preempt_all(16);
  ck_assert_int_le(saved_ns(), SCHED_PREEMPT_SAVED_NS - (int64_t)cost_ns);
}
END_TEST

/* They will take as long to stop as the last one did. */
START_TEST(the_drain_is_charged_too) {
  uint64_t cost_ns = handover_cost_ns(&world.gpus[0], 16 * GIB);
  world.gpus[0].handover.last.drain_ns = NS_PER_S / 4;
  preempt_all(16);
  ck_assert_int_le(saved_ns(), SCHED_PREEMPT_SAVED_NS - (int64_t)cost_ns - (int64_t)NS_PER_S / 8);
}
END_TEST

/* No more than the card has moves to it. */
START_TEST(who_says_that_it_has_very_much_is_charged_what_fits) {
  preempt_all(1 << 20);
  world_pass(&world, 100 * NS_PER_S);
  ck_assert_int_ge(saved_ns(), 0);
}
END_TEST

START_TEST(a_drain_takes_no_longer_than_its_turn) {
  for (int job = 1; job <= 2; job++)
    come(job, 12, (uint64_t)job * 100 * NS_PER_S);
  world_pass(&world, NS_PER_S);
  ck_assert(holds(1));
  scheduler_release(&world.jobs[1],
                    &(struct sched_release){.epoch = world.jobs[1].epoch, .drain_ns = UINT64_C(1) << 60},
                    world.now_ns, &world.change);
  ck_assert_uint_le(world.gpus[0].handover.now.drain_ns, NS_PER_S);
}
END_TEST

/* They would make way for each other, in turn, without end. */
START_TEST(who_is_level_does_not_preempt) {
  for (int job = 1; job <= 2; job++)
    come(job, 12, 100 * NS_PER_S);
  ck_assert(holds(1));
  come(3, 12, 99 * NS_PER_S);
  ck_assert(!holds(1));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {whoever_makes_way_it_is_charged_once,
                                who_stops_is_charged_and_not_who_stays,
                                no_more_than_a_second_is_saved_up,
                                the_drain_is_charged_too,
                                who_says_that_it_has_very_much_is_charged_what_fits,
                                a_drain_takes_no_longer_than_its_turn,
                                who_is_level_does_not_preempt,
                                NULL};
  return suite_main("preemption", tests, set_up, NULL);
}
