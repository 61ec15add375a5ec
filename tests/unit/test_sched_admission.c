/* test_sched_admission.c - who has said how much memory it will have, and has none, waits until there is so
 * much. */
#include <errno.h>
#include <string.h>

#include "suite.h"
#include "world.h"

static struct world world;

#define said(text) ck_assert_str_eq(world_said(&world), text)
#define SWAP 0

/* Cards of 16 GiB, and 8 of the host for both. */
static void set_up(void) {
  world_init(&world, GS_MODE_ON);
  world.scheduler.host_memory_bytes = 8 * GIB;
}

static struct sched_terms terms_of(int job) { return world.jobs[job].terms; }

static void say(int job, double gib) {
  struct sched_terms terms = terms_of(job);
  terms.expected_bytes = (uint64_t)(gib * GIB);
  world_set_terms(&world, job, &terms);
}

static void limit(int job, double gib) {
  struct sched_terms terms = terms_of(job);
  terms.limit_bytes = (uint64_t)(gib * GIB);
  world_set_terms(&world, job, &terms);
}

static void come_at(int gpu, int job, double gib, uint32_t flags) {
  world_attach_at(&world, gpu, job, 0, flags);
  if (gib > 0)
    say(job, gib);
  world_said(&world);
}

static void come(int job, double gib) { come_at(0, job, gib, GS_ATTACH_MANAGED); }

/* It has to wait. */
static bool awaits_pinned(int job, double gib, double pinned_gib) {
  return world_await(&world, job, gib, pinned_gib);
}

static bool awaits(int job, double gib) { return awaits_pinned(job, gib, 0); }

static void take(int job, double gib) {
  uint64_t granted_bytes;
  ck_assert(!awaits(job, gib));
  ck_assert_int_eq(world_ask(&world, job, gib, 0, &granted_bytes), 0);
}

static uint64_t used(int job) { return world.jobs[job].used_bytes; }

static enum gs_reason reason(int job) { return sched_job_reason(&world.jobs[job], world.now_ns).why; }

START_TEST(it_waits_until_all_of_it_is_left) {
  come(1, 0);
  take(1, 20);
  come(2, 10);
  ck_assert(awaits(2, 1));
  ck_assert_int_eq(reason(2), GS_REASON_MEMORY);
  ck_assert_uint_eq(sched_job_expected_bytes(&world.jobs[2]), 10 * GIB);
  world_memory(&world, 1, 15); /* of 24 */
  said("");
  world_memory(&world, 1, 14);
  said("2:memory(1)");
  ck_assert_uint_eq(used(2), GIB);
  ck_assert_int_ne(reason(2), GS_REASON_MEMORY);
}
END_TEST

START_TEST(who_says_nothing_is_refused) {
  uint64_t granted_bytes;
  come(1, 0);
  take(1, 20);
  come(2, 0);
  ck_assert(!awaits(2, 5));
  ck_assert_int_eq(world_ask(&world, 2, 5, 0, &granted_bytes), -ENOMEM);
}
END_TEST

START_TEST(who_has_begun_does_not_wait) {
  come(1, 0);
  take(1, 16);
  come(2, 8);
  take(2, 1);
  take(1, 23);
  ck_assert(!awaits(2, 8));
}
END_TEST

/* It wanted the whole of it, and is refused now: who came behind it does not wait for anything else. */
START_TEST(who_waited_and_is_refused_keeps_nobody_waiting) {
  uint64_t granted_bytes;
  come(1, 0);
  take(1, 4);
  come(2, 24);
  come(3, 1);
  ck_assert(awaits(2, 1));
  ck_assert(awaits(3, 1));
  world_said(&world);
  ck_assert(!awaits(2, SCHED_BYTES_MAX / GIB));
  ck_assert_int_eq(world_ask(&world, 2, SCHED_BYTES_MAX / GIB, 0, &granted_bytes), -ENOMEM);
  said("3:memory(1)");
}
END_TEST

START_TEST(nor_does_who_asks_anew) {
  come(1, 0);
  take(1, 4);
  come(2, 24);
  come(3, 1);
  ck_assert(awaits(2, 1));
  ck_assert(awaits(3, 1));
  world_said(&world);
  ck_assert(awaits(2, 2)); /* the last again */
  said("3:memory(1)");
  world_memory(&world, 1, 0);
  said("");
  world_memory(&world, 3, 0);
  said("2:memory(2)");
}
END_TEST

/* What it waits for is what it needs beside holders, and no longer. */
START_TEST(what_it_needs_is_what_it_waits_for) {
  come(1, 0);
  take(1, 20);
  come(2, 10);
  world_request(&world, 2);
  ck_assert(awaits(2, 1));
  ck_assert_uint_eq(world.jobs[2].need_bytes, 10 * GIB);
  say(2, 30);
  ck_assert_uint_eq(world.jobs[2].need_bytes, 24 * GIB);
  world_set_capacity(&world, 12);
  ck_assert_uint_eq(world.jobs[2].need_bytes, 20 * GIB);
  uint64_t granted_bytes;
  world_ask(&world, 2, SCHED_BYTES_MAX / GIB, 0, &granted_bytes);
  ck_assert_uint_eq(world.jobs[2].need_bytes, 0);
}
END_TEST

/* 3 would fit all the time. */
START_TEST(who_came_first_begins_first) {
  come(1, 0);
  take(1, 20);
  come(2, 10);
  come(3, 1);
  ck_assert(awaits(2, 1));
  ck_assert(awaits(3, 1));
  world_memory(&world, 1, 16);
  said("");
  world_memory(&world, 1, 14);
  said("2:memory(1)");
  world_memory(&world, 1, 13);
  said("3:memory(1)");
}
END_TEST

START_TEST(opportunistic_ones_come_last) {
  struct sched_terms terms = {
      .weight = SCHED_WEIGHT, .class = GS_CLASS_OPPORTUNISTIC, .expected_bytes = 10 * GIB};
  come(1, 0);
  take(1, 20);
  come(2, 10);
  world_set_terms(&world, 2, &terms);
  come(3, 10);
  ck_assert(awaits(2, 1));
  ck_assert(awaits(3, 1));
  world_memory(&world, 1, 14);
  said("3:memory(1)");
  world_detach(&world, 1);
  said("2:capacity 2:memory(1) 3:capacity");
}
END_TEST

START_TEST(what_could_never_be_is_not_waited_for) {
  come(1, 0);
  take(1, 20);
  come(2, 100); /* counts with no more than it could have */
  ck_assert(!awaits(2, 25));
  ck_assert(!awaits_pinned(2, 17, 17));
  ck_assert(awaits(2, 24));
  world_detach(&world, 1);
  said("2:memory(24)");
}
END_TEST

START_TEST(nor_once_that_is_clear) {
  come(1, 0);
  take(1, 20);
  come(2, 10);
  ck_assert(awaits(2, 8));
  limit(2, 8);
  said("");
  limit(2, 7);
  said("2:refused");
  ck_assert_uint_eq(used(2), 0);
  limit(2, 0);
  said("");
}
END_TEST

START_TEST(who_takes_back_what_it_has_said_waits_for_what_it_asks) {
  come(1, 0);
  take(1, 20);
  come(2, 10);
  ck_assert(awaits(2, 4));
  say(2, 0);
  said("2:memory(4)");
}
END_TEST

/* Without page faults all must fit the card. */
START_TEST(what_others_have_pinned_is_not_there) {
  come(1, 0);
  world_memory_pinned(&world, 1, 8, 8);
  come_at(0, 2, 10, SWAP);
  ck_assert(awaits(2, 1));
  come_at(0, 3, 4, SWAP);
  ck_assert(awaits_pinned(3, 4, 4));
  world_said(&world);
  world_memory_pinned(&world, 1, 6, 6);
  said("");
  world_memory_pinned(&world, 1, 6 - 1 / 64., 6 - 1 / 64.); /* it may have a little more without asking */
  said("2:memory(1) 3:memory(4)");
}
END_TEST

/* Of the host's 8 GiB. */
START_TEST(other_gpus_take_of_the_same_host_memory) {
  come_at(1, 1, 22, GS_ATTACH_MANAGED);
  take(1, 1);
  come(2, 19);
  ck_assert(awaits(2, 1));
  say(1, 21);
  said("2:memory(1)");
}
END_TEST

/* Both have said that they need each other. */
START_TEST(gangs_do_not_wait) {
  struct sched_gang gang;
  gang_init(&gang);
  come(1, 0);
  take(1, 20);
  come(2, 10);
  ck_assert(scheduler_join(&world.jobs[2], &gang, world.now_ns, &world.change));
  ck_assert(!awaits(2, 1));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {it_waits_until_all_of_it_is_left,
                                who_says_nothing_is_refused,
                                who_has_begun_does_not_wait,
                                who_came_first_begins_first,
                                who_waited_and_is_refused_keeps_nobody_waiting,
                                nor_does_who_asks_anew,
                                what_it_needs_is_what_it_waits_for,
                                opportunistic_ones_come_last,
                                what_could_never_be_is_not_waited_for,
                                nor_once_that_is_clear,
                                who_takes_back_what_it_has_said_waits_for_what_it_asks,
                                what_others_have_pinned_is_not_there,
                                other_gpus_take_of_the_same_host_memory,
                                gangs_do_not_wait,
                                NULL};
  return suite_main("sched_admission", tests, set_up, NULL);
}
