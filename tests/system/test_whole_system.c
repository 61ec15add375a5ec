/*
 * test_whole_system.c - generated histories of the whole system. Programs that know what their memory should
 * hold (churn) share a capacity that is too small for all of them. At random moments they are started,
 * killed, stopped, paused and limited, quantum and capacity change, and the daemon ends and is away for a
 * while.
 *
 * What must hold: no byte differs; what was set counts after each restart; a program that nothing keeps does
 * not stand still.
 *
 * Each history goes on until there have been enough hand-overs for it to mean something. GS_TEST_SECONDS: for
 * how long, instead of a few seconds. GS_TEST_SEED repeats the choices of this program.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "runner.h"
#include "scene.h"

#define MIB ((uint64_t)1 << 20)
#define JOBS_MAX 4
#define STARTED_MAX 110 /* of the PROCESS_MAX that a test may start, daemons are some */
#define HANDOVERS_LIMIT_S 300
#define STOPPED_MAX_NS (400 * NS_PER_MS)
#define AWAY_MAX_NS (30 * NS_PER_S)
#define STALL_S 30 /* no program does nothing for so long, however busy the machine is */

struct history { /* what a test asks for */
  const char *card;
  const char *memory[JOBS_MAX]; /* GPUSHARE_MEMORY of each job; NULL: no more jobs */
  const char *threads;
  uint64_t capacity_least, capacity_most;
  uint64_t discarded_bytes; /* at least so much unified memory was carried */
  bool outages;
};

struct job {
  struct process *process;
  uint64_t stopped_until_ns; /* 0: it runs */
  uint64_t went_on_ns;       /* or when something kept it, the last time */
  bool is_short;             /* ends by itself */
  bool is_paused;
  uint64_t weight, priority, limit_bytes;
};

static struct scene scene;
static const struct history *history;
static struct job jobs[JOBS_MAX];
static int count;
static uint64_t chance;
static uint64_t tq_ns, capacity_bytes, policy;  /* as they were set */
static uint64_t away_until_ns;                  /* the daemon; 0: it is there */
static uint64_t handovers_before, moved_before; /* of daemons that are gone */

static uint64_t between(uint64_t least, uint64_t most) {
  return least + random_next(&chance) % (most - least + 1);
}
static bool one_in(unsigned cases) { return random_next(&chance) % cases == 0; }

/* Each order of magnitude is as likely as the others. */
static uint64_t up_to(uint64_t most) {
  uint64_t limit = most;
  while (limit > most / 10000 && !one_in(4))
    limit /= 10;
  return between(0, limit);
}

/* ---- the daemon ---- */

static void start_daemon(void) {
  char capacity[32], state[128];
  snprintf(capacity, sizeof capacity, "%llu", (unsigned long long)history->capacity_most);
  snprintf(state, sizeof state, "%s/kept", scene.folder);
  scene_start_daemon(&scene, "--mode", "on", "--tq", "10ms", "--grace", "200ms", "--capacity", capacity,
                     "--state", state, NULL);
}

struct seen {
  uint64_t handovers, moved_bytes;
};

static struct seen look(void) {
  struct scene_status status;
  struct seen seen = {handovers_before, moved_before};
  if (!away_until_ns && scene_ask_status(&scene, &status) == 0 && status.gpu_count > 0) {
    seen.handovers += status.gpus[0].gpu_status.handovers;
    seen.moved_bytes += status.gpus[0].gpu_status.moved_bytes;
  }
  return seen;
}

static void end_daemon(void) {
  struct seen seen = look();
  handovers_before = seen.handovers;
  moved_before = seen.moved_bytes;
  if (one_in(2))
    scene_kill_daemon(&scene);
  else
    scene_stop_daemon(&scene);
  uint64_t most_ns = test_seconds(2) * NS_PER_S / 2;
  away_until_ns = clock_now_ns() + up_to(most_ns < AWAY_MAX_NS ? most_ns : AWAY_MAX_NS);
}

/* ---- what is set, and kept ---- */

static void set(enum gs_msg_type type, uint64_t *setting, uint64_t value) {
  CHECK(scene_order(&scene, type, value) == 0);
  *setting = value;
}

/* False: the daemon does not know the job yet, or not any more. */
static bool set_term(const struct job *job, enum gs_term term, uint64_t value) {
  struct scene_status status;
  struct gs_msg order = wire_msg(GS_SET_TERMS, GS_GPU_ALL), reply;
  CHECK(scene_ask_status(&scene, &status) == 0);
  const struct gs_msg *known = scene_job_of(&status, job->process->pid);
  if (!known)
    return false;
  order.set_terms.job = known->job_status.job;
  order.set_terms.term = term;
  order.set_terms.value = value;
  int fd = scene_connect(&scene);
  CHECK(wire_send(fd, &order) == 0 && scene_receive(fd, &reply) == 0);
  close(fd);
  if (reply.status == 0)
    return true;
  CHECK(scene_ask_status(&scene, &status) == 0);
  CHECK(!scene_job_known(&status, job->process) || process_ended(job->process), "term %d: %s", (int)term,
        reply.reply.text);
  return false;
}

/* A pause ends with the next change. */
static void change_term(struct job *job) {
  uint64_t weight = between(1, 1000), priority = between(0, GS_PRIORITY_MAX),
           limit_bytes = one_in(2) ? 0 : between(8, 48) * MIB;
  if (job->is_paused || one_in(3)) {
    if (set_term(job, GS_TERM_PAUSED, !job->is_paused))
      job->is_paused = !job->is_paused;
  } else if (one_in(3)) {
    if (set_term(job, GS_TERM_PRIORITY, priority))
      job->priority = priority;
  } else if (one_in(2)) {
    if (set_term(job, GS_TERM_WEIGHT, weight))
      job->weight = weight;
  } else if (set_term(job, GS_TERM_LIMIT, limit_bytes)) {
    job->limit_bytes = limit_bytes;
  }
}

/* A program that is stopped does not come back to the daemon, nor does one that ends. */
static bool is_kept(const struct scene_status *status, const void *unused) {
  (void)unused;
  if (status->gpu_count == 0 || status->gpus[0].gpu_status.tq_ns != tq_ns ||
      status->gpus[0].gpu_status.capacity_bytes != capacity_bytes ||
      status->gpus[0].gpu_status.policy != policy)
    return false;
  for (int i = 0; i < count; i++) {
    const struct gs_msg *terms = scene_terms_of(status, jobs[i].process->pid);
    bool may_lack = jobs[i].stopped_until_ns || jobs[i].is_short || process_ended(jobs[i].process);
    if (terms ? terms->terms_status.weight != jobs[i].weight ||
                    (uint64_t)terms->terms_status.priority != jobs[i].priority ||
                    terms->terms_status.limit_bytes != jobs[i].limit_bytes ||
                    !terms->terms_status.paused != !jobs[i].is_paused
              : !may_lack)
      return false;
  }
  return true;
}

/* ---- the jobs ---- */

static void start_job(int index, bool is_short) {
  char memory[48], seed[32];
  snprintf(memory, sizeof memory, "GPUSHARE_MEMORY=%s", history->memory[index]);
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)random_next(&chance) + 1);
  const char *const environment[] = {memory, "GPUSHARE_SINGLE_OVERSUBSCRIBE=1", NULL};
  jobs[index] = (struct job){.is_short = is_short, .weight = GS_WEIGHT_DEFAULT, .went_on_ns = clock_now_ns()};
  jobs[index].process = scene_start(&scene, environment, "churn", "--progress", "--bytes", "24M", "--threads",
                                    history->threads, "--contexts", one_in(3) ? "2" : "1", "--seed", seed,
                                    is_short ? "--operations" : NULL, "200", NULL);
}

/* Until "ok", its last word; what it says is that it goes on. */
static bool listen_until_ok(struct job *job) {
  char line[256];
  while (process_next_line(job->process, line, sizeof line)) {
    if (strcmp(line, "ok") == 0)
      return true;
    CHECK(strncmp(line, "mismatch", 8) != 0 && strncmp(line, "error", 5) != 0, "%s: %s", job->process->name,
          line);
    job->went_on_ns = clock_now_ns();
  }
  return false;
}

static void continue_job(struct job *job) {
  process_signal(job->process, SIGCONT);
  job->stopped_until_ns = 0;
}

static bool is_let_go_on(const struct job *job) {
  return !away_until_ns && !job->stopped_until_ns && !job->is_paused;
}

/* Only those that are short end by themselves. */
static void watch_job(int index) {
  struct job *job = &jobs[index];
  if (job->stopped_until_ns && clock_now_ns() >= job->stopped_until_ns)
    continue_job(job);
  if (listen_until_ok(job)) {
    CHECK(job->is_short, "%s has ended", job->process->name);
    process_wait_exit(job->process, 0);
    start_job(index, false);
  } else if (process_ended(job->process)) {
    process_expect(job->process, "ok", NULL, 0);
    process_wait_exit(job->process, job->is_short ? 0 : -1);
    start_job(index, false);
  }
  if (!is_let_go_on(job))
    job->went_on_ns = clock_now_ns();
  CHECK(clock_now_ns() - job->went_on_ns < STALL_S * test_scale() * NS_PER_S, "%s stands still",
        job->process->name);
}

/* A daemon that no program comes back to knows no GPU. */
static void let_one_come_back(void) {
  for (int i = 0; i < count; i++) {
    if (!jobs[i].stopped_until_ns && !jobs[i].is_short && !process_ended(jobs[i].process))
      return;
  }
  for (int i = 0; i < count; i++) {
    continue_job(&jobs[i]);
    watch_job(i);
  }
}

static void bring_back_daemon(void) {
  start_daemon();
  away_until_ns = 0;
  let_one_come_back();
  scene_await(&scene, is_kept, NULL, "all is set as it was before the daemon ended");
}

static void kill_job(void) {
  int victim = (int)(random_next(&chance) % (unsigned)count);
  if (scene.started > STARTED_MAX)
    return;
  process_kill(jobs[victim].process);
  start_job(victim, one_in(3));
}

static void stop_job(struct job *victim) {
  process_signal(victim->process, SIGSTOP);
  victim->stopped_until_ns = clock_now_ns() + between(1, STOPPED_MAX_NS);
}

static bool is_back(const struct scene_status *status, const void *process) {
  return scene_job_known(status, process) || process_ended(process);
}

static void finish_jobs(void) {
  if (away_until_ns)
    bring_back_daemon();
  set(GS_SET_CAPACITY, &capacity_bytes, history->capacity_most);
  for (int i = 0; i < count; i++) {
    continue_job(&jobs[i]);
    if (jobs[i].is_paused) {
      scene_await(&scene, is_back, jobs[i].process, "who was stopped meanwhile comes back");
      jobs[i].is_paused = !set_term(&jobs[i], GS_TERM_PAUSED, 0);
    }
    process_close_input(jobs[i].process);
  }
  for (int i = 0; i < count; i++) {
    process_expect(jobs[i].process, "ok", NULL, 0);
    process_wait_exit(jobs[i].process, 0);
  }
}

/* ---- the history ---- */

static void change_something(void) {
  struct job *job = &jobs[random_next(&chance) % (unsigned)count];
  uint64_t dice = random_next(&chance) % 64;
  if (dice == 0)
    kill_job();
  else if (dice < 3)
    stop_job(job);
  else if (away_until_ns)
    return;
  else if (dice < 5 && history->outages && scene.started <= STARTED_MAX)
    end_daemon();
  else if (dice < 20)
    change_term(job);
  else if (dice < 22)
    set(GS_SET_POLICY, &policy, between(GS_POLICY_RR, GS_POLICY_FAIR)); /* others have no turns for all */
  else if (dice < 42)
    set(GS_SET_TQ, &tq_ns, between(5, 20) * NS_PER_MS);
  else
    set(GS_SET_CAPACITY, &capacity_bytes, between(history->capacity_least, history->capacity_most));
}

static bool is_enough(struct seen seen) {
  return seen.handovers >= 50 && seen.moved_bytes >= 100 * MIB &&
         scene_card(&scene, 0).counters[GS_SIM_discarded_bytes] >= history->discarded_bytes;
}

/* The pauses choose the moments; nothing depends on their length. */
static struct seen rage(void) {
  uint64_t end_ns = clock_now_ns() + test_seconds(2) * NS_PER_S;
  uint64_t limit_ns = deadline_in(test_seconds(HANDOVERS_LIMIT_S));
  struct seen seen;
  while (seen = look(), clock_now_ns() < end_ns || !is_enough(seen)) {
    CHECK(clock_now_ns() < limit_ns, "only %llu hand-overs and %llu bytes moved",
          (unsigned long long)seen.handovers, (unsigned long long)seen.moved_bytes);
    nanosleep(&(struct timespec){.tv_nsec = (long)between(0, 20 * NS_PER_MS)}, NULL);
    if (away_until_ns && clock_now_ns() >= away_until_ns)
      bring_back_daemon();
    change_something();
    for (int i = 0; i < count; i++)
      watch_job(i);
  }
  return seen;
}

static bool knows_gpu(const struct scene_status *status, const void *unused) {
  (void)unused;
  return status->gpu_count > 0;
}

static void run(const struct history *wanted) {
  history = wanted;
  chance = test_seed();
  scene_begin(&scene, history->card);
  start_daemon();
  for (count = 0; count < JOBS_MAX && history->memory[count]; count++)
    start_job(count, false);
  scene_await(&scene, knows_gpu, NULL, "the daemon knows the GPU");
  set(GS_SET_TQ, &tq_ns, 10 * NS_PER_MS);
  set(GS_SET_CAPACITY, &capacity_bytes, history->capacity_most);
  set(GS_SET_POLICY, &policy, GS_POLICY_FAIR);
  struct seen seen = rage();
  printf("%llu hand-overs, %llu MiB moved\n", (unsigned long long)seen.handovers,
         (unsigned long long)(seen.moved_bytes / MIB));
  finish_jobs();
  scene_end(&scene);
}

/* ---- tests ---- */

#define ALL(kind)                                                                                            \
  { kind, kind, kind }
#define BELOW_THE_CARD .threads = "2", .capacity_least = 36 * MIB, .capacity_most = 96 * MIB

TEST(managed) {
  run(&(struct history){.card = "small",
                        BELOW_THE_CARD,
                        .memory = ALL("managed"),
                        .outages = true,
                        .discarded_bytes = 50 * MIB});
}
TEST(managed_beyond_the_capacity) {
  run(&(struct history){.card = "small",
                        .memory = ALL("managed"),
                        .threads = "2",
                        .capacity_least = 12 * MIB,
                        .capacity_most = 48 * MIB,
                        .discarded_bytes = 25 * MIB});
}
TEST(managed_where_discards_lose) {
  run(&(struct history){.card = "small,discard_loses=1", BELOW_THE_CARD, .memory = ALL("managed")});
}
TEST(managed_where_nothing_stops) {
  run(&(struct history){.card = "small,stop_status=58",
                        BELOW_THE_CARD,
                        .memory = ALL("managed"),
                        .outages = true,
                        .discarded_bytes = 25 * MIB});
}
TEST(swap) {
  run(&(struct history){.card = "small", BELOW_THE_CARD, .memory = ALL("swap"), .outages = true});
}
TEST(on_an_old_driver) {
  run(&(struct history){
      .card = "small,driver_version=12020", BELOW_THE_CARD, .memory = {"swap", "managed", "managed"}});
}
TEST(mixed) {
  run(&(struct history){
      .card = "small", BELOW_THE_CARD, .memory = {"swap", "managed", "swap", "managed"}, .outages = true});
}

/* The capacity is the card: what is not unmapped by one is not there for the other. */
TEST(swap_on_a_full_card) {
  run(&(struct history){.card = "small,capacity=80MiB",
                        .memory = ALL("swap"),
                        .threads = "3",
                        .capacity_least = 48 * MIB,
                        .capacity_most = 80 * MIB});
}
