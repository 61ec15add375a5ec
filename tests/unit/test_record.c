/* test_record.c - a bounded record of what has happened. */
#include "common/wire.h"
#include "record.h"
#include "suite.h"

#define ROOM 8

static struct record record;

static void set_up(void) { record_init(&record, ROOM); }

static void tear_down(void) { record_end(&record); }

/* Each job's number is the event's. */
static void add(uint32_t job, uint64_t at_ns) {
  struct gs_msg event = wire_msg(GS_EVENT, 0);
  event.event.job = job;
  event.event.at_ns = at_ns;
  record_add(&record, &event);
}

static void add_many(uint32_t count) {
  for (uint32_t i = 1; i <= count; i++)
    add(i, 10 * i);
}

START_TEST(events_are_numbered) {
  ck_assert_uint_eq(record_first_seq(&record), 1);
  ck_assert_uint_eq(record.next_seq, 1);
  add_many(3);
  ck_assert_uint_eq(record_first_seq(&record), 1);
  ck_assert_uint_eq(record.next_seq, 4);
  for (uint32_t i = 1; i <= 3; i++) {
    ck_assert_uint_eq(record_at(&record, i)->event.seq, i);
    ck_assert_uint_eq(record_at(&record, i)->event.job, i);
  }
}
END_TEST

START_TEST(the_oldest_make_room) {
  add_many(ROOM);
  ck_assert_uint_eq(record_first_seq(&record), 1);
  add(ROOM + 1, 1000);
  ck_assert_uint_eq(record_first_seq(&record), 2);
  add_many(3 * ROOM);
  ck_assert_uint_eq(record.next_seq - record_first_seq(&record), ROOM);
  for (uint64_t seq = record_first_seq(&record); seq < record.next_seq; seq++)
    ck_assert_uint_eq(record_at(&record, seq)->event.seq, seq);
}
END_TEST

START_TEST(events_are_found_by_time) {
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
END_TEST

START_TEST(without_memory_nothing_is_kept) {
  record_end(&record);
  add_many(3);
  ck_assert_uint_eq(record.next_seq, 1);
  ck_assert_uint_eq(record_find(&record, 0), 1);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {events_are_numbered, the_oldest_make_room, events_are_found_by_time,
                                without_memory_nothing_is_kept, NULL};
  return suite_main("record", tests, set_up, tear_down);
}
