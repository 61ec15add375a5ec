/* test_keep.c - answers that wait for the disk: played peers, a real folder, and a disk that the test can
 * stop. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "played_daemon.h"
#include "server/keep.h"
#include "suite.h"

#define PROGRAM 0
#define PERSON 1

static struct peer peers[2];
static unsigned answers[2];
static char folder[64];

/* ---- the disk ---- */

static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER; /* held: no write returns */

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes) {
  if (fd > STDERR_FILENO) { /* not the log */
    pthread_mutex_lock(&disk);
    pthread_mutex_unlock(&disk);
  }
  return __real_write(fd, data, bytes);
}

/* ---- what is played ---- */

static void note_sent(struct peer *peer, const struct gs_msg *msg) {
  answers[peer - peers] += msg->type == GS_REGISTERED || msg->type == GS_REPLY;
}

static void say(int i, const struct gs_msg *msg) { played_say(&peers[i], msg); }

static void say_who(void) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  say(PROGRAM, &msg);
}

static void set_quantum(void) {
  struct gs_msg msg = wire_msg(GS_SET_TQ, GS_GPU_ALL);
  msg.set.value = 7 * NS_PER_S;
  say(PERSON, &msg);
}

/* The loop, once the writer has tried what there is. */
static void hear(void) {
  ck_assert(state_await(it.state, clock_now_ns() + 60 * NS_PER_S));
  keep_on_written(&it);
}

static void set_up(void) {
  strcpy(folder, "/tmp/gpushare-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  memset(answers, 0, sizeof answers);
  played_sent = note_sent;
  played_begin(peers, 2);
  played_come(&peers[PROGRAM], 1000, getpid());
  played_come(&peers[PERSON], 0, getpid());
  keep_open(&it, folder, now_ns);
  hear();
}

static void tear_down(void) {
  char command[96];
  keep_stop(&it);
  state_close(it.ending);
  played_end();
  snprintf(command, sizeof command, "rm -r %s", folder);
  ck_assert_int_eq(system(command), 0);
}

/* ---- tests ---- */

/* A job's number, and a setting. */
TEST_LOOP(nobody_is_answered_before_it_is_written, 2) {
  void (*const ask[])(void) = {say_who, set_quantum};
  pthread_mutex_lock(&disk);
  ask[_i](); /* it returns: the loop does not wait for the disk */
  ck_assert_uint_eq(answers[_i], 0);
  ck_assert_ptr_nonnull(peers[_i].held); /* nothing is received */
  pthread_mutex_unlock(&disk);
  hear();
  ck_assert_uint_eq(answers[_i], 1);
  ck_assert_ptr_null(peers[_i].held);
}

TEST(a_disk_that_does_not_answer_is_not_waited_for_for_long) {
  pthread_mutex_lock(&disk);
  set_quantum();
  ck_assert_uint_le(keep_deadline_ns(&it), now_ns + HELD_NS);
  keep_on_time(&it, now_ns + HELD_NS);
  ck_assert_uint_eq(answers[PERSON], 1);
  pthread_mutex_unlock(&disk);
}

TEST(who_goes_meanwhile_is_forgotten) {
  pthread_mutex_lock(&disk);
  say_who();
  set_quantum();
  keep_drop_answer(&peers[PROGRAM]);
  pthread_mutex_unlock(&disk);
  hear();
  ck_assert_uint_eq(answers[PROGRAM], 0);
  ck_assert_uint_eq(answers[PERSON], 1);
}

/* A question changes nothing. */
TEST(what_is_not_kept_is_answered_at_once) {
  struct gs_msg msg = wire_msg(GS_SET_TQ, GS_GPU_ALL);
  msg.set.value = 1; /* less than may be */
  pthread_mutex_lock(&disk);
  say_who();
  say(PERSON, &msg);
  ck_assert_uint_eq(answers[PERSON], 1);
  pthread_mutex_unlock(&disk);
}

int main(void) { return suite_run_all("keep", set_up, tear_down); }
