/* choice.h - which of the free shares a container should get. Pure. */
#ifndef GS_PLUGIN_CHOICE_H
#define GS_PLUGIN_CHOICE_H

#include "plugin/resource.h"

/* The free shares of a resource, and those that are taken from them. */
struct choice {
  const struct resource *resource;
  bool free[GPUS_MAX][RESOURCE_SHARES_MAX];
  unsigned free_count[GPUS_MAX];
  unsigned taken_count[GPUS_MAX];
};

/* Nothing is free. The rest of the struct must be zero. */
void choice_add_free(struct choice *choice, size_t gpu, unsigned share);

/* Take one that must be among them. 0, or -ENOENT: it is not free. */
int choice_take(struct choice *choice, size_t gpu, unsigned share);

/* Take the best one, if `needed` of them are wanted in the end, this one included. 0, or -ENOENT: none is
 * free.
 *
 * Several shares of a container are of one GPU if one has so many, else of as few as possible (or, if the
 * terms say `apart`, of as many as possible). Which GPU that is, is the placement's: the one with the most
 * shares free (spread) or with the fewest (pack). */
int choice_take_best(struct choice *choice, unsigned needed, size_t *gpu, unsigned *share);

#endif
