/* test_record.c - a bounded record of what has happened. */
#include <stdlib.h>

#include "common/splitmix.h"
#include "common/wire.h"
#include "server/record.h"
#include "suite.h"

#define ROOM 8
#define ALICE 1000
#define BOB 1001
#define MALLORY 1002

static struct record record;

static void set_up(void) { record_init(&record, ROOM); }

static void tear_down(void) { record_end(&record); }

/* Each job's number is the event's. */
static void add_of(uid_t uid, uint32_t job, uint64_t at_ns) {
  struct gs_msg event = wire_msg(GS_EVENT, 0);
  event.event.uid = uid;
  event.event.job = job;
  event.event.at_ns = at_ns;
  record_add(&record, &event);
}

static void add(uint32_t job, uint64_t at_ns) { add_of(ALICE, job, at_ns); }

static void add_many_of(uid_t uid, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    add_of(uid, (uint32_t)record.next_seq, 10 * record.next_seq);
}

static void add_many(uint32_t count) { add_many_of(ALICE, count); }

static size_t count_of(uid_t uid) {
  size_t count = 0;
  const struct record_entry *entry = record_next(&record, 0);
  for (; entry; entry = record_next(&record, entry->msg.event.seq + 1))
    count += entry->msg.event.uid == uid;
  return count;
}

static uint64_t seq_from(uint64_t seq) {
  const struct record_entry *entry = record_next(&record, seq);
  return entry ? entry->msg.event.seq : 0;
}

TEST(events_are_numbered) {
  ck_assert_uint_eq(record_first_seq(&record), 1);
  ck_assert_uint_eq(record.next_seq, 1);
  ck_assert_ptr_null(record_next(&record, 0));
  add_many(3);
  ck_assert_uint_eq(record_first_seq(&record), 1);
  ck_assert_uint_eq(record.next_seq, 4);
  for (uint32_t i = 1; i <= 3; i++) {
    ck_assert_uint_eq(record_next(&record, i)->msg.event.seq, i);
    ck_assert_uint_eq(record_next(&record, i)->msg.event.job, i);
  }
  ck_assert_ptr_null(record_next(&record, 4));
}

TEST(the_oldest_make_room) {
  add_many(ROOM);
  ck_assert_uint_eq(record_first_seq(&record), 1);
  add_many(1);
  ck_assert_uint_eq(record_first_seq(&record), 2);
  add_many(3 * ROOM);
  ck_assert_uint_eq(record.next_seq - record_first_seq(&record), ROOM);
  ck_assert_uint_eq(record.count, ROOM);
  for (uint64_t seq = record_first_seq(&record); seq < record.next_seq; seq++)
    ck_assert_uint_eq(seq_from(seq), seq);
}

TEST(events_are_found_by_time) {
  ck_assert_uint_eq(record_find(&record, 5), 1);
  add_many(ROOM + 4); /* from 50 to 120 */
  ck_assert_uint_eq(record_find(&record, 0), 5);
  ck_assert_uint_eq(record_find(&record, 50), 5);
  ck_assert_uint_eq(record_find(&record, 51), 6);
  ck_assert_uint_eq(record_find(&record, 120), 12);
  ck_assert_uint_eq(record_find(&record, 121), record.next_seq);
  add(13, 120);
  ck_assert_uint_eq(record_find(&record, 120), 12); /* the first of equals */
}

/* Numbers, and which are displaced when, are told by the entry behind. */
TEST(one_user_displaces_none_of_another) {
  add_many_of(BOB, 2); /* 1, 2 */
  add_many_of(MALLORY, 1);
  add_many_of(BOB, 2); /* 4, 5 */
  add_many_of(MALLORY, 3);
  ck_assert_uint_eq(seq_from(3), 3);
  add_many_of(MALLORY, 1); /* 9: they have as many, then: at its own expense */
  ck_assert_uint_eq(seq_from(3), 4);
  ck_assert_uint_eq(record_next(&record, 3)->displaced_by, 9);
  add_many_of(MALLORY, 1000);
  ck_assert_uint_eq(count_of(BOB), 4);
  ck_assert_uint_eq(count_of(MALLORY), 4);
  ck_assert_uint_eq(seq_from(6), 1009 - 3);
  ck_assert_uint_eq(record_next(&record, 6)->displaced_by, 1009);
  ck_assert_uint_eq(record_find(&record, 51), 1009 - 3);
}

TEST(whoever_comes_later_gets_an_even_share) {
  add_many_of(MALLORY, 3 * ROOM);
  add_many_of(ALICE, ROOM);
  ck_assert_uint_eq(count_of(ALICE), ROOM / 2);
  ck_assert_uint_eq(count_of(MALLORY), ROOM / 2);
  for (uid_t uid = 2000; uid < 2100; uid++)
    add_many_of(uid, 1);
  ck_assert_uint_eq(record.count, ROOM);
  ck_assert_uint_ge(count_of(2099), 1);
}

/* Of no job: not root's, nor each other's. */
TEST(the_daemon_has_shares_of_its_own) {
  struct gs_msg setting = wire_msg(GS_EVENT, GS_GPU_ALL), turns = setting;
  setting.event.kind = GS_EVENT_SETTING;
  turns.event.kind = GS_EVENT_TURNS;
  record_add(&record, &setting);
  add_of(0, 2, 0);
  for (int i = 0; i < 3 * ROOM; i++)
    record_add(&record, &turns);
  ck_assert_uint_eq(record_next(&record, 0)->msg.event.kind, GS_EVENT_SETTING);
  ck_assert_uint_eq(seq_from(2), 2);
}

/* A plain list of the same: who has most loses its oldest; of several, any of these. */
struct model {
  uint64_t seqs[1000];
  uid_t uids[1000];
  size_t count;
};

static size_t model_count(const struct model *model, uid_t uid) {
  size_t count = 0;
  for (size_t i = 0; i < model->count; i++)
    count += model->uids[i] == uid;
  return count;
}

/* The one that is not kept any more. */
static void model_lose(struct model *model) {
  size_t lost = 0, most = 0;
  while (lost < model->count && seq_from(model->seqs[lost]) == model->seqs[lost])
    lost++;
  ck_assert_uint_lt(lost, model->count);
  uid_t uid = model->uids[lost];
  for (size_t i = 0; i < model->count; i++) {
    size_t count = model_count(model, model->uids[i]);
    most = count > most ? count : most;
    ck_assert(model->uids[i] != uid || i >= lost);
  }
  ck_assert_uint_eq(model_count(model, uid), most);
  model->count--;
  for (size_t i = lost; i < model->count; i++) {
    model->seqs[i] = model->seqs[i + 1];
    model->uids[i] = model->uids[i + 1];
  }
}

/* So many that there are several blocks, which come and go. */
TEST(it_is_what_a_plain_list_is) {
  enum { LARGE = 900, USERS = 5, ADDED = 6000 };
  static struct model model;
  const char *given = getenv("GPUSHARE_SEED");
  uint64_t state = given ? strtoull(given, NULL, 0) : 1;
  record_end(&record);
  record_init(&record, LARGE);
  model.count = 0;
  for (int i = 0; i < ADDED; i++) {
    uint64_t random = splitmix_next(&state);
    uid_t uid = (uid_t)(i / 2000 + (random % 16 < 12 ? 0 : random % USERS)); /* one floods, then another */
    add_of(uid, 1, (uint64_t)i);
    model.seqs[model.count] = record.next_seq - 1;
    model.uids[model.count++] = uid;
    if (model.count > LARGE)
      model_lose(&model);
    ck_assert_uint_eq(record.count, model.count);
    size_t any = splitmix_next(&state) % model.count;
    uint64_t before = any ? model.seqs[any - 1] : 0, at_ns = model.seqs[any] - 1;
    ck_assert_uint_eq(seq_from(before + 1), model.seqs[any]);
    ck_assert_uint_eq(record_find(&record, at_ns), model.seqs[any]);
  }
  const struct record_entry *entry = record_next(&record, 0);
  for (size_t i = 0; i < model.count; i++, entry = record_next(&record, entry->msg.event.seq + 1))
    ck_assert_uint_eq(entry->msg.event.seq, model.seqs[i]);
  ck_assert_ptr_null(entry);
}

TEST(without_memory_nothing_is_kept) {
  record_end(&record);
  add_many(3);
  ck_assert_uint_eq(record.next_seq, 1);
  ck_assert_uint_eq(record_find(&record, 0), 1);
  ck_assert_ptr_null(record_next(&record, 0));
}

int main(void) { return suite_run_all("record", set_up, tear_down); }
