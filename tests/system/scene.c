/* scene.c - a card, a daemon and programs of a test's own; see scene.h. */
#include "scene.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "runner.h"

#define ARGUMENTS_MAX 32
#define ENVIRONMENT_MAX 48

void scene_begin(struct scene *scene, const char *card) {
  *scene = (struct scene){.folder = "/tmp/gpushare-test-XXXXXX", .card = card};
  CHECK(mkdtemp(scene->folder), "mkdtemp: %s", strerror(errno));
  snprintf(scene->socket, sizeof scene->socket, "%s/daemon.sock", scene->folder);
  snprintf(scene->state, sizeof scene->state, "%s/state", scene->folder);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk) {
  (void)status, (void)type, (void)walk;
  return remove(path);
}

void scene_end(struct scene *scene) {
  if (scene->daemon)
    scene_stop_daemon(scene);
  nftw(scene->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *scene_preload(void) {
  static char preload[1024];
  const char *first = getenv("GS_TEST_PRELOAD_FIRST");
  snprintf(preload, sizeof preload, "%s%s%s", first && *first ? first : "", first && *first ? ":" : "",
           GS_LIBUNIFIED);
  return preload;
}

bool scene_uses_swap(void) {
  const char *memory = getenv("GS_TEST_MEMORY");
  return memory && strcmp(memory, "swap") == 0;
}

/* The environment of one program: the test's own additions first (the first entry of a name counts). */
struct environment {
  char *entries[ENVIRONMENT_MAX + 1];
  int count;
};

static bool environment_has(const struct environment *environment, const char *entry) {
  size_t length = (size_t)(strchr(entry, '=') - entry) + 1;
  for (int i = 0; i < environment->count; i++)
    if (strncmp(environment->entries[i], entry, length) == 0)
      return true;
  return false;
}

__attribute__((format(printf, 2, 3))) static void environment_add(struct environment *environment,
                                                                  const char *format, ...) {
  char *entry = NULL;
  va_list list;
  va_start(list, format);
  CHECK(vasprintf(&entry, format, list) >= 0, "out of memory");
  va_end(list);
  if (environment->count == ENVIRONMENT_MAX || environment_has(environment, entry))
    free(entry);
  else
    environment->entries[environment->count++] = entry;
}

static void environment_free(struct environment *environment) {
  while (environment->count)
    free(environment->entries[--environment->count]);
}

static void environment_inherit(struct environment *environment) {
  static const char *const names[] = {"PYTHONPATH",     "PATH",
                                      "HOME",           "TMPDIR",
                                      "ASAN_OPTIONS",   "LSAN_OPTIONS",
                                      "TSAN_OPTIONS",   "UBSAN_OPTIONS",
                                      "GS_NVML_GPUS",   "GPUSHARE_HOST_ROOT",
                                      "GS_TEST_MODULE", "GS_TEST_SCALE",
                                      "GS_TEST_SEED",   "GS_TEST_HISTORIES",
                                      "GS_STRICT",      "GPUSHARE_PREEMPT",
                                      "GS_TEST_SAY",    "GPUSHARE_SSH",
                                      "GS_NVML_SCRIPT"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (getenv(names[i]))
      environment_add(environment, "%s=%s", names[i], getenv(names[i]));
}

static void environment_fill(struct environment *environment, const struct scene *scene,
                             environment_list additions) {
  for (int i = 0; additions && additions[i]; i++)
    environment_add(environment, "%s", additions[i]);
  environment_add(environment, "LD_PRELOAD=%s", scene_preload());
  environment_add(environment, "LD_LIBRARY_PATH=%s", GS_SIM_DIR);
  environment_add(environment, "GPUSHARE_SOCKET=%s", scene->socket);
  environment_add(environment, "GPUSHARE_SIM_CARD=%s", scene->card);
  environment_add(environment, "GPUSHARE_SIM_STATE=%s", scene->state);
  /* The daemon shall not find the cards of a host that has some. */
  environment_add(environment, "GPUSHARE_NVML=%s", scene->nvml ? scene->nvml : "");
  if (!getenv("GPUSHARE_HOST_ROOT"))
    environment_add(environment, "GPUSHARE_HOST_ROOT=%s", scene->folder);
  if (getenv("GS_TEST_MEMORY"))
    environment_add(environment, "GPUSHARE_MEMORY=%s", getenv("GS_TEST_MEMORY"));
  environment_inherit(environment);
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

struct process *scene_start_argv(struct scene *scene, environment_list additions, char *const argv[]) {
  struct environment environment = {.count = 0};
  char log[160], name[48];
  environment_fill(&environment, scene, additions);
  snprintf(name, sizeof name, "%.24s.%d", base_name(argv[0]), scene->started);
  snprintf(log, sizeof log, "%s/%d.log", scene->folder, scene->started++);
  struct process *process = process_start(name, argv, environment.entries, log);
  environment_free(&environment);
  return process;
}

/* argv from "program" and a NULL-terminated list; the program is beside the tests unless it is a path. */
struct arguments {
  char program[512];
  char *list[ARGUMENTS_MAX + 1];
};

static void arguments_collect(struct arguments *arguments, const char *program, va_list list) {
  int count = 0;
  snprintf(arguments->program, sizeof arguments->program, "%s%s", *program == '/' ? "" : GS_PROGRAMS "/",
           program);
  arguments->list[count++] = arguments->program;
  while (count < ARGUMENTS_MAX && (arguments->list[count] = va_arg(list, char *)))
    count++;
  arguments->list[count] = NULL;
}

struct process *scene_start(struct scene *scene, environment_list additions, const char *program, ...) {
  struct arguments arguments;
  va_list list;
  va_start(list, program);
  arguments_collect(&arguments, program, list);
  va_end(list);
  return scene_start_argv(scene, additions, arguments.list);
}

static void await_daemon(struct scene *scene) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  for (;;) {
    int fd = wire_connect(scene->socket);
    if (fd >= 0) {
      close(fd);
      return;
    }
    CHECK(!process_ended(scene->daemon), "the daemon has ended");
    CHECK(deadline_left_ms(deadline) > 0, "the daemon does not listen");
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
}

void scene_start_daemon(struct scene *scene, ...) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  struct arguments arguments;
  va_list list;
  va_start(list, scene);
  arguments_collect(&arguments, GS_DAEMON, list);
  va_end(list);
  int count = 0;
  while (arguments.list[count])
    count++;
  CHECK(count + 2 <= ARGUMENTS_MAX, "too many arguments");
  arguments.list[count++] = (char *)"--socket";
  arguments.list[count++] = scene->socket;
  arguments.list[count] = NULL;
  scene->daemon = scene_start_argv(scene, plain, arguments.list);
  await_daemon(scene);
}

void scene_stop_daemon(struct scene *scene) {
  struct process *daemon = scene->daemon;
  scene->daemon = NULL;
  process_signal(daemon, SIGTERM);
  process_wait_exit(daemon, 0);
}

void scene_kill_daemon(struct scene *scene) {
  process_kill(scene->daemon);
  scene->daemon = NULL;
}

static void read_all(struct process *process, char *output, size_t size) {
  size_t used = 0;
  char line[sizeof process->text];
  *output = 0;
  while (process_line(process, line, sizeof line) && used < size)
    used += (size_t)snprintf(output + used, size - used, "%s\n", line);
}

int scene_ctl(struct scene *scene, char *output, size_t size, ...) {
  static const char *const plain[] = {"LD_PRELOAD=", NULL};
  struct arguments arguments;
  char own[4096];
  va_list list;
  va_start(list, size);
  arguments_collect(&arguments, GS_CTL, list);
  va_end(list);
  struct process *ctl = scene_start_argv(scene, plain, arguments.list);
  read_all(ctl, output ? output : own, output ? size : sizeof own);
  int status = process_wait(ctl);
  CHECK(!WIFSIGNALED(status), "gpusharectl died of signal %d", WTERMSIG(status));
  process_forget(ctl);
  return WEXITSTATUS(status);
}

struct gs_sim_card scene_card(const struct scene *scene, unsigned gpu) {
  struct gs_sim_card card;
  int error = gs_sim_card_read(scene->state, gpu, &card);
  CHECK(error == 0, "no counters of GPU %u: %s", gpu, strerror(-error));
  return card;
}

struct gs_sim_process scene_process(const struct scene *scene, const struct process *process, unsigned gpu) {
  struct gs_sim_process found;
  int error = gs_sim_process_read(scene->state, process->pid, gpu, &found);
  CHECK(error == 0, "no counters of %s on GPU %u: %s", process->name, gpu, strerror(-error));
  return found;
}

void scene_check_no_overlaps(const struct scene *scene, unsigned gpu) {
  struct gs_sim_card card = scene_card(scene, gpu);
  CHECK(card.counters[GS_SIM_overlaps] == 0, "GPU %u: %llu, the last when %d started and %d was in flight",
        gpu, (unsigned long long)card.counters[GS_SIM_overlaps], card.overlap_pid, card.overlap_other_pid);
}

int scene_connect(const struct scene *scene) {
  int fd = wire_connect_patiently(scene->socket, PROCESS_LIMIT_S * NS_PER_S);
  CHECK(fd >= 0, "cannot connect: %d", fd);
  return fd;
}

static int receive_within(int fd, struct gs_msg *msg, int limit_ms) {
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  return poll(&readable, 1, limit_ms) > 0 ? wire_recv(fd, msg) : -ETIMEDOUT;
}

static int receive_soon(int fd, struct gs_msg *msg) { return receive_within(fd, msg, 5000); }

int scene_receive(int fd, struct gs_msg *msg) {
  int error = receive_within(fd, msg, deadline_left_ms(deadline_in(60)));
  CHECK(error != -ETIMEDOUT, "the daemon does not answer");
  return error;
}

int scene_order(const struct scene *scene, enum gs_msg_type type, uint64_t value) {
  struct gs_msg order = wire_msg(type, GS_GPU_ALL), reply;
  order.set.value = value;
  int fd = wire_connect(scene->socket);
  if (fd < 0)
    return fd;
  int error = wire_send(fd, &order);
  if (!error)
    error = receive_soon(fd, &reply);
  close(fd);
  return error ? error : reply.status;
}

static int receive_status(int fd, struct scene_status *status) {
  struct gs_msg msg;
  for (;;) {
    int error = receive_soon(fd, &msg);
    if (error)
      return error;
    if (msg.type == GS_STATUS_DAEMON)
      status->daemon = msg;
    else if (msg.type == GS_STATUS_GPU && status->gpu_count < 8)
      status->gpus[status->gpu_count++] = msg;
    else if (msg.type == GS_STATUS_HANDOVER && status->gpu_count > 0)
      status->handovers[status->gpu_count - 1] = msg;
    else if (msg.type == GS_STATUS_JOB && status->job_count < SCENE_STATUS_MAX)
      status->jobs[status->job_count] = msg; /* the rest of it follows */
    else if (msg.type == GS_STATUS_TERMS && status->job_count < SCENE_STATUS_MAX)
      status->terms[status->job_count] = msg;
    else if (msg.type == GS_STATUS_WAIT && status->job_count < SCENE_STATUS_MAX)
      status->waits[status->job_count++] = msg;
    else if (msg.type == GS_STATUS_END)
      return 0;
  }
}

int scene_ask_status(const struct scene *scene, struct scene_status *status) {
  struct gs_msg ask = wire_msg(GS_GET_STATUS, GS_GPU_ALL);
  *status = (struct scene_status){.gpu_count = 0};
  int fd = wire_connect(scene->socket);
  if (fd < 0)
    return fd;
  int error = wire_send(fd, &ask);
  if (!error)
    error = receive_status(fd, status);
  close(fd);
  return error;
}

void scene_await(const struct scene *scene, bool (*holds)(const struct scene_status *, const void *),
                 const void *what, const char *description) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S);
  struct scene_status status;
  while (scene_ask_status(scene, &status) != 0 || !holds(&status, what)) {
    CHECK(deadline_left_ms(deadline) > 0, "waited in vain: %s", description);
    nanosleep(&(struct timespec){.tv_nsec = 2000 * 1000}, NULL);
  }
}

const struct gs_msg *scene_job_of(const struct scene_status *status, pid_t pid) {
  for (int i = 0; i < status->job_count; i++)
    if (status->jobs[i].job_status.pid == pid)
      return &status->jobs[i];
  return NULL;
}

const struct gs_msg *scene_terms_of(const struct scene_status *status, pid_t pid) {
  const struct gs_msg *job = scene_job_of(status, pid);
  return job ? &status->terms[job - status->jobs] : NULL;
}

const struct gs_msg *scene_wait_of(const struct scene_status *status, pid_t pid) {
  const struct gs_msg *job = scene_job_of(status, pid);
  return job ? &status->waits[job - status->jobs] : NULL;
}

static const struct gs_msg *job_of(const struct scene_status *status, const void *process) {
  return scene_job_of(status, ((const struct process *)process)->pid);
}

static bool job_is(const struct scene_status *status, const void *process, unsigned state) {
  const struct gs_msg *job = job_of(status, process);
  return job && job->job_status.state == state;
}

bool scene_job_known(const struct scene_status *status, const void *process) {
  return job_of(status, process) != NULL;
}

bool scene_job_gone(const struct scene_status *status, const void *process) {
  return job_of(status, process) == NULL;
}

bool scene_job_holds(const struct scene_status *status, const void *process) {
  return job_is(status, process, GS_JOB_HOLDING);
}

bool scene_job_waits(const struct scene_status *status, const void *process) {
  return job_is(status, process, GS_JOB_WAITING);
}

bool scene_job_drops(const struct scene_status *status, const void *process) {
  return job_is(status, process, GS_JOB_DROPPING);
}
