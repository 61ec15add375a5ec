/* test_connecting.c - a daemon that is there, but to which as many connect already as may: what the client's
 * thread does. */
#include <check.h>
#include <errno.h>

#include "../suite.h"
#include "common/thread.h"

#define played_assert ck_assert
#include "played_library.h"
#include "played_threads.h"

#define thread_start_needed played_start
#include "client/connection.c"
#undef thread_start_needed

/* ---- the post ---- */

static int connect_err;
static unsigned attempts, registers;

int post_start(struct lock *lock, void (*arrived)(void)) { return lock && arrived ? 0 : -EINVAL; }
int post_connect(const char *path) {
  attempts += *path == '/';
  return connect_err;
}
void post_send(const struct gs_msg *msg) { registers += msg->type == GS_REGISTER; }
bool post_take(struct letter *letter) { return letter->err; }
void post_shut(void) {}
void post_hang_up(void) {}
void post_flush(uint64_t deadline_ns) { (void)deadline_ns; }
void post_fork_child(void) {}

/* ---- */

static void set_up(void) {
  attempts = registers = 0;
  client_attach(0);
}

static void tear_down(void) {}

/* Look at what is due, when it is. */
static void step(void) {
  uint64_t next_ns = run_timers(), now_ns = clock_now_ns();
  if (next_ns > now_ns)
    clock_sleep(next_ns - now_ns);
}

START_TEST(while_no_more_may_connect_it_waits) {
  connect_err = -EAGAIN;
  while (attempts < 20) {
    step();
    ck_assert_uint_le(client.retry_at_ns, clock_now_ns() + 20 * NS_PER_MS);
    ck_assert(!client.alone && !client.gpus[0].machine.holding);
  }
  connect_err = 0;
  while (!client.connected)
    step();
  ck_assert(!client.alone);
  ck_assert_uint_eq(registers, 1);
}
END_TEST

START_TEST(it_does_not_wait_for_ever) {
  uint64_t begin_ns = clock_now_ns();
  connect_err = -EAGAIN;
  while (!client.alone)
    step();
  ck_assert_uint_ge(clock_now_ns() - begin_ns, HANDSHAKE_NS);
  ck_assert(client.gpus[0].machine.holding);
  connect_err = 0;
  while (!client.connected)
    step();
  ck_assert_uint_eq(registers, 1);
}
END_TEST

/* A daemon is started anew meanwhile: it is waited for as long as for the first one. */
START_TEST(its_patience_begins_anew) {
  connect_err = -EAGAIN;
  step();
  clock_sleep(HANDSHAKE_NS);
  connect_err = 0;
  while (!client.connected)
    step();
  connect_err = -EAGAIN;
  lock_take(&client.lock);
  client.connected = false;
  lock_release(&client.lock);
  client.retry_at_ns = 0;
  run_timers();
  ck_assert(!client.alone);
}
END_TEST

START_TEST(without_a_daemon_it_does_not_wait) {
  connect_err = -ECONNREFUSED;
  run_timers();
  ck_assert(client.alone && client.gpus[0].machine.holding);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {while_no_more_may_connect_it_waits, it_does_not_wait_for_ever,
                                its_patience_begins_anew, without_a_daemon_it_does_not_wait, NULL};
  return suite_main("connecting", tests, set_up, tear_down);
}
