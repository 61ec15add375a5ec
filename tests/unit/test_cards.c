/* test_cards.c - the table of the host's cards, and what a helper may have written into it. */
#include "server/cards.h"

#include <string.h>

#include "common/gpu_number.h"
#include "core/scheduler.h"
#include "suite.h"

static struct cards cards;

static struct card *add(uint8_t uuid, uint32_t number) {
  struct card *card = &cards.list[cards.count++];
  *card = (struct card){.uuid = {uuid}, .number = number, .total_bytes = 1, .name = "card"};
  return card;
}

static void set_up(void) {
  memset(&cards, 0, sizeof cards);
  add(3, 2);
  add(2, GS_GPU_NUMBER(0u, 2u));
  add(1, GS_GPU_NUMBER(0u, 0u));
  add(4, GS_GPU_NUMBER(0u, 1u));
}

static void nothing(void) {}

TEST(they_are_found_and_in_order) {
  ck_assert_ptr_null(cards_settle(&cards));
  static const uint8_t order[] = {1, 4, 2, 3};
  for (int i = 0; i < 4; i++)
    ck_assert_uint_eq(cards.list[i].uuid[0], order[i]);
  ck_assert_ptr_eq(cards_find(&cards, (uint8_t[GS_UUID_SIZE]){2}), &cards.list[2]);
  ck_assert_ptr_null(cards_find(&cards, (uint8_t[GS_UUID_SIZE]){5}));
  ck_assert_ptr_eq(cards_at(&cards, 2), &cards.list[3]);
  ck_assert_ptr_null(cards_at(&cards, 1));
}

TEST(nonsense_is_refused) {
  cards.count = CARDS_MAX + 1;
  ck_assert_ptr_nonnull(cards_settle(&cards));
  cards.count = UINT32_MAX;
  ck_assert_ptr_nonnull(cards_settle(&cards));
  set_up();
  add(3, 7); /* a UUID twice */
  ck_assert_ptr_nonnull(cards_settle(&cards));
  set_up();
  add(5, 2); /* a number twice */
  ck_assert_ptr_nonnull(cards_settle(&cards));
  set_up();
  add(0, 7); /* no UUID */
  ck_assert_ptr_nonnull(cards_settle(&cards));
  set_up();
  add(5, 7)->total_bytes = UINT64_MAX;
  ck_assert_ptr_nonnull(cards_settle(&cards));
  set_up();
  add(5, GS_GPU_ALL);
  ck_assert_ptr_nonnull(cards_settle(&cards));
  set_up();
  add(5, GS_GPU_NUMBER(0u, GS_GPU_PART_MAX + 1u));
  ck_assert_ptr_nonnull(cards_settle(&cards));
  set_up();
  add(5, 7)->total_bytes = SCHED_BYTES_MAX + 1;
  ck_assert_ptr_nonnull(cards_settle(&cards));
  set_up(); /* what is just possible */
  add(5, GS_GPU_NUMBER(0u, GS_GPU_PART_MAX))->total_bytes = SCHED_BYTES_MAX;
  ck_assert_ptr_null(cards_settle(&cards));
}

/* Whatever a helper writes for the same: two equal tables are equal in all bytes. */
TEST(flags_become_equal) {
  add(5, 7)->split = 2;
  cards.list[4].pad = 3;
  ck_assert_ptr_null(cards_settle(&cards));
  ck_assert_uint_eq(cards.list[4].split, 1);
  ck_assert_uint_eq(cards.list[4].pad, 0);
}

TEST(texts_become_printable) {
  struct card *card = add(5, 7);
  memset(card->name, '\x1b', sizeof card->name);
  memset(card->bus, 'x', sizeof card->bus);
  ck_assert_ptr_null(cards_settle(&cards));
  ck_assert_uint_eq(strlen(cards.list[4].name), sizeof card->name - 1);
  ck_assert_int_eq(cards.list[4].name[0], '?');
  ck_assert_uint_eq(strlen(cards.list[4].bus), sizeof card->bus - 1);
}

TEST(numbers_are_nvidia_smis) {
  uint32_t number;
  ck_assert_str_eq(GPU_NUMBER_TEXT(0), "0");
  ck_assert_str_eq(GPU_NUMBER_TEXT(GS_GPU_NUMBER(3u, 2u)), "3:1");
  ck_assert_int_eq(gpu_number_parse("3:1", &number), 0);
  ck_assert_uint_eq(number, GS_GPU_NUMBER(3u, 2u));
  ck_assert_int_eq(gpu_number_parse("65535", &number), 0);
  ck_assert_uint_eq(number, 65535);
  static const char *const wrong[] = {"",
                                      ":",
                                      "0:",
                                      ":0",
                                      "65536",
                                      "-1",
                                      "1:32767",
                                      "0x1",
                                      " 1",
                                      "1 ",
                                      "1:1:1",
                                      "GPU-1",
                                      "11111111111111111111"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_msg(gpu_number_parse(wrong[i], &number) < 0, "'%s'", wrong[i]);
  ck_assert_int_lt(gpu_number_compare(GS_GPU_NUMBER(0u, 2u), 1), 0);
  ck_assert_int_gt(gpu_number_compare(GS_GPU_NUMBER(1u, 1u), 1), 0);
}

int main(void) { return suite_run_all("cards", set_up, nothing); }
