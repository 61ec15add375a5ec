/*
 * test_outages.c - the daemon is away for a while, and comes back: programs of swap memory that do not fit
 * together take turns again at once; and without a daemon, who does not fit waits until others have ended.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "runner.h"
#include "scene.h"

#define JOBS_MAX 3

/* Nobody does nothing for so long, however busy the machine is. What the card was believed to lack was tried
 * again after 10 s. */
#define STALL_S 8

static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};

static struct scene scene;
static struct process *jobs[JOBS_MAX];

static void start_daemon(void) { scene_start_daemon(&scene, "--tq", "50ms", NULL); }

/* The card has room for the memory of one. */
static void begin_on(const char *card, const char *bytes, int count) {
  scene_begin(&scene, card);
  start_daemon();
  for (int i = 0; i < count; i++) {
    jobs[i] = scene_start(&scene, swap, "job", "--bytes", bytes, "--rounds", "0", "--spin", "1ms",
                          "--progress", NULL);
    process_expect(jobs[i], "filled", NULL, 0);
  }
}

static void begin(int count) { begin_on("small,capacity=32MiB", "24M", count); }

static void pass(uint64_t ns) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)}, NULL);
}

/* Each has more rounds done, again and again. */
static void check_turns(int count) {
  for (int turn = 0; turn < 3; turn++)
    for (int i = 0; i < count; i++) {
      uint64_t deadline = deadline_in(STALL_S);
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

/* Shorter and longer ones, and orderly ends: test_whole_system.c. */
TEST(of_two_seconds) {
  for (int count = 2; count <= JOBS_MAX; count++) {
    begin(count);
    check_turns(count);
    scene_kill_daemon(&scene);
    pass(2 * NS_PER_S);
    start_daemon();
    check_turns(count);
    end(count);
  }
}

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

/* Nor may more connect: those who do so wait, for as long as for an answer, and then go on alone. */
TEST(of_a_stopped_daemon_with_no_place_in_its_queue) {
  enum { PLACES_MAX = 4096 };
  static int places[PLACES_MAX];
  int count = 0, last;
  begin(0);
  process_signal(scene.daemon, SIGSTOP);
  while ((last = wire_connect(scene.socket)) >= 0) {
    CHECK(count < PLACES_MAX, "there is no end of it");
    places[count++] = last;
  }
  CHECK(last == -EAGAIN, "connect: %s", strerror(-last));
  struct process *job =
      scene_start(&scene, swap, "job", "--bytes", "24M", "--rounds", "0", "--progress", NULL);
  process_await_log(job, "(it does not answer): running unshared");
  process_expect(job, "round ", NULL, 0);
  const char *const plain[] = {"LD_PRELOAD=", NULL};
  struct process *ctl = scene_start_argv(&scene, plain, (char *[]){GS_CTL, "status", NULL});
  pass(NS_PER_S / 10); /* so that it has found no place, mostly */
  process_signal(scene.daemon, SIGCONT);
  process_await_log(job, "the daemon is there: sharing");
  process_finish(job);
  CHECK(process_wait(ctl) == 0, "gpusharectl has not waited");
  while (count > 0)
    close(places[--count]);
  scene_end(&scene);
}

/* The only one that works: who it is, nobody says. */
static int await_worker(int count, const bool *ended) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  struct pollfd polls[JOBS_MAX];
  for (int i = 0; i < count; i++) {
    polls[i] = (struct pollfd){.fd = ended[i] ? -1 : jobs[i]->out, .events = POLLIN};
    if (!ended[i])
      process_drain(jobs[i]);
  }
  CHECK(poll(polls, (nfds_t)count, deadline_left_ms(deadline)) > 0, "nobody works");
  for (int i = 0; i < count; i++)
    if (polls[i].revents)
      return i;
  return -1;
}

/* Two of them bring back their memory at the same time when the third one has ended: it takes longer than
 * both rest between two looks. */
TEST(for_good_all_come_to_an_end) {
  bool ended[JOBS_MAX] = {false};
  begin_on("small,capacity=192MiB,copy_in_pinned_gbps=0.25", "136M", JOBS_MAX);
  scene_kill_daemon(&scene);
  int first = await_worker(JOBS_MAX, ended);
  for (int i = 0; i < JOBS_MAX; i++)
    if (i != first)
      process_await_log(jobs[i], "no daemon, and no room on the card for all of this program's memory");
  for (int i = 0; i < JOBS_MAX; i++) {
    int worker = await_worker(JOBS_MAX, ended);
    ended[worker] = true;
    process_finish(jobs[worker]);
  }
  scene_end(&scene);
}
