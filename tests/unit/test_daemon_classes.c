/*
 * test_daemon_classes.c - the real daemon and the meter pages of clients that the test plays: what is in
 * them, and what opportunistic jobs may use beside production jobs.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/futex.h"
#include "common/wire.h"
#include "daemon_process.h"
#include "gpushare/meter.h"
#include "suite.h"

#define MIB (UINT64_C(1) << 20)
#define PATIENCE_NS (20 * NS_PER_S)

static struct daemon_process daemon_process, *const it = &daemon_process;

static void set_up(void) { daemon_start(it, (const char *const[]){NULL}); }

static void tear_down(void) { daemon_clean_up(it); }

struct client {
  int fd, page_fd;
  uint32_t job;
  struct gs_meter *page;
};

/* ---- coming ---- */

static struct gs_meter *map(int fd) {
  void *at = mmap(NULL, GS_METER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ck_assert_ptr_ne(at, MAP_FAILED);
  return at;
}

static void receive_page(struct client *client) {
  struct pollfd readable = {.fd = client->fd, .events = POLLIN};
  struct gs_msg msg;
  ck_assert_int_eq(poll(&readable, 1, 20000), 1);
  ck_assert_int_eq(wire_recv_passed(client->fd, &msg, &client->page_fd), 0);
  ck_assert_int_eq(msg.type, GS_ATTACHED);
  ck_assert_int_ge(client->page_fd, 0);
  client->page = map(client->page_fd);
}

static void declare(const struct client *client, enum gs_class class) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.class = class;
  tell(client->fd, &msg);
}

static struct client come(enum gs_class class) {
  struct client client = {.fd = connect_to(it)};
  tell_simple(client.fd, GS_REGISTER);
  client.job = expect(client.fd, GS_REGISTERED).registered.job;
  declare(&client, class);
  struct gs_msg attach = wire_msg(GS_ATTACH, 0);
  attach.attach.uuid[0] = 1;
  attach.attach.total_bytes = 64 * MIB;
  attach.attach.flags = GS_ATTACH_MANAGED;
  tell(client.fd, &attach);
  receive_page(&client);
  expect(client.fd, GS_SCHED_OFF);
  tell_active(client.fd, expect(client.fd, GS_LOCK_OK).epoch);
  return client;
}

/* It reads its page, as libunified does, and works. */
static void play(struct client *client) {
  atomic_store(&client->page->seen_limit, atomic_load(&client->page->limit_seq));
  atomic_store(&client->page->idle, 0);
}

static void rest(struct client *client) { atomic_store(&client->page->idle, 1); }

/* ---- what is told ---- */

static bool has_limit(const struct gs_meter *page, uint64_t limit) {
  return atomic_load(&page->limit) == limit;
}
static bool is_wanted(const struct gs_meter *page, uint64_t wanted) {
  return atomic_load(&page->wanted) == wanted;
}
static bool is_undisturbed(const struct gs_meter *page, uint64_t undisturbed) {
  return atomic_load(&page->undisturbed) == undisturbed;
}

/* Who waits in the page is woken when it changes: nothing else ends a wait here before all patience does. */
static void await(const struct client *client, bool (*is)(const struct gs_meter *page, uint64_t value),
                  uint64_t value) {
  uint64_t end_ns = clock_now_ns() + PATIENCE_NS;
  for (;;) {
    uint32_t seq = atomic_load(&client->page->limit_seq);
    if (is(client->page, value))
      return;
    ck_assert(clock_now_ns() < end_ns);
    futex_wait_shared(&client->page->limit_seq, seq, 2 * PATIENCE_NS);
    ck_assert_msg(clock_now_ns() < end_ns, "nobody is woken");
  }
}

#define WHOLE (GS_LIMIT_WIDE - 1)

static void await_idle_gpu(const struct client *client) { await(client, has_limit, WHOLE); }
static void await_pause(const struct client *client) { await(client, has_limit, 0); }
static void await_freedom(const struct client *client) { await(client, has_limit, GS_LIMIT_NONE); }

/* ---- the page ---- */

START_TEST(a_page_comes_with_each_attachment) {
  struct client client = come(GS_CLASS_STANDARD);
  struct stat file;
  ck_assert_int_eq(fstat(client.page_fd, &file), 0);
  ck_assert_int_eq(file.st_size, GS_METER_SIZE);
  ck_assert_int_lt(ftruncate(client.page_fd, 0), 0);
  ck_assert_int_lt(ftruncate(client.page_fd, 2 * GS_METER_SIZE), 0);
  ck_assert_int_lt(fcntl(client.page_fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
  ck_assert_uint_eq(client.page->version, GS_METER_VERSION);
  ck_assert_uint_ne(client.page->limit_seq, 0);
  ck_assert(has_limit(client.page, GS_LIMIT_NONE) && is_wanted(client.page, 0));
}
END_TEST

START_TEST(nobody_looks_unless_both_classes_are_there) {
  struct client production = come(GS_CLASS_PRODUCTION), standard = come(GS_CLASS_STANDARD);
  get_status(it, GS_STATUS_DAEMON);
  ck_assert(is_wanted(production.page, 0));
  struct client opportunistic = come(GS_CLASS_OPPORTUNISTIC);
  await(&production, is_wanted, 1);
  await(&opportunistic, is_wanted, 1);
  ck_assert(is_wanted(standard.page, 0));
  ck_assert(has_limit(standard.page, GS_LIMIT_NONE) && has_limit(production.page, GS_LIMIT_NONE));
  close(opportunistic.fd);
  await(&production, is_wanted, 0);
}
END_TEST

/* Neither here nor there are counters that make sense. */
START_TEST(wild_pages_hurt_nobody_else) {
  struct client production = come(GS_CLASS_PRODUCTION), opportunistic = come(GS_CLASS_OPPORTUNISTIC);
  for (int i = 0; i < 200; i++) {
    struct gs_meter *pages[] = {production.page, opportunistic.page};
    for (int j = 0; j < 2; j++)
      memset((char *)pages[j] + 64, i % 2 ? 0xff : i, GS_METER_SIZE - 64);
    get_status(it, GS_STATUS_DAEMON);
    poll(NULL, 0, 1);
  }
  close(production.fd);
  await_freedom(&opportunistic);
}
END_TEST

/* ---- limits ---- */

START_TEST(a_job_waits_while_production_is_measured) {
  struct client opportunistic = come(GS_CLASS_OPPORTUNISTIC);
  ck_assert_uint_eq(get_status(it, GS_STATUS_WAIT).wait_status.limited, GS_LIMITED_NOT);
  struct client production = come(GS_CLASS_PRODUCTION);
  play(&production);
  await(&production, is_undisturbed, 1);
  ck_assert(has_limit(opportunistic.page, 0));
  struct gs_msg wait = get_status(it, GS_STATUS_WAIT); /* of the first job */
  ck_assert_uint_eq(wait.wait_status.limited, GS_LIMITED_MEASURE);
  ck_assert_uint_eq(wait.wait_status.limit, 0);
  ck_assert_uint_eq(wait.wait_status.limited_for, production.job);
  close(production.fd);
  await_freedom(&opportunistic);
}
END_TEST

START_TEST(it_has_all_of_the_gpu_while_production_is_idle) {
  struct client production = come(GS_CLASS_PRODUCTION);
  play(&production);
  struct client opportunistic[] = {come(GS_CLASS_OPPORTUNISTIC), come(GS_CLASS_OPPORTUNISTIC)};
  for (int i = 0; i < 2; i++) {
    rest(&production);
    await_idle_gpu(&opportunistic[0]);
    await_idle_gpu(&opportunistic[1]);
    play(&production);
    await_pause(&opportunistic[0]);
    await_pause(&opportunistic[1]);
  }
}
END_TEST

START_TEST(nobody_waits_for_who_never_reads_its_page) {
  come(GS_CLASS_PRODUCTION);
  struct client opportunistic = come(GS_CLASS_OPPORTUNISTIC);
  await_idle_gpu(&opportunistic);
}
END_TEST

/* In a process tree of its own, as in a container, where no other process has a number. */
static pid_t start_apart(void (*live)(int told), int *heard) {
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    int status = 0;
    if (unshare(CLONE_NEWPID) < 0)
      _exit(77);
    pid_t first = fork();
    if (first == 0) {
      live(ends[1]);
      _exit(0);
    }
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  close(ends[1]);
  *heard = ends[0];
  return child;
}

static void play_opportunistic(int told) {
  struct client client = come(GS_CLASS_OPPORTUNISTIC);
  await_idle_gpu(&client);
  ck_assert_int_eq(write(told, "", 1), 1);
  await_pause(&client);
  ck_assert_int_eq(write(told, "", 1), 1);
  await_freedom(&client);
}

START_TEST(jobs_are_limited_across_pid_namespaces) {
  struct client production = come(GS_CLASS_PRODUCTION);
  int heard, status;
  char byte;
  play(&production);
  rest(&production);
  pid_t child = start_apart(play_opportunistic, &heard);
  if (read(heard, &byte, 1) == 1) {
    play(&production);
    ck_assert_int_eq(read(heard, &byte, 1), 1);
    tell_simple(production.fd, GS_DETACH);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(WIFEXITED(status));
  ck_assert(WEXITSTATUS(status) == 0 || (WEXITSTATUS(status) == 77 && geteuid() != 0));
}
END_TEST

START_TEST(a_class_that_changes_counts_at_once) {
  struct client production = come(GS_CLASS_STANDARD), opportunistic = come(GS_CLASS_OPPORTUNISTIC);
  play(&production);
  ck_assert(has_limit(opportunistic.page, GS_LIMIT_NONE));
  declare(&production, GS_CLASS_PRODUCTION);
  await_pause(&opportunistic);
  declare(&opportunistic, GS_CLASS_STANDARD);
  await_freedom(&opportunistic);
  declare(&opportunistic, GS_CLASS_OPPORTUNISTIC);
  await_pause(&opportunistic);
  declare(&production, GS_CLASS_OPPORTUNISTIC);
  await_freedom(&opportunistic);
}
END_TEST

static int set_rate(uint32_t job, uint64_t percent) { return set_terms(it, job, GS_TERM_RATE, percent); }

START_TEST(a_rate_is_set_for_opportunistic_jobs) {
  struct client opportunistic = come(GS_CLASS_OPPORTUNISTIC), production = come(GS_CLASS_PRODUCTION);
  play(&production);
  await_pause(&opportunistic);
  ck_assert_int_eq(set_rate(production.job, 20), -EINVAL);
  ck_assert_int_eq(set_rate(opportunistic.job, 101), -EINVAL);
  ck_assert_int_eq(set_rate(opportunistic.job, 20), 0);
  ck_assert(has_limit(opportunistic.page, GS_LIMITED_WHOLE / 5));
  ck_assert_uint_eq(get_status(it, GS_STATUS_WAIT).wait_status.limited, GS_LIMITED_SET);
  ck_assert_uint_eq(get_status(it, GS_STATUS_TERMS).terms_status.rate, 20);
  ck_assert_int_eq(set_rate(opportunistic.job, 0), 0);
  await_pause(&opportunistic);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_page_comes_with_each_attachment,
                                nobody_looks_unless_both_classes_are_there,
                                wild_pages_hurt_nobody_else,
                                a_job_waits_while_production_is_measured,
                                it_has_all_of_the_gpu_while_production_is_idle,
                                nobody_waits_for_who_never_reads_its_page,
                                jobs_are_limited_across_pid_namespaces,
                                a_class_that_changes_counts_at_once,
                                a_rate_is_set_for_opportunistic_jobs,
                                NULL};
  return suite_main("daemon_classes", tests, set_up, tear_down);
}
