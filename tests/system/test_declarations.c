/* test_declarations.c - what programs ask for, by environment and by gpushare.h, and what is made of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "common/clock.h"
#include "runner.h"
#include "scene.h"

#define MIB (1 << 20)

static struct scene scene;

static void begin(void) {
  scene_begin(&scene, "small,capacity=64MiB");
  scene_start_daemon(&scene, NULL);
}

/* The answer to a line. */
static long long ask(struct process *program, const char *line) {
  char answer[64];
  process_say(program, line);
  CHECK(process_line(program, answer, sizeof answer), "%s: no answer", line);
  char *end;
  long long number = strtoll(answer, &end, 10);
  CHECK(*end == '\0' && end != answer, "%s: %s", line, answer);
  return number;
}

static void start_using(struct process *program) {
  process_say(program, "start");
  process_expect(program, "started", NULL, 0);
}

static void end(struct process *program) {
  process_close_input(program);
  process_wait_exit(program, 0);
  scene_end(&scene);
}

/* ---- what it is given ---- */

static struct gs_msg terms_of(pid_t pid) {
  struct scene_status status;
  CHECK(scene_ask_status(&scene, &status) == 0);
  const struct gs_msg *terms = scene_terms_of(&status, pid);
  CHECK(terms, "the daemon does not know %d", pid);
  return *terms;
}

struct wanted {
  pid_t pid;
  uint32_t weight;
  int32_t priority;
  bool expected;
  uint64_t limit_bytes, soft_limit_bytes;
};

static bool is_given(const struct scene_status *status, const void *argument) {
  const struct wanted *wanted = argument;
  const struct gs_msg *terms = scene_terms_of(status, wanted->pid);
  return terms && terms->terms_status.weight == wanted->weight &&
         terms->terms_status.priority == wanted->priority &&
         (terms->terms_status.remaining_ns > 0) == wanted->expected &&
         terms->terms_status.limit_bytes == wanted->limit_bytes &&
         terms->terms_status.soft_limit_bytes == wanted->soft_limit_bytes;
}

#define await_given(...) scene_await(&scene, is_given, &(struct wanted){__VA_ARGS__}, #__VA_ARGS__)

/* What JSON says of the only job. */
static long long json_number(const char *key) {
  char text[16384];
  json_error_t error;
  CHECK(scene_ctl(&scene, text, sizeof text, "status", "--json", NULL) == 0);
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  CHECK(root, "%s:\n%s", error.text, text);
  json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
  json_t *value = json_object_get(json_array_get(json_object_get(gpu, "jobs"), 0), key);
  CHECK(json_is_integer(value), "no %s in:\n%s", key, text);
  long long number = json_integer_value(value);
  json_decref(root);
  return number;
}

/* ---- the environment ---- */

TEST(by_environment) {
  static const char *const environment[] = {"GPUSHARE_WEIGHT=250",           "GPUSHARE_PRIORITY=-3",
                                            "GPUSHARE_EXPECTED_RUNTIME=1h",  "GPUSHARE_MEMORY_LIMIT=16M",
                                            "GPUSHARE_MEMORY_SOFT_LIMIT=8M", NULL};
  begin();
  struct process *program = scene_start(&scene, environment, "declarer", NULL);
  start_using(program);
  await_given(program->pid, 250, -3, true, 16 * MIB, 8 * MIB);
  CHECK(json_number("weight") == 250);
  CHECK(json_number("priority") == -3);
  CHECK(json_number("limit_bytes") == 16 * MIB);
  CHECK(json_number("soft_limit_bytes") == 8 * MIB);
  long long left_ns = json_number("remaining_ns");
  CHECK(left_ns > 3500 * (long long)NS_PER_S && left_ns <= 3600 * (long long)NS_PER_S, "%lld", left_ns);
  CHECK(process_log_lines(program) == 0, "it complains");
  end(program);
}

static bool has_name(const struct scene_status *status, const void *argument) {
  const struct process *program = argument;
  const struct gs_msg *job = scene_job_of(status, program->pid);
  return job && strcmp(job->job_status.name, "seed 7") == 0;
}

static bool is_there(const struct scene_status *status, const void *argument) {
  return scene_job_of(status, *(const pid_t *)argument) != NULL;
}

/* It is a text from the program: the daemon, not only who shows it, takes no more than 31 characters. */
TEST(a_name) {
  static const char *const environment[] = {"GPUSHARE_NAME=seed 7", NULL},
                           *const wrong[] = {"GPUSHARE_NAME=a name of no less than 32 letters", NULL};
  char text[16384];
  begin();
  struct process *program = scene_start(&scene, environment, "declarer", NULL);
  struct process *other = scene_start(&scene, wrong, "declarer", NULL);
  start_using(program);
  start_using(other);
  scene_await(&scene, has_name, program, "its name");
  scene_await(&scene, is_there, &other->pid, "the other one");
  process_await_log(other, "GPUSHARE_NAME is at most 31 printable characters of ASCII, not 'a name of");
  CHECK(scene_ctl(&scene, text, sizeof text, "events", NULL) == 0);
  CHECK(strstr(text, ", seed 7) has started") && strstr(text, ", declarer) has started"), "%s", text);
  process_close_input(other);
  process_wait_exit(other, 0);
  end(program);
}

/* A command that is too long for its message has no folders: what tells jobs apart are script and arguments.
 */
TEST(a_command_in_a_long_folder) {
  static const char *const name =
      "a-folder-whose-name-is-as-long-as-the-message-has-room-for-a-whole-command";
  char folder[192], path[256], text[16384];
  begin();
  snprintf(folder, sizeof folder, "%s/%s", scene.folder, name);
  CHECK(mkdir(folder, 0700) == 0);
  snprintf(path, sizeof path, "%s/script", folder);
  CHECK(symlink(GS_PROGRAMS "/declarer", path) == 0);
  struct process *program = scene_start(&scene, NULL, path, "--data", folder, NULL);
  start_using(program);
  scene_await(&scene, is_there, &program->pid, "it is on a GPU");
  CHECK(scene_ctl(&scene, text, sizeof text, "status", NULL) == 0);
  CHECK(strstr(text, "  script --data a-folder-whose-name-is-as-long-as"), "%s", text);
  end(program);
}

static bool counts_with(const struct scene_status *status, const void *argument) {
  const struct gs_msg *wait = scene_wait_of(status, *(const pid_t *)argument);
  return wait && wait->wait_status.expected_bytes == 48 * MIB;
}

TEST(expected_memory) {
  static const char *const environment[] = {"GPUSHARE_EXPECTED_MEMORY=48M", NULL};
  begin();
  struct process *program = scene_start(&scene, environment, "job", "--bytes", "4M", "--rounds", "0", NULL);
  scene_await(&scene, counts_with, &program->pid, "it counts with what it will have");
  process_finish(program);
  scene_end(&scene);
}

TEST(nothing_is_declared) {
  begin();
  struct process *program = scene_start(&scene, NULL, "declarer", NULL);
  start_using(program);
  await_given(program->pid, 100, 0, false, 0, 0);
  end(program);
}

TEST(wrong_values_are_ignored) {
  static const char *const environment[] = {
      "GPUSHARE_WEIGHT=0",          "GPUSHARE_PRIORITY=21",          "GPUSHARE_EXPECTED_RUNTIME=soon",
      "GPUSHARE_MEMORY_LIMIT=1.5X", "GPUSHARE_MEMORY_SOFT_LIMIT=-1", NULL};
  begin();
  struct process *program = scene_start(&scene, environment, "declarer", NULL);
  start_using(program);
  await_given(program->pid, 100, 0, false, 0, 0);
  CHECK(process_log_lines(program) == 5, "one line each");
  process_await_log(program, "GPUSHARE_WEIGHT is 1 to 10000, not '0': the default is taken");
  process_await_log(program, "GPUSHARE_PRIORITY is -20 to 20, not '21'");
  process_await_log(program, "GPUSHARE_EXPECTED_RUNTIME is a duration (90, 15m, 2.5h), not 'soon'");
  process_await_log(program, "GPUSHARE_MEMORY_LIMIT is a size (16G, 512M), not '1.5X'");
  process_await_log(program, "GPUSHARE_MEMORY_SOFT_LIMIT is a size (16G, 512M), not '-1'");
  end(program);
}

/* ---- gpushare.h ---- */

TEST(by_calls) {
  static const char *const environment[] = {"GPUSHARE_WEIGHT=250", "GPUSHARE_PRIORITY=3", NULL};
  begin();
  struct process *program = scene_start(&scene, environment, "declarer", NULL);
  CHECK(ask(program, "weight 40") == 0, "before it uses a GPU");
  start_using(program);
  await_given(program->pid, 40, 3, false, 0, 0); /* what has not been called for stays */
  CHECK(ask(program, "priority -20") == 0);
  await_given(program->pid, 40, -20, false, 0, 0);
  CHECK(ask(program, "expected 900000000000000") == 0);
  await_given(program->pid, 40, -20, true, 0, 0);
  CHECK(ask(program, "expected 0") == 0);
  await_given(program->pid, 40, -20, false, 0, 0);
  CHECK(ask(program, "weight 0") == -EINVAL && ask(program, "weight 10001") == -EINVAL);
  CHECK(ask(program, "priority 21") == -EINVAL && ask(program, "priority -21") == -EINVAL);
  CHECK(ask(program, "soft 8388608") == 0);
  await_given(program->pid, 40, -20, false, 0, 8 * MIB);
  CHECK(ask(program, "soft 0") == 0);
  CHECK(ask(program, "memory 8388608") == 0);
  CHECK(ask(program, "weight 100") == 0 && ask(program, "priority 0") == 0);
  await_given(program->pid, 100, 0, false, 0, 0);
  end(program);
}

struct wanted_class {
  pid_t pid;
  enum gs_class class;
};

static bool has_class(const struct scene_status *status, const void *argument) {
  const struct wanted_class *wanted = argument;
  const struct gs_msg *terms = scene_terms_of(status, wanted->pid);
  return terms && terms->terms_status.class == wanted->class;
}

static void await_class(const struct process *program, enum gs_class class) {
  scene_await(&scene, has_class, &(struct wanted_class){program->pid, class}, "its class");
}

TEST(classes) {
  static const char *const environment[] = {"GPUSHARE_CLASS=opportunistic", NULL};
  begin();
  struct process *program = scene_start(&scene, environment, "declarer", NULL);
  start_using(program);
  await_class(program, GS_CLASS_OPPORTUNISTIC);
  CHECK(ask(program, "class 1") == 0);
  await_class(program, GS_CLASS_PRODUCTION);
  CHECK(ask(program, "class 3") == -EINVAL && ask(program, "class -1") == -EINVAL);
  CHECK(ask(program, "class 0") == 0);
  await_class(program, GS_CLASS_STANDARD);
  end(program);
}

TEST(a_wrong_class_is_ignored) {
  static const char *const environment[] = {"GPUSHARE_CLASS=best", NULL};
  begin();
  struct process *program = scene_start(&scene, environment, "declarer", NULL);
  start_using(program);
  await_class(program, GS_CLASS_STANDARD);
  process_await_log(program, "GPUSHARE_CLASS is standard, production or opportunistic, not 'best'");
  end(program);
}

TEST(children_inherit) {
  char line[64];
  begin();
  struct process *program = scene_start(&scene, NULL, "declarer", NULL);
  CHECK(ask(program, "weight 40") == 0);
  process_say(program, "fork");
  process_expect(program, "child ", line, sizeof line);
  start_using(program);
  await_given(atoi(line + strlen("child ")), 40, 0, false, 0, 0);
  end(program);
}

/* A daemon that comes later is told what was said before. */
TEST(a_new_daemon_is_told) {
  begin();
  struct process *program = scene_start(&scene, NULL, "declarer", NULL);
  start_using(program);
  CHECK(ask(program, "weight 40") == 0);
  await_given(program->pid, 40, 0, false, 0, 0);
  scene_stop_daemon(&scene);
  CHECK(ask(program, "priority 5") == 0);
  scene_start_daemon(&scene, NULL);
  await_given(program->pid, 40, 5, false, 0, 0);
  end(program);
}

TEST(without_the_library) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  scene_begin(&scene, "small");
  struct process *program = scene_start(&scene, plain, "declarer", NULL);
  process_say(program, "weight 40");
  process_expect(program, "absent", NULL, 0);
  end(program);
}

/* ---- gpusharectl ---- */

static void set(const struct process *program, const char *command, const char *value) {
  char job[16];
  snprintf(job, sizeof job, "%u", terms_of(program->pid).terms_status.job);
  CHECK(scene_ctl(&scene, NULL, 0, command, job, value, NULL) == 0, "%s %s", command, value);
}

TEST(gpusharectl_counts_more) {
  begin();
  struct process *program = scene_start(&scene, NULL, "declarer", NULL);
  start_using(program);
  await_given(program->pid, 100, 0, false, 0, 0);
  set(program, "set-priority", "-7");
  await_given(program->pid, 100, -7, false, 0, 0);
  CHECK(ask(program, "priority 20") == 0 && ask(program, "weight 40") == 0);
  await_given(program->pid, 40, -7, false, 0, 0);
  end(program);
}

TEST(bounds) {
  static const char *const environment[] = {"GPUSHARE_WEIGHT=5000", NULL};
  const char *text = "asks for more than programs may: it is given weight 300, priority 0 and class standard "
                     "(settings max_weight, max_priority and production)";
  if (geteuid() != 0)
    test_skip("only root can be somebody who may not change settings");
  scene_begin(&scene, "small,capacity=64MiB");
  chmod(scene.folder, 0755);
  FILE *state = fopen(scene.state, "w"); /* the card is there for everybody */
  CHECK(state && fchmod(fileno(state), 0666) == 0 && fclose(state) == 0);
  scene_start_daemon(&scene, "--max-weight", "300", "--max-priority", "0", NULL);
  struct process *program = scene_start(&scene, environment, "declarer", NULL);
  CHECK(ask(program, "become 65534") == 0);
  start_using(program);
  await_given(program->pid, 300, 0, false, 0, 0);
  process_await_log(scene.daemon, text);
  CHECK(ask(program, "priority 20") == 0 && ask(program, "weight 299") == 0);
  await_given(program->pid, 299, 0, false, 0, 0);
  CHECK(process_log_count(scene.daemon, "more than programs may") == 1, "once for a job");
  set(program, "set-weight", "9000");
  set(program, "set-priority", "7");
  await_given(program->pid, 9000, 7, false, 0, 0);
  end(program);
}

static void await_total(struct process *program, long long bytes) {
  for (uint64_t deadline = deadline_in(PROCESS_LIMIT_S); ask(program, "total") != bytes;)
    CHECK(deadline_left_ms(deadline) > 0, "it sees %lld", ask(program, "total"));
}

static void check_limit_with(const char *memory) {
  const char *const environment[] = {"GPUSHARE_MEMORY_LIMIT=16M", memory, NULL};
  begin();
  struct process *program = scene_start(&scene, environment, "declarer", NULL);
  start_using(program);
  CHECK(ask(program, "total") == 16 * MIB, "a limit is all that it sees");
  CHECK(ask(program, "alloc 12582912") == 0);
  CHECK(ask(program, "alloc 8388608") == 2, "CUDA_ERROR_OUT_OF_MEMORY");
  set(program, "set-limit", "32M");
  await_total(program, 32 * MIB);
  CHECK(ask(program, "alloc 8388608") == 0);
  set(program, "set-limit", "4M");
  await_total(program, 4 * MIB);
  CHECK(ask(program, "alloc 4096") == 2);
  CHECK(json_number("used_bytes") >= 20 * MIB, "nothing is taken away");
  set(program, "set-limit", "0");
  await_total(program, 64 * MIB);
  CHECK(ask(program, "alloc 33554432") == 0);
  end(program);
}

/* Of an allocation that fails, and a program that has a limit: what was in the way, and what lifts it. */
TEST(a_refusal_names_the_limit) {
  char wanted[96], text[16384];
  struct scene_status status;
  static const char *const environment[] = {"GPUSHARE_SINGLE_OVERSUBSCRIBE=1", "GPUSHARE_MEMORY=managed",
                                            NULL};
  for (int lets = 0; lets < 2; lets++) { /* who knows: the library, or only the daemon */
    begin();
    struct process *program = scene_start(&scene, lets ? environment : NULL, "declarer", NULL);
    start_using(program);
    CHECK(ask(program, "total") == 64 * MIB);
    set(program, "set-limit", "16M");
    await_total(program, 16 * MIB);
    CHECK(ask(program, "alloc 33554432") == 2, "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(scene_ask_status(&scene, &status) == 0);
    snprintf(wanted, sizeof wanted, "its memory limit is 16777216 ('gpusharectl set-limit %u 0' lifts it)",
             scene_job_of(&status, program->pid)->job_status.job);
    process_await_log(program, wanted);
    CHECK(process_log_count(program, "exceed the card") == 0 && process_log_count(program, "spent") == 0);
    if (lets) {
      CHECK(scene_ctl(&scene, text, sizeof text, "events", NULL) == 0);
      CHECK(strstr(text, "is refused to grow to") && strstr(text, ": its memory limit is less"), "%s", text);
    }
    end(program);
  }
}

TEST(a_limit_needs_no_daemon) {
  static const char *const memory[] = {"GPUSHARE_MEMORY=managed", "GPUSHARE_MEMORY=swap",
                                       "GPUSHARE_MEMORY=off"};
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
    const char *const environment[] = {"GPUSHARE_MEMORY_LIMIT=16M", memory[i], NULL};
    scene_begin(&scene, "small,capacity=64MiB");
    struct process *program = scene_start(&scene, environment, "declarer", NULL);
    start_using(program);
    CHECK(ask(program, "total") == 16 * MIB);
    CHECK(ask(program, "alloc 12582912") == 0);
    CHECK(ask(program, "alloc 8388608") == 2, "CUDA_ERROR_OUT_OF_MEMORY");
    process_await_log(program, "its memory limit is 16777216 (GPUSHARE_MEMORY_LIMIT)");
    end(program);
  }
}

TEST(memory_limit) { check_limit_with("GPUSHARE_MEMORY=managed"); }

TEST(memory_limit_swap) { check_limit_with("GPUSHARE_MEMORY=swap"); }

static bool has_run_for_a_second(const struct scene_status *status, const void *process) {
  const struct gs_msg *terms = scene_terms_of(status, ((const struct process *)process)->pid);
  return terms && terms->terms_status.gpu_ns > NS_PER_S;
}

static struct process *start_job(const char *bytes) {
  struct process *job =
      scene_start(&scene, NULL, "job", "--bytes", bytes, "--rounds", "0", "--progress", NULL);
  process_expect(job, "round", NULL, 0);
  return job;
}

static void end_job(struct process *job) {
  process_finish(job);
  scene_await(&scene, scene_job_gone, job, "the daemon has seen its end");
}

/* The same command line again is expected to take as long as the last time; another one is not. */
TEST(runs_are_learnt_from) {
  begin();
  struct process *job = start_job("1M");
  CHECK(terms_of(job->pid).terms_status.remaining_ns == 0);
  scene_await(&scene, has_run_for_a_second, job, "it runs for a second");
  end_job(job);
  job = start_job("2M");
  CHECK(terms_of(job->pid).terms_status.remaining_ns == 0);
  end_job(job);
  job = start_job("1M");
  CHECK(terms_of(job->pid).terms_status.remaining_ns > 0);
  end_job(job);
  scene_end(&scene);
}
