/*
 * test_gang_histories.c - random histories of gangs and single jobs with memory on several GPUs, in all modes
 * and by all policies, with deaths, late members and clients that hang; and of gangs whose members compute
 * only together.
 *
 * GPUSHARE_SEED and GPUSHARE_RUNS choose others. A failure tells the seed of the run that failed.
 */
#include <stdio.h>

#include "fleet.h"
#include "suite.h"

#define STEPS 60

static struct fleet fleet;

static uint64_t random_below(uint64_t bound) { return fleet_random_below(&fleet, bound); }

static bool chance(unsigned percent) { return random_below(100) < percent; }

static bool bounded, late, deferred; /* of each plan; what is told; plans */

static void set_up_with(uint64_t seed) {
  fleet_init(&fleet, seed);
  fleet.late = late;
  fleet.bounded = bounded || deferred;
  fleet.scheduler.deferred = deferred;
  if (bounded)
    fleet.scheduler.event_jobs_most = fleet.scheduler.gang_looks_most = 1;
  fleet.scheduler.grace_ns = 40 * FLEET_TQ_NS;
  if (seed % 3 == 0)
    fleet.scheduler.host_memory_bytes = FLEET_CARD; /* who says what it needs has to wait for it */
  fleet.scheduler.settle_ns = random_below(2) * 5 * NS_PER_MS;
}

/* ---- what happens ---- */

static uint64_t some_bytes(void) {
  return chance(20) ? 0 : random_below(chance(50) ? FLEET_CARD * 9 / 8 : FLEET_CARD / 2);
}

/* -1: none. */
static int some_gang(int gpu) {
  int gang = (int)random_below(FLEET_GANGS + 2);
  return gang >= FLEET_GANGS || fleet_has_member(&fleet, gang, gpu) ? -1 : gang;
}

static void come(int i) {
  int gpu = (int)random_below(FLEET_GPUS);
  fleet_come(&fleet, i, gpu, some_gang(gpu), some_bytes(), chance(50) ? GS_ATTACH_MANAGED : 0);
}

static int gpu_of(const struct fleet_client *client) { return (int)(client->job.gpu - fleet.gpus); }

/* At any moment: it may wait or hold, and so may the others. */
static void change_gang(int i) { fleet_join(&fleet, i, some_gang(gpu_of(&fleet.clients[i]))); }

static void set_paused(struct fleet_client *client, bool paused) {
  struct sched_terms terms = client->job.terms;
  terms.paused = paused;
  scheduler_set_terms(&client->job, &terms, fleet.now_ns, &fleet.change);
  fleet_execute(&fleet);
}

/* Of its gang, or itself. */
static bool is_member(const struct fleet_client *other, const struct fleet_client *client) {
  return other->there && (other == client || (other->gang >= 0 && other->gang == client->gang));
}

/* With all of its gang. */
static void pause_or_resume(struct fleet_client *client) {
  bool paused = !client->job.terms.paused;
  for (int i = 0; i < FLEET_JOBS; i++) {
    if (is_member(&fleet.clients[i], client))
      set_paused(&fleet.clients[i], paused);
  }
}

/* What it asks for, or is given. */
static void change_terms(struct fleet_client *client) {
  struct sched_terms terms = client->job.terms;
  terms.class = (enum gs_class)random_below(GS_CLASS_OPPORTUNISTIC + 1);
  terms.expected_bytes = chance(50) ? 0 : random_below(2 * FLEET_CARD);
  terms.limit_bytes = chance(70) ? 0 : random_below(2 * FLEET_CARD);
  scheduler_set_terms(&client->job, &terms, fleet.now_ns, &fleet.change);
  fleet_execute(&fleet);
}

static void change_settings(void) {
  struct sched_gpu *gpu = chance(30) ? NULL : &fleet.gpus[random_below(FLEET_GPUS)];
  if (chance(30))
    scheduler_set_policy(&fleet.scheduler, gpu, (enum gs_policy)random_below(GS_POLICY_PACK + 1),
                         fleet.now_ns, &fleet.change);
  else if (chance(60))
    scheduler_set_mode(&fleet.scheduler, gpu, (enum gs_mode)random_below(3), fleet.now_ns, &fleet.change);
  else
    scheduler_set_capacity(&fleet.scheduler, gpu, random_below(FLEET_CARD * 5 / 4), fleet.now_ns,
                           &fleet.change);
  fleet_execute(&fleet);
}

/* A member of a gang does so only when all rest. */
static void yield(int i) {
  if (fleet.clients[i].there && !fleet.clients[i].hangs && !fleet.clients[i].job.gang)
    fleet_yield(&fleet, i);
}

static void act(void) {
  int i = (int)random_below(FLEET_JOBS);
  struct fleet_client *client = &fleet.clients[i];
  if (!client->there)
    come(i);
  else if (chance(20))
    fleet_die(&fleet, i);
  else if (chance(15))
    change_settings();
  else if (chance(20))
    fleet_set_memory(&fleet, i, some_bytes());
  else if (chance(10))
    fleet_set_hanging(&fleet, i, !client->hangs);
  else if (chance(15))
    pause_or_resume(client);
  else if (chance(15))
    change_terms(client);
  else if (chance(20) && !client->job.terms.paused)
    change_gang(i);
  else if (chance(30))
    yield(i);
  else
    client->wants ^= true;
  if (client->there && client->wants && !client->hangs)
    fleet_request(&fleet, i);
}

/* ---- what must come of it ---- */

static bool stuck[FLEET_GPUS]; /* somebody there does not stop */

static bool can_run(const struct fleet_client *client) {
  return !client->hangs && !client->job.terms.paused && !sched_job_too_big(&client->job) &&
         !stuck[gpu_of(client)];
}

/* Its whole gang, if it has one. */
static bool must_run(const struct fleet_client *client) {
  bool all = true;
  for (int i = 0; i < FLEET_JOBS; i++)
    if (is_member(&fleet.clients[i], client))
      all &= can_run(&fleet.clients[i]);
  return all;
}

static void find_stuck(void) {
  for (int g = 0; g < FLEET_GPUS; g++)
    stuck[g] = false;
  for (int i = 0; i < FLEET_JOBS; i++)
    if (fleet.clients[i].there && fleet.clients[i].hangs)
      stuck[gpu_of(&fleet.clients[i])] = true;
}

/* Who is of no other class than the others need not wait until those rest. */
static void make_equal(struct fleet_client *client) {
  struct sched_terms terms = client->job.terms;
  terms.class = GS_CLASS_STANDARD;
  scheduler_set_terms(&client->job, &terms, fleet.now_ns, &fleet.change);
  fleet_execute(&fleet);
}

/* In half of the runs some give their turns back before a quantum is over. */
static void pass_with_yields(uint64_t ns) {
  if (fleet.seed % 2 == 0) {
    fleet_pass(&fleet, ns);
    return;
  }
  for (uint64_t end_ns = fleet.now_ns + ns; fleet.now_ns < end_ns;) {
    fleet_pass(&fleet, FLEET_TQ_NS / 5);
    yield((int)random_below(FLEET_JOBS / 2));
  }
}

/* Nobody is disturbed any more: all compute. But for those that are paused, or hang, and what these keep from
 * others on their GPUs. */
static void check_liveness(uint64_t seed) {
  scheduler_set_policy(&fleet.scheduler, NULL, GS_POLICY_RR, fleet.now_ns, &fleet.change);
  fleet_execute(&fleet);
  for (int i = 0; i < FLEET_JOBS; i++) {
    fleet.clients[i].wants = true;
    if (fleet.clients[i].there)
      make_equal(&fleet.clients[i]);
    if (fleet.clients[i].there && !fleet.clients[i].hangs)
      fleet_request(&fleet, i);
  }
  fleet_pass(&fleet, 3 * fleet.scheduler.grace_ns);
  for (int i = 0; i < FLEET_JOBS; i++)
    fleet.clients[i].ran_ns = 0;
  pass_with_yields(3 * fleet.scheduler.grace_ns + 6 * FLEET_JOBS * (FLEET_TQ_NS + 4 * FLEET_REPLY_NS));
  find_stuck();
  for (int i = 0; i < FLEET_JOBS; i++) {
    const struct fleet_client *client = &fleet.clients[i];
    if (!client->there)
      continue;
    ck_assert_msg(!must_run(client) || client->ran_ns >= FLEET_TQ_NS / 2,
                  "seed %lu: job %d of gang %d has run for %lu ms", seed, i, client->gang,
                  client->ran_ns / NS_PER_MS);
    bool may_run = client->hangs || !client->job.terms.paused;
    ck_assert_msg(may_run || !client->runs, "seed %lu: job %d runs though it is paused", seed, i);
  }
}

/* All give their memory back, again and again: nobody waits for it in the end. */
static void check_admission(uint64_t seed) {
  for (int i = 0; i < FLEET_JOBS * FLEET_JOBS; i++)
    if (fleet.clients[i % FLEET_JOBS].there)
      fleet_set_memory(&fleet, i % FLEET_JOBS, 0);
  ck_assert_msg(fleet.scheduler.entrant_count == 0, "seed %lu: %u jobs wait for memory that nobody has", seed,
                fleet.scheduler.entrant_count);
}

/* A number made of all that was decided. */
static uint64_t run_history(uint64_t seed, bool hanging) {
  set_up_with(seed);
  for (int step = 0; step < STEPS; step++) {
    act();
    fleet_pass(&fleet, random_below(60 * NS_PER_MS));
  }
  for (int i = 0; i < FLEET_JOBS && !hanging; i++)
    fleet_set_hanging(&fleet, i, false);
  check_liveness(seed);
  check_admission(seed);
  return fleet.digest;
}

static void run_histories(bool hanging) {
  uint64_t first = suite_number("GPUSHARE_SEED", 1), runs = suite_number("GPUSHARE_RUNS", 200);
  printf("seed %lu, %lu runs\n", first, runs);
  fflush(stdout);
  for (uint64_t seed = first; seed < first + runs; seed++) {
    uint64_t digest = run_history(seed, hanging);
    bool again = (seed - first) % 10 == 0;
    ck_assert_msg(!again || run_history(seed, hanging) == digest,
                  "seed %lu: the same history has led to other decisions", seed);
  }
}

START_TEST(everybody_computes_after_any_history) { run_histories(false); }
END_TEST

START_TEST(who_hangs_keeps_nobody_from_computing_on_other_gpus) { run_histories(true); }
END_TEST

/* An event looks at its own GPU, and leaves all others to the next ones. */
START_TEST(everybody_computes_if_events_look_at_one_gpu) {
  bounded = true;
  run_histories(false);
}
END_TEST

START_TEST(everybody_computes_if_words_are_told_late) {
  late = true;
  run_histories(false);
}
END_TEST

START_TEST(everybody_computes_if_all_comes_late) {
  bounded = late = true;
  run_histories(true);
}
END_TEST

START_TEST(everybody_computes_if_a_plan_is_made_for_several_events) {
  deferred = late = true;
  run_histories(true);
}
END_TEST

/* ---- collectives ---- */

#define COMPUTE_NS (300 * FLEET_TQ_NS)
#define LOOK_NS (FLEET_TQ_NS / 4)
#define PASSED_QUANTA 8 /* for so long a single job lets gangs pass */

/* Nobody rests. What a gang computes ends with a collective each time, so it goes on only while all of its
 * members run, whether the scheduler knows of the gang or not. */
static struct part { /* of a history: the same ones with gangs and without */
  int gpu, gang;
} parts[FLEET_JOBS];
static int part_count, gang_count;

static void add_part(int gpu, int gang) { parts[part_count++] = (struct part){gpu, gang}; }

/* Each gang has two GPUs or all. Its members do not come one after the other. */
static void draw_parts(void) {
  part_count = 0;
  gang_count = 1 + (int)random_below(FLEET_GANGS);
  for (int gang = 0; gang < gang_count; gang++) {
    int spared = (int)random_below(FLEET_GPUS + 1);
    for (int gpu = 0; gpu < FLEET_GPUS; gpu++)
      if (gpu != spared)
        add_part(gpu, gang);
  }
  for (uint64_t singles = random_below(4); singles > 0; singles--)
    add_part((int)random_below(FLEET_GPUS), -1);
  for (int i = part_count - 1; i > 0; i--) {
    int other = (int)random_below((uint64_t)i + 1);
    struct part part = parts[i];
    parts[i] = parts[other];
    parts[other] = part;
  }
}

static void begin_computing(uint64_t seed, bool declared) {
  fleet_init(&fleet, seed);
  fleet.scheduler.defaults.policy = seed % 2 ? GS_POLICY_RR : GS_POLICY_FAIR;
  for (int g = 0; g < FLEET_GPUS; g++) {
    fleet.gpus[g].settings.policy = fleet.scheduler.defaults.policy;
    fleet.gpus[g].settings.mode = seed % 4 < 2 ? GS_MODE_ON : GS_MODE_AUTO;
  }
  draw_parts();
  for (int i = 0; i < part_count; i++) {
    fleet_come(&fleet, i, parts[i].gpu, declared ? parts[i].gang : -1, random_below(FLEET_CARD), 0);
    fleet.clients[i].gang = parts[i].gang;
    fleet_pass(&fleet, random_below(FLEET_TQ_NS));
  }
}

static uint64_t gang_ran_ns(int gang) {
  int i = 0;
  while (parts[i].gang != gang)
    i++;
  return fleet.clients[i].ran_ns;
}

/* A turn and its end for each other gang and single job, beside that. */
static uint64_t most_still_ns(void) {
  int others = gang_count - 1;
  for (int i = 0; i < part_count; i++)
    others += parts[i].gang < 0;
  return (uint64_t)(PASSED_QUANTA + 2 * others) * FLEET_TQ_NS;
}

/* How many gangs have stood still for longer. */
static int compute(void) {
  uint64_t end_ns = fleet.now_ns + COMPUTE_NS, ran_ns[FLEET_GANGS], since_ns[FLEET_GANGS];
  bool stood[FLEET_GANGS] = {false};
  int count = 0;
  for (int gang = 0; gang < gang_count; gang++)
    since_ns[gang] = fleet.now_ns;
  while (fleet.now_ns < end_ns) {
    for (int gang = 0; gang < gang_count; gang++)
      ran_ns[gang] = gang_ran_ns(gang);
    fleet_pass(&fleet, LOOK_NS);
    for (int gang = 0; gang < gang_count; gang++) {
      since_ns[gang] = gang_ran_ns(gang) > ran_ns[gang] ? fleet.now_ns : since_ns[gang];
      stood[gang] |= fleet.now_ns - since_ns[gang] > most_still_ns();
    }
  }
  for (int gang = 0; gang < gang_count; gang++)
    count += stood[gang];
  return count;
}

START_TEST(gangs_never_stand_still_for_long) {
  uint64_t first = suite_number("GPUSHARE_SEED", 1), runs = suite_number("GPUSHARE_RUNS", 200);
  for (uint64_t seed = first; seed < first + runs; seed++) {
    begin_computing(seed, true);
    ck_assert_msg(compute() == 0, "seed %lu: a gang stands still", seed);
  }
}
END_TEST

/* Nor is that so of any jobs: the same ones stand still for longer, if nobody knows that they are gangs. */
START_TEST(what_is_no_gang_stands_still) {
  uint64_t first = suite_number("GPUSHARE_SEED", 1), runs = suite_number("GPUSHARE_RUNS", 200);
  uint64_t gangs = 0, still = 0;
  for (uint64_t seed = first; seed < first + runs; seed++) {
    begin_computing(seed, false);
    still += (uint64_t)compute();
    gangs += (uint64_t)gang_count;
  }
  ck_assert_msg(still >= gangs / 10, "%lu of %lu stand still", still, gangs);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {everybody_computes_after_any_history,
                                who_hangs_keeps_nobody_from_computing_on_other_gpus,
                                everybody_computes_if_events_look_at_one_gpu,
                                everybody_computes_if_words_are_told_late,
                                everybody_computes_if_all_comes_late,
                                everybody_computes_if_a_plan_is_made_for_several_events,
                                gangs_never_stand_still_for_long,
                                what_is_no_gang_stands_still,
                                NULL};
  return suite_main("gang_histories", tests, NULL, NULL);
}
