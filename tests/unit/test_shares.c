/*
 * test_shares.c - users share a GPU first, then their jobs: whatever one user starts, another one has its
 * part, at any time and not only in the long run.
 *
 * Clients do at once what they are told, and always want to run. Each job's memory is what it says that it
 * will have, so there is nothing to move.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/clock.h"
#include "common/splitmix.h"
#include "core/internal.h"
#include "core/scheduler.h"
#include "played_clock.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define CARD (16 * GIB)
#define JOBS 256
#define USERS 4
#define TQ_NS NS_PER_S

static struct scheduler scheduler;
static struct sched_gpu gpus[2];
static struct sched_share shares[2][USERS];
static struct sched_job jobs[JOBS];
static bool there[JOBS], silent[JOBS];
static int owners[JOBS];
static struct sched_change change;
static uint64_t now_ns, longest_ns[USERS]; /* that a user with nothing but waiting jobs has waited */
static uint64_t waits_since_ns[USERS];

/* Whoever waits is not behind what its user has had so far: what is foreseen has not come. */
static void check_places(void) {
  for (int i = 0; i < JOBS; i++)
    if (there[i] && jobs[i].state == GS_JOB_WAITING)
      ck_assert_uint_le(jobs[i].account->queue_key, policy_user_rank(&jobs[i], now_ns));
}

static void execute(void) {
  struct sched_action action;
  check_places();
  while (change_next(&change, &action)) {
    struct sched_job *job = action.job;
    if (silent[job - jobs])
      continue;
    if (action.type == SCHED_TELL_LOCK_OK) {
      scheduler_active(job, &(struct sched_active){.epoch = job->epoch}, now_ns, &change);
    } else if (action.type == SCHED_TELL_DROP_LOCK) {
      scheduler_release(job, &(struct sched_release){.epoch = job->epoch}, now_ns, &change);
      scheduler_request(job, now_ns, &change);
    }
  }
}

static struct sched_share *share_of(int gpu, int user) {
  if (!scheduler_find_share(&gpus[gpu], (uint32_t)user))
    scheduler_add_share(&gpus[gpu], &shares[gpu][user], (uint32_t)user, SCHED_WEIGHT, 0);
  return &shares[gpu][user];
}

static void come_to(int gpu, int i, int user, uint64_t bytes) {
  struct sched_attach attach = {.id = (uint32_t)i + 1,
                                .used_bytes = 1,
                                .flags = i % 2 ? GS_ATTACH_MANAGED : 0,
                                .share = share_of(gpu, user)};
  owners[i] = user;
  there[i] = true;
  scheduler_attach(&gpus[gpu], &jobs[i], &attach, now_ns, &change);
  execute();
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .expected_bytes = bytes};
  scheduler_set_terms(&jobs[i], &terms, now_ns, &change);
  execute();
  scheduler_request(&jobs[i], now_ns, &change);
  execute();
}

static void come(int i, int user, uint64_t bytes) { come_to(0, i, user, bytes); }

/* It says that it has so much there already. */
static void allege(int gpu, int i, int user, uint64_t bytes) {
  struct sched_attach attach = {.id = (uint32_t)i + 1,
                                .used_bytes = bytes,
                                .resident_bytes = bytes,
                                .flags = GS_ATTACH_MANAGED,
                                .share = share_of(gpu, user)};
  owners[i] = user;
  there[i] = true;
  scheduler_attach(&gpus[gpu], &jobs[i], &attach, now_ns, &change);
  execute();
}

/* It has no page faults, and that on the card. */
static void bring(int i, int user, uint64_t bytes, uint64_t resident_bytes) {
  struct sched_attach attach = {.id = (uint32_t)i + 1,
                                .used_bytes = bytes,
                                .resident_bytes = resident_bytes,
                                .share = share_of(0, user)};
  owners[i] = user;
  there[i] = true;
  scheduler_attach(&gpus[0], &jobs[i], &attach, now_ns, &change);
  execute();
}

static void request(int i) {
  scheduler_request(&jobs[i], now_ns, &change);
  execute();
}

static void be_short(int i, uint64_t bytes) {
  scheduler_short(&jobs[i], bytes, now_ns, &change);
  execute();
}

static int ask(int i, uint64_t bytes) {
  uint64_t granted_bytes;
  int err = scheduler_memory_request(&jobs[i], bytes, 0, now_ns, &change, &granted_bytes);
  execute();
  return err;
}

static void report(int i, uint64_t bytes, uint64_t pinned_bytes) {
  scheduler_memory_report(&jobs[i], bytes, pinned_bytes, now_ns, &change);
  execute();
}

/* The account goes with the last job, as in the daemon. */
static void leave(int i) {
  struct sched_share *share = jobs[i].share;
  scheduler_detach(&jobs[i], now_ns, &change);
  there[i] = false;
  if (share->job_count == 0 && !sched_share_is_shunned(share))
    scheduler_remove_share(share);
  execute();
}

/* The part of the card's time that a user's jobs have: those that hold together have equal parts. */
static double had_s[USERS];

static void note(const struct sched_gpu *gpu, uint64_t ns) {
  unsigned running = 0;
  for (int i = 0; i < JOBS; i++)
    running += there[i] && jobs[i].gpu == gpu && jobs[i].state == GS_JOB_HOLDING;
  for (int i = 0; i < JOBS; i++)
    if (there[i] && jobs[i].gpu == gpu && jobs[i].state == GS_JOB_HOLDING)
      had_s[owners[i]] += (double)ns / NS_PER_S / running;
}

static void note_waits(void) {
  for (int user = 0; user < USERS; user++) {
    bool waits = false, holds = false;
    for (int i = 0; i < JOBS; i++) {
      waits |= there[i] && owners[i] == user && jobs[i].state == GS_JOB_WAITING;
      holds |= there[i] && owners[i] == user && jobs[i].state == GS_JOB_HOLDING;
    }
    if (!waits || holds)
      waits_since_ns[user] = now_ns;
    if (now_ns - waits_since_ns[user] > longest_ns[user])
      longest_ns[user] = now_ns - waits_since_ns[user];
  }
}

static void pass(uint64_t ns) {
  uint64_t end_ns = now_ns + ns;
  for (bool more = true; more;) {
    uint64_t before_ns = now_ns, due_ns = scheduler_deadline_ns(&scheduler);
    uint64_t until_ns = due_ns < end_ns ? due_ns : end_ns;
    until_ns = until_ns > now_ns ? until_ns : now_ns;
    note(&gpus[0], until_ns - before_ns);
    more = clock_goes_on(&scheduler, &now_ns, end_ns, &change);
    note_waits();
    execute();
    note_waits();
  }
}

static void forget(void) {
  memset(had_s, 0, sizeof had_s);
  memset(longest_ns, 0, sizeof longest_ns);
}

static void set_up(void) {
  now_ns = 1000 * NS_PER_S;
  scheduler_init(&scheduler);
  scheduler.settle_ns = 0;
  scheduler.grace_ns = 2 * NS_PER_S;
  scheduler.defaults.tq_ns = TQ_NS;
  scheduler.defaults.policy = GS_POLICY_FAIR;
  change_init(&change);
  for (int i = 0; i < 2; i++)
    scheduler_add_gpu(&scheduler, &gpus[i], (const uint8_t[GS_UUID_SIZE]){(uint8_t)i + 1}, "card", CARD);
  memset(there, 0, sizeof there);
  memset(silent, 0, sizeof silent);
  forget();
  for (int user = 0; user < USERS; user++)
    waits_since_ns[user] = now_ns;
}

static void set_mode(enum gs_mode mode) {
  scheduler_set_mode(&scheduler, NULL, mode, now_ns, &change);
  execute();
}

/* Within any so many quanta the user has such a part of the time, and never waits for more than so many. */
static void check_windows(int user, int windows, int quanta, double part, int most_quanta) {
  for (int i = 0; i < windows; i++) {
    forget();
    pass((uint64_t)quanta * TQ_NS);
    ck_assert_msg(had_s[user] >= part * quanta, "window %d: %.2f s of %d", i, had_s[user], quanta);
    ck_assert_msg(longest_ns[user] <= (uint64_t)most_quanta * TQ_NS, "window %d: waited %.2f s", i,
                  (double)longest_ns[user] / NS_PER_S);
  }
}

/* Each needs the whole card. */
START_TEST(a_user_with_100_jobs_leaves_another_one_half) {
  for (int i = 0; i < 100; i++)
    come(i, 0, 12 * GIB);
  pass(3 * TQ_NS);
  come(100, 1, 12 * GIB);
  check_windows(1, 20, 10, 0.45, 2);
}
END_TEST

START_TEST(so_it_is_in_mode_on) {
  set_mode(GS_MODE_ON);
  come(100, 1, GIB);
  for (int i = 0; i < 100; i++)
    come(i, 0, GIB);
  pass(TQ_NS);
  check_windows(1, 20, 10, 0.45, 2);
}
END_TEST

/* Four of the first user's fit together: each set has the time of the other user's one. */
START_TEST(sets_of_small_jobs_count_as_what_they_have_of_the_card) {
  for (int i = 0; i < 100; i++)
    come(i, 0, 4 * GIB);
  come(100, 1, 14 * GIB);
  pass(4 * TQ_NS);
  check_windows(1, 20, 10, 0.4, 3);
}
END_TEST

START_TEST(within_a_user_all_jobs_have_turns) {
  for (int i = 0; i < 10; i++)
    come(i, 0, 12 * GIB);
  come(100, 1, 12 * GIB);
  pass(40 * TQ_NS);
  for (int i = 0; i < 10; i++)
    ck_assert_uint_ge(jobs[i].turns, 1);
}
END_TEST

START_TEST(users_share_by_weight) {
  for (int i = 0; i < 30; i++)
    come(i, 0, 12 * GIB);
  for (int i = 30; i < 32; i++)
    come(i, 1, 12 * GIB);
  scheduler_set_share(&shares[0][1], 3 * SCHED_WEIGHT, 0, now_ns, &change);
  execute();
  pass(8 * TQ_NS);
  forget();
  pass(80 * TQ_NS);
  ck_assert_double_ge(had_s[1], 0.7 * 80);
  ck_assert_double_le(had_s[1], 0.8 * 80);
}
END_TEST

/* Each job of the first user leaves within its first turn, and another one comes. */
START_TEST(a_stream_of_newcomers_passes_no_other_user) {
  come(200, 1, 12 * GIB);
  for (int i = 0; i < 20; i++)
    come(i, 0, 12 * GIB);
  pass(2 * TQ_NS);
  forget();
  for (int step = 0; step < 400; step++) {
    for (int i = 0; i < 20; i++) {
      if (there[i] && jobs[i].state != GS_JOB_HOLDING)
        continue;
      leave(i);
      come(i, 0, 12 * GIB);
    }
    pass(TQ_NS / 4);
  }
  ck_assert_double_ge(had_s[1], 45);
  ck_assert_uint_le(longest_ns[1], 4 * TQ_NS);
}
END_TEST

/* The first user has one job at a time: its account goes each time. */
START_TEST(nor_does_a_user_that_is_always_new) {
  come(200, 1, 12 * GIB);
  pass(2 * TQ_NS);
  forget();
  for (int step = 0; step < 400; step++) {
    if (there[0])
      leave(0);
    come(0, 0, 12 * GIB);
    pass(TQ_NS / 4);
  }
  ck_assert_double_ge(had_s[1], 45);
  ck_assert_uint_le(longest_ns[1], 4 * TQ_NS);
}
END_TEST

/* Granted, they say nothing, also when told to stop: their user is charged all the same. (Their memory makes
 * way by itself, or nobody could go on.) */
START_TEST(who_holds_and_does_nothing_is_charged) {
  for (int i = 1; i < 80; i += 2) {
    silent[i] = true;
    come(i, 0, 12 * GIB);
  }
  come(100, 1, 12 * GIB);
  pass(10 * TQ_NS);
  forget();
  pass(100 * TQ_NS);
  ck_assert_double_ge(had_s[1], 40);
}
END_TEST

/* Who has rested for long is ahead by a quantum at most, not by all that the other one has had. */
START_TEST(who_has_rested_does_not_make_up_for_it) {
  come(0, 0, 12 * GIB);
  come(1, 1, 12 * GIB);
  pass(6 * TQ_NS);
  silent[1] = true;
  scheduler_release(&jobs[1], &(struct sched_release){.epoch = jobs[1].epoch}, now_ns, &change);
  if (jobs[1].state == GS_JOB_WAITING) {
    pass(2 * TQ_NS);
    scheduler_release(&jobs[1], &(struct sched_release){.epoch = jobs[1].epoch}, now_ns, &change);
  }
  execute();
  pass(100 * TQ_NS);
  silent[1] = false;
  scheduler_request(&jobs[1], now_ns, &change);
  execute();
  pass(TQ_NS);
  check_windows(0, 3, 10, 0.35, 4);
}
END_TEST

/* ---- what a user is charged, to the moment ---- */

static double user_s(int i) { return (double)policy_user_rank(&jobs[i], now_ns) / NS_PER_S; }

/* It gives its turn back, and does not ask again for now. */
static void rest(int i) {
  silent[i] = true;
  scheduler_release(&jobs[i], &(struct sched_release){.epoch = jobs[i].epoch}, now_ns, &change);
  silent[i] = false;
  execute();
}

static void pass_until_it_holds(int i) {
  for (int step = 0; step < 1000 && jobs[i].state != GS_JOB_HOLDING; step++)
    pass(TQ_NS / 100);
  ck_assert_int_eq(jobs[i].state, GS_JOB_HOLDING);
}

/* Three hold, two of them of one user. */
START_TEST(a_user_is_charged_its_part_of_the_card) {
  for (int i = 0; i < 3; i++)
    come(i, i / 2, 4 * GIB);
  come(3, 2, 12 * GIB);
  pass_until_it_holds(0);
  pass_until_it_holds(1);
  pass_until_it_holds(2);
  double before_s[] = {user_s(0), user_s(2)};
  pass(TQ_NS / 4);
  ck_assert_int_eq(jobs[3].state, GS_JOB_WAITING);
  ck_assert_double_eq_tol(user_s(0) - before_s[0], 0.25 * 2 / 3, 0.01);
  ck_assert_double_eq_tol(user_s(2) - before_s[1], 0.25 / 3, 0.01);
}
END_TEST

START_TEST(also_while_it_stops) {
  come(0, 0, 12 * GIB);
  come(1, 1, 12 * GIB);
  pass_until_it_holds(0);
  silent[0] = true;
  while (jobs[0].state == GS_JOB_HOLDING)
    pass(TQ_NS / 100);
  ck_assert_int_eq(jobs[0].state, GS_JOB_DROPPING);
  double before_s = user_s(0);
  pass(TQ_NS / 2);
  ck_assert_int_eq(jobs[0].state, GS_JOB_DROPPING);
  ck_assert_double_eq_tol(user_s(0) - before_s, 0.5, 0.01);
}
END_TEST

/* It fits beside each of the others, which take turns. */
START_TEST(who_has_filled_gaps_is_not_far_ahead) {
  come(0, 0, 2 * GIB);
  come(1, 1, 10 * GIB);
  come(2, 2, 10 * GIB);
  pass(100 * TQ_NS);
  pass_until_it_holds(0);
  rest(0);
  request(0);
  ck_assert_double_le(user_s(0), fmax(user_s(1), user_s(2)) + 3.1);
}
END_TEST

START_TEST(who_comes_begins_behind_those_that_wait) {
  come(0, 0, 12 * GIB);
  come(1, 1, 12 * GIB);
  pass(4 * TQ_NS);
  int waits = 0, holds = 1;
  for (int step = 0; step < 1000 && user_s(waits) - user_s(holds) < 0.4; step++) {
    pass(TQ_NS / 100);
    holds = jobs[0].state == GS_JOB_HOLDING ? 0 : 1;
    waits = 1 - holds;
  }
  ck_assert_double_ge(user_s(waits) - user_s(holds), 0.4);
  come(2, 2, 12 * GIB);
  ck_assert_double_ge(user_s(2), user_s(waits));
}
END_TEST

/* So equals take turns, and none has two in a row. */
START_TEST(who_has_had_less_than_half_a_quantum_more_goes) {
  come(0, 0, 12 * GIB);
  come(1, 1, 12 * GIB);
  pass(4 * TQ_NS);
  for (int step = 0; step < 500; step++) {
    pass(TQ_NS / 100);
    int holds = jobs[0].state == GS_JOB_HOLDING ? 0 : 1, waits = 1 - holds;
    double more_s = user_s(waits) - user_s(holds);
    if (fabs(more_s - 0.5) > 0.02)
      ck_assert_int_eq(policy_precedes(&jobs[waits], &jobs[holds], now_ns), more_s < 0.5);
  }
}
END_TEST

/* Another user's jobs take turns, so a quantum has just begun. */
START_TEST(who_is_a_quantum_behind_preempts) {
  come(0, 0, 12 * GIB);
  come(1, 0, 12 * GIB);
  come(2, 1, 12 * GIB);
  pass(4 * TQ_NS);
  pass_until_it_holds(2);
  rest(2);
  pass(10 * TQ_NS);
  int next = jobs[0].state == GS_JOB_HOLDING ? 1 : 0;
  pass_until_it_holds(next);
  request(2);
  pass(TQ_NS / 10);
  ck_assert_int_eq(jobs[2].state, GS_JOB_HOLDING);
}
END_TEST

START_TEST(each_gpu_has_accounts_of_its_own) {
  for (int i = 0; i < 10; i++)
    come_to(1, i, 1, 12 * GIB); /* what it has there is no matter here */
  for (int i = 10; i < 60; i++)
    come(i, 0, 12 * GIB);
  come(100, 1, 12 * GIB);
  pass(4 * TQ_NS);
  check_windows(1, 10, 10, 0.45, 2);
}
END_TEST

START_TEST(an_opportunistic_user_comes_after_all_others) {
  struct sched_terms terms = {
      .weight = SCHED_WEIGHT, .class = GS_CLASS_OPPORTUNISTIC, .expected_bytes = 12 * GIB};
  come(0, 1, 12 * GIB);
  scheduler_set_terms(&jobs[0], &terms, now_ns, &change);
  execute();
  for (int i = 1; i < 10; i++)
    come(i, 0, 12 * GIB);
  pass(TQ_NS);
  forget();
  pass(50 * TQ_NS);
  ck_assert_double_le(had_s[1], 0.1);
}
END_TEST

/* Other policies go by jobs. */
START_TEST(only_fair_looks_at_users) {
  scheduler_set_policy(&scheduler, NULL, GS_POLICY_RR, now_ns, &change);
  execute();
  for (int i = 0; i < 9; i++)
    come(i, 0, 12 * GIB);
  come(100, 1, 12 * GIB);
  pass(10 * TQ_NS);
  forget();
  pass(100 * TQ_NS);
  ck_assert_double_le(had_s[1], 15);
  scheduler_set_policy(&scheduler, NULL, GS_POLICY_FAIR, now_ns, &change);
  execute();
  pass(10 * TQ_NS);
  check_windows(1, 5, 10, 0.45, 2);
}
END_TEST

START_TEST(a_user_has_no_more_memory_than_it_may) {
  uint64_t granted_bytes;
  come(0, 0, 0);
  come(1, 0, 0);
  come(2, 1, 0);
  scheduler_set_share(&shares[0][0], SCHED_WEIGHT, 4 * GIB, now_ns, &change);
  ck_assert_int_eq(scheduler_memory_request(&jobs[0], 3 * GIB, 0, now_ns, &change, &granted_bytes), 0);
  ck_assert_int_lt(scheduler_memory_request(&jobs[1], 2 * GIB, 0, now_ns, &change, &granted_bytes), 0);
  ck_assert_int_eq(sched_job_why_refused(&jobs[1], 2 * GIB, 0), GS_REFUSAL_LIMIT);
  ck_assert_int_eq(scheduler_memory_request(&jobs[2], 8 * GIB, 0, now_ns, &change, &granted_bytes), 0);
  execute();
  leave(0);
  ck_assert_int_eq(scheduler_memory_request(&jobs[1], 4 * GIB, 0, now_ns, &change, &granted_bytes), 0);
  ck_assert_uint_le(granted_bytes, 4 * GIB);
  execute();
}
END_TEST

/* Any number of jobs of any size, that come and go: of three users none has less than a quarter of the time,
 * in windows of some quanta. */
START_TEST(no_history_takes_a_user_its_part) {
  for (uint64_t seed = 1; seed <= 30; seed++) {
    uint64_t random = seed;
    set_up();
    come(200, 2, CARD * 3 / 4);
    for (int step = 0; step < 300; step++) {
      int i = (int)(splitmix_next(&random) % 60);
      if (there[i])
        leave(i);
      else
        come(i, i % 2, GIB + splitmix_next(&random) % (14 * GIB));
      pass(splitmix_next(&random) % (TQ_NS / 2));
      if (step == 20)
        forget();
      ck_assert_msg(longest_ns[2] <= 8 * TQ_NS, "seed %lu, step %d: waited %.2f s", seed, step,
                    (double)longest_ns[2] / NS_PER_S);
    }
    ck_assert_msg(had_s[2] > 0.25 * (had_s[0] + had_s[1] + had_s[2]), "seed %lu: %.1f s beside %.1f and %.1f",
                  seed, had_s[2], had_s[0], had_s[1]);
  }
}
END_TEST

/* The host has 8 GiB for both cards. */
static void bound_host(void) { scheduler.host_memory_bytes = CARD / 2; }

START_TEST(nobody_reports_more_than_it_was_granted) {
  bound_host();
  allege(0, 0, 0, 0);
  allege(0, 1, 1, 0);
  report(0, SCHED_BYTES_MAX, SCHED_BYTES_MAX);
  ck_assert_uint_eq(gpus[0].used_bytes, 0);
  ck_assert_int_eq(ask(0, 4 * GIB), 0);
  report(0, SCHED_BYTES_MAX, 0);
  ck_assert_uint_eq(jobs[0].used_bytes, 4 * GIB);
  ck_assert_int_eq(ask(1, 20 * GIB), 0);
}
END_TEST

START_TEST(nor_pins_more_than_it_may) {
  bound_host();
  allege(0, 0, 0, CARD);
  allege(0, 1, 1, 0);
  scheduler_set_share(&shares[0][0], SCHED_WEIGHT, 4 * GIB, now_ns, &change);
  report(0, CARD, CARD);
  ck_assert_uint_eq(gpus[0].pinned_bytes, 4 * GIB);
}
END_TEST

/* Whoever restarts, or lies, on both cards. */
START_TEST(what_a_user_alleges_refuses_no_other_what_is_there) {
  bound_host();
  for (int i = 0; i < 20; i++)
    allege(i % 2, i, 0, UINT64_MAX);
  for (int gpu = 0; gpu < 2; gpu++) {
    allege(gpu, 20 + gpu, 1, 0);
    ck_assert_int_eq(ask(20 + gpu, GIB), 0);
  }
  ck_assert_int_ne(ask(0, jobs[0].used_bytes + 1), 0); /* its own counts in full */
  scheduler_set_share(&shares[0][0], SCHED_WEIGHT, 2 * GIB, now_ns, &change);
  ck_assert_int_eq(ask(20, 14 * GIB), 0);
  ck_assert_int_eq(ask(20, 23 * GIB), -ENOMEM); /* 16 and 8, but for the 2, and the 1 on the other card */
  for (int i = 0; i < 20; i++)
    leave(i);
  ck_assert_uint_eq(scheduler_overflow_bytes(&scheduler), 0);
}
END_TEST

/* Also of who waits for its first memory. */
START_TEST(nor_keeps_it_waiting) {
  bound_host();
  allege(0, 0, 0, SCHED_BYTES_MAX);
  allege(1, 1, 0, SCHED_BYTES_MAX);
  allege(0, 2, 1, 0);
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .expected_bytes = 4 * GIB};
  scheduler_set_terms(&jobs[2], &terms, now_ns, &change);
  ck_assert(!scheduler_memory_await(&jobs[2], GIB, 0, now_ns, &change));
}
END_TEST

START_TEST(what_has_been_granted_counts_in_full) {
  bound_host();
  allege(0, 0, 0, 0);
  allege(0, 1, 1, 0);
  ck_assert_int_eq(ask(0, 20 * GIB), 0);
  ck_assert_int_eq(ask(1, 5 * GIB), -ENOMEM);
  leave(0);
  allege(0, 0, 0, 20 * GIB);
  ck_assert_int_eq(ask(1, 5 * GIB), 0);
  ck_assert_int_eq(ask(0, 21 * GIB), -ENOMEM);
  leave(1);
  ck_assert_int_eq(ask(0, 21 * GIB), 0);
  allege(0, 1, 1, 0);
  ck_assert_int_eq(ask(1, 4 * GIB), -ENOMEM);
}
END_TEST

START_TEST(absurd_sizes_make_no_sum_wrap) {
  set_mode(GS_MODE_AUTO);
  for (int i = 0; i < 4; i++)
    allege(0, i, i, UINT64_MAX - (uint64_t)i);
  ck_assert_uint_le(gpus[0].reach_bytes, 4 * SCHED_BYTES_MAX);
  ck_assert_uint_ge(gpus[0].reach_bytes, gpus[0].used_bytes);
  ck_assert(!gpus[0].roomy);
  ck_assert(gpus[0].serialized);
}
END_TEST

/* ---- who does not answer ---- */

#define EVICT_AFTER 4 /* graces */

/* As the daemon does; and they come again at once. */
static void evict_silent(int count, uint64_t ns) {
  for (uint64_t end_ns = now_ns + ns; now_ns < end_ns;) {
    pass(NS_PER_S / 10);
    for (int i = 0; i < count; i++) {
      bool overdue = jobs[i].state == GS_JOB_DROPPING && jobs[i].flags & GS_STATE_OVERDUE;
      if (overdue && now_ns - jobs[i].since_ns >= EVICT_AFTER * scheduler.grace_ns) {
        leave(i);
        come(i, 0, GIB);
      }
    }
  }
}

static void be_silent_beside_another_user(int count, enum gs_policy policy) {
  set_mode(GS_MODE_ON);
  scheduler_set_policy(&scheduler, NULL, policy, now_ns, &change);
  come(100, 1, GIB);
  for (int i = 0; i < count; i++) {
    silent[i] = true;
    come(i, 0, GIB);
  }
  evict_silent(count, 100 * NS_PER_S);
  forget();
  evict_silent(count, 300 * NS_PER_S);
  ck_assert_msg(had_s[1] >= 0.6 * 300, "%.1f s of 300", had_s[1]);
  ck_assert_msg(had_s[1] <= 0.8 * 300, "%.1f s of 300", had_s[1]); /* the others do have turns */
}

START_TEST(silence_costs_its_own_user) { be_silent_beside_another_user(10, GS_POLICY_FAIR); }
END_TEST

START_TEST(also_where_policies_do_not_look_at_users) { be_silent_beside_another_user(10, GS_POLICY_RR); }
END_TEST

/* It has no others: while it is away its user has no account. */
START_TEST(also_if_the_job_comes_again) { be_silent_beside_another_user(1, GS_POLICY_FAIR); }
END_TEST

/* Job 1 is bypassed, job 2 is its user's, and job 100 another one's. */
static void begin_silence(void) {
  set_mode(GS_MODE_ON);
  silent[1] = true;
  come(1, 0, GIB);
  come(100, 1, GIB);
  pass(5 * NS_PER_S);
  ck_assert_int_eq(jobs[1].state, GS_JOB_BYPASSED);
  come(2, 0, GIB);
}

START_TEST(once_others_rest_its_user_goes_on) {
  begin_silence();
  pass(NS_PER_S);
  ck_assert_int_eq(jobs[2].state, GS_JOB_WAITING);
  ck_assert_int_eq(jobs[100].state, GS_JOB_HOLDING);
  scheduler_release(&jobs[100], &(struct sched_release){.epoch = jobs[100].epoch}, now_ns, &change);
  execute();
  pass(scheduler.grace_ns - 1);
  ck_assert_int_eq(jobs[2].state, GS_JOB_WAITING); /* it may have rested for a moment only */
  pass(1);
  ck_assert_int_eq(jobs[2].state, GS_JOB_HOLDING);
}
END_TEST

START_TEST(or_once_they_have_gone) {
  begin_silence();
  ck_assert_int_eq(jobs[2].state, GS_JOB_WAITING);
  leave(100);
  ck_assert_int_eq(jobs[2].state, GS_JOB_HOLDING);
}
END_TEST

START_TEST(or_once_they_have_had_twice_as_long) {
  begin_silence();
  ck_assert_int_eq(jobs[2].state, GS_JOB_WAITING);
  ck_assert_uint_eq(sched_job_reason(&jobs[2], now_ns).expected_ns, shares[0][0].shunned_until_ns - now_ns);
  forget();
  pass(30 * NS_PER_S);
  ck_assert_double_ge(had_s[0], 1);
  ck_assert_double_ge(had_s[1], 15);
  ck_assert(!sched_share_is_shunned(&shares[0][0]));
}
END_TEST

/* ---- what is said of the card ---- */

START_TEST(a_refusal_makes_the_card_smaller_for_its_user_alone) {
  allege(0, 0, 0, 4 * GIB);
  allege(0, 1, 1, 8 * GIB);
  be_short(0, 4 * GIB);
  ck_assert_uint_eq(gpus[0].overhead_bytes, 0);
  ck_assert_uint_eq(sched_job_usable_bytes(&jobs[0]), 12 * GIB);
  ck_assert_uint_eq(sched_job_usable_bytes(&jobs[1]), 16 * GIB);
  ck_assert_uint_eq(jobs[1].room_bytes, 8 * GIB);
  be_short(1, GIB); /* so much two users have found */
  ck_assert_uint_eq(gpus[0].overhead_bytes, GIB);
  ck_assert_uint_eq(sched_job_usable_bytes(&jobs[0]), 12 * GIB);
  ck_assert_uint_eq(sched_job_usable_bytes(&jobs[1]), 15 * GIB);
  pass(scheduler.overhead_ns);
  ck_assert_uint_eq(gpus[0].overhead_bytes, 0);
  ck_assert_uint_eq(sched_job_usable_bytes(&jobs[0]), 16 * GIB);
}
END_TEST

START_TEST(one_user_says_it_for_all_until_another_one_comes) {
  allege(0, 0, 0, 4 * GIB);
  allege(0, 1, 0, 4 * GIB);
  be_short(0, 2 * GIB);
  be_short(1, GIB);
  ck_assert_uint_eq(gpus[0].overhead_bytes, 3 * GIB);
  ck_assert_uint_eq(sched_job_usable_bytes(&jobs[1]), 13 * GIB);
  allege(0, 2, 1, 0);
  ck_assert_uint_eq(gpus[0].overhead_bytes, 0);
  ck_assert_uint_eq(sched_job_usable_bytes(&jobs[0]), 14 * GIB);
  ck_assert_uint_eq(sched_job_usable_bytes(&jobs[2]), 16 * GIB);
}
END_TEST

/* Who does not hold leaves what it has to leave. */
static void pass_and_leave(uint64_t ns) {
  pass(ns);
  for (int i = 0; i < 2; i++) {
    struct sched_residence residence = {.resident_bytes = jobs[i].room_bytes, .room_seq = jobs[i].room_seq};
    if (jobs[i].state != GS_JOB_HOLDING)
      scheduler_resident(&jobs[i], &residence, now_ns, &change);
  }
  execute();
}

START_TEST(others_run_whatever_one_user_is_refused) {
  set_mode(GS_MODE_ON);
  bring(0, 0, 8 * GIB, 8 * GIB);
  bring(1, 1, 12 * GIB, 0);
  request(0);
  be_short(0, 8 * GIB);
  request(1);
  for (int turns = 0; turns < 3 || jobs[1].state != GS_JOB_HOLDING; turns++) {
    ck_assert(!sched_job_too_big(&jobs[1]));
    ck_assert_int_lt(turns, 6);
    pass_and_leave(TQ_NS);
  }
  ck_assert_uint_eq(jobs[1].room_bytes, 12 * GIB);
}
END_TEST

/* In its turns others make way for it, as for what it has: what it was refused it gets after all. */
START_TEST(who_is_refused_gets_what_others_leave) {
  bring(0, 0, 4 * GIB, 4 * GIB);
  bring(1, 1, 11 * GIB, 0);
  ck_assert(!gpus[0].serialized); /* all fits, as far as one knows */
  be_short(0, 2 * GIB);
  ck_assert(gpus[0].serialized);
  pass(TQ_NS);
  request(0);
  request(1);
  for (int turns = 0; turns < 6; turns++) {
    pass_and_leave(TQ_NS);
    ck_assert(jobs[0].state != GS_JOB_HOLDING || jobs[1].state != GS_JOB_HOLDING);
    if (jobs[0].state == GS_JOB_HOLDING) {
      ck_assert_uint_eq(jobs[0].room_bytes, 4 * GIB);
      ck_assert_uint_le(jobs[1].claim_bytes, 10 * GIB); /* it is short of 2 beside 4 */
    }
  }
  ck_assert_uint_ge(jobs[0].turns, 2);
  ck_assert_uint_ge(jobs[1].turns, 2);
}
END_TEST

static void move_to(int i, uint64_t resident_bytes) {
  struct sched_residence residence = {.resident_bytes = resident_bytes, .room_seq = jobs[i].room_seq};
  scheduler_resident(&jobs[i], &residence, now_ns, &change);
  execute();
}

/* What others have yet to leave it can't have, nor what it was refused beside that. */
START_TEST(who_is_refused_waits_until_others_have_left_that) {
  set_mode(GS_MODE_ON);
  bring(0, 0, 4 * GIB, 2 * GIB);
  bring(1, 1, 12 * GIB, 12 * GIB);
  be_short(0, 2 * GIB);
  pass(TQ_NS);
  request(0);
  ck_assert_int_eq(jobs[0].state, GS_JOB_HOLDING);
  ck_assert_uint_eq(jobs[1].room_bytes, 10 * GIB);
  ck_assert_uint_eq(jobs[0].room_bytes, 2 * GIB);
  move_to(1, 10 * GIB);
  ck_assert_uint_eq(jobs[0].room_bytes, 4 * GIB);
}
END_TEST

/* Whatever it says to have there. */
START_TEST(without_room_a_job_takes_none) {
  set_mode(GS_MODE_ON);
  bring(0, 0, 12 * GIB, 12 * GIB);
  request(0);
  bring(1, 1, 12 * GIB, 0);
  ck_assert_uint_eq(jobs[0].room_bytes, 12 * GIB);
  uint64_t claim_bytes = jobs[1].claim_bytes;
  ck_assert_uint_le(claim_bytes, 4 * GIB);
  scheduler_resident(&jobs[1],
                     &(struct sched_residence){.resident_bytes = 12 * GIB, .room_seq = jobs[1].room_seq},
                     now_ns, &change);
  execute();
  ck_assert_uint_eq(jobs[1].claim_bytes, claim_bytes);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_user_with_100_jobs_leaves_another_one_half,
                                so_it_is_in_mode_on,
                                sets_of_small_jobs_count_as_what_they_have_of_the_card,
                                within_a_user_all_jobs_have_turns,
                                users_share_by_weight,
                                a_stream_of_newcomers_passes_no_other_user,
                                nor_does_a_user_that_is_always_new,
                                who_holds_and_does_nothing_is_charged,
                                who_has_rested_does_not_make_up_for_it,
                                a_user_is_charged_its_part_of_the_card,
                                also_while_it_stops,
                                who_has_filled_gaps_is_not_far_ahead,
                                who_comes_begins_behind_those_that_wait,
                                who_has_had_less_than_half_a_quantum_more_goes,
                                who_is_a_quantum_behind_preempts,
                                each_gpu_has_accounts_of_its_own,
                                an_opportunistic_user_comes_after_all_others,
                                only_fair_looks_at_users,
                                a_user_has_no_more_memory_than_it_may,
                                nobody_reports_more_than_it_was_granted,
                                nor_pins_more_than_it_may,
                                what_a_user_alleges_refuses_no_other_what_is_there,
                                nor_keeps_it_waiting,
                                what_has_been_granted_counts_in_full,
                                absurd_sizes_make_no_sum_wrap,
                                silence_costs_its_own_user,
                                also_where_policies_do_not_look_at_users,
                                also_if_the_job_comes_again,
                                once_others_rest_its_user_goes_on,
                                or_once_they_have_gone,
                                or_once_they_have_had_twice_as_long,
                                a_refusal_makes_the_card_smaller_for_its_user_alone,
                                one_user_says_it_for_all_until_another_one_comes,
                                others_run_whatever_one_user_is_refused,
                                who_is_refused_gets_what_others_leave,
                                who_is_refused_waits_until_others_have_left_that,
                                without_room_a_job_takes_none,
                                no_history_takes_a_user_its_part,
                                NULL};
  return suite_main("users", tests, set_up, NULL);
}
