/*
 * order.h - intrusive ordered sets: nodes in ascending order of their keys, equal ones in the order in which
 * they came. Each has a size as well: the next one that is no larger than a given size is found without
 * looking at those between. No allocation; all operations cost O(log n), expected.
 *
 * A treap (Aragon and Seidel, 1989) whose priorities are a hash of the order of arrival: the same operations
 * build the same tree. Each node knows the least size below it.
 */
#ifndef GS_ORDER_H
#define GS_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct order_node {
  struct order_node *parent, *left, *right;
  uint64_t key, number; /* number: 0 while it is in no set */
  uint64_t size, least; /* least: of the sizes in its subtree */
};

struct order {
  struct order_node *root;
  uint64_t last_number;
};

/* Every node of the set, in order, and from the last to the first. The present node must stay in it. */
#define order_each(node, order)                                                                              \
  for (struct order_node *node = order_first(order); node; node = order_next(node))
#define order_each_back(node, order)                                                                         \
  for (struct order_node *node = order_last(order); node; node = order_previous(node))

static inline bool order_has(const struct order_node *node) { return node->number != 0; }

/* The node is in no set. */
void order_insert(struct order *order, struct order_node *node, uint64_t key, uint64_t size);

/* Nothing happens if it is in no set. */
void order_resize(struct order_node *node, uint64_t size);

/* Nothing happens if it is in no set. */
void order_remove(struct order *order, struct order_node *node);

/* NULL: there is none. */
struct order_node *order_first(const struct order *order);
struct order_node *order_last(const struct order *order);
struct order_node *order_next(const struct order_node *node);
struct order_node *order_previous(const struct order_node *node);

/* The last one whose key is no larger. */
struct order_node *order_last_within(const struct order *order, uint64_t key);

/* The next one that is no larger. */
struct order_node *order_next_within(const struct order_node *node, uint64_t size);

#endif
