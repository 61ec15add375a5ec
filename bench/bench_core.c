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
#define JOBS_MAX 10000

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

/* ---- clients ---- */

static void say_resident(struct client *client, uint64_t bytes) {
  struct sched_residence residence = {.resident_bytes = bytes, .room_seq = client->room_seq};
  if (bytes > client->resident_bytes)
    residence.restored_bytes = bytes - client->resident_bytes;
  else
    residence.evicted_bytes = client->resident_bytes - bytes;
  client->resident_bytes = bytes;
  client->said_seq = client->room_seq;
  events++;
  scheduler_resident(&client->job, &residence, now_ns, &change);
}

static void move(struct client *client) {
  uint64_t goal = client->room_bytes < client->job.used_bytes ? client->room_bytes : client->job.used_bytes;
  if (client->active)
    return;
  if (goal != client->resident_bytes || client->said_seq != client->room_seq)
    say_resident(client, goal);
  if (client->holds && client->resident_bytes == client->job.used_bytes) {
    struct sched_active active = {.epoch = client->epoch};
    client->active = true;
    events++;
    scheduler_active(&client->job, &active, now_ns, &change);
  }
}

static void request(struct client *client) {
  events++;
  scheduler_request(&client->job, now_ns, &change);
}

static void stop(struct client *client) {
  struct sched_release release = {.epoch = client->epoch, .drain_ns = NS_PER_MS};
  client->holds = client->active = false;
  events++;
  scheduler_release(&client->job, &release, now_ns, &change);
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
  while (change_next(&change, &action))
    obey(&action);
}

/* One plan for all that has happened. What it leaves, and what follows, the next one has. */
static void settle(void) {
  obey_all();
  if (scheduler.dirty) {
    events++;
    scheduler_plan(&scheduler, &change);
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

static void add(unsigned i, unsigned gpu, uint64_t bytes) {
  struct sched_attach attach = {.id = i + 1, .owner = &clients[i], .used_bytes = bytes};
  clients[i] = (struct client){.holds = false};
  events++;
  scheduler_attach(&gpus[gpu], &clients[i].job, &attach, now_ns, &change);
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
  events++;
  scheduler_expire(&scheduler, now_ns, &change);
  (void)scheduler_deadline_ns(&scheduler); /* the caller asks after each event */
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

static const struct argument known[] = {
    {"seconds", .parse = parse_duration_ns, .number = &each_ns},
    {0},
};

int main(int argc, char **argv) {
  arguments_read(argc, argv,
                 "usage: bench_core [--json] [--seconds N]\n"
                 "  --seconds N    for each combination (0.5)\n",
                 known);
  report_begin();
  clients = malloc(JOBS_MAX * sizeof *clients);
  if (!clients) {
    fprintf(stderr, "bench_core: out of memory\n");
    return EXIT_FAILURE;
  }
  report("core_job_bytes", sizeof(struct sched_job), "bytes");
  for (int i = 0; i < 4; i++)
    measure_and_report(i % 2 ? GPUS_MAX : 1, i / 2);
  report_end();
  return EXIT_SUCCESS;
}
