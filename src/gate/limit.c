/* limit.c - see limit.h. */
#include "gate/limit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "client/spatial.h"
#include "common/clock.h"
#include "common/lock.h"
#include "gate/bucket.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "meter/page.h"
#include "meter/watch.h"

/* What is taken out of the bucket for a submission before it is known what it is: so that of many threads
 * that wait not all pass for the same. */
#define ADVANCE_NS (NS_PER_MS / 20)

static struct limiter {
  pthread_mutex_t lock; /* protects all */
  struct bucket bucket;
  uint64_t throttled_ns, counted_ns; /* what they have waited until then, together */
} limiters[GS_GPUS_PER_CLIENT] = {[0 ... GS_GPUS_PER_CLIENT - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* What the thread has taken for a submission that it has not made yet. */
static __thread uint64_t advance_ns __attribute__((tls_model("initial-exec")));

void limit_obey(CUdevice device, uint64_t limit) {
  struct limiter *limiter = &limiters[device];
  uint64_t now_ns = clock_now_ns();
  lock_take(&limiter->lock);
  if (gate_is_limited(device))
    bucket_limit(&limiter->bucket, limit, now_ns);
  else
    bucket_begin(&limiter->bucket, spatial_is_on() ? BUCKET_SMALL_BURST_NS : BUCKET_BURST_NS, limit, now_ns);
  lock_release(&limiter->lock);
  gate_set_limited(device, limit != GS_LIMIT_NONE);
}

void limit_correct(CUdevice device, int64_t more_ns) {
  struct limiter *limiter = &limiters[device];
  lock_take(&limiter->lock);
  bucket_correct(&limiter->bucket, more_ns);
  lock_release(&limiter->lock);
}

void limit_charge(CUdevice device, uint64_t cost_ns, uint64_t next_ns) {
  struct limiter *limiter = &limiters[device];
  lock_take(&limiter->lock);
  bucket_correct(&limiter->bucket, (int64_t)cost_ns - (int64_t)advance_ns);
  bucket_expect(&limiter->bucket, next_ns);
  lock_release(&limiter->lock);
  advance_ns = 0;
}

/* How long the thread has to wait before it looks again; 0: it may pass. The limit is read from the page, as
 * limit_obey may be about to be told of it. */
static uint64_t take(struct limiter *limiter, const struct gs_meter *page) {
  uint64_t limit = atomic_load(&page->limit), now_ns = clock_now_ns(), wait_ns = 0;
  if (limit == GS_LIMIT_NONE)
    return 0;
  lock_take(&limiter->lock);
  bucket_limit(&limiter->bucket, limit, now_ns);
  if (bucket_take(&limiter->bucket, ADVANCE_NS, now_ns))
    advance_ns = ADVANCE_NS;
  else
    wait_ns = bucket_wait_ns(&limiter->bucket);
  lock_release(&limiter->lock);
  return wait_ns;
}

/* A wait is told while it lasts: who waits a second for a long kernel wants more all the time. Lock held. */
static uint64_t count_waits(CUdevice device) {
  struct limiter *limiter = &limiters[device];
  uint64_t now_ns = clock_now_ns();
  limiter->throttled_ns += limit_waiting(device) * (now_ns - limiter->counted_ns);
  limiter->counted_ns = now_ns;
  return limiter->throttled_ns;
}

static bool is_let_through(CUdevice device) { return !gate_is_open(device) || capture_is_awaited(); }

static void wait(struct limiter *limiter, CUdevice device, struct gs_meter *page) {
  uint64_t wait_ns;
  lock_take(&limiter->lock);
  count_waits(device);
  gate_wait_begin(device, GATE_WAIT_LIMIT);
  lock_release(&limiter->lock);
  watch_wake(device);
  for (;;) {
    uint32_t state = page_state(page);
    if (is_let_through(device) || (wait_ns = take(limiter, page)) == 0)
      break;
    page_wait(page, state, wait_ns);
  }
  lock_take(&limiter->lock);
  count_waits(device);
  gate_wait_end();
  lock_release(&limiter->lock);
}

/* What the thread has taken for a call that submitted nothing, or not then, goes back. */
void limit_submission(CUdevice device) {
  struct limiter *limiter = &limiters[device];
  struct gs_meter *page = page_of(device);
  if (advance_ns)
    limit_charge(device, 0, 0);
  if (!is_let_through(device) && take(limiter, page) > 0)
    wait(limiter, device, page);
}

void limit_wake(CUdevice device) {
  if (limit_waiting(device))
    page_touch(page_of(device));
}

void limit_wake_all(void) {
  for (CUdevice device = 0; device < GS_GPUS_PER_CLIENT; device++)
    limit_wake(device);
}

bool limit_is_wide(CUdevice device) { return atomic_load(&page_of(device)->limit) >= GS_LIMIT_WIDE; }

unsigned limit_waiting(CUdevice device) { return gate_waits(device, GATE_WAIT_LIMIT); }

uint64_t limit_throttled_ns(CUdevice device) {
  lock_take(&limiters[device].lock);
  uint64_t throttled_ns = count_waits(device);
  lock_release(&limiters[device].lock);
  return throttled_ns;
}

void limit_fork_child(void) {
  for (struct limiter *l = limiters; l < limiters + GS_GPUS_PER_CLIENT; l++)
    *l = (struct limiter){.lock = PTHREAD_MUTEX_INITIALIZER};
  advance_ns = 0;
}
