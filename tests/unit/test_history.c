/* test_history.c - what the daemon remembers of runs. */
#include "common/clock.h"
#include "server/terms.h"
#include "suite.h"

#define ALICE 1000
#define BOB 1001

static struct history history;

static void set_up(void) { history_init(&history); }

static void tear_down(void) { history_end(&history); }

static uint64_t expected_s(uid_t uid, uint64_t command_hash) {
  return history_expected_ns(&history, uid, command_hash) / NS_PER_S;
}

static void add_s(uid_t uid, uint64_t command_hash, uint64_t s) {
  history_add(&history, uid, command_hash, s * NS_PER_S);
}

TEST(a_command_takes_what_it_took) {
  ck_assert_uint_eq(expected_s(ALICE, 1), 0);
  add_s(ALICE, 1, 100);
  ck_assert_uint_eq(expected_s(ALICE, 1), 100);
  ck_assert_uint_eq(expected_s(ALICE, 2), 0);
  ck_assert_uint_eq(expected_s(BOB, 1), 0);
}

TEST(the_last_runs_count_most) {
  add_s(ALICE, 1, 100);
  add_s(ALICE, 1, 200);
  ck_assert_uint_eq(expected_s(ALICE, 1), 150);
  add_s(ALICE, 1, 250);
  ck_assert_uint_eq(expected_s(ALICE, 1), 200);
  history_add(&history, ALICE, 1, UINT64_MAX);
  ck_assert_uint_gt(history_expected_ns(&history, ALICE, 1), UINT64_MAX / 2 - 1);
}

TEST(short_runs_and_unknown_commands_teach_nothing) {
  history_add(&history, ALICE, 1, NS_PER_S);
  ck_assert_uint_eq(expected_s(ALICE, 1), 0);
  add_s(ALICE, 0, 100);
  ck_assert_uint_eq(expected_s(ALICE, 0), 0);
  ck_assert_uint_eq(history.count, 0);
}

TEST(the_longest_unused_is_forgotten_first) {
  for (uint64_t hash = 1; hash <= HISTORY_MAX; hash++)
    add_s(ALICE, hash, 100 + hash);
  ck_assert_uint_eq(history.count, HISTORY_MAX);
  ck_assert_uint_eq(expected_s(ALICE, 1), 101); /* used by being asked for */
  add_s(ALICE, 2, 102);                         /* and by another run */
  add_s(BOB, 1, 7);
  add_s(BOB, 2, 7);
  ck_assert_uint_eq(history.count, HISTORY_MAX);
  ck_assert_uint_eq(expected_s(ALICE, 3), 0);
  ck_assert_uint_eq(expected_s(ALICE, 4), 0);
  ck_assert_uint_eq(expected_s(ALICE, 1), 101);
  ck_assert_uint_eq(expected_s(ALICE, 2), 102);
  ck_assert_uint_eq(expected_s(ALICE, 5), 105);
  ck_assert_uint_eq(expected_s(BOB, 1), 7);
}

TEST(one_user_makes_nothing_of_another_be_forgotten) {
  for (uint64_t hash = 1; hash <= HISTORY_MAX / 4; hash++)
    add_s(BOB, hash, 7);
  for (uint64_t hash = 1; hash <= 3 * HISTORY_MAX; hash++)
    add_s(ALICE, hash, 100);
  ck_assert_uint_eq(history.count, HISTORY_MAX);
  for (uint64_t hash = 1; hash <= HISTORY_MAX / 4; hash++)
    ck_assert_uint_eq(expected_s(BOB, hash), 7);
  add_s(BOB, HISTORY_MAX, 7); /* at the expense of the one that has more */
  ck_assert_uint_eq(expected_s(BOB, 1), 7);
  ck_assert_uint_eq(history.count, HISTORY_MAX);
}

int main(void) { return suite_run_all("history", set_up, tear_down); }
