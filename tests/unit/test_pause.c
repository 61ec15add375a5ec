/* test_pause.c - jobs that are paused: they get no GPU, and keep nobody else from it. */
#include "suite.h"
#include "world.h"

static struct world world;

static void set_up(void) { world_init(&world, GS_MODE_ON); }

static void set_paused(int job, bool paused) {
  struct sched_terms terms = world.jobs[job].terms;
  terms.paused = paused;
  world_set_terms(&world, job, &terms);
}

static void expect(const char *said) { ck_assert_str_eq(world_said(&world), said); }

static void come(int job, double gib) {
  world_attach(&world, job, gib, GS_ATTACH_MANAGED);
  world_request(&world, job);
}

START_TEST(one_that_waits_is_passed_over) {
  come(1, 4);
  come(2, 4);
  come(3, 4);
  set_paused(2, true);
  world_said(&world);
  world_release(&world, 1);
  expect("3:ok(2)");
  world_release(&world, 3);
  expect("");
  ck_assert_uint_eq(world.gpus[0].waiting_count, 0);
  set_paused(2, false); /* it has asked before it was paused */
  expect("2:ok(3)");
}
END_TEST

START_TEST(one_that_does_not_ask_gets_nothing_when_it_is_resumed) {
  come(1, 4);
  set_paused(1, true);
  world_release(&world, 1);
  world_said(&world);
  set_paused(1, false);
  expect("");
  set_paused(1, true);
  world_request(&world, 1);
  expect("");
  set_paused(1, false);
  expect("1:ok(2)");
}
END_TEST

START_TEST(where_no_turns_are_taken_it_is_the_only_one_that_stops) {
  world_init(&world, GS_MODE_AUTO);
  world_attach(&world, 1, 4, GS_ATTACH_MANAGED);
  world_attach(&world, 2, 4, GS_ATTACH_MANAGED);
  world_said(&world);
  set_paused(1, true);
  expect("1:drop(1)");
  world_yield(&world, 1);
  world_attach(&world, 3, 4, GS_ATTACH_MANAGED);
  expect("3:attached 3:off 3:ok(3)");
  set_paused(1, false);
  expect("1:ok(4)");
}
END_TEST

START_TEST(turns_that_end_leave_it_alone) {
  come(1, 4);
  set_paused(1, true);
  world_release(&world, 1);
  world_said(&world);
  world_set_mode(&world, GS_MODE_OFF);
  expect("1:capacity 1:off");
  set_paused(1, false);
  expect("1:ok(2)");
}
END_TEST

/* Its memory is that of an idle job: it leaves before that of those that wait. */
START_TEST(its_memory_makes_way_first) {
  world_init(&world, GS_MODE_AUTO);
  come(1, 8);
  come(2, 8);
  come(3, 8);
  world_pass(&world, 100 * NS_PER_S);
  set_paused(1, true);
  world_release(&world, 1);
  world_pass(&world, NS_PER_S);
  for (int turn = 0; turn < 4; turn++)
    world_pass(&world, 20 * NS_PER_S);
  ck_assert_uint_eq(world.jobs[1].resident_bytes, 0);
  ck_assert_uint_eq(world.jobs[2].resident_bytes, 8 * GIB);
  ck_assert_uint_eq(world.jobs[3].resident_bytes, 8 * GIB);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {one_that_waits_is_passed_over,
                                one_that_does_not_ask_gets_nothing_when_it_is_resumed,
                                where_no_turns_are_taken_it_is_the_only_one_that_stops,
                                turns_that_end_leave_it_alone,
                                its_memory_makes_way_first,
                                NULL};
  return suite_main("pause", tests, set_up, NULL);
}
