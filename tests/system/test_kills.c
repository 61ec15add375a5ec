/*
 * test_kills.c - anyone may die, at any instant, and the rest go on: jobs, holders, the daemon, gpusharectl;
 * at random moments (with a seed), and at every message of the protocol.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/wire.h"
#include "runner.h"
#include "scene.h"

#define JOBS 4

static struct scene scene;

static void start_daemon(void) { scene_start_daemon(&scene, "--mode", "on", "--tq", "3ms", NULL); }

static void begin(void) {
  scene_begin(&scene, "small,capacity=32MiB");
  start_daemon();
}

static struct process *endless_job(environment_list environment) {
  return scene_start(&scene, environment, "job", "--bytes", "8M", "--rounds", "0", "--progress", NULL);
}

/* Each of the jobs gets work done from now on: two more rounds, as the first may have been under way. */
static void check_progress(struct process **jobs, int count) {
  char line[64];
  for (int i = 0; i < count; i++) {
    process_drain(jobs[i]);
    for (int round = 0; round < 2; round++)
      process_expect(jobs[i], "round ", line, sizeof line);
  }
}

/* The random moments are spread by letting a job make some rounds, and by a short random pause within one:
 * the pause chooses the moment, nothing depends on its length. */
static void let_pass(struct process *job, uint64_t *seed) {
  char line[64];
  for (uint64_t rounds = random_next(seed) % 3; rounds > 0; rounds--)
    process_expect(job, "round ", line, sizeof line);
  nanosleep(&(struct timespec){.tv_nsec = (long)(random_next(seed) % 4000000)}, NULL);
}

static struct process *holder_of(struct process **jobs, int count) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  for (int i = 0; i < count; i++) {
    const struct gs_msg *job = scene_job_of(&status, jobs[i]->pid);
    if (job && job->job_status.state == GS_JOB_HOLDING)
      return jobs[i];
  }
  return NULL;
}

/* While a killed process is on its way out, its last work may still be in flight when the next holder starts:
 * its connection is closed first. No other overlap is excused. */
static uint64_t overlaps_excused;
static pid_t last_dead; /* who has seen it alive may count that only after its end */

static void excuse_overlaps_with(pid_t dead) {
  struct gs_sim_card card = {0};
  gs_sim_card_read(scene.state, 0, &card); /* there is none before the first of them has come to the driver */
  uint64_t overlaps = card.counters[GS_SIM_overlaps];
  CHECK(overlaps == overlaps_excused || card.overlap_other_pid == dead || card.overlap_other_pid == last_dead,
        "%d started while %d was in flight", card.overlap_pid, card.overlap_other_pid);
  overlaps_excused = overlaps;
  last_dead = dead ? dead : last_dead;
}

static void replace(struct process **jobs, struct process *victim) {
  excuse_overlaps_with(0);
  process_kill(victim);
  excuse_overlaps_with(victim->pid);
  for (int i = 0; i < JOBS; i++)
    if (jobs[i] == victim)
      jobs[i] = endless_job(NULL);
}

TEST(jobs_at_random) {
  struct process *jobs[JOBS];
  uint64_t seed = test_seed();
  begin();
  for (int i = 0; i < JOBS; i++)
    jobs[i] = endless_job(NULL);
  for (int kills = 0; kills < 12; kills++) {
    let_pass(jobs[random_next(&seed) % JOBS], &seed);
    struct process *holder = kills % 2 ? holder_of(jobs, JOBS) : NULL;
    replace(jobs, holder ? holder : jobs[random_next(&seed) % JOBS]);
  }
  check_progress(jobs, JOBS);
  for (int i = 0; i < JOBS; i++)
    process_finish(jobs[i]);
  excuse_overlaps_with(0);
  scene_end(&scene);
}

TEST(daemon_at_random) {
  struct process *jobs[JOBS];
  uint64_t seed = test_seed();
  begin();
  for (int i = 0; i < JOBS; i++)
    jobs[i] = endless_job(NULL);
  for (int kills = 0; kills < 6; kills++) {
    let_pass(jobs[random_next(&seed) % JOBS], &seed);
    scene_kill_daemon(&scene);
    if (kills % 2)
      check_progress(jobs, JOBS); /* without a daemon, as if alone */
    start_daemon();
    for (int i = 0; i < JOBS; i++)
      scene_await(&scene, scene_job_known, jobs[i], "the job has come back");
  }
  check_progress(jobs, JOBS);
  for (int i = 0; i < JOBS; i++)
    process_finish(jobs[i]);
  scene_end(&scene);
}

TEST(gpusharectl_at_random) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  struct process *jobs[2];
  uint64_t seed = test_seed();
  begin();
  for (int i = 0; i < 2; i++)
    jobs[i] = endless_job(NULL);
  for (int kills = 0; kills < 20; kills++) {
    struct process *ctl = kills % 2 ? scene_start(&scene, plain, GS_CTL, "status", NULL)
                                    : scene_start(&scene, plain, GS_CTL, "set-tq", "0.004", NULL);
    nanosleep(&(struct timespec){.tv_nsec = (long)(random_next(&seed) % 3000000)}, NULL);
    process_kill(ctl);
  }
  check_progress(jobs, 2);
  for (int i = 0; i < 2; i++)
    process_finish(jobs[i]);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

/* A child of a job that lives on must not keep the dead parent's place. */
TEST(holder_dies_at_once) {
  struct process *jobs[2];
  begin();
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "3600", NULL) == 0);
  jobs[0] =
      scene_start(&scene, NULL, "job", "--bytes", "8M", "--rounds", "0", "--spin", "1ms", "--progress", NULL);
  process_expect(jobs[0], "round 2", NULL, 0);
  jobs[1] = endless_job(NULL);
  process_kill(jobs[0]);
  process_expect(jobs[1], "round 2", NULL, 0);
  process_finish(jobs[1]);
  scene_end(&scene);
}

/* -- every message
 * -------------------------------------------------------------------------------------------- */

struct victim {
  unsigned type;
  const char *who, *when;
  int nth;
};

static struct process *start_proxy(const struct victim *victim, const char *socket) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  char type[8], nth[8], daemon[16];
  snprintf(type, sizeof type, "%u", victim->type);
  snprintf(nth, sizeof nth, "%d", victim->nth);
  snprintf(daemon, sizeof daemon, "%d", (int)scene.daemon->pid);
  struct process *proxy = scene_start(&scene, plain, "proxy", socket, scene.socket, type, nth, victim->who,
                                      victim->when, daemon, NULL);
  process_expect(proxy, "listening", NULL, 0);
  return proxy;
}

/* Wait for "hit"; false: the message never came. */
static bool await_hit(struct process *proxy, uint64_t limit_ms) {
  struct pollfd readable = {.fd = proxy->out, .events = POLLIN};
  return poll(&readable, 1, (int)(limit_ms * test_scale())) > 0;
}

static bool victim_is_client(const struct victim *victim) { return strcmp(victim->who, "client") == 0; }

/* More than the card together; but without a daemon nobody makes way for swap memory. That is worth it only
 * for messages that nobody sends when everything fits. */
static const char *bytes_each(unsigned type) {
  bool moves = type == GS_ROOM || type == GS_RESIDENT;
  return scene_uses_swap() && !moves ? "8M" : "12M";
}

/* Two jobs through the proxy, one beside it. Those that were not killed must go on and verify. */
static void kill_at(const struct victim *victim) {
  char socket[128], variable[160];
  struct process *jobs[3];
  begin();
  snprintf(socket, sizeof socket, "%s/proxy.sock", scene.folder);
  snprintf(variable, sizeof variable, "GPUSHARE_SOCKET=%s", socket);
  const char *const through_proxy[] = {variable, NULL};
  struct process *proxy = start_proxy(victim, socket);
  for (int i = 0; i < 3; i++)
    jobs[i] = scene_start(&scene, i < 2 ? through_proxy : NULL, "job", "--bytes", bytes_each(victim->type),
                          "--rounds", "0", "--progress", NULL);
  CHECK(await_hit(proxy, 60000), "no %s has passed", wire_type_name(victim->type));
  if (!victim_is_client(victim)) {
    process_wait(scene.daemon);
    start_daemon();
  }
  int killed = -1;
  for (int i = 0; i < 2 && victim_is_client(victim) && killed < 0; i = (i + 1) % 2)
    killed = process_ended(jobs[i]) ? i : -1;
  for (int i = 0; i < 3; i++)
    if (i == killed)
      process_wait(jobs[i]);
    else
      check_progress(&jobs[i], 1);
  for (int i = 0; i < 3; i++)
    if (i != killed)
      process_finish(jobs[i]);
  process_close_input(proxy);
  process_wait_exit(proxy, 0);
  scene_end(&scene);
}

static void kill_all_at(unsigned type, int nth) {
  static const char *const parties[] = {"client", "daemon"}, *const moments[] = {"before", "after"};
  for (int party = 0; party < 2; party++)
    for (int moment = 0; moment < 2; moment++) {
      struct victim victim = {.type = type, .who = parties[party], .when = moments[moment], .nth = nth};
      printf("%s number %d: %s killed %s it is passed on\n", wire_type_name(type), nth, victim.who,
             victim.when);
      kill_at(&victim);
    }
}

TEST(at_register) { kill_all_at(GS_REGISTER, 2); }
TEST(at_registered) { kill_all_at(GS_REGISTERED, 2); }
TEST(at_attach) { kill_all_at(GS_ATTACH, 2); }
TEST(at_attached) { kill_all_at(GS_ATTACHED, 2); }
TEST(at_sched_on) { kill_all_at(GS_SCHED_ON, 2); }
TEST(at_mem_request) { kill_all_at(GS_MEM_REQUEST, 2); }
TEST(at_mem_reply) { kill_all_at(GS_MEM_REPLY, 2); }
TEST(at_req_lock) { kill_all_at(GS_REQ_LOCK, 3); }
TEST(at_lock_ok) { kill_all_at(GS_LOCK_OK, 3); }
TEST(at_room) { kill_all_at(GS_ROOM, 8); }
TEST(at_resident) { kill_all_at(GS_RESIDENT, 3); }
TEST(at_lock_active) { kill_all_at(GS_LOCK_ACTIVE, 2); }
TEST(at_drop_lock) { kill_all_at(GS_DROP_LOCK, 2); }
TEST(at_lock_released) { kill_all_at(GS_LOCK_RELEASED, 2); }
