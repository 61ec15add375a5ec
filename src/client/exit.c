/*
 * exit.c - what the client does as its process ends, or forks. The daemon hears that the program ends by
 * itself, and with which status: else it could not tell that from one that was killed.
 */
#include <stdlib.h>
#include <time.h>

#include "client/client.h"
#include "client/client_state.h"
#include "client/post.h"
#include "client/progress.h"
#include "common/clock.h"
#include "common/lock.h"
#include "memory/memory.h"

/* exit may have been called by a signal handler, over whoever has the lock. */
#define PATIENCE_NS (NS_PER_S / 10)

static bool take_lock(void) {
  struct timespec until = clock_timespec(clock_realtime_ns() + PATIENCE_NS);
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

/* ---- forks ---- */

/* Forks of this thread that are under way (one may come in a signal handler over another), and whether the
 * first one has taken the lock. */
static __thread unsigned forks __attribute__((tls_model("initial-exec")));
static __thread bool fork_has_lock __attribute__((tls_model("initial-exec")));

/* No connection may be half made, or half gone, at the moment of a fork, and no descriptor of memory be
 * known to one thread only: the child closes what it may have inherited. A signal handler may fork over a
 * thread that holds one of these locks, or one that is taken after them: such a thread neither makes nor ends
 * connections, and others that do so just then are the lesser evil.
 */
void client_fork_prepare(void) {
  if (forks++ > 0)
    return;
  fork_has_lock = !lock_is_inside();
  if (!fork_has_lock)
    return;
  lock_take(&client.lock);
  memory_fork_prepare();
}

void client_fork_parent(void) {
  if (--forks > 0 || !fork_has_lock)
    return;
  memory_fork_parent();
  lock_release(&client.lock);
}

void client_fork_child(void) {
  client_fork_parent(); /* the locks are ours here too */
  post_fork_child();
  client = (struct client){.lock = LOCK(LOCK_CLIENT)};
  worker_fork_child();
  progress_fork_child();
  share_fork_child();
  if (client_is_stray())
    client_mark_process();
}
