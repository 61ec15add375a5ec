/* test_heirs.c - whom a job that leaves the card is told to pass its memory to. */
#include <string.h>

#include "common/log.h"
#include "common/wire.h"
#include "played_daemon.h"
#include "suite.h"

#define MIB (UINT64_C(1) << 20)
#define CARD (1024 * MIB)
#define BYTES (600 * MIB)
#define PEERS 3

static struct peer peers[PEERS];
static struct gs_msg told[PEERS][256]; /* by type: the last */
static unsigned rooms[PEERS];          /* in messages ROOM */

static void note_sent(struct peer *peer, const struct gs_msg *msg) {
  told[peer - peers][msg->type] = *msg;
  rooms[peer - peers] += msg->type == GS_ROOM;
}

/* ---- what is played ---- */

static void say(int i, struct gs_msg msg) { played_say(&peers[i], &msg); }

static void say_of_turn(int i, enum gs_msg_type type) {
  struct gs_msg msg = wire_msg(type, 0);
  msg.epoch = told[i][GS_LOCK_OK].epoch;
  say(i, msg);
}

static void say_resident(int i, uint64_t bytes) {
  struct gs_msg msg = wire_msg(GS_RESIDENT, 0);
  msg.resident.resident_bytes = bytes;
  msg.resident.room_seq = peers[i].attachments[0]->job.room_seq;
  say(i, msg);
}

static struct gs_pass pass_of(int i) {
  return (struct gs_pass){.name = 10 + (uint64_t)i, .key = 20 + (uint64_t)i};
}

static void connect_peer(int i, uid_t uid, int32_t pid) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  msg.reg.pid = pid;
  played_come(&peers[i], uid, i + 1);
  peers[i].near = true;
  say(i, msg);
}

static void attach(int i, uint32_t flags, struct gs_pass pass) {
  struct gs_msg msg = wire_msg(GS_ATTACH, 0);
  msg.attach.uuid[0] = 1;
  msg.attach.total_bytes = CARD;
  msg.attach.flags = flags;
  msg.attach.pass = pass;
  strcpy(msg.attach.name, "card");
  say(i, msg);
  msg = wire_msg(GS_MEM_REQUEST, 0);
  msg.mem.total_bytes = BYTES;
  say(i, msg);
  ck_assert_int_eq(told[i][GS_MEM_REPLY].status, 0);
}

static void come(int i) {
  connect_peer(i, 100, 1000 + i);
  attach(i, 0, pass_of(i));
}

static void ask(int i) { say(i, wire_msg(GS_REQ_LOCK, 0)); }

static void run(int i) {
  say_resident(i, BYTES);
  say_of_turn(i, GS_LOCK_ACTIVE);
  ck_assert(peers[i].attachments[0]->job.active);
}

static void set_up(void) {
  played_sent = note_sent;
  played_begin(peers, PEERS);
  it.scheduler.host_memory_bytes = UINT64_C(1) << 40;
  it.scheduler.defaults.mode = GS_MODE_ON;
  memset(told, 0, sizeof told);
  memset(rooms, 0, sizeof rooms);
}

/* Peer 0 runs and peer 1 waits, both of them there. */
static void begin_turns(void) {
  ask(0);
  run(0);
  ask(1);
  ck_assert(peers[0].attachments[0]->job.gpu->serialized);
  ck_assert_int_eq(peers[1].attachments[0]->job.state, GS_JOB_WAITING);
}

static bool is_told(int i, enum gs_msg_type type, int heir) {
  const struct gs_msg *msg = &told[i][type];
  struct gs_pass pass = heir < 0 ? (struct gs_pass){.name = 0} : pass_of(heir);
  return msg->type == type && msg->room.pass.name == pass.name && msg->room.pass.key == pass.key &&
         msg->room.pass_pid == (heir < 0 ? 0 : 1000 + heir);
}

static void hand_over(void) {
  say_of_turn(0, GS_LOCK_RELEASED);
  ck_assert_int_eq(peers[1].attachments[0]->job.state, GS_JOB_HOLDING);
  ck_assert_uint_lt(told[0][GS_ROOM].room.room_bytes, BYTES);
}

/* ---- tests ---- */

TEST(who_gives_way_is_told_who_comes) {
  come(0);
  come(1);
  begin_turns();
  ck_assert(is_told(0, GS_LOCK_OK, -1));
  unsigned before = rooms[0];
  hand_over();
  ck_assert(is_told(0, GS_ROOM, 1));
  ck_assert_uint_eq(rooms[0], before + 1);
  ck_assert(is_told(1, GS_LOCK_OK, -1)); /* it does not leave; nor has this one anything there: */
  come(2);
  ck_assert(is_told(2, GS_ROOM, -1));
}

/* The order to stop has the room, and names nobody: nobody comes yet. */
TEST(who_is_told_to_stop_is_told_who_comes_once_it_is_granted) {
  come(0);
  come(1);
  begin_turns();
  while (told[0][GS_DROP_LOCK].type != GS_DROP_LOCK)
    daemon_on_time(&it, now_ns = daemon_deadline_ns(&it));
  ck_assert_uint_lt(told[0][GS_DROP_LOCK].room.room_bytes, BYTES);
  ck_assert(is_told(0, GS_DROP_LOCK, -1));
  unsigned before = rooms[0];
  say_of_turn(0, GS_LOCK_RELEASED);
  ck_assert_uint_eq(rooms[0], before + 1);
  ck_assert(is_told(0, GS_ROOM, 1));
  ck_assert_uint_eq(told[0][GS_ROOM].room.room_bytes, told[0][GS_DROP_LOCK].room.room_bytes);
  ck_assert_uint_eq(told[0][GS_ROOM].room.room_seq, told[0][GS_DROP_LOCK].room.room_seq);
  say_resident(0, BYTES - MIB); /* and only once */
  ck_assert_uint_eq(rooms[0], before + 1);
}

/* One comes after the other: the one that leaves still hears of the second. */
TEST(who_is_leaving_hears_of_another_one) {
  come(0);
  come(1);
  come(2);
  begin_turns();
  ask(2);
  hand_over();
  ck_assert(is_told(0, GS_ROOM, 1));
  say_of_turn(1, GS_LOCK_RELEASED);
  ck_assert_int_eq(peers[2].attachments[0]->job.state, GS_JOB_HOLDING);
  ck_assert(is_told(0, GS_ROOM, 2));
}

static void differ_by_user(void) {
  connect_peer(1, 101, 1001);
  attach(1, 0, pass_of(1));
}
static void differ_by_container(void) {
  connect_peer(1, 100, 1001);
  strcpy(peers[0].origin.container, "0123456789ab");
  strcpy(peers[1].origin.container, "0123456789ac");
  attach(1, 0, pass_of(1));
}
static void differ_by_origin(void) {
  connect_peer(1, 100, 1001);
  strcpy(peers[0].origin.container, "0123456789ab");
  peers[1].origin = peers[0].origin;
  strcpy(peers[0].origin.name, "1.0");
  strcpy(peers[1].origin.name, "1.1");
  attach(1, 0, pass_of(1));
}
static void differ_by_kind(void) {
  connect_peer(1, 100, 1001);
  peers[0].origin.kind = GS_ORIGIN_UNIT;
  attach(1, 0, pass_of(1));
}
static void be_far(void) { /* in containers that the daemon can't tell apart */
  connect_peer(1, 100, 1001);
  peers[0].near = peers[1].near = false;
  attach(1, 0, pass_of(1));
}
static void be_far_alone(void) {
  connect_peer(1, 100, 1001);
  peers[1].near = false;
  attach(1, 0, pass_of(1));
}
static void have_no_key(void) {
  connect_peer(1, 100, 1001);
  attach(1, 0, (struct gs_pass){.name = 0});
}
static void have_no_pid(void) {
  connect_peer(1, 100, 0);
  attach(1, 0, pass_of(1));
}
static void be_managed(void) {
  connect_peer(1, 100, 1001);
  attach(1, GS_ATTACH_MANAGED, pass_of(1));
}

static void (*const strangers[])(void) = {
    differ_by_user, differ_by_container, differ_by_origin, differ_by_kind, be_far,
    be_far_alone,   have_no_key,         have_no_pid,      be_managed};

TEST_LOOP(nothing_passes_to_others, sizeof strangers / sizeof *strangers) {
  come(0);
  strangers[_i]();
  begin_turns();
  hand_over();
  ck_assert(is_told(0, GS_ROOM, -1));
  ck_assert_uint_eq(told[0][GS_DROP_LOCK].room.pass.name, 0);
}

/* In the same container it does, also where the daemon is in another pid namespace. */
TEST(memory_passes_within_a_container) {
  connect_peer(0, 100, 1000);
  connect_peer(1, 100, 1001);
  for (int i = 0; i < 2; i++) {
    peers[i].near = false;
    peers[i].origin.kind = GS_ORIGIN_DOCKER;
    strcpy(peers[i].origin.name, "0123456789ab");
    strcpy(peers[i].origin.container, "0123456789ab");
    attach(i, 0, pass_of(i));
  }
  begin_turns();
  hand_over();
  ck_assert(is_told(0, GS_ROOM, 1));
}

static void connect_person(int i) {
  peers[i] = (struct peer){.pid = i + 1, .pidfd = -1, .tokens = 1, .user = users_find(&users, 0)};
  ck_assert_int_eq(user_charge(peers[i].user, USER_CONNECTIONS, 1), 0);
}

/* A holder that has all its memory takes no more. */
TEST(who_lacks_nothing_is_no_heir) {
  struct gs_msg smaller = wire_msg(GS_SET_CAPACITY, GS_GPU_ALL);
  come(0);
  come(1);
  begin_turns();
  hand_over();
  say_resident(0, CARD - BYTES);
  run(1);
  connect_person(2);
  smaller.set.value = CARD - 100 * MIB;
  uint64_t before_bytes = told[0][GS_ROOM].room.room_bytes;
  say(2, smaller);
  ck_assert_uint_lt(told[0][GS_ROOM].room.room_bytes, before_bytes);
  ck_assert(is_told(0, GS_ROOM, -1));
}

int main(void) { return suite_run_all("heirs", set_up, played_end); }
