/*
 * test_daemon_classes.c - the real daemon, and clients that the test plays: who is told which SHARE, when
 * production jobs tell of their PROGRESS.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "suite.h"

static struct daemon_process daemon_process, *const it = &daemon_process;

static void set_up(void) { daemon_start(it, (const char *const[]){NULL}); }

static void tear_down(void) { daemon_clean_up(it); }

struct client {
  int fd;
  uint32_t job;
  uint64_t submissions, active_ns;
};

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
  attach_card(client.fd, 1, 0, GS_ATTACH_MANAGED);
  tell_active(client.fd, expect(client.fd, GS_LOCK_OK).epoch);
  return client;
}

static void say(struct client *client, bool active) {
  struct gs_msg msg = wire_msg(GS_PROGRESS, 0);
  msg.progress.submissions = client->submissions;
  msg.progress.active_ns = client->active_ns;
  msg.progress.flags = active ? GS_PROGRESS_ACTIVE : 0;
  tell(client->fd, &msg);
}

static void expect_share(const struct client *client, uint32_t share_ppm, uint32_t slice_us,
                         enum gs_watch watch) {
  struct gs_msg msg = expect(client->fd, GS_SHARE);
  ck_assert_uint_eq(msg.share.share_ppm, share_ppm);
  ck_assert_uint_eq(msg.share.slice_us, slice_us);
  ck_assert_uint_eq(msg.share.watch, watch);
}

/* From the moment at which both are there. */
static void expect_watch(const struct client *production) {
  expect_share(production, GS_SHARE_ALL, 100000, GS_WATCH_PROGRESS);
}
static void expect_all(const struct client *client) {
  expect_share(client, GS_SHARE_ALL, 200, GS_WATCH_WORK);
}
static void expect_stop(const struct client *client) { expect_share(client, 0, 200, GS_WATCH_WORK); }
static void expect_freedom(const struct client *client) {
  expect_share(client, GS_SHARE_ALL, 0, GS_WATCH_NOT);
}

static enum gs_limited limited(void) { return get_status(it, GS_STATUS_WAIT).wait_status.limited; }

TEST(nobody_is_told_anything_unless_both_classes_are_there) {
  struct client production = come(GS_CLASS_PRODUCTION), standard = come(GS_CLASS_STANDARD);
  expect_silence(it, production.fd);
  struct client opportunistic = come(GS_CLASS_OPPORTUNISTIC);
  expect_watch(&production);
  expect_all(&opportunistic);
  expect_share(&standard, GS_SHARE_ALL, 100000, GS_WATCH_NOT);
  close(opportunistic.fd);
  expect_freedom(&production);
  expect_share(&standard, GS_SHARE_ALL, 0, GS_WATCH_NOT);
  expect_silence(it, standard.fd);
}

TEST(others_stop_while_production_works) {
  struct client opportunistic = come(GS_CLASS_OPPORTUNISTIC), production = come(GS_CLASS_PRODUCTION);
  expect_watch(&production);
  expect_all(&opportunistic);
  ck_assert_int_eq(limited(), GS_LIMITED_IDLE);
  for (int i = 0; i < 3; i++) {
    say(&production, true);
    expect_stop(&opportunistic);
    say(&production, false);
    expect_all(&opportunistic);
  }
  expect_silence(it, production.fd);
  say(&production, true);
  expect_stop(&opportunistic);
  struct gs_msg wait = get_status(it, GS_STATUS_WAIT); /* of the first job */
  ck_assert_uint_ne(wait.wait_status.limited, GS_LIMITED_NOT);
  ck_assert_uint_eq(wait.wait_status.limited_for, production.job);
  close(production.fd);
  expect_freedom(&opportunistic);
}

static void say_that_it_can_be_stopped(struct client *client) {
  struct gs_msg msg = wire_msg(GS_CLIENT_STATE, 0);
  msg.state.flags = GS_STATE_PREEMPTS | GS_STATE_SLICES;
  tell(client->fd, &msg);
}

static uint8_t flags_told(void) { return (uint8_t)get_status(it, GS_STATUS_JOB).job_status.flags; }

TEST(status_has_what_the_client_has_said_last) {
  struct client client = come(GS_CLASS_STANDARD);
  struct gs_msg msg = wire_msg(GS_CLIENT_STATE, 0);
  ck_assert_uint_eq(flags_told(), 0);
  msg.state.flags = GS_STATE_PREEMPTS | GS_STATE_OWN_CONTEXT;
  tell(client.fd, &msg);
  expect_silence(it, client.fd);
  ck_assert_uint_eq(flags_told(), GS_STATE_PREEMPTS | GS_STATE_OWN_CONTEXT);
  msg.state.flags = GS_STATE_DRAINING | GS_STATE_OWN_CONTEXT; /* a stop was refused */
  tell(client.fd, &msg);
  expect_silence(it, client.fd);
  ck_assert_uint_eq(flags_told(), GS_STATE_DRAINING | GS_STATE_OWN_CONTEXT);
}

static void check_trial(bool stoppable, uint32_t share_ppm) {
  struct client opportunistic = come(GS_CLASS_OPPORTUNISTIC), production = come(GS_CLASS_PRODUCTION);
  struct pollfd readable = {.fd = opportunistic.fd, .events = POLLIN};
  if (stoppable) {
    say_that_it_can_be_stopped(&opportunistic);
    say_that_it_can_be_stopped(&production);
  }
  expect_watch(&production);
  expect_all(&opportunistic);
  say(&production, true);
  expect_stop(&opportunistic);
  for (int i = 0; i < 500 && poll(&readable, 1, 0) == 0; i++) {
    poll(NULL, 0, 20);
    production.submissions += 200;
    production.active_ns += 20 * NS_PER_MS;
    say(&production, true);
  }
  expect_share(&opportunistic, share_ppm, 200, GS_WATCH_WORK);
  ck_assert_int_eq(limited(), GS_LIMITED_GROWS);
}

TEST(they_are_tried_out_beside_production_that_works_on) { check_trial(true, GS_SHARE_ALL); }

TEST(where_nothing_can_be_stopped_they_begin_with_less) { check_trial(false, 200000); }

TEST(nobody_waits_for_who_never_says_anything) {
  struct client production = come(GS_CLASS_PRODUCTION), opportunistic = come(GS_CLASS_OPPORTUNISTIC);
  expect_watch(&production);
  expect_all(&opportunistic);
  expect_silence(it, opportunistic.fd);
}

TEST(wild_progress_hurts_nobody_else) {
  struct client production = come(GS_CLASS_PRODUCTION), standard = come(GS_CLASS_STANDARD);
  struct client opportunistic = come(GS_CLASS_OPPORTUNISTIC);
  expect_watch(&production);
  expect_share(&standard, GS_SHARE_ALL, 100000, GS_WATCH_NOT);
  for (int i = 0; i < 200; i++) {
    struct gs_msg msg = wire_msg(GS_PROGRESS, 0);
    memset(&msg.progress, i % 2 ? 0xff : i, sizeof msg.progress);
    tell(production.fd, &msg);
    tell(standard.fd, &msg);
  }
  close(production.fd);
  expect_share(&standard, GS_SHARE_ALL, 0, GS_WATCH_NOT);
  expect_silence(it, standard.fd);
  for (struct gs_msg msg = {0}; msg.share.slice_us || msg.share.share_ppm != GS_SHARE_ALL;)
    msg = expect(opportunistic.fd, GS_SHARE);
}

TEST(a_class_that_changes_counts_at_once) {
  struct client production = come(GS_CLASS_STANDARD), opportunistic = come(GS_CLASS_OPPORTUNISTIC);
  declare(&production, GS_CLASS_PRODUCTION);
  expect_watch(&production);
  expect_all(&opportunistic);
  say(&production, true);
  expect_stop(&opportunistic);
  declare(&opportunistic, GS_CLASS_STANDARD);
  expect_freedom(&opportunistic);
  expect_freedom(&production);
  declare(&opportunistic, GS_CLASS_OPPORTUNISTIC);
  expect_all(&opportunistic); /* until production has said anew what it does */
  expect_watch(&production);
  say(&production, true);
  expect_stop(&opportunistic);
  declare(&production, GS_CLASS_OPPORTUNISTIC);
  expect_freedom(&opportunistic);
  expect_freedom(&production);
}

static int set_rate(uint32_t job, uint64_t percent) { return set_terms(it, job, GS_TERM_RATE, percent); }

TEST(a_rate_is_set_for_opportunistic_jobs) {
  struct client opportunistic = come(GS_CLASS_OPPORTUNISTIC), production = come(GS_CLASS_PRODUCTION);
  expect_watch(&production);
  expect_all(&opportunistic);
  ck_assert_int_eq(set_rate(production.job, 20), -EINVAL);
  ck_assert_int_eq(set_rate(opportunistic.job, 101), -EINVAL);
  ck_assert_int_eq(set_rate(opportunistic.job, 20), 0);
  expect_share(&opportunistic, 200000, 200, GS_WATCH_NOT);
  ck_assert_uint_eq(limited(), GS_LIMITED_SET);
  ck_assert_uint_eq(get_status(it, GS_STATUS_TERMS).terms_status.rate, 20);
  say(&production, true);
  ck_assert_int_eq(set_rate(opportunistic.job, 0), 0);
  expect_stop(&opportunistic);
}

int main(void) { return suite_run_all("daemon_classes", set_up, tear_down); }
