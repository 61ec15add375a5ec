/* test_idle.c - who does nothing on a GPU holds nobody up there, and finding out whether he does disturbs
 * nobody. */
#include <stdio.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;

/* Its stream waits for a thread that records graphs first: not idle, and whoever waited for the stream, with
 * captures forbidden, would wait for ever. */
TEST(captures_while_asked) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "3600", NULL);
  struct process *holder = scene_start(&scene, NULL, "waiter", "released", NULL);
  process_expect(holder, "busy", NULL, 0);
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "4M", "--rounds", "5", NULL);
  scene_await(&scene, scene_job_waits, job, "the other job waits");
  process_say(holder, "go");
  process_expect(holder, "ok", NULL, 0);
  process_wait_exit(holder, 0);
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

static const struct gs_msg *job_on(const struct scene_status *status, const struct process *process,
                                   unsigned gpu) {
  for (int i = 0; i < status->job_count; i++)
    if (status->jobs[i].job_status.pid == process->pid && status->jobs[i].gpu == gpu)
      return &status->jobs[i];
  return NULL;
}

/* One that has only looked at the second GPU, and is busy on the first. */
static struct process *start_looker(const char *mode) {
  scene_begin(&scene, "small,capacity=32MiB,gpus=2");
  scene_start_daemon(&scene, "--mode", mode, "--tq", "3600", NULL);
  struct process *looker = scene_start(&scene, NULL, "looker", "0", "4194304", "0", NULL);
  process_expect(looker, "computing", NULL, 0);
  return looker;
}

static void finish(struct process *process) {
  process_close_input(process);
  process_expect(process, "ok", NULL, 0);
  process_wait_exit(process, 0);
}

static void check_has_not_held(const struct process *looker, uint64_t limit_ns) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  const struct gs_msg *job = job_on(&status, looker, 1);
  uint64_t held_ns = job ? job->job_status.held_ns : 0;
  CHECK(held_ns <= limit_ns, "it has held the second GPU for %llu ms",
        (unsigned long long)(held_ns / NS_PER_MS));
}

TEST(looking_is_not_using) {
  struct process *looker = start_looker("on");
  uint64_t start_ns = clock_now_ns();
  struct process *job = scene_start(&scene, NULL, "looker", "1", "4194304", "30", NULL);
  finish(job);
  uint64_t took_ns = clock_now_ns() - start_ns;
  CHECK(took_ns < 5 * NS_PER_S * test_scale(), "%llu ms", (unsigned long long)(took_ns / NS_PER_MS));
  check_has_not_held(looker, 50 * NS_PER_MS);
  finish(looker);
  scene_end(&scene);
}

/* Where all may run, turns begin on the second GPU when two jobs there don't fit together. */
TEST(looking_is_not_using_in_auto) {
  struct process *jobs[2], *looker = start_looker("auto");
  for (int i = 0; i < 2; i++) {
    jobs[i] = scene_start(&scene, NULL, "looker", "1", "20971520", "0", NULL);
    process_expect(jobs[i], "computing", NULL, 0);
  }
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "0.01", NULL) == 0);
  for (int i = 0; i < 2; i++)
    finish(jobs[i]);
  finish(looker);
  scene_end(&scene);
}
