/*
 * test_contents.c - no byte differs, ever: programs that know what their memory should hold (churn), in a
 * capacity that is too small for all of them, while the quantum and the capacity change, and while they, and
 * the daemon, are stopped, killed and started again at random moments.
 *
 * Each test goes on until there have been enough hand-overs for it to mean something. GS_TEST_SECONDS: for
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
#define JOBS_MAX 6
#define STARTED_MAX 110 /* of the PROCESS_MAX that a test may start, daemons are some */
#define HANDOVERS_LIMIT_S 300
#define STOPPED_MAX_NS (400 * NS_PER_MS)

struct storm { /* what a test asks for */
  const char *card;
  const char *memory[JOBS_MAX]; /* GPUSHARE_MEMORY of each job; NULL: no more jobs */
  const char *bytes, *threads;
  uint64_t quantum_least_ns, quantum_most_ns;
  uint64_t capacity_least, capacity_most;
  uint64_t handovers, moved_bytes; /* at least so many */
  uint64_t discarded_bytes;        /* likewise: unified memory that was carried */
  unsigned seconds;
  bool kill_daemon;
};

struct job {
  struct process *process;
  uint64_t stopped_until_ns; /* 0: it runs */
  bool is_short;             /* ends by itself */
};

static struct scene scene;
static const struct storm *storm;
static struct job jobs[JOBS_MAX];
static int count;
static uint64_t chance;
static uint64_t handovers_before, moved_before; /* of daemons that are gone */

static uint64_t between(uint64_t least, uint64_t most) {
  return least + random_next(&chance) % (most - least + 1);
}
static bool one_in(unsigned cases) { return random_next(&chance) % cases == 0; }

/* ---- the daemon ---- */

static void start_daemon(void) {
  char capacity[32];
  snprintf(capacity, sizeof capacity, "%llu", (unsigned long long)storm->capacity_most);
  scene_start_daemon(&scene, "--mode", "on", "--tq", "10ms", "--grace", "200ms", "--capacity", capacity,
                     NULL);
}

struct seen {
  uint64_t handovers, moved_bytes;
};

static struct seen look(void) {
  struct scene_status status;
  struct seen seen = {handovers_before, moved_before};
  if (scene_ask_status(&scene, &status) == 0 && status.gpu_count > 0) {
    seen.handovers += status.gpus[0].gpu_status.handovers;
    seen.moved_bytes += status.gpus[0].gpu_status.moved_bytes;
  }
  return seen;
}

static void kill_daemon(void) {
  struct seen seen = look();
  handovers_before = seen.handovers;
  moved_before = seen.moved_bytes;
  scene_kill_daemon(&scene);
  if (one_in(2)) /* for a moment everybody runs as if alone */
    nanosleep(&(struct timespec){.tv_nsec = (long)between(0, 50 * NS_PER_MS)}, NULL);
  start_daemon();
}

/* ---- the jobs ---- */

static void start_job(int index, bool is_short) {
  char memory[48], seed[32];
  snprintf(memory, sizeof memory, "GPUSHARE_MEMORY=%s", storm->memory[index]);
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)random_next(&chance) + 1);
  const char *const environment[] = {memory, "GPUSHARE_SINGLE_OVERSUBSCRIBE=1", NULL};
  jobs[index] = (struct job){.is_short = is_short};
  jobs[index].process = scene_start(&scene, environment, "churn", "--bytes", storm->bytes, "--threads",
                                    storm->threads, "--contexts", one_in(3) ? "2" : "1", "--seed", seed,
                                    is_short ? "--operations" : NULL, "200", NULL);
}

/* It has ended without being asked to: that is right only for those that do so by themselves. */
static void take_ended(struct job *job) {
  if (!job->is_short) /* it tells what it said last */
    process_expect(job->process, "what no program says", NULL, 0);
  process_expect(job->process, "ok", NULL, 0);
  process_wait_exit(job->process, 0);
}

static void continue_job(struct job *job) {
  process_signal(job->process, SIGCONT);
  job->stopped_until_ns = 0;
}

static void watch_jobs(void) {
  for (int i = 0; i < count; i++) {
    if (jobs[i].stopped_until_ns && clock_now_ns() >= jobs[i].stopped_until_ns)
      continue_job(&jobs[i]);
    if (!process_ended(jobs[i].process))
      continue;
    take_ended(&jobs[i]);
    start_job(i, false);
  }
}

static void kill_job(void) {
  int victim = (int)(random_next(&chance) % (unsigned)count);
  if (scene.started > STARTED_MAX)
    return;
  process_kill(jobs[victim].process);
  start_job(victim, one_in(3));
}

static void stop_job(void) {
  struct job *victim = &jobs[random_next(&chance) % (unsigned)count];
  process_signal(victim->process, SIGSTOP);
  victim->stopped_until_ns = clock_now_ns() + between(1, STOPPED_MAX_NS);
}

static void finish_jobs(void) {
  CHECK(scene_order(&scene, GS_SET_CAPACITY, storm->capacity_most) == 0);
  for (int i = 0; i < count; i++) {
    continue_job(&jobs[i]);
    process_close_input(jobs[i].process);
  }
  for (int i = 0; i < count; i++) {
    process_expect(jobs[i].process, "ok", NULL, 0);
    process_wait_exit(jobs[i].process, 0);
  }
}

/* ---- the storm ---- */

static void change_something(void) {
  switch (random_next(&chance) % 64) {
  case 0:
    if (storm->kill_daemon && scene.started <= STARTED_MAX)
      kill_daemon();
    break;
  case 1:
    kill_job();
    break;
  case 2:
  case 3:
    stop_job();
    break;
  default:
    if (one_in(2))
      CHECK(scene_order(&scene, GS_SET_TQ, between(storm->quantum_least_ns, storm->quantum_most_ns)) == 0);
    else
      CHECK(scene_order(&scene, GS_SET_CAPACITY, between(storm->capacity_least, storm->capacity_most)) == 0);
  }
}

static bool is_enough(struct seen seen) {
  return seen.handovers >= storm->handovers && seen.moved_bytes >= storm->moved_bytes;
}

/* The pauses choose the moments; nothing depends on their length. */
static struct seen rage(void) {
  uint64_t end_ns = clock_now_ns() + test_seconds(storm->seconds) * NS_PER_S;
  uint64_t limit_ns = deadline_in(test_seconds(HANDOVERS_LIMIT_S));
  struct seen seen;
  while (seen = look(), clock_now_ns() < end_ns || !is_enough(seen)) {
    CHECK(clock_now_ns() < limit_ns, "only %llu hand-overs and %llu bytes moved",
          (unsigned long long)seen.handovers, (unsigned long long)seen.moved_bytes);
    nanosleep(&(struct timespec){.tv_nsec = (long)between(0, 50 * NS_PER_MS)}, NULL);
    change_something();
    watch_jobs();
  }
  return seen;
}

static void run(const struct storm *wanted) {
  storm = wanted;
  chance = test_seed();
  scene_begin(&scene, storm->card);
  start_daemon();
  for (count = 0; count < JOBS_MAX && storm->memory[count]; count++)
    start_job(count, false);
  struct seen seen = rage();
  printf("%llu hand-overs, %llu MiB moved\n", (unsigned long long)seen.handovers,
         (unsigned long long)(seen.moved_bytes / MIB));
  finish_jobs();
  uint64_t discarded_bytes = scene_card(&scene, 0).counters[GS_SIM_discarded_bytes];
  CHECK(discarded_bytes >= storm->discarded_bytes, "%llu MiB", (unsigned long long)(discarded_bytes / MIB));
  scene_end(&scene);
}

/* ---- tests ---- */

#define SMALL .card = "small", ON_ANY
#define ON_ANY                                                                                               \
  .bytes = "24M", .threads = "2", .quantum_least_ns = 5 * NS_PER_MS, .quantum_most_ns = 20 * NS_PER_MS,      \
  .capacity_least = 36 * MIB, .capacity_most = 96 * MIB, .seconds = 5, .handovers = 250,                     \
  .moved_bytes = 200 * MIB

#define ALL(kind)                                                                                            \
  { kind, kind, kind }

TEST(managed) {
  run(&(struct storm){SMALL, .memory = ALL("managed"), .kill_daemon = true, .discarded_bytes = 100 * MIB});
}
TEST(managed_beyond_the_capacity) {
  struct storm small = {SMALL, .memory = ALL("managed"), .discarded_bytes = 50 * MIB};
  small.capacity_least = 12 * MIB;
  small.capacity_most = 48 * MIB;
  run(&small);
}
TEST(managed_where_discards_lose) {
  run(&(struct storm){.card = "small,discard_loses=1", ON_ANY, .memory = ALL("managed")});
}
TEST(managed_where_nothing_stops) {
  run(&(struct storm){.card = "small,stop_status=58",
                      ON_ANY,
                      .memory = ALL("managed"),
                      .kill_daemon = true,
                      .discarded_bytes = 50 * MIB});
}
TEST(swap) { run(&(struct storm){SMALL, .memory = ALL("swap"), .kill_daemon = true}); }
TEST(on_an_old_driver) {
  run(&(struct storm){
      .card = "small,driver_version=12020", ON_ANY, .memory = {"swap", "managed", "managed"}});
}
TEST(mixed) {
  run(&(struct storm){SMALL, .memory = {"swap", "managed", "swap", "managed"}, .kill_daemon = true});
}

/* The capacity is the card: what is not unmapped by one is not there for the other. */
TEST(swap_on_a_full_card) {
  run(&(struct storm){.card = "small,capacity=80MiB",
                      .memory = ALL("swap"),
                      .bytes = "24M",
                      .threads = "3",
                      .quantum_least_ns = 5 * NS_PER_MS,
                      .quantum_most_ns = 20 * NS_PER_MS,
                      .capacity_least = 48 * MIB,
                      .capacity_most = 80 * MIB,
                      .seconds = 5,
                      .handovers = 250,
                      .moved_bytes = 200 * MIB});
}

/* Allocations of up to 768 MiB. */
static void run_large(const char *memory) {
  struct storm large = {.card = "small,capacity=4GiB",
                        .memory = {memory, memory},
                        .bytes = "1536M",
                        .threads = "1",
                        .quantum_least_ns = 50 * NS_PER_MS,
                        .quantum_most_ns = 500 * NS_PER_MS,
                        .capacity_least = 1792 * MIB,
                        .capacity_most = 3072 * MIB,
                        .seconds = 10,
                        .handovers = 8,
                        .moved_bytes = 512 * MIB};
  uint64_t free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  if (free_bytes < 10240 * MIB)
    test_skip("needs 10 GiB of free memory, there are %llu MiB", (unsigned long long)(free_bytes / MIB));
  run(&large);
}

TEST(large_managed) { run_large("managed"); }
TEST(large_swap) { run_large("swap"); }
