/* test_claims.c - what most users say that a card is. */
#include "server/cards.h"

#include <stdio.h>
#include <string.h>

#include "suite.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static struct claims claims;

static void set_up(void) { claims = (struct claims){0}; }
static void nothing(void) {}

TEST(the_first_word_counts_until_most_say_another) {
  claims_enter(&claims, 1, MIB, "lie");
  ck_assert_uint_eq(claims.total_bytes, MIB);
  claims_enter(&claims, 2, 16 * GIB, "card");
  ck_assert_uint_eq(claims.total_bytes, MIB); /* one against one */
  claims_enter(&claims, 3, 16 * GIB, "card");
  ck_assert_uint_eq(claims.total_bytes, 16 * GIB);
  ck_assert_str_eq(claims.name, "card");
}

TEST(users_count_and_not_their_programs) {
  claims_enter(&claims, 1, 16 * GIB, "card");
  claims_enter(&claims, 2, 16 * GIB, "card");
  for (int i = 0; i < 100; i++)
    claims_enter(&claims, 3, UINT64_C(1) << 40, "lie");
  ck_assert_uint_eq(claims.total_bytes, 16 * GIB);
  ck_assert_uint_eq(claims.count, 3);
}

TEST(a_later_word_of_a_user_counts_for_nothing) {
  claims_enter(&claims, 1, 16 * GIB, "card");
  claims_enter(&claims, 1, MIB, "lie");
  claims_leave(&claims, 1);
  claims_enter(&claims, 1, MIB, "lie");
  ck_assert_uint_eq(claims.total_bytes, 16 * GIB);
  ck_assert_str_eq(claims.name, "card");
  claims_leave(&claims, 1);
  claims_leave(&claims, 1);
  claims_enter(&claims, 1, MIB, "small");
  ck_assert_uint_eq(claims.total_bytes, MIB); /* but once none is left, it is the first */
}

TEST(who_has_gone_says_nothing) {
  claims_enter(&claims, 1, MIB, "lie");
  claims_enter(&claims, 1, MIB, "lie");
  claims_enter(&claims, 2, 16 * GIB, "card");
  claims_leave(&claims, 1);
  ck_assert_uint_eq(claims.total_bytes, MIB);
  claims_leave(&claims, 1);
  ck_assert_uint_eq(claims.total_bytes, 16 * GIB);
  claims_leave(&claims, 2);
  ck_assert_uint_eq(claims.total_bytes, 0); /* nobody's word is left over */
  ck_assert_str_eq(claims.name, "");
  claims_enter(&claims, 3, 8 * GIB, "other");
  ck_assert_uint_eq(claims.total_bytes, 8 * GIB);
}

/* Beyond those who have a vote. */
TEST(what_counts_lasts_as_long_as_any_program_is_there) {
  for (uid_t uid = 0; uid <= CLAIMS_MAX; uid++)
    claims_enter(&claims, uid, 16 * GIB, "card");
  for (uid_t uid = 0; uid < CLAIMS_MAX; uid++)
    claims_leave(&claims, uid);
  ck_assert_uint_eq(claims.count, 0);
  ck_assert_uint_eq(claims.total_bytes, 16 * GIB);
  ck_assert_str_eq(claims.name, "card");
  claims_leave(&claims, CLAIMS_MAX);
  ck_assert_uint_eq(claims.total_bytes, 0);
}

TEST(they_have_a_bound) {
  for (uid_t uid = 0; uid < 2 * CLAIMS_MAX; uid++)
    claims_enter(&claims, uid, GIB + uid, "card");
  ck_assert_uint_eq(claims.count, CLAIMS_MAX);
  for (uid_t uid = 0; uid < 2 * CLAIMS_MAX; uid++)
    claims_leave(&claims, uid);
  ck_assert_uint_eq(claims.count, 0);
}

int main(void) { return suite_run_all("claims", set_up, nothing); }
