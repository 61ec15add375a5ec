/* ledger.c - the ledger as a treap: a search tree by base whose random priorities keep it balanced. */
#include "memory/ledger.h"
#include "common/condition.h"
#include "common/lock.h"

#include <errno.h>
#include <stdlib.h>

#define SPARES 16 /* a program that allocates and frees in a loop needs no memory of the host for that */

struct ledger_node {
  struct allocation allocation;
  struct ledger_node *left, *right;
  uint64_t priority;
  unsigned pins;
  bool doomed; /* a thread is in ledger_take, waiting for the pins to go */
};

/* The tree. All of it under the ledger's lock. */

static uint64_t next_random(struct ledger *ledger) {
  uint64_t x = ledger->random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return ledger->random = x;
}

/* Divide a tree into keys below `base` and the others. */
static void split(struct ledger_node *node, uint64_t base, struct ledger_node **low,
                  struct ledger_node **high) {
  while (node) {
    if (node->allocation.base < base) {
      *low = node;
      low = &node->right;
      node = node->right;
    } else {
      *high = node;
      high = &node->left;
      node = node->left;
    }
  }
  *low = *high = NULL;
}

/* All keys of `low` are below those of `high`. */
static struct ledger_node *merge(struct ledger_node *low, struct ledger_node *high) {
  struct ledger_node *root;
  struct ledger_node **link = &root;
  while (low && high) {
    if (low->priority > high->priority) {
      *link = low;
      link = &low->right;
      low = low->right;
    } else {
      *link = high;
      link = &high->left;
      high = high->left;
    }
  }
  *link = low ? low : high;
  return root;
}

static struct ledger_node **find_link(struct ledger *ledger, uint64_t base) {
  struct ledger_node **link = &ledger->root;
  while (*link && (*link)->allocation.base != base)
    link = base < (*link)->allocation.base ? &(*link)->left : &(*link)->right;
  return link;
}

static struct ledger_node *find_exact(struct ledger *ledger, uint64_t base) {
  return *find_link(ledger, base);
}

static void link_node(struct ledger *ledger, struct ledger_node *node) {
  uint64_t base = node->allocation.base;
  struct ledger_node **link = &ledger->root;
  while (*link && (*link)->priority > node->priority)
    link = base < (*link)->allocation.base ? &(*link)->left : &(*link)->right;
  split(*link, base, &node->left, &node->right);
  *link = node;
  ledger->count++;
}

static void remove_node(struct ledger *ledger, struct ledger_node *node) {
  struct ledger_node **link = find_link(ledger, node->allocation.base);
  *link = merge(node->left, node->right);
  ledger->count--;
  if (ledger->spare_count == SPARES) {
    free(node);
    return;
  }
  node->right = ledger->spares;
  ledger->spares = node;
  ledger->spare_count++;
}

/* NULL: no more than so many are left. */
static struct ledger_node *take_spare(struct ledger *ledger, unsigned left) {
  struct ledger_node *node = ledger->spares;
  if (ledger->spare_count <= left)
    return NULL;
  ledger->spares = node->right;
  ledger->spare_count--;
  return node;
}

/* The node with the highest base that is not above `key`. */
static struct ledger_node *find_floor(struct ledger *ledger, uint64_t key) {
  struct ledger_node *best = NULL;
  for (struct ledger_node *node = ledger->root; node;) {
    if (node->allocation.base <= key) {
      best = node;
      node = node->right;
    } else {
      node = node->left;
    }
  }
  return best;
}

/* The node with the lowest base that is not below `key`. */
static struct ledger_node *find_ceiling(struct ledger *ledger, uint64_t key) {
  struct ledger_node *best = NULL;
  for (struct ledger_node *node = ledger->root; node;) {
    if (node->allocation.base >= key) {
      best = node;
      node = node->left;
    } else {
      node = node->right;
    }
  }
  return best;
}

static bool contains(const struct allocation *allocation, uint64_t key) {
  return key >= allocation->base && key - allocation->base < allocation->span;
}

/* A node that shares a key with [base, base + span). */
static struct ledger_node *find_overlap(struct ledger *ledger, uint64_t base, uint64_t span) {
  struct ledger_node *node = find_floor(ledger, base);
  if (node && contains(&node->allocation, base))
    return node;
  node = find_ceiling(ledger, base);
  return node && node->allocation.base - base < span ? node : NULL;
}

/* Public functions. */

static void remove_overlaps(struct ledger *ledger, const struct allocation *new,
                            void (*stale)(const struct allocation *, void *), void *argument) {
  struct ledger_node *node;
  while ((node = find_overlap(ledger, new->base, new->span))) {
    if (node->pins) { /* the mover lets go of it soon */
      condition_wait(&ledger->unpinned, &ledger->lock, UINT64_MAX);
      continue;
    }
    if (node->doomed) /* its taker finds it gone */
      condition_wake_all(&ledger->unpinned);
    if (stale)
      stale(&node->allocation, argument);
    remove_node(ledger, node);
  }
}

int ledger_insert(struct ledger *ledger, const struct allocation *allocation,
                  void (*stale)(const struct allocation *, void *), void *argument) {
  lock_take(&ledger->lock);
  struct ledger_node *node = take_spare(ledger, 1);
  if (!node)
    node = malloc(sizeof *node);
  if (!node)
    node = take_spare(ledger, 0);
  if (node) {
    *node = (struct ledger_node){.allocation = *allocation};
    remove_overlaps(ledger, allocation, stale, argument);
    node->allocation.sequence = ++ledger->next_sequence;
    node->priority = next_random(ledger);
    link_node(ledger, node);
  }
  lock_release(&ledger->lock);
  return node ? 0 : -ENOMEM;
}

bool ledger_find(struct ledger *ledger, uint64_t key, struct allocation *found) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_floor(ledger, key);
  bool hit = node && contains(&node->allocation, key);
  if (hit && found)
    *found = node->allocation;
  lock_release(&ledger->lock);
  return hit;
}

void ledger_set_sync_memops(struct ledger *ledger, uint64_t key, bool value) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_floor(ledger, key);
  if (node && contains(&node->allocation, key))
    node->allocation.sync_memops = value;
  lock_release(&ledger->lock);
}

bool ledger_find_in(struct ledger *ledger, uint64_t from, uint64_t end, struct allocation *found) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_ceiling(ledger, from);
  bool hit = node && node->allocation.base < end;
  if (hit)
    *found = node->allocation;
  lock_release(&ledger->lock);
  return hit;
}

bool ledger_find_wanted(struct ledger *ledger, uint64_t from,
                        bool (*wanted)(const struct allocation *, void *), void *argument,
                        struct allocation *found) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_ceiling(ledger, from);
  while (node && !wanted(&node->allocation, argument))
    node = node->allocation.base == UINT64_MAX ? NULL : find_ceiling(ledger, node->allocation.base + 1);
  if (node)
    *found = node->allocation;
  lock_release(&ledger->lock);
  return node != NULL;
}

bool ledger_take(struct ledger *ledger, uint64_t base, struct allocation *taken) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_exact(ledger, base);
  if (node && node->doomed)
    node = NULL;
  if (node) {
    uint64_t sequence = node->allocation.sequence;
    node->doomed = true;
    while (node && node->allocation.sequence == sequence && node->pins) {
      condition_wait(&ledger->unpinned, &ledger->lock, UINT64_MAX);
      node = find_exact(ledger, base);
    }
    if (node && node->allocation.sequence != sequence)
      node = NULL;
  }
  if (node) {
    *taken = node->allocation;
    remove_node(ledger, node);
  }
  lock_release(&ledger->lock);
  return node != NULL;
}

void ledger_remove_context(struct ledger *ledger, CUcontext context,
                           void (*gone)(const struct allocation *, void *), void *argument) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_ceiling(ledger, 0);
  while (node) {
    uint64_t base = node->allocation.base;
    if (node->allocation.context != context) {
      node = base == UINT64_MAX ? NULL : find_ceiling(ledger, base + 1);
      continue;
    }
    if (node->pins) {
      condition_wait(&ledger->unpinned, &ledger->lock, UINT64_MAX);
    } else {
      if (gone)
        gone(&node->allocation, argument);
      remove_node(ledger, node);
    }
    node = find_ceiling(ledger, base);
  }
  lock_release(&ledger->lock);
}

void ledger_change_context(struct ledger *ledger, CUcontext from, CUcontext to) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_ceiling(ledger, 0);
  while (node) {
    uint64_t base = node->allocation.base;
    if (node->allocation.context == from)
      node->allocation.context = to;
    node = base == UINT64_MAX ? NULL : find_ceiling(ledger, base + 1);
  }
  lock_release(&ledger->lock);
}

bool ledger_pin(struct ledger *ledger, uint64_t base, uint64_t sequence, struct allocation *pinned) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_exact(ledger, base);
  bool alive = node && node->allocation.sequence == sequence && !node->doomed;
  if (alive) {
    node->pins++;
    *pinned = node->allocation;
  }
  lock_release(&ledger->lock);
  return alive;
}

void ledger_unpin(struct ledger *ledger, uint64_t base, uint64_t away_bytes) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_exact(ledger, base);
  if (node && node->pins) { /* a pinned node cannot have gone */
    node->allocation.away_bytes = away_bytes;
    if (--node->pins == 0)
      condition_wake_all(&ledger->unpinned);
  }
  lock_release(&ledger->lock);
}

void ledger_set_object(struct ledger *ledger, uint64_t base, void *object) {
  lock_take(&ledger->lock);
  struct ledger_node *node = find_exact(ledger, base);
  if (node && node->pins)
    node->allocation.object = object;
  lock_release(&ledger->lock);
}

bool ledger_change(struct ledger *ledger, uint64_t base, uint64_t sequence,
                   void (*change)(struct allocation *, void *), void *argument, struct allocation *before,
                   struct allocation *after) {
  struct ledger_node *node;
  lock_take(&ledger->lock);
  while ((node = find_exact(ledger, base)) && node->allocation.sequence == sequence && !node->doomed &&
         node->pins)
    condition_wait(&ledger->unpinned, &ledger->lock, UINT64_MAX);
  bool alive = node && node->allocation.sequence == sequence && !node->doomed;
  if (alive) {
    *before = node->allocation;
    change(&node->allocation, argument);
    *after = node->allocation;
  }
  lock_release(&ledger->lock);
  return alive;
}

int ledger_snapshot(struct ledger *ledger, bool (*wanted)(const struct allocation *, void *), void *argument,
                    struct allocation **copy, size_t *count) {
  lock_take(&ledger->lock);
  size_t used = 0;
  struct allocation *list = malloc((ledger->count + 1) * sizeof *list);
  for (struct ledger_node *node = list ? find_ceiling(ledger, 0) : NULL; node;) {
    uint64_t base = node->allocation.base;
    if (!wanted || wanted(&node->allocation, argument))
      list[used++] = node->allocation;
    node = base == UINT64_MAX ? NULL : find_ceiling(ledger, base + 1);
  }
  lock_release(&ledger->lock);
  if (!list)
    return -ENOMEM;
  *copy = list;
  *count = used;
  return 0;
}

size_t ledger_count(struct ledger *ledger) {
  lock_take(&ledger->lock);
  size_t count = ledger->count;
  lock_release(&ledger->lock);
  return count;
}

void ledger_fork_child(struct ledger *ledger) {
  uint64_t random = ledger->random;
  *ledger = (struct ledger)LEDGER(ledger->lock.rank);
  ledger->random = random;
}
