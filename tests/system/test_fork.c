/* test_fork.c - programs that fork: children neither disturb the parent's sharing nor keep its place. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner.h"
#include "scene.h"

static struct scene scene;

static void begin(void) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", "on", "--tq", "3ms", NULL);
}

/* Beside a job that takes its turns. */
static void run_forker(const char *how, const char *count) {
  begin();
  struct process *job =
      scene_start(&scene, NULL, "job", "--bytes", "16M", "--rounds", "0", "--progress", NULL);
  process_expect(job, "round 1", NULL, 0);
  struct process *forker = scene_start(&scene, NULL, "forker", how, count, NULL);
  process_expect(forker, "ok", NULL, 0);
  process_wait_exit(forker, 0);
  process_finish(job);
  scene_check_no_overlaps(&scene, 0);
  scene_end(&scene);
}

TEST(storm_of_exits) { run_forker("exit", "60"); }
TEST(storm_of_execs) { run_forker("exec", "30"); }
TEST(calls_in_child) { run_forker("stale", "20"); }
TEST(cuda_in_children_only) { run_forker("fresh", "8"); }

static int count_sockets(pid_t pid) {
  char folder[32], path[320], target[128];
  int count = 0;
  snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
  DIR *entries = opendir(folder);
  CHECK(entries, "no %s", folder);
  for (struct dirent *entry; (entry = readdir(entries));) {
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    count += strncmp(target, "socket:", 7) == 0;
  }
  closedir(entries);
  return count;
}

/* The daemon is told of an exit by the process that exits. */
TEST(a_raw_clone_does_not_speak_for_its_parent) {
  char events[8192];
  begin();
  struct process *parent = scene_start(&scene, NULL, "forker", "clone", "3", NULL);
  process_expect(parent, "cloned", NULL, 0);
  process_kill(parent);
  scene_await(&scene, scene_job_gone, parent, "the daemon sees the parent's death");
  CHECK(scene_ctl(&scene, events, sizeof events, "events", NULL) == 0);
  CHECK(strstr(events, "without a word"), "its child has told of an exit: %s", events);
  scene_end(&scene);
}

TEST(parent_dies_child_lives) {
  char line[64];
  begin();
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "3600", NULL) == 0);
  struct process *parent = scene_start(&scene, NULL, "forker", "orphan", "1", NULL);
  process_expect(parent, "child ", line, sizeof line);
  pid_t child = atoi(line + 6);
  scene_await(&scene, scene_job_known, parent, "the parent is registered");
  CHECK(count_sockets(child) == 0, "the child has the parent's connection");
  process_signal(parent, SIGKILL);
  scene_await(&scene, scene_job_gone, parent, "the daemon sees the parent's death");
  CHECK(kill(child, 0) == 0, "the child does not live on");
  /* And the place is free for another. */
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "5", NULL);
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  process_wait(parent); /* its stdin ends, and so does the child's */
  process_await_gone(child);
  scene_end(&scene);
}
