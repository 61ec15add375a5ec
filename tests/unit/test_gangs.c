/*
 * test_gangs.c - jobs of several GPUs that must hold together: simple histories, and random ones with deaths
 * and late members.
 *
 * Clients do what they are told after a random time: stop, ask again, restore, run. A gang computes only
 * while all of its members run; what one of them alone does is wait on its card.
 */
#include <string.h>

#include "common/clock.h"
#include "core/scheduler.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define GPUS 3
#define JOBS 12
#define GANGS 3
#define TQ_NS (100 * NS_PER_MS)
#define REPLY_NS (5 * NS_PER_MS) /* at most */

enum reply { REPLY_NONE, REPLY_STOP, REPLY_RUN };

static struct client {
  struct sched_job job;
  bool there, wants, runs;
  int gang; /* -1: none */
  uint64_t epoch, ran_ns;
  enum reply reply;
  uint64_t reply_ns;
} clients[JOBS];

static struct scheduler scheduler;
static struct sched_gpu gpus[GPUS];
static struct sched_gang gangs[GANGS];
static uint64_t gang_ran_ns[GANGS];
static struct sched_change change;
static uint64_t now_ns, random_state;

static uint64_t random_below(uint64_t bound) {
  uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (z ^ (z >> 31)) % bound;
}

/* ---- clients ---- */

static void plan_reply(struct client *client, enum reply reply) {
  client->reply = reply;
  client->reply_ns = now_ns + random_below(REPLY_NS);
}

static void execute(void) {
  struct sched_action action;
  while (change_next(&change, &action)) {
    struct client *client = action.job->owner;
    if (action.type == SCHED_TELL_LOCK_OK) {
      client->epoch = action.epoch;
      plan_reply(client, REPLY_RUN);
    } else if (action.type == SCHED_TELL_DROP_LOCK) {
      plan_reply(client, REPLY_STOP);
    }
  }
}

static void request(int i) {
  scheduler_request(&clients[i].job, now_ns, &change);
  execute();
}

static void reply(struct client *client) {
  enum reply what = client->reply;
  client->reply = REPLY_NONE;
  if (what == REPLY_RUN) {
    client->runs = true;
    scheduler_active(&client->job, &(struct sched_active){.epoch = client->epoch}, now_ns, &change);
  } else {
    client->runs = false;
    scheduler_release(&client->job, &(struct sched_release){.epoch = client->epoch}, now_ns, &change);
  }
  execute();
  if (what == REPLY_STOP && client->wants)
    request((int)(client - clients));
}

static void come(int i, int gpu, int gang) {
  struct sched_attach attach = {.id = (uint32_t)i + 1, .owner = &clients[i], .used_bytes = 0};
  clients[i] = (struct client){.there = true, .wants = true, .gang = gang};
  scheduler_attach(&gpus[gpu], &clients[i].job, &attach, now_ns, &change);
  execute();
  if (gang >= 0)
    ck_assert(scheduler_join(&clients[i].job, &gangs[gang], now_ns, &change));
  execute();
  request(i);
}

static void die(int i) {
  clients[i].there = false;
  scheduler_detach(&clients[i].job, now_ns, &change);
  execute();
}

/* ---- time ---- */

static bool gang_runs(int gang) {
  bool runs = false;
  for (int i = 0; i < JOBS; i++) {
    if (!clients[i].there || clients[i].gang != gang)
      continue;
    if (!clients[i].runs)
      return false;
    runs = true;
  }
  return runs;
}

static void check(void) {
  for (int g = 0; g < GPUS; g++) {
    int running = 0;
    for (int i = 0; i < JOBS; i++)
      running += clients[i].there && clients[i].job.gpu == &gpus[g] && clients[i].runs;
    ck_assert_int_le(running, 1);
  }
}

static void account(uint64_t ns) {
  for (int i = 0; i < JOBS; i++)
    if (clients[i].there && clients[i].runs)
      clients[i].ran_ns += ns;
  for (int gang = 0; gang < GANGS; gang++)
    if (gang_runs(gang))
      gang_ran_ns[gang] += ns;
}

static uint64_t next_ns(void) {
  uint64_t next = scheduler_deadline_ns(&scheduler);
  for (int i = 0; i < JOBS; i++)
    if (clients[i].there && clients[i].reply != REPLY_NONE && clients[i].reply_ns < next)
      next = clients[i].reply_ns;
  return next;
}

static void pass(uint64_t ns) {
  uint64_t end_ns = now_ns + ns;
  for (uint64_t next; (next = next_ns()) <= end_ns;) {
    account(next > now_ns ? next - now_ns : 0);
    now_ns = next > now_ns ? next : now_ns;
    if (scheduler_deadline_ns(&scheduler) <= now_ns) {
      scheduler_expire(&scheduler, now_ns, &change);
      execute();
    }
    for (int i = 0; i < JOBS; i++)
      if (clients[i].there && clients[i].reply != REPLY_NONE && clients[i].reply_ns <= now_ns)
        reply(&clients[i]);
    check();
    ck_assert_msg(scheduler_deadline_ns(&scheduler) > now_ns, "a deadline that is never over");
  }
  account(end_ns - now_ns);
  now_ns = end_ns;
}

static void set_up_with(uint64_t seed) {
  random_state = seed;
  now_ns = NS_PER_S;
  memset(clients, 0, sizeof clients);
  memset(gang_ran_ns, 0, sizeof gang_ran_ns);
  scheduler_init(&scheduler);
  scheduler.defaults.mode = GS_MODE_ON;
  scheduler.defaults.tq_ns = TQ_NS;
  change_init(&change);
  for (int g = 0; g < GPUS; g++) {
    uint8_t uuid[GS_UUID_SIZE] = {1, (uint8_t)g};
    scheduler_add_gpu(&scheduler, &gpus[g], uuid, "card", 16 * GIB);
  }
  for (int gang = 0; gang < GANGS; gang++)
    gang_init(&gangs[gang]);
}

static void set_up(void) { set_up_with(1); }

/* ---- simple histories ---- */

START_TEST(two_gangs_share_two_gpus) {
  for (int gang = 0; gang < 2; gang++)
    for (int gpu = 0; gpu < 2; gpu++)
      come(2 * gang + gpu, gpu, gang);
  pass(20 * NS_PER_S);
  for (int gang = 0; gang < 2; gang++) /* half of the time each, less drains and waiting for both GPUs */
    ck_assert_uint_ge(gang_ran_ns[gang], 8 * NS_PER_S);
  for (int i = 0; i < 4; i++) /* and hardly ever one of them alone */
    ck_assert_uint_le(clients[i].ran_ns, gang_ran_ns[clients[i].gang] + NS_PER_S);
}
END_TEST

START_TEST(a_gang_shares_with_single_jobs) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 0, -1);
  come(3, 1, -1);
  pass(20 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns[0], 6 * NS_PER_S);
  ck_assert_uint_ge(clients[2].ran_ns, 6 * NS_PER_S);
  ck_assert_uint_ge(clients[3].ran_ns, 6 * NS_PER_S);
}
END_TEST

/* GPU 1 has nothing else to do while the gang waits for GPU 0: a single job runs there, and makes way. */
START_TEST(who_runs_meanwhile_makes_way_at_once) {
  come(2, 0, -1);
  come(3, 1, -1);
  come(0, 0, 0);
  come(1, 1, 0);
  pass(10 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns[0], 4 * NS_PER_S);
  ck_assert_uint_ge(clients[3].ran_ns, 4 * NS_PER_S);
}
END_TEST

START_TEST(gangs_in_a_ring_do_not_deadlock) {
  for (int gang = 0; gang < 3; gang++) {
    come(2 * gang, gang, gang);
    come(2 * gang + 1, (gang + 1) % 3, gang);
  }
  pass(30 * NS_PER_S);
  for (int gang = 0; gang < 3; gang++) /* one at a time */
    ck_assert_uint_ge(gang_ran_ns[gang], 7 * NS_PER_S);
}
END_TEST

START_TEST(all_ask_when_one_does) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 0, 1);
  pass(NS_PER_S);
  clients[1].wants = false; /* it computes on the CPU, and the other one needs it on its GPU */
  pass(10 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns[0], 4 * NS_PER_S);
}
END_TEST

START_TEST(a_dead_member_is_not_waited_for) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 1, -1);
  pass(NS_PER_S);
  die(1);
  uint64_t before_ns = clients[0].ran_ns;
  pass(NS_PER_S);
  ck_assert_uint_ge(clients[0].ran_ns - before_ns, 900 * NS_PER_MS);
  ck_assert_ptr_eq(clients[0].job.gang->members.next, &clients[0].job.gang_link);
}
END_TEST

START_TEST(a_late_member_joins_those_that_hold) {
  come(2, 1, -1);
  come(0, 0, 0);
  pass(NS_PER_S);
  come(1, 1, 0);
  pass(10 * NS_PER_S);
  ck_assert_uint_ge(gang_ran_ns[0], 4 * NS_PER_S);
  ck_assert_uint_ge(clients[2].ran_ns, 4 * NS_PER_S);
}
END_TEST

START_TEST(a_gang_has_one_member_on_a_gpu) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 0, -1);
  ck_assert(!scheduler_join(&clients[2].job, &gangs[0], now_ns, &change));
  execute();
  ck_assert_ptr_null(clients[2].job.gang);
}
END_TEST

START_TEST(who_leaves_a_gang_is_on_its_own) {
  come(0, 0, 0);
  come(1, 1, 0);
  come(2, 1, -1);
  scheduler_join(&clients[1].job, NULL, now_ns, &change);
  execute();
  clients[0].gang = clients[1].gang = -1;
  pass(10 * NS_PER_S);
  ck_assert_uint_ge(clients[0].ran_ns, 9 * NS_PER_S);
  ck_assert_uint_ge(clients[1].ran_ns, 4 * NS_PER_S);
}
END_TEST

/* ---- random histories ---- */

static bool has_member(int gang, int gpu) {
  for (int i = 0; i < JOBS; i++)
    if (clients[i].there && clients[i].gang == gang && clients[i].job.gpu == &gpus[gpu])
      return true;
  return false;
}

static void act(void) {
  int i = (int)random_below(JOBS), gpu = (int)random_below(GPUS), gang = (int)random_below(GANGS + 2);
  if (gang >= GANGS || has_member(gang, gpu))
    gang = -1;
  if (!clients[i].there)
    come(i, gpu, gang);
  else if (random_below(4) == 0)
    die(i);
  else if (random_below(10) == 0)
    scheduler_set_policy(&scheduler, NULL, (enum gs_policy)random_below(GS_POLICY_PRIORITY + 1), now_ns,
                         &change);
  else
    clients[i].wants ^= true;
  execute();
  if (clients[i].there && clients[i].wants)
    request(i);
}

/* Nobody is disturbed any more: all compute. */
static void check_liveness(uint64_t seed) {
  scheduler_set_policy(&scheduler, NULL, GS_POLICY_RR, now_ns, &change);
  execute();
  for (int i = 0; i < JOBS; i++) {
    clients[i].wants = true;
    clients[i].ran_ns = 0;
    if (clients[i].there)
      request(i);
  }
  memset(gang_ran_ns, 0, sizeof gang_ran_ns);
  pass(4 * JOBS * (TQ_NS + 2 * REPLY_NS));
  for (int i = 0; i < JOBS; i++) {
    if (!clients[i].there)
      continue;
    uint64_t ran_ns = clients[i].gang >= 0 ? gang_ran_ns[clients[i].gang] : clients[i].ran_ns;
    ck_assert_msg(ran_ns >= TQ_NS / 2, "seed %lu: job %d of gang %d has run for %lu ms", seed, i,
                  clients[i].gang, ran_ns / NS_PER_MS);
  }
}

static uint64_t number(const char *variable, uint64_t otherwise) {
  const char *text = getenv(variable);
  return text ? strtoull(text, NULL, 0) : otherwise;
}

/* GPUSHARE_SEED and GPUSHARE_RUNS choose others. */
START_TEST(everybody_computes_after_any_history) {
  uint64_t first = number("GPUSHARE_SEED", 1), runs = number("GPUSHARE_RUNS", 2000);
  for (uint64_t seed = first; seed < first + runs; seed++) {
    set_up_with(seed);
    for (int step = 0; step < 60; step++) {
      act();
      pass(random_below(60 * NS_PER_MS));
    }
    check_liveness(seed);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {two_gangs_share_two_gpus,
                                a_gang_shares_with_single_jobs,
                                who_runs_meanwhile_makes_way_at_once,
                                gangs_in_a_ring_do_not_deadlock,
                                all_ask_when_one_does,
                                a_dead_member_is_not_waited_for,
                                a_late_member_joins_those_that_hold,
                                a_gang_has_one_member_on_a_gpu,
                                who_leaves_a_gang_is_on_its_own,
                                everybody_computes_after_any_history,
                                NULL};
  return suite_main("gangs", tests, set_up, NULL);
}
