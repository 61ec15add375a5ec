/* exit.c - the daemon hears that the program ends by itself, and with which status: else it could not tell
 * that from one that was killed. */
#include <stdlib.h>
#include <time.h>

#include "client/client_state.h"
#include "client/post.h"
#include "common/clock.h"

/* exit may have been called by a signal handler, over whoever has the lock. */
#define PATIENCE_NS (NS_PER_S / 10)

static bool take_lock(void) {
  uint64_t until_ns = clock_realtime_ns() + PATIENCE_NS;
  struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};
  return lock_try_until(&client.lock, &until);
}

static void tell_exit(int status, void *unused) {
  (void)unused;
  struct gs_msg msg = wire_msg(GS_EXITING, 0);
  msg.exiting.status = status & 0xff;
  if (client_is_stray() || !take_lock())
    return;
  if (client.registered) {
    client_send(&msg);
    post_flush(clock_now_ns() + PATIENCE_NS);
  }
  lock_release(&client.lock);
}

__attribute__((constructor)) static void watch_exit(void) { on_exit(tell_exit, NULL); }
