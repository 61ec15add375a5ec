/* test_post.c - of two connections, one after the other, nothing comes or goes by the wrong one. */
#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../suite.h"
#include "client/post.h"
#include "common/wire.h"

static struct lock lock = LOCK(LOCK_CLIENT);
static _Atomic unsigned wakes;
static void arrived(void) { wakes++; }

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listening;

static void set_up(void) {
  snprintf(address.sun_path, sizeof address.sun_path, "/tmp/post-test-%d", (int)getpid());
  listening = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
  ck_assert_int_eq(listen(listening, 4), 0);
  lock_take(&lock);
  ck_assert_int_eq(post_start(&lock, arrived), 0);
}

static void tear_down(void) {
  lock_release(&lock);
  unlink(address.sun_path);
}

/* The daemon's end of a new one. */
static int connect_post(void) {
  ck_assert_int_eq(post_connect(address.sun_path), 0);
  return accept(listening, NULL, NULL);
}

static void await_wakes(unsigned count) {
  lock_release(&lock);
  while (wakes < count)
    suite_pause();
  lock_take(&lock);
}

static void say(int fd, uint64_t epoch) {
  struct gs_msg msg = wire_msg(GS_DROP_LOCK, 0);
  msg.epoch = epoch;
  ck_assert_int_eq(wire_send(fd, &msg), 0);
}

static void order(uint64_t epoch) {
  struct gs_msg msg = wire_msg(GS_LOCK_RELEASED, 0);
  msg.epoch = epoch;
  post_send(&msg);
}

static uint64_t hear(int fd) {
  struct gs_msg msg;
  lock_release(&lock);
  ck_assert_int_eq(wire_recv(fd, &msg), 0);
  lock_take(&lock);
  return msg.epoch;
}

START_TEST(what_has_come_by_an_old_connection_is_not_read) {
  struct letter letter;
  int old = connect_post();
  for (uint64_t epoch = 1; epoch <= 3; epoch++)
    say(old, epoch);
  await_wakes(3);
  ck_assert(post_take(&letter) && letter.err == 0 && letter.msg.epoch == 1);
  post_hang_up();
  int new = connect_post();
  unsigned before = wakes;
  say(new, 7);
  await_wakes(before + 1);
  ck_assert(post_take(&letter) && letter.err == 0);
  ck_assert_uint_eq(letter.msg.epoch, 7);
}
END_TEST

START_TEST(what_was_to_go_by_an_old_connection_does_not_go_by_another) {
  int old = connect_post();
  order(1);
  ck_assert_uint_eq(hear(old), 1);
  order(2); /* the lock is held: it has not gone */
  post_hang_up();
  int new = connect_post();
  order(3);
  ck_assert_uint_eq(hear(new), 3);
}
END_TEST

START_TEST(an_end_is_told_after_what_came_before_it) {
  struct letter letter;
  int old = connect_post();
  say(old, 1);
  close(old);
  await_wakes(2);
  ck_assert(post_take(&letter) && letter.err == 0 && letter.msg.epoch == 1);
  ck_assert(post_take(&letter) && letter.err == -ECONNRESET);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {what_has_come_by_an_old_connection_is_not_read,
                                what_was_to_go_by_an_old_connection_does_not_go_by_another,
                                an_end_is_told_after_what_came_before_it, NULL};
  return suite_main("post", tests, set_up, tear_down);
}
