/* test_sched_touched.c - mode auto counts what is on the card, where that is known: jobs that have more than
 * fits run together until the card fills. */
#include "suite.h"
#include "world.h"

static struct world world;

#define GPU (&world.gpus[0])
#define LOOK SCHED_LOOK_NS
#define FULL 14.5 /* of 16 GiB: more than 90 % */
#define HOLDS(job) ck_assert_int_eq(world.jobs[job].state, GS_JOB_HOLDING)

static void set_up(void) { world_init(&world, GS_MODE_AUTO); }

static void in_turns(void) {
  ck_assert(GPU->serialized);
  ck_assert(!sched_gpu_runs_together(GPU));
}

static void together(void) {
  ck_assert(!GPU->serialized);
  ck_assert(sched_gpu_runs_together(GPU));
}

/* So it stays, as the looks go on. */
static void look(int times, double gib) {
  for (int i = 0; i < times; i++) {
    world_occupied(&world, gib);
    world_pass(&world, LOOK);
  }
}

/* Two of 12 GiB, of which little is there. */
static void begin_together(void) {
  world_attach(&world, 1, 12, GS_ATTACH_MANAGED);
  world_occupied(&world, 1);
  world_attach(&world, 2, 12, GS_ATTACH_MANAGED);
  world_occupied(&world, 2);
  together();
}

/* ---- together ---- */

TEST(what_is_not_touched_does_not_count) {
  begin_together();
  look(10, 2);
  together();
  HOLDS(1);
  HOLDS(2);
  ck_assert_uint_eq(GPU->handovers, 0);
  ck_assert_uint_eq(sched_gpu_occupied_bytes(GPU), 2 * GIB);
}

TEST(turns_begin_when_the_card_fills) {
  begin_together();
  look(3, 14);
  together();
  world_occupied(&world, FULL);
  in_turns();
}

TEST(jobs_that_fit_never_take_turns) {
  world_attach(&world, 1, 8, GS_ATTACH_MANAGED);
  world_attach(&world, 2, 7, GS_ATTACH_MANAGED);
  look(3, 16);
  ck_assert(!GPU->serialized);
  ck_assert(!sched_gpu_runs_together(GPU));
}

TEST(a_capacity_that_is_set_counts) {
  begin_together();
  look(1, 8);
  together();
  world_set_capacity(&world, 8);
  in_turns();
}

/* What processes that are no jobs take is neither the jobs' nor there for them: 10 of 16, and 5 of 11. */
TEST(what_others_take_is_known) {
  begin_together();
  scheduler_set_away(GPU, 5 * GIB, world.now_ns, &world.change);
  world_occupied(&world, 5 + 9.8);
  together();
  world_occupied(&world, 5 + 9.95);
  in_turns();
}

/* The next look need not be awaited for it. */
TEST(what_is_pinned_counts_at_once) {
  begin_together();
  look(1, 4);
  world_memory_pinned(&world, 1, 12, 10);
  together();
  world_memory_pinned(&world, 1, 12, 10.5);
  in_turns();
}

/* ---- no flapping ---- */

TEST(turns_that_were_needed_stay) {
  begin_together();
  world_occupied(&world, FULL);
  look(20, 2);
  in_turns();
  world_attach(&world, 3, 1, GS_ATTACH_MANAGED);
  look(2, 2);
  world_detach(&world, 3);
  look(2, 2);
  in_turns();
}

TEST(turns_end_when_the_jobs_have_less) {
  begin_together();
  world_occupied(&world, FULL);
  world_memory(&world, 1, 10);
  look(2, 2);
  in_turns();
  world_memory(&world, 1, 8); /* 20 of 24 */
  look(2, 2);
  together();
}

/* Less than the most that they have had since: with another one, they are another set. */
TEST(turns_end_when_a_job_ends) {
  begin_together();
  world_occupied(&world, FULL);
  world_attach(&world, 3, 12, GS_ATTACH_MANAGED);
  look(2, 2);
  in_turns();
  world_detach(&world, 1);
  look(2, 2);
  together();
}

/* Memory that comes and goes is expected back, so it doesn't change the set either. */
TEST(memory_that_comes_and_goes_does_not_end_turns) {
  begin_together();
  for (int i = 0; i < 2; i++) {
    world_memory(&world, 1, 4);
    world_memory(&world, 1, 12);
  }
  world_occupied(&world, FULL);
  world_memory(&world, 1, 4);
  look(2, 2);
  in_turns();
}

/* ---- figures ---- */

TEST(without_figures_allocations_count) {
  world_attach(&world, 1, 12, GS_ATTACH_MANAGED);
  world_attach(&world, 2, 12, GS_ATTACH_MANAGED);
  world_pass(&world, 10 * LOOK);
  in_turns();
  ck_assert_uint_eq(sched_gpu_occupied_bytes(GPU), 0);
  look(2, 2); /* they come late: turns were for want of figures only */
  together();
}

TEST(old_figures_do_not_count) {
  begin_together();
  world_pass(&world, SCHED_SEEN_NS - 1);
  together();
  world_pass(&world, 1);
  in_turns();
  look(5, 2);
  in_turns();
}

TEST(figures_that_come_too_late_are_none) {
  world_attach(&world, 1, 12, GS_ATTACH_MANAGED);
  world_attach(&world, 2, 12, GS_ATTACH_MANAGED);
  world_pass(&world, 10 * LOOK);
  scheduler_set_occupied(GPU, GIB, world.now_ns - SCHED_SEEN_NS, world.now_ns, &world.change);
  in_turns();
}

/* ---- who counts with all that it has ---- */

TEST(beside_swap_allocations_count) {
  begin_together();
  world_attach(&world, 3, 1, 0);
  in_turns();
  look(2, 2);
  in_turns();
  world_detach(&world, 3);
  look(1, 2);
  together();
}

TEST(beside_production_allocations_count) {
  struct sched_terms production = SCHED_TERMS_NONE;
  production.class = GS_CLASS_PRODUCTION;
  begin_together();
  world_set_terms(&world, 2, &production);
  in_turns();
  look(2, 2);
  in_turns();
}

/* Turns end by the same word that pauses it. */
TEST(a_job_that_is_paused_as_turns_end_stops) {
  struct sched_terms terms = SCHED_TERMS_NONE;
  terms.class = GS_CLASS_PRODUCTION;
  begin_together();
  world_set_terms(&world, 1, &terms);
  look(1, 2);
  in_turns();
  HOLDS(1);
  terms.class = GS_CLASS_STANDARD;
  terms.paused = true;
  world_set_terms(&world, 1, &terms);
  together();
  ck_assert_int_ne(world.jobs[1].state, GS_JOB_HOLDING);
}

TEST(the_setting_counts_allocations) {
  begin_together();
  scheduler_set_count(&world.scheduler, false, world.now_ns, &world.change);
  in_turns();
  ck_assert(!sched_gpu_is_watched(GPU));
  scheduler_set_count(&world.scheduler, true, world.now_ns, &world.change);
  together();
}

TEST(only_mode_auto_counts_so) {
  begin_together();
  ck_assert(sched_gpu_is_watched(GPU));
  world_set_mode(&world, GS_MODE_ON);
  look(2, 2);
  in_turns();
  ck_assert(!sched_gpu_is_watched(GPU));
  world_set_mode(&world, GS_MODE_AUTO);
  look(2, 2);
  together();
}

/* Nobody looks where it decides nothing. */
TEST(who_is_watched) {
  ck_assert(!sched_gpu_is_watched(GPU));
  world_attach(&world, 1, 0, GS_ATTACH_MANAGED);
  ck_assert(sched_gpu_is_watched(GPU)); /* so a figure is there when memory is */
  world_attach(&world, 2, 1, 0);
  ck_assert(!sched_gpu_is_watched(GPU));
}

/* A look that changes nothing makes no plan. */
TEST(looks_are_cheap) {
  begin_together();
  uint64_t decisions = world.scheduler.decisions;
  world_occupied(&world, 2.5);
  ck_assert_uint_eq(world.scheduler.decisions, decisions);
}

int main(void) { return suite_run_all("sched_touched", set_up, NULL); }
