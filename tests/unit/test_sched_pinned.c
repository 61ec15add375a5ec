/* test_sched_pinned.c - what can't leave the card keeps nobody from running who has memory there. */
#include <errno.h>

#include "suite.h"
#include "world.h"

static struct world world;

#define SWAP 0
#define MIB (GIB / 1024)

/* Cards of 16 GiB. */
static void set_up(void) { world_init(&world, GS_MODE_ON); }

static void come_as(int job, enum gs_class class, double gib, uint32_t flags) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .class = class};
  uint64_t granted_bytes;
  world_attach_with(&world, 0, job, 0, flags, &terms);
  ck_assert_int_eq(world_ask(&world, job, gib, 0, &granted_bytes), 0);
}

static void come(int job, double gib, uint32_t flags) { come_as(job, GS_CLASS_STANDARD, gib, flags); }

static int pin(int job, double gib) {
  uint64_t granted_bytes;
  return world_ask(&world, job, gib, gib, &granted_bytes);
}

static void refuses(int job, double gib, enum gs_refusal why) {
  uint64_t bytes = (uint64_t)(gib * GIB);
  ck_assert_int_eq(pin(job, gib), -ENOMEM);
  ck_assert_int_eq(sched_job_why_refused(&world.jobs[job], bytes, bytes), why);
}

static bool runs(int job) { return !sched_job_too_big(&world.jobs[job]); }

START_TEST(what_a_job_needs_is_left) {
  come(1, 10, SWAP);
  come(2, 0, SWAP);
  refuses(2, 6.001, GS_REFUSAL_OTHERS);
  ck_assert_uint_eq(sched_job_most(&world.jobs[2]).pinned_bytes, 6 * GIB);
  ck_assert_int_eq(pin(2, 6), 0);
  ck_assert(runs(1));
  world_memory(&world, 1, 8);
  ck_assert_int_eq(pin(2, 7), 0);
}
END_TEST

/* They take turns: each needs the card for itself, beside what is pinned. */
START_TEST(each_job_counts_by_itself) {
  come(1, 10, SWAP);
  come(2, 12, SWAP);
  come(3, 0, SWAP);
  refuses(3, 5, GS_REFUSAL_OTHERS);
  ck_assert_int_eq(pin(3, 4), 0);
  ck_assert_int_eq(pin(2, 12), -ENOMEM); /* the first one has 10, and the third has pinned 4 */
  ck_assert_int_eq(world_ask(&world, 2, 12, 2, &(uint64_t){0}), 0);
  ck_assert(runs(1) && runs(2));
}
END_TEST

START_TEST(page_faults_run_beside_it) {
  come(1, 10, GS_ATTACH_MANAGED);
  come(2, 0, SWAP);
  ck_assert_int_eq(pin(2, 16), 0);
  ck_assert(runs(1));
}
END_TEST

START_TEST(a_higher_class_may_take_it) {
  come_as(1, GS_CLASS_OPPORTUNISTIC, 10, SWAP);
  come_as(2, GS_CLASS_PRODUCTION, 4, SWAP);
  come_as(3, GS_CLASS_OPPORTUNISTIC, 0, SWAP);
  ck_assert_ptr_null(sched_job_kept_by(&world.jobs[1]));
  ck_assert_int_eq(pin(2, 8), 0);
  ck_assert(!runs(1));
  ck_assert_ptr_eq(sched_job_kept_by(&world.jobs[1]), &world.jobs[2]);
  refuses(3, 6.5, GS_REFUSAL_OTHERS); /* the first one is to run once the second has ended */
  ck_assert_int_eq(pin(3, 6), 0);
  ck_assert_ptr_eq(sched_job_kept_by(&world.jobs[1]), &world.jobs[2]);
  world_detach(&world, 2);
  ck_assert(runs(1));
}
END_TEST

START_TEST(a_lower_class_may_not) {
  come_as(1, GS_CLASS_PRODUCTION, 10, SWAP);
  come_as(2, GS_CLASS_OPPORTUNISTIC, 0, SWAP);
  come(3, 0, SWAP);
  refuses(2, 7, GS_REFUSAL_OTHERS);
  refuses(3, 7, GS_REFUSAL_OTHERS);
  ck_assert_int_eq(pin(3, 6), 0);
}
END_TEST

/* What a superior has pinned beside it is there all the same. */
START_TEST(nor_what_a_higher_class_has_left) {
  come(1, 10, SWAP);
  come_as(2, GS_CLASS_PRODUCTION, 0, SWAP);
  come(3, 0, SWAP);
  ck_assert_int_eq(pin(2, 4), 0);
  refuses(3, 3, GS_REFUSAL_OTHERS);
  ck_assert_int_eq(pin(3, 2), 0);
  ck_assert(runs(1));
}
END_TEST

/* Beside the superior there is no room for all that the first one may have, but once it has ended there is.
 */
START_TEST(nor_what_it_leaves_in_the_end) {
  come(1, 16 - 8 / 1024., SWAP);
  come_as(2, GS_CLASS_PRODUCTION, 0, SWAP);
  come(3, 0, GS_ATTACH_MANAGED);
  ck_assert_int_eq(pin(2, 4 / 1024.), 0);
  ck_assert(runs(1));
  refuses(3, 2 / 1024., GS_REFUSAL_OTHERS);
}
END_TEST

/* Nobody gains by that. */
START_TEST(who_cant_run_keeps_nothing) {
  come(1, 12, SWAP);
  come(2, 0, SWAP);
  world_set_capacity(&world, 10);
  refuses(2, 11, GS_REFUSAL_PINNED);
  ck_assert_int_eq(pin(2, 9), 0);
}
END_TEST

/* It came with that, so nobody has looked whether it fits beside what the second one may pin unasked. */
START_TEST(who_runs_for_now_goes_on) {
  come(2, 0, SWAP);
  come(3, 0, GS_ATTACH_MANAGED);
  ck_assert_int_eq(pin(2, 1), 0);
  world_memory_pinned(&world, 2, 1 - 8 / 1024., 1 - 8 / 1024.);
  world_attach(&world, 1, 15 + 4 / 1024., SWAP);
  ck_assert(runs(1));
  refuses(3, 5 / 1024., GS_REFUSAL_OTHERS);
  ck_assert(runs(1));
}
END_TEST

/* Also beside what the card may have again. */
START_TEST(who_runs_on_what_is_left_goes_on) {
  come(1, 13 + 4 / 1024., SWAP);
  come(2, 0, SWAP);
  come(3, 0, GS_ATTACH_MANAGED);
  ck_assert_int_eq(pin(2, 1 - 8 / 1024.), 0);
  scheduler_set_away(&world.gpus[0], 2 * GIB, world.now_ns, &world.change);
  ck_assert(runs(1));
  refuses(3, 5 / 1024., GS_REFUSAL_OTHERS);
}
END_TEST

/* What the driver has refused is tried again. */
START_TEST(who_will_run_again_keeps_it) {
  struct sched_gpu *gpu = &world.gpus[0];
  come(1, 14, SWAP);
  come(2, 0, SWAP);
  scheduler_set_away(gpu, 3 * GIB, world.now_ns, &world.change);
  ck_assert(!runs(1));
  refuses(2, 3, GS_REFUSAL_OTHERS);
  ck_assert_int_eq(pin(2, 2), 0);
  scheduler_set_away(gpu, 0, world.now_ns, &world.change);
  ck_assert(runs(1));
}
END_TEST

/* Each may have a little more unasked: both at once leave the first one what it needs. */
START_TEST(what_goes_unasked_is_left_too) {
  come(1, 10 - 8 / 1024., SWAP);
  ck_assert_uint_eq(world.jobs[1].reach_bytes, 10 * GIB);
  come(2, 0, SWAP);
  refuses(2, 6 + 4 / 1024., GS_REFUSAL_OTHERS);
  ck_assert_int_eq(pin(2, 6 - 20 / 1024.), 0);
  ck_assert_uint_eq(world.jobs[2].pinned_reach_bytes, 6 * GIB - 16 * MIB);
  ck_assert_int_eq(pin(2, 6 - 4 / 1024.), 0);
  ck_assert_uint_eq(world.jobs[2].pinned_reach_bytes, 6 * GIB);
  world_memory_pinned(&world, 2, 1, 1);
  ck_assert_uint_eq(world.jobs[2].pinned_reach_bytes, GIB + SCHED_SLACK_BYTES);
}
END_TEST

START_TEST(no_more_goes_unasked_than_is_left) {
  come(1, 10, SWAP);
  come(2, 0, SWAP);
  world_set_capacity(&world, 16 - 8 / 1024.);
  ck_assert_int_eq(pin(2, 6 - 12 / 1024.), 0);
  ck_assert_uint_eq(world.jobs[2].pinned_reach_bytes, 6 * GIB - 8 * MIB);
}
END_TEST

/* It is there, however small the card has become meanwhile. */
START_TEST(what_goes_unasked_is_believed) {
  come(1, 0, GS_ATTACH_MANAGED);
  ck_assert_int_eq(pin(1, 8 - 8 / 1024.), 0);
  world_set_capacity(&world, 4);
  world_memory_pinned(&world, 1, 8 - 4 / 1024., 8 - 4 / 1024.);
  ck_assert_uint_eq(world.jobs[1].pinned_bytes, 8 * GIB - 4 * MIB);
}
END_TEST

START_TEST(a_job_does_not_grow_into_what_others_may_pin) {
  come(1, 0, SWAP);
  ck_assert_int_eq(pin(1, 4 - 8 / 1024.), 0);
  come(2, 11, SWAP);
  ck_assert_int_eq(world_ask(&world, 2, 12 + 1 / 1024., 0, &(uint64_t){0}), -ENOMEM);
  ck_assert_int_eq(world_ask(&world, 2, 12, 0, &(uint64_t){0}), 0);
}
END_TEST

START_TEST(who_says_what_it_needs_waits_for_it) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .expected_bytes = 8 * GIB};
  come(1, 10, SWAP);
  world_attach_with(&world, 0, 2, 0, SWAP, &terms);
  world_said(&world);
  ck_assert(world_await(&world, 2, 8, 8));
  world_memory(&world, 1, 9);
  ck_assert_str_eq(world_said(&world), "");
  world_memory(&world, 1, 8 - 1 / 64.); /* it may have a little more without asking */
  ck_assert_str_eq(world_said(&world), "2:memory(8)");
  ck_assert_uint_eq(world.jobs[2].pinned_reach_bytes, 8 * GIB);
}
END_TEST

/* What others may pin without asking is as good as pinned, to all three: who judges, who waits and who is
 * told why. */
START_TEST(what_others_may_pin_is_why_it_is_refused) {
  come(1, 0, SWAP);
  ck_assert_int_eq(pin(1, 4 - 8 / 1024.), 0);
  come(3, 0, SWAP);
  refuses(3, 12 + 4 / 1024., GS_REFUSAL_PINNED);
  come(2, 11, SWAP);
  ck_assert_int_eq(world_ask(&world, 2, 12 + 1 / 1024., 0, &(uint64_t){0}), -ENOMEM);
  ck_assert_int_eq(sched_job_why_refused(&world.jobs[2], 12 * GIB + MIB, 0), GS_REFUSAL_CAPACITY);
}
END_TEST

START_TEST(and_what_it_waits_for) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .expected_bytes = 8 * GIB + 4 * MIB};
  come(1, 0, SWAP);
  ck_assert_int_eq(pin(1, 8 - 8 / 1024.), 0);
  world_attach_with(&world, 0, 2, 0, SWAP, &terms);
  world_said(&world);
  ck_assert(world_await(&world, 2, 8, 0));
  ck_assert_str_eq(world_said(&world), "");
  world_memory_pinned(&world, 1, 7, 7);
  ck_assert_str_eq(world_said(&world), "2:memory(8)");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {what_a_job_needs_is_left,
                                each_job_counts_by_itself,
                                page_faults_run_beside_it,
                                a_higher_class_may_take_it,
                                a_lower_class_may_not,
                                nor_what_a_higher_class_has_left,
                                nor_what_it_leaves_in_the_end,
                                who_cant_run_keeps_nothing,
                                who_runs_for_now_goes_on,
                                who_runs_on_what_is_left_goes_on,
                                who_will_run_again_keeps_it,
                                what_goes_unasked_is_left_too,
                                no_more_goes_unasked_than_is_left,
                                what_goes_unasked_is_believed,
                                a_job_does_not_grow_into_what_others_may_pin,
                                who_says_what_it_needs_waits_for_it,
                                what_others_may_pin_is_why_it_is_refused,
                                and_what_it_waits_for,
                                NULL};
  return suite_main("sched_pinned", tests, set_up, NULL);
}
