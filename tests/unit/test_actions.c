/* test_actions.c - how jobs are told what concerns all of them: in slices, and what is true by then. */
#include <string.h>

#include "common/log.h"
#include "common/wire.h"
#include "played_daemon.h"
#include "suite.h"

#define CROWD 300
#define PEERS (CROWD + 4)
#define LARGE CROWD /* the one that makes turns begin */
#define LATE (CROWD + 1)
#define PERSON (CROWD + 2)
#define MIB (UINT64_C(1) << 20)
#define CARD (1024 * MIB)
#define SLICE 50

static struct peer peers[PEERS];

/* What a peer has been told. */
static struct {
  struct gs_msg last[256]; /* by type */
  unsigned counts[256];
  enum gs_msg_type order[16];
  unsigned count;
} told[PEERS];
static unsigned sends;

static void note_sent(struct peer *peer, const struct gs_msg *msg) {
  int i = (int)(peer - peers);
  if (msg->type == GS_DROP_LOCK)
    ck_assert_int_eq(peer->attachments[msg->gpu]->job.state, GS_JOB_DROPPING);
  sends++;
  told[i].last[msg->type] = *msg;
  told[i].counts[msg->type]++;
  if (told[i].count < sizeof told[i].order / sizeof *told[i].order)
    told[i].order[told[i].count++] = msg->type;
}

static void forget_told(void) {
  memset(told, 0, sizeof told);
  sends = 0;
}

/* ---- what is played ---- */

static void say(int i, const struct gs_msg *msg) { played_say(&peers[i], msg); }

static void say_simple(int i, enum gs_msg_type type) {
  struct gs_msg msg = wire_msg(type, 0);
  msg.epoch = told[i].last[GS_LOCK_OK].epoch;
  say(i, &msg);
}

static void attach(int i, uint32_t index) {
  struct gs_msg msg = wire_msg(GS_ATTACH, index);
  msg.attach.uuid[0] = (uint8_t)(index + 1);
  msg.attach.total_bytes = CARD;
  msg.attach.flags = GS_ATTACH_MANAGED;
  strcpy(msg.attach.name, "card");
  say(i, &msg);
}

static void come(int i) {
  played_come(&peers[i], 100, i + 1);
  say_simple(i, GS_REGISTER);
  attach(i, 0);
}

static void go(int i) { played_go(&peers[i]); }

static void ask_for_memory(int i, uint64_t bytes) {
  struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
  msg.mem.total_bytes = bytes;
  say(i, &msg);
}

static void set(enum gs_msg_type type, uint64_t value) {
  struct gs_msg msg = wire_msg(type, GS_GPU_ALL);
  msg.set.value = value;
  say(PERSON, &msg);
}

static void tell_all(void) { actions_tell_some(&it, PEERS, now_ns); }

/* Nobody has more memory than fits beside the others'; each has been told all. */
static void set_up(void) {
  played_sent = note_sent;
  played_begin(peers, PEERS);
  forget_told();
  for (int i = 0; i <= LARGE; i++)
    come(i);
  for (int i = 0; i <= LARGE; i++)
    ask_for_memory(i, MIB);
  played_come(&peers[PERSON], 0, PERSON);
  tell_all();
  forget_told();
}

static void begin_turns(void) {
  ask_for_memory(LARGE, CARD);
  ck_assert(it.scheduler.gpus.next != &it.scheduler.gpus);
  ck_assert(peers[LARGE].attachments[0]->job.gpu->serialized);
}

/* Those of the crowd that have heard it so often. */
static int count_told(enum gs_msg_type type, unsigned times) {
  int count = 0;
  for (int i = 0; i < CROWD; i++)
    count += told[i].counts[type] == times;
  return count;
}

/* ---- tests ---- */

TEST(an_event_tells_its_own_job_and_some_others) {
  begin_turns();
  ck_assert_uint_eq(told[LARGE].counts[GS_SCHED_ON], 1);
  ck_assert_uint_eq(told[LARGE].counts[GS_MEM_REPLY], 1);
  ck_assert_int_eq(count_told(GS_SCHED_ON, 1), ACTIONS_PER_EVENT);
  ck_assert_uint_le(sends, 4 * (ACTIONS_PER_EVENT + 1));
}

TEST(each_slice_tells_so_many_until_all_are_told) {
  begin_turns();
  for (int had = ACTIONS_PER_EVENT; had < CROWD; had += SLICE) {
    ck_assert(!actions_are_told(&it));
    ck_assert_int_eq(count_told(GS_SCHED_ON, 1), had);
    sends = 0;
    actions_tell_some(&it, SLICE, now_ns);
    ck_assert_uint_le(sends, 4 * SLICE);
  }
  ck_assert(actions_are_told(&it));
  ck_assert_int_eq(count_told(GS_SCHED_ON, 1), CROWD);
}

TEST(what_has_passed_is_not_told_any_more) {
  set(GS_SET_CAPACITY, CARD / 2);
  set(GS_SET_CAPACITY, CARD / 4);
  set(GS_SET_MODE, GS_MODE_ON);
  set(GS_SET_MODE, GS_MODE_OFF);
  int before = 4 * ACTIONS_PER_EVENT; /* some have heard more */
  tell_all();
  ck_assert_int_ge(count_told(GS_CAPACITY, 1), CROWD - before);
  ck_assert_int_ge(count_told(GS_SCHED_ON, 0), CROWD - before);
  for (int i = 0; i < CROWD; i++) {
    ck_assert_uint_eq(told[i].last[GS_CAPACITY].attached.capacity_bytes, CARD / 4);
    ck_assert_uint_eq(told[i].last[GS_CAPACITY].attached.mode, GS_MODE_OFF);
    ck_assert_uint_ne(told[i].count, 0);
    if (told[i].counts[GS_SCHED_ON])
      ck_assert_uint_ne(told[i].counts[GS_SCHED_OFF], 0);
  }
}

/* In the words' order, each once; and nothing older behind them. */
TEST(who_says_something_hears_first_what_came_before) {
  int last = CROWD - 1;
  begin_turns();
  ck_assert_uint_eq(told[last].count, 0);
  ask_for_memory(last, 2 * MIB);
  ck_assert_int_eq(told[last].order[0], GS_SCHED_ON);
  ck_assert_int_eq(told[last].order[told[last].count - 1], GS_MEM_REPLY);
  unsigned count = told[last].count;
  tell_all();
  ck_assert_uint_eq(told[last].counts[GS_SCHED_ON], 1);
  for (unsigned i = count; i < told[last].count; i++)
    ck_assert_int_ne(told[last].order[i], GS_SCHED_ON);
}

/* A turn that is given back before the order to stop has come: that is not told any more. */
TEST(no_order_to_stop_follows_a_release) {
  int last = CROWD - 1;
  struct gs_msg msg = wire_msg(GS_LOCK_RELEASED, 0);
  set(GS_SET_MODE, GS_MODE_ON);
  const struct sched_job *job = &peers[last].attachments[0]->job;
  ck_assert_int_eq(job->state, GS_JOB_DROPPING);
  ck_assert_uint_eq(told[last].count, 0);
  msg.epoch = job->epoch;
  say(last, &msg);
  ck_assert_int_eq(job->state, GS_JOB_IDLE);
  ck_assert_uint_eq(told[last].counts[GS_DROP_LOCK], 1); /* it crossed the release */
  tell_all();
  ck_assert_uint_eq(told[last].counts[GS_DROP_LOCK], 1);
}

TEST(who_leaves_and_who_comes_meanwhile_hear_what_concerns_them) {
  begin_turns();
  go(CROWD - 1);
  go(CROWD - 2);
  come(LATE);
  ck_assert_uint_eq(told[LATE].counts[GS_ATTACHED], 1);
  ck_assert_uint_eq(told[LATE].counts[GS_SCHED_ON], 1);
  tell_all();
  ck_assert_int_eq(count_told(GS_SCHED_ON, 1), CROWD - 2);
  ck_assert_uint_eq(told[LATE].counts[GS_SCHED_ON], 1);
  ck_assert_uint_eq(told[CROWD - 1].count, 0);
}

/* However much happens meanwhile. */
TEST(nobody_waits_for_long) {
  begin_turns();
  for (int i = 0; i < CROWD / ACTIONS_PER_EVENT + 1; i++)
    set(GS_SET_CAPACITY, CARD - (uint64_t)(i + 1) * MIB);
  ck_assert_int_eq(count_told(GS_SCHED_ON, 0), 0);
}

/* Of those whose terms change, one per event. */
TEST(other_bounds_reach_all_jobs_in_slices) {
  struct terms_bounds bounds = {.max_weight = 100, .max_priority = 0};
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  static const struct user_limits none;
  msg.declare.weight = 1000;
  for (int i = 0; i < CROWD; i++)
    say(i, &msg);
  unsigned events = 0, most = 0;
  uint64_t before = it.scheduler.decisions;
  clients_set_bounds(&it, &bounds, &none, now_ns);
  go(0); /* and others where it has not been */
  go(CROWD / 2);
  say(CROWD - 1, &msg);
  ck_assert_uint_eq(peers[CROWD - 1].attachments[0]->job.terms.weight, 100);
  for (before = it.scheduler.decisions; daemon_deadline_ns(&it) <= now_ns; before = it.scheduler.decisions) {
    daemon_on_time(&it, now_ns);
    unsigned decisions = (unsigned)(it.scheduler.decisions - before);
    most = decisions > most ? decisions : most;
    ck_assert_uint_lt(events++, 2 * CROWD);
  }
  ck_assert_uint_le(most, 4);
  for (int i = 0; i < CROWD; i++)
    if (peers[i].user)
      ck_assert_uint_eq(peers[i].attachments[0]->job.terms.weight, 100);
}

TEST(an_end_leaves_one_gpu_after_the_other) {
  come(LATE);
  attach(LATE, 1);
  attach(LATE, 2);
  peers[LATE].closed = true;
  ck_assert(!daemon_on_gone(&it, &peers[LATE], now_ns));
  ck_assert_ptr_null(peers[LATE].attachments[0]);
  ck_assert_ptr_nonnull(peers[LATE].attachments[1]);
  ck_assert_ptr_nonnull(peers[LATE].attachments[2]);
}

TEST(who_has_caused_what_is_left_is_known) {
  ck_assert_uint_eq(it.actions_uid, (uid_t)-1);
  begin_turns();
  ck_assert_uint_eq(it.actions_uid, 100);
}

int main(void) { return suite_run_all("actions", set_up, played_end); }
