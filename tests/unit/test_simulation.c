/*
 * test_simulation.c - random histories of clients that live, wait, die, stall and grow, checked after every
 * event.
 *
 * usage: test_simulation [SEED [RUNS]]; GPUSHARE_SEED and GPUSHARE_RUNS do the same. A failure prints the
 * seed of the run that failed: with it and RUNS 1 the same history happens again.
 *
 * The clients obey the protocol as libunified does; messages take time both ways, so grants, releases and
 * orders cross.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "core/scheduler.h"

#define CLIENTS 6
#define STEPS 300
#define CAPACITY 1000
#define MESSAGES 64 /* in flight to one client */

enum message { ATTACHED, GRANT, WANTED, DROP };

struct letter {
  enum message what;
  uint64_t epoch, arrives_ns;
};

/* What the client knows: it lags behind what the scheduler knows. */
struct client {
  bool attached, holding, releasing, wants, requested, stalled, managed;
  uint64_t epoch;
  uint64_t release_ns;   /* when its drain ends */
  uint64_t wanted_epoch; /* of the last LOCK_WANTED */
  bool wanted;           /* there was one */
  struct letter letters[MESSAGES];
  unsigned first, count;
};

struct run {
  uint64_t seed, random, now_ns, digest;
  struct scheduler scheduler;
  struct sched_gpu gpu;
  struct sched_job jobs[CLIENTS];
  struct client clients[CLIENTS];
  struct sched_change change;
  uint64_t max_wait_ns;
  bool fair; /* no stalls, no changes of settings: nobody may wait for long */
};

static struct run run;

static void fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "seed %llu, at %llu ns: ", (unsigned long long)run.seed, (unsigned long long)run.now_ns);
  vfprintf(stderr, format, args);
  fprintf(stderr, "\nto replay: test_simulation %llu 1\n", (unsigned long long)run.seed);
  va_end(args);
  exit(EXIT_FAILURE);
}

/* splitmix64 */
static uint64_t random_bits(void) {
  uint64_t z = run.random += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static uint64_t random_below(uint64_t bound) { return random_bits() % bound; }

static bool chance(unsigned percent) { return random_below(100) < percent; }

static void digest(uint64_t value) { run.digest = (run.digest ^ value) * UINT64_C(0x100000001b3); }

/* ---- decisions on their way to the clients ---- */

static int active_jobs(void) {
  int active = 0;
  for (int i = 0; i < CLIENTS; i++)
    if (run.clients[i].attached)
      active += run.jobs[i].state == GS_JOB_HOLDING || run.jobs[i].state == GS_JOB_DROPPING;
  return active;
}

static void check_grant(const struct sched_job *job) {
  if (run.gpu.serialized && active_jobs() > 1)
    fail("job %u is granted while another holds or has not answered", job->id);
}

static void post(struct client *client, enum message what, uint64_t epoch) {
  if (client->count == MESSAGES)
    fail("a client is told too much");
  struct letter *letter = &client->letters[(client->first + client->count++) % MESSAGES];
  *letter = (struct letter){what, epoch, run.now_ns + random_below(2 * NS_PER_MS)};
}

static void execute(void) {
  struct sched_action action;
  while (change_next(&run.change, &action)) {
    struct client *client = &run.clients[action.job->id - 1];
    digest(action.type);
    digest(action.job->id);
    digest(action.epoch);
    digest(action.room_bytes);
    digest(action.room_seq);
    if (action.type == SCHED_TELL_LOCK_OK) {
      check_grant(action.job);
      post(client, GRANT, action.epoch);
    } else if (action.type == SCHED_TELL_LOCK_WANTED) {
      if (client->wanted && client->wanted_epoch == action.epoch)
        fail("job %u is told twice that somebody waits", action.job->id);
      client->wanted = true;
      client->wanted_epoch = action.epoch;
      post(client, WANTED, action.epoch);
    } else if (action.type == SCHED_TELL_DROP_LOCK) {
      post(client, DROP, action.epoch);
    }
  }
}

/* ---- clients ---- */

static void request(int i) {
  struct client *client = &run.clients[i];
  if (!client->attached || client->holding || client->releasing || client->requested || !client->wants)
    return;
  client->requested = true;
  scheduler_request(&run.jobs[i], run.now_ns, &run.change);
  execute();
}

static void begin_release(struct client *client) {
  if (client->releasing)
    return;
  client->releasing = true;
  client->release_ns = run.now_ns + random_below(20 * NS_PER_MS);
}

static void end_release(int i) {
  struct client *client = &run.clients[i];
  client->holding = client->releasing = client->requested = false;
  client->wants = chance(80);
  scheduler_release(&run.jobs[i], &(struct sched_release){.epoch = client->epoch}, run.now_ns, &run.change);
  execute();
  request(i);
}

static void receive(int i) {
  struct client *client = &run.clients[i];
  struct letter letter = client->letters[client->first];
  client->first = (client->first + 1) % MESSAGES;
  client->count--;
  if (letter.what == GRANT) {
    if (client->holding)
      fail("job %d is granted twice without a release between", i + 1);
    client->holding = true;
    client->requested = false;
    client->epoch = letter.epoch;
    scheduler_active(&run.jobs[i], &(struct sched_active){.epoch = letter.epoch}, run.now_ns, &run.change);
    execute();
  } else if (client->holding && client->epoch == letter.epoch) {
    if (letter.what == DROP || chance(30))
      begin_release(client);
  }
}

static void attach(int i) {
  struct client *client = &run.clients[i];
  bool running = chance(10);
  *client = (struct client){.attached = true, .managed = run.fair || chance(70), .holding = running};
  client->wants = chance(70);
  struct sched_attach attach = {.id = (uint32_t)i + 1,
                                .used_bytes = random_below(CAPACITY),
                                .flags = (running ? GS_ATTACH_RUNNING : 0) |
                                         (client->managed ? GS_ATTACH_MANAGED : 0)};
  /* A grant that answers a running job's ATTACH replaces its epoch. */
  client->holding = false;
  scheduler_attach(&run.gpu, &run.jobs[i], &attach, run.now_ns, &run.change);
  bool granted = run.jobs[i].epoch != 0;
  client->holding = running && !granted;
  execute();
  request(i);
}

static void detach(int i) {
  scheduler_detach(&run.jobs[i], run.now_ns, &run.change);
  run.clients[i] = (struct client){0};
  memset(&run.jobs[i], 0xa5, sizeof run.jobs[i]);
  execute();
}

static void grow_or_shrink(int i) {
  uint64_t granted, total = random_below(CAPACITY);
  if (chance(50))
    scheduler_memory_report(&run.jobs[i], total, total / 8, run.now_ns, &run.change);
  else if (scheduler_memory_request(&run.jobs[i], total, total / 8, run.now_ns, &run.change, &granted) == 0 &&
           granted < total)
    fail("granted less than asked for");
  execute();
}

static void change_settings(void) {
  if (chance(40))
    scheduler_set_mode(&run.scheduler, NULL, (enum gs_mode)random_below(3), run.now_ns, &run.change);
  else if (chance(50))
    scheduler_set_tq(&run.scheduler, NULL, NS_PER_MS + random_below(50 * NS_PER_MS), run.now_ns, &run.change);
  else
    scheduler_set_capacity(&run.scheduler, NULL, random_below(3 * CAPACITY), run.now_ns, &run.change);
  execute();
}

/* ---- what must always hold ---- */

/* Those that wait and can run. */
static unsigned fitting_waiters(void) {
  unsigned count = 0;
  list_each(node, &run.gpu.queue) { count += !sched_job_too_big(list_entry(node, struct sched_job, turn)); }
  return count;
}

static void check_sums(void) {
  uint64_t used = 0, resident = 0, pinned = 0;
  unsigned waiting = 0, holding = 0, jobs = 0;
  for (int i = 0; i < CLIENTS; i++) {
    if (!run.clients[i].attached)
      continue;
    const struct sched_job *job = &run.jobs[i];
    jobs++;
    used += job->used_bytes;
    resident += job->resident_bytes;
    pinned += job->pinned_bytes;
    waiting += job->state == GS_JOB_WAITING;
    holding += job->state == GS_JOB_HOLDING;
    if (job->resident_bytes > job->used_bytes)
      fail("job %u is believed to have more on the card than it has", job->id);
  }
  const struct sched_gpu *gpu = &run.gpu;
  if (used != gpu->used_bytes || resident != gpu->resident_bytes || pinned != gpu->pinned_bytes ||
      waiting != gpu->waiting_count || holding != gpu->holder_count || jobs != gpu->job_count)
    fail("a sum is wrong");
}

static void check_turns(void) {
  const struct sched_gpu *gpu = &run.gpu;
  bool owed = !list_empty(&gpu->dropping) || !list_empty(&gpu->overdue);
  if (gpu->serialized && gpu->holder_count > 1)
    fail("%u jobs hold while turns are being taken", gpu->holder_count);
  if (gpu->serialized && gpu->holder_count == 0 && fitting_waiters() > 0 && !owed)
    fail("the GPU is free and somebody waits");
  if (!gpu->serialized && gpu->waiting_count > 0)
    fail("somebody waits though no turns are being taken");
  if (scheduler_deadline_ns(&run.scheduler) < run.now_ns)
    fail("a deadline has been missed");
}

/* While somebody waits, the holder knows. */
static void check_wanted(void) {
  const struct sched_gpu *gpu = &run.gpu;
  for (int i = 0; i < CLIENTS && gpu->serialized && fitting_waiters() > 0; i++) {
    const struct client *client = &run.clients[i];
    if (client->attached && run.jobs[i].state == GS_JOB_HOLDING &&
        !(client->wanted && client->wanted_epoch == run.jobs[i].epoch))
      fail("job %d does not know that somebody waits", i + 1);
  }
}

/* Nobody waits for longer than all the others' turns take. */
static void check_waits(void) {
  for (int i = 0; i < CLIENTS && run.fair; i++) {
    if (!run.clients[i].attached || run.jobs[i].state != GS_JOB_WAITING)
      continue;
    uint64_t turn_ns = run.gpu.settings.tq_ns + 30 * NS_PER_MS;
    if (run.now_ns - run.jobs[i].since_ns > (CLIENTS + 1) * turn_ns)
      fail("job %d waits too long", i + 1);
  }
}

static void check(void) {
  check_sums();
  check_turns();
  check_wanted();
  check_waits();
}

/* ---- time ---- */

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t next_event_ns(void) {
  uint64_t next_ns = scheduler_deadline_ns(&run.scheduler);
  for (int i = 0; i < CLIENTS; i++) {
    const struct client *client = &run.clients[i];
    if (client->stalled)
      continue;
    if (client->count > 0)
      next_ns = min_u64(next_ns, client->letters[client->first].arrives_ns);
    if (client->releasing)
      next_ns = min_u64(next_ns, client->release_ns);
  }
  return next_ns;
}

static void run_events(void) {
  if (scheduler_deadline_ns(&run.scheduler) <= run.now_ns) {
    scheduler_expire(&run.scheduler, run.now_ns, &run.change);
    execute();
  }
  for (int i = 0; i < CLIENTS; i++) {
    struct client *client = &run.clients[i];
    if (client->stalled)
      continue;
    while (client->count > 0 && client->letters[client->first].arrives_ns <= run.now_ns)
      receive(i);
    if (client->releasing && client->release_ns <= run.now_ns)
      end_release(i);
  }
}

static void pass_time(uint64_t ns) {
  uint64_t end_ns = run.now_ns + ns, next_ns;
  while ((next_ns = next_event_ns()) <= end_ns) {
    run.now_ns = next_ns > run.now_ns ? next_ns : run.now_ns;
    run_events();
    check();
  }
  run.now_ns = end_ns;
}

/* ---- a history ---- */

static void act(int i) {
  struct client *client = &run.clients[i];
  if (!client->attached)
    attach(i);
  else if (chance(10))
    detach(i); /* death, at any moment */
  else if (chance(15))
    grow_or_shrink(i);
  else if (chance(10) && !run.fair)
    client->stalled = !client->stalled;
  else {
    client->wants = true;
    request(i);
  }
}

/* Everybody answers again, nobody is disturbed: whoever waits must get its turn. */
static void settle(void) {
  for (int i = 0; i < CLIENTS; i++)
    run.clients[i].stalled = false;
  for (int i = 0; i < CLIENTS; i++) {
    run.clients[i].wants = true;
    request(i);
  }
  uint64_t turns[CLIENTS];
  for (int i = 0; i < CLIENTS; i++)
    turns[i] = run.clients[i].attached ? run.jobs[i].turns : 0;
  pass_time(4 * CLIENTS * (run.gpu.settings.tq_ns + 50 * NS_PER_MS));
  for (int i = 0; i < CLIENTS; i++)
    if (run.clients[i].attached && run.jobs[i].turns == turns[i] && run.jobs[i].state != GS_JOB_HOLDING &&
        run.clients[i].wants && !sched_job_too_big(&run.jobs[i]))
      fail("job %d never got a turn", i + 1);
}

static uint64_t run_history(uint64_t seed) {
  static const uint8_t uuid[GS_UUID_SIZE] = {1};
  memset(&run, 0, sizeof run);
  run.seed = run.random = seed;
  run.now_ns = NS_PER_S;
  run.fair = seed % 2;
  scheduler_init(&run.scheduler);
  change_init(&run.change);
  run.scheduler.grace_ns = 100 * NS_PER_MS;
  run.scheduler.settle_ns = random_below(2) * 5 * NS_PER_MS;
  run.scheduler.host_memory_bytes = 3 * CAPACITY;
  run.scheduler.defaults.tq_ns = 10 * NS_PER_MS;
  run.scheduler.defaults.mode = run.fair ? GS_MODE_ON : (enum gs_mode)random_below(3);
  scheduler_add_gpu(&run.scheduler, &run.gpu, uuid, "card", CAPACITY);
  for (int step = 0; step < STEPS; step++) {
    if (chance(5) && !run.fair)
      change_settings();
    else
      act((int)random_below(CLIENTS));
    check();
    pass_time(random_below(5 * NS_PER_MS));
  }
  settle();
  return run.digest;
}

static uint64_t number(int argc, char **argv, int place, const char *variable, uint64_t otherwise) {
  const char *text = argc > place ? argv[place] : getenv(variable);
  return text ? strtoull(text, NULL, 0) : otherwise;
}

int main(int argc, char **argv) {
  uint64_t seed = number(argc, argv, 1, "GPUSHARE_SEED", clock_now_ns());
  uint64_t runs = number(argc, argv, 2, "GPUSHARE_RUNS", 10000);
  printf("seed %llu, %llu runs\n", (unsigned long long)seed, (unsigned long long)runs);
  fflush(stdout);
  for (uint64_t i = 0; i < runs; i++)
    if (run_history(seed + i) != run_history(seed + i))
      fail("the same history has led to other decisions");
  return EXIT_SUCCESS;
}
