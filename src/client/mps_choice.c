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
#include "client/mps_environment.h"
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
  if (!mps_environment_set(pipes, answer->spatial.priority, answer->spatial.percent))
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
  mps_environment_forget();
  if (mps_environment_is_given() || !is_there(pipes))
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
    mps_environment_forget();
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
