/*
 * test_messages.c - what comes of the daemon's messages. There is one thread and a played clock: the worker
 * runs until it would wait, and the test says what the daemon says. The random histories print their seed;
 * GPUSHARE_SEED repeats one.
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../suite.h"
#include "common/splitmix.h"
#include "common/thread.h"

#define played_assert ck_assert
#include "played_library.h"
#include "played_threads.h"

#define thread_start_needed played_start
#include "client/connection.c"
#undef thread_start_needed
#include "played_devices.h"

/* ---- time ---- */

static uint64_t played_ns, until_ns; /* now, and how long the worker runs */
static jmp_buf worker_ends;
static bool in_worker;
static void (*on_wait)(void); /* instead, while the program waits */

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time) {
  played_ns += NS_PER_MS / 1000; /* whoever looks again and again sees it pass */
  *time =
      (struct timespec){.tv_sec = (time_t)(played_ns / NS_PER_S), .tv_nsec = (long)(played_ns % NS_PER_S)};
  return clock == CLOCK_MONOTONIC ? 0 : -1;
}

static long wait_played(const struct timespec *timeout) {
  uint64_t end_ns =
      timeout ? played_ns + (uint64_t)timeout->tv_sec * NS_PER_S + (uint64_t)timeout->tv_nsec : UINT64_MAX;
  if (in_worker && end_ns > until_ns) {
    played_ns = until_ns;
    longjmp(worker_ends, 1);
  }
  if (!in_worker) {
    ck_assert_msg(on_wait || timeout, "the program waits for ever");
    if (on_wait)
      on_wait();
    played_ns += NS_PER_MS;
    return 0;
  }
  played_ns = end_ns;
  errno = ETIMEDOUT;
  return -1;
}

long __real_syscall(long number, ...);
/* It passes on six arguments, whether that many were given or not. */
long __wrap_syscall(long number, ...) __attribute__((no_sanitize("address")));
long __wrap_syscall(long number, ...) {
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++)
    arguments[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && (arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAIT)
    return wait_played((const struct timespec *)arguments[3]); // NOLINT(performance-no-int-to-ptr)
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                        arguments[5]);
}

/* ---- the post ---- */

enum { SENT_MOST = 256 };
static struct gs_msg sent[SENT_MOST]; /* in this connection */
static unsigned sent_count, connections;
static struct letter next;
static bool has_next;

int post_start(struct lock *lock, void (*arrived)(void)) { return lock && arrived ? 0 : -EINVAL; }
int post_connect(const char *path) {
  connections += *path == '/';
  return 0;
}
void post_send(const struct gs_msg *msg) {
  ck_assert_uint_lt(sent_count, SENT_MOST);
  sent[sent_count++] = *msg;
}
bool post_take(struct letter *letter) {
  bool taken = has_next;
  *letter = next;
  has_next = false;
  return taken;
}
void post_shut(void) {}
void post_hang_up(void) { has_next = false; }
void post_flush(uint64_t deadline_ns) { (void)deadline_ns; }
void post_fork_child(void) {}

/* Of this type; and the last one of them. */
static unsigned count_sent(enum gs_msg_type type, struct gs_msg *last) {
  unsigned count = 0;
  for (unsigned i = 0; i < sent_count; i++)
    if (sent[i].type == type) {
      if (last)
        *last = sent[i];
      count++;
    }
  return count;
}

/* ---- what the daemon says, and what the worker does ---- */

static struct gpu *const gpu = &client.gpus[0];

static void hear_letter(const struct letter *letter) {
  next = *letter;
  has_next = true;
  receive_all();
  attach_all();
}

static void hear(const struct gs_msg *msg) { hear_letter(&(struct letter){.msg = *msg}); }

static void work(uint64_t ns) {
  until_ns = played_ns + ns;
  in_worker = true;
  if (!setjmp(worker_ends))
    worker_run(gpu);
  in_worker = false;
}

static void connect_played(void) {
  struct gs_msg registered = wire_msg(GS_REGISTERED, 0), attached = wire_msg(GS_ATTACHED, 0);
  attached.attached.capacity_bytes = 1000;
  sent_count = 0;
  client.retry_at_ns = 0;
  run_timers();
  ck_assert_uint_eq(count_sent(GS_REGISTER, NULL), 1);
  hear(&registered);
  ck_assert_uint_eq(count_sent(GS_ATTACH, NULL), 1);
  hear(&attached);
}

static void lose(void) { hear_letter(&(struct letter){.err = -ECONNRESET}); }

static struct gs_msg room_msg(enum gs_msg_type type, uint64_t epoch, uint64_t bytes, uint64_t seq) {
  struct gs_msg msg = wire_msg(type, 0);
  msg.epoch = epoch;
  msg.room.room_bytes = msg.room.target_bytes = bytes;
  msg.room.room_seq = seq;
  return msg;
}

static void grant(uint64_t epoch) {
  struct gs_msg msg = room_msg(GS_LOCK_OK, epoch, 1000, epoch);
  hear(&msg);
  work(0);
}

static void drop(uint64_t epoch) {
  struct gs_msg msg = room_msg(GS_DROP_LOCK, epoch, 1000, epoch);
  hear(&msg);
  work(0);
}

static void want(uint64_t epoch, uint64_t left_ns) {
  struct gs_msg msg = wire_msg(GS_LOCK_WANTED, 0);
  msg.epoch = epoch;
  msg.wanted.left_ns = left_ns;
  hear(&msg);
}

static CUresult get_total(size_t *bytes, CUdevice device) {
  *bytes = device ? 0 : 1000;
  return CUDA_SUCCESS;
}
static CUresult exchange_mode(CUstreamCaptureMode *mode) {
  return mode ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void set_up(void) {
  driver.cuDeviceGetUuid_v2 = get_uuid;
  driver.cuDeviceTotalMem_v2 = get_total;
  driver.cuDeviceGetName = get_name;
  driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
  played_ns = NS_PER_S;
  verdict = PREEMPT_YES;
  at_target = has_room = true;
  client_attach(0);
  connect_played();
}

static void tear_down(void) {}

/* ---- tests ---- */

START_TEST(a_grant_is_for_when_the_memory_is_there) {
  away_steps = 3;
  struct gs_msg msg = room_msg(GS_LOCK_OK, 1, 1000, 1);
  hear(&msg);
  ck_assert(!gate_opened && steps == 0);
  work(0);
  ck_assert(gate_opened && away_steps == 0);
  ck_assert_uint_eq(steps_at_open, steps);
}
END_TEST

START_TEST(a_drop_is_obeyed_once_and_only_if_it_is_of_this_grant) {
  struct gs_msg released;
  grant(7);
  drop(6);
  ck_assert(gate_opened && gpu->machine.holding);
  drop(7);
  drop(7);
  ck_assert(!gate_opened && !gpu->machine.holding);
  ck_assert_uint_eq(count_sent(GS_LOCK_RELEASED, &released), 1);
  ck_assert_uint_eq(released.epoch, 7);
}
END_TEST

/* Others wait: an idle job gives way, and one whose work goes on, or that waits for room, does not. */
START_TEST(only_the_idle_give_way_and_only_to_somebody) {
  verdict = PREEMPT_NO;
  grant(1);
  work(NS_PER_S);
  ck_assert(gpu->machine.holding);
  want(1, GS_LEFT_NOBODY);
  work(NS_PER_S);
  ck_assert(gpu->machine.holding);
  want(1, NS_PER_S);
  endless = true;
  work(NS_PER_S);
  ck_assert(gpu->machine.holding);
  endless = false;
  waits_for = GATE_WAIT_ROOM;
  work(NS_PER_S);
  ck_assert(gpu->machine.holding);
  waits_for = 0;
  work(NS_PER_S);
  ck_assert(!gpu->machine.holding && !gate_opened);
}
END_TEST

START_TEST(the_lock_is_asked_for_where_something_waits) {
  client_want(0);
  ck_assert_uint_eq(count_sent(GS_REQ_LOCK, NULL), 0);
  at_gate = 1;
  client_want(0);
  client_want(0);
  ck_assert_uint_eq(count_sent(GS_REQ_LOCK, NULL), 1);
}
END_TEST

/* It goes on by itself: there is nobody any more who would say so. */
START_TEST(work_that_stands_still_goes_on_without_a_daemon) {
  endless = true;
  grant(1);
  drop(1);
  ck_assert(stands_still && gpu->stopped && !closed_drained);
  lose();
  work(0);
  ck_assert(!stands_still && !gpu->stopped && gate_opened);
}
END_TEST

/* It is waited for. */
START_TEST(what_may_not_be_stopped_finishes) {
  endless = forbidden = ends_if_forbidden = true;
  grant(1);
  drop(1);
  ck_assert(!stops && !stands_still && !gate_opened && closed_drained);
  ck_assert_uint_eq(count_sent(GS_LOCK_RELEASED, NULL), 1);
}
END_TEST

static void let_one_pass(void) { gate_pulsed++; }

/* What it has submitted has to finish, too. */
START_TEST(a_drain_in_which_somebody_passed_is_done_again) {
  verdict = PREEMPT_NO;
  grant(1);
  on_ask = let_one_pass;
  drop(1);
  ck_assert_uint_eq(synchronizations, 2);
  ck_assert_uint_eq(count_sent(GS_LOCK_RELEASED, NULL), 1);
}
END_TEST

START_TEST(captures_end_before_a_drain) {
  struct gs_msg state;
  verdict = PREEMPT_NO;
  grant(1);
  captures_open = 1;
  sent_count = 0;
  drop(1);
  ck_assert_uint_eq(synchronizations, 1);
  ck_assert_uint_eq(count_sent(GS_CLIENT_STATE, &state), 1);
  ck_assert_uint_eq(state.state.flags, GS_STATE_CAPTURING | GS_STATE_OWN_CONTEXT);
}
END_TEST

START_TEST(what_a_lost_daemon_has_said_is_void) {
  struct gs_msg share = wire_msg(GS_SHARE, 0);
  share.share.share_ppm = 100;
  share.share.slice_us = 77;
  grant(1);
  hear(&share);
  work(0);
  ck_assert_uint_eq(client_capacity(0), 1000);
  ck_assert_uint_eq(sliced_us, 77);
  ck_assert_uint_eq(client_room_bytes(0), 1000);
  lose();
  work(NS_PER_S);
  ck_assert_uint_eq(client_capacity(0), 0);
  ck_assert_uint_eq(client_room_bytes(0), UINT64_MAX);
  ck_assert_uint_eq(sliced_us, 0);
  ck_assert(gate_opened && !gpu->rest_ppm);
}
END_TEST

/* And then as one that has just come. */
START_TEST(an_evicted_job_waits) {
  struct gs_msg msg = wire_msg(GS_EVICTED, 0);
  msg.evicted.wait_ns = NS_PER_S;
  grant(1);
  hear(&msg);
  work(0);
  ck_assert(!gate_opened && !gpu->machine.holding && !client.connected && !client.alone);
  run_timers();
  ck_assert(!client.connected);
  played_ns += 2 * NS_PER_S;
  connect_played();
  ck_assert(!gpu->machine.holding && !gate_opened);
}
END_TEST

START_TEST(what_is_not_understood_is_passed_over) {
  struct gs_msg drop_elsewhere = room_msg(GS_DROP_LOCK, 1, 1000, 1);
  drop_elsewhere.gpu = GS_GPUS_PER_CLIENT;
  grant(1);
  hear_letter(&(struct letter){.err = -ENOSYS, .msg = drop_elsewhere});
  hear(&drop_elsewhere);
  drop_elsewhere.gpu = UINT32_MAX;
  hear(&drop_elsewhere);
  work(0);
  ck_assert(client.connected && gpu->machine.holding && gate_opened);
}
END_TEST

START_TEST(a_lowered_room_is_acknowledged) {
  struct gs_msg lower = room_msg(GS_ROOM, 0, 500, 9), resident;
  grant(1);
  sent_count = 0;
  hear(&lower);
  work(0);
  ck_assert_uint_eq(count_sent(GS_RESIDENT, &resident), 1);
  ck_assert_uint_eq(resident.resident.room_seq, 9);
}
END_TEST

/* The program has freed it itself. */
START_TEST(what_was_to_leave_and_is_gone_is_told) {
  struct gs_msg lower = room_msg(GS_ROOM, 0, 500, 9), resident;
  there = (struct memory_usage){.total_bytes = 900, .resident_bytes = 900};
  grant(1);
  hear(&lower);
  work(0);
  sent_count = 0;
  there = (struct memory_usage){.total_bytes = 300, .resident_bytes = 300};
  lock_take(&client.lock);
  condition_wake_all(&gpu->changed);
  lock_release(&client.lock);
  work(0);
  ck_assert_uint_eq(count_sent(GS_RESIDENT, &resident), 1);
  ck_assert_uint_eq(resident.resident.resident_bytes, 300);
}
END_TEST

static bool heir_is(uint64_t name, uint64_t key, int32_t pid) {
  return heir.pass.name == name && heir.pass.key == key && heir.pid == pid;
}

/* To whom memory passes is said with each room, and is void without a daemon. */
START_TEST(an_heir_comes_with_a_room) {
  struct gs_msg nobody = room_msg(GS_ROOM, 0, 500, 9), msg = nobody;
  msg.room.pass = (struct gs_pass){.name = 1, .key = 2};
  msg.room.pass_pid = 3;
  hear(&msg);
  ck_assert(heir_is(1, 2, 3));
  hear(&nobody);
  ck_assert(heir_is(0, 0, 0));
  hear(&msg);
  lose();
  ck_assert(heir_is(0, 0, 0));
}
END_TEST

START_TEST(a_card_that_is_short_for_long_is_told_once) {
  away_steps = 1;
  short_steps = 1000;
  grant(1);
  work(NS_PER_S);
  ck_assert_uint_eq(count_sent(GS_MEM_SHORT, NULL), 0);
  work(9 * NS_PER_S);
  ck_assert_uint_eq(count_sent(GS_MEM_SHORT, NULL), 1);
  ck_assert(!gate_opened);
}
END_TEST

/* ---- steps ---- */

static void grant_steps(void) {
  struct gs_msg msg = room_msg(GS_LOCK_OK, 1, 1000, 1);
  msg.room.steps = 1;
  at_gate = 1;
  hear(&msg);
  work(NS_PER_S);
  ck_assert(!gate_opened && gate_pulsed > 0 && may_pass_once);
}

START_TEST(steps_let_single_calls_pass) {
  grant_steps();
  unsigned before = gate_pulsed;
  at_gate = 0;
  work(NS_PER_S);
  ck_assert_uint_eq(gate_pulsed, before);
  drop(1);
  ck_assert(!gate_opened && !may_pass_once && !gpu->machine.holding);
}
END_TEST

START_TEST(without_a_daemon_there_are_no_steps) {
  grant_steps();
  lose();
  work(NS_PER_S);
  ck_assert(gate_opened && !may_pass_once);
}
END_TEST

/* ---- several GPUs ---- */

START_TEST(work_that_reaches_other_gpus_is_drained_there_too) {
  grant(1);
  reached_from = 1 << 3;
  drop(1);
  ck_assert(!stops && !gate_opened);
  ck_assert_uint_eq(synchronized, 1 | 1 << 3);
  ck_assert(closed_drained);
}
END_TEST

/* ---- children ---- */

/* Nobody has told it of the fork; its parent's threads are not there to wait for. */
static bool is_silent(void) {
  static _Atomic uint64_t seen_ns;
  unsigned before = sent_count;
  at_gate = 1;
  client_want(0);
  bool unasked = client_memory_request(0, 500, 100, false, &seen_ns) == -ENOTCONN;
  client_memory_report(0, 500, 100);
  return unasked && client_is_stray() && !client_gpu(0) && gate_opened && sent_count == before;
}

START_TEST(a_raw_clone_does_not_speak_for_its_parent) {
  int status;
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (child == 0)
    _exit(is_silent() ? 0 : 1);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  ck_assert(!client_is_stray());
}
END_TEST

/* ---- questions about memory ---- */

static _Atomic uint64_t seen_ns;
static unsigned answers;

static void answer(int status) {
  struct gs_msg msg = wire_msg(GS_MEM_REPLY, 0);
  msg.status = status;
  msg.mem_reply.granted_bytes = 600;
  msg.mem_reply.pinned_bytes = 120;
  hear(&msg);
}

static void put_off_then_grant(void) { answer(answers++ < 50 ? -EAGAIN : 0); }
static void refuse(void) { answer(-ENOMEM); }

START_TEST(a_question_that_is_put_off_is_waited_for) {
  answers = 0;
  on_wait = put_off_then_grant;
  ck_assert_int_eq(client_memory_request(0, 500, 100, false, &seen_ns), 0);
  ck_assert_uint_gt(answers, 50);
}
END_TEST

START_TEST(a_question_ends_with_the_connection) {
  on_wait = lose;
  ck_assert_int_eq(client_memory_request(0, 500, 100, false, &seen_ns), -ENOTCONN);
}
END_TEST

/* The next report tells nothing of it. */
START_TEST(a_refused_question_changes_nothing) {
  struct gs_msg report;
  on_wait = refuse;
  ck_assert_int_eq(client_memory_request(0, 500, 100, false, &seen_ns), -ENOMEM);
  sent_count = 0;
  there = (struct memory_usage){.total_bytes = 0};
  played_ns += NS_PER_S;
  ck_assert_uint_eq(gpu->machine.has.total_bytes, 0);
  ck_assert_uint_eq(gpu->machine.has.pinned_bytes, 0);
  client_memory_report(0, 0, 0);
  ck_assert_uint_eq(count_sent(GS_MEM_REPORT, &report), 0);
}
END_TEST

/* As programs do that free what they keep for later, and try again. */
START_TEST(what_is_to_be_told_goes_before_a_question) {
  struct gs_msg report = wire_msg(GS_MEM_REPORT, 0);
  answers = 50;
  on_wait = put_off_then_grant;
  ck_assert_int_eq(client_memory_request(0, 500, 100, false, &seen_ns), 0);
  sent_count = 0;
  client_memory_report(0, 50, 10); /* not yet: the daemon has just been told */
  ck_assert_uint_eq(count_sent(GS_MEM_REPORT, NULL), 0);
  on_wait = refuse;
  ck_assert_int_eq(client_memory_request(0, 900, 100, false, &seen_ns), -ENOMEM);
  ck_assert_uint_eq(count_sent(GS_MEM_REPORT, &report), 1);
  ck_assert(report.mem.total_bytes == 50 && report.mem.pinned_bytes == 10);
}
END_TEST

/* Two programs that have pinned what the other waits for would wait for ever. */
START_TEST(what_can_not_leave_is_asked_for_within_the_grant) {
  answers = 50;
  on_wait = put_off_then_grant;
  ck_assert_int_eq(client_memory_request(0, 500, 0, false, &seen_ns), 0);
  sent_count = 0;
  struct gs_msg narrow = room_msg(GS_ROOM, 0, 400, 2);
  hear(&narrow);
  ck_assert_int_eq(client_memory_request(0, 550, 0, false, &seen_ns), 0); /* it can leave */
  ck_assert_uint_eq(count_sent(GS_MEM_REQUEST, NULL), 0);
  ck_assert_int_eq(client_memory_request(0, 550, 50, false, &seen_ns), 0);
  ck_assert_uint_eq(count_sent(GS_MEM_REQUEST, NULL), 1);
}
END_TEST

/* Others count with no more of it, so that it keeps nobody from running. */
START_TEST(what_can_not_leave_has_a_grant_of_its_own) {
  struct gs_msg wide = room_msg(GS_ROOM, 0, 600, 2);
  answers = 50;
  hear(&wide);
  on_wait = put_off_then_grant;
  ck_assert_int_eq(client_memory_request(0, 500, 100, false, &seen_ns), 0);
  sent_count = 0;
  ck_assert_int_eq(client_memory_request(0, 520, 120, false, &seen_ns), 0);
  ck_assert_int_eq(client_memory_request(0, 540, 120, false, &seen_ns), 0);
  ck_assert_uint_eq(count_sent(GS_MEM_REQUEST, NULL), 0);
  ck_assert_int_eq(client_memory_request(0, 541, 121, false, &seen_ns), 0);
  ck_assert_uint_eq(count_sent(GS_MEM_REQUEST, NULL), 1);
}
END_TEST

static void tell_most(void) {
  struct gs_msg msg = wire_msg(GS_MEM_REPLY, 0);
  msg.mem_reply.granted_bytes = 600;
  msg.mem_reply.knows_most = 1;
  msg.mem_reply.most_bytes = 900;
  msg.mem_reply.most_pinned_bytes = 300;
  msg.mem_reply.making_way_bytes = 200;
  hear(&msg);
}

START_TEST(what_it_could_have_is_asked_for_anew) {
  answers = 50;
  on_wait = put_off_then_grant;
  ck_assert_int_eq(client_memory_request(0, 500, 0, false, &seen_ns), 0);
  ck_assert(!client_bounds(0).knows_most);
  on_wait = tell_most;
  ck_assert_int_eq(client_memory_request(0, 500, 0, true, &seen_ns), 0);
  struct memory_bounds bounds = client_bounds(0);
  ck_assert(bounds.knows_most && bounds.most_bytes == 900 && bounds.most_pinned_bytes == 300 &&
            bounds.making_way_bytes == 200);
}
END_TEST

static void widen(void) {
  struct gs_msg msg = room_msg(GS_ROOM, 0, 800, 3);
  hear(&msg);
}

START_TEST(an_allocation_waits_for_room) {
  struct gs_msg narrow = room_msg(GS_ROOM, 0, 400, 2);
  grant(1);
  hear(&narrow);
  on_wait = widen;
  ck_assert(client_room_wait(0, 700));
  ck_assert_uint_eq(client_room_bytes(0), 800);
}
END_TEST

/* ---- random histories ---- */

struct model { /* what the daemon knows */
  uint64_t epoch, seq, room_bytes;
  bool connected, holding;
};

static void check(const struct model *model) {
  struct gs_msg released;
  ck_assert_int_eq(client.connected, model->connected);
  ck_assert(gpu->machine.holding || !gate_opened);
  ck_assert_msg(!gate_opened || !away_steps, "the gate is open, and memory is away");
  ck_assert_msg(!gate_opened || !stands_still, "the gate is open, and work stands still");
  if (!model->connected) {
    ck_assert_msg(gate_opened, "without a daemon it runs");
    return;
  }
  ck_assert_int_eq(gpu->machine.holding, model->holding);
  ck_assert_uint_eq(client_room_bytes(0), model->seq ? model->room_bytes : there.resident_bytes);
  if (!model->holding && count_sent(GS_LOCK_RELEASED, &released))
    ck_assert_uint_eq(released.epoch, model->epoch);
}

static void take_room(struct model *model, struct gs_msg *msg, uint64_t *random) {
  msg->room.room_bytes = msg->room.target_bytes = model->room_bytes = 1 + splitmix_next(random) % 1000;
  msg->room.room_seq = ++model->seq;
  hear(msg);
}

static void say(struct model *model, uint64_t *random) {
  struct gs_msg msg = wire_msg(GS_ROOM, 0);
  bool other = splitmix_next(random) % 4 == 0;
  endless = splitmix_next(random) % 2;
  switch (splitmix_next(random) % 6) {
  case 0:
    if (model->holding)
      break;
    msg.type = GS_LOCK_OK;
    msg.epoch = ++model->epoch;
    model->holding = true;
    away_steps = splitmix_next(random) % 4;
    take_room(model, &msg, random);
    break;
  case 1:
    msg.type = GS_DROP_LOCK;
    msg.epoch = model->epoch - other;
    model->holding &= other;
    take_room(model, &msg, random);
    break;
  case 2:
    take_room(model, &msg, random);
    break;
  case 3:
    msg.gpu = GS_GPUS_PER_CLIENT + splitmix_next(random) % 100;
    msg.type = (uint16_t)(splitmix_next(random) % 64);
    if (msg.type != GS_REGISTERED && msg.type != GS_REJECTED && msg.type != GS_EVICTED)
      hear(&msg);
    break;
  case 4:
    hear_letter(&(struct letter){.err = -ENOSYS, .msg = msg});
    break;
  case 5:
    if (other)
      lose();
    model->connected = client.connected;
    break;
  }
}

START_TEST(random_histories) {
  const char *given = getenv("GPUSHARE_SEED");
  uint64_t random = given ? strtoull(given, NULL, 0) : (uint64_t)getpid() << 20 | (uint64_t)_i;
  printf("GPUSHARE_SEED=%llu\n", (unsigned long long)random);
  fflush(stdout);
  struct model model = {.connected = true};
  for (int i = 0; i < 400; i++) {
    if (model.connected)
      say(&model, &random);
    work(splitmix_next(&random) % 2 * NS_PER_MS);
    check(&model);
    if (!model.connected && splitmix_next(&random) % 2) { /* it goes on holding, and says so */
      played_ns += NS_PER_S;
      connect_played();
      model = (struct model){.connected = true, .holding = gpu->machine.holding};
    }
    if (sent_count > SENT_MOST / 2)
      sent_count = 0;
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("messages");
  TCase *cases = tcase_create("messages");
  const TTest *const tests[] = {a_grant_is_for_when_the_memory_is_there,
                                a_drop_is_obeyed_once_and_only_if_it_is_of_this_grant,
                                only_the_idle_give_way_and_only_to_somebody,
                                the_lock_is_asked_for_where_something_waits,
                                work_that_stands_still_goes_on_without_a_daemon,
                                what_may_not_be_stopped_finishes,
                                a_drain_in_which_somebody_passed_is_done_again,
                                captures_end_before_a_drain,
                                what_a_lost_daemon_has_said_is_void,
                                an_evicted_job_waits,
                                what_is_not_understood_is_passed_over,
                                a_lowered_room_is_acknowledged,
                                what_was_to_leave_and_is_gone_is_told,
                                an_heir_comes_with_a_room,
                                a_card_that_is_short_for_long_is_told_once,
                                steps_let_single_calls_pass,
                                without_a_daemon_there_are_no_steps,
                                work_that_reaches_other_gpus_is_drained_there_too,
                                a_raw_clone_does_not_speak_for_its_parent,
                                a_question_that_is_put_off_is_waited_for,
                                a_question_ends_with_the_connection,
                                a_refused_question_changes_nothing,
                                what_is_to_be_told_goes_before_a_question,
                                what_can_not_leave_is_asked_for_within_the_grant,
                                what_can_not_leave_has_a_grant_of_its_own,
                                what_it_could_have_is_asked_for_anew,
                                an_allocation_waits_for_room};
  tcase_add_checked_fixture(cases, set_up, tear_down);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    tcase_add_test(cases, tests[i]);
  tcase_add_loop_test(cases, random_histories, 0, 20);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
