/*
 * test_ranks.c - distributed programs that take turns: what one rank has submitted ends only when the other
 * rank has submitted its part, so they are stopped in its middle, each for itself.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

#define GPUS 2
#define PULSE_NS (2 * NS_PER_S) /* what is drained may have to wait for that, and what is stopped never */
#define HANDOVERS 10            /* at least, on each GPU: both jobs together take 28 quanta */

static struct scene scene;
static uint64_t seed;

/* Two processes, each on its GPU. */
struct job {
  char name[8];
  struct process *ranks[GPUS];
};

struct manner {
  const char *rounds, *streams, *besides; /* the last may be NULL */
};
static const struct manner plain = {"24", "1", NULL};

static void begin_in_mode(const char *mode, const char *grace) {
  seed = test_seed();
  scene_begin(&scene, "small,gpus=2,capacity=64MiB");
  scene_start_daemon(&scene, "--mode", mode, "--tq", "80ms", "--capacity", "12M", "--grace", grace, NULL);
}

static void begin(const char *grace) { begin_in_mode("on", grace); }

static struct process *start_member(const char *gang, const char *program, const char *const arguments[7]) {
  char name[64];
  snprintf(name, sizeof name, "GPUSHARE_GANG=%s", gang);
  return scene_start(&scene, (const char *const[]){name, NULL}, program, arguments[0], arguments[1],
                     arguments[2], arguments[3], arguments[4], arguments[5], arguments[6], NULL);
}

static void start_ranks(struct job *job, const struct manner *manner) {
  char meeting[96], number[24];
  snprintf(meeting, sizeof meeting, "%s/%s.meeting", scene.folder, job->name);
  snprintf(number, sizeof number, "%" PRIu64, random_next(&seed));
  for (int i = 0; i < GPUS; i++)
    job->ranks[i] = start_member(job->name, "ranker",
                                 (const char *const[7]){i ? "1" : "0", meeting, "8388608", manner->rounds,
                                                        manner->streams, number, manner->besides});
}

/* The ranks of both have attached to their own GPUs by the time that one of them works, or visits another. */
static void start_both(struct job jobs[2], const struct manner *manner) {
  for (int j = 0; j < 2; j++) {
    snprintf(jobs[j].name, sizeof jobs[j].name, "%c", 'a' + j);
    start_ranks(&jobs[j], manner);
  }
  for (int i = 0; i < 2 * GPUS; i++)
    process_expect(jobs[i / GPUS].ranks[i % GPUS], "filled", NULL, 0);
  for (int i = 0; i < 2 * GPUS; i++)
    process_say(jobs[i / GPUS].ranks[i % GPUS], "go");
}

/* ---- until they have ended ---- */

struct seen {
  uint64_t handovers[GPUS];
  int attachments;       /* at most */
  uint64_t drain_max_ns; /* the longest that one has taken to stop */
};

static void look(struct seen *seen) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  for (int i = 0; i < status.gpu_count && i < GPUS; i++)
    seen->handovers[i] = status.gpus[i].gpu_status.handovers;
  seen->attachments = status.job_count > seen->attachments ? status.job_count : seen->attachments;
  for (int i = 0; i < status.job_count; i++)
    if (status.jobs[i].job_status.drain_max_ns > seen->drain_max_ns)
      seen->drain_max_ns = status.jobs[i].job_status.drain_max_ns;
}

static bool has_ended(const struct job *job) {
  return process_ended(job->ranks[0]) && process_ended(job->ranks[1]);
}

static void await_end(struct job *job, struct seen *seen) {
  for (uint64_t deadline = deadline_in(PROCESS_LIMIT_S); !has_ended(job);) {
    look(seen);
    CHECK(deadline_left_ms(deadline) > 0, "job %s works, after %" PRIu64 " and %" PRIu64 " hand-overs",
          job->name, seen->handovers[0], seen->handovers[1]);
    nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
  }
  for (int i = 0; i < GPUS; i++)
    process_wait_exit(job->ranks[i], 0);
}

static struct seen check_both(const struct manner *manner) {
  struct job jobs[2];
  struct seen seen = {.attachments = 0};
  struct test_time begun = test_time();
  start_both(jobs, manner);
  await_end(&jobs[0], &seen);
  await_end(&jobs[1], &seen);
  CHECK(process_log_count(scene.daemon, "within the grace") == 0); /* nobody was passed over */
  uint64_t pressed_ns = clock_now_ns() - begun.now_ns - test_calm_ns(begun);
  CHECK(seen.drain_max_ns < PULSE_NS * test_scale() + pressed_ns, "%" PRIu64 " ms",
        seen.drain_max_ns / NS_PER_MS);
  for (unsigned i = 0; i < GPUS; i++)
    CHECK(seen.handovers[i] >= HANDOVERS, "%" PRIu64 " on GPU %u", seen.handovers[i], i);
  return seen;
}

static struct seen check_turns(const struct manner *manner) {
  struct seen seen = check_both(manner);
  for (unsigned i = 0; i < GPUS; i++)
    scene_check_no_overlaps(&scene, i);
  return seen;
}

TEST(ranks_take_turns) {
  begin("30s");
  check_turns(&plain);
  scene_end(&scene);
}

/* Each may have launched what the other has not. */
TEST(ranks_with_two_streams_take_turns) {
  begin("30s");
  check_turns(&(struct manner){"24", "2", NULL});
  scene_end(&scene);
}

/* The driver waits for all work before it frees, a collective included. */
TEST(ranks_that_free_take_turns) {
  begin("30s");
  check_turns(&(struct manner){"24", "1", "freeing"});
  scene_end(&scene);
}

/* They fit beside each other at first, and then on the one GPU no longer, or on both. Threads wait for memory
 * when they are stopped, and others for what these do next. */
TEST(ranks_that_grow_take_turns) {
  begin_in_mode("auto", "30s");
  check_both(&(struct manner){"24", "1", "growing"});
  scene_end(&scene);
}

/* So each gang has two attachments on each GPU, of which one never works. */
TEST(ranks_that_visit_each_others_gpu_take_turns) {
  begin("30s");
  struct seen seen = check_turns(&(struct manner){"24", "1", "visiting"});
  CHECK(seen.attachments == 2 * GPUS * GPUS, "%d", seen.attachments);
  scene_end(&scene);
}

/* It is the first of its gang on each GPU, and never works. */
TEST(ranks_whose_launcher_came_first_take_turns) {
  static const char *const nothing[7] = {NULL};
  struct process *launchers[2];
  begin("30s");
  for (int i = 0; i < 2; i++) {
    launchers[i] = start_member(i ? "b" : "a", "onlooker", nothing);
    process_expect(launchers[i], "looking", NULL, 0);
    scene_await(&scene, scene_job_known, launchers[i], "the launcher is there");
  }
  check_turns(&plain);
  for (int i = 0; i < 2; i++) {
    process_say(launchers[i], "end");
    process_wait_exit(launchers[i], 0);
  }
  scene_end(&scene);
}

/* ---- where work can't be stopped ---- */

/* What a rank drains may wait for a call that the other one holds back. After the grace the other one makes
 * that call, and both gangs have turns again, whatever their memory. */
static struct job drained[2];

static const struct process *rank_of(int i) { return drained[i / GPUS].ranks[i % GPUS]; }

static bool some_have_ended(void) {
  return process_ended(drained[0].ranks[0]) || process_ended(drained[1].ranks[0]);
}

static bool one_is_late(const struct scene_status *status, const void *unused) {
  (void)status, (void)unused;
  return process_log_count(scene.daemon, "within the grace") > 0 || some_have_ended();
}

static bool all_have_turned(const struct scene_status *status, const void *turns) {
  bool all = true;
  for (int i = 0; i < 2 * GPUS; i++) {
    const struct gs_msg *job = scene_job_of(status, rank_of(i)->pid);
    all &= job && job->job_status.turns > ((const uint64_t *)turns)[i];
  }
  return all || some_have_ended();
}

TEST(ranks_that_are_drained_go_on_after_the_grace) {
  struct scene_status status;
  uint64_t turns[2 * GPUS];
  struct seen seen = {.attachments = 0};
  begin("2500ms");
  setenv("GPUSHARE_PREEMPT", "off", 1);
  start_both(drained, &(struct manner){"20", "1", NULL});
  scene_await(&scene, one_is_late, NULL, "one does not stop within the grace");
  CHECK(scene_ask_status(&scene, &status) == 0);
  for (int i = 0; i < 2 * GPUS; i++) {
    const struct gs_msg *job = scene_job_of(&status, rank_of(i)->pid);
    turns[i] = job ? job->job_status.turns : 0;
  }
  scene_await(&scene, all_have_turned, turns, "all ranks have had turns since");
  for (int i = 0; i < GPUS; i++)
    process_kill(drained[1].ranks[i]);
  await_end(&drained[0], &seen);
  scene_end(&scene);
}

/* ---- a death ---- */

static bool has_taken_turns(const struct scene_status *status, const void *unused) {
  (void)unused;
  for (int i = 0; i < GPUS; i++)
    if (status->gpus[i].gpu_status.handovers < 5)
      return false;
  return true;
}

/* What the other rank has launched never ends, and stands still while others have their turns. */
TEST(one_that_is_killed_stops_its_own_job_only) {
  struct job jobs[2];
  struct seen seen = {.attachments = 0};
  begin("2s");
  start_both(jobs, &plain);
  scene_await(&scene, has_taken_turns, NULL, "they have taken some turns");
  process_kill(jobs[0].ranks[1]);
  await_end(&jobs[1], &seen);
  process_kill(jobs[0].ranks[0]);
  scene_end(&scene);
}
