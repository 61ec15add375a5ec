/* test_users.c - accounts per user: shares, the reserve, and that what is charged is released. */
#include <errno.h>
#include <stdio.h>

#include "common/splitmix.h"
#include "server/users.h"
#include "suite.h"

#define MIB (UINT64_C(1) << 20)
#define DESCRIPTORS 10096 /* 10000 for all */

static struct users users;

static void set_up(void) { users_init(&users, DESCRIPTORS); }

static void tear_down(void) {
  ck_assert(users_are_clear(&users));
  users_end(&users);
}

static struct user *user_of(uid_t uid) {
  struct user *user = users_find(&users, uid);
  ck_assert_ptr_nonnull(user);
  return user;
}

/* As much as it can get. */
static uint64_t take_all(struct user *user, enum user_resource resource) {
  uint64_t amount = 0;
  while (user_charge(user, resource, 1) == 0)
    amount++;
  return amount;
}

TEST(a_user_has_one_account) {
  struct user *user = user_of(1);
  ck_assert_ptr_eq(user_of(1), user);
  ck_assert_ptr_ne(user_of(2), user);
  ck_assert_int_eq(user_charge(user, USER_BYTES, 1000), 0);
  ck_assert_ptr_eq(user_of(1), user);
  user_release(user, USER_BYTES, 1000);
}

TEST(no_number_of_users_exhausts_a_resource) {
  uint64_t last = DESCRIPTORS, amounts[12], sum = 0;
  for (uid_t uid = 0; uid < 12; uid++) {
    amounts[uid] = take_all(user_of(1000 + uid), USER_DESCRIPTORS);
    ck_assert_uint_le(amounts[uid], last / 2 + 1);
    ck_assert_uint_ge(amounts[uid], 1);
    last = amounts[uid];
    sum += amounts[uid];
  }
  ck_assert_uint_eq(amounts[0], 5000);
  ck_assert_uint_eq(amounts[1], 2500);
  ck_assert_uint_lt(sum, 10000);
  for (uid_t uid = 0; uid < 12; uid++)
    user_release(user_of(1000 + uid), USER_DESCRIPTORS, amounts[uid]);
}

TEST(nobody_has_more_than_the_most) {
  users_bound_clients(&users, 3);
  ck_assert_uint_eq(take_all(user_of(1), USER_CLIENTS), 3);
  ck_assert_uint_eq(take_all(user_of(2), USER_CLIENTS), 3);
  ck_assert_uint_eq(take_all(user_of(1), USER_CONNECTIONS), 3 + 128);
  ck_assert_int_eq(user_charge(user_of(1), USER_BYTES, 65 * MIB), -EDQUOT);
  ck_assert_int_eq(user_charge(user_of(1), USER_BYTES, 64 * MIB), 0);
  ck_assert_int_eq(user_charge(user_of(1), USER_BYTES, 1), -EDQUOT);
  user_release(user_of(1), USER_CONNECTIONS, 3 + 128);
  user_release(user_of(1), USER_BYTES, 64 * MIB);
  user_release(user_of(1), USER_CLIENTS, 3);
  user_release(user_of(2), USER_CLIENTS, 3);
}

TEST(a_bound_that_falls_takes_nothing_away) {
  ck_assert_int_eq(user_charge(user_of(1), USER_CLIENTS, 10), 0);
  users_bound_clients(&users, 3);
  ck_assert_int_eq(user_charge(user_of(1), USER_CLIENTS, 1), -EDQUOT);
  user_release(user_of(1), USER_CLIENTS, 8);
  ck_assert_int_eq(user_charge(user_of(1), USER_CLIENTS, 1), 0);
  user_release(user_of(1), USER_CLIENTS, 3);
}

TEST(what_is_charged_together_is_charged_whole_or_not) {
  struct user_cost cost = {.of = {[USER_ATTACHMENTS] = 1, [USER_BYTES] = 40 * MIB}};
  struct user *user = user_of(1);
  ck_assert_int_eq(user_charge_all(user, &cost), 0);
  ck_assert_int_eq(user_charge_all(user, &cost), -EDQUOT);
  ck_assert_uint_eq(user->used[USER_ATTACHMENTS], 1);
  user_release_all(user, &cost);
}

/* Whatever the others and its own account have taken. */
TEST(an_administrator_gets_in) {
  uint64_t amounts[40];
  for (uid_t uid = 0; uid < 40; uid++)
    amounts[uid] = take_all(user_of(uid), USER_DESCRIPTORS);
  ck_assert_uint_eq(amounts[39], 0);
  ck_assert_int_eq(user_charge(&users.reserve, USER_DESCRIPTORS, 16), 0);
  ck_assert_int_eq(user_charge(&users.reserve, USER_CONNECTIONS, 16), 0);
  ck_assert_int_eq(user_charge(&users.reserve, USER_CONNECTIONS, 1), -EDQUOT);
  ck_assert_int_eq(user_charge(&users.reserve, USER_CLIENTS, 1), -EDQUOT);
  user_release(&users.reserve, USER_DESCRIPTORS, 16);
  user_release(&users.reserve, USER_CONNECTIONS, 16);
  for (uid_t uid = 0; uid < 40; uid++)
    user_release(user_of(uid), USER_DESCRIPTORS, amounts[uid]);
}

/* What a user owes is not forgotten when it reconnects; nor is everybody kept for ever. */
TEST(who_has_nothing_is_kept_for_a_while) {
  struct user *user = user_of(1);
  ck_assert_int_eq(user_charge(user, USER_CONNECTIONS, 1), 0);
  rota_spend(&user->rota, 1000000);
  user_release(user, USER_CONNECTIONS, 1);
  ck_assert_ptr_eq(user_of(1), user);
  ck_assert_int_lt(user->rota.credit_ns, 0);
  for (uid_t uid = 2; uid < 100000; uid++)
    user_of(uid);
  ck_assert_uint_lt(users.idle_count, 1000);
  ck_assert_int_eq(user_of(1)->rota.credit_ns, 0);
}

TEST(a_picture_is_charged_once) {
  struct user *user = user_of(1);
  char pictures[USER_PICTURES + 1];
  for (int i = 0; i < 100; i++)
    ck_assert_int_eq(user_hold_picture(user, &pictures[0], MIB), 0);
  ck_assert_uint_eq(user->used[USER_BYTES], MIB);
  for (int i = 1; i < USER_PICTURES; i++)
    ck_assert_int_eq(user_hold_picture(user, &pictures[i], MIB), 0);
  ck_assert_int_eq(user_hold_picture(user, &pictures[USER_PICTURES], MIB), -EDQUOT);
  for (int i = 1; i < USER_PICTURES; i++)
    user_drop_picture(user, &pictures[i], MIB);
  ck_assert_int_eq(user_hold_picture(user, &pictures[1], 64 * MIB), -EDQUOT);
  for (int i = 0; i < 100; i++)
    user_drop_picture(user, &pictures[0], MIB);
}

/* Sums are right, and everybody's share stays within half of what others leave, after any history. */
TEST(accounts_are_right_after_any_history) {
  enum { UIDS = 20, STEPS = 100000 };
  static uint64_t held[UIDS][USER_RESOURCES];
  uint64_t random = 1;
  for (int step = 0; step < STEPS; step++) {
    uint64_t bits = splitmix_next(&random);
    uid_t uid = bits % UIDS;
    enum user_resource resource = bits >> 8 & 1 ? USER_DESCRIPTORS : USER_BYTES;
    uint64_t amount = (bits >> 16) % (resource == USER_BYTES ? 4 * MIB : 100);
    struct user *user = user_of(uid);
    if (bits >> 9 & 1 && held[uid][resource] >= amount) {
      user_release(user, resource, amount);
      held[uid][resource] -= amount;
    } else if (user_charge(user, resource, amount) == 0) {
      held[uid][resource] += amount;
      if (amount == 0)
        continue;
      uint64_t others = users.used[resource] - user->used[resource];
      ck_assert_uint_le(user->used[resource], (users.limits[resource].total - others) / 2);
    }
    ck_assert_uint_eq(user->used[resource], held[uid][resource]);
    uint64_t sum = 0;
    for (uid_t i = 0; i < UIDS; i++)
      sum += held[i][resource];
    ck_assert_uint_eq(users.used[resource], sum);
  }
  for (uid_t uid = 0; uid < UIDS; uid++)
    for (int i = 0; i < USER_RESOURCES; i++)
      user_release(user_of(uid), i, held[uid][i]);
}

int main(void) { return suite_run_all("users", set_up, tear_down); }
