/* stage.c - paths, workers, the daemon and its socket, and jobs that take turns; see stage.h. */
#include "stage.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/wire.h"

enum { POLL_MS = 2, EXIT_NO_GPU = 77 };

static struct {
  char folder[40], socket[64];
  char *worker, *daemon;
  int control; /* a connection to the daemon */
  /* "NAME=value"; packed: NULL where nothing is packed */
  char *preload, *libraries, *packed, state[80], socket_setting[96];
  bool simulate;
} stage = {.folder = "/tmp/gpushare-bench-XXXXXX", .control = -1};

/* Stays for the life of the program. */
static char *join(const char *before, const char *middle, const char *after) {
  char *text = NULL;
  if (asprintf(&text, "%s%s%s", before, middle, after) < 0)
    abort();
  return text;
}

/* The folder that the folder of this program is in. */
static bool find_build(char build[PATH_MAX]) {
  ssize_t length = readlink("/proc/self/exe", build, PATH_MAX - 1);
  if (length < 0)
    return complain("/proc/self/exe: %s", strerror(errno));
  build[length] = '\0';
  for (int up = 0; up < 2; up++)
    *strrchr(build, '/') = '\0';
  return true;
}

static void find_programs(const char *build) {
  stage.worker = join(build, "/bench/handover_worker", "");
  stage.daemon = join(build, "/daemon/gpushare-daemon", "");
  stage.preload = join("LD_PRELOAD=", build, "/src/libunified.so");
  stage.libraries = join("LD_LIBRARY_PATH=", build, "/tests/sim");
  char *packed = join(build, "/lib", "");
  stage.packed = access(packed, F_OK) == 0 ? join("LD_LIBRARY_PATH=", packed, "") : NULL;
  free(packed);
}

static bool make_folder(bool simulate) {
  char build[PATH_MAX];
  if (!find_build(build))
    return false;
  find_programs(build);
  if (!mkdtemp(stage.folder))
    return complain("mkdtemp: %s", strerror(errno));
  snprintf(stage.socket, sizeof stage.socket, "%s/daemon.sock", stage.folder);
  snprintf(stage.socket_setting, sizeof stage.socket_setting, "GPUSHARE_SOCKET=%s", stage.socket);
  snprintf(stage.state, sizeof stage.state, "GPUSHARE_SIM_STATE=%s/card", stage.folder);
  stage.simulate = simulate;
  return true;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk) {
  (void)status, (void)type, (void)walk;
  return remove(path);
}

void stage_end(void) { nftw(stage.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

/* ---- workers ---- */

static void add(const char **list, int *count, const char *entry) {
  list[(*count)++] = entry;
  list[*count] = NULL;
}

static bool start(struct child *child, const char *role, uint64_t bytes, const char **environment,
                  int count) {
  char size[32];
  char *argv[] = {stage.worker, (char *)(uintptr_t)role, bytes ? size : NULL, NULL};
  snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
  if (stage.simulate) {
    add(environment, &count, stage.libraries);
    add(environment, &count, stage.state);
    if (!getenv("GPUSHARE_SIM_CARD"))
      add(environment, &count, "GPUSHARE_SIM_CARD=h200");
  }
  return child_start(child, role, argv, environment);
}

bool stage_worker(struct child *child, const char *role, uint64_t bytes) {
  const char *environment[CHILD_ENVIRONMENT_MAX] = {"LD_PRELOAD"};
  return start(child, role, bytes, environment, 1);
}

bool stage_job(struct child *child, const char *role, uint64_t bytes, const char *memory) {
  char setting[64];
  const char *environment[CHILD_ENVIRONMENT_MAX] = {stage.preload, stage.socket_setting, setting,
                                                    "GPUSHARE_REQUIRED=1"};
  snprintf(setting, sizeof setting, "GPUSHARE_MEMORY=%s", memory);
  return start(child, role, bytes, environment, 4);
}

bool stage_lone_job(struct child *child, const char *role, uint64_t bytes, const char *memory) {
  char setting[64];
  const char *environment[CHILD_ENVIRONMENT_MAX] = {stage.preload, "GPUSHARE_SOCKET=/nonexistent/daemon.sock",
                                                    setting};
  snprintf(setting, sizeof setting, "GPUSHARE_MEMORY=%s", memory);
  return start(child, role, bytes, environment, 3);
}

static bool look_at_card(struct card *card) {
  struct child worker;
  char text[CHILD_TEXT_SIZE];
  bool told = stage_worker(&worker, "card", 0) && child_hear(&worker, text) &&
              sscanf(text, "%lu %63[^\n]", &card->free_bytes, card->name) == 2;
  child_kill(&worker);
  return told;
}

int stage_begin(bool *simulate, struct card *card) {
  if (!make_folder(*simulate))
    return EXIT_FAILURE;
  if (!look_at_card(card)) {
    stage_end();
    complain("no NVIDIA GPU that works here (--simulate takes the simulated driver)");
    return EXIT_NO_GPU;
  }
  *simulate |= strncmp(card->name, "Simulated", 9) == 0;
  return 0;
}

/* ---- the daemon ---- */

static void disconnect(void) {
  if (stage.control >= 0)
    close(stage.control);
  stage.control = -1;
}

static bool await_daemon(const struct child *daemon) {
  while ((stage.control = wire_connect(stage.socket)) < 0) {
    if (deadline_left_ns() == 0)
      return complain_late("the daemon");
    if (child_stirs(daemon))
      return complain("%s does not start", stage.daemon);
    poll(NULL, 0, 1); /* nothing tells when another process listens */
  }
  disconnect(); /* the daemon closes what asks nothing for ten seconds, and jobs may take longer to start */
  return true;
}

bool daemon_start(struct child *daemon, const char *mode, uint64_t capacity_bytes, uint64_t tq_ns) {
  char capacity[32], tq[32];
  char *argv[] = {
      stage.daemon, "--socket", stage.socket, "--config", "/dev/null", "--mode", (char *)(uintptr_t)mode,
      "--tq",       tq,         "--capacity", capacity,   "--log",     "error",  NULL};
  const char *environment[] = {"LD_PRELOAD", stage.packed, NULL};
  snprintf(capacity, sizeof capacity, "%llu", (unsigned long long)capacity_bytes);
  snprintf(tq, sizeof tq, "%lluus", (unsigned long long)tq_ns / 1000);
  return child_start(daemon, "daemon", argv, environment) && await_daemon(daemon);
}

void daemon_stop(struct child *daemon) {
  disconnect();
  if (daemon->pid <= 0)
    return;
  kill(daemon->pid, SIGTERM);
  child_wait(daemon);
}

static bool exchange_failed(int err) { return complain("the daemon does not answer: %s", strerror(-err)); }

static bool receive(struct gs_msg *msg) {
  struct pollfd readable = {.fd = stage.control, .events = POLLIN};
  int err = -EAGAIN;
  while (err == -EAGAIN && deadline_left_ns() > 0)
    if (poll(&readable, 1, deadline_poll_ms(1000)) > 0)
      err = wire_recv(stage.control, msg);
  if (err == -EAGAIN)
    return complain_late("the daemon");
  return err == 0 || exchange_failed(err);
}

static bool send_to_daemon(const struct gs_msg *msg) {
  if (stage.control < 0)
    stage.control = wire_connect(stage.socket);
  int err = stage.control < 0 ? stage.control : wire_send(stage.control, msg);
  return err == 0 || exchange_failed(err);
}

bool daemon_ask(struct status *status) {
  struct gs_msg msg = wire_msg(GS_GET_STATUS, GS_GPU_ALL);
  *status = (struct status){.gpu_count = 0};
  if (!send_to_daemon(&msg))
    return false;
  for (;;) {
    if (!receive(&msg))
      return false;
    if (msg.type == GS_STATUS_END)
      return true;
    status->gpu_count += msg.type == GS_STATUS_GPU;
    if (msg.type == GS_STATUS_HANDOVER && status->gpu_count == 1)
      status->handover = msg;
    if (msg.type == GS_STATUS_JOB && status->job_count < STATUS_JOBS)
      status->jobs[status->job_count++] = msg;
  }
}

int status_find(const struct status *status, pid_t pid) {
  for (int i = 0; i < status->job_count; i++)
    if (status->jobs[i].job_status.pid == pid)
      return i;
  return -1;
}

bool daemon_set_term(uint32_t job, enum gs_term term, uint64_t value) {
  struct gs_msg msg = wire_msg(GS_SET_TERMS, GS_GPU_ALL);
  msg.set_terms.job = job;
  msg.set_terms.term = term;
  msg.set_terms.value = value;
  if (!send_to_daemon(&msg) || !receive(&msg))
    return false;
  return msg.status == 0 || complain("what a job is given: %s", msg.reply.text);
}

/* ---- jobs that take turns ---- */

bool pair_start(struct pair *pair, int count, const char *role, uint64_t bytes, const char *memory,
                uint64_t capacity_bytes, uint64_t tq_ns) {
  *pair = (struct pair){.daemon.name = "daemon", .count = count};
  bool ok = daemon_start(&pair->daemon, "on", capacity_bytes, tq_ns);
  for (int i = 0; i < count; i++)
    ok = ok && stage_job(&pair->jobs[i], role, bytes, memory);
  for (int i = 0; i < count; i++)
    ok = ok && child_expect(&pair->jobs[i], "filled");
  return ok;
}

void pair_kill(struct pair *pair) {
  for (int i = 0; i < pair->count; i++)
    child_kill(&pair->jobs[i]);
  daemon_stop(&pair->daemon);
}

static uint64_t cost_ns(const struct status *status) {
  return status->handover.handover_status.drain_ns + status->handover.handover_status.move_ns;
}

bool pair_await_handover(const struct pair *pair, struct status *status) {
  uint64_t before_ns = cost_ns(status);
  do {
    if (deadline_left_ns() == 0)
      return complain_late("a hand-over");
    for (int i = 0; i < pair->count; i++)
      if (child_stirs(&pair->jobs[i]))
        return complain("a job has stopped");
    poll(NULL, 0, POLL_MS); /* nothing tells when the daemon's figures change */
    if (!daemon_ask(status))
      return false;
  } while (cost_ns(status) == before_ns);
  return true;
}
