/* test_daemon_gangs.c - the real daemon, asked over its socket: programs that name the same gang. */
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)

static struct daemon_process daemon_process, *const it = &daemon_process;

static void set_up(void) { daemon_start(it, (const char *const[]){"--mode", "on", "--tq", "50ms", NULL}); }

static void tear_down(void) { daemon_clean_up(it); }

static void declare(int fd, const char *gang) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  size_t size = strlen(gang) + 1; /* the daemon sees to the end of one that is too long */
  memcpy(msg.declare.gang, gang, size < sizeof msg.declare.gang ? size : sizeof msg.declare.gang);
  tell(fd, &msg);
}

static int join_as(int fd, const char *gang, uint8_t card) {
  declare(fd, gang);
  attach_card(fd, card, GIB, GS_ATTACH_MANAGED);
  return fd;
}

/* A process each. */
static int member(const char *gang, uint8_t card) { return join_as(register_elsewhere(it), gang, card); }

/* Has the lock, and runs. Returns the grant's epoch. */
static uint64_t granted(int fd) {
  uint64_t epoch = expect(fd, GS_LOCK_OK).epoch;
  tell_active(fd, epoch);
  return epoch;
}

/* The nth job's that the status tells. */
static struct gs_msg terms_at(uint32_t index) {
  struct gs_msg msg, terms = {.type = 0};
  int fd = connect_to(it);
  tell_simple(fd, GS_GET_STATUS);
  while ((msg = hear(fd)).type != GS_STATUS_END)
    if (msg.type == GS_STATUS_TERMS && index-- == 0)
      terms = msg;
  close(fd);
  return terms;
}

static const char *gang_of(uint32_t index) {
  static struct gs_msg terms;
  terms = terms_at(index);
  return terms.terms_status.gang;
}

/* Of jobs that are told in the order of their numbers, from 1. */
static bool is_paused(uint32_t job) {
  struct gs_msg terms = terms_at(job - 1);
  ck_assert_uint_eq(terms.terms_status.job, job);
  return terms.terms_status.paused;
}

TEST(a_gang_gets_its_gpus_together) {
  int a1 = member("a", 1), a2 = member("a", 2), b1 = member("b", 1), b2 = member("b", 2);
  tell_simple(a1, GS_REQ_LOCK);
  uint64_t first = granted(a1), second = granted(a2);
  tell_simple(b2, GS_REQ_LOCK);
  expect(a1, GS_DROP_LOCK);
  expect(a2, GS_DROP_LOCK);
  tell_released(a1, first);
  expect_silence(it, b1); /* its own GPU is free, but not the other one's */
  tell_released(a2, second);
  granted(b1);
  granted(b2);
}

TEST(others_are_on_their_own) {
  int a1 = member("a", 1), a2 = member("a", 2), single = member("", 2);
  tell_simple(single, GS_REQ_LOCK);
  granted(single);
  expect_silence(it, a1);
  expect_silence(it, a2);
}

TEST(a_dead_member_is_not_waited_for) {
  int a1 = member("a", 1), a2 = member("a", 2), single = member("", 2);
  tell_simple(single, GS_REQ_LOCK);
  granted(single);
  tell_simple(a1, GS_REQ_LOCK);
  expect_silence(it, a1);
  close(a2);
  granted(a1);
  ck_assert_str_eq(gang_of(0), "a");
}

TEST(a_second_job_on_a_gpu_is_on_its_own) {
  int one = member("a", 1), other = member("a", 1);
  ck_assert_str_eq(gang_of(0), "a");
  ck_assert_str_eq(gang_of(1), "");
  tell_simple(one, GS_REQ_LOCK);
  tell_simple(other, GS_REQ_LOCK);
  uint64_t epoch = granted(one);
  expect(one, GS_LOCK_WANTED);
  tell_released(one, epoch);
  granted(other);
}

TEST(a_declaration_counts_for_what_is_attached_later) {
  int fd = member("a", 1);
  declare(fd, "b");
  ck_assert_str_eq(gang_of(0), "a");
  tell_simple(fd, GS_DETACH);
  attach_card(fd, 1, GIB, GS_ATTACH_MANAGED);
  ck_assert_str_eq(gang_of(0), "b");
}

TEST(names_end_and_are_printable) {
  char name[2 * GS_GANG_SIZE];
  memset(name, 'x', sizeof name - 1);
  name[0] = '\x1b';
  name[sizeof name - 1] = '\0';
  member(name, 1);
  ck_assert_uint_eq(strlen(gang_of(0)), GS_GANG_SIZE - 1);
  ck_assert_int_eq(gang_of(0)[0], '?');
}

TEST(the_status_tells_why) {
  int holder = member("", 1), waiter = member("", 1);
  tell_simple(holder, GS_REQ_LOCK);
  granted(holder);
  tell_simple(waiter, GS_REQ_LOCK);
  expect(holder, GS_LOCK_WANTED);
  struct gs_msg msg;
  int fd = connect_to(it);
  uint32_t jobs[2], count = 0;
  tell_simple(fd, GS_GET_STATUS);
  while ((msg = hear(fd)).type != GS_STATUS_WAIT || count++ == 0)
    if (msg.type == GS_STATUS_JOB)
      jobs[count] = msg.job_status.job;
    else if (msg.type == GS_STATUS_WAIT)
      ck_assert_uint_eq(msg.wait_status.reason, GS_REASON_RUNS);
  ck_assert_uint_eq(msg.wait_status.job, jobs[1]);
  ck_assert_uint_eq(msg.wait_status.reason, GS_REASON_TURN);
  ck_assert_uint_eq(msg.wait_status.awaited, jobs[0]);
  ck_assert_uint_le(msg.wait_status.expected_ns, 100 * NS_PER_MS);
  ck_assert_uint_eq(msg.wait_status.lacking_bytes, 0);
  close(fd);
}

static int set_paused(uint32_t job, bool paused) { return set_terms(it, job, GS_TERM_PAUSED, paused); }

TEST(a_gang_is_paused_as_a_whole) {
  int a1 = member("a", 1), a2 = member("a", 2), single = member("", 2);
  tell_simple(a1, GS_REQ_LOCK);
  uint64_t first = granted(a1), second = granted(a2);
  ck_assert_int_eq(set_paused(2, true), 0);
  expect(a1, GS_DROP_LOCK);
  expect(a2, GS_DROP_LOCK);
  tell_released(a1, first);
  tell_released(a2, second);
  tell_simple(a1, GS_REQ_LOCK);
  tell_simple(single, GS_REQ_LOCK);
  tell_released(single, granted(single));
  expect_silence(it, a1);
  expect_silence(it, a2);
  ck_assert_int_eq(set_paused(1, false), 0);
  granted(a1);
  granted(a2);
}

TEST(a_member_that_is_away_is_resumed_with_its_gang) {
  member("a", 1);
  int away = join_as(register_client(it), "a", 2); /* this process */
  ck_assert_int_eq(set_paused(1, true), 0);
  ck_assert(is_paused(1) && is_paused(2));
  close(away);
  while (get_status(it, GS_STATUS_DAEMON).daemon.jobs > 1)
    ;
  ck_assert_int_eq(set_paused(1, false), 0);
  away = join_as(register_client(it), "a", 2);
  ck_assert(!is_paused(1) && !is_paused(2));
  ck_assert_int_eq(set_paused(2, true), 0);
  ck_assert(is_paused(1) && is_paused(2));
}

int main(void) { return suite_run_all("daemon_gangs", set_up, tear_down); }
