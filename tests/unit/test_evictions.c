/* test_evictions.c - how many processes are remembered that have lost their place, and whose silence counts;
 * with users and time that are played. */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/wire.h"
#include "played_daemon.h"
#include "suite.h"

#define PER_USER 32 /* memory of so many processes and GPUs is known; */
#define OF_ALL 256
#define PEERS 4
#define WATCHER 3 /* the GPU is known as long as it is there */
#define MIB (UINT64_C(1) << 20)
#define CARD (UINT64_C(1) << 40)

static struct peer peers[PEERS];
static pid_t processes[PER_USER + 1];

/* ---- what is played ---- */

static void say(int i, const struct gs_msg *msg) { played_say(&peers[i], msg); }

static struct sched_job *job_of(int i) { return &peers[i].attachments[0]->job; }

static struct sched_gpu *gpu(void) { return job_of(WATCHER)->gpu; }

static void say_of_turn(int i, enum gs_msg_type type) {
  struct gs_msg msg = wire_msg(type, 0);
  msg.epoch = job_of(i)->epoch;
  say(i, &msg);
}

static void come(int i, uid_t uid, pid_t pid, uint64_t bytes) {
  struct gs_msg hello = wire_msg(GS_REGISTER, 0), attach = wire_msg(GS_ATTACH, 0);
  played_come(&peers[i], uid, pid);
  attach.attach.uuid[0] = 1;
  attach.attach.total_bytes = CARD;
  attach.attach.used_bytes = attach.attach.resident_bytes = bytes;
  say(i, &hello);
  say(i, &attach);
  ck_assert_ptr_nonnull(peers[i].attachments[0]);
}

static void go(int i) { played_go(&peers[i]); }

static void come_and_be_evicted(uid_t uid, pid_t pid) {
  come(0, uid, pid, MIB);
  evict_client(&it, &peers[0], NULL, now_ns);
  go(0);
}

static void set_up(void) {
  played_begin(peers, PEERS);
  it.scheduler.grace_ns = NS_PER_S;
  it.scheduler.defaults.tq_ns = NS_PER_MS;
  scheduler_set_mode(&it.scheduler, NULL, GS_MODE_ON, now_ns, &it.actions);
  come(WATCHER, 0, getpid(), 0);
  for (int i = 0; i <= PER_USER; i++) {
    processes[i] = fork();
    if (processes[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;)
        pause();
    }
    ck_assert_int_gt(processes[i], 0);
  }
}

static void tear_down(void) {
  for (int i = 0; i <= PER_USER; i++) {
    kill(processes[i], SIGKILL);
    waitpid(processes[i], NULL, 0);
  }
  played_end();
}

/* ---- what stays ---- */

/* More is not forgotten, but tried after a while whether it is there. */
TEST(so_many_processes_of_a_user_are_known) {
  for (int i = 0; i < PER_USER; i++)
    come_and_be_evicted(100, processes[i]);
  ck_assert_uint_eq(gpu()->away_bytes, PER_USER * MIB);
  ck_assert_uint_eq(gpu()->overhead_bytes, 0);
  come_and_be_evicted(100, processes[PER_USER]);
  ck_assert_uint_eq(gpu()->away_bytes, PER_USER * MIB);
  ck_assert_uint_eq(gpu()->overhead_bytes, MIB);
  come_and_be_evicted(100, processes[0]); /* it is one of them */
  ck_assert_uint_eq(gpu()->away_bytes, PER_USER * MIB);
  come_and_be_evicted(101, processes[PER_USER]);
  ck_assert_uint_eq(gpu()->away_bytes, (PER_USER + 1) * MIB);
}

TEST(so_many_of_all_users) {
  for (int i = 0; i < OF_ALL; i++)
    come_and_be_evicted(100 + (uid_t)(i / PER_USER), processes[i % PER_USER]);
  ck_assert_uint_eq(gpu()->away_bytes, OF_ALL * MIB);
  come_and_be_evicted(99, processes[0]);
  ck_assert_uint_eq(gpu()->away_bytes, OF_ALL * MIB);
  ck_assert_uint_eq(gpu()->overhead_bytes, MIB);
}

/* ---- silence ---- */

static void go_on(void) {
  uint64_t next_ns = scheduler_deadline_ns(&it.scheduler);
  ck_assert_uint_lt(next_ns, 10 * NS_PER_S);
  now_ns = next_ns > now_ns ? next_ns : now_ns;
  scheduler_expire(&it.scheduler, now_ns, &it.actions);
}

/* It waits for its turn, and runs. */
static void run(int i) {
  while (job_of(i)->state == GS_JOB_WAITING)
    go_on();
  ck_assert_int_eq(job_of(i)->state, GS_JOB_HOLDING);
  say_of_turn(i, GS_LOCK_ACTIVE);
}

/* The job runs. Told to stop, it says nothing for the length of the grace. */
static void be_silent(int i) {
  run(i);
  say_of_turn(!i, GS_REQ_LOCK);
  while (!(job_of(i)->flags & GS_STATE_OVERDUE))
    go_on();
  ck_assert_int_eq(job_of(i)->state, GS_JOB_DROPPING);
}

/* It has answered at last, and is silent in another turn, of which nobody has been told yet: that has just
 * begun. */
TEST(each_silence_is_as_long_as_itself) {
  come(0, 100, processes[0], MIB);
  come(1, 100, processes[1], MIB);
  say_of_turn(0, GS_REQ_LOCK);
  be_silent(0);
  actions_tell_some(&it, PEERS, now_ns);
  uint64_t end_ns = evict_deadline_ns(&it);
  ck_assert_uint_eq(end_ns, now_ns + 3 * NS_PER_S);
  say_of_turn(0, GS_LOCK_RELEASED);
  say_of_turn(0, GS_REQ_LOCK);
  run(1);
  say_of_turn(1, GS_LOCK_RELEASED);
  ck_assert(!(job_of(0)->flags & GS_STATE_OVERDUE));
  be_silent(0);
  ck_assert_uint_le(now_ns, end_ns);
  evict_on_time(&it, end_ns);
  ck_assert(!peers[0].closed);
  actions_tell_some(&it, PEERS, now_ns);
  ck_assert_uint_eq(evict_deadline_ns(&it), now_ns + 3 * NS_PER_S);
  evict_on_time(&it, now_ns + 3 * NS_PER_S);
  ck_assert(peers[0].closed);
}

int main(void) { return suite_run_all("evictions", set_up, tear_down); }
