/* test_sched_soft_limits.c - what a job has beyond its soft limit leaves the card before others' memory does.
 */
#include <string.h>

#include "suite.h"
#include "world.h"

static struct world world;

#define said(text) ck_assert_str_eq(world_said(&world), text)
#define TQ (20 * NS_PER_S)
#define SWAP 0

/* Jobs 1 .. n of so many GiB take turns on a card of 16. */
static void take_turns(int jobs, double gib) {
  world_init(&world, GS_MODE_ON);
  world.rooms_shown = true;
  for (int i = 1; i <= jobs; i++)
    world_attach(&world, i, gib, SWAP);
  world_said(&world);
}

static void request_all(int jobs) {
  for (int i = 1; i <= jobs; i++) {
    world_request(&world, i);
    world_pass(&world, 1);
  }
  world_said(&world);
}

static void limit_softly(int job, double gib) {
  struct sched_terms terms = world.jobs[job].terms;
  terms.soft_limit_bytes = (uint64_t)(gib * GIB);
  world_set_terms(&world, job, &terms);
}

static double resident(int job) { return (double)world.clients[job].resident_bytes / GIB; }

static void has(double one, double two, double three) {
  ck_assert_double_eq(resident(1), one);
  ck_assert_double_eq(resident(2), two);
  ck_assert_double_eq(resident(3), three);
}

static void grow(int job, double gib) {
  uint64_t granted_bytes;
  ck_assert_int_eq(world_ask(&world, job, gib, 0, &granted_bytes), 0);
}

/* ---- for the job that holds ---- */

/* 1 is idle for longer, and the first to leave without soft limits. */
START_TEST(excess_leaves_before_what_idles_longer) {
  take_turns(3, 5);
  request_all(3);
  for (int i = 1; i <= 3; i++)
    world_release(&world, i);
  limit_softly(3, 2);
  world_attach(&world, 4, 3, SWAP); /* 1 is free */
  world_request(&world, 4);
  has(5, 5, 3);
  grow(4, 7);
  has(2, 5, 2); /* what is within the soft limit leaves as anybody's */
}
END_TEST

/* The head of the queue runs before the tail does. */
START_TEST(excess_leaves_before_what_runs_later) {
  take_turns(3, 5);
  request_all(3);
  limit_softly(2, 4);
  grow(1, 7);
  has(7, 4, 5);
  grow(1, 10);
  has(10, 4, 2);
}
END_TEST

START_TEST(of_several_the_one_that_runs_last_leaves_first) {
  take_turns(3, 5);
  request_all(3);
  limit_softly(2, 1);
  limit_softly(3, 1);
  grow(1, 9);
  has(9, 5, 2);
  grow(1, 11);
  has(11, 4, 1);
}
END_TEST

/* 2 is idle, and would leave first without soft limits. */
START_TEST(who_stops_gives_its_excess_before_the_others) {
  take_turns(3, 6); /* 4 of 3 are there */
  request_all(1);
  limit_softly(1, 4);
  world_pass(&world, TQ);
  world_request(&world, 3);
  said("1:drop(1,4) 3:room(4)");
  world_release(&world, 1);
  has(4, 6, 6);
}
END_TEST

START_TEST(pinned_bytes_stay_beyond_it) {
  take_turns(3, 5);
  world_memory_pinned(&world, 3, 5, 4);
  request_all(3);
  limit_softly(3, 1);
  grow(1, 8);
  has(8, 4, 4);
  ck_assert_ptr_null(strstr(world_said(&world), "3:room(3)")); /* nor is it asked for them */
}
END_TEST

START_TEST(a_holder_keeps_all_that_it_has) {
  take_turns(2, 10);
  limit_softly(1, 2);
  request_all(2);
  world_pass(&world, TQ / 2);
  has(10, 6, 0);
  grow(1, 12);
  has(12, 4, 0);
}
END_TEST

START_TEST(nothing_moves_while_everything_fits) {
  take_turns(3, 5);
  for (int i = 1; i <= 3; i++)
    limit_softly(i, 1);
  request_all(3);
  grow(2, 5 + 1.0 / 256);
  grow(1, 6 - 1.0 / 256); /* what may be allocated unasked does not fit now */
  ck_assert(!world.gpus[0].roomy);
  world_pass(&world, TQ);
  world_yield(&world, 1);
  has(6 - 1.0 / 256, 5 + 1.0 / 256, 5);
  ck_assert_uint_eq(world.jobs[3].moved_bytes, 5 * GIB); /* it came, and has not left */
}
END_TEST

/* ---- for the second one ---- */

/* 8 GiB are a third of a second of 20: nobody else would leave behind a turn for that. */
START_TEST(waiting_jobs_give_their_excess_behind_any_turn) {
  take_turns(3, 8);
  request_all(3);
  limit_softly(1, 5);
  world_pass(&world, TQ);
  world_said(&world);
  world_yield(&world, 1);
  said("2:ok(2,8) 1:room(5) 2:wanted(2) 3:room(3)");
  has(5, 8, 3);
}
END_TEST

START_TEST(idle_jobs_are_idle_for_long_enough_first) {
  take_turns(3, 6); /* 4 of 3 are there */
  limit_softly(2, 5);
  world_request(&world, 1);
  world_request(&world, 3);
  has(6, 6, 4);
  world_pass(&world, SCHED_IDLE_NS - 1);
  has(6, 6, 4);
  world_pass(&world, 1);
  has(6, 4, 6);
}
END_TEST

/* ---- changes ---- */

int main(void) {
  const TTest *const tests[] = {excess_leaves_before_what_idles_longer,
                                excess_leaves_before_what_runs_later,
                                of_several_the_one_that_runs_last_leaves_first,
                                who_stops_gives_its_excess_before_the_others,
                                pinned_bytes_stay_beyond_it,
                                a_holder_keeps_all_that_it_has,
                                nothing_moves_while_everything_fits,
                                waiting_jobs_give_their_excess_behind_any_turn,
                                idle_jobs_are_idle_for_long_enough_first,
                                NULL};
  return suite_main("sched_soft_limits", tests, NULL, NULL);
}
