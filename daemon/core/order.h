/*
 * order.h - intrusive ordered sets: nodes in ascending order of their keys, equal ones in the order in which
 * they came. Each has a size as well: the next one that is no larger than a given size is found without
 * looking at those between. No allocation; all operations cost O(log n), expected. A set may consist of sets.
 *
 * A treap (Aragon and Seidel, 1989) whose priorities are a hash of the order of arrival: the same operations
 * build the same tree. Each node knows the least size below it.
 */
#ifndef GS_ORDER_H
#define GS_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct order;

struct order_node {
  struct order *set;
  struct order_node *parent, *left, *right;
  uint64_t key, number; /* number: 0 while it is in no set */
  uint64_t size, least; /* least: of the sizes in its subtree */
};

struct order {
  struct order_node *root;
  uint64_t last_number;
  struct order *outer;      /* the set of sets that this one is part of; NULL: none */
  struct order_node member; /* of that, while it is not empty; its size: the least one of this set */
  uint64_t key;             /* of that */
  bool nests;               /* its nodes are sets: what is in those is what is in it */
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
void order_remove(struct order_node *node);

/* A set of sets: the nodes of one come before those of the next. Nothing is inserted into itself. */
void order_init_outer(struct order *outer);
void order_init_inner(struct order *order, struct order *outer, uint64_t key);

/* Where the set is in the outer one. Equal ones in the order in which they came to be there. */
void order_set_key(struct order *order, uint64_t key);

/* NULL: there is none. */
struct order_node *order_first(const struct order *order);
struct order_node *order_last(const struct order *order);
struct order_node *order_next(const struct order_node *node);
struct order_node *order_previous(const struct order_node *node);

/* Of two in the same set, or in the same set of sets: a comes before b. */
bool order_precedes(const struct order_node *a, const struct order_node *b);

/* The last one whose key is no larger. */
struct order_node *order_last_within(const struct order *order, uint64_t key);

/* The next one that is no larger. */
struct order_node *order_next_within(const struct order_node *node, uint64_t size);

#endif
