/* test_sched_clean.c - whose memory leaves the card, by what must be copied: what has not changed since it
 * was in host memory leaves without a copy. */
#include <stdio.h>

#include "common/clock.h"
#include "common/splitmix.h"
#include "suite.h"
#include "world.h"

static struct world world;

/* Cards of 16 GiB: two jobs of 8 GiB have their memory there. */
static void set_up(void) { world_init(&world, GS_MODE_ON); }

static void come(int job, double gib, bool clean) {
  world_attach(&world, job, gib, 0);
  world.clients[job].clean = clean;
}

static void run(int job) {
  world_request(&world, job);
  world_pass(&world, NS_PER_S);
  world_release(&world, job);
}

static bool is_there(int job) { return world.clients[job].resident_bytes == world.jobs[job].used_bytes; }

/* All have left more than once. */
static void come_all(bool first_clean, bool second_clean) {
  come(1, 8, first_clean);
  come(2, 8, second_clean);
  come(3, 8, false);
  for (int i = 0; i < 4; i++)
    for (int job = 1; job <= 3; job++)
      run(job);
}

/* The first one is idle for `first_s`, the second for `second_s` s. The third needs room. */
static void idle(unsigned first_s, unsigned second_s) {
  run(1);
  world_pass(&world, (first_s - second_s - 1) * NS_PER_S);
  run(2);
  world_pass(&world, second_s * NS_PER_S);
  ck_assert(is_there(1) && is_there(2) && !is_there(3));
  world_request(&world, 3);
  ck_assert(is_there(1) != is_there(2));
}

START_TEST(of_equals_the_longest_idle_leaves) {
  come_all(false, false);
  idle(6, 4);
  ck_assert(is_there(2));
}
END_TEST

START_TEST(what_is_clean_leaves_before_what_must_be_copied) {
  come_all(false, true);
  idle(6, 4);
  ck_assert(is_there(1));
  ck_assert_uint_eq(sched_job_clean_bytes(&world.jobs[2]), 0);
}
END_TEST

/* It is copied once by its next turn, the other one twice. */
START_TEST(but_not_if_it_has_been_idle_for_less_than_half_the_time) {
  come_all(false, true);
  idle(11, 5);
  ck_assert(is_there(2));
  ck_assert_uint_eq(sched_job_clean_bytes(&world.jobs[2]), 8 * GIB);
}
END_TEST

/* Only what it has shown the last time. */
START_TEST(who_begins_to_change_its_memory_is_as_others) {
  come_all(false, true);
  world.clients[2].clean = false;
  run(2);
  run(1);
  run(3);
  ck_assert(!is_there(2));
  ck_assert_uint_eq(world.jobs[2].left.spared_bytes, 0);
  ck_assert_uint_eq(sched_job_clean_bytes(&world.jobs[2]), 0);
}
END_TEST

/* ---- random histories ---- */

#define JOBS 6 /* of 4 GiB: four have their memory on the card */
#define TURNS 400
#define HISTORIES 60

static uint64_t random_state;

static uint64_t random_below(uint64_t bound) { return splitmix_next(&random_state) % bound; }

/* The longer one has been idle, the longer it will be: Pareto's distribution, of exponent 1. */
static uint64_t random_idle_ns(void) { return NS_PER_S * 1000 / (1 + random_below(1000)); }

/* Jobs run one after the other, and are idle for random times. `servers` change nothing. If the scheduler is
 * not `told` what is clean, it takes all for changed. Returns the bytes that are copied. */
static uint64_t play(uint64_t seed, int servers, bool told) {
  uint64_t wakes_ns[JOBS + 1], bytes = 0;
  random_state = seed;
  set_up();
  for (int job = 1; job <= JOBS; job++) {
    come(job, 4, job <= servers);
    wakes_ns[job] = world.now_ns + random_idle_ns();
  }
  for (int turn = 0; turn < TURNS; turn++) {
    int next = 1;
    for (int job = 2; job <= JOBS; job++)
      next = wakes_ns[job] < wakes_ns[next] ? job : next;
    if (wakes_ns[next] > world.now_ns)
      world_pass(&world, wakes_ns[next] - world.now_ns);
    for (int job = 1; job <= JOBS && !told; job++)
      world.jobs[job].left = (struct sched_leaving){0};
    world_request(&world, next);
    world_pass(&world, NS_PER_MS);
    world_release(&world, next);
    wakes_ns[next] = world.now_ns + random_idle_ns();
  }
  for (int job = 1; job <= JOBS; job++)
    bytes += world.clients[job].copied_bytes;
  return bytes;
}

static uint64_t play_all(int servers, bool told) {
  uint64_t bytes = 0;
  for (uint64_t seed = 1; seed <= HISTORIES; seed++)
    bytes += play(seed, servers, told) / TURNS;
  return bytes / HISTORIES;
}

/* Jobs that change everything cost what they did; so do those that change nothing, but that each shows so
 * only by its second leaving. */
START_TEST(fewer_bytes_are_copied_where_some_change_nothing) {
  for (int servers = 0; servers <= JOBS; servers++) {
    uint64_t untold_bytes = play_all(servers, false), told_bytes = play_all(servers, true);
    printf("%d of %d jobs change nothing: %.1f MiB copied per turn, %.1f if that is not known\n", servers,
           JOBS, (double)told_bytes / (1 << 20), (double)untold_bytes / (1 << 20));
    if (servers == 0)
      ck_assert_uint_eq(told_bytes, untold_bytes);
    else if (servers == JOBS)
      ck_assert_uint_le(told_bytes, untold_bytes + untold_bytes / 100);
    else
      ck_assert_uint_lt(told_bytes, untold_bytes);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {of_equals_the_longest_idle_leaves,
                                what_is_clean_leaves_before_what_must_be_copied,
                                but_not_if_it_has_been_idle_for_less_than_half_the_time,
                                who_begins_to_change_its_memory_is_as_others,
                                fewer_bytes_are_copied_where_some_change_nothing,
                                NULL};
  return suite_main("sched_clean", tests, set_up, NULL);
}
