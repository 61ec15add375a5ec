/* watch.c - see watch.h. */
#include "meter/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "gate/streams.h"
#include "interpose/driver.h"
#include "meter/page.h"

#define LOOK_NS (10 * NS_PER_MS)

/* A program with streams that nobody can ask about is idle once it has submitted nothing for so many looks.
 */
#define UNKNOWN_LOOKS 100

static struct watch {
  bool started;
  _Atomic uint64_t base[GATE_COUNTS]; /* counted before the page came */
  _Atomic bool asleep;                /* it waits for the next submission */

  /* Of its thread alone. */
  uint64_t counts[GATE_COUNTS]; /* at the last look */
  unsigned quiet;               /* looks that found them unchanged */
} watches[GS_GPUS_PER_CLIENT];

/* Makes `asleep` and the reason to look one. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- asleep, or not ---- */

static void set_asleep(CUdevice device, bool asleep) {
  bool any = false;
  pthread_mutex_lock(&lock);
  atomic_store(&watches[device].asleep, asleep);
  for (struct watch *w = watches; w < watches + GS_GPUS_PER_CLIENT; w++)
    any |= atomic_load(&w->asleep);
  gate_set_look(GATE_LOOK_ASLEEP, any);
  pthread_mutex_unlock(&lock);
}

void watch_wake(CUdevice device) {
  if (device < 0 || !atomic_load(&watches[device].asleep))
    return;
  struct gs_meter *page = page_of(device);
  set_asleep(device, false);
  atomic_store(&page->idle, 0);
  page_touch(page);
}

static bool has_submitted(const struct watch *watch, CUdevice device) {
  uint64_t counts[GATE_COUNTS];
  gate_counts(device, counts);
  return memcmp(counts, watch->counts, sizeof counts) != 0;
}

/* Whoever is not seen here sees the reason to look, and wakes us. */
static bool fall_asleep(const struct watch *watch, CUdevice device) {
  set_asleep(device, true);
  gate_barrier();
  if (!gate_in_flight() && !has_submitted(watch, device))
    return true;
  set_asleep(device, false);
  return false;
}

/* ---- a look ---- */

/* What can be told by asking. */
static enum streams_state ask_streams(CUdevice device) {
  capture_forbid();
  enum streams_state state = capture_count() ? STREAMS_BUSY : streams_ask(device);
  capture_allow();
  return state;
}

static bool is_idle(const struct watch *watch, CUdevice device) {
  if (!watch->quiet || gate_waiting(device) > 0 || gate_in_flight())
    return false;
  enum streams_state state = ask_streams(device);
  return state == STREAMS_FINISHED || (state == STREAMS_UNKNOWN && watch->quiet >= UNKNOWN_LOOKS);
}

static void take_counts(struct watch *watch, CUdevice device) {
  uint64_t counts[GATE_COUNTS];
  gate_counts(device, counts);
  watch->quiet = memcmp(counts, watch->counts, sizeof counts) ? 0 : watch->quiet + 1;
  memcpy(watch->counts, counts, sizeof counts);
}

static void publish(const struct watch *watch, struct gs_meter *page) {
  _Atomic uint64_t *const fields[GATE_COUNTS] = {
      [GATE_KERNELS] = &page->kernels,
      [GATE_BLOCKS] = &page->blocks,
      [GATE_BYTES] = &page->bytes,
      [GATE_SUBMISSIONS] = &page->submissions,
  };
  for (enum gate_count i = 0; i < GATE_COUNTS; i++)
    atomic_store_explicit(fields[i], watch->counts[i] - atomic_load(&watch->base[i]), memory_order_relaxed);
}

/* Returns after what time to look again. */
static uint64_t look(struct watch *watch, CUdevice device, struct gs_meter *page) {
  take_counts(watch, device);
  publish(watch, page);
  if (!atomic_load(&page->wanted))
    return UINT64_MAX;
  bool idle = is_idle(watch, device) && fall_asleep(watch, device);
  atomic_store(&page->idle, idle);
  return idle ? UINT64_MAX : LOOK_NS;
}

static void *watch_run(void *argument) {
  struct watch *watch = argument;
  CUdevice device = (CUdevice)(watch - watches);
  struct gs_meter *page = page_of(device);
  prctl(PR_SET_NAME, "gpushare-meter");
  /* What this thread asks the driver must not disturb the captures of others. */
  driver.cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){CU_STREAM_CAPTURE_MODE_RELAXED});
  for (;;) {
    uint32_t state = page_state(page);
    uint64_t again_ns = look(watch, device, page);
    atomic_store(&page->seen_limit, state);
    page_wait(page, state, again_ns);
  }
  return NULL;
}

/* ---- the daemon's page comes and goes ---- */

static bool start(struct watch *watch) {
  pthread_t thread;
  if (!watch->started && thread_start(&thread, watch_run, watch) == 0) {
    pthread_detach(thread);
    watch->started = true;
  }
  return watch->started;
}

static void take_base(struct watch *watch, CUdevice device) {
  uint64_t counts[GATE_COUNTS];
  gate_counts(device, counts);
  for (enum gate_count i = 0; i < GATE_COUNTS; i++)
    atomic_store(&watch->base[i], counts[i]);
}

void watch_attach(CUdevice device, int fd) {
  struct watch *watch = &watches[device];
  take_base(watch, device);
  int err = page_attach(device, fd);
  if (err < 0)
    log_warn("the daemon's meter page can't be used (%d): it does not see what this program does", -err);
  else if (!start(watch))
    watch_detach(device);
}

void watch_detach(CUdevice device) { page_detach(device); }

void watch_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  for (struct watch *w = watches; w < watches + GS_GPUS_PER_CLIENT; w++)
    *w = (struct watch){0};
  page_fork_child();
}
