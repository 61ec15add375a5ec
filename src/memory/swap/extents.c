/* extents.c - allocations and holes side by side, with lists of the holes of shared blocks. */
#include "memory/swap/extents.h"

#include <stdlib.h>

#define LOOKS 16 /* at holes that may be too small, before taking a larger one */

static unsigned class_of(uint64_t bytes) { return 63 - (unsigned)__builtin_clzll(bytes / UNIT_BYTES); }

static void list_hole(struct space *space, struct extent *hole) {
  hole->used = false;
  if (!hole->block->shared)
    return;
  struct extent **head = &space->holes[class_of(hole->bytes)];
  hole->next = *head;
  hole->link = head;
  if (hole->next)
    hole->next->link = &hole->next;
  *head = hole;
}

static void unlist_hole(struct extent *hole) {
  if (!hole->link)
    return;
  *hole->link = hole->next;
  if (hole->next)
    hole->next->link = hole->link;
  hole->link = NULL;
  hole->next = NULL;
}

bool extents_cover(struct block *block) {
  struct extent *all = calloc(1, sizeof *all);
  if (!all)
    return false;
  all->block = block;
  all->bytes = block->bytes;
  block->extents = all;
  return true;
}

/* What is beyond `bytes` becomes a hole of its own; without memory for that, it stays with the extent. */
static void split(struct space *space, struct extent *extent, uint64_t bytes) {
  struct extent *rest = bytes < extent->bytes ? calloc(1, sizeof *rest) : NULL;
  if (!rest)
    return;
  *rest = (struct extent){.block = extent->block,
                          .at = extent->at + bytes,
                          .bytes = extent->bytes - bytes,
                          .before = extent,
                          .after = extent->after};
  if (rest->after)
    rest->after->before = rest;
  extent->after = rest;
  extent->bytes = bytes;
  list_hole(space, rest);
}

static struct extent *take(struct space *space, struct extent *hole, uint64_t bytes) {
  unlist_hole(hole);
  hole->used = true;
  hole->block->used++;
  if (hole->block->shared)
    split(space, hole, bytes);
  if (space->spare == hole->block)
    space->spare = NULL;
  return hole;
}

struct extent *extents_take(struct space *space, uint64_t bytes) {
  unsigned class = class_of(bytes), looks = 0;
  for (struct extent *hole = space->holes[class]; hole && looks < LOOKS; hole = hole->next, looks++)
    if (hole->bytes >= bytes)
      return take(space, hole, bytes);
  while (++class < HOLE_CLASSES)
    if (space->holes[class])
      return take(space, space->holes[class], bytes);
  return NULL;
}

struct extent *extents_take_first(struct space *space, struct block *block, uint64_t bytes) {
  return take(space, block->extents, bytes);
}

/* Add the extent after this one to it. */
static void absorb(struct extent *extent) {
  struct extent *after = extent->after;
  unlist_hole(after);
  extent->bytes += after->bytes;
  extent->after = after->after;
  if (extent->after)
    extent->after->before = extent;
  free(after);
}

void extents_give(struct space *space, struct extent *extent) {
  extent->block->used--;
  if (extent->after && !extent->after->used)
    absorb(extent);
  struct extent *before = extent->before;
  if (before && !before->used) {
    unlist_hole(before);
    absorb(before);
    extent = before;
  }
  list_hole(space, extent);
}

void extents_drop(struct block *block) {
  unlist_hole(block->extents);
  free(block->extents);
  block->extents = NULL;
}
