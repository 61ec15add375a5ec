/*
 * bench_core.c - what the daemon's decisions cost, for 10 to 10,000 jobs on 1 and on 64 GPUs: a plan, with
 * the events that lead to it; events per second; and bytes per job.
 *
 * Jobs of 4 GiB on cards of 16 GiB: all want to run all the time, and take turns in sets of four, but for ten
 * jobs on 64 GPUs. And jobs of up to 8 GiB, mixed, of which no two need the same: there is hardly ever nobody
 * among many that wait who fits beside those that hold.
 * Each does at once what it is told (stop, ask again, evict, restore, run), and one plan follows all of that,
 * as in the daemon; the clock goes from deadline to deadline, so nothing but the core takes time. Time is
 * that of the processor: what else the machine does is no cost of a decision.
 *
 * And what the worst single call of the core costs, by kind, in scenes of 2,048 jobs on a GPU that somebody
 * might play to hold the daemon up. Each scene is played several times, always alike; of each call the
 * shortest time counts, so that interruptions do not, and of those the longest one is told. `--worst` does
 * only that; a digest of all decisions says whether another build decides the same.
 */
#include <string.h>

#include "arguments.h"
#include "common/clock.h"
#include "common/parse.h"
#include "common/splitmix.h"
#include "core/scheduler.h"

#define GIB (UINT64_C(1) << 30)
#define CARD (16 * GIB)
#define JOB (4 * GIB)
#define MIXED_LEAST (GIB / 8) /* mixed: from here */
#define MIXED_MOST (8 * GIB)  /* to here */
#define GPUS_MAX 64
#define LOOK_EVERY 64
#define CROWD 2048           /* on one GPU: as many as the daemon takes of a user */
#define JOBS_MAX (8 * CROWD) /* of a scene */
#define CALLS_MAX 4000000
#define WORST_NS NS_PER_MS

struct client {
  struct sched_job job;
  uint64_t resident_bytes, room_bytes, room_seq, said_seq, epoch;
  bool holds, active;
};

static struct scheduler scheduler;
static struct sched_gpu gpus[GPUS_MAX];
static struct client *clients;
static struct sched_change change;
static uint64_t now_ns, events;
static uint64_t each_ns = NS_PER_S / 2; /* combination */
static bool worst_only;
static uint64_t times = 5; /* that a scene is played */

/* ---- what each call costs ---- */

enum kind {
  ATTACH,
  DETACH,
  REQUEST,
  RELEASE,
  ACTIVE,
  RESIDENT,
  MEMORY,
  TERMS,
  JOIN,
  TIME,
  PLAN,
  SETTING,
  REASON,
  KINDS
};
static const char *const kind_names[] = {"attach",   "detach",  "request", "release", "active",
                                         "resident", "memory",  "terms",   "join",    "time",
                                         "plan",     "setting", "reason"};

static uint32_t costs_ns[CALLS_MAX]; /* of the scene's calls, the least so far */
static uint8_t call_kinds[CALLS_MAX];
static uint64_t calls, called_ns, digest;
static bool measuring, playing_again;
static bool nobody_runs; /* those that hold never say that they do */

static uint64_t thread_ns(void) { return clock_read_ns(CLOCK_THREAD_CPUTIME_ID); }

static void begin_call(void) {
  events++;
  if (measuring)
    called_ns = thread_ns();
}

static void end_call(enum kind kind) {
  if (!measuring || calls == CALLS_MAX)
    return;
  uint64_t took_ns = thread_ns() - called_ns;
  uint32_t cost_ns = took_ns < UINT32_MAX ? (uint32_t)took_ns : UINT32_MAX;
  if (!playing_again || cost_ns < costs_ns[calls])
    costs_ns[calls] = cost_ns;
  call_kinds[calls++] = (uint8_t)kind;
}

/* A call of the core, which is an event. */
#define CALL(kind, call)                                                                                     \
  do {                                                                                                       \
    begin_call();                                                                                            \
    call;                                                                                                    \
    end_call(kind);                                                                                          \
  } while (0)

static void note(uint64_t value) { digest = (digest ^ value) * UINT64_C(0x100000001b3); }

/* ---- clients ---- */

static void say_resident(struct client *client, uint64_t bytes) {
  struct sched_residence residence = {.resident_bytes = bytes, .room_seq = client->room_seq};
  if (bytes > client->resident_bytes)
    residence.restored_bytes = bytes - client->resident_bytes;
  else
    residence.evicted_bytes = client->resident_bytes - bytes;
  client->resident_bytes = bytes;
  client->said_seq = client->room_seq;
  CALL(RESIDENT, scheduler_resident(&client->job, &residence, now_ns, &change));
}

static void move(struct client *client) {
  uint64_t goal = client->room_bytes < client->job.used_bytes ? client->room_bytes : client->job.used_bytes;
  if (client->active || nobody_runs)
    return;
  if (goal != client->resident_bytes || client->said_seq != client->room_seq)
    say_resident(client, goal);
  if (client->holds && client->resident_bytes == client->job.used_bytes) {
    struct sched_active active = {.epoch = client->epoch};
    client->active = true;
    CALL(ACTIVE, scheduler_active(&client->job, &active, now_ns, &change));
  }
}

static void request(struct client *client) {
  CALL(REQUEST, scheduler_request(&client->job, now_ns, &change));
}

static void stop(struct client *client) {
  struct sched_release release = {.epoch = client->epoch, .drain_ns = NS_PER_MS};
  client->holds = client->active = false;
  CALL(RELEASE, scheduler_release(&client->job, &release, now_ns, &change));
  request(client);
}

static void obey(const struct sched_action *action) {
  struct client *client = action->job->owner;
  bool grant = action->type == SCHED_TELL_LOCK_OK, drop = action->type == SCHED_TELL_DROP_LOCK;
  if (!grant && !drop && action->type != SCHED_TELL_ROOM)
    return;
  client->room_bytes = action->room_bytes;
  client->room_seq = action->room_seq;
  if (grant) {
    client->epoch = action->epoch;
    client->holds = true;
  } else if (drop) {
    stop(client);
  }
  move(client);
}

static void obey_all(void) {
  struct sched_action action;
  while (change_next(&change, &action)) {
    note(action.type);
    note(action.job->id);
    note(action.epoch);
    note(action.room_bytes);
    note(action.wanted);
    obey(&action);
  }
}

/* One plan for all that has happened. What it leaves, and what follows, the next one has. */
static void settle(void) {
  obey_all();
  if (scheduler.dirty) {
    CALL(PLAN, scheduler_plan(&scheduler, &change));
    obey_all();
  }
}

/* ---- a run ---- */

static uint64_t job_bytes(unsigned i, bool mixed) {
  uint64_t seed = i;
  return mixed ? MIXED_LEAST + splitmix_next(&seed) % (MIXED_MOST - MIXED_LEAST) : JOB;
}

static void set_up_gpus(unsigned gpu_count) {
  scheduler_init(&scheduler);
  change_init(&change);
  scheduler.host_memory_bytes = SCHED_BYTES_MAX * JOBS_MAX;
  scheduler.settle_ns = 0;
  scheduler.deferred = true;
  now_ns = NS_PER_S;
  for (unsigned i = 0; i < gpu_count; i++) {
    uint8_t uuid[GS_UUID_SIZE] = {1, (uint8_t)i};
    scheduler_add_gpu(&scheduler, &gpus[i], uuid, "card", CARD);
  }
}

static struct sched_share shares[CROWD];
static unsigned user_count; /* of jobs on the first GPU; 0: they have none */

static struct sched_share *share_of(unsigned i) {
  if (user_count == 0)
    return NULL;
  if (!scheduler_find_share(&gpus[0], i % user_count))
    scheduler_add_share(&gpus[0], &shares[i % user_count], i % user_count, SCHED_WEIGHT, 0);
  return &shares[i % user_count];
}

static void add(unsigned i, unsigned gpu, uint64_t bytes) {
  struct sched_attach attach = {.id = i + 1, .owner = &clients[i], .used_bytes = bytes, .share = share_of(i)};
  clients[i] = (struct client){.holds = false};
  CALL(ATTACH, scheduler_attach(&gpus[gpu], &clients[i].job, &attach, now_ns, &change));
}

static void attach(unsigned i, unsigned gpu, uint64_t bytes) {
  add(i, gpu, bytes);
  settle();
}

static void come(unsigned i, unsigned gpu, uint64_t bytes) {
  attach(i, gpu, bytes);
  request(&clients[i]);
  settle();
}

static void set_up(unsigned jobs, unsigned gpu_count, bool mixed) {
  set_up_gpus(gpu_count);
  for (unsigned i = 0; i < jobs; i++) {
    add(i, i % gpu_count, job_bytes(i, mixed));
    request(&clients[i]);
  }
  settle();
}

static void go_on(void) {
  uint64_t deadline_ns = scheduler_deadline_ns(&scheduler);
  if (deadline_ns == SCHED_NEVER)
    deadline_ns = now_ns + NS_PER_S; /* all fit: nothing is to be decided */
  now_ns = deadline_ns > now_ns ? deadline_ns : now_ns;
  begin_call();
  scheduler_expire(&scheduler, now_ns, &change);
  (void)scheduler_deadline_ns(&scheduler); /* the caller asks after each event */
  end_call(TIME);
  settle();
}

static uint64_t used_ns(void) { return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID); }

static void measure(unsigned jobs, unsigned gpu_count, bool mixed) {
  const char *which = mixed ? "mixed_" : "";
  set_up(jobs, gpu_count, mixed);
  uint64_t start_ns = used_ns(), took_ns = 0, plans = scheduler.decisions;
  for (events = 0; took_ns < each_ns; took_ns = used_ns() - start_ns)
    for (int i = 0; i < LOOK_EVERY; i++) /* to look takes longer than some decisions */
      go_on();
  double plan_us = (double)took_ns / 1000 / (double)(scheduler.decisions - plans);
  report(report_name("core_%s%u_jobs_%u_gpus", which, jobs, gpu_count),
         (double)events * NS_PER_S / (double)took_ns, "events/s");
  const char *name = report_name("core_%splan_of_%u_jobs_%u_gpus_us", which, jobs, gpu_count);
  double most_us = jobs < 10000 ? 100 : 1000;
  if (gpu_count == 1)
    report_verdict(name, plan_us, most_us, plan_us <= most_us, true);
  else
    report(name, plan_us, "us");
}

static void measure_and_report(unsigned gpu_count, bool mixed) {
  static const unsigned jobs[] = {10, 1000, 10000};
  for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
    measure(jobs[i], gpu_count, mixed);
}

/* ---- the worst event ---- */

#define MIB (UINT64_C(1) << 20)
static uint64_t drawn;

static uint64_t draw(uint64_t below) { return splitmix_next(&drawn) % below; }

static void set_class(unsigned i, enum gs_class class) {
  struct sched_terms terms = clients[i].job.terms;
  terms.class = class;
  CALL(TERMS, scheduler_set_terms(&clients[i].job, &terms, now_ns, &change));
  settle();
}

static void detach(unsigned i) {
  CALL(DETACH, scheduler_detach(&clients[i].job, now_ns, &change));
  settle();
}

static void set_memory(unsigned i, uint64_t bytes) {
  uint64_t granted_bytes;
  CALL(MEMORY, scheduler_memory_request(&clients[i].job, bytes, 0, now_ns, &change, &granted_bytes));
  settle();
}

static void set_mode(enum gs_mode mode) {
  CALL(SETTING, scheduler_set_mode(&scheduler, NULL, mode, now_ns, &change));
  settle();
}

static void set_policy(enum gs_policy policy) {
  CALL(SETTING, scheduler_set_policy(&scheduler, NULL, policy, now_ns, &change));
  settle();
}

static void go_on_until(uint64_t end_ns, int most) {
  while (most-- && now_ns < end_ns)
    go_on();
}

/* As status asks. */
static void ask_why(unsigned first, unsigned count) {
  for (unsigned i = first; i < first + count; i++)
    CALL(REASON, (void)sched_job_reason(&clients[i].job, now_ns));
}

static void pass_quanta(int count) { go_on_until(now_ns + (uint64_t)count * 20 * NS_PER_S, 20 * count); }

/* Most hold together; some wait for what many of those have. */
static void play_small_holders(void) {
  set_up_gpus(1);
  for (unsigned i = 0; i < CROWD; i++)
    come(i, 0, i % 4 ? 8 * MIB : 15 * GIB);
  pass_quanta(6);
  for (unsigned i = 0; i < CROWD; i += 64)
    set_memory(i, (i % 4 ? 9 : 8) * MIB);
  ask_why(0, CROWD);
}

static void play_all_wait(void) {
  set_up_gpus(1);
  set_mode(GS_MODE_ON);
  for (unsigned i = 0; i < CROWD; i++)
    come(i, 0, 4 * GIB);
  pass_quanta(20);
  ask_why(0, CROWD);
}

/* All have something on the card, where there is not room for all. */
static void play_short_of_memory(void) {
  set_up_gpus(1);
  for (unsigned i = 0; i < CROWD; i++)
    come(i, 0, 9 * MIB);
  pass_quanta(6);
  for (unsigned i = 0; i < CROWD; i += 16)
    set_memory(i, (8 + draw(64)) * MIB);
  pass_quanta(4);
  for (unsigned i = 0; i < CROWD; i += 16)
    detach(i);
}

static void play_production_comes(void) {
  set_up_gpus(1);
  for (unsigned i = 0; i < CROWD - 8; i++) {
    attach(i, 0, 8 * MIB);
    set_class(i, GS_CLASS_OPPORTUNISTIC);
    request(&clients[i]);
    settle();
  }
  pass_quanta(1);
  for (unsigned i = CROWD - 8; i < CROWD; i++) {
    attach(i, 0, 15 * GIB);
    set_class(i, GS_CLASS_PRODUCTION);
    request(&clients[i]);
    settle();
  }
  pass_quanta(4);
  ask_why(0, CROWD);
}

static struct sched_gang gangs[CROWD];

/* Gangs, each with a member on so many GPUs. */
static void play_gangs(unsigned gpu_count, unsigned count, uint64_t bytes) {
  unsigned size = gpu_count;
  set_up_gpus(gpu_count);
  for (unsigned i = 0; i < count; i++)
    gang_init(&gangs[i]);
  for (unsigned i = 0; i < count * size; i++) {
    attach(i, (i % size + i / size) % gpu_count, bytes);
    CALL(JOIN, scheduler_join(&clients[i].job, &gangs[i / size], now_ns, &change));
    settle();
    request(&clients[i]);
    settle();
  }
  pass_quanta(6);
  ask_why(0, CROWD);
}
static void play_pairs(void) { play_gangs(2, CROWD, 4 * GIB); }
static void play_small_pairs(void) { play_gangs(2, CROWD, 8 * MIB); }
static void play_large_gangs(void) { play_gangs(8, CROWD / 8, 4 * GIB); }
static void play_many_large_gangs(void) { play_gangs(8, CROWD, 4 * GIB); }
static void play_largest_gangs(void) { play_gangs(GPUS_MAX, CROWD / GPUS_MAX, 4 * GIB); }
static void play_many_largest_gangs(void) { play_gangs(GPUS_MAX, CROWD / 8, 4 * GIB); }

static void play_flips(void) {
  static const enum gs_mode modes[] = {GS_MODE_ON, GS_MODE_OFF, GS_MODE_AUTO};
  set_up_gpus(1);
  for (unsigned i = 0; i < CROWD; i++)
    come(i, 0, (i % 2 ? 4 : 10) * MIB);
  for (int i = 0; i < 9; i++) {
    set_mode(modes[i % 3]);
    pass_quanta(1);
    set_policy((enum gs_policy)(i % 6));
    pass_quanta(1);
    CALL(SETTING, scheduler_set_capacity(&scheduler, NULL, (uint64_t)(16 - i) * GIB, now_ns, &change));
    settle();
  }
}

static void play_fakes(void) {
  nobody_runs = true;
  play_flips();
  nobody_runs = false;
}

/* 128 programs that use each of 64 GPUs. */
static void play_many_attachments(void) {
  set_up_gpus(GPUS_MAX);
  for (unsigned i = 0; i < 128 * GPUS_MAX; i++)
    come(i, i % GPUS_MAX, i / GPUS_MAX % 64 ? 8 * MIB : 15 * GIB);
  for (unsigned i = 1; i < 128 * GPUS_MAX; i += 500)
    set_memory(i, 16 * MIB);
  go_on_until(SCHED_NEVER, 300);
}

static void do_something(void) {
  unsigned i = (unsigned)draw(CROWD);
  switch (draw(10)) {
  case 0:
    detach(i);
    come(i, 0, draw(10) ? draw(24) * MIB : draw(CARD));
    break;
  case 1:
    set_class(i, (enum gs_class)draw(3));
    break;
  case 2:
  case 3:
    set_memory(i, draw(50) ? draw(24) * MIB : draw(CARD));
    break;
  case 4:
    if (clients[i].active)
      stop(&clients[i]);
    break;
  case 5:
    now_ns += draw(NS_PER_S);
    break;
  case 6:
    ask_why(i, 1);
    break;
  default:
    go_on();
  }
  settle();
}

static void play_random(void) {
  set_up_gpus(1);
  for (unsigned i = 0; i < CROWD; i++)
    come(i, 0, draw(20) ? draw(12) * MIB : draw(CARD));
  for (int i = 0; i < 6; i++) {
    set_policy((enum gs_policy)i);
    for (int step = 0; step < 200; step++)
      do_something();
  }
}

static void play_users(unsigned count) {
  user_count = count;
  set_up_gpus(1);
  scheduler.defaults.policy = gpus[0].settings.policy = GS_POLICY_FAIR;
  for (unsigned i = 0; i < CROWD; i++)
    come(i, 0, draw(20) ? draw(12) * MIB : draw(CARD));
  for (int step = 0; step < 100; step++)
    do_something();
  ask_why(0, CROWD);
  user_count = 0;
}
static void play_ten_users(void) { play_users(10); }
static void play_a_user_each(void) { play_users(CROWD); }

static void report_worst(const char *scene) {
  uint64_t worst_ns = 0, most_ns[KINDS] = {0}, sum_ns = 0;
  for (uint64_t i = 0; i < calls; i++) {
    uint64_t *most = &most_ns[call_kinds[i]];
    *most = costs_ns[i] > *most ? costs_ns[i] : *most;
    worst_ns = *most > worst_ns ? *most : worst_ns;
    sum_ns += costs_ns[i];
  }
  for (int kind = 0; kind < KINDS; kind++)
    if (most_ns[kind])
      report(report_name("core_worst_%s_%s_us", scene, kind_names[kind]), (double)most_ns[kind] / 1000, "us");
  report(report_name("core_worst_%s_calls", scene), (double)calls, "");
  report(report_name("core_worst_%s_all_ms", scene), (double)sum_ns / NS_PER_MS, "ms");
  char word[20];
  snprintf(word, sizeof word, "%016lx", (unsigned long)digest);
  report_text(report_name("core_worst_%s_digest", scene), word);
  report_verdict(report_name("core_worst_%s_ms", scene), (double)worst_ns / NS_PER_MS,
                 (double)WORST_NS / NS_PER_MS, worst_ns <= WORST_NS, true);
}

static const struct scene {
  const char *name;
  void (*play)(void);
} scenes[] = {
    {"small_holders", play_small_holders},
    {"all_wait", play_all_wait},
    {"short_of_memory", play_short_of_memory},
    {"production_comes", play_production_comes},
    {"pairs", play_pairs},
    {"small_pairs", play_small_pairs},
    {"large_gangs", play_large_gangs},
    {"many_large_gangs", play_many_large_gangs},
    {"largest_gangs", play_largest_gangs},
    {"many_largest_gangs", play_many_largest_gangs},
    {"flips", play_flips},
    {"fakes", play_fakes},
    {"many_attachments", play_many_attachments},
    {"random", play_random},
    {"ten_users", play_ten_users},
    {"a_user_each", play_a_user_each},
};

static void measure_worst(const struct scene *scene) {
  uint64_t first = 0;
  for (uint64_t time = 0; time < times; time++) {
    calls = 0;
    drawn = 1;
    digest = UINT64_C(0xcbf29ce484222325);
    measuring = true;
    playing_again = time > 0;
    scene->play();
    measuring = false;
    first = time ? first : digest;
    if (digest != first) {
      fprintf(stderr, "bench_core: %s is not the same each time\n", scene->name);
      exit(EXIT_FAILURE);
    }
  }
  report_worst(scene->name);
}

static const char *only_scene = "";

static void measure_all_worst(void) {
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
    if (!*only_scene || strcmp(only_scene, scenes[i].name) == 0)
      measure_worst(&scenes[i]);
}

static const struct argument known[] = {
    {"worst", .flag = &worst_only},
    {"scene", .text = &only_scene},
    {"times", .number = &times, .least = 1, .most = 1000},
    {"seconds", .parse = parse_duration_ns, .number = &each_ns},
    {0},
};

int main(int argc, char **argv) {
  arguments_read(argc, argv,
                 "usage: bench_core [--json] [--seconds N] [--worst [--scene NAME] [--times N]]\n"
                 "  --seconds N    for each combination (0.5)\n"
                 "  --worst        only the worst events, of all scenes or of one, each played N times (5)\n",
                 known);
  report_begin();
  clients = malloc(JOBS_MAX * sizeof *clients);
  if (!clients) {
    fprintf(stderr, "bench_core: out of memory\n");
    return EXIT_FAILURE;
  }
  report("core_job_bytes", sizeof(struct sched_job), "bytes");
  for (int i = 0; i < 4 && !worst_only; i++)
    measure_and_report(i % 2 ? GPUS_MAX : 1, i / 2);
  measure_all_worst();
  report_end();
  return EXIT_SUCCESS;
}
