/* test_order.c - sorted sets against a sorted array, with random insertions, removals and sizes. */
#include "core/order.h"

#include <string.h>

#include "common/splitmix.h"
#include "suite.h"

#define NODES 200
#define SIZES 1000
#define KEYS 50

static struct order order;
static struct order_node nodes[NODES];
static int expected[NODES]; /* indices of the nodes that are in, in order */
static int count;

static uint64_t random_bits(void) {
  static uint64_t state = 1;
  return splitmix_next(&state);
}

static void set_up(void) {
  order = (struct order){.root = NULL};
  memset(nodes, 0, sizeof nodes);
  count = 0;
}

static void insert(int i, uint64_t key) {
  int place = count++;
  order_insert(&order, &nodes[i], key, random_bits() % SIZES);
  for (; place > 0 && nodes[expected[place - 1]].key > key; place--)
    expected[place] = expected[place - 1];
  expected[place] = i;
}

static void remove_node(int i) {
  int place = 0;
  order_remove(&nodes[i]);
  while (expected[place] != i)
    place++;
  count--;
  memmove(&expected[place], &expected[place + 1], (size_t)(count - place) * sizeof expected[0]);
}

/* The last one of a key that is no larger: what comes after it is. */
static void check_last_within(uint64_t key) {
  const struct order_node *last = order_last_within(&order, key);
  const struct order_node *after = last ? order_next(last) : order_first(&order);
  ck_assert(!last || last->key <= key);
  ck_assert(!after || after->key > key);
}

static void check(void) {
  int place = 0;
  order_each(node, &order) {
    ck_assert_int_lt(place, count);
    ck_assert_ptr_eq(node, &nodes[expected[place++]]);
  }
  ck_assert_int_eq(place, count);
  order_each_back(node, &order) { ck_assert_ptr_eq(node, &nodes[expected[--place]]); }
  ck_assert_int_eq(place, 0);
  for (uint64_t key = 0; key <= KEYS; key++)
    check_last_within(key);
}

/* A node comes or goes. */
static void change_one(void) {
  int i = (int)(random_bits() % NODES);
  if (order_has(&nodes[i]))
    remove_node(i);
  else
    insert(i, 1 + random_bits() % (KEYS - 1));
}

START_TEST(nodes_come_in_the_order_of_their_keys) {
  for (int step = 0; step < 20000; step++) {
    change_one();
    if (step % 16 == 0)
      check();
  }
}
END_TEST

/* One after the other. */
static const struct order_node *next_within(const struct order_node *node, uint64_t size) {
  while ((node = order_next(node)) && node->size > size) {
  }
  return node;
}

static void check_sizes(void) {
  uint64_t size = random_bits() % SIZES / 4; /* that most are larger than */
  order_each(node, &order) { ck_assert_ptr_eq(order_next_within(node, size), next_within(node, size)); }
}

START_TEST(the_next_one_of_a_size_is_found) {
  for (int step = 0; step < 20000; step++) {
    change_one();
    order_resize(&nodes[random_bits() % NODES], random_bits() % SIZES);
    if (step % 16 == 0)
      check_sizes();
  }
}
END_TEST

START_TEST(equal_keys_come_in_the_order_of_arrival) {
  for (int i = NODES - 1; i >= 0; i--)
    insert(i, 7);
  check();
  ck_assert_ptr_eq(order_first(&order), &nodes[NODES - 1]);
  ck_assert_ptr_eq(order_last(&order), &nodes[0]);
}
END_TEST

START_TEST(an_empty_set_has_nothing_to_offer) {
  ck_assert_ptr_null(order_first(&order));
  ck_assert_ptr_null(order_last(&order));
  order_remove(&nodes[0]); /* in no set: nothing happens */
  insert(0, 1);
  remove_node(0);
  ck_assert_ptr_null(order_first(&order));
}
END_TEST

static int depth(const struct order_node *node) {
  int left = node ? depth(node->left) : 0, right = node ? depth(node->right) : 0;
  return node ? 1 + (left > right ? left : right) : 0;
}

/* Sorted input is what makes a plain tree a list. */
START_TEST(it_stays_shallow) {
  for (int i = 0; i < NODES; i++)
    order_insert(&order, &nodes[i], (uint64_t)i, 0);
  ck_assert_int_le(depth(order.root), 32);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {nodes_come_in_the_order_of_their_keys,
                                the_next_one_of_a_size_is_found,
                                equal_keys_come_in_the_order_of_arrival,
                                an_empty_set_has_nothing_to_offer,
                                it_stays_shallow,
                                NULL};
  return suite_main("order", tests, set_up, NULL);
}
