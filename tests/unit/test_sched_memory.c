/* test_sched_memory.c - what the scheduler decides about memory: evictions, grants, and the figures it keeps.
 */
#include <errno.h>

#include "suite.h"
#include "world.h"

static struct world world;

#define said(text) ck_assert_str_eq(world_said(&world), text)
#define TQ (20 * NS_PER_S)
#define MANAGED GS_ATTACH_MANAGED

/* Mode on: jobs take turns. */
static void take_turns(void) {
  world_init(&world, GS_MODE_ON);
  world.rooms_shown = true;
}

static void set_up(void) {
  world_init(&world, GS_MODE_AUTO);
  world.rooms_shown = true;
}

/* ---- rooms ---- */

START_TEST(only_what_the_next_job_lacks_leaves) {
  take_turns();
  world_attach(&world, 1, 12, MANAGED);
  world_request(&world, 1);
  said("1:attached 1:on 1:room(12) 1:ok(1,12)");
  world_attach(&world, 2, 6, MANAGED);
  world_request(&world, 2);
  said("2:attached 2:on 2:room(0) 2:room(4) 1:wanted(1)"); /* what is free, behind the turn */
  world_pass(&world, TQ);
  said("1:drop(1,10)"); /* 12 + 6 of 16 */
  world_release(&world, 1);
  said("2:ok(2,4) 2:room(6)"); /* granted before anything moves; more room as it leaves */
}
END_TEST

START_TEST(pinned_bytes_are_not_asked_for) {
  take_turns();
  world_attach(&world, 1, 10, MANAGED);
  world_attach(&world, 2, 10, MANAGED);
  world_request(&world, 1);
  world_memory_pinned(&world, 1, 10, 9);
  world_request(&world, 2);
  world_said(&world);
  world_pass(&world, TQ);
  said("1:drop(1,9)");
}
END_TEST

START_TEST(memory_is_granted_up_to_card_and_host) {
  uint64_t granted = 0;
  world.scheduler.host_memory_bytes = 8 * GIB;
  world_attach(&world, 1, 0, MANAGED);
  world_attach(&world, 2, 10, MANAGED);
  ck_assert_int_eq(world_ask(&world, 1, 14, 0, &granted), 0);
  ck_assert_uint_eq(granted, 14 * GIB);
  ck_assert_int_eq(world_ask(&world, 1, 14.001, 0, &granted), -ENOMEM);
  ck_assert_uint_eq(world.jobs[1].used_bytes, 14 * GIB);
  world_detach(&world, 2);
  ck_assert_int_eq(world_ask(&world, 1, 24, 0, &granted), 0);
}
END_TEST

START_TEST(host_memory_is_shared_by_the_gpus) {
  uint64_t granted;
  world.scheduler.host_memory_bytes = 8 * GIB;
  world_attach_at(&world, 0, 1, 16 + 6, MANAGED);
  world_attach_at(&world, 1, 2, 0, MANAGED);
  ck_assert_int_eq(world_ask(&world, 2, 16 + 2, 0, &granted), 0);
  ck_assert_int_eq(world_ask(&world, 2, 16 + 2.5, 0, &granted), -ENOMEM);
  world_memory(&world, 1, 3);
  ck_assert_int_eq(world_ask(&world, 2, 16 + 8, 0, &granted), 0);
}
END_TEST

START_TEST(grants_have_slack_within_the_bound) {
  uint64_t granted;
  world.scheduler.host_memory_bytes = 0;
  world_attach(&world, 1, 0, MANAGED);
  ck_assert_int_eq(world_ask(&world, 1, 1.0 / GIB, 0, &granted), 0);
  ck_assert_uint_eq(granted, SCHED_SLACK_BYTES);
  ck_assert_uint_eq(world.jobs[1].used_bytes, 1); /* the slack is not used */
  world_set_capacity(&world, 1 + 1.0 / 128);      /* 8 MiB more than 1 GiB */
  ck_assert_int_eq(world_ask(&world, 1, 1 + 1.0 / 1024, 0, &granted), 0);
  ck_assert_uint_eq(granted, GIB + (8 << 20));
}
END_TEST

START_TEST(pinned_memory_must_fit_the_card) {
  uint64_t granted;
  world_attach(&world, 1, 0, MANAGED);
  world_attach(&world, 2, 0, MANAGED);
  ck_assert_int_eq(world_ask(&world, 1, 10, 10, &granted), 0);
  ck_assert_int_eq(world_ask(&world, 2, 7, 7, &granted), -ENOMEM);
  ck_assert_int_eq(world_ask(&world, 2, 7, 6, &granted), 0);
}
END_TEST

static void limit_to(int job, double gib) {
  struct sched_terms terms = world.jobs[job].terms;
  terms.limit_bytes = (uint64_t)(gib * GIB);
  world_set_terms(&world, job, &terms);
  world_said(&world);
}

START_TEST(a_limit_refuses_growth_and_takes_nothing_away) {
  uint64_t granted_bytes = 0;
  world_attach(&world, 1, 4, MANAGED);
  world_attach(&world, 2, 4, 0);
  for (int job = 1; job <= 2; job++) {
    limit_to(job, 6);
    ck_assert_int_eq(world_ask(&world, job, 6.001, 0, &granted_bytes), -ENOMEM);
    ck_assert_int_eq(world_ask(&world, job, 6, 0, &granted_bytes), 0);
    ck_assert_uint_eq(granted_bytes, 6 * GIB); /* no slack beyond it */
    limit_to(job, 2);
    ck_assert_uint_eq(world.jobs[job].used_bytes, 6 * GIB);
    ck_assert_uint_eq(world.jobs[job].room_bytes, 6 * GIB);
    ck_assert_int_eq(world_ask(&world, job, 6.001, 0, &granted_bytes), -ENOMEM);
    ck_assert_int_eq(world_ask(&world, job, 5, 0, &granted_bytes), 0);
    ck_assert_uint_eq(granted_bytes, 5 * GIB);
    limit_to(job, 0);
    ck_assert_int_eq(world_ask(&world, job, 7, 0, &granted_bytes), 0);
  }
}
END_TEST

/* A program under swap memory may have unified memory of its own, which need not be on the card. */
START_TEST(what_page_faults_fetch_need_not_fit) {
  uint64_t granted;
  world_attach(&world, 1, 0, 0);
  ck_assert_int_eq(world_ask(&world, 1, 10, 0, &granted), 0);
  ck_assert_int_eq(world_ask(&world, 1, 40, 0, &granted), -ENOMEM);
  scheduler_memory_paging(&world.jobs[1], 30 * GIB);
  ck_assert_int_eq(world_ask(&world, 1, 40, 0, &granted), 0);
  ck_assert(!sched_job_too_big(&world.jobs[1]));
  ck_assert_int_eq(world_ask(&world, 1, 47, 0, &granted), -ENOMEM);
  scheduler_memory_paging(&world.jobs[1], 10 * GIB);
  ck_assert(sched_job_too_big(&world.jobs[1]));
  world_memory(&world, 1, 10);
  ck_assert_uint_eq(world.gpus[0].faultless_bytes, 0);
  scheduler_memory_paging(&world.jobs[1], 4 * GIB);
  ck_assert_uint_eq(world.gpus[0].faultless_bytes, 6 * GIB);
  world_memory(&world, 1, 0);
  ck_assert_uint_eq(world.gpus[0].faultless_bytes, 0);
}
END_TEST

/* Unless what said so has been refused. */
START_TEST(a_managed_job_with_memory_that_must_be_there_is_no_longer_managed) {
  uint64_t granted;
  world_attach(&world, 1, 0, GS_ATTACH_MANAGED);
  ck_assert_int_eq(world_ask(&world, 1, 30, 0, &granted), 0);
  ck_assert(!sched_job_too_big(&world.jobs[1]));
  scheduler_memory_fixed(&world.jobs[1]);
  ck_assert(sched_job_too_big(&world.jobs[1]));
  ck_assert_uint_eq(world.gpus[0].faultless_bytes, 30 * GIB);
  scheduler_memory_managed(&world.jobs[1], true);
  ck_assert(!sched_job_too_big(&world.jobs[1]));
  ck_assert_uint_eq(world.gpus[0].faultless_bytes, 0);
  world.jobs[1].overdue = true;
  scheduler_memory_fixed(&world.jobs[1]);
  ck_assert(world.jobs[1].managed);
  world.jobs[1].overdue = false;
  scheduler_memory_fixed(&world.jobs[1]);
  ck_assert(!world.jobs[1].managed);
}
END_TEST

START_TEST(nobody_comes_with_more_than_card_and_host_have) {
  world.scheduler.host_memory_bytes = 4 * GIB;
  world_attach(&world, 1, 100, 0);
  ck_assert_uint_eq(world.jobs[1].used_bytes, 20 * GIB);
}
END_TEST

START_TEST(absurd_sizes_do_not_overflow) {
  uint64_t granted;
  world_attach(&world, 1, 0, MANAGED);
  world_attach(&world, 2, 1, MANAGED);
  ck_assert_int_eq(
      scheduler_memory_request(&world.jobs[1], UINT64_MAX, UINT64_MAX, world.now_ns, &world.change, &granted),
      -ENOMEM);
  scheduler_memory_report(&world.jobs[1], UINT64_MAX, UINT64_MAX, world.now_ns, &world.change);
  ck_assert_uint_eq(world.gpus[0].used_bytes, GIB); /* it has been granted nothing */
  world_memory(&world, 1, 0);
  ck_assert_uint_eq(world.gpus[0].used_bytes, GIB);
  ck_assert_uint_eq(scheduler_overflow_bytes(&world.scheduler), 0);
}
END_TEST

/* ---- figures ---- */

START_TEST(times_turns_and_handovers_are_counted) {
  take_turns();
  world_attach(&world, 1, 10, MANAGED);
  world_request(&world, 1);
  world_attach(&world, 2, 9, MANAGED);
  world_request(&world, 2);
  world_pass(&world, TQ);
  world_release(&world, 1);
  world_pass(&world, NS_PER_S);
  ck_assert_uint_eq(sched_job_held_ns(&world.jobs[1], world.now_ns), TQ);
  ck_assert_uint_eq(sched_job_held_ns(&world.jobs[2], world.now_ns), NS_PER_S);
  ck_assert_uint_eq(sched_job_waited_ns(&world.jobs[2], world.now_ns), TQ);
  ck_assert_uint_eq(world.jobs[2].turns, 1);
  ck_assert_uint_eq(world.gpus[0].handovers, 1);
  ck_assert_uint_eq(world.gpus[0].moved_bytes, (10 + 9 + 3) * GIB);
  ck_assert_uint_eq(world.gpus[0].evicted_bytes, 3 * GIB);
  ck_assert_uint_eq(world.gpus[0].restored_bytes, (10 + 9) * GIB);
  ck_assert_uint_eq(world.jobs[1].moved_bytes, 13 * GIB);
  ck_assert_uint_eq(world.jobs[1].drain_max_ns, NS_PER_MS);
}
END_TEST

START_TEST(hand_overs_are_measured) {
  const struct sched_handover *handover = &world.gpus[0].handover;
  take_turns();
  world_attach(&world, 1, 10, 0);
  world_request(&world, 1);
  world_attach(&world, 2, 10, 0);
  world_request(&world, 2);
  ck_assert_uint_eq(handover->sum.restored_bytes, 0);
  ck_assert_uint_eq(handover->hidden_bytes, 16 * GIB); /* 10 came while nobody ran, 6 behind the turn */
  world.clients[1].stuck = true;
  world_pass(&world, TQ); /* drop */
  world_pass(&world, 3 * NS_PER_MS);
  world_release(&world, 1);
  world_pass(&world, 5 * NS_PER_MS);
  ck_assert(handover->open);
  world_resident(&world, 1, 6); /* the second one runs */
  ck_assert(!handover->open);
  ck_assert_uint_eq(handover->last.drain_ns, 3 * NS_PER_MS);
  ck_assert_uint_eq(handover->last.move_ns, 5 * NS_PER_MS);
  ck_assert_uint_eq(handover->last.evicted_bytes, 4 * GIB);
  ck_assert_uint_eq(handover->last.restored_bytes, 4 * GIB);
  ck_assert_uint_eq(handover->hidden_bytes, 16 * GIB);
  world.clients[1].stuck = false;
  world_request(&world, 1);
  world_release(&world, 2); /* unasked: it says how long its drain took */
  ck_assert_uint_eq(handover->last.drain_ns, NS_PER_MS);
  ck_assert_uint_eq(handover->last.move_ns, 0);
  ck_assert_uint_eq(handover->sum.drain_ns, 4 * NS_PER_MS);
  ck_assert_uint_eq(handover->sum.move_ns, 5 * NS_PER_MS);
  ck_assert_uint_eq(handover->costs[0], 2); /* up to 1 ms: when the first one began, and the last one */
  ck_assert_uint_eq(handover->costs[3], 1); /* 8 ms */
  ck_assert_uint_eq(handover->sum.evicted_bytes, 8 * GIB);
  ck_assert_uint_gt(handover->cost_ns, NS_PER_MS); /* on average: of the first one's none, 8 ms, and 1 ms */
  ck_assert_uint_lt(handover->cost_ns, 2 * NS_PER_MS);
}
END_TEST

/* So many jobs, of which the last one says only what the test does. */
static const struct sched_handover *begin_restores(int count) {
  take_turns();
  for (int i = 1; i <= count; i++)
    world_attach(&world, i, 10, 0);
  world.clients[count].stuck = true;
  return &world.gpus[0].handover;
}

/* In a hand-over. */
static void restore(uint64_t ns, uint64_t bytes) {
  world_request(&world, 1);
  struct sched_active active = {.epoch = world.jobs[1].epoch, .restore_ns = ns, .restore_bytes = bytes};
  scheduler_active(&world.jobs[1], &active, world.now_ns, &world.change);
  world_release(&world, 1);
}

/* Behind a turn, so much later than the last one. */
static void restore_behind_turn(uint64_t resident_bytes, uint64_t later_ns) {
  struct sched_job *job = &world.jobs[2];
  struct sched_residence residence = {
      .resident_bytes = resident_bytes, .room_seq = job->room_seq, .restored_bytes = UINT64_C(400000000)};
  job->room_bytes = 5 * GIB;
  world.now_ns += later_ns;
  scheduler_resident(job, &residence, world.now_ns, &world.change);
}

START_TEST(the_speed_of_restores_is_averaged) {
  const struct sched_handover *handover = begin_restores(1);
  for (int i = 0; i < 100; i++) {
    restore(NS_PER_S, UINT64_C(40000000000));
    if (i == 0) /* 320 GB in seven times 1.6 s and 1 s */
      ck_assert_uint_eq(handover->bytes_per_s, 26229508196);
  }
  ck_assert_uint_ge(handover->bytes_per_s, 39990000000);
  ck_assert_uint_le(handover->bytes_per_s, 40000000000);
}
END_TEST

/* Each second one is read at once after the one before. */
START_TEST(reports_that_come_late_are_no_speed) {
  const struct sched_handover *handover = begin_restores(2);
  for (uint64_t i = 0; i < 100; i++) {
    restore_behind_turn(i, i % 2 ? 20 * NS_PER_MS : 2000);
    ck_assert_uint_le(handover->bytes_per_s, 50000000000);
  }
  ck_assert_uint_ge(handover->bytes_per_s, 35000000000);
}
END_TEST

/* What comes with them is more than the copies. */
START_TEST(small_restores_are_no_speed) {
  const struct sched_handover *handover = begin_restores(1);
  for (int i = 0; i < 100; i++)
    restore(NS_PER_MS, 1 << 20);
  ck_assert_uint_eq(handover->bytes_per_s, SCHED_BYTES_PER_S);
}
END_TEST

/* It has waited for somebody else, or was stopped; or says so. */
START_TEST(one_report_is_no_speed) {
  const struct {
    uint64_t ns, bytes;
  } odd[] = {{3600 * NS_PER_S, 100000000},
             {UINT64_MAX, 100000000},
             {NS_PER_S, UINT64_MAX},
             {0, UINT64_C(40000000000)}};
  const struct sched_handover *handover = begin_restores(1);
  for (size_t i = 0; i < 4; i++) {
    for (int honest = 0; honest < 20; honest++)
      restore(NS_PER_S, UINT64_C(40000000000));
    restore(odd[i].ns, odd[i].bytes);
    ck_assert_uint_ge(handover->bytes_per_s, UINT64_C(20000000000));
    ck_assert_uint_le(handover->bytes_per_s, UINT64_C(50000000000));
  }
}
END_TEST

/* ---- what programs are told ---- */

START_TEST(scarce_host_memory_is_told_to_all) {
  world.scheduler.host_memory_bytes = 16 * GIB;
  world_attach_at(&world, 0, 1, 10, MANAGED);
  world_attach_at(&world, 1, 2, 6, MANAGED);
  world_said(&world);
  world_memory(&world, 2, 7);
  said("2:capacity 2:room(7) 1:capacity");
  ck_assert(world.scheduler.host_tight);
  world_memory(&world, 2, 6); /* not much less */
  said("2:room(6.01562)");
  world_memory_pinned(&world, 2, 6, 1); /* pinned memory never gets there */
  said("1:capacity 2:capacity");
  ck_assert(!world.scheduler.host_tight);
  world_memory(&world, 2, 7);
  world_said(&world);
  world_detach(&world, 1);
  said("2:capacity");
  world_attach_at(&world, 0, 3, 10, MANAGED); /* ATTACHED says it already */
  said("3:attached 3:off 3:ok(2,10) 2:capacity");
}
END_TEST

START_TEST(who_has_not_chosen_gets_the_memory_of_the_gpu) {
  scheduler_set_memory(&world.scheduler, NULL, GS_MEMORY_SWAP);
  ck_assert_int_eq(world.scheduler.defaults.memory, GS_MEMORY_SWAP);
  scheduler_set_memory(&world.scheduler, &world.gpus[1], GS_MEMORY_MANAGED);
  world_attach_at(&world, 0, 1, 1, GS_ATTACH_DEFAULT);
  world_attach_at(&world, 1, 2, 1, GS_ATTACH_DEFAULT);
  world_attach_at(&world, 0, 3, 1, GS_ATTACH_MANAGED);
  ck_assert(!world.jobs[1].managed);
  ck_assert(world.jobs[2].managed);
  ck_assert(world.jobs[3].managed);
}
END_TEST

START_TEST(places_in_the_queue_are_numbered) {
  take_turns();
  for (int i = 1; i <= 3; i++)
    world_attach(&world, i, 10, MANAGED);
  world_request(&world, 2);
  world_request(&world, 3);
  world_request(&world, 1);
  scheduler_number_queue(&world.gpus[0]);
  ck_assert_uint_eq(world.jobs[2].place, 0);
  ck_assert_uint_eq(world.jobs[3].place, 1);
  ck_assert_uint_eq(world.jobs[1].place, 2);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {only_what_the_next_job_lacks_leaves,
                                pinned_bytes_are_not_asked_for,
                                memory_is_granted_up_to_card_and_host,
                                host_memory_is_shared_by_the_gpus,
                                grants_have_slack_within_the_bound,
                                pinned_memory_must_fit_the_card,
                                a_limit_refuses_growth_and_takes_nothing_away,
                                a_managed_job_with_memory_that_must_be_there_is_no_longer_managed,
                                nobody_comes_with_more_than_card_and_host_have,
                                what_page_faults_fetch_need_not_fit,
                                absurd_sizes_do_not_overflow,
                                times_turns_and_handovers_are_counted,
                                hand_overs_are_measured,
                                the_speed_of_restores_is_averaged,
                                reports_that_come_late_are_no_speed,
                                small_restores_are_no_speed,
                                one_report_is_no_speed,
                                scarce_host_memory_is_told_to_all,
                                who_has_not_chosen_gets_the_memory_of_the_gpu,
                                places_in_the_queue_are_numbered,
                                NULL};
  return suite_main("sched_memory", tests, set_up, NULL);
}
