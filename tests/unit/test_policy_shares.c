/*
 * test_policy_shares.c - what each policy promises to jobs that always want to run: random jobs, of which one
 * is replaced or gets other terms from time to time. In between the jobs' shares are measured.
 *
 * With N jobs of which one has the part P of all weights, and T for a quantum with its hand-over:
 *
 * rr: no job has a turn more than another one.
 *
 * fair: no job has 2 T (1 + N P) more or less than P of the time. Why: a job has a quantum more than its part
 * at most, or, for the sake of the order of equals, half of one, and half of another one's. Users have their
 * parts likewise, and each user's jobs have theirs of that.
 *
 * fifo, srtf, priority: no job waits for longer than T beside one that comes after it by the policy's order.
 *
 * pack: a turn takes 32 quanta, and no job has a turn more than another one.
 *
 * By all of them: opportunistic jobs have nothing.
 *
 * GPUSHARE_SEED and GPUSHARE_RUNS choose others.
 */
#include <math.h>
#include <string.h>

#include "actors.h"
#include "suite.h"

#define CARD (16 * GIB)
#define JOB (12 * GIB)
#define TQ_NS NS_PER_S
#define TURN_NS (TQ_NS + 20 * NS_PER_MS)
#define SLACK_NS (200 * NS_PER_MS) /* hand-overs in a row */
#define PATIENCE 32                /* pack: in quanta */
#define USERS 3
#define WINDOWS 4
#define SETTLE_NS (100 * TQ_NS)

static struct actors them;
static struct sched_share users[USERS];
static uint64_t seed, jobs, arrivals;
static enum gs_policy policy;
static struct wish {           /* of an actor, as this test keeps its books */
  uint64_t arrival, had_ns;    /* had_ns: before the window */
  uint64_t waited_ns, runs_ns; /* since it last had a whole quantum; in this turn */
  int user;
  bool waits, runs, begins; /* as of noted_ns */
  uint64_t told_ns;         /* its terms */
  uint64_t passed_ns;       /* since when it waits for one that comes after it; 0: it does not */
} wishes[ACTORS];
static uint64_t noted_ns, grants; /* grants: before the window */

static void blame(const char *what, int i) { ck_abort_msg("seed %lu: job %d %s", seed, i + 1, what); }
static uint64_t below(uint64_t bound) { return actors_random_below(&them, bound); }
static const struct sched_terms *terms_of(int i) { return &them.jobs[i].terms; }
static bool is_late(int i) { return terms_of(i)->class == GS_CLASS_OPPORTUNISTIC; }
static double seconds(uint64_t ns) { return (double)ns / NS_PER_S; }

/* In the window. */
static double had_s(int i) {
  return seconds(sched_job_gpu_ns(&them.jobs[i], them.now_ns) - wishes[i].had_ns);
}

/* ---- the policies' orders ---- */

/* The lowest goes first. */
static double rank(int i) {
  double had = seconds(sched_job_gpu_ns(&them.jobs[i], them.now_ns));
  double expected = seconds(terms_of(i)->expected_ns), waited = seconds(wishes[i].waited_ns);
  if (policy == GS_POLICY_SRTF)
    return (expected > had ? expected - had : had) - waited / 32;
  if (policy == GS_POLICY_PRIORITY)
    return -60.0 * terms_of(i)->priority - waited;
  return (double)wishes[i].arrival;
}

static bool goes_before(int i, int holder) {
  if (is_late(i) != is_late(holder))
    return is_late(holder);
  bool ordered = policy == GS_POLICY_FIFO || policy == GS_POLICY_SRTF || policy == GS_POLICY_PRIORITY;
  return ordered && rank(i) < rank(holder) - seconds(SLACK_NS);
}

static void keep_books(int i, uint64_t ns) {
  struct wish *wish = &wishes[i];
  bool there = them.actors[i].attached, ran = wish->runs;
  wish->waited_ns += wish->waits ? ns : 0;
  wish->runs_ns = ran ? wish->runs_ns + ns : 0;
  if (wish->runs_ns >= TQ_NS)
    wish->waited_ns = 0;
  wish->waits = there && them.jobs[i].state == GS_JOB_WAITING;
  wish->runs = there && them.jobs[i].state == GS_JOB_HOLDING && them.jobs[i].active;
  wish->begins = wish->runs && !ran;
}

/* When the other one was granted, it waited already, and both had the terms that they have. */
static bool waited_then(int i, int holder) {
  uint64_t granted_ns = them.jobs[holder].granted_ns;
  return them.jobs[i].since_ns < granted_ns && wishes[i].told_ns < granted_ns &&
         wishes[holder].told_ns < granted_ns;
}

static void check_order(void) {
  for (int i = 0; i < ACTORS; i++)
    keep_books(i, them.now_ns - noted_ns);
  noted_ns = them.now_ns;
  for (int i = 0; i < ACTORS; i++)
    for (int holder = 0; holder < ACTORS; holder++) {
      bool passed = wishes[i].waits && wishes[holder].runs && goes_before(i, holder);
      ck_assert_msg(!passed || !wishes[holder].begins || !waited_then(i, holder),
                    "seed %lu, policy %d: job %d is passed over", seed, policy, i);
      if (wishes[holder].runs && (!passed || !wishes[i].passed_ns))
        wishes[i].passed_ns = passed ? them.now_ns : 0;
    }
  for (int i = 0; i < ACTORS; i++)
    ck_assert_msg(!wishes[i].passed_ns || them.now_ns - wishes[i].passed_ns <= TURN_NS + SLACK_NS,
                  "seed %lu, policy %d: job %d waits beside one that comes after it", seed, policy, i);
}

/* ---- their shares ---- */

/* Opportunistic jobs beside others do not. */
static bool counts(int i) {
  bool all_late = true;
  for (int k = 0; k < (int)jobs; k++)
    all_late &= is_late(k);
  return all_late || !is_late(i);
}

struct party { /* of the user; -1: of all */
  double weight, had_s;
  int count;
};

static struct party sum_up(int user) {
  struct party party = {0};
  for (int i = 0; i < (int)jobs; i++)
    if (counts(i) && (user < 0 || wishes[i].user == user)) {
      party.weight += terms_of(i)->weight;
      party.had_s += had_s(i);
      party.count++;
    }
  return party;
}

static void check_part(const char *what, int i, double had, double part, const struct party *party) {
  double promised = part * party->had_s, most = 2 * seconds(TURN_NS) * (1 + party->count * part);
  ck_assert_msg(fabs(had - promised) <= most, "seed %lu: %s %d has had %.1f s instead of %.1f s", seed, what,
                i, had, promised);
}

static void check_fair(void) {
  struct party all = sum_up(-1), parties[USERS] = {0};
  if (!them.users[0])
    for (int i = 0; i < (int)jobs; i++)
      if (counts(i))
        check_part("job", i, had_s(i), terms_of(i)->weight / all.weight, &all);
  if (!them.users[0])
    return;
  all.weight = all.count = 0;
  for (int user = 0; user < USERS; user++) {
    parties[user] = sum_up(user);
    all.weight += parties[user].count ? users[user].weight : 0;
    all.count += parties[user].count > 0;
  }
  for (int user = 0; user < USERS; user++)
    if (parties[user].count)
      check_part("user", user, parties[user].had_s, users[user].weight / all.weight, &all);
  for (int i = 0; i < (int)jobs; i++)
    if (counts(i))
      check_part("job", i, had_s(i), terms_of(i)->weight / parties[wishes[i].user].weight,
                 &parties[wishes[i].user]);
}

static void check_equal(double turn_s) {
  struct party all = sum_up(-1);
  for (int i = 0; i < (int)jobs; i++)
    ck_assert_msg(!counts(i) || fabs(had_s(i) - all.had_s / all.count) <= turn_s,
                  "seed %lu, policy %d: job %d has had %.1f s of %.1f s", seed, policy, i, had_s(i),
                  all.had_s);
}

static void check_window(double window_s) {
  for (int i = 0; i < (int)jobs; i++)
    ck_assert_msg(counts(i) || had_s(i) == 0, "seed %lu: opportunistic job %d has had %.1f s", seed, i,
                  had_s(i));
  ck_assert_double_ge(sum_up(-1).had_s, 0.95 * window_s);
  if (policy == GS_POLICY_FAIR)
    check_fair();
  if (policy == GS_POLICY_RR)
    check_equal(seconds(TURN_NS));
  if (policy == GS_POLICY_PACK) {
    check_equal((PATIENCE + 2) * seconds(TURN_NS));
    ck_assert_double_le((double)(them.gpu.grants - grants), window_s / PATIENCE + 1);
  }
}

/* ---- a history ---- */

static void set_terms(int i) {
  struct sched_terms terms = {.weight = 100u << below(3),
                              .priority = (int32_t)below(3),
                              .expected_ns = below(3) * (20 + below(100)) * NS_PER_S,
                              .class = actors_chance(&them, 15) ? GS_CLASS_OPPORTUNISTIC
                                                                : (enum gs_class)below(2)};
  scheduler_set_terms(&them.jobs[i], &terms, them.now_ns, &them.change);
  wishes[i].told_ns = them.now_ns;
  actors_execute(&them);
}

static void come(int i) {
  bool shared = seed % 2;
  wishes[i] = (struct wish){.arrival = ++arrivals, .user = shared ? (int)below(USERS) : 0};
  them.users[i] = shared ? &users[wishes[i].user] : NULL;
  actors_attach(&them, i, JOB, 0, 0);
  set_terms(i);
  actors_request(&them, i);
}

static void begin(void) {
  actors_init(&them, seed, CARD);
  memset(wishes, 0, sizeof wishes);
  them.fail = blame;
  them.on_event = check_order;
  them.letter_ns = them.drain_ns = NS_PER_MS;
  them.bytes_per_s = them.gpu.handover.bytes_per_s = UINT64_C(5000) * GIB;
  them.piece_bytes = GIB;
  them.busy_percent = 100;
  them.gpu.settings.tq_ns = TQ_NS;
  them.gpu.settings.mode = GS_MODE_ON;
  them.gpu.settings.policy = policy;
  for (uint32_t user = 0; user < USERS; user++)
    scheduler_add_share(&them.gpu, &users[user], user, 100u << below(3), 0);
  jobs = 2 + below(ACTORS - 1);
  noted_ns = them.now_ns;
}

static void change(void) {
  int i = (int)below(jobs);
  bool leaves = actors_chance(&them, 50);
  if (leaves)
    actors_detach(&them, i);
  actors_pass(&them, below(3 * TQ_NS));
  if (leaves)
    come(i);
  else
    set_terms(i);
}

static void play(void) {
  uint64_t window_ns = (policy == GS_POLICY_PACK ? 800 : 200) * TQ_NS;
  begin();
  for (int i = 0; i < (int)jobs; i++) {
    come(i);
    actors_pass(&them, below(3 * TQ_NS));
  }
  for (int window = 0; window < WINDOWS; window++) {
    change();
    actors_pass(&them, SETTLE_NS);
    for (int i = 0; i < (int)jobs; i++)
      wishes[i].had_ns = sched_job_gpu_ns(&them.jobs[i], them.now_ns);
    grants = them.gpu.grants;
    actors_pass(&them, window_ns);
    check_window(seconds(window_ns));
  }
}

static void check_policy(enum gs_policy which) {
  uint64_t first = suite_number("GPUSHARE_SEED", 1), runs = suite_number("GPUSHARE_RUNS", 30);
  policy = which;
  for (seed = first; seed < first + runs; seed++)
    play();
}

TEST(rr) { check_policy(GS_POLICY_RR); }
TEST(fair) { check_policy(GS_POLICY_FAIR); }
TEST(fifo) { check_policy(GS_POLICY_FIFO); }
TEST(srtf) { check_policy(GS_POLICY_SRTF); }
TEST(priority) { check_policy(GS_POLICY_PRIORITY); }
TEST(pack) { check_policy(GS_POLICY_PACK); }

int main(void) { return suite_run_all("policy_shares", NULL, NULL); }
