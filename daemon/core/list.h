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

#endif
