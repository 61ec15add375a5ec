/* test_daemon_events.c - the real daemon, asked over its socket for what has happened; and gpusharectl
 * events.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "shell.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define RECORD 65536 /* what the daemon keeps */
#define READERS 16   /* of one user */

static struct daemon_process daemon_process, *const it = &daemon_process;

static void set_up(void) {
  daemon_start(it, (const char *const[]){"--mode", "on", "--tq", "1h", "--host-memory", "1T", NULL});
}

static void tear_down(void) { daemon_clean_up(it); }

/* ---- reading ---- */

#define KEPT 64

/* The last events of a record, the oldest first. */
static struct {
  struct gs_msg begin, events[KEPT];
  unsigned count, own; /* own: of this user, however many others there are */
  uint64_t missed;
} seen;

static void keep(const struct gs_msg *event) {
  seen.own += event->event.job != 0 && event->event.uid == getuid();
  if (seen.count == KEPT)
    memmove(seen.events, seen.events + 1, --seen.count * sizeof *seen.events);
  seen.events[seen.count++] = *event;
}

static int ask(uint64_t from_seq, uint64_t age_ns, uint32_t record, bool follow) {
  int fd = connect_to(it);
  struct gs_msg msg = wire_msg(GS_GET_EVENTS, GS_GPU_ALL);
  msg.get_events.from_seq = from_seq;
  msg.get_events.age_ns = age_ns;
  msg.get_events.record = record;
  msg.get_events.follow = follow;
  tell(fd, &msg);
  return fd;
}

static void read_with(uint64_t from_seq, uint64_t age_ns, uint32_t record) {
  int fd = ask(from_seq, age_ns, record, false);
  struct gs_msg msg;
  seen.count = seen.own = 0;
  seen.missed = 0;
  seen.begin = expect(fd, GS_EVENTS_BEGIN);
  while ((msg = hear(fd)).type != GS_EVENTS_END)
    if (msg.type == GS_EVENTS_MISSED)
      seen.missed += msg.missed.count;
    else
      keep(&msg);
  close(fd);
}

static void read_all(void) { read_with(0, 0, GS_RECORD_EVENTS); }

/* Exactly these, from the first one that is seen on. */
static void expect_kinds(const enum gs_event_kind *kinds, unsigned count) {
  for (unsigned i = 0; i < count && i < seen.count; i++)
    ck_assert_msg(seen.events[i].event.kind == kinds[i], "event %u is %u, not %u", i,
                  seen.events[i].event.kind, kinds[i]);
  ck_assert_uint_eq(seen.count, count);
}
#define EXPECT_KINDS(...)                                                                                    \
  expect_kinds((const enum gs_event_kind[]){__VA_ARGS__},                                                    \
               sizeof(const enum gs_event_kind[]){__VA_ARGS__} / sizeof(enum gs_event_kind))

/* The only one of its kind. */
static const struct gs_msg *find(enum gs_event_kind kind) {
  const struct gs_msg *found = NULL;
  for (unsigned i = 0; i < seen.count; i++)
    if (seen.events[i].event.kind == kind) {
      ck_assert_msg(!found, "two of kind %u", kind);
      found = &seen.events[i];
    }
  ck_assert_msg(found, "none of kind %u", kind);
  return found;
}

/* ---- clients ---- */

static int start(uint64_t used_bytes) { return attach_client(it, used_bytes); }

static uint64_t await_turn(int fd) {
  uint64_t epoch = expect(fd, GS_LOCK_OK).epoch;
  tell_active(fd, epoch);
  return epoch;
}

static uint64_t take_turn(int fd) {
  tell_simple(fd, GS_REQ_LOCK);
  return await_turn(fd);
}

static void await_no_jobs(void) {
  while (get_status(it, GS_STATUS_DAEMON).daemon.jobs > 0)
    ;
}

static void leave(int fd) {
  close(fd);
  await_no_jobs();
}

/* ---- what is told ---- */

TEST(a_turn_is_told) {
  int fd = start(GIB);
  uint64_t epoch = take_turn(fd);
  struct gs_msg msg = wire_msg(GS_LOCK_RELEASED, 0);
  msg.epoch = epoch;
  msg.released.drain_ns = 77;
  tell(fd, &msg);
  get_status(it, GS_STATUS_DAEMON);
  read_all();
  EXPECT_KINDS(GS_EVENT_STARTED, GS_EVENT_ATTACHED, GS_EVENT_TURNS, GS_EVENT_ASKED, GS_EVENT_GRANTED,
               GS_EVENT_RUNS, GS_EVENT_HANDOVER, GS_EVENT_RELEASED);
  const struct gs_msg *granted = find(GS_EVENT_GRANTED);
  ck_assert_uint_eq(granted->epoch, epoch);
  ck_assert_uint_eq(granted->event.detail, 0); /* nobody had it before */
  ck_assert_uint_eq(granted->event.job, 1);
  ck_assert_int_eq(granted->event.pid, getpid());
  ck_assert_uint_eq(granted->event.uid, getuid());
  ck_assert_str_eq(granted->event.name, "test");
  ck_assert_uint_eq(granted->event.turn.used_bytes, GIB);
  ck_assert_uint_eq(granted->event.turn.ns, 3600 * NS_PER_S);
  ck_assert_uint_eq(granted->gpu, 0);
  ck_assert_uint_eq(find(GS_EVENT_RELEASED)->event.turn.ns, 77);
  ck_assert_uint_eq(find(GS_EVENT_TURNS)->event.detail, 1);
  tell_released(fd, epoch); /* once more, and in vain */
  tell_active(fd, epoch);
  get_status(it, GS_STATUS_DAEMON);
  read_all();
  ck_assert_uint_eq(seen.count, 8);
}

TEST(a_hand_over_is_told) {
  int one = start(10 * GIB), two = start(10 * GIB);
  uint64_t epoch = take_turn(one);
  tell_simple(two, GS_REQ_LOCK);
  expect(one, GS_LOCK_WANTED);
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, NS_PER_MS), 0);
  struct gs_msg msg = hear(one);
  if (msg.type == GS_LOCK_WANTED) /* its end, unless that has come before it could be told */
    msg = hear(one);
  ck_assert_uint_eq(msg.type, GS_DROP_LOCK);
  read_all();
  uint64_t from_seq = seen.begin.events.next_seq;
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 3600 * NS_PER_S), 0);
  tell_released(one, epoch);
  struct gs_msg granted = expect(two, GS_LOCK_OK);
  tell_moves(one, 6 * GIB, 99, 4 * GIB, 0);
  tell_moves(two, 10 * GIB, granted.room.room_seq, 0, 4 * GIB);
  tell_active(two, granted.epoch);
  get_status(it, GS_STATUS_DAEMON);
  uint64_t handovers = get_status(it, GS_STATUS_GPU).gpu_status.handovers;
  read_with(from_seq, 0, GS_RECORD_EVENTS);
  EXPECT_KINDS(GS_EVENT_SETTING, GS_EVENT_RELEASED, GS_EVENT_GRANTED, GS_EVENT_EVICTED, GS_EVENT_RESTORED,
               GS_EVENT_RUNS, GS_EVENT_HANDOVER);
  ck_assert_uint_eq(handovers, 1);
  ck_assert_uint_eq(find(GS_EVENT_GRANTED)->event.detail, 1);
  ck_assert_uint_eq(find(GS_EVENT_GRANTED)->event.job, 2);
  ck_assert_uint_eq(find(GS_EVENT_EVICTED)->event.turn.bytes, 4 * GIB);
  ck_assert_uint_eq(find(GS_EVENT_EVICTED)->event.turn.resident_bytes, 6 * GIB);
  ck_assert_uint_eq(find(GS_EVENT_RESTORED)->event.turn.bytes, 4 * GIB);
  const struct gs_msg *handover = find(GS_EVENT_HANDOVER);
  ck_assert_uint_eq(handover->event.handover.evicted_bytes, 4 * GIB);
  ck_assert_uint_eq(handover->event.handover.restored_bytes, 4 * GIB);
  struct gs_msg status = get_status(it, GS_STATUS_HANDOVER);
  ck_assert_uint_eq(handover->event.handover.drain_ns, status.handover_status.drain_last_ns);
  ck_assert_uint_eq(handover->event.handover.move_ns, status.handover_status.move_last_ns);
}

/* A move that comes in many messages is one event; or some, if it takes seconds. */
TEST(moves_are_told_in_one) {
  int fd = start(8 * GIB);
  ck_assert_int_eq(change_setting(it, GS_SET_CAPACITY, 4 * GIB), 0);
  expect(fd, GS_CAPACITY);
  take_turn(fd);
  get_status(it, GS_STATUS_DAEMON);
  uint64_t from_seq = (read_all(), seen.begin.events.next_seq), bytes = 0;
  for (unsigned i = 1; i <= 32; i++)
    tell_moves(fd, 8 * GIB - i * (GIB / 8), 100, GIB / 8, 0);
  get_status(it, GS_STATUS_DAEMON);
  read_with(from_seq, 0, GS_RECORD_EVENTS);
  ck_assert_uint_le(seen.count, 8);
  for (unsigned i = 0; i < seen.count; i++) {
    ck_assert_uint_eq(seen.events[i].event.kind, GS_EVENT_EVICTED);
    ck_assert_uint_le(seen.events[i].event.turn.until_ns, seen.events[i].event.at_ns);
    bytes += seen.events[i].event.turn.bytes;
  }
  ck_assert_uint_eq(bytes, 4 * GIB);
}

TEST(memory_is_told_when_it_changes_much) {
  int fd = start(GIB);
  read_all();
  uint64_t from_seq = seen.begin.events.next_seq;
  static const uint64_t totals[] = {GIB + (1 << 20), 2 * GIB, 2 * GIB + (32 << 20)};
  for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
    struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
    msg.mem.total_bytes = totals[i];
    tell(fd, &msg);
    ck_assert_int_eq(expect(fd, GS_MEM_REPLY).status, 0);
  }
  struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
  msg.mem.total_bytes = UINT64_C(1) << 42;
  tell(fd, &msg);
  ck_assert_int_eq(expect(fd, GS_MEM_REPLY).status, -ENOMEM);
  read_with(from_seq, 0, GS_RECORD_EVENTS);
  EXPECT_KINDS(GS_EVENT_MEMORY, GS_EVENT_REFUSED);
  ck_assert_uint_eq(seen.events[0].event.turn.used_bytes, 2 * GIB);
  ck_assert_uint_eq(seen.events[1].event.turn.bytes, UINT64_C(1) << 42);
}

/* ---- how programs end ---- */

static void send_command(int fd, const char *text) {
  struct gs_msg msg = wire_msg(GS_COMMAND, 0);
  strcpy(msg.command.text, text);
  tell(fd, &msg);
}

static void expect_end_of(enum gs_end end, int status) {
  read_with(0, 0, GS_RECORD_RUNS);
  ck_assert_uint_gt(seen.count, 0);
  const struct gs_msg *last = &seen.events[seen.count - 1];
  ck_assert_uint_eq(last->event.kind, GS_EVENT_ENDED);
  ck_assert_uint_eq(last->event.detail, end);
  ck_assert_int_eq(last->event.end.status, status);
}

static void tell_exit(int fd, int status) {
  struct gs_msg msg = wire_msg(GS_EXITING, 0);
  msg.exiting.status = status;
  tell(fd, &msg);
}

/* From its beginning, with a turn. */
static void run_to_exit(const char *command, int status) {
  int fd = start(GIB);
  send_command(fd, command);
  take_turn(fd);
  tell_exit(fd, status);
  leave(fd);
}

/* What is told between these is there before the daemon looks. */
static void stop_daemon(void) {
  int status;
  kill(it->pid, SIGSTOP);
  ck_assert_int_eq(waitpid(it->pid, &status, WUNTRACED), it->pid);
}

static void go_on(void) { kill(it->pid, SIGCONT); }

TEST(how_a_program_has_ended_is_told) {
  run_to_exit("python train.py", 3);
  expect_end_of(GS_END_EXIT, 3);
  ck_assert_uint_eq(seen.count, 2);
  ck_assert_str_eq(find(GS_EVENT_COMMAND)->event.text, "python train.py");
  ck_assert_uint_eq(find(GS_EVENT_ENDED)->event.end.turns, 1);
  ck_assert_uint_gt(find(GS_EVENT_ENDED)->event.end.gpu_ns, 0);
  leave(start(GIB));
  expect_end_of(GS_END_ABRUPT, 0);
  int fd = start(GIB);
  tell_simple(fd, GS_STATUS_END); /* out of place */
  expect_end(fd);
  get_status(it, GS_STATUS_DAEMON);
  expect_end_of(GS_END_CLOSED, 0);
  read_all();
  ck_assert_uint_eq(seen.events[seen.count - 1].event.kind, GS_EVENT_ENDED);
}

TEST(who_ends_with_unread_messages_is_heard) {
  int fd = start(GIB);
  tell_simple(fd, GS_REQ_LOCK);
  get_status(it, GS_STATUS_DAEMON); /* the grant has been sent */
  stop_daemon();
  tell_exit(fd, 3);
  close(fd);
  go_on();
  await_no_jobs();
  expect_end_of(GS_END_EXIT, 3);
  ck_assert_uint_eq(seen.count, 1);
}

TEST(who_is_told_something_at_its_end_is_heard) {
  int holder = start(GIB), waiter = start(GIB);
  uint64_t epoch = take_turn(holder);
  tell_simple(waiter, GS_REQ_LOCK);
  get_status(it, GS_STATUS_DAEMON);
  stop_daemon();
  tell_released(holder, epoch); /* the turn is the other's, unless its end is seen first */
  tell_exit(waiter, 3);
  close(waiter);
  go_on();
  leave(holder);
  read_with(0, 0, GS_RECORD_RUNS);
  ck_assert_uint_eq(seen.count, 2);
  const struct gs_msg *ended = &seen.events[seen.events[0].event.job == 2 ? 0 : 1];
  ck_assert_uint_eq(ended->event.detail, GS_END_EXIT);
  ck_assert_int_eq(ended->event.end.status, 3);
}

TEST(who_reads_no_more_has_ended) {
  int holder = start(GIB), waiter = start(GIB);
  take_turn(holder);
  shutdown(holder, SHUT_RD); /* of which nothing is heard before something is to be told */
  take_turn(waiter);
  expect_end_of(GS_END_ABRUPT, 0);
  ck_assert_uint_eq(seen.count, 1);
}

TEST(a_command_is_told_once) {
  int fd = register_client(it);
  send_command(fd, "one");
  send_command(fd, "two");
  expect_end(fd);
}

/* As another user, who may not change settings; its exit code. */
static int count_commands_as(uid_t uid) {
  pid_t pid = fork();
  if (pid == 0) {
    if (setgid(uid) < 0 || setuid(uid) < 0)
      _exit(255);
    read_with(0, 0, GS_RECORD_RUNS);
    int commands = 0;
    for (unsigned i = 0; i < seen.count; i++)
      commands += seen.events[i].event.kind == GS_EVENT_COMMAND;
    _exit(seen.count - (unsigned)commands == 1 ? commands : 254);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  return WEXITSTATUS(status);
}

TEST(a_command_is_for_its_owner_and_who_may_change_settings) {
  int fd = start(GIB);
  send_command(fd, "curl --password 1234");
  leave(fd);
  ck_assert_int_eq(count_commands_as(getuid()), 1);
  if (getuid() == 0)
    ck_assert_int_eq(count_commands_as(12345), 0);
}

/* ---- who has changed what ---- */

TEST(changes_are_told_with_who_made_them) {
  int fd = start(GIB);
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.class = GS_CLASS_OPPORTUNISTIC;
  tell(fd, &msg);
  ck_assert_int_eq(change_setting(it, GS_SET_POLICY, GS_POLICY_RR), 0);
  ck_assert_int_eq(change_setting(it, GS_SET_POLICY, 99), -EINVAL);
  read_all();
  const struct gs_msg *term = find(GS_EVENT_TERM), *setting = find(GS_EVENT_SETTING);
  ck_assert_uint_eq(term->event.detail, GS_TERM_CLASS);
  ck_assert_uint_eq(term->event.change.before, GS_CLASS_STANDARD);
  ck_assert_uint_eq(term->event.change.value, GS_CLASS_OPPORTUNISTIC);
  ck_assert_int_eq(term->event.change.by_pid, term->event.pid);
  ck_assert_uint_eq(setting->event.detail, GS_SET_POLICY);
  ck_assert_uint_eq(setting->event.change.value, GS_POLICY_RR);
  ck_assert_int_eq(setting->event.change.by_pid, getpid());
  ck_assert_uint_eq(setting->gpu, GS_GPU_ALL);
  kill(it->pid, SIGUSR2);
  while (get_status(it, GS_STATUS_GPU).gpu_status.mode != GS_MODE_OFF)
    ;
  read_with(setting->event.seq + 1, 0, GS_RECORD_EVENTS);
  ck_assert_int_eq(find(GS_EVENT_SETTING)->event.change.by_pid, 0);
  ck_assert_uint_eq(find(GS_EVENT_TURNS)->event.detail, 0);
}

/* ---- reading ---- */

TEST(reading_begins_where_it_is_asked_to) {
  for (int i = 0; i < 3; i++)
    change_setting(it, GS_SET_POLICY, GS_POLICY_RR);
  read_with(2, 0, GS_RECORD_EVENTS);
  ck_assert_uint_eq(seen.count, 2);
  ck_assert_uint_eq(seen.events[0].event.seq, 2);
  read_with(0, 3600 * NS_PER_S, GS_RECORD_EVENTS);
  ck_assert_uint_eq(seen.count, 3);
  read_with(3, 3600 * NS_PER_S, GS_RECORD_EVENTS);
  ck_assert_uint_eq(seen.count, 1);
  read_with(0, 1, GS_RECORD_EVENTS); /* ns */
  ck_assert_uint_eq(seen.count, 0);
  read_with(UINT64_MAX, 0, GS_RECORD_EVENTS);
  ck_assert_uint_eq(seen.count, 0);
  ck_assert_uint_eq(seen.begin.events.next_seq, 4);
}

TEST(who_follows_hears_at_once) {
  int fd = ask(UINT64_MAX, 0, GS_RECORD_EVENTS, true);
  expect(fd, GS_EVENTS_BEGIN);
  for (uint64_t i = 1; i <= 3; i++) {
    change_setting(it, GS_SET_POLICY, GS_POLICY_RR);
    struct gs_msg msg = expect(fd, GS_EVENT);
    ck_assert_uint_eq(msg.event.seq, i);
    expect_silence(it, fd);
  }
  leave(register_client(it)); /* told when it is buried */
  ck_assert_uint_eq(expect(fd, GS_EVENT).event.kind, GS_EVENT_STARTED);
  ck_assert_uint_eq(expect(fd, GS_EVENT).event.kind, GS_EVENT_ENDED);
  tell_simple(fd, GS_GET_STATUS);
  expect_end(fd);
}

TEST(one_user_follows_with_so_many) {
  int fds[READERS];
  for (int i = 0; i < READERS; i++)
    expect(fds[i] = ask(0, 0, GS_RECORD_EVENTS, true), GS_EVENTS_BEGIN);
  int fd = ask(0, 0, GS_RECORD_EVENTS, true);
  ck_assert_int_eq(expect(fd, GS_REPLY).status, -EUSERS);
  close(fds[0]);
  for (struct gs_msg msg = {0}; msg.type != GS_EVENTS_BEGIN; close(fd))
    msg = hear(fd = ask(0, 0, GS_RECORD_EVENTS, true)); /* the daemon may have yet to see the end */
}

/* Three events each. */
static void take_turns(int fd, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    tell_simple(fd, GS_REQ_LOCK);
    tell_released(fd, expect(fd, GS_LOCK_OK).epoch);
  }
}

TEST(who_is_too_slow_is_told_how_much_it_has_missed) {
  int slow = ask(0, 0, GS_RECORD_EVENTS, true), fd = start(GIB);
  uint64_t next_seq = 1, missed = 0;
  take_turns(fd, RECORD / 3 + 1000);
  leave(fd);
  uint64_t end_seq = (read_all(), seen.begin.events.next_seq);
  ck_assert_uint_gt(end_seq, RECORD);
  expect(slow, GS_EVENTS_BEGIN);
  while (next_seq < end_seq) {
    struct gs_msg msg = hear(slow);
    if (msg.type == GS_EVENTS_MISSED)
      missed += msg.missed.count;
    else
      ck_assert_uint_eq(msg.event.seq, next_seq + missed);
    next_seq += msg.type == GS_EVENTS_MISSED ? 0 : 1;
    if (next_seq + missed == end_seq)
      break;
  }
  ck_assert_uint_ge(missed, 100);
  ck_assert_uint_lt(missed, end_seq - RECORD);
  change_setting(it, GS_SET_POLICY, GS_POLICY_RR); /* it still follows */
  ck_assert_uint_eq(expect(slow, GS_EVENT).event.seq, end_seq);
}

/* ---- users ---- */

#define MALLORY 12345
#define RECORD_OF_RUNS 8192 /* lines that the daemon keeps */

/* A child that has become this user does it to its end. */
static void do_as(uid_t uid, void (*work)(void)) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    if (setgid(uid) < 0 || setuid(uid) < 0)
      _exit(255);
    work();
    _exit(0);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(status, 0);
}

static void run_often(void) {
  for (int i = 0; i < RECORD_OF_RUNS / 2 + 100; i++) {
    int fd = start(0);
    send_command(fd, "again");
    close(fd);
  }
}

static void turn_often(void) { take_turns(start(0), RECORD / 3 + 1000); }

TEST(one_user_erases_no_history_of_another) {
  if (getuid() != 0)
    return; /* who is somebody else then? */
  for (int status = 1; status <= 3; status++)
    run_to_exit("python train.py", status);
  do_as(MALLORY, run_often);
  await_no_jobs();
  read_with(0, 0, GS_RECORD_RUNS);
  ck_assert_uint_gt(seen.begin.events.next_seq, RECORD_OF_RUNS);
  ck_assert_uint_eq(seen.own, 6);
  ck_assert_uint_eq(seen.missed, 0); /* what is gone had gone before */
  read_all();
  unsigned own = seen.own;
  ck_assert_uint_gt(own, 6);
  do_as(MALLORY, turn_often);
  await_no_jobs();
  read_all();
  ck_assert_uint_gt(seen.begin.events.next_seq, RECORD);
  ck_assert_uint_eq(seen.own, own);
}

/* ---- gpusharectl ---- */

static int ctl(const char *arguments) {
  return run_shell("GPUSHARE_SOCKET=%s %s %s 2>&1", it->socket, GS_CTL, arguments);
}

TEST(events_are_readable) {
  int fd = start(3 * GIB);
  send_command(fd, "python train.py");
  take_turn(fd);
  change_setting(it, GS_SET_TQ, 2 * NS_PER_S);
  get_status(it, GS_STATUS_DAEMON);
  ck_assert_int_eq(ctl("events"), 0);
  output_has(", test) has started\n");
  output_has("job 1 is: python train.py\n");
  output_has("GPU 0: turns begin\n");
  output_has(", test) has come, with 3.0 GiB\n");
  output_has(", test) is granted, for 60 minutes\n");
  output_has("all GPUs: tq is 2 s, by ");
  ck_assert_int_eq(ctl("events --since 1h"), 0);
  output_has("has started");
  ck_assert_int_eq(ctl("events --since soon"), 2);
  output_has("not a duration (90, 15m, 2.5h): 'soon'");
  ck_assert_int_eq(ctl("status --since 1h"), 2);
  output_has("this command does not have the option '--since'");
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s events 2>&1 >/dev/full", it->socket, GS_CTL), 1);
  output_has("can't write the answer");
}

TEST(events_of_a_job_or_a_gpu) {
  int one = start(GIB), other = register_elsewhere(it);
  attach_card(other, 2, GIB, GS_ATTACH_MANAGED);
  change_setting(it, GS_SET_TQ, 2 * NS_PER_S);
  close(one);
  ck_assert_int_eq(ctl("events --job 2"), 0);
  output_has(": job 2 (");
  output_has("  job 2 ("); /* has started, on no GPU */
  output_lacks("job 1");
  output_lacks("tq is");
  ck_assert_int_eq(ctl("events --gpu GPU-02"), 0);
  output_has(": job 2 (");
  output_has("all GPUs: tq is 2 s");
  output_lacks("job 1");
  output_lacks("has started");
  ck_assert_int_eq(ctl("events --job 2 --gpu GPU-01"), 0);
  ck_assert_str_eq(output, "gpusharectl: no event of job 2 on that GPU is kept; gpusharectl history has the "
                           "jobs that have ended\n");
  ck_assert_int_eq(ctl("events --gpu GPU-07"), 1);
  output_has("no GPU's UUID begins with GPU-07");
  ck_assert_int_eq(ctl("events --job one"), 2);
  output_has("not the number of a job");
  ck_assert_int_eq(ctl("events --job 99"), 0);
  ck_assert_str_eq(output, "gpusharectl: no event of job 99 is kept; gpusharectl history has the jobs that "
                           "have ended\n");
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s events --job 99 --json 2>/dev/null", it->socket, GS_CTL),
                   0);
  ck_assert_str_eq(output, "");
  ck_assert_int_eq(ctl("events --job 99 --since 1h"), 0);
  output_has("no event of job 99 in that time is kept");
}

TEST(events_are_lines_of_json) {
  int fd = start(3 * GIB);
  take_turn(fd);
  leave(fd);
  ck_assert_int_eq(ctl("events --json"), 0);
  unsigned count = 0;
  for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
    json_error_t error;
    json_t *event = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(event != NULL, "%s: %s", error.text, line);
    ck_assert_int_eq(json_integer_value(json_object_get(event, "seq")), ++count);
    ck_assert(json_is_string(json_object_get(event, "time")));
    const char *kind = json_string_value(json_object_get(event, "event"));
    if (strcmp(kind, "granted") == 0)
      ck_assert_int_eq(json_integer_value(json_object_get(event, "quantum_ns")), 3600 * (json_int_t)NS_PER_S);
    if (strcmp(kind, "ended") == 0)
      ck_assert_str_eq(json_string_value(json_object_get(event, "end")), "abrupt");
    json_decref(event);
  }
  ck_assert_uint_ge(count, 8);
}

TEST(the_history_has_runs_that_ended) {
  run_to_exit("python train.py", 3);
  leave(start(GIB));
  int still = start(GIB);
  ck_assert_int_eq(ctl("history"), 0);
  output_has("exit 3   python train.py\n");
  output_has("abrupt   -\n");
  output_lacks(" closed ");
  json_t *root, *runs;
  ck_assert_int_eq(ctl("history --json --since 1h"), 0);
  root = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
  runs = json_object_get(root, "runs");
  ck_assert_uint_eq(json_array_size(runs), 2);
  json_t *first = json_array_get(runs, 0), *second = json_array_get(runs, 1);
  ck_assert_str_eq(json_string_value(json_object_get(first, "command")), "python train.py");
  ck_assert_int_eq(json_integer_value(json_object_get(first, "status")), 3);
  ck_assert_int_eq(json_integer_value(json_object_get(first, "turns")), 1);
  ck_assert(json_is_null(json_object_get(second, "command")));
  ck_assert(json_is_null(json_object_get(second, "status")));
  json_decref(root);
  close(still);
}

/* What it writes on a terminal of so many columns. */
static void show_history(unsigned short columns) {
  struct winsize size = {.ws_row = 24, .ws_col = columns};
  int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ck_assert_int_ge(terminal, 0);
  ck_assert_int_eq(grantpt(terminal), 0);
  ck_assert_int_eq(unlockpt(terminal), 0);
  ck_assert_int_eq(ioctl(terminal, TIOCSWINSZ, &size), 0);
  ck_assert_int_eq(run_shell("GPUSHARE_SOCKET=%s %s history >%s", it->socket, GS_CTL, ptsname(terminal)), 0);
  size_t length = 0;
  for (ssize_t count; (count = read(terminal, output + length, sizeof output - 1 - length)) > 0;)
    length += (size_t)count; /* then EIO */
  output[length] = '\0';
  close(terminal);
}

TEST(the_history_fits_the_terminal) {
  run_to_exit("python train.py --with-words-that-have-no-room-beside-what-is-told", 3);
  show_history(80);
  output_has("JOB ");
  output_has(" STARTED ");
  output_has(" END");
  output_has(" exit 3");
  for (const char *line = output; *line; line += strcspn(line, "\n") + 1)
    ck_assert_msg(strcspn(line, "\r\n") <= 80, "%s", line);
  show_history(250);
  output_has(" PID ");
  output_has("-what-is-told\r\n");
}

/* ---- timelines ---- */

/* The names of what a thread has done in that order, and of what moved in another one, with commas. */
static const char *slices(json_t *trace, json_int_t thread) {
  static char names[256];
  json_t *entry;
  size_t i;
  *names = '\0';
  json_array_foreach(json_object_get(trace, "traceEvents"), i, entry) {
    const char *phase = json_string_value(json_object_get(entry, "ph"));
    if (strcmp(phase, "X") == 0 && json_integer_value(json_object_get(entry, "tid")) == thread) {
      strcat(names, json_string_value(json_object_get(entry, "name")));
      strcat(names, ",");
    }
  }
  return names;
}

/* Of the only slice of this name: microseconds. */
static double duration_us(json_t *trace, const char *name) {
  json_t *entry;
  size_t i;
  double found = -1;
  json_array_foreach(json_object_get(trace, "traceEvents"), i, entry) {
    json_t *duration = json_object_get(entry, "dur");
    if (duration && strcmp(json_string_value(json_object_get(entry, "name")), name) == 0) {
      ck_assert_msg(found < 0, "several slices %s", name);
      found = json_number_value(duration);
    }
  }
  return found;
}

static json_t *timeline(void) {
  json_error_t error;
  get_status(it, GS_STATUS_DAEMON);
  ck_assert_int_eq(ctl("timeline"), 0);
  json_t *trace = json_loads(output, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(trace != NULL, "%s: %s", error.text, output);
  return trace;
}

#define TURNS_OF(job) (1 + 2 * (job))

TEST(a_timeline_has_what_jobs_do) {
  int one = start(10 * GIB), two = start(10 * GIB);
  uint64_t epoch = take_turn(one);
  tell_simple(two, GS_REQ_LOCK);
  expect(one, GS_LOCK_WANTED);
  tell_moves(two, 6 * GIB, 99, 4 * GIB, 0);
  poll(NULL, 0, 2); /* a turn longer than its drain */
  struct gs_msg msg = wire_msg(GS_LOCK_RELEASED, 0);
  msg.epoch = epoch;
  msg.released.drain_ns = 1000000;
  tell(one, &msg); /* idle: unasked */
  expect(two, GS_LOCK_OK);
  json_t *trace = timeline();
  ck_assert_str_eq(slices(trace, TURNS_OF(1)), "restores,runs,drains,");
  ck_assert_str_eq(slices(trace, TURNS_OF(2)), "waits,restores,"); /* which goes on */
  ck_assert_str_eq(slices(trace, TURNS_OF(2) + 1), "evicts,");
  ck_assert(duration_us(trace, "drains") > 999.9 && duration_us(trace, "drains") < 1000.1);
  ck_assert(duration_us(trace, "waits") >= 2000);
  json_decref(trace);
  ck_assert_int_eq(ctl("timeline --since 0.000001ms"), 0);
  output_lacks("\"X\"");
}

TEST(a_timeline_says_what_is_wrong) {
  ck_assert_int_eq(ctl("timeline -o /nonexistent/trace.json"), 1);
  output_has("can't write /nonexistent/trace.json: No such file or directory");
  ck_assert_int_eq(ctl("timeline -o /dev/full"), 1);
  output_has("can't write /dev/full: No space left on device");
  ck_assert_int_eq(
      run_shell("echo kept > %s.old; %s --socket /nonexistent timeline -o %s.old; cat %s.old; rm %s.old",
                it->socket, GS_CTL, it->socket, it->socket, it->socket),
      0);
  output_has("kept");
  ck_assert_int_eq(ctl("timeline --follow --since 1s"), 2); /* each is looked at, not only the last */
  output_has("this command does not have the option '--follow'");
  ck_assert_int_eq(ctl("events -o x"), 2);
  output_has("this command does not have the option '-o'");
}

TEST(following_goes_on_until_the_daemon_ends) {
  ck_assert_int_eq(
      run_shell("(GPUSHARE_SOCKET=%s %s events --follow --since 1h --json; echo code $?) 2>&1 |"
                " while read -r line; do echo \"$line\"; case $line in *'\"setting\"'*) kill %d;;"
                " esac; done &"
                " GPUSHARE_SOCKET=%s %s set-tq 3 && wait",
                it->socket, GS_CTL, it->pid, it->socket, GS_CTL),
      0);
  output_has("\"setting\":\"tq\",\"value\":3000000000");
  output_has("the daemon has closed the connection: see gpushare-daemon's log");
  output_has("code 3");
  ck_assert_int_eq(daemon_wait(it), 0);
}

/* Its last words are heard, whoever else has its socket and in whatever order the daemon learns of both. */
TEST(a_program_that_ends_well_has_ended_well) {
  enum { RUNS = 100 };
  int stay[2];
  ck_assert_int_eq(pipe(stay), 0);
  for (int i = 0; i < RUNS; i++) {
    pid_t program = fork();
    if (program == 0) {
      char byte;
      close(stay[1]);
      int fd = start(0);
      if (fork() == 0) {
        (void)!read(stay[0], &byte, 1);
        _exit(0);
      }
      struct gs_msg msg = wire_msg(GS_EXITING, 0);
      msg.exiting.status = i % 2;
      for (int j = 0; j < i; j++) { /* more than is read at once */
        struct gs_msg declare = wire_msg(GS_DECLARE, 0);
        tell(fd, &declare);
      }
      tell(fd, &msg);
      _exit(0);
    }
    ck_assert_int_eq(waitpid(program, NULL, 0), program);
  }
  uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
  while (get_status(it, GS_STATUS_DAEMON).daemon.jobs > 0)
    ck_assert_msg(clock_now_ns() < end_ns, "some have not ended");
  read_with(0, 0, GS_RECORD_RUNS);
  for (unsigned i = 0; i < seen.count; i++) {
    ck_assert_uint_eq(seen.events[i].event.kind, GS_EVENT_ENDED);
    ck_assert_uint_eq(seen.events[i].event.detail, GS_END_EXIT);
  }
  ck_assert_uint_eq(seen.count, KEPT);
  close(stay[1]);
  close(stay[0]);
}

int main(void) { return suite_run_all("daemon_events", set_up, tear_down); }
