/* test_daemon_terms.c - the real daemon, asked over its socket: what programs declare, what is set for their
 * jobs, what is learnt from their runs. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)

static struct daemon_process daemon_process, *const it = &daemon_process;

static void start(const char *const *arguments) {
  if (it->pid)
    daemon_clean_up(it);
  daemon_start(it, arguments);
}

static void set_up(void) { start((const char *const[]){"--host-memory", "1T", NULL}); }

static void tear_down(void) { daemon_clean_up(it); }

static struct gs_msg terms(void) { return get_status(it, GS_STATUS_TERMS); }

static void declare(int fd, uint32_t weight, int32_t priority, uint64_t expected_ns, uint64_t limit_bytes) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.weight = weight;
  msg.declare.priority = priority;
  msg.declare.expected_ns = expected_ns;
  msg.declare.limit_bytes = limit_bytes;
  tell(fd, &msg);
}

static void given(uint32_t weight, int32_t priority, uint64_t remaining_ns, uint64_t limit_bytes) {
  struct gs_msg msg = terms();
  ck_assert_uint_eq(msg.type, GS_STATUS_TERMS);
  ck_assert_uint_eq(msg.terms_status.job, get_status(it, GS_STATUS_JOB).job_status.job);
  ck_assert_uint_eq(msg.terms_status.weight, weight);
  ck_assert_int_eq(msg.terms_status.priority, priority);
  ck_assert_uint_eq(msg.terms_status.remaining_ns, remaining_ns);
  ck_assert_uint_eq(msg.terms_status.limit_bytes, limit_bytes);
}

/* ---- declarations ---- */

TEST(who_declares_nothing_gets_the_defaults) {
  attach_client(it, GIB);
  given(GS_WEIGHT_DEFAULT, 0, 0, 0);
}

TEST(a_declaration_counts_for_gpus_now_and_later) {
  int fd = register_client(it);
  declare(fd, 300, -5, 50 * NS_PER_S, 8 * GIB);
  ck_assert_uint_eq(attach_card(fd, 1, GIB, GS_ATTACH_MANAGED).attached.capacity_bytes, 8 * GIB);
  given(300, -5, 50 * NS_PER_S, 8 * GIB);
  expect(fd, GS_LOCK_OK);
  ck_assert_uint_eq(expect(fd, GS_SHARE).share.slice_us, 6144);
  declare(fd, 200, 7, 0, 0);
  ck_assert_uint_eq(expect(fd, GS_SHARE).share.slice_us, 4096);
  ck_assert_uint_eq(expect(fd, GS_CAPACITY).attached.capacity_bytes, 16 * GIB);
  given(200, 7, 0, 0);
  declare(fd, UINT32_MAX, INT32_MIN, 0, 0);
  ck_assert_uint_eq(expect(fd, GS_SHARE).share.slice_us, 204800);
  given(GS_WEIGHT_MAX, -GS_PRIORITY_MAX, 0, 0);
  expect_silence(it, fd);
}

TEST(only_clients_declare) {
  int fd = connect_to(it);
  declare(fd, 1, 0, 0, 0);
  expect_end(fd);
  fd = register_client(it);
  set_terms(it, 1, GS_TERM_WEIGHT, 1);
  tell_simple(fd, GS_SET_TERMS);
  expect_end(fd);
}

/* ---- limits ---- */

static struct gs_msg answer_to(int fd, uint64_t total_bytes) {
  struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
  msg.mem.total_bytes = total_bytes;
  tell(fd, &msg);
  return expect(fd, GS_MEM_REPLY);
}

static int ask_for(int fd, uint64_t total_bytes) { return answer_to(fd, total_bytes).status; }

TEST(memory_has_a_limit) {
  int fd = attach_client(it, GIB);
  uint32_t job = get_status(it, GS_STATUS_JOB).job_status.job;
  expect(fd, GS_LOCK_OK);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_LIMIT, 4 * GIB), 0);
  struct gs_msg capacity = expect(fd, GS_CAPACITY);
  ck_assert_uint_eq(capacity.attached.capacity_bytes, 4 * GIB);
  ck_assert_uint_eq(capacity.attached.limited, 1);
  struct gs_msg refused = answer_to(fd, 4 * GIB + 1);
  ck_assert_int_eq(refused.status, -ENOMEM);
  ck_assert_uint_eq(refused.mem_reply.why, GS_REFUSAL_LIMIT);
  ck_assert_int_eq(ask_for(fd, 4 * GIB), 0);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_LIMIT, 2 * GIB), 0);
  expect(fd, GS_CAPACITY);
  ck_assert_uint_eq(get_status(it, GS_STATUS_JOB).job_status.used_bytes, 4 * GIB);
  ck_assert_int_eq(ask_for(fd, 4 * GIB + 1), -ENOMEM);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_LIMIT, 0), 0);
  capacity = expect(fd, GS_CAPACITY);
  ck_assert_uint_eq(capacity.attached.capacity_bytes, 16 * GIB);
  ck_assert_uint_eq(capacity.attached.limited, 0);
  ck_assert_int_eq(ask_for(fd, 5 * GIB), 0);
}

TEST(it_counts_with_what_it_says_it_will_have) {
  int fd = register_client(it);
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.expected_bytes = 4 * GIB;
  tell(fd, &msg);
  attach_card(fd, 1, GIB, GS_ATTACH_MANAGED);
  expect(fd, GS_LOCK_OK);
  ck_assert_uint_eq(get_status(it, GS_STATUS_WAIT).wait_status.expected_bytes, 4 * GIB);
  uint32_t job = get_status(it, GS_STATUS_JOB).job_status.job;
  ck_assert_int_eq(set_terms(it, job, GS_TERM_EXPECTED_MEMORY, 3 * GIB), 0);
  ck_assert_uint_eq(get_status(it, GS_STATUS_WAIT).wait_status.expected_bytes, 3 * GIB);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_EXPECTED_MEMORY, 0), 0);
  ck_assert_uint_eq(get_status(it, GS_STATUS_WAIT).wait_status.expected_bytes, GIB);
}

static int register_needing(uint64_t bytes) {
  int fd = register_client(it);
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.expected_bytes = bytes;
  tell(fd, &msg);
  return fd;
}

/* Of 17 GiB, card and host. */
TEST(for_what_it_says_it_needs_it_waits) {
  start((const char *const[]){"--host-memory", "1G", NULL});
  int first = register_needing(12 * GIB), second = register_needing(8 * GIB);
  attach_card(first, 1, 0, GS_ATTACH_MANAGED);
  expect(first, GS_LOCK_OK);
  attach_card(second, 1, 0, GS_ATTACH_MANAGED);
  expect(second, GS_LOCK_OK);
  ck_assert_int_eq(ask_for(first, GIB), 0);
  ck_assert_int_eq(ask_for(second, GIB), -EAGAIN);
  ck_assert_uint_eq(get_status(it, GS_STATUS_JOB).job_status.used_bytes, GIB);
  expect_silence(it, second);
  close(first);
  struct gs_msg reply = expect(second, GS_MEM_REPLY);
  ck_assert_int_eq(reply.status, 0);
  ck_assert_uint_ge(reply.mem_reply.granted_bytes, GIB);
  ck_assert_uint_eq(get_status(it, GS_STATUS_JOB).job_status.used_bytes, GIB);
}

/* The one before it gives up without any event of its GPU; the next event is another GPU's coming. */
TEST(a_gpu_that_comes_loses_no_answer) {
  start((const char *const[]){"--host-memory", "1G", NULL});
  int holder = attach_client(it, 8 * GIB), first = register_needing(16 * GIB), second = register_needing(GIB);
  expect(holder, GS_LOCK_OK);
  attach_card(first, 1, 0, GS_ATTACH_MANAGED);
  expect(first, GS_LOCK_OK);
  attach_card(second, 1, 0, GS_ATTACH_MANAGED);
  expect(second, GS_LOCK_OK);
  ck_assert_int_eq(ask_for(first, 16 * GIB), -EAGAIN);
  ck_assert_int_eq(ask_for(second, GIB), -EAGAIN);
  ck_assert_int_eq(ask_for(first, UINT64_C(1) << 43), -ENOMEM);
  attach_card(register_client(it), 2, 0, GS_ATTACH_MANAGED);
  struct gs_msg reply = expect(second, GS_MEM_REPLY);
  ck_assert_int_eq(reply.status, 0);
  ck_assert_uint_ge(reply.mem_reply.granted_bytes, GIB);
}

/* Others may wait for that. */
TEST(who_has_memory_on_another_gpu_does_not_wait) {
  start((const char *const[]){"--host-memory", "1G", NULL});
  int first = register_needing(12 * GIB), second = register_needing(8 * GIB);
  attach_card(first, 1, 0, GS_ATTACH_MANAGED);
  expect(first, GS_LOCK_OK);
  ck_assert_int_eq(ask_for(first, GIB), 0);
  struct gs_msg msg = wire_msg(GS_ATTACH, 1);
  msg.attach.uuid[0] = 2;
  msg.attach.total_bytes = 16 * GIB;
  msg.attach.used_bytes = GIB;
  tell(second, &msg);
  expect(second, GS_ATTACHED);
  expect(second, GS_SCHED_OFF);
  expect(second, GS_LOCK_OK);
  attach_card(second, 1, 0, GS_ATTACH_MANAGED);
  expect(second, GS_LOCK_OK);
  msg = wire_msg(GS_MEM_REQUEST, 0);
  msg.mem.total_bytes = GIB;
  tell(second, &msg);
  expect(second, GS_SCHED_ON);
  ck_assert_int_eq(expect(second, GS_MEM_REPLY).status, 0);
}

TEST(a_soft_limit_is_no_limit) {
  int fd = register_client(it);
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.soft_limit_bytes = 2 * GIB;
  tell(fd, &msg);
  ck_assert_uint_eq(attach_card(fd, 1, GIB, GS_ATTACH_MANAGED).attached.capacity_bytes, 16 * GIB);
  expect(fd, GS_LOCK_OK);
  ck_assert_uint_eq(terms().terms_status.soft_limit_bytes, 2 * GIB);
  ck_assert_int_eq(ask_for(fd, 4 * GIB), 0);
  ck_assert_int_eq(set_terms(it, get_status(it, GS_STATUS_JOB).job_status.job, GS_TERM_SOFT_LIMIT, 3 * GIB),
                   0);
  ck_assert_uint_eq(terms().terms_status.soft_limit_bytes, 3 * GIB);
  given(GS_WEIGHT_DEFAULT, 0, 0, 0);
  expect_silence(it, fd); /* to the program nothing has changed */
}

/* ---- gpusharectl ---- */

TEST(what_is_set_counts_more) {
  int fd = attach_client(it, GIB);
  uint32_t job = get_status(it, GS_STATUS_JOB).job_status.job;
  ck_assert_int_eq(set_terms(it, job, GS_TERM_PRIORITY, (uint64_t)-3), 0);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_EXPECTED, 9 * NS_PER_S), 0);
  given(GS_WEIGHT_DEFAULT, -3, 9 * NS_PER_S, 0);
  declare(fd, 500, 12, NS_PER_S, 0);
  given(500, -3, 9 * NS_PER_S, 0);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_WEIGHT, 20), 0);
  given(20, -3, 9 * NS_PER_S, 0);
}

/* By its slices of time it gets that beside others. */
TEST(the_weight_is_a_slice_whether_turns_are_taken_or_not) {
  int fd = attach_client(it, GIB);
  uint32_t job = get_status(it, GS_STATUS_JOB).job_status.job;
  expect(fd, GS_LOCK_OK);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_WEIGHT, 20), 0);
  ck_assert_uint_eq(expect(fd, GS_SHARE).share.slice_us, 409);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_PRIORITY, 2), 0);
  expect_silence(it, fd);
  ck_assert_int_eq(change_setting(it, GS_SET_MODE, GS_MODE_ON), 0);
  expect(fd, GS_CAPACITY); /* with the mode */
  expect(fd, GS_SCHED_ON);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_WEIGHT, 30), 0);
  ck_assert_uint_eq(expect(fd, GS_SHARE).share.slice_us, 614);
  ck_assert_int_eq(change_setting(it, GS_SET_MODE, GS_MODE_OFF), 0);
  expect(fd, GS_CAPACITY);
  expect(fd, GS_SCHED_OFF);
  expect_silence(it, fd);
}

TEST(wrong_orders_are_refused) {
  attach_client(it, GIB);
  uint32_t job = get_status(it, GS_STATUS_JOB).job_status.job;
  ck_assert_int_eq(set_terms(it, job + 1, GS_TERM_WEIGHT, 10), -ENOENT);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_WEIGHT, 0), -EINVAL);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_PRIORITY, 21), -EINVAL);
  ck_assert_int_eq(set_terms(it, job, 77, 1), -EINVAL);
  given(GS_WEIGHT_DEFAULT, 0, 0, 0);
}

#define OWNER 65534
#define STRANGER 65533

/* A client of somebody who may not change settings: the socket says who it was that connected. -1: only root
 * can be somebody else. */
static int register_as(uid_t uid) {
  if (geteuid() != 0 || setegid(uid) < 0 || seteuid(uid) < 0)
    return -1;
  int fd = register_client(it);
  ck_assert(seteuid(0) == 0 && setegid(0) == 0);
  return fd;
}

/* It asks for weight 500 and priority 12. */
static void attach_with_wishes(int fd) {
  declare(fd, 500, 12, 0, 0);
  attach_card(fd, 1, GIB, GS_ATTACH_MANAGED);
}

TEST(what_programs_ask_for_has_bounds) {
  start((const char *const[]){"--max-weight", "200", "--max-priority", "5", NULL});
  int fd = register_as(OWNER);
  if (fd < 0)
    return;
  attach_with_wishes(fd);
  given(200, 5, 0, 0);
  declare(fd, 201, -12, 0, 0);
  given(200, -12, 0, 0);
  uint32_t job = get_status(it, GS_STATUS_JOB).job_status.job;
  ck_assert_int_eq(set_terms(it, job, GS_TERM_WEIGHT, 5000), 0);
  given(5000, -12, 0, 0);
}

static enum gs_class given_class(void) { return (enum gs_class)terms().terms_status.class; }

static void declare_production(int fd) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.class = GS_CLASS_PRODUCTION;
  tell(fd, &msg);
}

/* As a lab has it. */
TEST(by_default_nobody_asks_for_more) {
  int fd = register_as(OWNER);
  if (fd < 0)
    return;
  attach_with_wishes(fd);
  given(GS_WEIGHT_DEFAULT, 0, 0, 0);
  declare_production(fd);
  ck_assert_int_eq(given_class(), GS_CLASS_STANDARD);
}

TEST(who_may_change_settings_asks_for_what_it_likes) {
  int fd = register_client(it);
  attach_with_wishes(fd);
  given(500, 12, 0, 0);
  declare_production(fd);
  ck_assert_int_eq(given_class(), GS_CLASS_PRODUCTION);
}

TEST(a_user_has_bounds_of_its_own) {
  int fd = register_as(OWNER);
  if (fd < 0)
    return;
  attach_card(fd, 1, GIB, GS_ATTACH_MANAGED);
  expect(fd, GS_LOCK_OK);
  daemon_configure(it, "[user 65534]\nmax_weight = 300\nmax_priority = 7\nproduction = yes\nmax_jobs = 1\n");
  expect(fd, GS_CAPACITY); /* the settings are applied anew */
  declare(fd, 500, 12, 0, 0);
  given(300, 7, 0, 0);
  declare_production(fd);
  ck_assert_int_eq(given_class(), GS_CLASS_PRODUCTION);
  ck_assert(seteuid(OWNER) == 0);
  int second = connect_to(it);
  ck_assert(seteuid(0) == 0);
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  tell(second, &msg);
  struct gs_msg answer = expect(second, GS_REJECTED);
  ck_assert_uint_eq(answer.registered.reason, GS_REJECT_LIMIT);
  ck_assert_uint_eq(answer.registered.value, 1);
}

/* Of both of its jobs together. */
TEST(a_user_has_a_limit_of_memory) {
  int one = register_as(OWNER), two = register_as(OWNER);
  if (one < 0)
    return;
  attach_card(one, 1, GIB, GS_ATTACH_MANAGED);
  attach_card(two, 1, GIB, GS_ATTACH_MANAGED);
  expect(one, GS_LOCK_OK);
  daemon_configure(it, "[user 65534]\nmax_memory = 3G\n");
  expect(one, GS_CAPACITY);
  struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
  msg.mem.total_bytes = 3 * GIB;
  tell(one, &msg);
  struct gs_msg answer = expect(one, GS_MEM_REPLY);
  ck_assert_int_eq(answer.status, -ENOMEM);
  ck_assert_uint_eq(answer.mem_reply.why, GS_REFUSAL_LIMIT);
  msg.mem.total_bytes = 2 * GIB;
  tell(one, &msg);
  ck_assert_int_eq(expect(one, GS_MEM_REPLY).status, 0);
}

/* Do at once what has been told. Returns how many messages there were. */
static unsigned obey_all(const int *fds, int count, unsigned *grants) {
  unsigned heard = 0;
  for (int i = 0; i < count; i++) {
    struct gs_msg msg;
    while (recv(fds[i], &msg, sizeof msg, MSG_DONTWAIT) == sizeof msg) {
      heard++;
      grants[i] += msg.type == GS_LOCK_OK;
      if (msg.type == GS_LOCK_OK)
        tell_active(fds[i], msg.epoch);
      if (msg.type != GS_DROP_LOCK)
        continue;
      struct gs_msg released = wire_msg(GS_LOCK_RELEASED, 0);
      released.epoch = msg.epoch;
      tell(fds[i], &released);
      tell_simple(fds[i], GS_REQ_LOCK);
    }
  }
  return heard;
}

/* One job of a user has as many turns as 100 of another one. */
TEST(users_take_turns) {
  enum { JOBS = 101, ALONE = 100, TURNS = 20 };
  unsigned grants[JOBS] = {0}, sum = 0;
  int fds[JOBS];
  start((const char *const[]){"--mode", "on", "--tq", "20ms", NULL});
  for (int i = 0; i < JOBS; i++) {
    fds[i] = register_as(i == ALONE ? STRANGER : OWNER);
    if (fds[i] < 0)
      return;
    attach_card(fds[i], 1, 0, GS_ATTACH_MANAGED);
  }
  for (int i = 0; i < JOBS; i++)
    tell_simple(fds[i], GS_REQ_LOCK);
  while (sum < TURNS) { /* the suite has a bound for how long */
    if (obey_all(fds, JOBS, grants) == 0)
      poll(NULL, 0, 1);
    sum = 0;
    for (int i = 0; i < JOBS; i++)
      sum += grants[i];
  }
  ck_assert_uint_ge(grants[ALONE], TURNS / 2 - 3);
}

TEST(bounds_can_change) {
  int fd = register_as(OWNER);
  if (fd < 0)
    return;
  attach_with_wishes(fd);
  given(GS_WEIGHT_DEFAULT, 0, 0, 0);
  expect(fd, GS_LOCK_OK);
  daemon_configure(it, "max_weight = 300\nmax_priority = 7\n");
  expect(fd, GS_CAPACITY); /* the settings are applied anew */
  ck_assert_uint_eq(expect(fd, GS_SHARE).share.slice_us, 6144);
  given(300, 7, 0, 0);
}

/* A client of another user, until the other end of *control is closed. */
static pid_t attach_as(uid_t uid, int control[2]) {
  ck_assert_int_eq(pipe(control), 0);
  pid_t child = fork();
  if (child == 0) {
    char byte;
    close(control[1]);
    if (setgid(uid) < 0 || setuid(uid) < 0)
      _exit(255);
    attach_client(it, GIB);
    if (read(control[0], &byte, 1) < 0)
      _exit(254);
    _exit(0);
  }
  close(control[0]);
  while (get_status(it, GS_STATUS_JOB).type == 0)
    poll(NULL, 0, 1);
  return child;
}

static int set_terms_as(uid_t uid, uint32_t job, uint32_t term, uint64_t value) {
  pid_t child = fork();
  if (child == 0)
    _exit(setgid(uid) < 0 || setuid(uid) < 0 ? 255 : -set_terms(it, job, term, value));
  int status;
  waitpid(child, &status, 0);
  return -WEXITSTATUS(status);
}

static int evict_as(uid_t uid, uint32_t job) {
  pid_t child = fork();
  if (child == 0)
    _exit(setgid(uid) < 0 || setuid(uid) < 0 ? 255 : -evict(it, job));
  int status;
  waitpid(child, &status, 0);
  return -WEXITSTATUS(status);
}

TEST(owners_may_evict_their_own) {
  int control[2];
  if (geteuid() != 0)
    return;
  pid_t client = attach_as(OWNER, control);
  uint32_t job = get_status(it, GS_STATUS_JOB).job_status.job;
  ck_assert_int_eq(evict_as(STRANGER, job), -EACCES);
  ck_assert_int_eq(evict_as(OWNER, job + 1), -ENOENT);
  ck_assert_uint_eq(get_status(it, GS_STATUS_JOB).job_status.job, job);
  ck_assert_int_eq(evict_as(OWNER, job), 0);
  ck_assert_uint_eq(get_status(it, GS_STATUS_JOB).type, 0);
  close(control[1]);
  waitpid(client, NULL, 0);
}

TEST(owners_may_ask_for_less) {
  int control[2];
  if (geteuid() != 0)
    return; /* only root can be somebody else */
  pid_t client = attach_as(OWNER, control);
  uint32_t job = get_status(it, GS_STATUS_JOB).job_status.job;
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_WEIGHT, 101), -EACCES);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_WEIGHT, 50), 0);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_WEIGHT, 60), -EACCES);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_PRIORITY, 1), -EACCES);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_PRIORITY, (uint64_t)-1), 0);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_EXPECTED, NS_PER_S), 0);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_LIMIT, 3 * GIB), 0);
  given(50, -1, NS_PER_S, 3 * GIB);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_LIMIT, 2 * GIB), 0);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_LIMIT, 3 * GIB), -EACCES);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_CLASS, GS_CLASS_OPPORTUNISTIC), 0);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_RATE, 1), -EACCES);
  ck_assert_int_eq(set_terms_as(STRANGER, job, GS_TERM_WEIGHT, 10), -EACCES);
  ck_assert_int_eq(set_terms_as(STRANGER, job, GS_TERM_EXPECTED, 10), -EACCES);
  ck_assert_int_eq(set_terms_as(STRANGER, job, GS_TERM_PAUSED, 1), -EACCES);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_PAUSED, 1), 0);
  ck_assert_int_eq(set_terms_as(STRANGER, job, GS_TERM_PAUSED, 0), -EACCES);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_PAUSED, 0), 0);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_PAUSED, 1), 0);
  ck_assert_int_eq(set_terms_as(OWNER, job, GS_TERM_PAUSED, 0), -EACCES);
  given(50, -1, NS_PER_S, 2 * GIB);
  close(control[1]);
  waitpid(client, NULL, 0);
}

/* ---- learning ---- */

static int run_command(uint64_t command_hash) {
  int fd = connect_to(it);
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  msg.reg.command_hash = command_hash;
  tell(fd, &msg);
  expect(fd, GS_REGISTERED);
  attach_card(fd, 1, GIB, GS_ATTACH_MANAGED);
  tell_active(fd, expect(fd, GS_LOCK_OK).epoch);
  return fd;
}

TEST(what_it_has_had_is_not_left) {
  run_command(0);
  uint32_t job = get_status(it, GS_STATUS_JOB).job_status.job;
  ck_assert_int_eq(set_terms(it, job, GS_TERM_EXPECTED, 100 * NS_PER_S), 0);
  while (terms().terms_status.gpu_ns == 0)
    poll(NULL, 0, 1);
  struct gs_msg msg = terms();
  ck_assert_uint_eq(msg.terms_status.remaining_ns + msg.terms_status.gpu_ns, 100 * NS_PER_S);
  ck_assert_int_eq(set_terms(it, job, GS_TERM_EXPECTED, 1), 0);
  ck_assert_uint_eq(terms().terms_status.remaining_ns, 0); /* it takes longer: unknown */
}

static uint64_t expected_of_next_run(uint64_t command_hash) {
  int fd = run_command(command_hash);
  struct gs_msg msg = terms();
  close(fd);
  while (get_status(it, GS_STATUS_JOB).type != 0)
    poll(NULL, 0, 1);
  return msg.terms_status.remaining_ns ? msg.terms_status.remaining_ns + msg.terms_status.gpu_ns : 0;
}

static void run_for_a_second(uint64_t command_hash) {
  int fd = run_command(command_hash);
  while (terms().terms_status.gpu_ns <= NS_PER_S)
    poll(NULL, 0, 10);
  close(fd);
  while (get_status(it, GS_STATUS_JOB).type != 0)
    poll(NULL, 0, 1);
}

TEST(a_run_teaches_what_the_next_one_takes) {
  ck_assert_uint_eq(expected_of_next_run(7), 0);
  run_for_a_second(7);
  uint64_t expected_ns = expected_of_next_run(7);
  ck_assert_uint_gt(expected_ns, NS_PER_S);
  ck_assert_uint_lt(expected_ns, 10 * NS_PER_S);
  ck_assert_uint_eq(expected_of_next_run(8), 0);
}

TEST(learning_can_be_switched_off) {
  start((const char *const[]){"--learn", "no", NULL});
  run_for_a_second(7);
  ck_assert_uint_eq(expected_of_next_run(7), 0);
}

int main(void) { return suite_run_all("daemon_terms", set_up, tear_down); }
