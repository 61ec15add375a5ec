/*
 * test_outages.c - the daemon is away for a while, and comes back: programs of swap memory that do not fit
 * together take turns again at once; and without a daemon, who does not fit waits until others have ended.
 */
#include <signal.h>
#include <time.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

#define JOBS_MAX 3

/* Everybody works long before that. What the card was believed to lack was tried again after 10 s. */
#define BACK_S 5

static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};

static struct scene scene;
static struct process *jobs[JOBS_MAX];

static void start_daemon(void) { scene_start_daemon(&scene, "--tq", "50ms", NULL); }

/* Of 32 MiB: one at a time. */
static struct process *endless_job(void) {
  struct process *job = scene_start(&scene, swap, "job", "--bytes", "24M", "--rounds", "0", "--spin", "1ms",
                                    "--progress", NULL);
  process_expect(job, "filled", NULL, 0);
  return job;
}

static void begin(int count) {
  scene_begin(&scene, "small,capacity=32MiB");
  start_daemon();
  for (int i = 0; i < count; i++)
    jobs[i] = endless_job();
}

static void pass(uint64_t ns) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)}, NULL);
}

/* Each has more rounds done, again and again. */
static void check_turns(int count) {
  uint64_t deadline = deadline_in(BACK_S);
  for (int turn = 0; turn < 3; turn++)
    for (int i = 0; i < count; i++) {
      process_drain(jobs[i]);
      for (int round = 0; round < 2; round++)
        process_expect(jobs[i], "round ", NULL, 0);
      CHECK(deadline_left_ms(deadline) > 0, "job %d of %d has done nothing for too long (turn %d)", i, count,
            turn);
    }
}

static void end(int count) {
  for (int i = 0; i < count; i++)
    process_finish(jobs[i]);
  scene_end(&scene);
}

static void outage(uint64_t away_ns, bool orderly) {
  for (int count = 2; count <= JOBS_MAX; count++) {
    begin(count);
    check_turns(count);
    if (orderly)
      scene_stop_daemon(&scene);
    else
      scene_kill_daemon(&scene);
    pass(away_ns);
    start_daemon();
    check_turns(count);
    end(count);
  }
}

TEST(none) { outage(0, false); }
TEST(of_a_fifth_of_a_second) { outage(NS_PER_S / 5, false); }
TEST(of_two_seconds) { outage(2 * NS_PER_S, false); }
TEST(of_five_seconds) { outage(5 * NS_PER_S, false); }
TEST(of_two_seconds_in_order) { outage(2 * NS_PER_S, true); }

/* It does not end, but answers nobody. */
TEST(of_a_stopped_daemon) {
  begin(2);
  check_turns(2);
  process_signal(scene.daemon, SIGSTOP);
  pass(3 * NS_PER_S);
  process_signal(scene.daemon, SIGCONT);
  check_turns(2);
  end(2);
}
