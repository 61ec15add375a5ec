/*
 * test_mps.c - sharing by MPS: the daemon and its nvidia-cuda-mps-control (a played one), and what
 * programs become of it, as the simulated driver sees it at their cuInit.
 */
#include <errno.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/parse.h"
#include "common/wire.h"
#include "runner.h"
#include "scene.h"

#define CARD "small,capacity=64MiB"
#define PRODUCTION "GPUSHARE_CLASS=production"
#define OPPORTUNISTIC "GPUSHARE_CLASS=opportunistic"
#define RUNS_WELL_NS (10 * NS_PER_S) /* as mps.c has it: what ends later is told of anew */

static struct scene scene;

static void pass_ms(unsigned ms) { nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL); }

static void write_file(const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", scene.folder, name);
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s: %s", path, strerror(errno));
}

/* ---- the played control ---- */

/* What it has noted. */
static const char *notes(void) {
  static char text[8192];
  char path[128];
  snprintf(path, sizeof path, "%s" GS_MPS_FOLDER "/log/control.log", scene.socket);
  FILE *file = fopen(path, "r");
  size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file)
    fclose(file);
  text[length] = '\0';
  return text;
}

static int starts(void) {
  int count = 0;
  for (const char *at = notes(); (at = strstr(at, "start ")); at++)
    count++;
  return count;
}

static void await_starts(int count) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  for (; starts() < count; pass_ms(5))
    CHECK(deadline_left_ms(deadline) > 0, "%d starts, not %d", starts(), count);
}

/* The last one that was started. */
static pid_t control_pid(void) {
  pid_t pid = 0;
  for (const char *at = notes(); (at = strstr(at, "start ")); at++)
    pid = (pid_t)strtol(at + strlen("start "), NULL, 10);
  return pid;
}

static bool is_state(const struct scene_status *status, const void *state) {
  return status->daemon.daemon.mps == *(const enum gs_mps_state *)state;
}

static void await_state(enum gs_mps_state state) {
  scene_await(&scene, is_state, &state, "the state of MPS");
}

static bool is_serving(const struct scene_status *status, const void *count) {
  return status->daemon.daemon.mps_programs == *(const uint32_t *)count;
}

static void await_programs(uint32_t count) {
  scene_await(&scene, is_serving, &count, "so many programs use MPS");
}

static void begin(const char *card, const char *fault) {
  char path[1024];
  scene_begin(&scene, card);
  if (fault)
    write_file("mps", fault);
  snprintf(path, sizeof path, "%s/mps:%s", GS_PROGRAMS, getenv("PATH"));
  setenv("PATH", path, 1);
}

static void begin_running(void) {
  begin(CARD, NULL);
  scene_start_daemon(&scene, "--spatial", "mps", NULL);
  await_state(GS_MPS_RUNS);
}

/* ---- programs ---- */

static pid_t expect_started(struct process *process) {
  char line[64];
  process_expect(process, "started", line, sizeof line);
  return (pid_t)strtol(line + strlen("started "), NULL, 10);
}

static struct process *start(const char *variable, const char *other) {
  const char *const environment[] = {variable, other, NULL};
  struct process *process = scene_start(&scene, environment, "starter", NULL);
  expect_started(process);
  return process;
}

static struct gs_sim_process seen(pid_t pid) {
  struct gs_sim_process process;
  int err = gs_sim_process_read(scene.state, pid, 0, &process);
  CHECK(err == 0, "no counters of %d: %s", pid, strerror(-err));
  return process;
}

static void check_by_mps(pid_t pid, unsigned priority) {
  struct gs_sim_process process = seen(pid);
  CHECK(process.mps, "it is no client of MPS");
  CHECK(process.mps_priority == priority, "%u", process.mps_priority);
  CHECK(process.mps_percent == 0, "%u", process.mps_percent);
}

static void check_by_time(pid_t pid) { CHECK(!seen(pid).mps, "it is a client of MPS"); }

static void finish(struct process *process) {
  process_close_input(process);
  process_wait_exit(process, 0);
}

/* ---- the daemon and its MPS ---- */

TEST(mps_is_started_watched_and_stopped) {
  char line[64];
  begin_running();
  pid_t first = control_pid();
  snprintf(line, sizeof line, "start %d visible=- preload=-\n", first);
  CHECK(strstr(notes(), line), "%s", notes());
  uint64_t begun_ns = clock_now_ns();
  for (int i = 2; i <= 3; i++) {
    kill(control_pid(), SIGKILL);
    await_starts(i);
    await_state(GS_MPS_RUNS);
  }
  process_await_log(scene.daemon, "has ended with signal 9");
  /* Once: on a slow machine twice, if it had run well meanwhile. */
  int ends = process_log_count(scene.daemon, "has ended with signal 9");
  CHECK(ends == 1 || (ends == 2 && clock_now_ns() - begun_ns >= RUNS_WELL_NS), "told %d times", ends);
  CHECK(process_log_count(scene.daemon, "no MPS: ") == ends);
  pid_t last = control_pid();
  begun_ns = clock_now_ns();
  scene_stop_daemon(&scene);
  /* It is asked for 3 s: on a slow machine it may not have heard that. */
  CHECK(strstr(notes(), "quit\n") || clock_now_ns() - begun_ns >= 3 * NS_PER_S, "%s", notes());
  CHECK(kill(last, 0) < 0 && errno == ESRCH, "it is still there");
  scene_end(&scene);
}

TEST(a_killed_daemon_leaves_no_mps) {
  begin_running();
  pid_t pid = control_pid();
  scene_kill_daemon(&scene);
  process_await_gone(pid);
  struct process *program = start(OPPORTUNISTIC, "GPUSHARE_LOG=error"); /* its socket is still there */
  check_by_time(program->pid);
  scene_start_daemon(&scene, "--spatial", "mps", NULL);
  await_state(GS_MPS_RUNS);
  finish(program);
  scene_end(&scene);
}

TEST(mps_that_does_not_quit_is_killed) {
  begin(CARD, "deaf");
  scene_start_daemon(&scene, "--spatial", "mps", NULL);
  await_state(GS_MPS_RUNS);
  pid_t pid = control_pid();
  scene_stop_daemon(&scene);
  CHECK(kill(pid, 0) < 0 && errno == ESRCH, "it is still there");
  scene_end(&scene);
}

static void check_programs_share_by_time(const char *text) {
  struct process *program = start(OPPORTUNISTIC, NULL);
  char status[4096];
  check_by_time(program->pid);
  scene_await(&scene, scene_job_known, program, "it is known");
  CHECK(scene_ctl(&scene, status, sizeof status, "status", NULL) == 0);
  CHECK(strstr(status, "MPS does not run") && strstr(status, ", spatial mps"), "%s", status);
  finish(program);
  CHECK(process_log_count(scene.daemon, text) == 1, "not once: %s", text);
  CHECK(process_log_count(scene.daemon, "programs share the GPUs by time") == 1);
}

TEST(without_mps_programs_share_by_time) {
  begin(CARD, NULL);
  setenv("PATH", scene.folder, 1);
  scene_start_daemon(&scene, "--spatial", "mps", NULL);
  process_await_log(scene.daemon, "no MPS: ");
  check_programs_share_by_time("there is no nvidia-cuda-mps-control on this machine's PATH");
  scene_end(&scene);
}

TEST(mps_that_fails_is_tried_again_and_told_once) {
  begin(CARD, "exit");
  scene_start_daemon(&scene, "--spatial", "mps", NULL);
  await_starts(3);
  check_programs_share_by_time(
      "nvidia-cuda-mps-control has ended with exit status 3, and has said: no GPU ?[31mhere");
  write_file("mps", "");
  await_state(GS_MPS_RUNS);
  scene_end(&scene);
}

/* ---- its folders ---- */

static void path_in(const char *name, char path[128]) {
  snprintf(path, 128, "%s" GS_MPS_FOLDER "%s", scene.socket, name);
}

static void check_folder(const char *name, mode_t mode) {
  struct stat status;
  char path[128];
  path_in(name, path);
  CHECK(lstat(path, &status) == 0 && S_ISDIR(status.st_mode), "%s: %s", path, strerror(errno));
  CHECK(status.st_uid == geteuid() && (status.st_mode & 07777) == mode, "%s: uid %u, %o", path, status.st_uid,
        status.st_mode);
}

/* Those that begin with its path: its own, and no others. */
static int count_folders(void) {
  glob_t found;
  char pattern[128];
  path_in("*", pattern);
  int count = glob(pattern, GLOB_NOSORT, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
  globfree(&found);
  return count;
}

static void check_runs(void) {
  scene_start_daemon(&scene, "--spatial", "mps", NULL);
  await_state(GS_MPS_RUNS);
  check_folder("", 0755);
  check_folder("/" GS_MPS_PIPES, 0755);
  check_folder("/log", 0700);
  CHECK(count_folders() == 1, "%d", count_folders());
}

TEST(its_folders_are_the_daemons_alone) {
  umask(0077);
  begin(CARD, NULL);
  check_runs();
  scene_end(&scene);
}

TEST(a_fresh_folder_for_each_daemon) {
  char path[128];
  struct stat status;
  begin(CARD, NULL);
  check_runs();
  path_in("/log/server.log", path);
  FILE *file = fopen(path, "w");
  CHECK(file && fclose(file) == 0);
  scene_kill_daemon(&scene);
  check_runs();
  CHECK(lstat(path, &status) < 0 && starts() == 1, "%s", notes());
  scene_end(&scene);
}

/* As somebody else, where there is somebody else. */
static void make_as_other(void (*make)(void)) {
  int status;
  chmod(scene.folder, 01777);
  pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) < 0)
      _exit(1);
    make();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0, "%x", status);
}

static void make_full(void) {
  char path[128], link[160];
  path_in("", path);
  if (mkdir(path, 0755) < 0)
    _exit(2);
  snprintf(link, sizeof link, "%s/precious", scene.folder);
  for (int depth = 0; depth < 3; depth++) {
    char at[160];
    snprintf(at, sizeof at, "%s/link", path);
    if (symlink(link, at) < 0)
      _exit(3);
    strcat(path, depth == 0 ? "/" GS_MPS_PIPES : "/log");
    if (mkdir(path, 0700) < 0)
      _exit(4);
  }
}

static void make_file(void) {
  char path[128];
  path_in("", path);
  if (mknod(path, S_IFREG | 0644, 0) < 0)
    _exit(2);
}

static void make_link(void) {
  char path[128], link[160];
  path_in("", path);
  snprintf(link, sizeof link, "%s/precious", scene.folder);
  if (symlink(link, path) < 0)
    _exit(2);
}

static void begin_behind(void (*make)(void)) {
  struct stat status;
  char path[128];
  begin(CARD, NULL);
  snprintf(path, sizeof path, "%s/precious", scene.folder);
  CHECK(mkdir(path, 0755) == 0);
  strcat(path, "/file");
  CHECK(mknod(path, S_IFREG | 0644, 0) == 0);
  make_as_other(make);
  check_runs();
  CHECK(lstat(path, &status) == 0, "what a link led to is gone");
  scene_end(&scene);
}

TEST(nobodys_folder_keeps_it_from_starting) { begin_behind(make_full); }
TEST(nor_does_a_file) { begin_behind(make_file); }
TEST(nor_does_a_link) { begin_behind(make_link); }

TEST(nobody_starts_it_unasked) {
  begin(CARD, NULL);
  scene_start_daemon(&scene, NULL);
  struct process *program = start(OPPORTUNISTIC, NULL);
  await_state(GS_MPS_OFF);
  check_by_time(program->pid);
  finish(program);
  CHECK(starts() == 0, "%s", notes());
  scene_end(&scene);
}

/* ---- programs that use it ---- */

static void check_status(const struct process *with, const struct process *without) {
  struct scene_status status;
  char text[4096];
  scene_await(&scene, scene_job_known, with, "it is known");
  scene_await(&scene, scene_job_known, without, "it is known");
  CHECK(scene_ask_status(&scene, &status) == 0);
  CHECK(scene_job_of(&status, with->pid)->job_status.flags & GS_STATE_MPS);
  CHECK(!(scene_job_of(&status, without->pid)->job_status.flags & GS_STATE_MPS));
  CHECK(status.gpus[0].gpu_status.flags & GS_GPU_MPS);
  CHECK(scene_ctl(&scene, text, sizeof text, "status", NULL) == 0);
  CHECK(strstr(text, "MPS runs: for 2 programs of ") && strstr(text, "a fatal fault of one of them ends all"),
        "%s", text);
}

TEST(programs_use_it_by_their_class) {
  begin_running();
  struct process *production = start(PRODUCTION, NULL), *opportunistic = start(OPPORTUNISTIC, NULL);
  struct process *other = start(OPPORTUNISTIC, "CUDA_MPS_PIPE_DIRECTORY=/nowhere");
  check_by_mps(production->pid, 0);
  check_by_mps(opportunistic->pid, 1);
  check_by_time(other->pid); /* its user has said which MPS */
  await_programs(2);
  check_status(opportunistic, other);
  finish(other);
  finish(opportunistic);
  await_programs(1);
  process_kill(production);
  await_programs(0);
  scene_end(&scene);
}

TEST(what_a_user_has_set_stays) {
  begin_running();
  struct process *program = start(OPPORTUNISTIC, "CUDA_MPS_CLIENT_PRIORITY=0");
  check_by_mps(program->pid, 0);
  finish(program);
  scene_end(&scene);
}

TEST(a_program_that_it_starts_decides_for_itself) {
  static const char *const opportunistic[] = {OPPORTUNISTIC, NULL};
  begin_running();
  struct process *parent = scene_start(&scene, opportunistic, "starter", "exec", "production", NULL);
  pid_t first = expect_started(parent), second = expect_started(parent);
  check_by_mps(first, 1);
  check_by_mps(second, 0);
  await_programs(2);
  finish(parent);
  await_programs(0);
  scene_end(&scene);
}

TEST(nor_does_it_inherit_what_is_no_more) {
  static const char *const inherited[] = {"CUDA_MPS_PIPE_DIRECTORY=/tmp/old", "CUDA_MPS_CLIENT_PRIORITY=0",
                                          "GPUSHARE_MPS_SET=1 30 /tmp/old", OPPORTUNISTIC, NULL};
  begin_running();
  struct process *program = scene_start(&scene, inherited, "starter", NULL);
  check_by_mps(expect_started(program), 0); /* the priority has been changed since */
  finish(program);
  scene_end(&scene);
}

TEST(a_forked_child_does_not_stand_for_its_parent) {
  begin_running();
  struct process *parent = scene_start(&scene, NULL, "starter", "fork", NULL);
  expect_started(parent);
  pid_t child = expect_started(parent);
  await_programs(1);
  process_signal(parent, SIGKILL);
  await_programs(0);
  CHECK(kill(child, 0) == 0, "the child has ended");
  process_close_input(parent);
  process_await_gone(child);
  process_wait(parent);
  scene_end(&scene);
}

TEST(who_is_not_taken_shares_by_time) {
  begin(CARD, "refuse");
  scene_start_daemon(&scene, "--spatial", "mps", NULL);
  await_state(GS_MPS_RUNS);
  struct process *program = start(OPPORTUNISTIC, NULL);
  check_by_time(program->pid);
  CHECK(process_log_count(program, "MPS does not take this program") == 1);
  await_programs(0);
  finish(program);
  scene_end(&scene);
}

/* ---- a share of the multiprocessors ---- */

static bool has_leftover(const struct scene_status *status, const void *process) {
  const struct gs_msg *wait = scene_wait_of(status, ((const struct process *)process)->pid);
  return wait && wait->wait_status.limited == GS_LIMITED_FOUND && wait->wait_status.limit > 0;
}

static struct process *toil(const char *class) {
  const char *const environment[] = {class, NULL};
  return scene_start(&scene, environment, "toiler", "4M", "2ms", NULL);
}

TEST(an_opportunistic_program_starts_with_what_is_left_over) {
  begin_running();
  struct process *production = toil(PRODUCTION), *first = toil(OPPORTUNISTIC);
  scene_await(&scene, has_leftover, first, "it has what is left over");
  struct process *second = start(OPPORTUNISTIC, NULL), *standard = start("GPUSHARE_CLASS=standard", NULL);
  unsigned percent = seen(second->pid).mps_percent;
  CHECK(percent >= 10 && percent < 100, "%u", percent);
  check_by_mps(standard->pid, 0);
  process_kill(production);
  finish(standard);
  finish(second);
  finish(first);
  scene_end(&scene);
}

/* ---- some GPUs ---- */

static void learn_uuid(char uuid[GS_UUID_TEXT_SIZE]) {
  struct scene_status status;
  scene_start_daemon(&scene, NULL);
  struct process *program = start(OPPORTUNISTIC, NULL);
  scene_await(&scene, scene_job_known, program, "it is known");
  CHECK(scene_ask_status(&scene, &status) == 0);
  format_uuid(status.gpus[0].gpu_status.uuid, uuid);
  finish(program);
  scene_stop_daemon(&scene);
}

static void check_visible(const char *value, bool by_mps) {
  char variable[80];
  snprintf(variable, sizeof variable, "CUDA_VISIBLE_DEVICES=%s", value);
  struct process *program = start(variable, NULL);
  CHECK(seen(program->pid).mps == by_mps, "%s", variable);
  finish(program);
}

TEST(some_gpus_only) {
  char uuid[GS_UUID_TEXT_SIZE], text[128], path[128];
  begin("small,gpus=2,capacity=64MiB", NULL);
  learn_uuid(uuid);
  snprintf(text, sizeof text, "[gpu %s]\nspatial = mps\n", uuid);
  write_file("conf", text);
  snprintf(path, sizeof path, "%s/conf", scene.folder);
  scene_start_daemon(&scene, "--config", path, NULL);
  await_state(GS_MPS_RUNS);
  snprintf(text, sizeof text, " visible=%s preload", uuid);
  CHECK(strstr(notes(), text), "%s", notes());
  check_visible(uuid, true);
  check_visible("0", false); /* which one that is would change */
  struct process *program = start(OPPORTUNISTIC, NULL);
  check_by_time(program->pid);
  finish(program);
  write_file("conf", "spatial = mps\n");
  process_signal(scene.daemon, SIGHUP);
  process_await_log(scene.daemon, "a change of spatial needs a restart");
  scene_end(&scene);
}

/* ---- who may not ---- */

static enum gs_spatial_verdict ask(int *fd) {
  struct gs_msg msg = wire_msg(GS_ASK_SPATIAL, 0);
  *fd = wire_connect(scene.socket);
  if (*fd < 0 || wire_send(*fd, &msg) < 0)
    return (enum gs_spatial_verdict)99;
  for (;; pass_ms(1)) {
    int err = wire_recv(*fd, &msg);
    if (err != -EAGAIN)
      return err == 0 && msg.type == GS_SPATIAL ? (enum gs_spatial_verdict)msg.spatial.verdict
                                                : (enum gs_spatial_verdict)98;
  }
}

static bool become_nobody(void) { return setgid(65534) == 0 && setuid(65534) == 0; }
static bool become_apart(void) { return unshare(CLONE_NEWIPC) == 0; }

/* What a child that has become somebody else is answered. */
static enum gs_spatial_verdict ask_as(bool (*become)(void)) {
  int fd, status;
  pid_t child = fork();
  if (child == 0)
    _exit(become() ? (int)ask(&fd) : 97);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  return (enum gs_spatial_verdict)WEXITSTATUS(status);
}

TEST(mps_serves_one_user_at_a_time) {
  int fd;
  if (geteuid() != 0)
    test_skip("only root can be somebody else");
  begin_running();
  chmod(scene.folder, 0755);
  CHECK(ask(&fd) == GS_SPATIAL_ON);
  CHECK(ask_as(become_nobody) == GS_SPATIAL_OTHER_USER);
  close(fd);
  await_programs(0);
  CHECK(ask_as(become_nobody) == GS_SPATIAL_ON);
  await_programs(0);
  scene_end(&scene);
}

TEST(nor_does_it_serve_other_namespaces) {
  if (geteuid() != 0)
    test_skip("only root can leave a namespace");
  begin_running();
  enum gs_spatial_verdict verdict = ask_as(become_apart);
  scene_end(&scene);
  if (verdict == (enum gs_spatial_verdict)97)
    test_skip("no other namespaces here");
  CHECK(verdict == GS_SPATIAL_APART, "%d", (int)verdict);
}
