/* order.c - a treap with parent pointers. */
#include "core/order.h"

#include "common/splitmix.h"

/* What decides how deep a node lies. */
static uint64_t weight(const struct order_node *node) {
  uint64_t seed = node->number;
  return splitmix_next(&seed);
}

/* Where the tree points to this node. */
static struct order_node **place(struct order *order, const struct order_node *node) {
  if (!node->parent)
    return &order->root;
  return node->parent->left == node ? &node->parent->left : &node->parent->right;
}

static void put(struct order_node **where, struct order_node *node, struct order_node *parent) {
  *where = node;
  if (node)
    node->parent = parent;
}

static void take_least(struct order_node *node, const struct order_node *child) {
  if (child && child->least < node->least)
    node->least = child->least;
}

/* Of its own size, and what its children know. True: it is another one than it was. */
static bool find_least(struct order_node *node) {
  uint64_t before = node->least;
  node->least = node->size;
  take_least(node, node->left);
  take_least(node, node->right);
  return node->least != before;
}

/* The node has changed, or another one is below it. */
static void find_least_above(struct order_node *node) {
  while (node && find_least(node))
    node = node->parent;
}

/* The node takes its parent's place; the parent becomes its child. */
static void rotate_up(struct order *order, struct order_node *node) {
  struct order_node *parent = node->parent;
  put(place(order, parent), node, parent->parent);
  if (parent->left == node) {
    put(&parent->left, node->right, parent);
    put(&node->right, parent, node);
  } else {
    put(&parent->right, node->left, parent);
    put(&node->left, parent, node);
  }
  node->least = parent->least;
  find_least(parent);
}

static void insert(struct order *order, struct order_node *node, uint64_t key, uint64_t size) {
  struct order_node **where = &order->root, *parent = NULL;
  while (*where) {
    parent = *where;
    where = key < parent->key ? &parent->left : &parent->right;
  }
  *node = (struct order_node){.set = order,
                              .parent = parent,
                              .key = key,
                              .number = ++order->last_number,
                              .size = size,
                              .least = size};
  *where = node;
  find_least_above(parent);
  while (node->parent && weight(node) < weight(node->parent))
    rotate_up(order, node);
}

static void take_out(struct order_node *node) {
  struct order *order = node->set;
  while (node->left && node->right)
    rotate_up(order, weight(node->left) < weight(node->right) ? node->left : node->right);
  put(place(order, node), node->left ? node->left : node->right, node->parent);
  find_least_above(node->parent);
  *node = (struct order_node){.number = 0};
}

/* The set has changed: so has its place in the outer one. */
static void follow(struct order *order) {
  if (!order->outer)
    return;
  if (!order->root && order_has(&order->member))
    take_out(&order->member);
  else if (order->root && !order_has(&order->member))
    insert(order->outer, &order->member, order->key, order->root->least);
  else if (order->root)
    order_resize(&order->member, order->root->least);
}

void order_insert(struct order *order, struct order_node *node, uint64_t key, uint64_t size) {
  insert(order, node, key, size);
  follow(order);
}

void order_remove(struct order_node *node) {
  struct order *order = node->set;
  if (!order_has(node))
    return;
  take_out(node);
  follow(order);
}

void order_resize(struct order_node *node, uint64_t size) {
  if (!order_has(node) || node->size == size)
    return;
  node->size = size;
  find_least_above(node);
  follow(node->set);
}

void order_init_outer(struct order *outer) { *outer = (struct order){.nests = true}; }

void order_init_inner(struct order *order, struct order *outer, uint64_t key) {
  *order = (struct order){.outer = outer, .key = key};
}

void order_set_key(struct order *order, uint64_t key) {
  if (order->key == key)
    return;
  order->key = key;
  if (!order_has(&order->member))
    return;
  take_out(&order->member);
  follow(order);
}

/* ---- from one to the next ---- */

static struct order *set_of(struct order_node *member) {
  return (struct order *)(void *)((char *)member - offsetof(struct order, member));
}

static struct order_node *leftmost(struct order_node *node) {
  while (node && node->left)
    node = node->left;
  return node;
}

static struct order_node *rightmost(struct order_node *node) {
  while (node && node->right)
    node = node->right;
  return node;
}

struct order_node *order_first(const struct order *order) {
  struct order_node *first = leftmost(order->root);
  return first && order->nests ? order_first(set_of(first)) : first;
}
struct order_node *order_last(const struct order *order) {
  struct order_node *last = rightmost(order->root);
  return last && order->nests ? order_last(set_of(last)) : last;
}

static struct order_node *next_in_set(const struct order_node *node) {
  if (node->right)
    return leftmost(node->right);
  while (node->parent && node->parent->right == node)
    node = node->parent;
  return node->parent;
}

static struct order_node *previous_in_set(const struct order_node *node) {
  if (node->left)
    return rightmost(node->left);
  while (node->parent && node->parent->left == node)
    node = node->parent;
  return node->parent;
}

struct order_node *order_next(const struct order_node *node) {
  struct order_node *next = next_in_set(node), *set;
  if (next || !node->set->outer)
    return next;
  set = next_in_set(&node->set->member);
  return set ? order_first(set_of(set)) : NULL;
}

struct order_node *order_previous(const struct order_node *node) {
  struct order_node *previous = previous_in_set(node), *set;
  if (previous || !node->set->outer)
    return previous;
  set = previous_in_set(&node->set->member);
  return set ? order_last(set_of(set)) : NULL;
}

/* Equal keys stand in the order in which they came. */
static bool precedes_in_set(const struct order_node *a, const struct order_node *b) {
  return a->key != b->key ? a->key < b->key : a->number < b->number;
}

bool order_precedes(const struct order_node *a, const struct order_node *b) {
  return a->set == b->set ? precedes_in_set(a, b) : precedes_in_set(&a->set->member, &b->set->member);
}

struct order_node *order_last_within(const struct order *order, uint64_t key) {
  struct order_node *last = NULL;
  for (struct order_node *node = order->root; node; node = node->key <= key ? node->right : node->left)
    last = node->key <= key ? node : last;
  return last;
}

static bool has_within(const struct order_node *node, uint64_t size) { return node && node->least <= size; }

/* The first one of the subtree, which has one. */
static struct order_node *first_within(struct order_node *node, uint64_t size) {
  while (has_within(node->left, size) || node->size > size)
    node = has_within(node->left, size) ? node->left : node->right;
  return node;
}

static struct order_node *next_within_in_set(const struct order_node *node, uint64_t size) {
  if (has_within(node->right, size))
    return first_within(node->right, size);
  for (struct order_node *parent; (parent = node->parent); node = parent) {
    if (parent->right == node)
      continue;
    if (parent->size <= size)
      return parent;
    if (has_within(parent->right, size))
      return first_within(parent->right, size);
  }
  return NULL;
}

struct order_node *order_next_within(const struct order_node *node, uint64_t size) {
  struct order_node *next = next_within_in_set(node, size), *set;
  if (next || !node->set->outer)
    return next;
  set = next_within_in_set(&node->set->member, size);
  return set ? first_within(set_of(set)->root, size) : NULL;
}
