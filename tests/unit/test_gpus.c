/* test_gpus.c - which GPUs the daemon knows, with users that are played: who lies, who fills the table, and
 * what the host tells. */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/wire.h"
#include "played_daemon.h"
#include "server/daemon_log.h"
#include "suite.h"

#define PEERS 32
#define PERSON (PEERS - 1)
#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static struct peer peers[PEERS];
static struct gs_msg last[PEERS]; /* that the peer was told */
static struct gs_msg status[1024];
static size_t status_count;

/* ---- the socket side, as peer.h wants it ---- */

static void note_sent(struct peer *peer, const struct gs_msg *msg) {
  if (!peer->closed && (msg->type == GS_ATTACHED || msg->type == GS_REJECTED || msg->type == GS_CAPACITY ||
                        msg->type == GS_REPLY))
    last[peer - peers] = *msg;
}

static void note_status(struct peer *peer) {
  size_t count;
  struct gs_msg *msgs = status_collect(&it, now_ns, &count);
  (void)peer;
  ck_assert_ptr_nonnull(msgs);
  status_count = 0;
  for (size_t i = 0; i < count; i++)
    if (msgs[i].type == GS_STATUS_GPU)
      status[status_count++] = msgs[i];
  free(msgs);
}

/* ---- what is played ---- */

static void tell(int i, const struct gs_msg *msg) { played_say(&peers[i], msg); }

static void come(int i, uid_t uid) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  played_come(&peers[i], uid, i + 1);
  memset(&last[i], 0, sizeof last[i]);
  tell(i, &msg);
}

static void go(int i) { played_go(&peers[i]); }

static void attach_as(int i, uint32_t index, uint32_t card, uint64_t bytes) {
  struct gs_msg msg = wire_msg(GS_ATTACH, index);
  memcpy(msg.attach.uuid, &card, sizeof card);
  msg.attach.uuid[15] = 1;
  msg.attach.total_bytes = bytes;
  strcpy(msg.attach.name, bytes == 16 * GIB ? "card" : "lie");
  tell(i, &msg);
}

static void attach(int i, uint32_t card, uint64_t bytes) { attach_as(i, 0, card, bytes); }

/* As gpusharectl, of root. */
static void ask(const struct gs_msg *msg) {
  peers[PERSON] = (struct peer){.uid = 0, .pidfd = -1, .tokens = 1};
  tell(PERSON, msg);
}

static void look(void) {
  struct gs_msg msg = wire_msg(GS_GET_STATUS, GS_GPU_ALL);
  ask(&msg);
}

static struct card card_at(uint32_t card, uint32_t number) {
  struct card made = {.number = number, .total_bytes = 16 * GIB, .name = "host's"};
  memcpy(made.uuid, &card, sizeof card);
  made.uuid[15] = 1;
  return made;
}

static void tell_some_cards(enum cards_source source, bool partial, uint32_t count, const struct card *list) {
  static struct cards cards;
  memset(&cards, 0, sizeof cards);
  cards.source = source;
  cards.partial = partial;
  cards.count = count;
  memcpy(cards.list, list, count * sizeof *list);
  ck_assert_ptr_null(cards_settle(&cards));
  gpus_on_cards(&it, &cards, now_ns++);
  actions_tell_some(&it, PEERS, now_ns);
}

static void tell_cards(enum cards_source source, uint32_t count, const struct card *list) {
  tell_some_cards(source, false, count, list);
}

/* The last GPU's card in status order. */
static uint32_t listed(size_t i) {
  uint32_t card;
  memcpy(&card, status[i].gpu_status.uuid, sizeof card);
  return card;
}

static void set_up(void) {
  played_status_asked = note_status;
  played_sent = note_sent;
  played_begin(peers, PEERS);
}

static void two_cards(void) { tell_cards(CARDS_NVML, 2, (struct card[]){card_at(20, 0), card_at(10, 1)}); }

/* ---- without the host's word ---- */

TEST(a_lie_is_healed_by_other_users) {
  come(0, 100);
  attach(0, 7, MIB);
  ck_assert_uint_eq(last[0].attached.capacity_bytes, MIB);
  come(1, 101);
  attach(1, 7, 16 * GIB);
  ck_assert_uint_eq(last[1].attached.capacity_bytes, MIB);
  come(2, 102);
  attach(2, 7, 16 * GIB);
  for (int i = 0; i < 3; i++)
    ck_assert_uint_eq(last[i].attached.capacity_bytes, 16 * GIB);
  look();
  ck_assert_uint_eq(status[0].gpu_status.total_bytes, 16 * GIB);
  ck_assert_str_eq(status[0].gpu_status.name, "card");
}

TEST(a_lie_goes_with_its_last_job) {
  come(0, 100);
  attach(0, 7, MIB);
  come(1, 101);
  attach(1, 7, 16 * GIB);
  go(0);
  ck_assert_uint_eq(last[1].attached.capacity_bytes, 16 * GIB);
  go(1);
  come(0, 100);
  attach(0, 7, UINT64_C(1) << 40);
  look();
  ck_assert_uint_eq(status[0].gpu_status.total_bytes, UINT64_C(1) << 40);
  go(0);
  look();
  ck_assert_uint_eq(status[0].gpu_status.total_bytes, 0);
  ck_assert_str_eq(status[0].gpu_status.name, "");
  come(1, 101);
  attach(1, 7, 16 * GIB);
  ck_assert_uint_eq(last[1].attached.capacity_bytes, 16 * GIB);
}

/* Each change would be told to all of them. */
TEST(who_says_something_else_each_time_changes_nothing) {
  for (int i = 0; i < 3; i++) {
    come(i, 100);
    attach(i, 7, 16 * GIB);
  }
  memset(&last[1], 0, sizeof last[1]);
  for (int k = 0; k < 10; k++) {
    struct gs_msg detach = wire_msg(GS_DETACH, 0);
    tell(0, &detach);
    attach(0, 7, k % 2 ? 16 * GIB : MIB);
    ck_assert_uint_eq(last[0].attached.capacity_bytes, 16 * GIB);
  }
  ck_assert_uint_eq(last[1].type, 0);
}

TEST(all_gpus_are_no_gpu) {
  struct gs_msg msg = wire_msg(GS_ATTACH, 0);
  come(0, 100);
  tell(0, &msg);
  ck_assert(peers[0].closed);
  ck_assert_uint_eq(it.gpu_count, 0);
}

TEST(a_user_may_bring_so_many_and_no_more) {
  for (int i = 0; i < 5; i++)
    come(i, 100);
  for (uint32_t card = 0; card < 300; card++)
    if (!peers[card / 64].closed)
      attach_as((int)card / 64, card % 64, 1000 + card, GIB);
  ck_assert_uint_eq(it.gpu_count, GS_GPUS_PER_CLIENT);
  come(10, 101);
  attach(10, 7, 16 * GIB);
  ck_assert_uint_eq(last[10].type, GS_ATTACHED);
  ck_assert_uint_eq(last[10].attached.capacity_bytes, 16 * GIB);
}

/* All of them in use. */
TEST(no_number_of_users_takes_all_places) {
  for (int i = 0; i < 6; i++) {
    come(i, 100 + (uid_t)i);
    for (uint32_t k = 0; k < 64; k++)
      attach_as(i, k, 1000 + 64 * (uint32_t)i + k, GIB);
    ck_assert(!peers[i].closed); /* what there is no room for is refused, and the rest is shared */
  }
  ck_assert_uint_eq(last[5].type, GS_REJECTED);
  ck_assert_uint_eq(last[5].registered.reason, GS_REJECT_GPU);
  come(10, 60);
  attach(10, 7, 16 * GIB);
  ck_assert_uint_eq(last[10].type, GS_ATTACHED);
}

TEST(a_picture_is_of_one_order) {
  size_t count;
  uint32_t gpus = 0;
  come(0, 100);
  attach(0, 10, 16 * GIB);
  for (uint32_t k = 1; k < 64; k++)
    attach_as(0, k, 20 + k, 16 * GIB);
  status_begin(&it, now_ns);
  while (it.status.looking)
    ck_assert(!status_go_on(&it, now_ns, 0));
  ck_assert(!status_go_on(&it, now_ns, 0));
  two_cards();
  while (!status_go_on(&it, now_ns, 0))
    ;
  struct gs_msg *msgs = status_take(&it, &count);
  for (size_t i = 0; i < count; i++)
    if (msgs[i].type == GS_STATUS_GPU)
      ck_assert_uint_eq(msgs[i].gpu, gpus++);
  ck_assert_uint_eq(gpus, it.gpu_count);
  free(msgs);
}

/* What they have left unused goes first, and nothing of anybody who has brought less. */
TEST(users_who_fill_the_table_make_room) {
  come(0, 50);
  attach(0, 7, 16 * GIB);
  go(0);
  for (int i = 1; i <= 4; i++) {
    come(i, 100 + (uid_t)i);
    for (uint32_t k = 0; k < 64; k++)
      attach_as(i, k, 1000 + 64 * (uint32_t)i + k, GIB);
    go(i);
  }
  ck_assert_uint_eq(it.gpu_count, DAEMON_GPUS_MAX);
  come(10, 60);
  attach(10, 8, 16 * GIB);
  ck_assert_uint_eq(last[10].type, GS_ATTACHED);
  look();
  ck_assert_uint_eq(listed(0), 7);
  ck_assert_uint_eq(status[0].gpu, 0);
}

TEST(a_setting_outlives_the_gpu) {
  struct gs_msg msg = wire_msg(GS_SET_TQ, GS_GPU_ALL);
  come(0, 100);
  attach(0, 7, 16 * GIB);
  look();
  memcpy(msg.set.uuid, status[0].gpu_status.uuid, GS_UUID_SIZE);
  msg.set.value = 3 * NS_PER_S;
  ask(&msg);
  ck_assert_int_eq(last[PERSON].status, 0);
  go(0);
  come(0, 100);
  for (uint32_t k = 0; k < 64; k++)
    attach_as(0, k, 1000 + k, GIB);
  look();
  for (size_t i = 0; i < status_count; i++)
    ck_assert_uint_ne(listed(i), 7); /* it made room */
  come(1, 101);
  attach(1, 7, 16 * GIB);
  look();
  for (size_t i = 0; i < status_count; i++)
    ck_assert_uint_eq(status[i].gpu_status.tq_ns, listed(i) == 7 ? 3 * NS_PER_S : 20 * NS_PER_S);
}

/* ---- with it ---- */

TEST(the_hosts_word_counts_alone) {
  two_cards();
  come(0, 100);
  attach(0, 10, MIB);
  ck_assert_uint_eq(last[0].attached.capacity_bytes, 16 * GIB);
  attach_as(0, 1, 20, UINT64_C(1) << 40);
  ck_assert_uint_eq(last[0].attached.capacity_bytes, 16 * GIB);
  look();
  ck_assert_uint_eq(status_count, 2);
  ck_assert_uint_eq(listed(0), 20);
  ck_assert_uint_eq(listed(1), 10);
  ck_assert_str_eq(status[1].gpu_status.name, "host's");
}

TEST(what_the_host_has_not_is_refused) {
  two_cards();
  come(0, 100);
  for (uint32_t k = 0; k < 64; k++) {
    attach_as(0, k, 1000 + k, 16 * GIB);
    ck_assert_uint_eq(last[0].type, GS_REJECTED);
    ck_assert_uint_eq(last[0].registered.reason, GS_REJECT_GPU);
    ck_assert_uint_eq(last[0].gpu, k);
    ck_assert_uint_eq(last[0].registered.value, 30 * NS_PER_S);
  }
  ck_assert(!peers[0].closed);
  ck_assert_uint_eq(it.gpu_count, 2);
  attach(0, 10, 16 * GIB);
  ck_assert_uint_eq(last[0].type, GS_ATTACHED);
  ck_assert_uint_eq(it.rejected_counts[GS_REJECT_GPU], 64);
}

TEST(it_may_come_late) {
  come(0, 100);
  attach(0, 10, MIB); /* a lie about what will be GPU 1 */
  attach_as(0, 1, 99, MIB);
  two_cards();
  ck_assert_uint_eq(last[0].attached.capacity_bytes, 16 * GIB);
  look();
  ck_assert_uint_eq(status_count, 3);
  ck_assert_uint_eq(listed(0), 20);
  ck_assert_uint_eq(listed(1), 10);
  ck_assert_uint_eq(listed(2), 99); /* as long as somebody is there */
  for (uint32_t i = 0; i < 3; i++)
    ck_assert_uint_eq(status[i].gpu, i);
  go(0);
  look();
  ck_assert_uint_eq(status_count, 2);
}

TEST(a_gpu_is_called_by_its_place) {
  struct card cards[] = {card_at(20, 0), card_at(10, 1), card_at(30, 2), card_at(40, 3)};
  strcpy(cards[0].bus, "00000000:65:00.0"); /* NVML's */
  strcpy(cards[1].bus, "0000:75:00.0");
  strcpy(cards[2].bus, "00010000:85:00.0");
  tell_cards(CARDS_NVML, 4, cards);
  const char *const names[] = {"GPU 0 (host's, 0000:65:00.0)", "GPU 1 (host's, 0000:75:00.0)",
                               "GPU 2 (host's, 00010000:85:00.0)", "GPU 3 (host's, GPU-28000000)"};
  for (int i = 0; i < 4; i++)
    ck_assert_str_eq(label_gpu(scheduler_find_gpu(&it.scheduler, cards[i].uuid)).text, names[i]);
}

TEST(cards_come_and_go) {
  two_cards();
  come(0, 100);
  attach(0, 10, 16 * GIB);
  tell_cards(CARDS_NVML, 2, (struct card[]){card_at(20, 0), card_at(30, 1)});
  look();
  ck_assert_uint_eq(status_count, 3);
  ck_assert_uint_eq(listed(1), 30);
  ck_assert_uint_eq(listed(2), 10);
  ck_assert_uint_eq(status[2].gpu, 2);
  go(0);
  look();
  ck_assert_uint_eq(status_count, 2);
}

TEST(instances_stand_for_their_card) {
  struct card cards[] = {card_at(20, 0), card_at(21, GS_GPU_NUMBER(0u, 1u)),
                         card_at(22, GS_GPU_NUMBER(0u, 2u)), card_at(10, 1)};
  cards[0].split = 1;
  tell_cards(CARDS_NVML, 4, cards);
  look();
  ck_assert_uint_eq(status_count, 3);
  ck_assert_uint_eq(status[0].gpu, GS_GPU_NUMBER(0u, 1u));
  ck_assert_uint_eq(status[2].gpu, 1);
  come(0, 100);
  attach(0, 20, 16 * GIB); /* an old driver names an instance by its card */
  ck_assert_uint_eq(last[0].type, GS_ATTACHED);
  look();
  ck_assert_uint_eq(status[0].gpu, 0);
  go(0);
  look();
  ck_assert_uint_eq(status_count, 3);
}

TEST(a_size_may_be_the_administrators) {
  struct card card = card_at(10, 0);
  card.total_bytes = 0;
  struct override *own = overrides_provide_numbered(&it.configured_overrides, 0);
  own->fields = OVERRIDE_SIZE;
  own->settings.card_bytes = 8 * GIB;
  tell_cards(CARDS_HOST, 1, &card);
  come(0, 100);
  attach(0, 10, MIB);
  ck_assert_uint_eq(last[0].attached.capacity_bytes, 8 * GIB);
  it.overrides.count = 0;
  gpus_settle(&it, now_ns++);
  actions_tell_some(&it, PEERS, now_ns);
  ck_assert_uint_eq(last[0].attached.capacity_bytes, MIB); /* there is no better word */
}

/* ---- where it tells of some ---- */

TEST(what_the_host_does_not_tell_of_is_as_programs_say) {
  tell_some_cards(CARDS_HOST, true, 1, (struct card[]){card_at(20, 1)});
  come(0, 100);
  attach_as(0, 0, 20, MIB);
  ck_assert_uint_eq(last[0].attached.capacity_bytes, 16 * GIB); /* of this it does */
  attach_as(0, 1, 10, 8 * GIB);
  ck_assert_uint_eq(last[0].type, GS_ATTACHED);
  ck_assert_uint_eq(last[0].attached.capacity_bytes, 8 * GIB);
  look();
  ck_assert_uint_eq(status_count, 2);
  ck_assert_uint_eq(status[0].gpu, 1);
  ck_assert_uint_eq(status[1].gpu, 2);
  tell_cards(CARDS_HOST, 2, (struct card[]){card_at(20, 1), card_at(10, 0)}); /* once it has been used */
  look();
  ck_assert_uint_eq(status_count, 2);
  ck_assert_uint_eq(listed(0), 10);
  ck_assert_uint_eq(status[0].gpu, 0);
  attach_as(0, 2, 99, 16 * GIB);
  ck_assert_uint_eq(last[0].type, GS_REJECTED);
  go(0);
  look();
  ck_assert_uint_eq(status_count, 2);
}

TEST(what_no_program_says_any_more_is_gone) {
  tell_some_cards(CARDS_HOST, true, 1, (struct card[]){card_at(20, 0)});
  come(0, 100);
  for (uint32_t k = 0; k < 64; k++)
    attach_as(0, k, 1000 + k, GIB);
  come(1, 101);
  attach(1, 20, 16 * GIB);
  ck_assert_uint_eq(last[1].type, GS_ATTACHED);
  go(0);
  look();
  ck_assert_uint_eq(status_count, 1);
}

int main(void) { return suite_run_all("gpus", set_up, played_end); }
