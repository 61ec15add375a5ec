/*
 * mps_choice.c - cuInit. The driver looks for MPS then, and never again, by its environment: so what the
 * daemon says of it must be there before. See mps_choice.h.
 *
 * Nothing is asked, and nothing costs anything, where there is no MPS below the daemon's socket. The
 * connection on which it was asked stays open: the daemon sees by it how long this process lives.
 */
#include "client/mps_choice.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/declaration.h"
#include "common/clock.h"
#include "common/descriptor.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/wire.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "preempt/preempt.h"
#include "settings.h"

#define ANSWER_NS (NS_PER_S / 2) /* a daemon that does not answer in that time has no MPS for us */
#define PATH_SIZE 160

static struct lock lock = LOCK(LOCK_MPS); /* protects what is decided, and by it */
static _Atomic bool decided;
static _Atomic bool on;
static struct descriptor connection = {.fd = -1};

bool mps_choice_is_on(void) { return atomic_load(&on); }

/* ---- the variables by which the driver uses MPS ---- */

/* Programs that this one starts inherit them, and are to decide for themselves: so it is noted what is ours.
 */
#define PIPES "CUDA_MPS_PIPE_DIRECTORY"
#define PRIORITY "CUDA_MPS_CLIENT_PRIORITY"
#define PERCENT "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

/* "PRIORITY PERCENT PIPES": what has been set; "-": that was not. */
#define MARK "GPUSHARE_MPS_SET"
#define VALUE_SIZE 16

static bool is_given(const char *name) {
  const char *value = getenv(name);
  return value && *value;
}

/* What is to be set; "-": nothing. */
static void choose(const char *name, uint32_t number, char value[VALUE_SIZE]) {
  strcpy(value, "-");
  if (number != 0 && !is_given(name))
    snprintf(value, VALUE_SIZE, "%u", number);
}

static bool set(const char *name, const char *value) {
  return strcmp(value, "-") == 0 || setenv(name, value, 1) == 0;
}

/* Unless somebody has set it anew. */
static void forget(const char *name, const char *was) {
  const char *value = getenv(name);
  if (value && strcmp(value, was) == 0)
    unsetenv(name);
}

/* What is ours, or was that of the program that has started this one, goes. */
static void forget_environment(void) {
  const char *mark = getenv(MARK);
  char priority[VALUE_SIZE], percent[VALUE_SIZE];
  int pipes = 0;
  if (!mark)
    return;
  if (sscanf(mark, "%15s %15s %n", priority, percent, &pipes) == 2 && pipes > 0) {
    forget(PRIORITY, priority);
    forget(PERCENT, percent);
    forget(PIPES, mark + pipes);
  }
  unsetenv(MARK);
}

/* What of it is not given; priority, percent: 0: as usual. The mark first: nothing is ours without it. False:
 * memory is out, and nothing is set. */
static bool set_environment(const char *pipes, uint32_t priority, uint32_t percent) {
  char priority_text[VALUE_SIZE], percent_text[VALUE_SIZE], mark[256];
  choose(PRIORITY, priority, priority_text);
  choose(PERCENT, percent, percent_text);
  snprintf(mark, sizeof mark, "%s %s %s", priority_text, percent_text, pipes);
  bool done =
      set(MARK, mark) && set(PIPES, pipes) && set(PRIORITY, priority_text) && set(PERCENT, percent_text);
  if (!done)
    forget_environment();
  return done;
}

/* ---- the question ---- */

/* Of a list of UUIDs, and nothing else. False: it can't be told. */
static bool read_visible(const char *list, struct gs_msg *ask) {
  uint32_t count = 0;
  while (count < GS_SPATIAL_UUIDS) {
    char uuid[GS_UUID_TEXT_SIZE];
    size_t length = strcspn(list, ",");
    if (length >= sizeof uuid)
      return false;
    memcpy(uuid, list, length);
    uuid[length] = '\0';
    if (parse_uuid(uuid, ask->ask_spatial.uuids[count++]) < 0)
      return false;
    if (list[length] == '\0') {
      ask->ask_spatial.count = count;
      return true;
    }
    list += length + 1;
  }
  return false;
}

static struct gs_msg question(void) {
  struct gs_msg ask = wire_msg(GS_ASK_SPATIAL, 0);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  ask.ask_spatial.class = declaration_class();
  if (visible && !read_visible(visible, &ask))
    ask.ask_spatial.count = 0;
  return ask;
}

static int receive(struct gs_msg *answer) {
  struct pollfd readable = {.fd = connection.fd, .events = POLLIN};
  uint64_t end_ns = clock_now_ns() + ANSWER_NS, now_ns;
  while ((now_ns = clock_now_ns()) < end_ns)
    if (poll(&readable, 1, (int)((end_ns - now_ns) / NS_PER_MS) + 1) > 0)
      return descriptor_is_ours(&connection) ? wire_recv(connection.fd, answer) : -EBADF;
  return -ETIMEDOUT;
}

static int ask(struct gs_msg *answer) {
  struct gs_msg msg = question();
  int err = wire_send(connection.fd, &msg); /* made just now */
  if (err == 0)
    err = receive(answer);
  return err < 0 || answer->type == GS_SPATIAL ? err : -EBADMSG;
}

/* ---- what becomes of it ---- */

static const char *why_not(uint32_t verdict) {
  static const char *const texts[] = {
      [GS_SPATIAL_OFF] = "the daemon has none",
      [GS_SPATIAL_DOWN] = "it does not run",
      [GS_SPATIAL_OTHER_GPUS] = "the program may use GPUs without it (CUDA_VISIBLE_DEVICES)",
      [GS_SPATIAL_OTHER_USER] = "it serves another user",
      [GS_SPATIAL_FULL] = "it serves as many programs as it can",
      [GS_SPATIAL_APART] = "the program is in other namespaces than the daemon"};
  return verdict < sizeof texts / sizeof *texts && texts[verdict] ? texts[verdict] : "the daemon says no";
}

/* False: not even the environment can be set. */
static bool use(const char *pipes, const struct gs_msg *answer) {
  if (!set_environment(pipes, answer->spatial.priority, answer->spatial.percent))
    return false;
  atomic_store(&on, true);
  log_info("by MPS, at %s priority, with %u %% of the multiprocessors: a fatal fault of another such program "
           "ends this one, too",
           answer->spatial.priority ? "lower" : "usual",
           answer->spatial.percent ? answer->spatial.percent : 100);
  return true;
}

static bool is_there(char pipes[PATH_SIZE]) {
  char control[PATH_SIZE + 16];
  snprintf(pipes, PATH_SIZE, "%s" GS_MPS_FOLDER "/" GS_MPS_PIPES, settings()->socket);
  snprintf(control, sizeof control, "%s/control", pipes);
  return access(control, F_OK) == 0;
}

static void decide(void) {
  char pipes[PATH_SIZE];
  struct gs_msg answer;
  forget_environment();
  if (is_given(PIPES) || !is_there(pipes)) /* the user says himself which MPS to use */
    return;
  int err = wire_connect_as_guest(settings()->socket, &connection);
  if (err == 0)
    err = ask(&answer);
  bool may = err == 0 && answer.spatial.verdict == GS_SPATIAL_ON;
  if (may && use(pipes, &answer))
    return;
  descriptor_close(&connection);
  log_info("without MPS: %s", err < 0 ? "the daemon does not answer"
                              : may   ? "out of memory"
                                      : why_not(answer.spatial.verdict));
}

static void decide_once(void) {
  if (atomic_load_explicit(&decided, memory_order_acquire))
    return;
  lock_take(&lock);
  if (!decided)
    decide();
  atomic_store_explicit(&decided, true, memory_order_release);
  lock_release(&lock);
}

/* ---- cuInit ---- */

static bool is_failure_of_mps(CUresult result) {
  return result >= CUDA_ERROR_MPS_CONNECTION_FAILED && result <= CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED;
}

/* True: it was on. */
static bool give_up(CUresult result) {
  lock_take(&lock);
  bool was_on = atomic_exchange(&on, false);
  if (was_on) {
    forget_environment();
    descriptor_close(&connection);
    log_warn("MPS does not take this program (error %d): it shares the GPU by time", (int)result);
  }
  lock_release(&lock);
  return was_on;
}

CUresult hook_cuInit(unsigned int Flags) {
  int before = errno;
  decide_once();
  preempt_begin();
  errno = before;
  CUresult result = driver.cuInit(Flags);
  if (is_failure_of_mps(result) && give_up(result))
    result = driver.cuInit(Flags);
  if (result == CUDA_SUCCESS)
    driver_settle();
  return result;
}

void mps_choice_fork_child(void) {
  lock = (struct lock)LOCK(LOCK_MPS);
  atomic_store(&decided, false);
  atomic_store(&on, false);
  descriptor_close(&connection);
}
