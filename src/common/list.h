/* list.h - intrusive doubly linked lists: no allocation, removal in O(1). An unlinked node points to itself.
 */
#ifndef GS_LIST_H
#define GS_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
  struct list *next, *previous;
};

/* The struct that contains `node` as its member. */
#define list_entry(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* Every node of `head`, in order. The present node must stay linked; see list_first for emptying a list. */
#define list_each(node, head) for (struct list *node = (head)->next; node != (head); node = node->next)

/* The same from the last to the first. */
#define list_each_back(node, head)                                                                           \
  for (struct list *node = (head)->previous; node != (head); node = node->previous)

static inline void list_init(struct list *node) { node->next = node->previous = node; }

static inline bool list_empty(const struct list *head) { return head->next == head; }

static inline struct list *list_first(const struct list *head) {
  return list_empty(head) ? NULL : head->next;
}

static inline void list_append(struct list *head, struct list *node) {
  node->previous = head->previous;
  node->next = head;
  head->previous->next = node;
  head->previous = node;
}

static inline void list_remove(struct list *node) {
  node->previous->next = node->next;
  node->next->previous = node->previous;
  list_init(node);
}

/* The lesser ones of the two to the front, into a chain by `next`. Of equals, those of `a` come first. */
static inline struct list *list_merge(struct list *a, struct list *b,
                                      bool (*precedes)(const struct list *, const struct list *)) {
  struct list *first = NULL, **end = &first;
  while (a && b) {
    struct list **from = precedes(b, a) ? &b : &a;
    *end = *from;
    *from = (*from)->next;
    end = &(*end)->next;
  }
  *end = a ? a : b;
  return first;
}

/* Cut what is in order already off the chain. */
static inline struct list *list_take_run(struct list **chain,
                                         bool (*precedes)(const struct list *, const struct list *)) {
  struct list *first = *chain, *last = first;
  while (last->next && !precedes(last->next, last))
    last = last->next;
  *chain = last->next;
  last->next = NULL;
  return first;
}

static inline bool list_is_sorted(const struct list *head,
                                  bool (*precedes)(const struct list *, const struct list *)) {
  const struct list *node = head->next;
  while (node != head && node->next != head && !precedes(node->next, node))
    node = node->next;
  return node == head || node->next == head;
}

/* Equal ones keep their order. A merge sort of what is in order already: O(n) if all of it is. */
static inline void list_sort(struct list *head, bool (*precedes)(const struct list *, const struct list *)) {
  struct list *runs[32] = {NULL}, *chain, *sorted = NULL; /* runs[i]: of 2 to the i runs, or none */
  if (list_is_sorted(head, precedes))
    return;
  head->previous->next = NULL;
  chain = head->next;
  while (chain) {
    struct list *run = list_take_run(&chain, precedes);
    int i = 0;
    for (; runs[i] && i < 31; i++) {
      run = list_merge(runs[i], run, precedes);
      runs[i] = NULL;
    }
    runs[i] = run;
  }
  for (int i = 0; i < 32; i++)
    sorted = runs[i] ? list_merge(runs[i], sorted, precedes) : sorted;
  list_init(head);
  while (sorted) {
    struct list *next = sorted->next;
    list_append(head, sorted);
    sorted = next;
  }
}

#endif
