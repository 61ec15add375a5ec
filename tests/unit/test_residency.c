/*
 * test_residency.c - what the plan is worth: how many bytes move, and how many of them while the GPU stands
 * idle, with jobs that take turns in a simulation of time and of the bus.
 */
#include "actors.h"
#include "suite.h"

#define BUS_BYTES_PER_S UINT64_C(50000000000) /* each way */
#define CARD (16 * GIB)

static struct actors them;

static void blame(const char *what, int i) { ck_abort_msg("job %d %s", i + 1, what); }

/* Jobs of so many GiB, which want to run all the time. */
static void start(int jobs, uint64_t gib, uint64_t tq_ns, uint32_t flags) {
  actors_init(&them, 1, CARD);
  them.fail = blame;
  them.bytes_per_s = BUS_BYTES_PER_S;
  them.piece_bytes = 32 * MIB;
  them.drain_ns = NS_PER_MS;
  them.busy_percent = 100;
  scheduler_set_mode(&them.scheduler, NULL, GS_MODE_ON, them.now_ns, &them.change);
  scheduler_set_tq(&them.scheduler, NULL, tq_ns, them.now_ns, &them.change);
  for (int i = 0; i < jobs; i++) {
    actors_attach(&them, i, gib * GIB, 0, flags);
    actors_request(&them, i);
  }
}

static uint64_t moved_bytes(void) {
  uint64_t bytes = 0;
  for (int i = 0; i < ACTORS; i++)
    bytes += them.actors[i].out_bytes + them.actors[i].in_bytes;
  return bytes;
}

static uint64_t paid_bytes(void) {
  return them.gpu.handover.sum.evicted_bytes + them.gpu.handover.sum.restored_bytes;
}

static uint64_t idle_ns(void) { return them.gpu.handover.sum.drain_ns + them.gpu.handover.sum.move_ns; }

static void pass_handovers(uint64_t count) {
  uint64_t until = them.gpu.handovers + count;
  while (them.gpu.handovers < until || them.gpu.handover.open)
    actors_pass(&them, NS_PER_MS);
}

/* ---- the reference ---- */

/* Bytes that move in so many turns of jobs of this size in round robin, if the one that ran least recently is
 * always the one that leaves. */
static uint64_t lru_bytes(int jobs, uint64_t job_bytes, int turns) {
  uint64_t resident_bytes[ACTORS] = {0}, moved = 0;
  for (int turn = 0; turn < turns; turn++) {
    int runs = turn % jobs;
    uint64_t sum_bytes = 0;
    moved += job_bytes - resident_bytes[runs];
    resident_bytes[runs] = job_bytes;
    for (int i = 0; i < jobs; i++)
      sum_bytes += resident_bytes[i];
    for (int age = 1; age < jobs && sum_bytes > CARD; age++) { /* who runs next ran least recently */
      uint64_t *victim = &resident_bytes[(runs + age) % jobs];
      uint64_t leaving_bytes = sum_bytes - CARD < *victim ? sum_bytes - CARD : *victim;
      *victim -= leaving_bytes;
      sum_bytes -= leaving_bytes;
      moved += leaving_bytes;
    }
  }
  return moved;
}

START_TEST(three_jobs_move_half_of_what_lru_moves) {
  const int turns = 60;
  start(3, 8, 20 * NS_PER_S, 0);
  pass_handovers(6);
  uint64_t before_bytes = moved_bytes();
  pass_handovers((uint64_t)turns);
  uint64_t bytes = moved_bytes() - before_bytes;
  uint64_t reference_bytes = lru_bytes(3, 8 * GIB, 6 + turns) - lru_bytes(3, 8 * GIB, 6);
  ck_assert_uint_eq(reference_bytes, (uint64_t)turns * 16 * GIB);
  ck_assert_msg(2 * bytes <= reference_bytes, "%lu GiB instead of %lu", bytes / GIB, reference_bytes / GIB);
}
END_TEST

START_TEST(two_large_jobs_move_what_they_must_and_no_more) {
  start(2, 15, 20 * NS_PER_S, 0);
  pass_handovers(2);
  uint64_t before_bytes = moved_bytes(), before_ns = idle_ns();
  pass_handovers(20);
  ck_assert_uint_eq(moved_bytes() - before_bytes, 20 * 28 * GIB);
  ck_assert_uint_eq(them.gpu.handover.last.evicted_bytes, 14 * GIB);
  ck_assert_uint_eq(them.gpu.handover.last.restored_bytes, 14 * GIB);
  /* Both directions at the same time: the drain, one way, and what a report takes. */
  uint64_t one_way_ns = 14 * GIB * 1000 / (BUS_BYTES_PER_S / 1000000);
  uint64_t took_ns = (idle_ns() - before_ns) / 20;
  ck_assert_msg(took_ns < one_way_ns + one_way_ns / 20, "%lu us", took_ns / 1000);
}
END_TEST

static void check_hidden(uint32_t flags) {
  start(4, 7, NS_PER_S, flags);
  pass_handovers(8);
  uint64_t paid_before_bytes = paid_bytes(), before_ns = idle_ns();
  uint64_t hidden_before_bytes = them.gpu.handover.hidden_bytes;
  pass_handovers(40);
  ck_assert_uint_eq(paid_bytes() - paid_before_bytes, 0);
  ck_assert_uint_ge(them.gpu.handover.hidden_bytes - hidden_before_bytes, 40 * 10 * GIB);
  ck_assert_uint_le(idle_ns() - before_ns, 40 * NS_PER_MS); /* drains */
}

START_TEST(short_turns_of_four_jobs_hide_their_moves) { check_hidden(0); }
END_TEST

START_TEST(managed_jobs_hide_them_too) { check_hidden(GS_ATTACH_MANAGED); }
END_TEST

/* Who leaves keeps what the one that comes had, so 9 GiB beside the holder's 7 go round among three: 4 of 7
 * must come in per turn, as many leave. */
START_TEST(long_turns_move_less_instead) {
  start(4, 7, 20 * NS_PER_S, 0);
  pass_handovers(8);
  uint64_t before_bytes = moved_bytes();
  pass_handovers(42);
  ck_assert_uint_eq(moved_bytes() - before_bytes, 42 * 8 * GIB);
}
END_TEST

/* ---- who cannot leave ---- */

static bool runs(int i) { return them.actors[i].open && !them.actors[i].releasing; }

/* How many of so many seconds somebody has run. */
static unsigned busy_s(unsigned seconds) {
  unsigned busy = 0;
  for (unsigned s = 0; s < seconds; s++) {
    actors_pass(&them, NS_PER_S);
    for (int i = 0; i < ACTORS; i++)
      busy += runs(i);
  }
  return busy;
}

/* The first of so many jobs of 12 GiB finds no host memory to leave to. */
static unsigned busy_with_one_that_stays(int jobs, uint64_t tq_ns) {
  start(1, 12, tq_ns, 0);
  them.actors[0].cramped = true;
  for (int i = 1; i < jobs; i++) {
    actors_attach(&them, i, 12 * GIB, 0, 0);
    actors_request(&them, i);
  }
  return busy_s(1800);
}

START_TEST(one_that_stays_leaves_half_of_the_time_unused) {
  ck_assert_uint_ge(busy_with_one_that_stays(2, NS_PER_S), 880);
  ck_assert_uint_ge(busy_with_one_that_stays(2, 100 * NS_PER_S), 1300);
}
END_TEST

START_TEST(however_many_wait_for_its_memory) {
  ck_assert_uint_ge(busy_with_one_that_stays(ACTORS, NS_PER_S), 880);
  for (int i = 1; i < ACTORS; i++)
    ck_assert_uint_ge(them.jobs[i].turns, 3); /* each was tried */
  them.actors[0].cramped = false;
  ck_assert_uint_ge(busy_s(60), 40);
  for (int i = 1; i < ACTORS; i++)
    ck_assert_uint_ge(them.actors[i].opened, 1);
}
END_TEST

/* ---- the quantum that finds itself ---- */

/* Part of the time that hand-overs take. */
static double loss(double s) {
  uint64_t before_ns = idle_ns();
  actors_pass(&them, (uint64_t)(s * NS_PER_S));
  return (double)(idle_ns() - before_ns) / (s * NS_PER_S);
}

START_TEST(an_automatic_quantum_loses_what_it_may) {
  start(2, 14, SCHED_TQ_AUTO, 0); /* 12 of 16 GiB must be moved each time, whatever is hidden */
  actors_pass(&them, 60 * NS_PER_S);
  double lost = loss(120);
  ck_assert_msg(lost > 0.03 && lost < 0.055, "%g", lost);
  uint64_t long_ns = sched_gpu_tq_ns(&them.gpu);
  them.gpu.settings.loss_permille = 200;
  actors_pass(&them, 60 * NS_PER_S);
  lost = loss(120);
  ck_assert_msg(lost > 0.12 && lost < 0.22, "%g", lost);
  ck_assert_uint_lt(sched_gpu_tq_ns(&them.gpu), long_ns / 2);
}
END_TEST

START_TEST(it_gets_short_where_hand_overs_cost_nothing) {
  start(3, 4, SCHED_TQ_AUTO, 0);
  actors_pass(&them, 60 * NS_PER_S);
  ck_assert_uint_eq(sched_gpu_tq_ns(&them.gpu), 50 * NS_PER_MS);
  ck_assert_double_lt(loss(60), 0.05);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {three_jobs_move_half_of_what_lru_moves,
                                two_large_jobs_move_what_they_must_and_no_more,
                                short_turns_of_four_jobs_hide_their_moves,
                                managed_jobs_hide_them_too,
                                long_turns_move_less_instead,
                                one_that_stays_leaves_half_of_the_time_unused,
                                however_many_wait_for_its_memory,
                                an_automatic_quantum_loses_what_it_may,
                                it_gets_short_where_hand_overs_cost_nothing,
                                NULL};
  return suite_main("residency", tests, NULL, NULL);
}
