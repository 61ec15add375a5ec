/* watch.c - the looks at what a process does, and when there are any. See watch.h. */
#include "meter/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "common/clock.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/splitmix.h"
#include "common/thread.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "gate/limit.h"
#include "gate/streams.h"
#include "interpose/driver.h"
#include "meter/meter.h"
#include "meter/page.h"
#include "meter/samples.h"
#include "meter/service.h"

#define LOOK_NS (10 * NS_PER_MS)
#define SKIPPED_MOST 64 /* kernels between a look and the one that is measured */

/* A program with streams that nobody can ask about is idle once it has submitted nothing for so many looks.
 */
#define UNKNOWN_LOOKS 100

/* What is told, as sums: those that are counted, and these. */
enum figure { THROTTLED = GATE_COUNTS, SAMPLES, SAMPLED, EXPECTED, BUSY, SERVICE, SERVED, WAITED, FIGURES };

static struct watch {
  bool started;
  _Atomic uint64_t base[FIGURES]; /* before the page came */
  _Atomic bool asleep;            /* it waits for the next submission */
  _Atomic uint64_t busy_ns;

  /* Of its thread alone. */
  uint64_t figures[FIGURES]; /* at the last look */
  uint64_t looked_ns;
  unsigned quiet;           /* looks that found that nothing had been submitted */
  enum streams_state asked; /* what asking the streams has told, if it was quiet */
  uint64_t unfinished_ns;   /* since when something measured is unfinished */
  uint64_t lately;          /* submissions of kernels between the last looks between which there were any */
  uint64_t random;
} watches[GS_GPUS_PER_CLIENT];

/* Makes `asleep` and the reason to look one. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- asleep, or not ---- */

static void set_asleep(CUdevice device, bool asleep) {
  bool any = false;
  lock_take(&lock);
  atomic_store(&watches[device].asleep, asleep);
  for (struct watch *w = watches; w < watches + GS_GPUS_PER_CLIENT; w++)
    any |= atomic_load(&w->asleep);
  gate_set_look(GATE_LOOK_ASLEEP, any);
  lock_release(&lock);
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
  return memcmp(counts, watch->figures, sizeof counts) != 0;
}

/* Whoever is not seen here sees the reason to look, and wakes us. */
static bool fall_asleep(const struct watch *watch, CUdevice device) {
  set_asleep(device, true);
  gate_barrier();
  if (!gate_in_flight() && limit_waiting(device) == 0 && !has_submitted(watch, device))
    return true;
  set_asleep(device, false);
  return false;
}

/* ---- a look ---- */

static void ask(struct watch *watch, CUdevice device) {
  watch->unfinished_ns = samples_collect(device);
  watch->asked = watch->quiet ? streams_ask(device) : STREAMS_BUSY;
}

/* What can be told by asking: not while anything captures. */
static void try_ask(struct watch *watch, CUdevice device) {
  watch->asked = STREAMS_BUSY;
  capture_forbid();
  if (capture_count() == 0)
    ask(watch, device);
  capture_allow();
}

static bool is_idle(const struct watch *watch, CUdevice device) {
  if (!watch->quiet || gate_waiting(device) > 0 || limit_waiting(device) > 0 || gate_in_flight())
    return false;
  return watch->asked == STREAMS_FINISHED ||
         (watch->asked == STREAMS_UNKNOWN && watch->quiet >= UNKNOWN_LOOKS);
}

/* Of submissions some are copies, some graphs of many kernels. */
static void note_kernels(struct watch *watch, CUdevice device) {
  uint64_t counts[GATE_COUNTS];
  gate_counts(device, counts);
  uint64_t kernels = counts[GATE_KERNELS] - watch->figures[GATE_KERNELS];
  uint64_t submissions = counts[GATE_SUBMISSIONS] - watch->figures[GATE_SUBMISSIONS];
  if (kernels > 0)
    watch->lately = kernels < submissions ? kernels : submissions;
}

static void take_sums(const struct watch *watch, CUdevice device, uint64_t figures[FIGURES]) {
  struct samples_sums sums = samples_sums(device);
  struct service_sums service = service_sums(device);
  gate_counts(device, figures);
  figures[THROTTLED] = limit_throttled_ns(device);
  figures[SAMPLES] = sums.count;
  figures[SAMPLED] = sums.sampled_ns;
  figures[EXPECTED] = sums.expected_ns;
  figures[BUSY] = atomic_load(&watch->busy_ns);
  figures[SERVICE] = service.ns;
  figures[SERVED] = service.served;
  figures[WAITED] = service.waited_ns;
}

static void note_quiet(struct watch *watch, CUdevice device) {
  watch->quiet = has_submitted(watch, device) ? 0 : watch->quiet + 1;
}

/* How long the GPU had work of the process since the last look: all the time if it has not finished something
 * that was submitted before that; else what has been submitted since should have taken. */
static uint64_t busy_since(const struct watch *watch, CUdevice device, uint64_t now_ns) {
  uint64_t counts[GATE_COUNTS], elapsed_ns = now_ns - watch->looked_ns;
  gate_counts(device, counts);
  if (watch->unfinished_ns >= elapsed_ns || (watch->quiet && watch->asked == STREAMS_BUSY))
    return elapsed_ns;
  uint64_t more = counts[GATE_SUBMISSIONS] - watch->figures[GATE_SUBMISSIONS];
  uint64_t mean_ns = samples_mean_ns();
  return mean_ns && more > elapsed_ns / mean_ns ? elapsed_ns : more * mean_ns;
}

static void note_busy(struct watch *watch, CUdevice device) {
  uint64_t now_ns = clock_now_ns();
  if (watch->looked_ns)
    atomic_fetch_add(&watch->busy_ns, busy_since(watch, device, now_ns));
  watch->looked_ns = now_ns;
}

static void publish(const struct watch *watch, struct gs_meter *page) {
  _Atomic uint64_t *const fields[FIGURES] = {
      [GATE_KERNELS] = &page->kernels,         [GATE_BLOCKS] = &page->blocks,     [GATE_BYTES] = &page->bytes,
      [GATE_SUBMISSIONS] = &page->submissions, [THROTTLED] = &page->throttled_ns, [SAMPLES] = &page->samples,
      [SAMPLED] = &page->sampled_ns,           [EXPECTED] = &page->expected_ns,   [BUSY] = &page->busy_ns,
      [SERVICE] = &page->service_ns,           [SERVED] = &page->served,          [WAITED] = &page->waited_ns,
  };
  for (unsigned i = 0; i < FIGURES; i++)
    atomic_store_explicit(fields[i], watch->figures[i] - atomic_load(&watch->base[i]), memory_order_relaxed);
  atomic_store(&page->in_flight_ns, watch->unfinished_ns);
  atomic_store(&page->at_ns, clock_now_ns());
}

/* Nobody reads: what is counted anyway. */
static uint64_t look_once(struct watch *watch, CUdevice device, struct gs_meter *page) {
  watch->looked_ns = 0;
  service_want(device, false);
  take_sums(watch, device, watch->figures);
  publish(watch, page);
  return UINT64_MAX;
}

/* What is measured is any of the next kernels, not the first one after a look: looks come by the clock, so
 * that one mostly follows a pause, and waits for what others have queued meanwhile. Those before it take the
 * long way, so they are few. */
static uint32_t skipped_kernels(struct watch *watch) {
  uint64_t among = watch->lately < SKIPPED_MOST ? watch->lately : SKIPPED_MOST;
  return among > 0 ? (uint32_t)(splitmix_next(&watch->random) % among) : 0;
}

/* Returns after what time to look again. */
static uint64_t look(struct watch *watch, CUdevice device, struct gs_meter *page) {
  if (!atomic_load(&page->wanted) && !gate_is_limited(device))
    return look_once(watch, device, page);
  service_want(device, true);
  note_quiet(watch, device);
  try_ask(watch, device);
  if (watch->quiet && watch->asked == STREAMS_FINISHED)
    service_end(device, watch->figures[GATE_SUBMISSIONS]);
  else if (watch->quiet)
    service_goes_on(device);
  note_busy(watch, device);
  note_kernels(watch, device);
  take_sums(watch, device, watch->figures);
  publish(watch, page);
  bool idle = is_idle(watch, device) && fall_asleep(watch, device);
  atomic_store(&page->idle, idle);
  meter_ask(skipped_kernels(watch)); /* also after an idle time */
  return idle ? UINT64_MAX : LOOK_NS;
}

static void obey(CUdevice device, struct gs_meter *page) {
  uint64_t limit = atomic_load(&page->limit);
  if (limit != GS_LIMIT_NONE || gate_is_limited(device))
    limit_obey(device, limit);
}

static void *watch_run(void *argument) {
  struct watch *watch = argument;
  CUdevice device = (CUdevice)(watch - watches);
  struct gs_meter *page = page_of(device);
  thread_begin("gpushare-meter");
  /* What this thread asks the driver must not disturb the captures of others. */
  driver.cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){CU_STREAM_CAPTURE_MODE_RELAXED});
  for (;;) {
    uint32_t state = page_state(page);
    obey(device, page);
    uint64_t again_ns = look(watch, device, page);
    atomic_store(&page->seen_limit, state);
    page_wait(page, state, again_ns);
  }
  return NULL;
}

/* ---- the daemon's page comes and goes ---- */

static bool start(struct watch *watch) {
  if (!watch->started)
    watch->started = thread_start_needed(watch_run, watch) == 0;
  return watch->started;
}

static void take_base(struct watch *watch, CUdevice device) {
  uint64_t figures[FIGURES];
  take_sums(watch, device, figures);
  for (unsigned i = 0; i < FIGURES; i++)
    atomic_store(&watch->base[i], figures[i]);
}

void watch_attach(CUdevice device, struct gs_meter *page, int err) {
  struct watch *watch = &watches[device];
  take_base(watch, device);
  if (page)
    err = page_attach(device, page);
  if (err < 0)
    log_warn("the daemon's meter page can't be used (%d): it does not see what this program does", -err);
  else if (!start(watch)) {
    log_warn("no thread for the daemon's meter page: it does not see what this program does");
    watch_detach(device);
  }
}

void watch_detach(CUdevice device) { page_detach(device); }

void watch_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  for (struct watch *w = watches; w < watches + GS_GPUS_PER_CLIENT; w++)
    *w = (struct watch){0};
  page_fork_child();
}
