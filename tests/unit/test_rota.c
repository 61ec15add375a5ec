/* test_rota.c - users are served in turn, by the time that serving them takes. The time is played. */
#include "server/users.h"
#include "suite.h"

#define USERS 3
#define NODES 2000
#define MS UINT64_C(1000000)

static struct rota rota;
static struct rota_user users[USERS];
static struct list nodes[USERS][NODES];

static void set_up(void) {
  rota_init(&rota);
  for (int i = 0; i < USERS; i++) {
    rota_user_init(&users[i]);
    for (int n = 0; n < NODES; n++)
      list_init(&nodes[i][n]);
  }
}

static void give(int user, int count) {
  for (int n = 0; n < count; n++)
    rota_add(&rota, &users[user], &nodes[user][n]);
}

/* What is first is served, takes so long by user, and is there again. Until so much has passed. */
static void serve(const uint64_t costs_ns[USERS], uint64_t for_ns) {
  for (uint64_t now_ns = 0; now_ns < for_ns;) {
    struct rota_user *user = rota_next(&rota);
    ck_assert_ptr_nonnull(user);
    struct list *node = list_first(&user->ready);
    list_remove(node);
    rota_spend(user, costs_ns[user - users]);
    rota_add(&rota, user, node);
    now_ns += costs_ns[user - users];
  }
}

TEST(nobody_is_there) { ck_assert_ptr_null(rota_next(&rota)); }

TEST(connections_and_costs_make_no_difference) {
  static const uint64_t costs_ns[USERS] = {MS, MS / 100, MS / 1000};
  give(0, NODES);
  give(1, 10);
  give(2, 1);
  serve(costs_ns, 3000 * MS);
  for (int i = 0; i < USERS; i++) {
    ck_assert_uint_ge(users[i].handled_ns, 980 * MS);
    ck_assert_uint_le(users[i].handled_ns, 1020 * MS);
  }
}

TEST(one_that_comes_waits_for_a_quantum_of_each_other) {
  static const uint64_t costs_ns[USERS] = {MS / 100, MS / 100, MS / 100};
  give(0, NODES);
  give(1, NODES);
  serve(costs_ns, 100 * MS);
  uint64_t before_ns = users[0].handled_ns + users[1].handled_ns;
  give(2, 1);
  while (rota_next(&rota) != &users[2])
    serve(costs_ns, 1);
  ck_assert_uint_le(users[0].handled_ns + users[1].handled_ns - before_ns, 2 * ROTA_QUANTUM_NS + MS / 50);
}

TEST(what_is_owed_is_paid_while_others_wait) {
  static const uint64_t costs_ns[USERS] = {MS / 100, MS / 100, MS / 100};
  give(0, 1);
  rota_spend(&users[0], 50 * MS); /* one event */
  give(1, 1);
  serve(costs_ns, 100 * MS);
  ck_assert_uint_ge(users[1].handled_ns, 74 * MS);
  ck_assert_uint_le(users[1].handled_ns, 76 * MS);
}

TEST(what_is_owed_holds_up_nobody_alone) {
  give(0, 1);
  rota_spend(&users[0], 5000 * MS);
  ck_assert_ptr_eq(rota_next(&rota), &users[0]);
}

/* It is still owed by one that has left meanwhile; and nothing is saved up by one that has nothing to do. */
TEST(leaving_changes_nothing) {
  give(0, 1);
  give(1, 1);
  rota_spend(&users[0], 10 * MS);
  for (int i = 0; i < 2; i++)
    list_remove(&nodes[i][0]);
  ck_assert_ptr_null(rota_next(&rota));
  ck_assert_int_le(users[0].credit_ns, -9 * (int64_t)MS);
  ck_assert_int_eq(users[1].credit_ns, 0);
}

TEST(debts_have_a_bound) {
  for (int i = 0; i < 3; i++)
    rota_spend(&users[0], UINT64_MAX);
  int64_t most_ns = -users[0].credit_ns;
  ck_assert_int_ge(most_ns, 1000 * (int64_t)MS);
  rota_spend(&users[1], UINT64_MAX);
  ck_assert_int_eq(users[1].credit_ns, -most_ns); /* one event's is as much */
}

TEST(what_is_urgent_comes_first) {
  give(0, 3);
  rota_add_first(&rota, &users[0], &nodes[0][2]);
  ck_assert_ptr_eq(list_first(&users[0].ready), &nodes[0][2]);
  rota_add_first(&rota, &users[1], &nodes[1][0]);
  ck_assert_ptr_eq(list_first(&users[1].ready), &nodes[1][0]);
  rota_add(&rota, &users[0], &nodes[0][2]); /* is there */
  ck_assert_ptr_eq(list_first(&users[0].ready), &nodes[0][2]);
}

/* As if round after round were gone through, which takes some hundred thousand steps: who owes less is first,
 * and what the others owe has become less by as much as they would have been given. */
TEST(rounds_in_which_all_owe_are_not_gone_through) {
  enum { MANY = 1000, CALLS = 1000 };
  static struct rota_user many[MANY];
  static struct list things[MANY];
  for (int i = 0; i < MANY; i++) {
    rota_user_init(&many[i]);
    list_init(&things[i]);
    rota_add(&rota, &many[i], &things[i]);
  }
  for (int call = 0; call < CALLS; call++) { /* 50,000,000,000 steps, otherwise */
    for (int i = 0; i < MANY; i++)
      many[i].credit_ns = (i == MANY / 2 ? -5000 : -10000) * (int64_t)MS;
    struct rota_user *user = rota_next(&rota);
    ck_assert_ptr_eq(user, &many[MANY / 2]);
    ck_assert_int_eq(user->credit_ns, ROTA_QUANTUM_NS);
    for (int i = 0; i < MANY; i++) { /* those before it have come once more */
      int64_t rounds = (5000 * (int64_t)MS + many[i].credit_ns) / ROTA_QUANTUM_NS;
      ck_assert(i == MANY / 2 || rounds == 1 || rounds == 2);
    }
  }
}

int main(void) { return suite_run_all("rota", set_up, NULL); }
