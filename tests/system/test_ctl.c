/* test_ctl.c - gpusharectl against a daemon with jobs: changes while running, status, exit codes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <jansson.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

static struct scene scene;
static struct process *jobs[2];

static void begin_with_jobs(const char *mode) {
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--mode", mode, "--tq", "5ms", NULL);
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "0", "--progress", NULL);
  for (int i = 0; i < 2; i++)
    process_expect(jobs[i], "round", NULL, 0);
}

static void check_progress(void) {
  for (int i = 0; i < 2; i++) {
    process_drain(jobs[i]);
    process_expect(jobs[i], "round", NULL, 0);
    process_expect(jobs[i], "round", NULL, 0);
  }
}

static void end(void) {
  for (int i = 0; i < 2; i++) {
    process_close_input(jobs[i]);
    process_expect(jobs[i], "ok", NULL, 0);
    process_wait_exit(jobs[i], 0);
  }
  scene_end(&scene);
}

static struct gs_msg gpu_status(void) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0 && status.gpu_count == 1);
  return status.gpus[0];
}

TEST(set_tq_while_running) {
  static const struct {
    const char *text;
    uint64_t ns;
  } quanta[] = {
      {"0.002", 2 * NS_PER_MS}, {"20ms", 20 * NS_PER_MS}, {"20", 20 * NS_PER_S}, {"1ms", NS_PER_MS}};
  begin_with_jobs("on");
  for (size_t i = 0; i < sizeof quanta / sizeof quanta[0]; i++) {
    CHECK(scene_ctl(&scene, NULL, 0, "set-tq", quanta[i].text, NULL) == 0);
    CHECK(gpu_status().gpu_status.tq_ns == quanta[i].ns, "%llu",
          (unsigned long long)gpu_status().gpu_status.tq_ns);
    if (quanta[i].ns < NS_PER_S)
      check_progress();
  }
  end();
}

/* From 20 s to 1 ms in the middle of a turn: the waiting one must not wait for the rest of the 20 s. */
TEST(shorter_tq_counts_at_once) {
  begin_with_jobs("on");
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "3600", NULL) == 0);
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "0.002", NULL) == 0);
  check_progress();
  end();
}

TEST(modes_while_running) {
  static const char *const modes[] = {"off", "on", "auto", "off", "auto", "on"};
  static const unsigned values[] = {GS_MODE_OFF, GS_MODE_ON,   GS_MODE_AUTO,
                                    GS_MODE_OFF, GS_MODE_AUTO, GS_MODE_ON};
  begin_with_jobs("on");
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
    CHECK(scene_ctl(&scene, NULL, 0, modes[i], NULL) == 0);
    struct gs_msg gpu = gpu_status();
    bool serialized = gpu.gpu_status.flags & GS_GPU_SERIALIZED;
    CHECK(gpu.gpu_status.mode == values[i], "mode %u", gpu.gpu_status.mode);
    CHECK(serialized == (values[i] != GS_MODE_OFF), "48 MiB of 32: serialized %d", serialized);
    check_progress();
  }
  end();
}

TEST(signals_switch_the_lock) {
  begin_with_jobs("auto");
  process_signal(scene.daemon, SIGUSR2);
  for (uint64_t deadline = deadline_in(5); gpu_status().gpu_status.mode != GS_MODE_OFF;)
    CHECK(deadline_left_ms(deadline) > 0, "SIGUSR2 does nothing");
  check_progress();
  process_signal(scene.daemon, SIGUSR1);
  for (uint64_t deadline = deadline_in(5); gpu_status().gpu_status.mode != GS_MODE_ON;)
    CHECK(deadline_left_ms(deadline) > 0, "SIGUSR1 does nothing");
  check_progress();
  end();
}

/* ---- set-capacity while running: what is over leaves the card ---- */

static bool turns_are_taken(const struct scene_status *status, const void *wanted) {
  return status->gpu_count == 1 && (status->gpus[0].gpu_status.flags & GS_GPU_SERIALIZED) ==
                                       (*(const bool *)wanted ? GS_GPU_SERIALIZED : 0);
}

/* As the daemon sees it, and as it is. */
static bool card_holds_at_most(const struct scene_status *status, const void *bytes) {
  struct gs_sim_card card = scene_card(&scene, 0);
  uint64_t resident_bytes = 0;
  for (int i = 0; i < status->job_count; i++)
    resident_bytes += status->jobs[i].job_status.resident_bytes;
  return resident_bytes <= *(const uint64_t *)bytes &&
         card.resident_bytes + card.pinned_bytes <= *(const uint64_t *)bytes;
}

static void set_capacity(const char *text) {
  CHECK(scene_ctl(&scene, NULL, 0, "set-capacity", text, NULL) == 0, "%s", text);
}

/* Two jobs of 24 MiB on a card of 64: turns are only taken while the capacity is less than both. */
static void change_capacity_with(const char *memory) {
  static const uint64_t less_bytes = 32 << 20;
  static const bool yes = true, no = false;
  scene_begin(&scene, "small,capacity=64MiB");
  scene_start_daemon(&scene, "--mode", "auto", "--tq", "5ms", "--memory", memory, NULL);
  for (int i = 0; i < 2; i++)
    jobs[i] = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "0", "--progress", NULL);
  for (int i = 0; i < 3; i++) {
    check_progress();
    scene_await(&scene, turns_are_taken, &no, "both fit, and run together");
    set_capacity("32M");
    scene_await(&scene, turns_are_taken, &yes, "they do not fit any more");
    scene_await(&scene, card_holds_at_most, &less_bytes, "what is over leaves the card");
    check_progress();
    CHECK(gpu_status().gpu_status.capacity_bytes == less_bytes, "as told");
    set_capacity("0");
  }
  end();
}

TEST(set_capacity_while_running) { change_capacity_with("managed"); }

TEST(set_capacity_while_running_swap) { change_capacity_with("swap"); }

/* A job that never fits waits, and is shown; the other one goes on. */
TEST(too_big_for_the_capacity) {
  static const char *const too_big = "too big for the capacity";
  char text[8192];
  scene_begin(&scene, "small,capacity=64MiB");
  scene_start_daemon(&scene, "--tq", "5ms", "--memory", "swap", NULL);
  jobs[0] = scene_start(&scene, NULL, "job", "--bytes", "24M", "--rounds", "0", "--progress", NULL);
  jobs[1] = scene_start(&scene, NULL, "job", "--bytes", "8M", "--rounds", "0", "--progress", NULL);
  check_progress();
  set_capacity("16M");
  scene_await(&scene, scene_job_waits, jobs[0], "it can't run with 24 of 16 MiB");
  process_drain(jobs[1]);
  process_expect(jobs[1], "round", NULL, 0);
  CHECK(scene_ctl(&scene, text, sizeof text, "status", NULL) == 0);
  CHECK(strstr(text, too_big), "%s", text);
  set_capacity("0");
  check_progress();
  CHECK(scene_ctl(&scene, text, sizeof text, "status", NULL) == 0);
  CHECK(!strstr(text, too_big), "%s", text);
  end();
}

/* ---- run ---- */

/* gpusharectl becomes the program: its pid is the job's. */
static struct process *run_job(const char *memory) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  return scene_start(&scene, plain, GS_CTL, "run", "--memory", memory, "--", GS_PROGRAMS "/job", "--bytes",
                     "24M", "--rounds", "0", "--progress", NULL);
}

TEST(run_starts_programs_that_share) {
  static const char *const memories[] = {"managed", "swap"};
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--tq", "5ms", NULL);
  for (int i = 0; i < 2; i++)
    jobs[i] = run_job(memories[i]);
  for (int i = 0; i < 2; i++)
    scene_await(&scene, scene_job_known, jobs[i], "the daemon knows the job");
  check_progress();
  CHECK(scene_process(&scene, jobs[0], 0).counters[GS_SIM_prefetches] > 0, "managed memory is prefetched");
  CHECK(scene_process(&scene, jobs[1], 0).counters[GS_SIM_prefetches] == 0, "swap memory is not");
  end();
}

TEST(run_needs_no_daemon) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  scene_begin(&scene, "small");
  struct process *job = scene_start(&scene, plain, GS_CTL, "run", GS_PROGRAMS "/job", NULL);
  process_expect(job, "ok", NULL, 0);
  process_wait_exit(job, 0);
  process_await_log(job, "no daemon");
  scene_end(&scene);
}

static bool json_names_pid(const json_t *gpu, pid_t pid) {
  size_t i;
  json_t *job;
  json_array_foreach(json_object_get(gpu, "jobs"), i, job) {
    if (json_integer_value(json_object_get(job, "pid")) == pid)
      return json_integer_value(json_object_get(job, "used_bytes")) >= 24 << 20;
  }
  return false;
}

TEST(status_json) {
  static char text[65536];
  json_error_t error;
  begin_with_jobs("on");
  CHECK(scene_ctl(&scene, text, sizeof text, "status", "--json", NULL) == 0);
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  CHECK(root, "%s:\n%s", error.text, text);
  CHECK(json_integer_value(json_object_get(json_object_get(root, "daemon"), "pid")) == scene.daemon->pid);
  json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
  CHECK(gpu, "no GPU in:\n%s", text);
  CHECK(strcmp(json_string_value(json_object_get(gpu, "mode")), "on") == 0);
  for (int i = 0; i < 2; i++)
    CHECK(json_names_pid(gpu, jobs[i]->pid), "no job %d with its bytes in:\n%s", jobs[i]->pid, text);
  json_decref(root);
  end();
}

/* What gpusharectl says of the job, once that has the text. */
static void await_said(const char *command, const char *job, const char *wanted, char *text, size_t size) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  do {
    CHECK(deadline_left_ms(deadline) > 0, "'%s' is not in: %s", wanted, text);
    CHECK(scene_ctl(&scene, text, size, command, job, NULL) == 0);
  } while (!strstr(text, wanted));
}

static bool is_overdue(const struct scene_status *status, const void *process) {
  const struct gs_msg *job = scene_job_of(status, ((const struct process *)process)->pid);
  return job && job->job_status.flags & GS_STATE_OVERDUE;
}

static bool is_stopped(const struct scene_status *status, const void *process) {
  const struct gs_msg *job = scene_job_of(status, ((const struct process *)process)->pid);
  return job && job->job_status.flags & GS_STATE_STOPPED;
}

/* The one that holds is stopped, and goes on holding: it may have given the GPU back at the last moment. Its
 * index. */
static int stop_the_holder(void) {
  struct scene_status status;
  for (uint64_t deadline = deadline_in(PROCESS_LIMIT_S); deadline_left_ms(deadline) > 0;)
    for (int i = 0; i < 2; i++) {
      if (scene_ask_status(&scene, &status) != 0 || !scene_job_holds(&status, jobs[i]))
        continue;
      process_signal(jobs[i], SIGSTOP);
      scene_await(&scene, is_stopped, jobs[i], "its process is stopped");
      CHECK(scene_ask_status(&scene, &status) == 0);
      if (scene_job_holds(&status, jobs[i]) && scene_job_waits(&status, jobs[!i]))
        return i;
      process_signal(jobs[i], SIGCONT);
    }
  test_fail(__FILE__, __LINE__, "none of them holds while the other one waits");
}

/* Ctrl-Z on a program whose memory nobody else can have: it is named at once, and when it has not answered.
 */
TEST(a_stopped_process_is_named) {
  static const char *const swap[] = {"GPUSHARE_MEMORY=swap", NULL};
  char text[4096], wanted[64], number[16];
  struct scene_status status;
  scene_begin(&scene, "small,capacity=32MiB");
  scene_start_daemon(&scene, "--tq", "3600", "--grace", "200ms", NULL);
  for (int i = 0; i < 2; i++) {
    jobs[i] = scene_start(&scene, swap, "job", "--bytes", "24M", "--rounds", "0", NULL);
    process_expect(jobs[i], "ready", NULL, 0);
  }
  int stopped = stop_the_holder();
  snprintf(wanted, sizeof wanted, "'kill -CONT %d' lets it go on", jobs[stopped]->pid);
  CHECK(scene_ask_status(&scene, &status) == 0);
  snprintf(number, sizeof number, "%u", scene_job_of(&status, jobs[!stopped]->pid)->job_status.job);
  await_said("why", number, wanted, text, sizeof text);
  CHECK(!strstr(text, "It should run"), "%s", text);
  await_said("status", NULL, "holding, its process is stopped", text, sizeof text);
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "1ms", NULL) == 0);
  scene_await(&scene, is_overdue, jobs[stopped], "it has not answered");
  await_said("why", number, wanted, text, sizeof text);
  CHECK(!strstr(text, "It should run"), "%s", text);
  process_signal(jobs[stopped], SIGCONT);
  end();
}

/* The program ends by the signal, and the others go on. */
TEST(kill) {
  char text[4096], number[16], wanted[80];
  struct scene_status status;
  begin_with_jobs("on");
  CHECK(scene_ask_status(&scene, &status) == 0);
  snprintf(number, sizeof number, "%u", scene_job_of(&status, jobs[0]->pid)->job_status.job);
  snprintf(wanted, sizeof wanted, "job %s (pid %d, job): sent signal 15 (Terminated)\n", number,
           jobs[0]->pid);
  CHECK(scene_ctl(&scene, text, sizeof text, "kill", number, NULL) == 0, "%s", text);
  CHECK(strcmp(text, wanted) == 0, "%s", text);
  int how = process_wait(jobs[0]);
  CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGTERM, "status %d", how);
  process_drain(jobs[1]);
  process_expect(jobs[1], "round", NULL, 0);
  CHECK(scene_ctl(&scene, text, sizeof text, "kill", number, NULL) == 1, "%s", text);
  process_close_input(jobs[1]);
  process_wait_exit(jobs[1], 0);
  scene_end(&scene);
}

TEST(exit_codes) {
  char text[4096];
  scene_begin(&scene, "small");
  CHECK(scene_ctl(&scene, text, sizeof text, "status", NULL) == 3, "no daemon");
  CHECK(!*text, "an error is not for stdout: %s", text);
  CHECK(scene_ctl(&scene, NULL, 0, "no-such-command", NULL) == 2, "usage");
  CHECK(scene_ctl(&scene, NULL, 0, "--version", NULL) == 0);
  scene_start_daemon(&scene, NULL);
  CHECK(scene_ctl(&scene, NULL, 0, "status", NULL) == 0);
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "never", NULL) == 2, "not a duration");
  CHECK(scene_ctl(&scene, NULL, 0, "set-tq", "1us", NULL) != 0, "shorter than 1 ms");
  CHECK(scene_ctl(&scene, NULL, 0, "on", "--gpu", "GPU-00000000-0000-0000-0000-0000000000ff", NULL) == 1,
        "a GPU that is not there");
  scene_end(&scene);
}
