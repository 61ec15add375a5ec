/* test_sched_rooms.c - the plan of who may have how many bytes on the card, a rule at a time. */
#include <errno.h>
#include <string.h>

#include "suite.h"
#include "world.h"

static struct world world;

#define said(text) ck_assert_str_eq(world_said(&world), text)
#define TQ (20 * NS_PER_S)
#define GRACE (30 * NS_PER_S)
#define MANAGED GS_ATTACH_MANAGED
#define SWAP 0

/* Jobs 1 .. n of so many GiB take turns; they have attached and moved what there was to move. */
static void take_turns(int jobs, double gib, uint32_t flags) {
  world_init(&world, GS_MODE_ON);
  world.rooms_shown = true;
  for (int i = 1; i <= jobs; i++)
    world_attach(&world, i, gib, flags);
  world_said(&world);
}

/* These ask for the lock, in this order. */
static void request_all(int jobs) {
  for (int i = 1; i <= jobs; i++)
    world_request(&world, i);
  world_said(&world);
}

/* The holder's quantum ends; it stops, and asks again. */
static void end_turn(int job) {
  world_pass(&world, TQ);
  world_yield(&world, job);
}

static double resident(int job) { return (double)world.clients[job].resident_bytes / GIB; }

static void set_up(void) { take_turns(0, 0, 0); }

/* ---- who leaves ---- */

START_TEST(while_all_fits_rooms_are_told_once) {
  take_turns(4, 4, SWAP);
  request_all(4);
  for (int i = 1; i <= 4; i++)
    end_turn(i);
  said("1:drop(1,4) 2:ok(2,4) 2:wanted(2) 2:drop(2,4) 3:ok(3,4) 3:wanted(3) 3:drop(3,4) 4:ok(4,4) "
       "4:wanted(4) 4:drop(4,4) 1:ok(5,4) 1:wanted(5)");
}
END_TEST

START_TEST(the_longest_idle_leaves_first) {
  take_turns(3, 5, SWAP); /* all of 3 fit */
  request_all(3);
  world_release(&world, 1);
  world_release(&world, 2);
  world_release(&world, 3);
  world_attach(&world, 4, 7, SWAP);
  world_said(&world);
  world_request(&world, 4); /* 1 of 7 is free */
  said("4:ok(4,1) 1:room(0) 2:room(4) 4:room(6) 4:room(7)");
}
END_TEST

START_TEST(who_stops_leaves_before_those_who_wait) {
  take_turns(3, 8, SWAP); /* 1 and 2 are there */
  request_all(3);
  world_pass(&world, TQ);
  said("1:drop(1,8)"); /* 2 lacks nothing */
  world_yield(&world, 1);
  said("2:ok(2,8) 2:wanted(2)");
  world_pass(&world, TQ);
  said("2:drop(2,0)"); /* for 3. Not 1: it runs before 2 does */
  world_yield(&world, 2);
  said("3:ok(3,0) 3:room(8) 3:wanted(3)");
}
END_TEST

/* What has come meanwhile goes back, and no new promise is made of it: that would go on for ever. */
START_TEST(a_promise_taken_back_is_not_given_again_for_what_has_come_since) {
  take_turns(3, 8, SWAP);
  world.clients[2].stuck = true;
  world_set_tq(&world, NS_PER_S); /* moves are worth hiding */
  request_all(3);
  world_resident(&world, 2, 0);
  uint64_t room_bytes = world.clients[2].room_bytes, seq = world.clients[2].room_seq;
  ck_assert_uint_gt(room_bytes, GIB);
  struct sched_terms urgent = {.weight = SCHED_WEIGHT, .priority = 5};
  scheduler_set_terms(&world.jobs[3], &urgent, world.now_ns, &world.change);
  scheduler_set_policy(&world.scheduler, NULL, GS_POLICY_PRIORITY, world.now_ns, &world.change);
  world_set_mode(&world, GS_MODE_ON); /* all is told */
  ck_assert_uint_eq(world.clients[2].room_bytes, 0);
  uint64_t lowered_seq = world.clients[2].room_seq;
  world.clients[2].room_seq = seq; /* this was on its way */
  world_resident(&world, 2, 1);
  ck_assert_uint_eq(world.jobs[2].room_bytes, 0);
  world.clients[2].room_seq = lowered_seq;
  world_resident(&world, 2, 0);
  ck_assert_uint_eq(world.jobs[2].room_bytes, 0);
}
END_TEST

/* Also before the job has said so. */
START_TEST(pinned_bytes_are_there_as_far_as_there_is_room) {
  world.clients[1].stuck = true;
  world_attach(&world, 1, 0, SWAP);
  world_memory_pinned(&world, 1, 4, 3);
  world_memory_pinned(&world, 1, 4, 3); /* from then on there is room */
  ck_assert_uint_eq(world.jobs[1].resident_bytes, 3 * GIB);
}
END_TEST

/* With each event, the room for what has yet to come would be taken back, or given again. */
START_TEST(room_for_what_cant_leave_is_told_once) {
  take_turns(3, 12, MANAGED);
  request_all(1);
  world.clients[2].stuck = true;
  world_memory_pinned(&world, 2, 12, 1);
  said("2:room(1)");
  world_request(&world, 3);
  said("3:room(3) 1:wanted(1)");
}
END_TEST

/* Two of 6 GiB, and one of 8 that is idle. */
static void come_beside_an_idle_one(void) {
  world_init(&world, GS_MODE_AUTO);
  for (int i = 1; i <= 3; i++)
    world_attach(&world, i, i == 1 ? 8 : 6, SWAP);
  world_release(&world, 1);
  world_release(&world, 2);
}

static bool holds(int job) { return world.jobs[job].state == GS_JOB_HOLDING; }

START_TEST(beside_them_others_hold_together_as_far_as_they_fit) {
  come_beside_an_idle_one();
  world_memory_pinned(&world, 1, 8, 8);
  world_request(&world, 2);
  world_request(&world, 3);
  ck_assert(holds(2) && !holds(3));
}
END_TEST

START_TEST(so_they_do_beside_memory_that_stays) {
  come_beside_an_idle_one();
  world.clients[1].cramped = true;
  world_request(&world, 2);
  world_request(&world, 3);
  ck_assert(holds(2) && holds(3));
  world_pass(&world, GRACE);
  ck_assert(holds(2) != holds(3));
}
END_TEST

/* Processes that are no jobs, say. */
START_TEST(what_nobody_here_has_is_not_there) {
  world_init(&world, GS_MODE_AUTO);
  world_attach(&world, 1, 8, SWAP);
  world_attach(&world, 2, 8, SWAP);
  ck_assert(!world.gpus[0].serialized);
  scheduler_set_away(&world.gpus[0], GIB, world.now_ns, &world.change);
  ck_assert(world.gpus[0].serialized);
  scheduler_set_away(&world.gpus[0], 0, world.now_ns, &world.change);
  ck_assert(!world.gpus[0].serialized);
}
END_TEST

/* If they might keep what is left when less is lacking, each could bring back what the other one has left
 * meanwhile, and the holder would wait for both. */
START_TEST(who_has_been_told_to_leave_leaves_though_less_is_lacking_now) {
  world_init(&world, GS_MODE_ON);
  world.rooms_shown = true;
  world_attach(&world, 1, 8, SWAP);
  world_attach(&world, 2, 4, SWAP);
  world_attach(&world, 3, 4, SWAP);
  request_all(1);
  world.clients[2].stuck = world.clients[3].stuck = true;
  uint64_t granted;
  ck_assert_int_eq(world_ask(&world, 1, 13, 0, &granted), 0);
  said("2:room(0) 3:room(3)");
  world_memory(&world, 1, 9 - 1.0 / 64); /* and 16 MiB that it need not ask for */
  said("");
  world_resident(&world, 3, 3);
  said("1:room(9)");
  world_resident(&world, 2, 3);
  world_resident(&world, 3, 3);
  said("");
  world_request(&world, 2); /* its turn is near */
  said("2:room(4) 1:wanted(1)");
}
END_TEST

/* Who stops is the one that runs last, as long as it has not asked again. */
START_TEST(who_asks_again_in_time_keeps_what_those_behind_it_have) {
  world_init(&world, GS_MODE_ON);
  world.rooms_shown = true;
  world_set_policy(&world, GS_POLICY_FIFO);
  world_attach(&world, 1, 0, SWAP);
  world_attach(&world, 2, 8, SWAP);
  world_attach(&world, 3, 8, SWAP);
  world_memory(&world, 1, 6);
  world_pass(&world, TQ); /* what an interruption may cost is saved up */
  world_request(&world, 2);
  world_request(&world, 3);
  world_said(&world);
  world.clients[2].stuck = true;
  world_request(&world, 1);
  said("2:drop(1,2)");
  world_release(&world, 2);
  said("1:ok(2,0)");
  world_request(&world, 2);
  said("3:room(2) 2:room(8) 1:room(6) 1:wanted(2)");
}
END_TEST

/* ---- behind the turn ---- */

START_TEST(the_second_gets_what_is_free_and_what_idle_jobs_have) {
  take_turns(3, 6, SWAP); /* 2 of them are there */
  world_request(&world, 1);
  world_said(&world);
  world_request(&world, 3);
  said("3:room(4) 1:wanted(1)");
  world_pass(&world, SCHED_IDLE_NS - 1);
  said("");
  world_pass(&world, 1); /* idle for long enough */
  said("2:room(4) 3:room(6)");
}
END_TEST

START_TEST(who_asks_again_soon_has_not_been_idle) {
  take_turns(3, 8, SWAP);
  request_all(3);
  world_pass(&world, TQ);
  world_release(&world, 1);
  said("1:drop(1,8) 2:ok(2,8) 2:wanted(2)");
  world_pass(&world, NS_PER_MS);
  world_request(&world, 1);
  world_pass(&world, NS_PER_S);
  said(""); /* it is not the one that runs last: that will be 2 */
}
END_TEST

START_TEST(the_second_waits_until_the_first_one_runs) {
  take_turns(3, 6, SWAP);
  world_pass(&world, SCHED_IDLE_NS);
  world.clients[1].stuck = true;
  world_request(&world, 1);
  world_said(&world);
  world_request(&world, 3);
  said("");
  world_active(&world, 1);
  said("2:room(4) 3:room(4) 1:wanted(1) 3:room(6)");
}
END_TEST

START_TEST(waiting_jobs_leave_early_only_if_it_is_worth_it) {
  take_turns(3, 8, SWAP);
  request_all(3);
  end_turn(1);
  said("1:drop(1,8) 2:ok(2,8) 2:wanted(2)"); /* 8 GiB are a third of a second of 20 */
  world_set_tq(&world, 5 * NS_PER_S);        /* of 5: to be hidden */
  said("1:room(0) 3:room(8)");
}
END_TEST

START_TEST(hiding_goes_on_until_it_is_done) {
  take_turns(3, 8, SWAP);
  request_all(3);
  end_turn(1);
  world.clients[1].stuck = true;
  world_set_tq(&world, 5 * NS_PER_S);
  world_said(&world);
  for (int left = 7; left > 0; left--) {
    world_resident(&world, 1, left);
    ck_assert_double_eq(resident(3), 8 - left);
  }
  ck_assert_uint_eq(world.jobs[1].room_bytes, 0);
}
END_TEST

/* The second one has grown meanwhile. */
START_TEST(also_if_a_little_more_is_lacking) {
  take_turns(0, 0, SWAP);
  for (int i = 1; i <= 3; i++)
    world_attach(&world, i, i == 3 ? 6 : 8, SWAP);
  request_all(3);
  end_turn(1);
  world_set_tq(&world, 4 * NS_PER_S); /* 6 GiB take longer than a twentieth of it */
  ck_assert_double_eq(resident(1), 2);
  uint64_t granted_bytes;
  ck_assert_int_eq(world_ask(&world, 3, 6.5, 0, &granted_bytes), 0);
  ck_assert_double_eq(resident(1), 1.5);
}
END_TEST

START_TEST(what_moves_slower_is_worth_hiding_sooner) {
  take_turns(3, 8, SWAP);
  request_all(3);
  end_turn(1);
  world_said(&world);
  world.gpus[0].handover.bytes_per_s = 5 * GIB; /* 1.6 s of 20 */
  world_set_tq(&world, TQ);
  said("1:room(0) 3:room(8)");
}
END_TEST

/* ---- as others leave ---- */

START_TEST(room_comes_as_it_is_given_back) {
  take_turns(2, 12, SWAP);
  request_all(2);
  world.clients[1].stuck = true;
  world_pass(&world, TQ);
  world_release(&world, 1);
  said("1:drop(1,4) 2:ok(2,4)");
  world_resident(&world, 1, 11);
  said("2:room(5)");
  world_resident(&world, 1, 11 - 1.0 / 128); /* 8 MiB are not worth a message */
  said("");
  world_resident(&world, 1, 11 - 1.0 / 64);
  said("2:room(5.01562)");
  world_resident(&world, 1, 4 + 1.0 / 128);
  said("2:room(11.9922)");
  world_resident(&world, 1, 4); /* but the last ones are */
  said("2:room(12)");
}
END_TEST

/* The holder may allocate a little more than it has. */
START_TEST(room_that_is_enough_to_begin_with_comes_at_once) {
  uint64_t granted_bytes;
  take_turns(2, 12, SWAP);
  request_all(2);
  world.clients[1].stuck = world.clients[2].stuck = true;
  world_pass(&world, TQ);
  world_release(&world, 1);
  ck_assert_int_eq(world_ask(&world, 2, 12 + 1.0 / 1024, 0, &granted_bytes), 0);
  world_resident(&world, 1, 4);
  ck_assert_uint_eq(world.jobs[2].room_bytes, 12 * GIB);
  world_resident(&world, 1, 4 - 1.0 / 512); /* 2 MiB */
  ck_assert_uint_ge(world.jobs[2].room_bytes, world.jobs[2].used_bytes);
}
END_TEST

START_TEST(a_room_that_was_not_used_must_be_acknowledged) {
  take_turns(2, 12, SWAP); /* nothing of the second is there */
  world.clients[2].stuck = true;
  world_detach(&world, 1);
  said("2:room(12)"); /* it may have taken it in by now */
  world_attach(&world, 3, 10, SWAP);
  world_request(&world, 3);
  said("3:attached 3:on 3:room(0) 2:room(0) 3:ok(1,4)");
  world.clients[2].room_seq--; /* a report that has crossed the lower room */
  world_resident(&world, 2, 0);
  said("");
  world.clients[2].room_seq += 2; /* one about a room that nobody has told it of */
  world_resident(&world, 2, 0);
  said("");
  world.clients[2].room_seq--;
  world_resident(&world, 2, 0);
  said("3:room(10)");
}
END_TEST

START_TEST(nobody_leaves_for_what_might_be_allocated) {
  uint64_t granted;
  take_turns(0, 0, 0);
  world_attach(&world, 1, 0, SWAP);
  world_request(&world, 1);
  ck_assert_int_eq(world_ask(&world, 1, 8 + 1.0 / 512, 0, &granted), 0);
  ck_assert_uint_eq(granted, 8 * GIB + SCHED_SLACK_BYTES);
  world_attach(&world, 2, 10, SWAP);
  world_request(&world, 2);
  end_turn(1);
  world_said(&world);
  end_turn(2);
  said("2:drop(2,7.99805) 1:ok(3,6) 1:room(8.00195) 1:wanted(3)");
  world_memory(&world, 1, 8 + 2.0 / 512); /* but once it does allocate something, for all that it may */
  said("2:room(7.98438) 1:room(8.01562)");
}
END_TEST

/* 1 MiB less than half of the card is used, and half granted; another one comes, which has the rest. */
static void give_up_slack(enum gs_mode mode) {
  uint64_t granted;
  world_init(&world, mode);
  world.rooms_shown = true;
  world_attach(&world, 1, 0, SWAP);
  ck_assert_int_eq(world_ask(&world, 1, 8 - 1.0 / 1024, 0, &granted), 0);
  ck_assert_uint_eq(granted, 8 * GIB);
  world_said(&world);
  world_attach(&world, 2, 8 + 1.0 / 1024, SWAP);
  ck_assert_double_eq(resident(1), 8 - 1.0 / 1024);
  ck_assert_double_eq(resident(2), 8 + 1.0 / 1024);
}

START_TEST(what_is_granted_but_not_used_makes_nobody_leave) {
  give_up_slack(GS_MODE_ON);
  said("2:attached 2:on 2:room(8) 1:room(7.99902) 2:room(8.00098)"); /* 8 were free */
  give_up_slack(GS_MODE_AUTO);
  said("2:attached 2:off 2:ok(2,8) 1:room(7.99902) 2:room(8.00098)");
}
END_TEST

static uint64_t room_mib(int job) { return world.jobs[job].room_bytes >> 20; }

START_TEST(what_is_left_may_be_allocated_unasked) {
  const double mib = 1.0 / 1024;
  uint64_t granted;
  for (int i = 1; i <= 2; i++) {
    world_attach(&world, i, 0, SWAP);
    ck_assert_int_eq(world_ask(&world, i, 4 + 2 * mib, 0, &granted), 0);
    ck_assert_uint_eq(room_mib(i), 4096 + 16);
  }
  world_attach(&world, 3, 8 - 10 * mib, SWAP);
  ck_assert_uint_eq(room_mib(1), 4096 + 2);
  ck_assert_uint_eq(room_mib(2), 4096 + 8);
  ck_assert_uint_eq(room_mib(3), 8192 - 10);
  world_memory(&world, 3, 8 - 30 * mib); /* it may allocate 16 of these 20 again unasked */
  ck_assert_uint_eq(room_mib(1), 4096 + 6);
  ck_assert_uint_eq(room_mib(2), 4096 + 8);
  ck_assert_uint_eq(room_mib(3), 8192 - 14);
}
END_TEST

/* ---- who does not answer ---- */

/* Three of 5; the first one has grown to 10. The one that has been idle for longer is stuck. */
static void ask_a_stuck_victim(uint32_t flags) {
  uint64_t granted;
  take_turns(3, 5, flags);
  world.clients[2].stuck = true;
  world_request(&world, 1);
  world_said(&world);
  ck_assert_int_eq(world_ask(&world, 1, 10, 0, &granted), 0);
  said("2:room(1) 1:room(6)");
}

START_TEST(a_victim_that_stays_is_replaced) {
  ask_a_stuck_victim(SWAP);
  world_pass(&world, GRACE - 1);
  said("");
  world_pass(&world, 1);
  said("2:stays 3:room(1) 1:room(10)");
  ck_assert_uint_eq(sched_job_flags(&world.jobs[2]), GS_STATE_OVERDUE);
  world_resident(&world, 2, 1);
  ck_assert_uint_eq(sched_job_flags(&world.jobs[2]), 0);
}
END_TEST

START_TEST(progress_is_waited_for) {
  ask_a_stuck_victim(SWAP);
  world_pass(&world, GRACE - 1);
  world_resident(&world, 2, 4);
  said("1:room(7)");
  world_pass(&world, GRACE - 1);
  said("");
  world_pass(&world, 1);
  said("2:stays 3:room(2) 1:room(10)");
}
END_TEST

START_TEST(managed_memory_that_stays_makes_way_by_itself) {
  ask_a_stuck_victim(MANAGED);
  world_pass(&world, GRACE);
  said("2:stays 1:room(10)");
}
END_TEST

START_TEST(managed_memory_beside_memory_that_stays_gets_its_room_anyway) {
  take_turns(1, 12, SWAP);
  world_attach(&world, 2, 12, MANAGED);
  request_all(2);
  world.clients[1].stuck = true;
  world_pass(&world, TQ);
  world_pass(&world, NS_PER_S);
  world_release(&world, 1);
  said("1:drop(1,4) 2:ok(2,4)");
  world_pass(&world, GRACE);
  said("1:stays 2:room(12)");
}
END_TEST

START_TEST(a_bypassed_job_makes_way) {
  take_turns(2, 12, MANAGED);
  request_all(2);
  world.clients[1].stuck = true;
  world_pass(&world, TQ + GRACE);
  said("1:drop(1,4) 1:bypassed 2:ok(2,12)");
}
END_TEST

/* ---- who finds no host memory to leave to ---- */

/* Two of 12; the first one cannot leave for the second, which holds. Both want to run. */
static void wait_for_a_cramped_victim(void) {
  take_turns(2, 12, SWAP);
  world.clients[1].cramped = true;
  request_all(2);
  end_turn(1);
  said("1:drop(1,4) 2:ok(2,4)");
}

START_TEST(who_stays_runs_instead) {
  wait_for_a_cramped_victim();
  world_pass(&world, GRACE - 1);
  said("");
  world_pass(&world, 1);
  said("1:room(12) 1:stays 2:drop(2,4)");
  world_yield(&world, 2);
  said("1:ok(3,12)");
  ck_assert(world.jobs[1].active);
}
END_TEST

START_TEST(it_is_asked_again_after_the_grace) {
  wait_for_a_cramped_victim();
  world_pass(&world, GRACE);
  world_yield(&world, 2);
  world_said(&world);
  world_pass(&world, GRACE - 1); /* though its quantum is over */
  said("");
  world_pass(&world, 1);
  said("1:drop(3,4)");
  world.clients[1].cramped = false;
  world_yield(&world, 1);
  said("2:ok(4,4) 2:room(12) 2:wanted(4)");
}
END_TEST

START_TEST(what_it_gives_back_later_is_taken) {
  wait_for_a_cramped_victim();
  world_pass(&world, GRACE);
  world_release(&world, 2);
  world_release(&world, 1); /* nobody wants to run */
  world_request(&world, 2); /* and then this one, sooner than it would be tried again */
  world_said(&world);
  world.clients[1].cramped = false;
  world_set_tq(&world, TQ);
  said("2:room(12)");
  ck_assert(world.jobs[2].active);
}
END_TEST

/* 8 of the first one stay, and the second one cannot have 12; the third and the fourth share the rest. */
START_TEST(who_fits_beside_it_runs) {
  take_turns(1, 8, SWAP);
  world_attach(&world, 2, 12, SWAP);
  world_attach(&world, 3, 5, SWAP);
  world_attach(&world, 4, 5, SWAP);
  world.clients[1].cramped = true;
  request_all(4);
  end_turn(1);
  said("1:drop(1,4) 2:ok(2,8)");
  world_pass(&world, GRACE);
  said("1:stays 2:drop(2,3) 3:room(5)");
  world_yield(&world, 2);
  said("3:ok(3,5) 2:room(0) 3:wanted(3) 4:room(3)"); /* who cannot run leaves first */
  ck_assert_int_eq(sched_job_reason(&world.jobs[2], world.now_ns).why, GS_REASON_STAYING);
  world_set_tq(&world, TQ / 4);
  for (int i = 0; i < 2; i++)
    for (int id = 3; id != 2; id = id == 4 ? 1 : id == 1 ? 2 : 4) {
      ck_assert_int_eq(world.jobs[id].state, GS_JOB_HOLDING);
      ck_assert(world.jobs[id].active);
      world_pass(&world, TQ / 4);
      world_yield(&world, id);
      ck_assert_uint_eq(world.jobs[1].room_bytes, 8 * GIB); /* it is not asked */
    }
}
END_TEST

/* It is less than the card has, but more than the first one leaves of it. */
/* It needs no answer for that, so nobody else may have it. */
START_TEST(what_a_holder_that_grows_may_allocate_is_its_own) {
  uint64_t granted_bytes;
  world_init(&world, GS_MODE_AUTO);
  world_attach(&world, 1, 4, SWAP);
  world_attach(&world, 2, 16 - 4.005, SWAP);
  world_attach(&world, 3, 8, SWAP); /* so that turns are taken; it does nothing */
  for (int i = 2; i <= 3; i++)
    world_release(&world, i);
  world_request(&world, 1);
  ck_assert_int_eq(world_ask(&world, 1, 4.001, 0, &granted_bytes), 0);
  ck_assert_uint_gt(granted_bytes, world.jobs[1].used_bytes);
  world_request(&world, 2);
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_WAITING);
}
END_TEST

START_TEST(while_nobody_else_can_run_a_holder_goes_on_waiting) {
  wait_for_a_cramped_victim();
  world_release(&world, 2);
  world_said(&world);
  world_release(&world, 1);
  world_request(&world, 2);
  world_attach(&world, 3, 14, SWAP); /* for this one there is no room, either */
  world_request(&world, 3);
  world_said(&world);
  world_pass(&world, GRACE);
  said("1:stays");
  world_pass(&world, 100 * GRACE);
  said("");
  world_request(&world, 1);
  said("2:drop(4,4) 1:room(12)");
}
END_TEST

/* ---- when the quantum begins ---- */

START_TEST(the_quantum_begins_when_the_job_runs) {
  take_turns(2, 12, SWAP);
  request_all(2);
  world.clients[1].stuck = true;
  world_pass(&world, TQ);
  world_release(&world, 1);
  world_request(&world, 1);
  world_pass(&world, 5 * NS_PER_S);
  world_resident(&world, 1, 4);
  world_said(&world);
  world_pass(&world, TQ - 1);
  said("");
  world_pass(&world, 1);
  said("2:drop(2,4)");
}
END_TEST

START_TEST(or_the_grace_after_its_grant) {
  take_turns(2, 4, SWAP);
  world.clients[1].stuck = true;
  request_all(2);
  world_pass(&world, GRACE + TQ - 1);
  said("");
  world_pass(&world, 1);
  said("1:drop(1,4)");
}
END_TEST

/* ---- too big ---- */

START_TEST(that_a_job_is_too_big_is_noted_once) {
  take_turns(1, 8, SWAP);
  world_set_capacity(&world, 6);
  world_said(&world);
  world_request(&world, 1);
  world_set_tq(&world, TQ);
  said("1:toobig");
  world_set_capacity(&world, 8);
  said("1:capacity 1:ok(1,8)");
  world_set_capacity(&world, 6); /* also when it holds: it stops */
  said("1:capacity 1:drop(1,6) 1:toobig");
}
END_TEST

static void refused_for(int job, double total_gib, double pinned_gib, enum gs_refusal why) {
  uint64_t granted, total_bytes = (uint64_t)(total_gib * GIB), pinned_bytes = (uint64_t)(pinned_gib * GIB);
  ck_assert_int_eq(world_ask(&world, job, total_gib, pinned_gib, &granted), -ENOMEM);
  ck_assert_int_eq(sched_job_why_refused(&world.jobs[job], total_bytes, pinned_bytes), why);
}

START_TEST(a_refusal_has_a_reason) {
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .limit_bytes = 4 * GIB};
  take_turns(1, 2, SWAP);
  world_attach(&world, 2, 2, MANAGED);
  world_memory_pinned(&world, 2, 2, 2);
  refused_for(1, 14.5, 0, GS_REFUSAL_CAPACITY);
  refused_for(1, 14.5, 14.5, GS_REFUSAL_PINNED);
  world.scheduler.host_memory_bytes = GIB;
  refused_for(2, 15.5, 2, GS_REFUSAL_SPENT);
  world_set_terms(&world, 2, &terms);
  refused_for(2, 15.5, 2, GS_REFUSAL_LIMIT);
}
END_TEST

/* ---- the card has less than it says ---- */

START_TEST(what_was_refused_may_be_tried_again_where_nobody_has_to_leave) {
  take_turns(1, 8, SWAP);
  world_request(&world, 1);
  world_said(&world);
  world_short(&world, 1, 1);
  said("1:capacity 1:room(8)"); /* as before, but it is told */
}
END_TEST

static uint64_t usable_gib(void) { return sched_gpu_usable_bytes(&world.gpus[0]) / GIB; }

START_TEST(what_was_refused_is_tried_again) {
  take_turns(2, 15.5, SWAP);
  world_request(&world, 1);
  world_short(&world, 1, 1);
  world_request(&world, 2);
  world_release(&world, 1); /* both are too big now */
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_WAITING);
  world_said(&world);
  world_pass(&world, 10 * NS_PER_S - 1);
  said("");
  world_pass(&world, 1);
  said("1:capacity 1:room(0.5) 2:capacity 2:ok(2,1) 2:room(15.5)");
  ck_assert(world.jobs[2].active);
}
END_TEST

START_TEST(less_and_less_often_until_somebody_leaves) {
  take_turns(2, 8, SWAP);
  world_request(&world, 1);
  for (uint64_t s = 10; s <= 640; s *= 2) {
    world_short(&world, 1, 1);
    world_pass(&world, NS_PER_S);
    world_short(&world, 1, 1); /* what else is found out meanwhile is tried at the same time */
    ck_assert_uint_eq(usable_gib(), 14);
    world_pass(&world, (s < 320 ? s : 320) * NS_PER_S - NS_PER_S - 1);
    ck_assert_uint_eq(usable_gib(), 14);
    world_pass(&world, 1);
    ck_assert_uint_eq(usable_gib(), 16);
    world_pass(&world, NS_PER_S);
  }
  world_detach(&world, 2);
  world_short(&world, 1, 1);
  world_pass(&world, 10 * NS_PER_S);
  ck_assert_uint_eq(usable_gib(), 16);
}
END_TEST

/* One of 12 GiB holds and has 8 on the card, one of 4 is there; the driver refuses the first one the last
 * GiB. Returns the room for which it does. */
static uint64_t be_refused(void) {
  world.clients[1].stuck = true;
  world_attach(&world, 1, 12, SWAP);
  world_attach(&world, 2, 4, SWAP);
  world.clients[2].stuck = true;
  world_request(&world, 1);
  world_resident(&world, 1, 8);
  uint64_t seq = world.clients[1].room_seq;
  world_short(&world, 1, 1);
  return seq;
}

START_TEST(what_was_refused_comes_once_others_have_left) {
  be_refused();
  ck_assert_uint_eq(world.clients[1].room_bytes, 11 * GIB);
  world_resident(&world, 1, 9);
  ck_assert_uint_eq(world.jobs[1].claim_bytes, 11 * GIB);
  ck_assert_uint_eq(world.clients[1].room_bytes, 11 * GIB);
  world_resident(&world, 2, 3);
  ck_assert_uint_eq(world.clients[1].room_bytes, 12 * GIB);
}
END_TEST

/* Until the job has heard of the answer, it tries again, and the driver may have more for it by then. */
START_TEST(what_was_refused_may_have_come_meanwhile) {
  world.clients[1].room_seq = be_refused();
  world_resident(&world, 1, 12);
  ck_assert_uint_eq(world.jobs[1].resident_bytes, 12 * GIB);
  ck_assert_uint_eq(world.clients[1].room_bytes, 12 * GIB);
}
END_TEST

/* After the daemon was started anew: the second one, whose memory is on the card, comes later. */
START_TEST(refused_for_memory_of_a_job_that_comes_later) {
  world_init(&world, GS_MODE_AUTO);
  world.clients[1].stuck = true;
  world_attach(&world, 1, 12, SWAP);
  world_resident(&world, 1, 4);
  world_short(&world, 1, 8);
  ck_assert_uint_eq(usable_gib(), 8);
  world_attach(&world, 2, 12, SWAP | GS_ATTACH_RUNNING);
  ck_assert_uint_eq(usable_gib(), 16);
}
END_TEST

START_TEST(refused_for_memory_that_has_yet_to_leave) {
  world_init(&world, GS_MODE_AUTO);
  world.clients[1].stuck = world.clients[2].stuck = true;
  world_attach(&world, 1, 12, SWAP);
  world_attach(&world, 2, 12, SWAP | GS_ATTACH_RUNNING);
  ck_assert_int_eq(world.jobs[2].state, GS_JOB_DROPPING); /* the first one holds already */
  world_resident(&world, 1, 4);
  world_short(&world, 1, 8);
  ck_assert_uint_eq(usable_gib(), 16);
  world_release(&world, 2);
  world_resident(&world, 2, 4);
  ck_assert_uint_eq(world.clients[1].room_bytes, 12 * GIB);
}
END_TEST

/* ---- without turns ---- */

START_TEST(without_turns_faults_decide) {
  world_init(&world, GS_MODE_OFF);
  world.rooms_shown = true;
  world_attach(&world, 1, 10, MANAGED);
  world_attach(&world, 2, 10, MANAGED);
  said("1:attached 1:off 1:ok(1,10) 2:attached 2:off 2:ok(2,10)");
}
END_TEST

START_TEST(memory_without_faults_that_does_not_fit_takes_turns_in_mode_off) {
  world_init(&world, GS_MODE_OFF);
  world.scheduler.settle_ns = TQ + NS_PER_S;
  world_attach(&world, 1, 10, SWAP);
  world_attach(&world, 2, 4, MANAGED);
  world_said(&world);
  world_attach(&world, 3, 10, SWAP);
  world_request(&world, 3);
  said("3:attached 3:on 1:on 2:on 1:wanted(1) 2:wanted(2)");
  end_turn(1);
  said("1:drop(1) 2:unwanted(2) 3:ok(3) 2:wanted(2) 3:wanted(3)");
  ck_assert(world.jobs[3].active);
  world_memory(&world, 1, 2); /* as in mode auto, until all fits and that has settled */
  said("1:ok(4) 2:unwanted(2) 3:unwanted(3)");
  world_pass(&world, NS_PER_S);
  said("1:off 2:off 3:off");
}
END_TEST

/* It waits for nothing, and what others have is as slow as it was. */
START_TEST(pinned_memory_takes_no_turns_in_mode_off) {
  world_init(&world, GS_MODE_OFF);
  world_attach(&world, 1, 4, SWAP);
  world_memory_pinned(&world, 1, 4, 4);
  world_attach(&world, 2, 14, MANAGED);
  said("1:attached 1:off 1:ok(1) 2:attached 2:off 2:ok(2)");
}
END_TEST

/* Also for what they may allocate unasked. */
START_TEST(all_the_room_that_jobs_may_ask_for_comes_back) {
  uint64_t granted_bytes;
  take_turns(1, 4, SWAP);
  ck_assert_int_eq(world_ask(&world, 1, 5.001, 0, &granted_bytes), 0);
  ck_assert_uint_gt(granted_bytes, world.jobs[1].used_bytes);
  world_attach(&world, 2, 12, SWAP);
  world_request(&world, 2);
  ck_assert_double_eq(resident(1), 4);
  world_detach(&world, 2);
  ck_assert_uint_eq(world.jobs[1].room_bytes, granted_bytes);
}
END_TEST

/* It frees some of that, and allocates a little unasked: it is there, as it knows of no room yet. */
START_TEST(what_was_there_when_it_came_may_come_back_until_it_has_heard) {
  struct sched_attach attach = {.id = 2, .used_bytes = 4 * GIB, .resident_bytes = GIB};
  struct sched_job *job = &world.jobs[2];
  world_init(&world, GS_MODE_ON);
  world_attach(&world, 1, 16, 0);
  world_request(&world, 1);
  world.clients[2] = (struct world_client){.there = true, .stuck = true, .resident_bytes = GIB};
  scheduler_attach(&world.gpus[0], job, &attach, world.now_ns, &world.change);
  scheduler_memory_report(job, GIB / 2, 0, world.now_ns, &world.change);
  ck_assert_uint_eq(job->room_bytes, 0);
  ck_assert_uint_eq(job->claim_bytes, GIB / 2 + SCHED_SLACK_BYTES);
  scheduler_resident(job, &(struct sched_residence){.resident_bytes = GIB / 2}, world.now_ns, &world.change);
  ck_assert_uint_eq(job->claim_bytes, GIB / 2 + SCHED_SLACK_BYTES); /* that crossed its first room */
  for (struct sched_action action; change_next(&world.change, &action);)
    ; /* now it hears */
  scheduler_resident(job, &(struct sched_residence){.room_seq = job->room_seq}, world.now_ns, &world.change);
  ck_assert_uint_eq(job->claim_bytes, 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {while_all_fits_rooms_are_told_once,
                                what_was_there_when_it_came_may_come_back_until_it_has_heard,
                                the_longest_idle_leaves_first,
                                who_stops_leaves_before_those_who_wait,
                                a_promise_taken_back_is_not_given_again_for_what_has_come_since,
                                pinned_bytes_are_there_as_far_as_there_is_room,
                                room_for_what_cant_leave_is_told_once,
                                beside_them_others_hold_together_as_far_as_they_fit,
                                so_they_do_beside_memory_that_stays,
                                what_nobody_here_has_is_not_there,
                                who_has_been_told_to_leave_leaves_though_less_is_lacking_now,
                                who_asks_again_in_time_keeps_what_those_behind_it_have,
                                the_second_gets_what_is_free_and_what_idle_jobs_have,
                                who_asks_again_soon_has_not_been_idle,
                                the_second_waits_until_the_first_one_runs,
                                waiting_jobs_leave_early_only_if_it_is_worth_it,
                                hiding_goes_on_until_it_is_done,
                                also_if_a_little_more_is_lacking,
                                what_moves_slower_is_worth_hiding_sooner,
                                room_comes_as_it_is_given_back,
                                room_that_is_enough_to_begin_with_comes_at_once,
                                a_room_that_was_not_used_must_be_acknowledged,
                                nobody_leaves_for_what_might_be_allocated,
                                what_is_granted_but_not_used_makes_nobody_leave,
                                what_is_left_may_be_allocated_unasked,
                                a_victim_that_stays_is_replaced,
                                progress_is_waited_for,
                                managed_memory_that_stays_makes_way_by_itself,
                                managed_memory_beside_memory_that_stays_gets_its_room_anyway,
                                a_bypassed_job_makes_way,
                                who_stays_runs_instead,
                                it_is_asked_again_after_the_grace,
                                what_it_gives_back_later_is_taken,
                                who_fits_beside_it_runs,
                                what_a_holder_that_grows_may_allocate_is_its_own,
                                while_nobody_else_can_run_a_holder_goes_on_waiting,
                                the_quantum_begins_when_the_job_runs,
                                or_the_grace_after_its_grant,
                                that_a_job_is_too_big_is_noted_once,
                                a_refusal_has_a_reason,
                                what_was_refused_may_be_tried_again_where_nobody_has_to_leave,
                                what_was_refused_is_tried_again,
                                less_and_less_often_until_somebody_leaves,
                                what_was_refused_comes_once_others_have_left,
                                what_was_refused_may_have_come_meanwhile,
                                refused_for_memory_of_a_job_that_comes_later,
                                refused_for_memory_that_has_yet_to_leave,
                                without_turns_faults_decide,
                                memory_without_faults_that_does_not_fit_takes_turns_in_mode_off,
                                pinned_memory_takes_no_turns_in_mode_off,
                                all_the_room_that_jobs_may_ask_for_comes_back,
                                NULL};
  return suite_main("sched_rooms", tests, set_up, NULL);
}
