/*
 * fault_scenes.c - what programs do while a call of libunified's to the C library fails (faults.c), and what
 * must hold then. See README.md; run by faults.py.
 *
 * usage: fault_scenes [SCENE...]     GS_FAULT_TABLE, GS_FAULT: see faults.c.
 *
 * In each scene the program in whose library the call fails, the victim, must end by itself: with success, or
 * with CUDA_ERROR_OUT_OF_MEMORY, a line of the library's log, and without a wrong byte. The jobs beside it,
 * and one that starts afterwards, run to their ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "system/fake_daemon.h"
#include "system/runner.h"
#include "system/scene.h"

#define LINES_MAX 64
#define OLD ",driver_version=12020"
#define FULL "small,capacity=64MiB"
#define TURNS "--mode", "on", "--tq", "10ms"
#define VARIABLES 8

static struct scene scene;

/* ---- the victim ---- */

/* So that its library's calls are counted, and one of them fails. */
static struct process *start_victim(environment_list additions, const char *const arguments[]) {
  static char preload[1280], table[256], fault[128], path[512];
  const char *environment[VARIABLES + 4];
  char *argv[16];
  int count = 0;
  snprintf(preload, sizeof preload, "LD_PRELOAD=%s:%s", scene_preload(), GS_FAULTS);
  snprintf(table, sizeof table, "GS_FAULT_TABLE=%s",
           getenv("GS_FAULT_TABLE") ? getenv("GS_FAULT_TABLE") : "");
  snprintf(fault, sizeof fault, "GS_FAULT=%s", getenv("GS_FAULT") ? getenv("GS_FAULT") : "");
  for (; additions && additions[count]; count++)
    environment[count] = additions[count];
  environment[count++] = preload;
  if (getenv("GS_FAULT_TABLE"))
    environment[count++] = table;
  environment[count++] = fault;
  environment[count] = NULL;
  for (count = 0; arguments[count]; count++)
    argv[count] = (char *)arguments[count];
  argv[count] = NULL;
  snprintf(path, sizeof path, "%s%s", *arguments[0] == '/' ? "" : GS_PROGRAMS "/", arguments[0]);
  argv[0] = path;
  return scene_start_argv(&scene, environment, argv);
}

static bool is_wrong(const char *line) {
  return strstr(line, "wrong") || strstr(line, "mismatch") || strstr(line, "bytes are not");
}

static char last[1024]; /* what it has said last */
static bool refused;    /* it has said that it has been refused memory */

/* "error CALL: NAME (2)", or "error CALL: 2". */
static bool is_refusal(const char *line) {
  size_t length = strlen(line);
  return strncmp(line, "error ", 6) == 0 &&
         (strstr(line, "OUT_OF_MEMORY") || strcmp(line + length - 3, ": 2") == 0);
}

/* Until it says so. False: it has ended. */
static bool await_line(struct process *victim, const char *text) {
  char line[sizeof last];
  while (process_line(victim, line, sizeof line)) {
    CHECK(!is_wrong(line), "%s: %s", victim->name, line);
    memcpy(last, line, sizeof last);
    refused |= is_refusal(line);
    if (strncmp(line, text, strlen(text)) == 0)
      return true;
  }
  return false;
}

/* Its input has ended. silent: it says no "ok". */
static void judge(struct process *victim, bool silent) {
  bool ok = await_line(victim, "ok");
  int status = process_wait(victim);
  CHECK(!WIFSIGNALED(status), "%s died of signal %d", victim->name, WTERMSIG(status));
  bool succeeded = WEXITSTATUS(status) == 0 && (ok || silent);
  printf("%s: exit %d, '%s', %d lines of log\n", victim->name, WEXITSTATUS(status), last,
         process_log_lines(victim));
  CHECK(succeeded || (getenv("GS_FAULT") && refused), "exit %d after '%s'", WEXITSTATUS(status), last);
  CHECK(succeeded || process_log_count(victim, "gpushare[") > 0, "it says nothing of what went wrong");
}

/* ---- before, beside and after it ---- */

static struct process *start_other(environment_list environment) {
  struct process *other = scene_start(&scene, environment, "job", "--bytes", "16M", "--rounds", "0",
                                      "--progress", "--spin", "1ms", NULL);
  process_expect(other, "round 1", NULL, 0);
  return other;
}

static void check_all_is_given_back(void) {
  struct process *after = scene_start(&scene, NULL, "job", "--bytes", "16M", "--rounds", "2", NULL);
  process_finish(after);
  struct gs_sim_card card = scene_card(&scene, 0);
  CHECK(card.pinned_bytes + card.resident_bytes == 0, "%llu bytes are left on the card",
        (unsigned long long)(card.pinned_bytes + card.resident_bytes));
}

struct play {
  const char *card;
  const char *memory; /* GPUSHARE_MEMORY of all */
  const char *victim[16];
  const char *environment[VARIABLES]; /* of the victim */
  const char *other[VARIABLES];       /* of the job beside it */
  const char *input;                  /* what it is told, before its input ends */
  bool together;                      /* no turns */
  bool alone;                         /* no job beside it */
  bool silent;
};

static void feed(struct process *victim, const struct play *play) {
  if (play->input)
    process_say(victim, play->input);
  process_close_input(victim);
}

static void play(const struct play *play) {
  setenv("GS_TEST_MEMORY", play->memory, 1);
  scene_begin(&scene, play->card);
  scene_start_daemon(&scene, "--mode", play->together ? "auto" : "on", "--tq", "10ms", NULL);
  struct process *other = play->alone ? NULL : start_other(play->other);
  struct process *victim = start_victim(play->environment, play->victim);
  feed(victim, play);
  if (play->together) { /* what limits it comes to an end */
    nanosleep(&(struct timespec){.tv_nsec = 200 * NS_PER_MS}, NULL);
    process_finish(other);
    other = NULL;
  }
  judge(victim, play->silent);
  if (other)
    process_finish(other);
  check_all_is_given_back();
  scene_end(&scene);
}

#define PLAY(name, ...)                                                                                      \
  TEST(name) { play(&(struct play){__VA_ARGS__}); }

/* Sanitizers refuse RTLD_DEEPBIND. */
#define PLAY_PLAINLY(name, ...)                                                                              \
  TEST(name) {                                                                                               \
    if (getenv("GS_TEST_PRELOAD_FIRST"))                                                                     \
      test_skip("not with a sanitizer");                                                                     \
    play(&(struct play){__VA_ARGS__});                                                                       \
  }

/* ---- the scenes ---- */

#define JOB "job", "--bytes", "24M", "--rounds", "20", "--spin", "1ms", "--workers", "2"

PLAY(job_managed, .card = FULL, .memory = "managed", .victim = {JOB})
PLAY(job_swap, .card = FULL, .memory = "swap", .victim = {JOB})
PLAY(job_swap_old, .card = FULL OLD, .memory = "swap", .victim = {JOB, "--contexts", "2"})
PLAY(job_async_swap, .card = FULL OLD, .memory = "swap", .victim = {JOB, "--async"})
PLAY(job_async_managed, .card = FULL OLD, .memory = "managed", .victim = {JOB, "--async"})
PLAY(job_capture, .card = FULL, .memory = "managed",
     .victim = {"job", "--bytes", "48M", "--rounds", "20", "--capture"})
PLAY(job_swap_large, .card = "small,capacity=128MiB", .memory = "swap",
     .victim = {"job", "--bytes", "112M", "--rounds", "20", "--spin", "1ms"})
PLAY(job_alone, .card = FULL, .memory = "swap", .victim = {JOB}, .alone = true)

#define CHURN                                                                                                \
  "churn", "--bytes", "40M", "--threads", "2", "--contexts", "2", "--operations", "150", "--seed", "5"

PLAY(churn_managed, .card = FULL, .memory = "managed", .victim = {CHURN})
PLAY(churn_swap, .card = FULL, .memory = "swap", .victim = {CHURN})
PLAY(churn_swap_old, .card = FULL OLD, .memory = "swap", .victim = {CHURN})

PLAY(arrays, .card = "small,capacity=128MiB", .memory = "swap", .victim = {"pinner", "33554432"},
     .input = "array 65536\ncreate 2097152\narray 1048576\ncreate 4194304")
PLAY(graphs, .card = FULL, .memory = "managed", .victim = {"submitter"}, .silent = true,
     .input = "record\nreplay\ndestroy\nborrow\nreplay\ndestroy\ngraph\nreplay\nedit\nupdate\ndisable\nreplay"
              "\ncall\nprefetch")
PLAY(limited, .card = FULL, .memory = "managed", .victim = {"job", "--bytes", "2M", "--rounds", "3"},
     .environment = {"GPUSHARE_CLASS=opportunistic", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=1",
                     "MASTER_ADDR=localhost", "MASTER_PORT=1"},
     .other = {"GPUSHARE_CLASS=production"}, .together = true)
PLAY(forks, .card = FULL, .memory = "managed", .victim = {"forker", "stale", "4"})
PLAY(forked, .card = FULL, .memory = "swap", .victim = {"forker", "fresh", "2"})
PLAY_PLAINLY(plugin, .card = FULL, .memory = "managed", .victim = {"mode_deepbind", "16777216", "6"},
             .input = "go")
PLAY(crosses, .card = "small,gpus=2,capacity=64MiB,scale=0.2", .memory = "swap",
     .victim = {"crosser", "copies", "8388608", "8"})

/* All that it can do first after its memory has left. */
TEST(firsts) {
  char input[512] = "0";
  for (int i = 1; i < 39; i++)
    snprintf(input + strlen(input), sizeof input - strlen(input), "\n%d", i);
  play(&(struct play){.card = FULL, .memory = "swap", .victim = {"firsts"}, .input = input});
}

/* ---- nothing is lost, and nothing goes uncounted ---- */

/* It says so where it can't have a thread for long. */
static bool is_unshared(const struct process *victim) {
  return process_ended(victim) || process_log_count(victim, "can't start the thread") > 0;
}

struct books {
  const struct process *program;
  uint64_t least_bytes, most_bytes;
};

static bool are_true(const struct scene_status *status, const void *what) {
  const struct books *books = what;
  const struct gs_msg *job = scene_job_of(status, books->program->pid);
  return (job && job->job_status.used_bytes >= books->least_bytes &&
          job->job_status.used_bytes <= books->most_bytes) ||
         is_unshared(books->program);
}

/* The daemon knows of all that the program has, and of nothing more once it has given all back. */
static void keep_books(const char *card, const char *memory) {
  static const char *const accountant[] = {GS_ACCOUNTANT, NULL};
  setenv("GS_TEST_MEMORY", memory, 1);
  scene_begin(&scene, card);
  scene_start_daemon(&scene, "--mode", "auto", NULL);
  struct process *victim = start_victim(NULL, accountant);
  struct books held = {victim, 0, UINT64_MAX}, freed = {victim, 0, 0};
  if (await_line(victim, "holds ")) {
    held.least_bytes = strtoull(last + strlen("holds "), NULL, 10);
    scene_await(&scene, are_true, &held, "the daemon knows what it holds");
    process_say(victim, "free");
    if (await_line(victim, "freed"))
      scene_await(&scene, are_true, &freed, "the daemon knows that nothing is left");
    process_say(victim, "end");
  }
  process_close_input(victim);
  judge(victim, false);
  check_all_is_given_back();
  scene_end(&scene);
}

TEST(books_managed) { keep_books(FULL, "managed"); }
TEST(books_managed_old) { keep_books(FULL OLD, "managed"); }
TEST(books_swap) { keep_books(FULL, "swap"); }
TEST(books_swap_old) { keep_books(FULL OLD, "swap"); }

/* ---- daemons that come and go ---- */

static bool is_known_or_unshared(const struct scene_status *status, const void *victim) {
  return scene_job_known(status, victim) || is_unshared(victim);
}

/* The daemon comes when the program has run for a while, goes, and comes again. */
static void come_and_go(const char *memory) {
  static const char *const job[] = {"job", "--bytes", "16M", "--rounds", "0", "--progress", NULL};
  setenv("GS_TEST_MEMORY", memory, 1);
  scene_begin(&scene, FULL);
  struct process *victim = start_victim(NULL, job);
  nanosleep(&(struct timespec){.tv_nsec = 50 * NS_PER_MS}, NULL); /* any moment will do */
  for (int i = 0; i < 2; i++) {
    scene_start_daemon(&scene, TURNS, NULL);
    scene_await(&scene, is_known_or_unshared, victim, "it is known");
    struct process *other = start_other(NULL);
    process_finish(other);
    scene_kill_daemon(&scene);
  }
  process_close_input(victim);
  judge(victim, false);
  scene_start_daemon(&scene, TURNS, NULL);
  check_all_is_given_back();
  scene_end(&scene);
}

TEST(daemon_comes_and_goes_managed) { come_and_go("managed"); }
TEST(daemon_comes_and_goes_swap) { come_and_go("swap"); }

TEST(without_daemon) {
  static const char *const job[] = {JOB, NULL};
  setenv("GS_TEST_MEMORY", "swap", 1);
  scene_begin(&scene, FULL);
  struct process *victim = start_victim(NULL, job);
  process_close_input(victim);
  judge(victim, false);
  check_all_is_given_back();
  scene_end(&scene);
}

/* The simulated MPS is the one of tests/system/test_mps.c. */
static bool mps_runs(const struct scene_status *status, const void *unused) {
  (void)unused;
  return status->daemon.daemon.mps == GS_MPS_RUNS;
}

TEST(by_mps) {
  static const char *const opportunistic[] = {"GPUSHARE_CLASS=opportunistic", "CUDA_VISIBLE_DEVICES=0", NULL};
  static const char *const starter[] = {"starter", "exec", "production", NULL};
  char path[1024];
  scene_begin(&scene, FULL);
  snprintf(path, sizeof path, "%s/mps:%s", GS_PROGRAMS, getenv("PATH"));
  setenv("PATH", path, 1);
  scene_start_daemon(&scene, "--spatial", "mps", NULL);
  scene_await(&scene, mps_runs, NULL, "MPS runs");
  struct process *victim = start_victim(opportunistic, starter);
  process_close_input(victim);
  judge(victim, true);
  check_all_is_given_back();
  scene_end(&scene);
}

static void make_in_folder(const char *end, bool folder) {
  char path[160];
  snprintf(path, sizeof path, "%s" GS_MPS_FOLDER "%s", scene.socket, end);
  int fd = folder ? mkdir(path, 0700) : open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  CHECK(fd >= 0, "%s: %s", path, strerror(errno));
  if (!folder)
    close(fd);
}

/* Whoever asks may use MPS, and a part of the card's multiprocessors; else nobody gets an answer. */
static int answer(int listener) {
  struct gs_msg ask, told = wire_msg(GS_SPATIAL, 0);
  told.spatial.verdict = GS_SPATIAL_ON;
  told.spatial.priority = 1;
  told.spatial.percent = 30;
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  if (poll(&readable, 1, 1000) > 0 && wire_recv(fd, &ask) == 0 && ask.type == GS_ASK_SPATIAL)
    wire_send(fd, &told);
  return fd;
}

/* Its share is learnt by a daemon, and takes seconds; so the test plays the daemon. */
TEST(by_mps_in_part) {
  static const char *const starter[] = {"starter", NULL};
  int clients[8], count = 0;
  struct fake_daemon fake;
  scene_begin(&scene, FULL);
  fake_listen(&fake, scene.socket);
  make_in_folder("", true);
  make_in_folder("/" GS_MPS_PIPES, true);
  make_in_folder("/" GS_MPS_PIPES "/control", false);
  struct process *victim = start_victim(NULL, starter);
  struct pollfd events[2] = {{.fd = fake.listener, .events = POLLIN}, {.fd = victim->out, .events = POLLIN}};
  while (!events[1].revents && count < 8 && poll(events, 2, PROCESS_LIMIT_S * 1000) > 0)
    if (events[0].revents)
      clients[count++] = answer(fake.listener);
  process_close_input(victim);
  judge(victim, true);
  while (count > 0)
    close(clients[--count]);
  fake_end(&fake);
  unlink(scene.socket);
  scene_start_daemon(&scene, TURNS, NULL);
  check_all_is_given_back();
  scene_end(&scene);
}
