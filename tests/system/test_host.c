/* test_host.c - the program that we are a guest in: its results, errno, output and exit are its own. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner.h"
#include "scene.h"

#define CARD "small,capacity=32MiB"

static struct scene scene;

static void read_output(struct process *process, char *text, size_t size) {
  char line[256];
  size_t used = 0;
  text[0] = 0;
  while (process_line(process, line, sizeof line)) {
    used += (size_t)snprintf(text + used, size - used, "%s\n", line);
    CHECK(used < size, "too much output");
  }
  process_wait_exit(process, 0);
}

/* Print the lines that differ. */
static bool same_text(char *without, char *with) {
  char *save_a, *save_b;
  bool same = true;
  char *a = strtok_r(without, "\n", &save_a), *b = strtok_r(with, "\n", &save_b);
  for (; a || b; a = strtok_r(NULL, "\n", &save_a), b = strtok_r(NULL, "\n", &save_b))
    if (!a || !b || strcmp(a, b) != 0) {
      printf("without us: %s\nwith us:    %s\n", a ? a : "(nothing)", b ? b : "(nothing)");
      same = false;
    }
  return same;
}

static void compare_traces(environment_list environment, bool with_daemon) {
  static char without[32768], with[32768];
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  scene_begin(&scene, CARD);
  read_output(scene_start(&scene, plain, "tracer", NULL), without, sizeof without);
  if (with_daemon)
    scene_start_daemon(&scene, "--mode", "on", NULL);
  read_output(scene_start(&scene, environment, "tracer", NULL), with, sizeof with);
  CHECK(strlen(without) > 1000, "the trace is too short to say anything");
  CHECK(same_text(without, with));
  scene_end(&scene);
}

TEST(same_results_with_daemon) { compare_traces(NULL, true); }
TEST(same_results_without_daemon) { compare_traces(NULL, false); }
TEST(same_results_memory_off) {
  static const char *const off[] = {"GPUSHARE_MEMORY=off", NULL};
  compare_traces(off, true);
}

/* The daemon knows an end that the program tells from one that it does not. */
static void check_told_end(const struct process *program, const char *how) {
  char text[16384];
  bool silent = strcmp(how, "abort") == 0 || strcmp(how, "_exit") == 0;
  scene_await(&scene, scene_job_gone, program, "the daemon has forgotten it");
  CHECK(scene_ctl(&scene, text, sizeof text, "events", NULL) == 0);
  CHECK(strstr(text, silent ? "leaver) ended without a word" : "leaver) ended with status 42"), "%s", text);
  CHECK(strstr(text, " 42\n"), "the command line is not there: %s", text);
}

static void leave(const char *how, bool with_daemon) {
  char line[64];
  scene_begin(&scene, CARD);
  if (with_daemon)
    scene_start_daemon(&scene, "--mode", "on", NULL);
  struct process *program = scene_start(&scene, NULL, "leaver", how, "42", NULL);
  CHECK(!process_line(program, line, sizeof line), "its stdout is not its own: %s", line);
  if (strcmp(how, "abort") == 0) {
    int status = process_wait(program);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x", status);
  } else {
    process_wait_exit(program, 42);
  }
  CHECK(process_log_lines(program) == (with_daemon ? 0 : 1), "%d lines on stderr",
        process_log_lines(program));
  if (with_daemon)
    check_told_end(program, how);
  scene_end(&scene);
}

static void leave_both(const char *how) {
  leave(how, true);
  leave(how, false);
}

TEST(leaves_by_return) { leave_both("return"); }
TEST(leaves_by_exit) { leave_both("exit"); }
TEST(leaves_by__exit) { leave_both("_exit"); }
TEST(leaves_by_abort) { leave_both("abort"); }
TEST(leaves_by_exit_of_thread) { leave_both("thread"); }

/* A program that never uses CUDA: nothing at all. */
TEST(no_cuda) {
  char line[64];
  scene_begin(&scene, CARD);
  struct process *program = scene_start(&scene, NULL, "/bin/true", NULL);
  CHECK(!process_line(program, line, sizeof line));
  process_wait_exit(program, 0);
  CHECK(process_log_lines(program) == 0);
  CHECK(access(scene.state, F_OK) != 0, "the driver has been loaded");
  scene_end(&scene);
}

/* More than the card: refused, unless the user says otherwise. */
TEST(alone_beyond_the_card) {
  char line[128];
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, NULL);
  struct process *job = scene_start(&scene, NULL, "job", "--bytes", "40M", NULL);
  process_expect(job, "error cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", line, sizeof line);
  process_wait_exit(job, 1);
  CHECK(process_log_lines(job) == 1, "one clear line, not %d", process_log_lines(job));
  scene_end(&scene);
}

TEST(alone_beyond_the_card_allowed) {
  static const char *const allowed[] = {"GPUSHARE_SINGLE_OVERSUBSCRIBE=1", NULL};
  if (scene_uses_swap())
    test_skip("without page faults all of it must be on the card");
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, NULL);
  struct process *job = scene_start(&scene, allowed, "job", "--bytes", "40M", "--rounds", "5", NULL);
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  scene_end(&scene);
}

/* All together may use card and host memory, and no more. */
TEST(together_beyond_host_memory) {
  struct process *jobs[3];
  char line[128];
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, "--host-memory", "24M", NULL);
  for (int i = 0; i < 2; i++) { /* 48 of 56 MiB */
    jobs[i] = scene_start(&scene, NULL, "job", "--wait", "--bytes", "24M", NULL);
    process_expect(jobs[i], "ready", NULL, 0);
  }
  jobs[2] = scene_start(&scene, NULL, "job", "--bytes", "24M", NULL);
  process_expect(jobs[2], "error cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", line, sizeof line);
  process_wait_exit(jobs[2], 1);
  for (int i = 0; i < 2; i++)
    process_say(jobs[i], "go");
  for (int i = 0; i < 2; i++) {
    process_expect(jobs[i], "ok", NULL, 0);
    process_wait_exit(jobs[i], 0);
  }
  scene_end(&scene);
}

TEST(memory_off) {
  static const char *const off[] = {"GPUSHARE_MEMORY=off", NULL};
  scene_begin(&scene, CARD);
  scene_start_daemon(&scene, "--mode", "on", NULL);
  struct process *job = scene_start(&scene, off, "job", "--wait", "--bytes", "16M", NULL);
  process_expect(job, "ready", NULL, 0);
  CHECK(scene_process(&scene, job, 0).pinned_bytes >= 16 << 20, "it has been converted");
  process_say(job, "go");
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  scene_end(&scene);
}
