/* test_daemon_evict.c - the real daemon and clients that the test plays: who is evicted, by whom and when,
 * and what becomes of the others. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "shell.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define MANAGED GS_ATTACH_MANAGED
#define SWAP 0

static struct daemon_process daemon_process, *const it = &daemon_process;

static void start(const char *const *arguments) {
  if (it->pid)
    daemon_clean_up(it);
  daemon_start(it, arguments);
}

static void set_up(void) {
  start((const char *const[]){"--mode", "on", "--grace", "7s", "--tq", "1h", NULL});
}

static void tear_down(void) { daemon_clean_up(it); }

struct client {
  int fd;
  uint32_t job;
};

static struct client come(uint64_t bytes, uint32_t flags) {
  struct client client = {.fd = connect_to(it)};
  tell_simple(client.fd, GS_REGISTER);
  client.job = expect(client.fd, GS_REGISTERED).registered.job;
  attach_card(client.fd, 1, bytes, flags);
  tell_simple(client.fd, GS_REQ_LOCK);
  return client;
}

static uint64_t run(const struct client *client) {
  uint64_t epoch = expect(client->fd, GS_LOCK_OK).epoch;
  tell_active(client->fd, epoch);
  return epoch;
}

/* What has been told to one that waits, up to its grant. */
static void await_grant(const struct client *client) {
  while (hear(client->fd).type != GS_LOCK_OK)
    ;
}

/* Told to it, whatever has come before. */
static struct gs_msg hear_evicted(const struct client *client) {
  struct gs_msg msg;
  while ((msg = hear(client->fd)).type != GS_EVICTED)
    ;
  expect_end(client->fd);
  return msg;
}

/* ---- by a person ---- */

TEST(others_have_its_place) {
  struct client holder = come(GIB, MANAGED);
  run(&holder);
  struct client other = come(GIB, MANAGED);
  expect_silence(it, other.fd);
  ck_assert_int_eq(evict(it, holder.job + 10), -ENOENT);
  ck_assert_int_eq(evict(it, holder.job), 0);
  struct gs_msg told = hear_evicted(&holder);
  ck_assert_uint_eq(told.evicted.wait_ns, 7 * NS_PER_S);
  ck_assert_uint_eq(told.evicted.by_uid, geteuid());
  ck_assert_int_eq(told.evicted.by_pid, getpid());
  await_grant(&other);
  ck_assert_int_eq(evict(it, holder.job), -ENOENT);
}

/* Also if both are said before the daemon has buried it. */
TEST(nobody_is_evicted_twice) {
  struct client holder = come(GIB, MANAGED);
  struct gs_msg msg = wire_msg(GS_EVICT, GS_GPU_ALL);
  int fd = connect_to(it);
  msg.evict.job = holder.job;
  tell(fd, &msg);
  tell(fd, &msg);
  ck_assert_int_eq(expect(fd, GS_REPLY).status, 0);
  ck_assert_int_eq(expect(fd, GS_REPLY).status, -ENOENT);
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s events | grep -c 'loses its place'", it->socket, GS_CTL),
                   0);
  output_has("1\n");
  close(fd);
}

TEST(it_comes_again_behind_others) {
  struct client holder = come(GIB, MANAGED);
  run(&holder);
  struct client other = come(GIB, MANAGED);
  ck_assert_int_eq(evict(it, holder.job), 0);
  hear_evicted(&holder);
  holder = come(GIB, MANAGED);
  await_grant(&other);
  expect_silence(it, holder.fd);
}

TEST(it_is_told_what_has_happened) {
  struct client holder = come(GIB, SWAP);
  run(&holder);
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s evict %u --json", it->socket, GS_CTL, holder.job), 0);
  output_has("{\"job\":1,\"evicted\":true}");
  hear_evicted(&holder);
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s events", it->socket, GS_CTL), 0);
  output_has("GPU 0: job 1 (pid");
  output_has(") loses its place, by ");
  output_has("; 1.0 GiB stay on the card");
  output_has("ended for the daemon, which has evicted it");
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s events --json | grep expelled", it->socket, GS_CTL), 0);
  output_has("\"resident_bytes\":1073741824");
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s timeline", it->socket, GS_CTL), 0);
  output_has("loses its place");
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s evict 1 2>&1", it->socket, GS_CTL), 1);
  output_has("there is no such job any more: see gpusharectl history");
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s evict 0 2>&1", it->socket, GS_CTL), 2);
}

/* ---- its memory ---- */

TEST(the_card_has_that_much_less) {
  struct client holder = come(10 * GIB, SWAP), other = come(GIB, MANAGED);
  run(&holder);
  ck_assert_int_eq(evict(it, holder.job), 0);
  ck_assert_uint_eq(expect(other.fd, GS_CAPACITY).attached.capacity_bytes, 6 * GIB);
  await_grant(&other);
  hear_evicted(&holder);
  struct client again = {.fd = register_client(it)}; /* it is known again whose memory that is */
  ck_assert_uint_eq(attach_card(again.fd, 1, 10 * GIB, SWAP).attached.capacity_bytes, 16 * GIB);
}

/* It says so by two connections, but has one card's memory. */
TEST(a_process_has_its_memory_once) {
  struct client one = come(6 * GIB, SWAP), two = come(6 * GIB, SWAP), other = come(GIB, MANAGED);
  run(&one);
  ck_assert_int_eq(evict(it, one.job), 0);
  ck_assert_uint_eq(expect(other.fd, GS_CAPACITY).attached.capacity_bytes, 10 * GIB);
  await_grant(&two);
  ck_assert_int_eq(evict(it, two.job), 0);
  await_grant(&other);
  while (get_status(it, GS_STATUS_DAEMON).daemon.jobs > 1)
    ;
  ck_assert_uint_eq(get_status(it, GS_STATUS_HANDOVER).handover_status.overhead_bytes, 6 * GIB);
}

/* However many come and go, until its process ends. */
TEST(the_card_has_it_back_when_the_process_ends) {
  int ends[2];
  uint32_t job;
  ck_assert_int_eq(pipe(ends), 0);
  pid_t process = fork();
  if (process == 0) {
    struct client holder = come(10 * GIB, SWAP);
    run(&holder);
    (void)!write(ends[1], &holder.job, sizeof holder.job);
    for (;;)
      pause();
  }
  ck_assert_int_eq(read(ends[0], &job, sizeof job), sizeof job);
  struct client other = come(GIB, MANAGED);
  ck_assert_int_eq(evict(it, job), 0);
  ck_assert_uint_eq(expect(other.fd, GS_CAPACITY).attached.capacity_bytes, 6 * GIB);
  await_grant(&other);
  for (int i = 0; i < 3; i++) {
    int fd = register_client(it);
    ck_assert_uint_eq(attach_card(fd, 1, 0, MANAGED).attached.capacity_bytes, 6 * GIB);
    close(fd);
    while (get_status(it, GS_STATUS_DAEMON).daemon.jobs > 1)
      ;
  }
  kill(process, SIGKILL); /* nobody waits for it yet */
  ck_assert_uint_eq(expect(other.fd, GS_CAPACITY).attached.capacity_bytes, 16 * GIB);
  ck_assert_int_eq(waitpid(process, NULL, 0), process);
}

TEST(what_has_page_faults_is_in_nobodys_way) {
  struct client holder = come(10 * GIB, MANAGED);
  run(&holder);
  ck_assert_int_eq(evict(it, holder.job), 0);
  hear_evicted(&holder);
  struct client other = {.fd = register_client(it)};
  ck_assert_uint_eq(attach_card(other.fd, 1, GIB, SWAP).attached.capacity_bytes, 16 * GIB);
}

/* ---- by itself ---- */

static struct client start_silent_holder(const char *evict_after, uint32_t flags) {
  start((const char *const[]){"--mode", "on", "--grace", "50ms", "--tq", "1ms", "--evict-after", evict_after,
                              NULL});
  struct client holder = come(GIB, flags);
  run(&holder);
  return holder;
}

TEST(who_is_silent_and_in_the_way_is_evicted) {
  struct client holder = start_silent_holder("3", SWAP), other = come(GIB, SWAP);
  await_grant(&other);
  struct gs_msg told = hear_evicted(&holder);
  ck_assert_int_eq(told.evicted.by_pid, 0);
  ck_assert_uint_eq(told.evicted.wait_ns, 50 * NS_PER_MS);
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s events", it->socket, GS_CTL), 0);
  output_has("does not stop in time: others wait for it");
  output_has("loses its place, as it does not stop, and others wait");
}

TEST(who_is_bypassed_is_not_evicted) {
  struct client holder = start_silent_holder("1", MANAGED), other = come(GIB, MANAGED);
  await_grant(&other);
  ck_assert_uint_eq(get_status(it, GS_STATUS_JOB).job_status.job, holder.job);
}

/* Late, but before it is evicted; nor is it evicted for that later. */
TEST(who_answers_is_not_evicted) {
  struct client holder = start_silent_holder("20", SWAP), other = come(GIB, SWAP);
  struct gs_msg drop;
  while ((drop = hear(holder.fd)).type != GS_DROP_LOCK)
    ;
  while (!(get_status(it, GS_STATUS_JOB).job_status.flags & GS_STATE_OVERDUE))
    ;
  tell_released(holder.fd, drop.epoch);
  await_grant(&other);
  uint64_t end_ns = clock_now_ns() + 25 * 50 * NS_PER_MS; /* when it would have been */
  while (clock_now_ns() < end_ns)
    ck_assert_uint_eq(get_status(it, GS_STATUS_JOB).job_status.job, holder.job);
}

TEST(never_is_never) {
  struct client holder = start_silent_holder("0", SWAP), other = come(GIB, SWAP);
  while (!(get_status(it, GS_STATUS_JOB).job_status.flags & GS_STATE_OVERDUE))
    ;
  uint64_t end_ns = clock_now_ns() + 10 * 50 * NS_PER_MS;
  while (clock_now_ns() < end_ns)
    ck_assert_uint_eq(get_status(it, GS_STATUS_JOB).job_status.job, holder.job);
  expect_silence(it, other.fd);
}

/* For those, too, that are silent by then. */
TEST(the_time_that_counts_is_the_one_that_is_set) {
  start((const char *const[]){"--mode", "on", "--grace", "50ms", "--tq", "1ms", NULL});
  daemon_configure(it, "evict_after = 0\n");
  struct client holder = come(GIB, SWAP);
  run(&holder);
  struct client other = come(GIB, SWAP);
  while (!(get_status(it, GS_STATUS_JOB).job_status.flags & GS_STATE_OVERDUE))
    ;
  daemon_configure(it, "evict_after = 1\n");
  await_grant(&other);
  hear_evicted(&holder);
}

static void attach_gpu(int fd, uint32_t index, uint32_t flags) {
  struct gs_msg msg = wire_msg(GS_ATTACH, index);
  msg.attach.uuid[0] = (uint8_t)(index + 1);
  msg.attach.total_bytes = 16 * GIB;
  msg.attach.used_bytes = msg.attach.resident_bytes = GIB;
  msg.attach.flags = flags;
  tell(fd, &msg);
  expect(fd, GS_ATTACHED);
  expect(fd, GS_SCHED_ON);
}

static void tell_on_gpu(int fd, enum gs_msg_type type, uint32_t index, uint64_t epoch) {
  struct gs_msg msg = wire_msg(type, index);
  msg.epoch = epoch;
  tell(fd, &msg);
}

static int count_events(const char *words) {
  run_shell("GPUSHARE_SOCKET=%s %s events | grep -c '%s'", it->socket, GS_CTL, words);
  return atoi(output);
}

/* Silent on two GPUs, it loses its place once: that it is closed counts at once. */
TEST(who_is_silent_on_two_gpus_is_evicted_once) {
  start((const char *const[]){"--mode", "on", "--grace", "50ms", "--tq", "1ms", NULL});
  daemon_configure(it, "evict_after = 0\n");
  int silent = register_client(it), first, second;
  for (uint32_t i = 0; i < 2; i++) {
    attach_gpu(silent, i, SWAP);
    tell_on_gpu(silent, GS_REQ_LOCK, i, 0);
    tell_on_gpu(silent, GS_LOCK_ACTIVE, i, expect(silent, GS_LOCK_OK).epoch);
  }
  first = register_client(it), second = register_client(it);
  attach_card(first, 1, GIB, SWAP);
  attach_card(second, 2, GIB, SWAP);
  tell_simple(first, GS_REQ_LOCK);
  tell_simple(second, GS_REQ_LOCK);
  while (count_events("does not stop in time") < 2)
    ;
  daemon_configure(it, "evict_after = 1\n");
  while (hear(silent).type != GS_EVICTED)
    ;
  while (hear(first).type != GS_LOCK_OK)
    ;
  while (hear(second).type != GS_LOCK_OK)
    ;
  ck_assert_int_eq(count_events("loses its place"), 2); /* one for each GPU */
}

int main(void) { return suite_run_all("daemon_evict", set_up, tear_down); }
